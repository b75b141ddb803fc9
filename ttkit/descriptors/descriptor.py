"""The content of a mesh graph descriptor: meshes of chips, the hosts that share them, and links."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from ttkit.errors import fail
from ttkit.hardware.systems import Coordinate, RowColumn
from ttkit.lazy import drawn_by
from ttkit.words import counted


@dataclass(frozen=True)
class MeshInstance:
    """One mesh: a grid of chips, row-major, divided into equal blocks, one for each host.

    Args:
        device_dims: rows and columns of chips.
        dim_types: "LINE" or "RING" (a cable joins the last chip to the first) for each dimension.
        host_dims: rows and columns of hosts.
        channels: ethernet links between two neighbours.
        policy: "STRICT" requires all these links, "RELAXED" also accepts fewer.

    Example:
        >>> lines = ("LINE", "LINE")
        >>> mesh = MeshInstance(0, "M0", "WORMHOLE_B0", (2, 4), lines, (1, 2), 2, "STRICT")
        >>> mesh.num_devices, mesh.num_hosts, mesh.host_of((0, 3)), mesh.block_of_host(1)
        (8, 2, 1, ((0, 2), (2, 2)))
    """

    mesh_id: int
    name: str
    arch: str
    device_dims: RowColumn
    dim_types: tuple[str, str]
    host_dims: RowColumn
    channels: int
    policy: str

    @property
    def num_devices(self) -> int:
        """The number of chips."""
        return math.prod(self.device_dims)

    @property
    def num_hosts(self) -> int:
        """The number of hosts that share the mesh."""
        return math.prod(self.host_dims)

    @property
    def size_text(self) -> str:
        """The rows and columns of chips as text, such as "2x4"."""
        return "x".join(map(str, self.device_dims))

    @property
    def rings(self) -> tuple[bool, bool]:
        """Two flags: whether the first and the second dimension are rings."""
        return self.dim_types[0] == "RING", self.dim_types[1] == "RING"

    @property
    def host_shape(self) -> RowColumn:
        """The rows and columns of the chips that one host has."""
        return self.device_dims[0] // self.host_dims[0], self.device_dims[1] // self.host_dims[1]

    def host_of(self, coordinate: Coordinate) -> int:
        """Return the host rank of the chip at a (row, column)."""
        rows, columns = self.host_shape
        row, column = coordinate
        return row // rows * self.host_dims[1] + column // columns

    def block_of_host(self, host_rank: int) -> tuple[RowColumn, RowColumn]:
        """Return the corner and the shape of the block of chips that a host rank drives."""
        if not 0 <= host_rank < self.num_hosts:
            fail(
                f"host rank {host_rank} of mesh {self.mesh_id}",
                f"Invalid TT_MESH_HOST_RANK: Local mesh binding host_rank {host_rank} not "
                "found in mesh graph descriptor",
                f"a rank of 0 to {self.num_hosts - 1}",
            )
        row, column = divmod(host_rank, self.host_dims[1])
        return (row * self.host_shape[0], column * self.host_shape[1]), self.host_shape


class Connection(NamedTuple):
    """Links between two meshes.

    Args:
        meshes: ids of the two meshes.
        channels, policy: the same as in `MeshInstance`.
        devices: the chip at each end; None if any chip of that mesh may be the end.
    """

    meshes: tuple[int, int]
    channels: int
    policy: str
    devices: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True)
class MeshGraphDescriptor:
    """The content of a descriptor file, as `read_descriptor` returns it.

    Args:
        name: the file's name without its ending and without "_mesh_graph_descriptor".

    Example:
        >>> from ttkit.descriptors.reading import descriptor_path, read_descriptor
        >>> descriptor = read_descriptor(descriptor_path(8))
        >>> descriptor.total_devices, descriptor.total_hosts, descriptor.meshes[0].device_dims
        (8, 1, (2, 4))
    """

    meshes: tuple[MeshInstance, ...]
    connections: tuple[Connection, ...] = ()
    name: str = field(default="descriptor", compare=False)

    @property
    def total_devices(self) -> int:
        """The number of chips of all meshes."""
        return sum(mesh.num_devices for mesh in self.meshes)

    @property
    def total_hosts(self) -> int:
        """The number of hosts of all meshes: the ranks of a full launch."""
        return sum(mesh.num_hosts for mesh in self.meshes)

    def mesh(self, mesh_id: int) -> MeshInstance:
        """Return the mesh with that id.

        Raises:
            TTKitError: no mesh has that id.
        """
        ids = [mesh.mesh_id for mesh in self.meshes]
        if mesh_id not in ids:
            fail(
                f"mesh {mesh_id} of {self!r}",
                f"Invalid TT_MESH_ID: Local mesh binding mesh_id {mesh_id} not found in mesh "
                "graph descriptor",
                f"one of {', '.join(map(str, ids))}",
            )
        return self.meshes[ids.index(mesh_id)]

    def __repr__(self) -> str:
        one = len(self.meshes) == 1
        what = self.meshes[0].size_text if one else f"{len(self.meshes)} meshes"
        hosts = counted(self.total_hosts, "host")
        return f"MeshGraphDescriptor({self.name}: {what}, {self.total_devices} devices, {hosts})"

    _repr_html_ = drawn_by("mesh:draw_descriptor")

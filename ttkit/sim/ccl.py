"""Collectives: what chips send each other, in one stroke on the leading axes; `plans` tells how the data would travel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ttkit.dialect import is_strict, older_form
from ttkit.errors import fail
from ttkit.plans.recorded import record
from ttkit.sim import across, exchange, fabric, labels
from ttkit.sim.arguments import describe
from ttkit.sim.dispatch import on_mesh, operation, result
from ttkit.sim.dtypes import bytes_of
from ttkit.sim.enums import DataType, FabricConfig, Layout, Topology
from ttkit.sim.memory import would_fit
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.shaping import axis_of, moved
from ttkit.sim.tensor import Tensor
from ttkit.sim.types import MeshCoordinate, integer

Array = np.ndarray
UNSUMMED = (DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.BFLOAT4_B)
NEED_A_MESH = ("all_reduce", "all_broadcast")  # a freed tensor has none for them
# What ttnn says of an axis of one chip, where there is nobody to talk to.
ALONE = dict.fromkeys(("all_reduce", "reduce_scatter"), "DEBUG: forward_coord or backward_coord is null, there is no neighbour")
ALONE |= {name: f"{name} op will only work for num_devices > 1, got 1" for name in ("all_broadcast", "broadcast")}
ALONE |= {"all_gather": "all_gather collective will only work for num_devices > 1, got 1"}


def _ready(name: str, tensor: Any, cluster_axis: Any, **older: Any) -> tuple[MeshDevice, int | None]:
    """The mesh and the cluster axis, after the checks that every collective makes."""
    asked = describe(name, (tensor,), {"cluster_axis": cluster_axis})
    if not isinstance(tensor, Tensor):
        fail(asked, f"incompatible function arguments: {type(tensor).__name__} is not a ttnn.Tensor", "ttnn.from_torch(...) it first", TypeError)
    if tensor.mesh is None or (name in NEED_A_MESH and not tensor.is_allocated()):
        rule = f"Mesh device is required for {name} operation: the input tensor must be on device and not deallocated"
        fail(asked, rule, "ttnn.to_device(tensor, mesh)")
    mesh = on_mesh(name, tensor)
    given = older.pop("mesh_device", None)
    if given is not None and older_form(f"{name}(..., mesh_device=)", f"ttnn.{name} without mesh_device: the tensor knows its mesh") and given is not mesh:
        fail(asked, f"mesh_device is {given!r}, but the tensor lies on {mesh!r}")
    if given is not None and is_strict():
        fail(asked, "incompatible function arguments: mesh_device", f"ttnn.{name} without mesh_device", TypeError)
    if cluster_axis is not None:
        cluster_axis = integer(cluster_axis, asked)
        if cluster_axis < 0:
            fail(asked, f"incompatible function arguments: cluster_axis={cluster_axis} is negative", "cluster_axis=0 or 1", TypeError)
        if not 0 <= cluster_axis < len(mesh._shape):
            word = "index out of range: " if name == "all_gather" else ""
            fail(asked, f"{word}Invalid cluster axis {cluster_axis}. Must be 0 or 1", "cluster_axis=0 for columns of the mesh, 1 for rows")
    return mesh, cluster_axis


# What a collective takes when it is not told: the fabric's own; and what is left of it where no cable leads back.
OF_FABRIC = {FabricConfig.FABRIC_1D_RING: Topology.Ring, FabricConfig.FABRIC_2D: Topology.Mesh}
OF_FABRIC |= dict.fromkeys((FabricConfig.FABRIC_2D_TORUS_X, FabricConfig.FABRIC_2D_TORUS_Y, FabricConfig.FABRIC_2D_TORUS_XY), Topology.Torus)
OPEN = {Topology.Ring: Topology.Linear, Topology.Torus: Topology.Mesh}


@operation("get_usable_topology")
def get_usable_topology(tensor: Tensor, topology: Topology | None = None, cluster_axis: int | None = None) -> Topology:
    """The topology that a collective on `tensor` would use: as asked, else the fabric's; a ring or torus only where the cables close it.

    Raises:
        TTKitError: a host tensor; nothing asked and no fabric.
    """
    mesh, axis = _ready("get_usable_topology", tensor, cluster_axis)
    if topology is None:
        _needs_fabric("get_usable_topology", mesh)
        topology = OF_FABRIC.get(mesh.fabric, Topology.Linear)
    return topology if topology not in OPEN or _closes(mesh, axis) else OPEN[topology]


def _closes(mesh: MeshDevice, axis: int | None) -> bool:
    """True where a cable leads from the last chip back to the first, along `axis` or along the mesh's only line."""
    long = [a for a, n in enumerate(mesh._shape) if n > 1] if axis is None else [axis]
    if len(long) != 1 or mesh._shape[long[0]] < 3:
        return False
    lines = np.moveaxis(np.array(mesh._ids).reshape(mesh._shape), long[0], 0)
    return all(mesh.system.linked(int(a), int(b)) for a, b in zip(lines[0].ravel(), lines[-1].ravel(), strict=True))


def _record(name: str, tensor: Tensor, axis: int | None, topology: Topology | None = None, num_links: int | None = None, *ends: MeshCoordinate) -> None:
    """What `ttkit.last_plan` and the profiler build a plan from."""
    wanted = topology or OF_FABRIC.get(tensor.mesh.fabric)  # type: ignore[union-attr]
    record(name, tensor.mesh, bytes_of(tensor.padded, tensor.dtype), axis, None if wanted in OPEN else "line", num_links, ends)


def _needs_fabric(name: str, mesh: MeshDevice) -> None:
    if mesh.fabric is FabricConfig.DISABLED and not older_form(
        f"{name} without set_fabric_config", "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before the mesh is opened"
    ):  # fmt: skip
        fail(name, "Trying to get un-initialized fabric context", "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before opening the mesh")


def _whole(name: str, tensor: Tensor) -> None:
    if tensor.grid is not tensor.mesh.grid:  # type: ignore[union-attr]
        rule = f"the tensor covers {len(tensor.grid.covers)} of {tensor.mesh.get_num_devices()} chips"  # type: ignore[union-attr]
        fail(describe(name, (tensor,)), f"{rule}, but every chip of the mesh takes part in a collective", "a mapper that covers the mesh, or a submesh")


def _other_axis(name: str, mesh: MeshDevice, axis: int | None) -> int | None:
    """Along an axis of one chip there is nobody to talk to; the guide (section 9) then means the other axis."""
    if axis is not None and mesh._shape[axis] == 1 and mesh.get_num_devices() > 1:
        if older_form(f"{name}(cluster_axis={axis}) along an axis of one chip", f"cluster_axis={1 - axis}"):
            return 1 - axis
        fail(f"{name}(cluster_axis={axis}) on {mesh!r}", ALONE[name], f"cluster_axis={1 - axis}")
    if mesh.get_num_devices() == 1 and is_strict():
        fail(f"{name} on {mesh!r}", ALONE[name], "a mesh of several devices")
    return axis


def _ways(name: str, tensor: Tensor, **how: Any) -> Any:
    """The module that moves the values: within this process, or, once they have agreed on the call, across the ranks of the mesh."""
    if tensor.grid.local:
        return exchange
    if fabric.settings.checks:
        fabric.agree(tensor.grid, describe(name, (tensor,), how))
    return across


def _over(mesh: MeshDevice, axis: int | None) -> list[int]:
    return [axis] if axis is not None else list(range(len(mesh._shape)))


@operation("all_gather")
def all_gather(
    input_tensor: Tensor, dim: int, *, cluster_axis: int | None = None, memory_config: Any = None, output_tensor: Tensor | None = None,
    subdevice_id: Any = None, sub_core_grids: Any = None, num_links: int | None = None, topology: Any = None, chunks_per_sync: int | None = None,
    num_workers_per_link: int | None = None, num_buffers_per_channel: int | None = None, use_l1_small_for_semaphores: bool = False, **older: Any,
) -> Tensor:  # fmt: skip
    """Every chip gets the shards of all chips along `cluster_axis`, joined along `dim` in the order of the axis.

    Args:
        dim: the shard's dimension to join along.
        cluster_axis: 0 joins the chips of each column, 1 those of each row; may be left out where the mesh is one line.

    Raises:
        TTKitError: no fabric, no such dim or axis, a host tensor.

    Example: [32, 32] on each chip of a 2x4 mesh, dim=1, cluster_axis=1: [32, 128] on each.
    """
    _only_older("all_gather", older)
    mesh, axis = _ready("all_gather", input_tensor, cluster_axis, **older)
    _needs_fabric("all_gather", mesh)
    rank, asked = len(input_tensor.shard_shape), describe("all_gather", (input_tensor,), {"dim": dim, "cluster_axis": axis})
    dim = integer(dim, asked)
    if not -rank <= dim < rank:
        fail(asked, f"Invalid gather dim {dim} for {rank}D input tensor", f"a dim from {-rank} to {rank - 1}")
    if axis is None and min(mesh._shape) > 1 and not older_form("all_gather on a 2-D mesh without cluster_axis", "cluster_axis=0 or 1, one after the other"):
        fail(asked, "1D fabric on a 2D mesh_device requires cluster_axis to be set", "cluster_axis=0 or cluster_axis=1")
    axis = _other_axis("all_gather", mesh, axis)
    if mesh.get_num_devices() == 1:
        fail(asked, "all_gather collective will only work for num_devices > 1, got 1", "a mesh of more chips")
    _whole("all_gather", input_tensor)
    axes, at = _over(mesh, axis), dim % rank
    shape = list(input_tensor.shard_shape)
    shape[at] *= math.prod(mesh._shape[a] for a in axes)
    would_fit(input_tensor, tuple(shape))
    label = labels.gather(input_tensor.topology, mesh.grid, rank, axis, at)
    _record("all_gather", input_tensor, axis, topology, num_links)
    return _made(
        input_tensor, _ways("all_gather", input_tensor, dim=at, cluster_axis=axis).gathered(input_tensor, axes, at), label, memory_config, output_tensor
    )


def _made(tensor: Tensor, array: Array, label: Any, memory_config: Any, output: Tensor | None = None, rounded: bool = True) -> Tensor:
    if output is None and (rounded or tensor.dtype is DataType.FLOAT32):
        return moved("collective", tensor, array, memory_config, topology=label)
    with np.errstate(all="ignore"):
        return result(tensor, array, topology=label, memory_config=memory_config, output=output, owned=array.flags.owndata)


def _only_older(name: str, older: dict[str, Any]) -> None:
    unknown = set(older) - {"mesh_device"}
    if unknown:
        fail(name, f"incompatible function arguments: {', '.join(sorted(unknown))}", f"help(ttnn.{name})", TypeError)


@operation("reduce_scatter")
def reduce_scatter(
    input_tensor: Tensor, dim: int, *, cluster_axis: int | None = None, subdevice_id: Any = None, memory_config: Any = None,
    intermediate_memory_config: Any = None, output_tensor: Tensor | None = None, num_links: int | None = None, topology: Any = None,
    chunks_per_sync: int | None = None, num_workers_per_link: int | None = None, num_buffers_per_channel: int | None = None,
    compute_kernel_config: Any = None, use_l1_small_for_semaphores: bool = False, **older: Any,
) -> Tensor:  # fmt: skip
    """The shards of all chips along `cluster_axis` added; each chip keeps its piece of `dim`.

    Raises:
        TTKitError: the chips do not divide the dimension; no fabric; no such dim or axis.

    Example: [32, 128] on each chip of a 2x4 mesh, dim=1, cluster_axis=1: [32, 32] on each.
    """
    _only_older("reduce_scatter", older)
    mesh, axis = _ready("reduce_scatter", input_tensor, cluster_axis, **older)
    _needs_fabric("reduce_scatter", mesh)
    asked = describe("reduce_scatter", (input_tensor,), {"dim": dim, "cluster_axis": axis})
    at = axis_of(input_tensor, dim, asked)
    if len(input_tensor.shard_shape) < 2:
        fail(asked, "reduce_scatter currently supports rank 2 tensors at minimum", "ttnn.unsqueeze first")
    _check_links(asked, mesh, axis, num_links)
    axis = _other_axis("reduce_scatter", mesh, axis)
    _whole("reduce_scatter", input_tensor)
    axes = _over(mesh, axis)
    parts = math.prod(mesh._shape[a] for a in axes)
    if input_tensor.shard_shape[at] % parts:
        fail(asked, f"Dimension {at} must be divisible by ring_size: {input_tensor.shard_shape[at]} over {parts} chips", "another dim, or ttnn.pad first")
    label = labels.scatter(input_tensor.topology, mesh.grid, len(input_tensor.shard_shape), axis, at)
    _record("reduce_scatter", input_tensor, axis, topology, num_links)
    return _made(
        input_tensor,
        _ways("reduce_scatter", input_tensor, dim=at, cluster_axis=axis).reduced(input_tensor, axes, at),
        label,
        memory_config,
        output_tensor,
        rounded=False,
    )


def _check_links(asked: object, mesh: MeshDevice, axis: int | None, num_links: int | None) -> None:
    if num_links is None:
        return
    have = mesh.system.links_per_pair
    if integer(num_links, asked) <= 0:
        fail(asked, f"num_links must be greater than 0, got {num_links}")
    if num_links > have:
        ends = f"{mesh._ids[0]} and {mesh._ids[min(1, len(mesh._ids) - 1)]}"
        fail(
            asked,
            f"Requested link index {have} is out of bounds. {have} ethernet channels available to forward b/w src and dst {ends}",
            f"num_links of at most {have}",
        )


@operation("all_reduce", computes=False)  # sums are made in `exchange.added`, or by MPI
def all_reduce(
    input_tensor: Tensor, *, cluster_axis: int | None = None, subdevice_id: Any = None, memory_config: Any = None, num_links: int | None = None,
    topology: Any = None, **older: Any,
) -> Tensor:  # fmt: skip
    """The shards of all chips along `cluster_axis` (of the whole mesh without one) added; every chip gets the sum.

    Raises:
        TTKitError: no fabric, no such axis, a host tensor.
    """
    _only_older("all_reduce", older)
    mesh, axis = _ready("all_reduce", input_tensor, cluster_axis, **older)
    _needs_fabric("all_reduce", mesh)
    asked = describe("all_reduce", (input_tensor,), {"cluster_axis": axis})
    if num_links is not None and integer(num_links, asked) <= 0:
        fail(asked, f"Error, num_links should be more than 0 but has {num_links}")
    axis = _other_axis("all_reduce", mesh, axis)
    whole_tiles = input_tensor.layout is Layout.TILE and input_tensor.shard_shape == input_tensor.padded
    if is_strict() and not whole_tiles and input_tensor.dtype in UNSUMMED:
        rule = "moreh_sum input only supports specific data types. [BFLOAT16, INT32]: a shard that is not whole tiles is added up by moreh_sum"
        fail(asked, f"{rule}, which does not take {input_tensor.dtype.name}", "ttnn.typecast(tensor, ttnn.bfloat16)")
    _whole("all_reduce", input_tensor)
    label = labels.gather(input_tensor.topology, mesh.grid, len(input_tensor.shard_shape), axis, None)
    _record("all_reduce", input_tensor, axis, topology, num_links)
    return _made(
        input_tensor, _ways("all_reduce", input_tensor, cluster_axis=axis).summed(input_tensor, _over(mesh, axis)), label, memory_config, rounded=False
    )


@operation("all_broadcast")
def all_broadcast(
    input_tensor: Tensor, *, cluster_axis: int | None = None, subdevice_id: Any = None, memory_config: Any = None, num_links: int | None = 1,
    topology: Topology | None = Topology.Linear, use_l1_small_for_semaphores: bool = False, **older: Any,
) -> list[Tensor]:  # fmt: skip
    """The shards of all chips along `cluster_axis`, each as a tensor that every chip has: a list in the order of the axis."""
    _only_older("all_broadcast", older)
    mesh, axis = _ready("all_broadcast", input_tensor, cluster_axis, **older)
    _needs_fabric("all_broadcast", mesh)
    if axis is None and min(mesh._shape) > 1:
        fail(describe("all_broadcast", (input_tensor,)), "all_broadcast op is only supported for a linear tensor topology shape", "cluster_axis=0 or 1")
    axis = _other_axis("all_broadcast", mesh, axis)
    _whole("all_broadcast", input_tensor)
    over = axis if axis is not None else int(np.argmax(mesh._shape))
    label = labels.gather(input_tensor.topology, mesh.grid, len(input_tensor.shard_shape), axis, None)
    _record("all_gather", input_tensor, axis, topology, num_links)  # the same messages; the pieces stay apart
    return [_made(input_tensor, array, label, memory_config) for array in _ways("all_broadcast", input_tensor, cluster_axis=axis).each(input_tensor, over)]


@operation("broadcast")
def broadcast(
    input_tensor: Tensor, sender_coord: MeshCoordinate, *, num_links: int | None = None, memory_config: Any = None, topology: Topology = Topology.Linear,
    cluster_axis: int | None = None, subdevice_id: Any = None, **older: Any,
) -> Tensor:  # fmt: skip
    """Along `cluster_axis` every chip gets the shard of the chip in the sender's row or column of the axis."""
    _only_older("broadcast", older)
    mesh, axis = _ready("broadcast", input_tensor, cluster_axis, **older)
    asked = describe("broadcast", (input_tensor, sender_coord))
    if not isinstance(sender_coord, MeshCoordinate):
        fail(asked, "incompatible function arguments", "ttnn.MeshCoordinate(row, column)", TypeError)
    if axis is None and min(mesh._shape) > 1:
        fail(asked, "broadcast op is only supported for a linear tensor topology shape", "cluster_axis=0 or 1")
    if not mesh._inside(tuple(sender_coord)):
        fail(asked, f"Mesh device must contain sender coordinate device {sender_coord!r}")
    axis = _other_axis("broadcast", mesh, axis)
    _needs_fabric("broadcast", mesh)
    _whole("broadcast", input_tensor)
    over = axis if axis is not None else int(np.argmax(mesh._shape))
    _record("broadcast", input_tensor, axis, topology, num_links, sender_coord)
    array = _ways("broadcast", input_tensor, sender=sender_coord, cluster_axis=axis).one_of(input_tensor, over, sender_coord[over])
    return _made(input_tensor, array, labels.gather(input_tensor.topology, mesh.grid, len(input_tensor.shard_shape), axis, None), memory_config)


@operation("mesh_partition")
def mesh_partition(input_tensor: Tensor, dim: int, cluster_axis: int | None = None, *, memory_config: Any = None) -> Tensor:
    """Each chip keeps its piece of `dim`, by its place along `cluster_axis`; nothing is sent.

    Raises:
        TTKitError: the chips do not divide the dimension, or cut it inside a tile.
    """
    asked = describe("mesh_partition", (input_tensor, dim, cluster_axis))
    if cluster_axis is not None and not 0 <= integer(cluster_axis, asked) <= 1 and cluster_axis >= 0:
        fail(asked, f"Only support cluster axis of None, 0 or 1, got {cluster_axis}")
    mesh, axis = _ready("mesh_partition", input_tensor, cluster_axis)
    rank = len(input_tensor.shard_shape)
    if not -rank <= dim < rank:
        negative = f"ShapeBase[] index out of range. {dim} not in [{-max(rank, 4)}, {rank})"
        fail(asked, f"dim must be less than the rank of the input tensor: {dim}, rank {rank}; {negative}")
    _whole("mesh_partition", input_tensor)
    axes, at = _over(mesh, axis), dim % rank
    parts = math.prod(mesh._shape[a] for a in axes)
    if parts == 1:
        return input_tensor
    size = input_tensor.shard_shape[at]
    if size % parts:
        fail(asked, f"input shape {input_tensor.shape!r} must be divisible by cluster axis size {parts}")
    if input_tensor.layout is Layout.TILE and at >= rank - 2 and size // parts % 32:
        side = "width" if at == rank - 1 else "height"
        fail(asked, f"Can only slice tilized tensor with {side} begin index aligned to tiles: pieces of {size // parts}", "a row-major tensor, or pieces of 32")
    label = labels.partition(input_tensor.topology, mesh.grid, rank, axis, at)
    return _made(input_tensor, (exchange if input_tensor.grid.local else across).partitioned(input_tensor, axes, at), label, memory_config)


@operation("point_to_point")
def point_to_point(
    input_tensor: Tensor, sender_coord: MeshCoordinate, receiver_coord: MeshCoordinate, *, output_tensor: Tensor | None = None,
    intermediate_tensor: Tensor | None = None, topology: Topology = Topology.Linear, **older: Any,
) -> Tensor:  # fmt: skip
    """The sender's shard replaces the receiver's; all others keep theirs (or those of `output_tensor`).

    Raises:
        TTKitError: a coordinate outside the mesh, or two chips that are in no row or column together.
    """
    _only_older("point_to_point", older)
    asked = describe("point_to_point", (input_tensor, sender_coord, receiver_coord))
    if isinstance(input_tensor, Tensor) and input_tensor.mesh is None:
        fail(asked, "Device Operations expect device tensors as inputs", "ttnn.to_device(tensor, mesh)")
    if isinstance(input_tensor, Tensor) and not input_tensor.is_allocated():
        fail(asked, "Input Tensor is not allocated", "use it before ttnn.deallocate")
    mesh, _ = _ready("point_to_point", input_tensor, None, **older)
    for what, coordinate in (("sender", sender_coord), ("receiver", receiver_coord)):
        if not isinstance(coordinate, MeshCoordinate):
            fail(asked, "incompatible function arguments", "ttnn.MeshCoordinate(row, column)", TypeError)
        if not mesh._inside(tuple(coordinate)):
            fail(asked, f"Mesh device must contain {what} coordinate device {coordinate!r}")
    _needs_fabric("point_to_point", mesh)
    if sum(a != b for a, b in zip(sender_coord, receiver_coord, strict=True)) > 1:
        fail(asked, f"Routing coordinates {sender_coord!r} and {receiver_coord!r} invalid for 1D fabric", "two hops: along the row, then along the column")
    _whole("point_to_point", input_tensor)
    base = input_tensor if output_tensor is None else output_tensor
    _record("point_to_point", input_tensor, None, topology, None, sender_coord, receiver_coord)
    values = _ways("point_to_point", input_tensor, sender=sender_coord, receiver=receiver_coord).sent(
        input_tensor, base, tuple(sender_coord), tuple(receiver_coord)
    )
    return _made(input_tensor, values, input_tensor.topology, None, output_tensor)

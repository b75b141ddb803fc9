"""What a socket joins: cores of chips, and the ranks or meshes that these are on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ttkit.errors import fail
from ttkit.sim.enums import BufferType, _Enum
from ttkit.sim.grid import Coordinate
from ttkit.sim.types import MeshCoordinate, integer


class CoreCoord(NamedTuple):
    """A core of a chip."""

    x: int
    y: int

    def __repr__(self) -> str:
        return f"({self.x},{self.y})"


class MeshCoreCoord:
    """A core of a chip of a mesh.

    Example:
        >>> MeshCoreCoord(MeshCoordinate(0, 1), CoreCoord(0, 0))
        MeshCoreCoord(device=MeshCoordinate([0, 1]), core=(0,0))
    """

    def __init__(self, device_coord: Any, core_coord: Any):
        if not isinstance(device_coord, MeshCoordinate) or not isinstance(core_coord, CoreCoord):
            cure = "MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0))"
            rule = f"incompatible function arguments: {device_coord!r}, {core_coord!r}"
            fail("MeshCoreCoord", rule, cure, TypeError)
        self.device_coord, self.core_coord = device_coord, core_coord

    def __repr__(self) -> str:
        return f"MeshCoreCoord(device={self.device_coord!r}, core={self.core_coord!r})"


class SocketConnection:
    """One core that sends and the core that receives from it."""

    def __init__(self, sender_core: MeshCoreCoord, receiver_core: MeshCoreCoord):
        self.sender_core, self.receiver_core = sender_core, receiver_core


class SocketMemoryConfig:
    """Where the receiver keeps what has come and was not taken yet, and how many bytes of it."""

    def __init__(
        self,
        socket_storage_type: BufferType,
        fifo_size: int,
        sender_sub_device: Any = None,
        receiver_sub_device: Any = None,
        per_core_allocation: bool = False,
    ):
        if not isinstance(socket_storage_type, BufferType):
            fail(
                "SocketMemoryConfig",
                f"incompatible function arguments: {socket_storage_type!r}",
                "ttnn.BufferType.L1",
                TypeError,
            )
        self.socket_storage_type, self.fifo_size = (
            socket_storage_type,
            integer(fifo_size, "SocketMemoryConfig", 0),
        )
        self.per_core_allocation = per_core_allocation


class SocketConfig:
    """Which chips are joined, and which ranks or meshes they are on where MPI started several."""

    def __init__(
        self,
        connections: Sequence[SocketConnection],
        memory_config: SocketMemoryConfig,
        sender_rank: int | None = None,
        receiver_rank: int | None = None,
        *,
        sender_mesh_id: int | None = None,
        receiver_mesh_id: int | None = None,
    ):
        if not all(isinstance(c, SocketConnection) for c in connections) or not isinstance(
            memory_config, SocketMemoryConfig
        ):
            rule = "incompatible function arguments"
            cure = "SocketConfig([SocketConnection(...)], SocketMemoryConfig(...))"
            fail("SocketConfig", rule, cure, TypeError)
        self._connections, self._memory = list(connections), memory_config
        self._ranks, self._meshes = (sender_rank, receiver_rank), (sender_mesh_id, receiver_mesh_id)

    @property
    def _pairs(self) -> list[tuple[Coordinate, Coordinate]]:
        return [
            (tuple(c.sender_core.device_coord), tuple(c.receiver_core.device_coord))
            for c in self._connections
        ]


class SocketEndpoint(_Enum):
    """Which end of a socket."""

    SENDER = 0
    RECEIVER = 1

"""What a socket connects: cores of chips, and the memory between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ttkit.sim.cores import CoreCoord
from ttkit.sim.enums import BufferType, _Enum
from ttkit.sim.grid import Coordinate
from ttkit.sim.types import MeshCoordinate


class MeshCoreCoord(NamedTuple):
    """A core of a chip of a mesh."""

    device_coord: MeshCoordinate
    core_coord: CoreCoord


class SocketConnection(NamedTuple):
    """One core that sends and the core that receives from it."""

    sender_core: MeshCoreCoord
    receiver_core: MeshCoreCoord


class SocketMemoryConfig(NamedTuple):
    """Where the receiver keeps data that has arrived and was not read, and how many bytes."""

    socket_storage_type: BufferType
    fifo_size: int


@dataclass(frozen=True)
class SocketConfig:
    """Which chips are connected, and of which ranks or meshes where MPI started several."""

    connections: Sequence[SocketConnection]
    memory_config: SocketMemoryConfig
    sender_rank: int | None = None
    receiver_rank: int | None = None
    sender_mesh_id: int | None = None
    receiver_mesh_id: int | None = None

    @property
    def _pairs(self) -> list[tuple[Coordinate, Coordinate]]:
        cores = [(c.sender_core, c.receiver_core) for c in self.connections]
        return [(tuple(s.device_coord), tuple(r.device_coord)) for s, r in cores]


class SocketEndpoint(_Enum):
    """Which end of a socket."""

    SENDER = 0
    RECEIVER = 1

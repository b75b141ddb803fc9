"""Sockets send tensors from the chips of one mesh to those of another, also between ranks."""

from __future__ import annotations

import atexit
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ttkit.errors import CollectiveMismatch, fail
from ttkit.sim.arguments import describe, refuse
from ttkit.sim.collectives.ccl import report
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.ops import Array, checked, on_mesh, operation
from ttkit.sim.ranks import mpi, world_size
from ttkit.sim.tensor import BufferType, MeshCoordinate, _Enum
from ttkit.sim.tensor.dtypes import bytes_of
from ttkit.sim.tensor.grid import Coordinate
from ttkit.sim.tensor.sharding import CoreCoord
from ttkit.sim.tensor.tensor import Tensor


class MeshCoreCoord(NamedTuple):
    """A core of a chip of a mesh."""

    device_coord: MeshCoordinate
    core_coord: CoreCoord


class SocketConnection(NamedTuple):
    """One core that sends and the core that receives from it."""

    sender_core: MeshCoreCoord
    receiver_core: MeshCoreCoord


class SocketMemoryConfig(NamedTuple):
    """The receiver's buffer for data that is not read yet: L1 or DRAM, and its size in bytes."""

    socket_storage_type: BufferType
    fifo_size: int


class SocketConfig(NamedTuple):
    """The connected chips, and, if MPI started several ranks, the ranks at both ends."""

    connections: Sequence[SocketConnection]
    memory_config: SocketMemoryConfig
    sender_rank: int | None = None
    receiver_rank: int | None = None


class SocketEndpoint(_Enum):
    """One end of a socket: the sender or the receiver."""

    SENDER = 0
    RECEIVER = 1


_made: Counter[tuple[int, ...]] = Counter()  # This counts the sockets between each set of ranks.


class _Channel:
    """The shared state of both ends of a socket: the connected chips, and how values are sent.

    Args:
        ranks: for each connection the rank of its sender and the rank of its receiver.
    """

    # If each chip of a mesh sends to a neighbour along one axis, this is (axis, step): step is 1 if
    # it sends to the next chip, -1 if it sends to the previous one. Otherwise this is None.
    shift: tuple[int, int] | None = None

    def __init__(self, config: SocketConfig, ranks: Sequence[tuple[int, int]]):
        cores = ((c.sender_core, c.receiver_core) for c in config.connections)
        self.pairs = [(tuple(a.device_coord), tuple(b.device_coord)) for a, b in cores]
        self.ranks = ranks
        # This holds the values that chips of this process have sent to each other.
        self.queue = deque[tuple[str, Array]]()
        self.everyone = tuple(sorted({rank for ends in ranks for rank in ends}))
        _made[self.everyone] += 1
        # A socket of another set of ranks may have the same tag, as it has another communicator.
        self.tag = mpi.SOCKET + 2 * _made[self.everyone]
        if len(self.everyone) > 1:
            call = f"MeshSocket number {_made[self.everyone]}, chips {self.pairs} on ranks {ranks}"
            mpi.compare(call, self.everyone)

    def _to(self, rank: int) -> tuple[Any, int]:
        """Return the communicator of all ranks at the socket, and a rank's number in it."""
        return mpi.world().group(*self.everyone), self.everyone.index(rank)

    def send(self, rank: int, about: str, values: Array) -> None:
        """Start to send values and, before them, their description."""
        if rank == mpi.me():
            self.queue.append((about, values))
            return
        here = mpi.world()
        comm, to = self._to(rank)
        here.in_step("send_async")
        header = mpi.encoded(f"{about}|{values.nbytes}")
        if not _pending:
            atexit.register(flush)
        _pending[:] = [message for message in _pending if not here.mpi.Request.Testall(message[0])]
        sends = [comm.Isend(header, to, self.tag), comm.Isend(values, to, self.tag + 1)]
        _pending.append((sends, (header, values)))

    def receive(self, rank: int, asked: object) -> tuple[str, Array]:
        """Receive a description and values, even if they do not fit, so that a sender can go on."""
        if rank == mpi.me():
            if not self.queue:
                rule = "nothing has been sent on this socket, so this would deadlock on hardware"
                fail(asked, rule, "send_async on the other end first")
            return self.queue.popleft()
        here = mpi.world()
        comm, source = self._to(rank)
        here.in_step(asked)
        header = np.empty(mpi.TEXT, np.uint8)
        here.wait([comm.Irecv(header, source, self.tag)], [rank], asked, header)
        about, nbytes = mpi.decoded(header).split("|")
        raw = np.empty(int(nbytes), np.uint8)
        here.wait([comm.Irecv(raw, source, self.tag + 1)], [rank], asked, raw)
        return about, raw


# This has the messages that are not received yet, with their memory, which MPI still reads.
_pending: list[tuple[list, Any]] = []


def flush() -> None:
    """Wait until all that was sent has been received."""
    asked = "the end of the program: tensors that were sent and not received"
    while _pending:
        requests, kept = _pending.pop()
        mpi.world().wait(requests, (), asked, kept)


class MeshSocket:
    """One end of a socket between this rank's mesh and the mesh of another rank.

    The ranks at both ends must make their sockets in the same order.

    Raises:
        TTKitError: this process is alone, the configuration does not name this rank at exactly one
            end, or the mesh is closed.
        CollectiveMismatch: the other end is configured in another way.
    """

    def __init__(self, device: MeshDevice, config: SocketConfig):
        asked = f"MeshSocket({device!r})"
        if world_size() == 1:
            rule = "this process is alone: there is no other end"
            fail(asked, rule, "create_socket_pair for two meshes of one process, or ttkit run")
        me = mpi.me()
        ends = (config.sender_rank, config.receiver_rank)
        if ends.count(me) != 1:
            rule = f"rank {me} is at no end, or at both: the ends are {ends}"
            fail(asked, rule, "SocketConfig(..., sender_rank=0, receiver_rank=1)")
        channel = _Channel(config, [ends] * len(config.connections))  # type: ignore[list-item]
        self._join(device, SocketEndpoint(ends.index(me)), channel)

    def _join(self, device: MeshDevice, end: SocketEndpoint, channel: _Channel) -> MeshSocket:
        device.check_open()
        self._device = device
        self._end = end
        self._channel = channel
        self.shift = channel.shift
        # This has the connected chips of this rank, by the rank at the other end. Chips are in the
        # order of the receivers, so that values from one rank arrive in the order of the shards.
        self._chips: dict[int, list[Coordinate]] = {}
        both = zip(channel.pairs, channel.ranks)
        for pair, ranks in sorted(both, key=lambda c: c[0][1]):
            if ranks[end.value] == mpi.me():
                self._chips.setdefault(ranks[1 - end.value], []).append(pair[end.value])
        return self

    def get_socket_endpoint_type(self) -> SocketEndpoint:
        """Return which end of the socket this is."""
        return self._end


@checked
def create_socket_pair(
    sender_mesh_device: MeshDevice, receiver_mesh_device: MeshDevice, socket_config: SocketConfig
) -> tuple[MeshSocket, MeshSocket]:
    """Return both ends of a socket between two meshes, of this process or shared by ranks.

    Example:
        >>> from ttkit import ttnn
        >>> core = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0))
        >>> memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 1 << 16)
        >>> config = ttnn.SocketConfig([ttnn.SocketConnection(core, core)], memory)
        >>> with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        ...     rows = mesh.create_submeshes(ttnn.MeshShape(1, 4))
        ...     sender, receiver = create_socket_pair(*rows, config)
        >>> sender.get_socket_endpoint_type().name
        'SENDER'
    """
    ranks = [
        (_driver(sender_mesh_device, c.sender_core), _driver(receiver_mesh_device, c.receiver_core))
        for c in socket_config.connections
    ]
    channel = _Channel(socket_config, ranks)
    if sender_mesh_device is receiver_mesh_device:
        channel.shift = _shift(dict(channel.pairs), sender_mesh_device._shape)
    sender, receiver = (
        MeshSocket.__new__(MeshSocket)._join(mesh, end, channel)
        for mesh, end in zip((sender_mesh_device, receiver_mesh_device), SocketEndpoint)
    )
    return sender, receiver


def _driver(mesh: MeshDevice, core: MeshCoreCoord) -> int:
    """Return the rank that drives the chip of a core."""
    host = mesh.grid.owner_of(tuple(core.device_coord))
    return mpi.me() if host is None else mpi.world().ranks([host])[0]


def _shift(pairs: dict[Coordinate, Coordinate], shape: Coordinate) -> tuple[int, int] | None:
    """Return the axis and step by which each chip sends to a neighbour, or None if it does not."""
    for axis, n in enumerate(shape):
        for step in (1, -1) if n > 1 else ():
            after = {
                c: (*c[:axis], (c[axis] + step) % n, *c[axis + 1 :]) for c in np.ndindex(shape)
            }
            if pairs == after:
                return axis, step
    return None


# ---------------------------------------------------------------- send and receive
def _ready(name: str, tensor: Tensor, socket: MeshSocket, end: SocketEndpoint) -> None:
    on_mesh(tensor)
    if socket._end is not end:
        rule = f"{name} op requires a {end.name} socket"
        refuse(rule, f"the other one of create_socket_pair, or of rank {list(socket._chips)}")
    if tensor.mesh is not socket._device:
        rule = f"the tensor lies on {tensor.mesh!r}, the socket on {socket._device!r}"
        refuse(rule, "a tensor on the socket's mesh")


def _about(tensor: Tensor) -> str:
    return f"{list(tensor.shard_shape)} {tensor.dtype.name} {tensor.layout.name}"


@operation("experimental.send_async", "collective")
def send_async(input_tensor: Tensor, mesh_socket: MeshSocket) -> list[Tensor]:
    """Send the shards of the socket's chips; the other end receives them in the same order.

    If each chip of a mesh sends to its neighbour along one axis, tapes record a shift and its plan.

    Raises:
        TTKitError: the socket is a receiver's, or the tensor is on another mesh or on the host.
    """
    _ready("send_async", input_tensor, mesh_socket, SocketEndpoint.SENDER)
    grid = input_tensor.grid
    array = input_tensor.array
    channel = mesh_socket._channel
    about = _about(input_tensor)
    if channel.shift:
        axis, step = channel.shift
        nbytes = bytes_of(input_tensor.padded, input_tensor.dtype)
        report("shift", input_tensor.mesh, nbytes, axis=axis, backwards=step < 0)
        if grid.local:
            replicated = array.shape[axis] == 1
            values = array if replicated else np.roll(array, step, axis)
            channel.queue.append((about, values))
            return []
    replicated = all(n == 1 for n in array.shape[: grid.lead])
    chips = array if replicated else input_tensor.full_array()
    chips = chips.reshape((-1,) + input_tensor.shard_shape)
    for rank, senders in mesh_socket._chips.items():
        # A replicated tensor is sent once to each rank.
        places = list(map(grid.coords.index, senders))
        values = np.ascontiguousarray(chips if replicated else chips[places])
        channel.send(rank, about, values)
    return []


@operation("experimental.recv_async", "collective")
def recv_async(output_tensor: Tensor, mesh_socket: MeshSocket) -> list[Tensor]:
    """Write what arrives from the other end into `output_tensor`, on the chips of the socket.

    Raises:
        TTKitError: the socket is a sender's, the tensor is on another mesh or on the host, or
            nothing has been sent inside this process.
        CollectiveMismatch: the tensor that arrives has another shape, type or layout, or no tensor
            arrives in time.
    """
    _ready("recv_async", output_tensor, mesh_socket, SocketEndpoint.RECEIVER)
    asked = describe("recv_async", (output_tensor,))
    grid = output_tensor.grid
    channel = mesh_socket._channel
    arrived = []
    for rank, receivers in mesh_socket._chips.items():
        about, values = channel.receive(rank, asked)
        if about != _about(output_tensor):
            rule = f"the sender's tensor is {about}, the output tensor is {_about(output_tensor)}"
            cure = "tensors of one shape, dtype and layout at both ends"
            fail(asked, rule, cure, CollectiveMismatch)
        if channel.shift and grid.local:
            output_tensor.rebind(values)
            return [output_tensor]
        if rank != mpi.me():  # Values from another rank arrive as plain bytes.
            values = values.view(output_tensor.array.dtype)
        places = list(map(grid.coords.index, receivers))
        arrived.append((places, values.reshape((-1, *output_tensor.shard_shape))))
    if arrived:
        output_tensor.rebind(_placed(arrived, output_tensor))
    return [output_tensor]


def _placed(arrived: list[tuple[list[int], Array]], tensor: Tensor) -> Array:
    """Return a tensor's values, replaced at the chips of the socket by those that have arrived."""
    grid = tensor.grid
    (places, first), *more = arrived
    every = sorted(place for some, _ in arrived for place in some) == list(range(grid.size))
    if every and all(len(v) == 1 and np.array_equal(v, first) for _, v in arrived):
        return first.reshape((1,) * grid.lead + tensor.shard_shape)
    if more or not every:
        first = np.array(tensor.full_array()).reshape((grid.size, *tensor.shard_shape))
        for places, values in arrived:
            first[places] = values
    return first.reshape(grid.shape + tensor.shard_shape)

"""Sockets: tensors from the chips of one mesh to those of another, here or on other ranks."""

from __future__ import annotations

import atexit
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ttkit.errors import CollectiveMismatch, fail
from ttkit.plans.recorded import Record, latest
from ttkit.sim.arguments import describe
from ttkit.sim.mesh.cores import CoreCoord
from ttkit.sim.mesh.mesh import MeshDevice
from ttkit.sim.ops import blocks
from ttkit.sim.ops.operation import checked, on_mesh, operation
from ttkit.sim.ranks import mpi
from ttkit.sim.ranks.part_of_mesh import binding, owner_in, world_size
from ttkit.sim.tensor.enums import BufferType, _Enum
from ttkit.sim.tensor.grid import Coordinate, is_inside
from ttkit.sim.tensor.memory import bytes_of
from ttkit.sim.tensor.tensor import Tensor
from ttkit.sim.tensor.types import MeshCoordinate

# Each pair has the ranks of the sender and the receiver of a connection.
Ranks = list[tuple[int, int]]
OwnerOf = Callable[[Coordinate], int]


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


class MeshSocket:
    """One end of a socket between this rank's mesh and that of another.

    The ranks at both ends must make their sockets in the same order.

    Raises:
        TTKitError: no connections, a core used twice, a chip that is not there, a configuration
            that does not name this rank.
        CollectiveMismatch: the other end is configured in another way.
    """

    # Each chip sends along this mesh axis, to the chip after it (1) or before it (-1).
    shift: tuple[int, int] | None = None

    def __init__(self, device: MeshDevice, config: SocketConfig):
        asked = f"MeshSocket({device!r})"
        if world_size() == 1:
            rule = "this process is alone: there is no other end"
            fail(asked, rule, "create_socket_pair for two meshes of one process, or ttkit run")
        here = mpi.world()
        ends: list[Any] = [config.sender_rank, config.receiver_rank]
        ids: list[Any] = [config.sender_mesh_id, config.receiver_mesh_id]
        owners: list[Any] = [lambda c, rank=end: rank for end in ends]
        if None in ends:
            owners = [lambda c, i=i: here.rank_at(i, owner_in(i, c)) for i in ids]
            ends = [here.rank if (binding() or (None,))[0] == i else -1 for i in ids]
            if None in ids:
                rule = "the configuration names neither ranks nor meshes"
                cure = "SocketConfig(..., sender_rank=0, receiver_rank=1), or create_socket_pair"
                fail(asked, rule, cure)
        if ends.count(here.rank) != 1:
            rule = f"rank {here.rank} is at no end, or at both: the ends are {ends}"
            fail(asked, rule, "create_socket_pair for two meshes of one process")
        ranks, tag = _agreed(config, owners, asked)
        self._make(device, config, SocketEndpoint(ends.index(here.rank)), ranks, tag, deque())

    def _make(
        self,
        device: MeshDevice,
        config: SocketConfig,
        end: SocketEndpoint,
        ranks: Ranks,
        channel: tuple[tuple[int, ...], int],
        queue: deque[Any],
    ) -> None:
        asked = f"a socket of {device!r}"
        device.check_open(asked)
        for word, cores in zip(("sender", "receiver"), zip(*config.connections, strict=True)):
            if len(set(cores)) != len(cores):
                rule = f"Cannot reuse {word} cores in a single socket."
                fail(asked, rule, "a core of its own for each connection")
        self._device, self._end, self._channel, self._queue = device, end, channel, queue
        # Each rank at the other end has its connections, as (sender, receiver) chips.
        self._routes: dict[int, list[tuple[Coordinate, Coordinate]]] = {}
        # Connections are sorted by receiver, so that what one rank sends arrives in the order of
        # the shards.
        for pair, rank in sorted(zip(config._pairs, ranks, strict=True), key=lambda c: c[0][1]):
            if not is_inside(pair[end.value], device._shape):
                place = MeshCoordinate(pair[end.value])
                fail(asked, f"Coordinate {place!r} not found in mesh {device.shape!r}")
            if rank[end.value] == mpi.me():
                self._routes.setdefault(rank[1 - end.value], []).append(pair)

    def get_socket_endpoint_type(self) -> SocketEndpoint:
        """Which end this is."""
        return self._end


_sockets: Counter[tuple[int, ...]] = Counter()  # This counts the sockets between each set of ranks.
# Messages on their way are kept here with their memory, which MPI still reads.
_pending: list[tuple[list[Any], Any]] = []


def _agreed(
    config: SocketConfig, owners: Sequence[OwnerOf], asked: str
) -> tuple[Ranks, tuple[tuple[int, ...], int]]:
    """Return the ranks at both ends of each connection, which agree; all of them, and a tag."""
    if not config.connections:
        rule = "Socket connection config cannot be empty."
        fail(asked, rule, "one SocketConnection for each chip")
    ranks = [(owners[0](s), owners[1](r)) for s, r in config._pairs]
    everyone = tuple(sorted({r for pair in ranks for r in pair}))
    _sockets[everyone] += 1
    if len(everyone) > 1 and mpi.me() in everyone and mpi.settings.checks:
        call = f"MeshSocket number {_sockets[everyone]}, chips {config._pairs} on ranks {ranks}"
        mpi.compare(call[: mpi.TEXT], everyone)
    return ranks, (everyone, mpi.SOCKET + 2 * _sockets[everyone])


def _to(socket: MeshSocket, rank: int) -> tuple[Any, int, int]:
    """The communicator of all ranks at a socket, a rank's number in it, and the tag.

    Other sockets between some of these ranks may have the same tag.
    """
    everyone, tag = socket._channel
    return mpi.world().group(everyone), everyone.index(rank), tag


@checked("create_socket_pair")
def create_socket_pair(
    sender_mesh_device: MeshDevice, receiver_mesh_device: MeshDevice, socket_config: SocketConfig
) -> tuple[MeshSocket, MeshSocket]:
    """Return both ends of a socket between two meshes of this process, or shared with other ranks.

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
    meshes, queue = (sender_mesh_device, receiver_mesh_device), deque[Any]()
    asked = f"create_socket_pair({meshes[0]!r}, {meshes[1]!r})"
    ranks, tag = _agreed(socket_config, [_owner(mesh) for mesh in meshes], asked)
    ends = [MeshSocket.__new__(MeshSocket) for _ in meshes]
    for socket, end, mesh in zip(ends, SocketEndpoint, meshes, strict=True):
        socket._make(mesh, socket_config, end, ranks, tag, queue)
        socket.shift = _shift(socket_config, *meshes)
    return ends[0], ends[1]


def _shift(config: SocketConfig, mesh: MeshDevice, to: MeshDevice) -> tuple[int, int] | None:
    """The axis and the direction in which each chip of a mesh is connected to the next one."""
    pairs, shape = dict(config._pairs), mesh._shape
    for axis, n in enumerate(shape if mesh is to and len(shape) == 2 else ()):
        for step in (1, -1):
            if n > 1 and pairs == {
                c: (*c[:axis], (c[axis] + step) % n, *c[axis + 1 :]) for c in np.ndindex(shape)
            }:
                return axis, step
    return None


def _owner(mesh: MeshDevice) -> OwnerOf:
    if mesh.owners is None:
        return lambda c: mpi.me()
    return lambda c: mpi.world().ranks([mesh.grid.owner_of(c)])[0]  # type: ignore[list-item]


# ---------------------------------------------------------------- send and receive
def _ready(name: str, tensor: Tensor, socket: MeshSocket, end: SocketEndpoint) -> None:
    asked = describe(name, (tensor,))
    on_mesh(tensor)
    if socket._end is not end:
        rule = f"{name} op requires a {end.name} socket"
        fail(asked, rule, f"the other one of create_socket_pair, or of rank {list(socket._routes)}")
    if tensor.mesh is not socket._device:
        rule = f"the tensor lies on {tensor.mesh!r}, the socket on {socket._device!r}"
        fail(asked, rule, "a tensor on the socket's mesh")
    chips = [pair[end.value] for pairs in socket._routes.values() for pair in pairs]
    absent = [chip for chip in chips if chip not in tensor.grid.coords]
    if absent:
        rule = f"the tensor has no shard at {absent}, which the socket connects"
        fail(asked, rule, "a mapper that covers the mesh; a collective on a mesh that ranks share")


def _about(tensor: Tensor) -> str:
    return f"{list(tensor.shard_shape)} {tensor.dtype.name} {tensor.layout.name}"


def _shifted(array: np.ndarray, axis: int, step: int) -> np.ndarray:
    """Move values along a leading axis to the next chip; a replicated axis does not change."""
    if array.shape[axis] == 1:
        return array
    out = blocks.empty(array.shape, array.dtype)
    to, of = np.moveaxis(out, axis, 0), np.moveaxis(array, axis, 0)
    to[step:], to[:step] = of[:-step], of[-step:]
    return out


@operation("experimental.send_async", "collective")
def send_async(input_tensor: Tensor, mesh_socket: MeshSocket) -> list[Tensor]:
    """Send the shards of the socket's chips; the other end receives them in the same order.

    Where each chip of a mesh sends to the next one along an axis it is a shift, with a plan.

    Raises:
        TTKitError: a receiver's socket, a tensor on another mesh or on the host.
    """
    _ready("send_async", input_tensor, mesh_socket, SocketEndpoint.SENDER)
    grid, array = input_tensor.grid, input_tensor.array
    one_copy = all(n == 1 for n in array.shape[: len(grid.shape)])
    if mesh_socket.shift:
        (axis, step), nbytes = mesh_socket.shift, bytes_of(input_tensor.padded, input_tensor.dtype)
        how = (axis, None, None, (), step < 0)
        latest.append(Record("shift", input_tensor.mesh, nbytes, *how))
        if grid.local:
            mesh_socket._queue.append((_about(input_tensor), _shifted(array, axis, step)))
            return []
    for rank, pairs in mesh_socket._routes.items():
        if one_copy:
            values = np.ascontiguousarray(array).reshape((1,) + input_tensor.shard_shape)
        else:
            flat = input_tensor.full_array().reshape((grid.size,) + input_tensor.shard_shape)
            values = np.ascontiguousarray(flat[[grid.coords.index(s) for s, _ in pairs]])
        if rank == mpi.me():
            mesh_socket._queue.append((_about(input_tensor), values))
        else:
            text = f"{_about(input_tensor)}|{len(values)}|{values.nbytes}"
            _post(text, values, *_to(mesh_socket, rank))
    return []


def _post(text: str, values: np.ndarray, comm: Any, rank: int, tag: int) -> None:
    """Start to send values and, before them, their description."""
    here = mpi.world()
    here.in_step("send_async")
    header = mpi.encoded(text)
    if not _pending:
        atexit.register(flush)
    _pending[:] = [message for message in _pending if not here.mpi.Request.Testall(message[0])]
    sends = [comm.Isend(header, rank, tag), comm.Isend(values, rank, tag + 1)]
    _pending.append((sends, (header, values)))


def flush() -> None:
    """Wait until all that was sent has been received."""
    asked = "the end of the program: tensors that were sent and not received"
    while _pending:
        requests, kept = _pending.pop()
        mpi.world().wait(requests, [-1] * len(requests), asked, (), kept)


@operation("experimental.recv_async", "collective")
def recv_async(output_tensor: Tensor, mesh_socket: MeshSocket) -> list[Tensor]:
    """Receive what the other end sent into `output_tensor`, at the chips of the socket.

    Raises:
        TTKitError: a sender's socket; a tensor of another shape, type or layout than what arrives;
            nothing has been sent.
        CollectiveMismatch: nothing arrived in time.
    """
    _ready("recv_async", output_tensor, mesh_socket, SocketEndpoint.RECEIVER)
    asked, grid = describe("recv_async", (output_tensor,)), output_tensor.grid
    arrived = []
    for rank, pairs in mesh_socket._routes.items():
        if rank == mpi.me():
            if not mesh_socket._queue:
                rule = "nothing has been sent on this socket, so this would deadlock on hardware"
                fail(asked, rule, "send_async on the other end first")
            about, values = mesh_socket._queue.popleft()
            _check(asked, about, output_tensor)
            if mesh_socket.shift and grid.local:
                output_tensor.rebind(values)
                return [output_tensor]
        else:
            values = _received(asked, output_tensor, rank, *_to(mesh_socket, rank))
        arrived.append(([grid.coords.index(r) for _, r in pairs], values))
    if arrived:
        output_tensor.rebind(_placed(arrived, output_tensor))
    return [output_tensor]


def _placed(arrived: list[tuple[list[int], np.ndarray]], tensor: Tensor) -> np.ndarray:
    """Return a tensor's values, with those that have arrived at the chips of the socket."""
    grid, (_, first) = tensor.grid, arrived[0]
    shape = (grid.size, *tensor.shard_shape)
    every = len({place for places, _ in arrived for place in places}) == grid.size
    if every and all(len(v) == 1 and (v is first or np.array_equal(v, first)) for _, v in arrived):
        return first.reshape((1,) * len(grid.shape) + shape[1:])
    if arrived[0][0] != list(range(grid.size)):
        into = np.empty(shape, first.dtype) if every else np.array(tensor.full_array())
        first = into.reshape(shape)
        for places, values in arrived:
            first[places] = values
    return first.reshape(grid.shape + shape[1:])


def _check(asked: object, about: str, tensor: Tensor) -> None:
    if about != _about(tensor):
        rule = f"the sender sent {about}, the output tensor is {_about(tensor)}"
        fail(asked, rule, "tensors of one shape, dtype and layout at both ends", CollectiveMismatch)


def _received(
    asked: object, tensor: Tensor, rank: int, comm: Any, source: int, tag: int
) -> np.ndarray:
    """Receive a description and values, even if they do not fit, so that the sender can go on."""
    here, header = mpi.world(), np.empty(mpi.TEXT, np.uint8)
    here.in_step(asked)
    here.wait([comm.Irecv(header, source, tag)], [rank], asked, (), header)
    about, copies, nbytes = mpi.decoded(header).split("|")
    raw = np.empty(int(nbytes), np.uint8)
    here.wait([comm.Irecv(raw, source, tag + 1)], [rank], asked, (), raw)
    _check(asked, about, tensor)
    return raw.view(tensor.array.dtype).reshape((int(copies),) + tensor.shard_shape)

"""Ranks that train together.

They share values that all ranks need: a mean, whether one of them was interrupted, what rank 0 has
read. They also send each other tensors: the stages of a pipeline send activations and gradients,
and the ranks of hierarchical training send weights and gradients.

A transport accepts messages (`ttkit.plans.schedule.Message`) of any stage without waiting, and
returns each message after it has arrived. It sends them inside a process, by MPI, or over the
fabric. If the hosts carry a tensor, not the fabric, it is sent as the global array of its batch, so
the meshes of two stages may differ in shape.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from ttkit import ttnn
from ttkit.backend import Array, to_numpy
from ttkit.plans.schedule import Message, Schedule
from ttkit.train.autograd import Value
from ttkit.train.config.layout import Layout, zigzag
from ttkit.train.context import sockets
from ttkit.waiting import wait_for

# These are the kinds of messages. The MPI tag of a message contains the index of its kind.
KINDS = ("activations", "gradients", "weight gradients", "weights", "note")
Cut = tuple[int | None, int | None]
Route = tuple[str, int, int]  # A route is (kind of message, source stage, destination stage).

Result = TypeVar("Result")


def start_mpi():
    """Initialize MPI and return mpi4py's `MPI`. The real ttnn must be loaded before; the imports of
    this module do that.

    A process that no launcher started shares memory with no other process. It selects Open MPI's
    transport "self", which makes no file for shared memory: such a file (16 MiB in /dev/shm) would
    stay if the process were killed.
    """
    name = "OMPI_MCA_btl"
    alone = "PMIX_NAMESPACE" not in os.environ and name not in os.environ
    if alone:
        os.environ[name] = "self"
    try:
        from mpi4py import MPI
    finally:
        if alone:
            del os.environ[name]  # Ranks that this process starts must not inherit it.
    return MPI


def mean_over_ranks(comm, number: float) -> float:
    """Return the mean of a number over the ranks; without a communicator, the number itself. If
    the numbers are flags, 0 or 1, the mean is above 0 when any flag is set.
    """
    if comm is None:
        return number
    from mpi4py import MPI

    values = np.array([number], np.float64) / comm.size
    request = comm.Iallreduce(MPI.IN_PLACE, values)
    wait_for("the other ranks", request.Test, (request, values))
    return float(values[0])


def on_rank_0(comm, call: Callable[[], Result]) -> Result:
    """Make a call on rank 0 alone and return its result on every rank. If the call raises an error,
    all ranks raise it: otherwise they would deadlock, because they wait for the result.

    Example:
        >>> on_rank_0(None, lambda: 7)  # one process alone
        7
    """
    if comm is None:
        return call()
    found: Any = None
    error: Exception | None = None
    if comm.rank == 0:
        try:
            found = call()
        except Exception as raised:
            error = raised
    found, error = comm.bcast((found, error))
    if error is not None:
        raise error
    return found


# ------------------------------------------------------------ point to point
def to_host(value: Value, *cuts: Cut) -> Array:
    """Return the global array of a tensor. One replica of each shard is read, and nothing is sent
    from chip to chip.

    Args:
        cuts: (mesh axis, dimension) of each cut, in the order in which the array was cut. A pair
            with None is no cut.
    """
    shards = ttnn.get_device_tensors(value)
    shape = tuple(value.device().shape)

    def joined(place: dict[int, int], cuts: Sequence[Cut]) -> Array:
        """Return the shards at `place`, joined along the axes in `cuts`. Along any other axis, all
        shards are equal, and the one at index 0 is read.
        """
        if not cuts:
            shard = shards[
                np.ravel_multi_index([place.get(i, 0) for i in range(len(shape))], shape)
            ]
            return np.asarray(to_numpy(shard), np.float32)
        (axis, dim), *rest = cuts
        if axis is None or dim is None:
            return joined(place, rest)
        return np.concatenate([joined(place | {axis: i}, rest) for i in range(shape[axis])], dim)

    return joined({}, cuts)


class Transport:
    """A transport of messages as arrays. This class is for a process that has all stages."""

    def __init__(self) -> None:
        self._arrived: dict[Message, Array] = {}

    def put(self, message: Message, array: Array) -> None:
        """Start to send an array, without waiting."""
        self._arrived[message] = array

    def has(self, message: Message) -> bool:
        """Return whether a message has arrived; an `MPITransport` waits until it has."""
        return message in self._arrived

    def take(self, message: Message) -> Array:
        """Return the array of a message that has arrived."""
        return self._arrived.pop(message)

    def flush(self) -> None:
        """Wait until all messages have been sent; inside a process this takes no time."""

    # Each chip's loss is the mean over its own tokens, so its gradient is dp x cp times that of the
    # global mean. The gradient of the global mean is sent, since the other stage may have another
    # dp x cp.
    def send(self, message: Message, value: Value, layout: Layout) -> None:
        """Send a tensor [B, 1, S, E] that lies on a mesh."""
        sequence = layout.tp_axis if layout.sequence_parallel else None
        array = to_host(value, (layout.dp_axis, 0), (layout.cp_axis, 2), (sequence, 2))
        if layout.cp > 1:
            array = np.take(array, np.argsort(zigzag(array.shape[2], layout.cp)), axis=2)
        parts = layout.dp * layout.cp
        self.put(message, array / parts if message.what == "gradients" else array)

    def receive(self, message: Message, layout: Layout) -> Value:
        """Return the tensor of a message that has arrived, placed on a mesh."""
        array = self.take(message)
        sequence = 2 if layout.sequence_parallel else None
        if message.what == "gradients":
            array = array * (layout.dp * layout.cp)
        return layout.place(array, dp_dim=0, cp_dim=2, tp_dim=sequence)


def route(message: Message) -> Route:
    """Return the route of a message."""
    return message.what, message.source.stage, message.destination.stage


def fabric_routes(schedule: Schedule) -> list[Route]:
    """Return the routes of all messages that a schedule sends.

    Each route has one socket, which is first-in first-out. One socket is enough, because every
    schedule receives messages in the order in which they were sent.
    """
    tasks = (task for stage in range(schedule.stages) for task in schedule.tasks(stage))
    return sorted({route(task.send) for task in tasks if task.send})


class MPITransport(Transport):
    """A transport of messages between ranks by MPI. A tag identifies each message, so messages may
    arrive in any order.

    If a message's route is one of `routes`, MPI carries only the shape. A socket carries the values
    from chip to chip, between meshes of the same shape.

    Args:
        comm: an mpi4py communicator that only this transport uses. Its ranks are the stages.
        layout: the layout of this rank's mesh.
        routes: the routes that use sockets.
        chunks: how many chunks of the model each stage has.
        name: returns the name of a rank, for the error if its message does not arrive.
        timeout_factor: the argument of `ttkit.waiting.wait_for`.
    """

    def __init__(
        self,
        comm,
        layout: Layout,
        routes: Iterable[Route],
        chunks: int = 1,
        name: Callable[[int], str] = "stage {}".format,
        timeout_factor: float = 1,
    ):
        self.comm = comm
        self.layout = layout
        self.chunks = chunks
        self.name = name
        self.timeout_factor = timeout_factor
        self._sent: list[Any] = []
        self._sockets: dict[Route, Any] = {}
        world = comm.allgather(int(ttnn.distributed_context_get_rank()))
        # The two ranks of a socket must make their sockets in the same order.
        for what, low, high in sorted({(what, min(ends), max(ends)) for what, *ends in routes}):
            if comm.rank in (low, high):
                found = sockets(layout.device, world[low + high - comm.rank])
                self._sockets[what, low, high] = found[world[low]]
                self._sockets[what, high, low] = found[world[high]]

    def _tag(self, message: Message) -> int:
        part = message.micro_batch * self.chunks + message.destination.chunk
        return part * len(KINDS) + KINDS.index(message.what)

    def _place(self, array: Array) -> Value:
        """Put an array on the mesh: several rows are sharded over the replicas, a single row goes
        to all chips.
        """
        return self.layout.place(array, dp_dim=0 if len(array) > 1 else None)

    def _post(self, message: Message, content: Any) -> None:
        """Start to send an array by MPI, or its shape if a socket carries the values."""
        request = self.comm.isend(content, message.destination.stage, self._tag(message))
        self._sent = [sent for sent in self._sent if not sent.Test()] + [request]

    def _get(self, message: Message) -> Any:
        self.has(message)
        return self.comm.recv(source=message.source.stage, tag=self._tag(message))

    def send(self, message: Message, value: Value, layout: Layout) -> None:
        """Send a tensor [B, 1, S, E]: shard by shard if its route has a socket, else as one global
        array.
        """
        if socket := self._sockets.get(route(message)):
            self._post(message, list(value.shape))
            ttnn.experimental.send_async(value, socket)
        else:
            super().send(message, value, layout)

    def receive(self, message: Message, layout: Layout) -> Value:
        """Return on a mesh the tensor that arrives over a socket, or as one global array."""
        if socket := self._sockets.get(route(message)):
            like = ttnn.empty(
                self._get(message),
                dtype=layout.dtype,
                layout=ttnn.TILE_LAYOUT,
                device=layout.device,
            )
            return ttnn.experimental.recv_async(like, socket)[0]
        return super().receive(message, layout)

    def put(self, message: Message, array: Array) -> None:
        """Start to send an array."""
        if socket := self._sockets.get(route(message)):
            self._post(message, array.shape)
            ttnn.experimental.send_async(self._place(array), socket)
            return
        self._post(message, np.asarray(array, np.float32))

    def has(self, message: Message) -> bool:
        """Wait until a message has arrived, and return True. If a socket carries its values, only
        the shape has arrived.

        Raises:
            TTKitError: the message has not arrived in time.
        """
        source = message.source.stage
        tag = self._tag(message)
        what = f"the {message.what} of {self.name(source)}"
        wait_for(what, lambda: self.comm.iprobe(source, tag), timeout_factor=self.timeout_factor)
        return True

    def take(self, message: Message) -> Array:
        """Wait for a message and return its array."""
        found = self._get(message)
        if socket := self._sockets.get(route(message)):
            value = ttnn.experimental.recv_async(self._place(np.zeros(found, np.float32)), socket)[
                0
            ]
            return to_host(value, (self.layout.dp_axis, 0))[: found[0]]
        return found  # type: ignore[no-any-return]

    def flush(self) -> None:
        """Wait until MPI has sent all messages of this rank; they may be received later."""
        for request in self._sent:
            wait_for("the other ranks", request.Test, request, self.timeout_factor)
        self._sent = []

"""Point to point: how activations and gradients travel from one pipeline stage to another, and
weights from one rank to another: inside a process, by MPI, or over the fabric.

A transport takes messages (`ttkit.plans.schedule.Message`) from any stage at once and returns them
once they have arrived. Through the hosts, a tensor travels as the global array of its batch, so the
meshes of two stages may differ in shape."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.backend import to_numpy
from ttkit.errors import fail
from ttkit.plans.schedule import Message, Schedule
from ttkit.train.autograd.tensor import Value
from ttkit.train.config.layout import Layout, zigzag
from ttkit.train.parallel.ranks import POLL_S, check_timeout, wait
from ttkit.train.pipeline.mesh_sockets import Sockets

# What messages carry: between stages, and in hierarchical training. A message's tag counts in this
# order.
KINDS = ("activations", "gradients", "weight gradients", "weights", "note")
AHEAD = 2  # So many receives are posted before their turn, to overlap communication with compute.
Route = tuple[str, int, int]  # A route is a kind of message and two ranks, in any order.


def to_host(value: Value, layout: Layout) -> np.ndarray:
    """Return the global array of a tensor whose batch is sharded over the data-parallel axis and
    whose sequence (dimension 2) is sharded as the layout asks. One replica of each shard is read.
    """
    shards = ttnn.get_device_tensors(value)
    tp_axis = layout.tp_axis if layout.sequence_parallel else None

    def joined(dim: int, axes: list[int | None], place: dict[int, int]) -> np.ndarray:
        """Join shards along the first of some axes, each of them joined along the others."""
        if not axes:
            at = np.ravel_multi_index([place.get(i, 0) for i in (0, 1)], tuple(layout.device.shape))
            return np.asarray(to_numpy(shards[at]), np.float32)
        axis, *rest = axes
        if axis is None:
            return joined(2, rest, place)
        count = layout.device.shape[axis]
        parts = [joined(2, rest, {**place, axis: number}) for number in range(count)]
        return np.concatenate(parts, axis=dim)

    array = joined(0, [layout.dp_axis, layout.cp_axis, tp_axis], {})
    if layout.cp > 1:
        array = np.take(array, np.argsort(zigzag(array.shape[2], layout.cp)), axis=2)
    return array


def from_host(array: np.ndarray, layout: Layout) -> Value:
    """Put activations [B, 1, S, E] on a mesh as `to_host` takes them from one."""
    tp_dim = 2 if layout.sequence_parallel else None
    return layout.place(array, dp_dim=0, cp_dim=2, tp_dim=tp_dim)


class Transport:
    """Messages as arrays; this class is for a process that has all stages."""

    def __init__(self) -> None:
        self._arrived: dict[Message, np.ndarray] = {}

    def put(self, message: Message, array: np.ndarray) -> None:
        """Start to send an array, without waiting."""
        self._arrived[message] = array

    def has(self, message: Message, shape: tuple[int, ...]) -> bool:
        """Whether a message of this shape has arrived; the first call announces that it is needed
        soon.
        """
        return message in self._arrived

    def take(self, message: Message, shape: tuple[int, ...]) -> np.ndarray:
        """Return the array of a message that has arrived."""
        return self._arrived.pop(message)

    def pause(self, start: float, awaited: Iterable[Message]) -> None:
        """Let others work: no awaited message has arrived since `start` (`time.monotonic()`)."""
        raise RuntimeError(f"nobody sends {list(awaited)}")  # A valid schedule never comes here.

    def fetch(self, message: Message, shape: tuple[int, ...]) -> np.ndarray:
        """Wait for a message and return its array."""
        start = time.monotonic()
        while not self.has(message, shape):
            self.pause(start, [message])
        return self.take(message, shape)

    def flush(self) -> None:
        """Wait until all that was sent has left."""

    def drop(self) -> None:
        """Forget all messages: a step was given up."""
        self._arrived.clear()

    # A stage's loss is the mean over its chips' tokens. So a gradient on a chip is as many times
    # that of the global mean as there are chips with other tokens. The latter travels, since the
    # other stage may have another number of them.
    def send(self, message: Message, value: Value, layout: Layout) -> None:
        """Send a tensor [B, 1, S, E] that lies on a mesh."""
        array = to_host(value, layout)
        parts = layout.dp * layout.cp
        self.put(message, array / parts if message.what == "gradients" else array)

    def receive(self, message: Message, layout: Layout, shape: tuple[int, ...]) -> Value:
        """Put the array of a message that has arrived, of this global shape, on a mesh."""
        array = self.take(message, shape)
        parts = layout.dp * layout.cp
        array = array * parts if message.what == "gradients" else array
        return from_host(array.reshape(shape), layout)


def describe(message: Message) -> str:
    """Name a message between stages."""
    source, part = message.source.stage, message.micro_batch
    return f"the {message.what} of micro-batch {part} from stage {source}"


class MPITransport(Transport):
    """Messages between ranks. A message with a route goes from chip to chip, over sockets between
    meshes of the same shape. Others go from host to host by MPI; a tag names each, so they may come
    in any order.

    Args:
        comm: an mpi4py communicator, used for nothing else, in which a message's stage is a rank.
        layout: of this rank's mesh.
        routes: (what, one rank, the other) of what sockets carry; a socket keeps the order.
        chunks: how many chunks of the model each stage has.
        describe: names a message that does not arrive.

    Attributes:
        bytes_sent: bytes sent through the host so far, by kind of message: {"weights": ...}.
        patience: how many times `TTKIT_RANK_TIMEOUT` to wait: more for a rank whose sender waits
            itself, so that the sender's message comes first and names the culprit.
    """

    def __init__(
        self,
        comm: Any,
        layout: Layout,
        routes: Iterable[Route] = (),
        chunks: int = 1,
        describe: Callable[[Message], str] = describe,
    ):
        self.comm, self.chunks, self.describe, self.patience = comm, chunks, describe, 1
        self.layout = layout
        self.bytes_sent = Counter[str]()
        self._sent: list[tuple[Any, np.ndarray]] = []
        self._posted: dict[Message, tuple[Any, np.ndarray]] = {}
        self._sockets: dict[tuple[str, int], Sockets] = {}
        world = comm.allgather(int(ttnn.distributed_context_get_rank()))
        # Both ranks make their sockets in the same order, since each connects to the next one of
        # its peer.
        for what, low, high in sorted({(what, min(ends), max(ends)) for what, *ends in routes}):
            if comm.rank in (low, high):
                peer = low + high - comm.rank
                self._sockets[what, peer] = Sockets(layout.device, world[peer])

    def _tag(self, message: Message) -> int:
        part = message.micro_batch * self.chunks + message.destination.chunk
        return part * len(KINDS) + KINDS.index(message.what)

    def put(self, message: Message, array: np.ndarray) -> None:
        """Start to send an array, which must not change until `flush`."""
        if sockets := self._sockets.get((message.what, message.destination.stage)):
            return sockets.send(self._place(array, self.layout))
        array = np.ascontiguousarray(array, np.float32)
        request = self.comm.Isend(array, message.destination.stage, self._tag(message))
        self._sent.append((request, array))
        self.bytes_sent[message.what] += array.nbytes

    def has(self, message: Message, shape: tuple[int, ...]) -> bool:
        """Whether a message has arrived, or comes by a socket, which `take` waits for; the first
        call posts its receive.
        """
        if (message.what, message.source.stage) in self._sockets:
            return True
        if message not in self._posted:
            array = np.empty(shape, np.float32)
            request = self.comm.Irecv(array, message.source.stage, self._tag(message))
            self._posted[message] = request, array
        return bool(self._posted[message][0].Test())

    def take(self, message: Message, shape: tuple[int, ...]) -> np.ndarray:
        """Return the array of a message that has arrived."""
        if (message.what, message.source.stage) in self._sockets:
            return to_host(self.receive(message, self.layout, shape), self.layout)[: shape[0]]
        self._sent = [sent for sent in self._sent if not sent[0].Test()]
        return self._posted.pop(message)[1]

    def pause(self, start: float, awaited: Iterable[Message]) -> None:
        """Sleep shortly.

        Raises:
            TTKitError: no awaited message has arrived in time.
        """
        time.sleep(POLL_S)
        check_timeout(start, ", ".join(map(self.describe, awaited)), self.patience)

    def flush(self) -> None:
        """Wait until all that was sent has been received."""
        for request, _ in self._sent:
            wait(request, self.patience)
        self._sent = []

    def drop(self) -> None:
        """Cancel the receives that are posted, before their memory goes."""
        for request, _ in self._posted.values():
            if not request.Test():
                request.Cancel()
        self._posted = {}

    def _place(self, array: np.ndarray, layout: Layout) -> Value:
        """Put a row for each group on the mesh, or the same row on all chips."""
        return layout.place(array, dp_dim=0 if len(array) > 1 else None)

    def send(self, message: Message, value: Value, layout: Layout) -> None:
        """Send the shards of all chips without the host, where there is a route."""
        if sockets := self._sockets.get((message.what, message.destination.stage)):
            return sockets.send(value)
        super().send(message, value, layout)

    def receive(self, message: Message, layout: Layout, shape: tuple[int, ...]) -> Value:
        """Return what has arrived on the mesh, or wait for the shards of all chips."""
        if sockets := self._sockets.get((message.what, message.source.stage)):
            between_stages = message.what in ("activations", "gradients")
            place = from_host if between_stages else self._place
            return sockets.receive(place(np.zeros(shape, np.float32), layout))
        return super().receive(message, layout, shape)


def fabric_routes(schedule: Schedule) -> list[Route]:
    """Return (what, stage, stage) of all that a schedule sends, for `MPITransport`.

    Raises:
        TTKitError: a stage receives messages in another order than they are sent: activations and
            gradients have a socket each, and a socket keeps the order.
    """
    sent: defaultdict[Route, list[Message]] = defaultdict(list)
    received: defaultdict[Route, list[Message]] = defaultdict(list)
    for stage in range(schedule.stages):
        for task in schedule.tasks(stage):
            for message, found in ((task.send, sent), (task.receive, received)):
                if message:
                    route = message.what, message.source.stage, message.destination.stage
                    found[route].append(message)
    for route, order in sent.items():
        if received[route] != order:
            what, source, destination = route
            rule = (
                f"stage {destination} takes the {what} of stage {source} in another order than "
                "they are sent, and a socket keeps the order"
            )
            fail(f"run {schedule!r} over the fabric", rule, "socket_type: mpi")
    return sorted(sent)

"""Point to point: how activations and gradients travel from one pipeline stage to another, and
weights from one rank to another: inside a process, by MPI, or over the fabric.

A transport takes messages (`ttkit.plans.schedule.Message`) from any stage at once and returns them
once they have arrived. By host, a tensor travels as the global array of its batch, so the meshes of
two stages may differ in shape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.convert import to_numpy
from ttkit.errors import fail
from ttkit.plans.actions import Message
from ttkit.plans.schedule import Schedule
from ttkit.train.autograd import Value
from ttkit.train.mesh_sockets import Sockets
from ttkit.train.parallel import Layout
from ttkit.train.replicas import POLL_S, check_timeout

# What messages carry: between stages, between stages that share a token table, and in hierarchical
# training. A message's tag counts in this order.
KINDS = ("activations", "gradients", "table", "weight gradients", "weights", "note")
AHEAD = 2  # receives that are posted before their turn, so that data arrives during computation
Route = tuple[str, int, int]  # what, from or to one rank, to or from the other


def to_host(value: Value, layout: Layout) -> np.ndarray:
    """Return the global array of a tensor whose batch is sharded over the data-parallel axis: the
    shards of one chip of each group, joined.
    """
    _, columns = layout.device.shape
    step = 1 if layout.ddp_axis == 1 else columns  # from the first chip of a group to the next
    shards = ttnn.get_device_tensors(value)[: layout.ddp_size * step : step]
    return np.concatenate([np.asarray(to_numpy(shard), np.float32) for shard in shards])


class Transport:
    """Messages as arrays; this class is for a process that has all stages."""

    def __init__(self) -> None:
        self._arrived: dict[Message, np.ndarray] = {}

    def put(self, message: Message, array: np.ndarray) -> None:
        """Start to send an array, without waiting."""
        self._arrived[message] = array

    def expect(self, message: Message, shape: tuple[int, ...]) -> None:
        """Announce that a message is needed soon."""

    def has(self, message: Message) -> bool:
        """Whether an expected message has arrived."""
        return message in self._arrived

    def take(self, message: Message) -> np.ndarray:
        """Return the array of a message that has arrived."""
        return self._arrived.pop(message)

    def pause(self, start: float, awaited: Iterable[Message]) -> None:
        """Let others work: no awaited message has arrived since `start` (`time.monotonic()`)."""
        raise RuntimeError(f"nobody sends {list(awaited)}")  # such schedules do not validate

    def fetch(self, message: Message, shape: tuple[int, ...]) -> np.ndarray:
        """Wait for a message and return its array."""
        self.expect(message, shape)
        start = time.monotonic()
        while not self.has(message):
            self.pause(start, [message])
        return self.take(message)

    def flush(self) -> None:
        """Wait until all that was sent has left."""

    def drop(self) -> None:
        """Forget all messages: a step was given up."""
        self._arrived.clear()

    # A stage's loss is the mean over its group's part of a batch. So a gradient on a group is as
    # many times that of the global mean as there are groups. The latter travels, since the other
    # stage may have another number of groups.
    def send(self, message: Message, value: Value, layout: Layout) -> None:
        """Send a tensor [B, 1, S, E] that lies on a mesh."""
        array = to_host(value, layout)
        self.put(message, array / layout.ddp_size if message.what == "gradients" else array)

    def receive(self, message: Message, layout: Layout, shape: tuple[int, ...]) -> Value:
        """Put the array of a message that has arrived, of this global shape, on a mesh."""
        array = self.take(message)
        array = array * layout.ddp_size if message.what == "gradients" else array
        return layout.place(array.reshape(shape), ddp_dim=0)


def describe(message: Message) -> str:
    """Name a message between stages."""
    source, part = message.source.stage, message.micro_batch
    return f"the {message.what} of micro-batch {part} from stage {source}"


class MPITransport(Transport):
    """Between ranks, from host to host. A tag names each message, so any order works.

    Args:
        comm: an mpi4py communicator, used for nothing else, in which a message's stage is a rank.
        chunks: parts of the model on each stage.
        describe: names a message that does not arrive.

    Attributes:
        patience: how many times `TTKIT_RANK_TIMEOUT` to wait: more for a rank whose sender waits
            itself, so that the sender's message comes first and names the culprit.
    """

    def __init__(self, comm: Any, chunks: int = 1, describe: Callable[[Message], str] = describe):
        self.comm, self.chunks, self.describe, self.patience = comm, chunks, describe, 1
        self._sent: list[tuple[Any, np.ndarray]] = []
        self._posted: dict[Message, tuple[Any, np.ndarray]] = {}
        self._complete: set[Message] = set()

    def _tag(self, message: Message) -> int:
        part = message.micro_batch * self.chunks + message.destination.chunk
        return part * len(KINDS) + KINDS.index(message.what)

    def put(self, message: Message, array: np.ndarray) -> None:
        """Start to send an array, which must not change until `flush`."""
        array = np.ascontiguousarray(array, np.float32)
        request = self.comm.Isend(array, message.destination.stage, self._tag(message))
        self._sent.append((request, array))

    def expect(self, message: Message, shape: tuple[int, ...]) -> None:
        """Post the receive of a message."""
        if message not in self._posted:
            array = np.empty(shape, np.float32)
            request = self.comm.Irecv(array, message.source.stage, self._tag(message))
            self._posted[message] = request, array

    def has(self, message: Message) -> bool:
        """Whether an expected message has arrived; lets MPI make progress."""
        self._forget_sent()
        if message not in self._complete and self._posted[message][0].Test():
            self._complete.add(message)
        return message in self._complete

    def take(self, message: Message) -> np.ndarray:
        """Return the array of a message that has arrived."""
        self._complete.discard(message)
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
        start = time.monotonic()
        self._forget_sent()
        while self._sent:
            time.sleep(POLL_S)
            check_timeout(start, f"{len(self._sent)} messages to be received", self.patience)
            self._forget_sent()

    def _forget_sent(self) -> None:
        self._sent = [sent for sent in self._sent if not sent[0].Test()]

    def drop(self) -> None:
        """Cancel the receives that are posted, before their memory goes."""
        for message, (request, _) in self._posted.items():
            if message not in self._complete:
                request.Cancel()
        self._posted, self._complete = {}, set()


class FabricTransport(MPITransport):
    """Between ranks, chip to chip, over sockets between meshes of the same shape. What has no
    route goes by MPI.

    Args:
        comm, chunks, describe: as for `MPITransport`.
        layout: of this rank's mesh.
        routes: (what, one rank, the other) of the communicator; a socket delivers in the order of
            sending.
    """

    def __init__(
        self,
        comm: Any,
        layout: Layout,
        routes: Iterable[Route],
        chunks: int = 1,
        describe: Callable[[Message], str] = describe,
    ):
        super().__init__(comm, chunks, describe)
        self.layout = layout
        world = comm.allgather(int(ttnn.distributed_context_get_rank()))
        self._sockets: dict[tuple[str, int], Sockets] = {}
        self._shapes: dict[Message, tuple[int, ...]] = {}
        # both ends make theirs in the same order
        for what, low, high in sorted({(what, min(ends), max(ends)) for what, *ends in routes}):
            if comm.rank in (low, high):
                peer = low + high - comm.rank
                self._sockets[what, peer] = Sockets(layout.device, world[peer])

    def _place(self, array: np.ndarray) -> Value:
        """Put a row for each group on the mesh, or the same row on all chips."""
        return self.layout.place(array, ddp_dim=0 if len(array) > 1 else None)

    def put(self, message: Message, array: np.ndarray) -> None:
        """Send an array by way of the mesh."""
        sockets = self._sockets.get((message.what, message.destination.stage))
        if sockets:
            sockets.send(self._place(array))
        else:
            super().put(message, array)

    def expect(self, message: Message, shape: tuple[int, ...]) -> None:
        """Post the receive of a message; a socket needs no post."""
        if (message.what, message.source.stage) in self._sockets:
            self._shapes[message] = shape
        else:
            super().expect(message, shape)

    def has(self, message: Message) -> bool:
        """Whether an expected message has arrived, or comes by a socket, which `take` waits for."""
        return message in self._shapes or super().has(message)

    def take(self, message: Message) -> np.ndarray:
        """Wait for the shards of all chips."""
        if message not in self._shapes:
            return super().take(message)
        shape = self._shapes.pop(message)
        sockets = self._sockets[message.what, message.source.stage]
        like = self._place(np.zeros(shape, np.float32))
        return to_host(sockets.receive(like), self.layout)[: shape[0]]

    def send(self, message: Message, value: Value, layout: Layout) -> None:
        """Send the shards of all chips, without the host."""
        self._sockets[message.what, message.destination.stage].send(value)

    def receive(self, message: Message, layout: Layout, shape: tuple[int, ...]) -> Value:
        """Wait for the shards of all chips."""
        self._shapes.pop(message, None)
        like = layout.place(np.zeros(shape, np.float32), ddp_dim=0)
        return self._sockets[message.what, message.source.stage].receive(like)


def fabric_routes(schedule: Schedule) -> list[Route]:
    """Return (what, stage, stage) of all that a schedule sends, for `FabricTransport`.

    Raises:
        TTKitError: a stage receives messages in another order than they are sent: activations and
            gradients have a socket each, and a socket keeps the order.
    """
    sent: dict[Route, list[Message]] = {}
    received: dict[Route, list[Message]] = {}
    for stage in range(schedule.stages):
        for task in schedule.tasks(stage):
            for message, found in ((task.send, sent), (task.receive, received)):
                if message:
                    route = message.what, message.source.stage, message.destination.stage
                    found.setdefault(route, []).append(message)
    for route, order in sent.items():
        if received[route] != order:
            what, source, destination = route
            rule = (
                f"stage {destination} takes the {what} of stage {source} in another order than "
                "they are sent, and a socket keeps the order"
            )
            fail(f"run {schedule!r} over the fabric", rule, "socket_type: mpi")
    return sorted(sent)

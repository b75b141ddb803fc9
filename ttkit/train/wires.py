"""How activations and gradients go from one stage of a pipeline to another: inside a process, by
MPI, or over the fabric.

A wire takes messages (`ttkit.plans.schedule.Message`) from any of its stages at once and hands them
over when they are there. By host, a tensor travels as the global array of its batch, so that the
meshes of two stages may differ in shape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.channel import Channel
from ttkit.convert import to_numpy
from ttkit.errors import fail
from ttkit.plans.schedule import Message, Schedule
from ttkit.train.autograd import Value
from ttkit.train.modules import Layout
from ttkit.train.ranks import POLL_S, check_patience

# What messages carry: between stages, between stages that share a token table, and between workers
# and those that step for them.
KINDS = ("activations", "gradients", "table", "weight gradients", "weights", "note")
AHEAD = 2  # receives that are open before their turn, so that data comes in while a stage computes


def to_host(value: Value, layout: Layout) -> np.ndarray:
    """The global array of a tensor whose batch is cut over the data-parallel axis: the parts of
    one chip of each group, joined.
    """
    chips = np.arange(layout.device.get_num_devices()).reshape(tuple(layout.device.shape))
    groups = (
        chips.reshape(1, -1)
        if layout.ddp_axis is None
        else np.moveaxis(chips, layout.ddp_axis, 0).reshape(layout.ddp_size, -1)
    )
    shards = ttnn.get_device_tensors(value)
    return np.concatenate([np.asarray(to_numpy(shards[group[0]]), np.float32) for group in groups])


def in_words(message: Message) -> str:
    """A message between stages."""
    return (
        f"the {message.what} of micro-batch {message.micro_batch} from stage {message.source.stage}"
    )


class Wire:
    """What all wires share: tensors as arrays. This one is inside a process that has all stages."""

    def __init__(self) -> None:
        self._here: dict[Message, np.ndarray] = {}

    def put(self, message: Message, array: np.ndarray) -> None:
        """Send an array on its way, and go on at once."""
        self._here[message] = array

    def expect(self, message: Message, shape: tuple[int, ...]) -> None:
        """Say that a message is waited for soon."""

    def has(self, message: Message) -> bool:
        """Whether an expected message is there."""
        return message in self._here

    def take(self, message: Message) -> np.ndarray:
        """What a message that is there carries."""
        return self._here.pop(message)

    def nap(self, start: float, awaited: Iterable[Message]) -> None:
        """Let others work: nothing that is awaited is there, since `start` by
        `time.monotonic()`.
        """
        raise RuntimeError(f"nobody sends {list(awaited)}")  # such schedules do not validate

    def flush(self) -> None:
        """Wait until all that was sent has left."""

    def drop(self) -> None:
        """Forget all messages: a step was given up."""
        self._here.clear()

    # A stage's loss is the mean over its group's part of a batch, so a gradient on a group is as
    # many times that of the global mean as there are groups; what travels is the latter, since the
    # other stage may have another number of groups.
    def send(self, message: Message, value: Value, layout: Layout) -> None:
        """Send a tensor [B, 1, S, E] that lies on a mesh."""
        array = to_host(value, layout)
        self.put(message, array / layout.ddp_size if message.what == "gradients" else array)

    def receive(self, message: Message, layout: Layout, shape: tuple[int, ...]) -> Value:
        """The tensor of a message that is there, on a mesh; `shape` is that of its global array."""
        array = self.take(message)
        array = array * layout.ddp_size if message.what == "gradients" else array
        return layout.place(array.reshape(shape), dtype=layout.dtype or ttnn.float32, ddp_dim=0)


class MPIWire(Wire):
    """Between ranks, from host to host, by messages whose tag says what they are: they may be
    taken in any order.

    Args:
        comm: an mpi4py communicator, used for nothing else, in which a message's stage is a rank.
        chunks: parts of the model on each stage.
        words: how a wait for a message is told.

    Attributes:
        patience: of waits, in `TTKIT_RANK_TIMEOUT`s: more for those who wait for one who waits
        himself, so that he can name the culprit.
    """

    def __init__(self, comm: Any, chunks: int = 1, words: Callable[[Message], str] = in_words):
        self.comm, self.chunks, self.words, self.patience = comm, chunks, words, 1
        self._sent: list[tuple[Any, np.ndarray]] = []
        self._coming: dict[Message, tuple[Any, np.ndarray]] = {}
        self._come: set[Message] = set()

    def _tag(self, message: Message) -> int:
        return (message.micro_batch * self.chunks + message.destination.chunk) * len(
            KINDS
        ) + KINDS.index(message.what)

    def put(self, message: Message, array: np.ndarray) -> None:
        """Send an array, which must not change until `flush`."""
        array = np.ascontiguousarray(array, np.float32)
        self._sent.append(
            (self.comm.Isend(array, message.destination.stage, self._tag(message)), array)
        )

    def expect(self, message: Message, shape: tuple[int, ...]) -> None:
        """Give a message a place to come to."""
        if message not in self._coming:
            array = np.empty(shape, np.float32)
            self._coming[message] = (
                self.comm.Irecv(array, message.source.stage, self._tag(message)),
                array,
            )

    def has(self, message: Message) -> bool:
        """Whether an expected message is there; also lets MPI move what is under way."""
        self._sent = [sent for sent in self._sent if not sent[0].Test()]
        if message not in self._come and self._coming[message][0].Test():
            self._come.add(message)
        return message in self._come

    def take(self, message: Message) -> np.ndarray:
        """What a message that is there carries."""
        self._come.discard(message)
        return self._coming.pop(message)[1]

    def nap(self, start: float, awaited: Iterable[Message]) -> None:
        """Sleep shortly.

        Raises:
            TTKitError: this has gone on for too long.
        """
        time.sleep(POLL_S)
        check_patience(start, ", ".join(map(self.words, awaited)), self.patience)

    def flush(self) -> None:
        """Wait until all that was sent has been taken."""
        start = time.monotonic()
        while self._sent:
            self._sent = [sent for sent in self._sent if not sent[0].Test()]
            if self._sent:
                time.sleep(POLL_S)
                check_patience(start, f"{len(self._sent)} messages to be taken", self.patience)

    def drop(self) -> None:
        """Take back the places that messages were to come to, before their memory goes."""
        for message, (request, _) in self._coming.items():
            if message not in self._come:
                request.Cancel()
        self._coming, self._come = {}, set()


class FabricWire(MPIWire):
    """Between ranks, chip to chip, over sockets that join meshes of the same shape; what has no
    line goes by MPI.

    Args:
        comm, chunks, words: as for `MPIWire`.
        layout: of this rank's mesh.
        lines: (what, one rank, the other), of the communicator; a socket hands over in the order of
        sending.
    """

    def __init__(
        self,
        comm: Any,
        layout: Layout,
        lines: Iterable[tuple[str, int, int]],
        chunks: int = 1,
        words: Callable[[Message], str] = in_words,
    ):
        super().__init__(comm, chunks, words)
        self.layout, here = layout, comm.rank
        world = comm.allgather(int(ttnn.distributed_context_get_rank()))
        self._lines: dict[tuple[str, int], Channel] = {}
        self._shapes: dict[Message, tuple[int, ...]] = {}
        # both ends make theirs in the same order
        for what, low, high in sorted({(what, min(ends), max(ends)) for what, *ends in lines}):
            if here in (low, high):
                self._lines[what, low + high - here] = Channel(
                    layout.device, world[low + high - here]
                )

    def _place(self, array: np.ndarray) -> Value:
        """On the mesh: a row for each group, or the same on all."""
        return self.layout.place(
            array, dtype=self.layout.dtype or ttnn.float32, ddp_dim=0 if len(array) > 1 else None
        )

    def put(self, message: Message, array: np.ndarray) -> None:
        """Send an array by way of the mesh."""
        line = self._lines.get((message.what, message.destination.stage))
        if line:
            line.send(self._place(array))
        else:
            super().put(message, array)

    def expect(self, message: Message, shape: tuple[int, ...]) -> None:
        """A socket needs no place beforehand."""
        if (message.what, message.source.stage) in self._lines:
            self._shapes[message] = shape
        else:
            super().expect(message, shape)

    def has(self, message: Message) -> bool:
        """A socket is asked by taking from it."""
        return message in self._shapes or super().has(message)

    def take(self, message: Message) -> np.ndarray:
        """Wait for the shards of all chips."""
        if message not in self._shapes:
            return super().take(message)
        shape = self._shapes.pop(message)
        came = self._lines[message.what, message.source.stage].receive(
            self._place(np.zeros(shape, np.float32))
        )
        return to_host(came, self.layout)[: shape[0]]

    def send(self, message: Message, value: Value, layout: Layout) -> None:
        """Send the shards of all chips, without the host."""
        self._lines[message.what, message.destination.stage].send(value)

    def receive(self, message: Message, layout: Layout, shape: tuple[int, ...]) -> Value:
        """Wait for the shards of all chips."""
        self._shapes.pop(message, None)
        like = layout.place(
            np.zeros(shape, np.float32), dtype=layout.dtype or ttnn.float32, ddp_dim=0
        )
        return self._lines[message.what, message.source.stage].receive(like)


def lines_of(schedule: Schedule) -> list[tuple[str, int, int]]:
    """(what, stage, stage) of all that a schedule sends, for `FabricWire`.

    Raises:
        TTKitError: a schedule that takes messages in another order than they are sent.
    """
    check_order(schedule)
    sent = (task.send for stage in range(schedule.stages) for task in schedule.tasks(stage))
    return sorted({(m.what, m.source.stage, m.destination.stage) for m in sent if m})


def check_order(schedule: Schedule) -> None:
    """Raise unless all stages take what another sends in the order of its sending, activations
    and gradients apart.
    """
    sent: dict[tuple[int, int, str], list[Message]] = {}
    taken: dict[tuple[int, int, str], list[Message]] = {}
    for stage in range(schedule.stages):
        for task in schedule.tasks(stage):
            for message, found in ((task.send, sent), (task.receive, taken)):
                if message:
                    found.setdefault(
                        (message.source.stage, message.destination.stage, message.what), []
                    ).append(message)
    for (source, destination, what), order in sent.items():
        if taken[source, destination, what] != order:
            rule = (
                f"stage {destination} takes the {what} of stage {source} in another order than "
                "they are sent, and a socket keeps the order"
            )
            fail(f"run {schedule!r} over the fabric", rule, "socket_type: mpi")

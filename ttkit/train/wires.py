"""How activations and gradients go from one stage of a pipeline to another: inside a process, by MPI, or over the fabric.

A wire takes messages (`ttkit.plans.schedule.Message`) from any of its stages at once and hands them over when they are there. By host, a
tensor travels as the global array of its batch, so that the meshes of two stages may differ in shape.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
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

KINDS = ("activations", "gradients", "table")  # what messages carry; the last for token tables that two stages share
AHEAD = 2  # receives that are open before their turn, so that data comes in while a stage computes


def to_host(value: Value, layout: Layout) -> np.ndarray:
    """The global array of a tensor whose batch is cut over the data-parallel axis: the parts of one chip of each group, joined."""
    chips = np.arange(layout.device.get_num_devices()).reshape(tuple(layout.device.shape))
    groups = chips.reshape(1, -1) if layout.ddp_axis is None else np.moveaxis(chips, layout.ddp_axis, 0).reshape(layout.ddp_size, -1)
    shards = ttnn.get_device_tensors(value)
    return np.concatenate([np.asarray(to_numpy(shards[group[0]]), np.float32) for group in groups])


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
        """Let others work: nothing that is awaited is there, since `start` by `time.monotonic()`."""
        raise RuntimeError(f"nobody sends {list(awaited)}")  # such schedules do not validate

    def flush(self) -> None:
        """Wait until all that was sent has left."""

    def drop(self) -> None:
        """Forget all messages: a step was given up."""
        self._here.clear()

    # A stage's loss is the mean over its group's part of a batch, so a gradient on a group is as many times that of the global mean as
    # there are groups; what travels is the latter, since the other stage may have another number of groups.
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
    """Between ranks, from host to host, by messages whose tag says what they are: they may be taken in any order.

    Args:
        comm: an mpi4py communicator of this pipeline's ranks, in the order of the stages; a copy is used.
        chunks: parts of the model on each stage.
    """

    def __init__(self, comm: Any, chunks: int):
        self.comm, self.chunks = comm.Dup(), chunks
        self._sent: list[tuple[Any, np.ndarray]] = []
        self._coming: dict[Message, tuple[Any, np.ndarray]] = {}
        self._come: set[Message] = set()

    def _tag(self, message: Message) -> int:
        return (message.micro_batch * self.chunks + message.destination.chunk) * len(KINDS) + KINDS.index(message.what)

    def put(self, message: Message, array: np.ndarray) -> None:
        """Send an array, which must not change until `flush`."""
        array = np.ascontiguousarray(array, np.float32)
        self._sent.append((self.comm.Isend(array, message.destination.stage, self._tag(message)), array))

    def expect(self, message: Message, shape: tuple[int, ...]) -> None:
        """Give a message a place to come to."""
        if message not in self._coming:
            array = np.empty(shape, np.float32)
            self._coming[message] = self.comm.Irecv(array, message.source.stage, self._tag(message)), array

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
        check_patience(start, ", ".join(f"the {m.what} of micro-batch {m.micro_batch} from stage {m.source.stage}" for m in awaited))

    def flush(self) -> None:
        """Wait until all that was sent has been taken."""
        start = time.monotonic()
        while self._sent:
            self._sent = [sent for sent in self._sent if not sent[0].Test()]
            if self._sent:
                time.sleep(POLL_S)
                check_patience(start, f"{len(self._sent)} messages to be taken")

    def drop(self) -> None:
        """Take back the places that messages were to come to, before their memory goes."""
        for message, (request, _) in self._coming.items():
            if message not in self._come:
                request.Cancel()
        self._coming, self._come = {}, set()


class FabricWire(MPIWire):
    """Between ranks, chip to chip, over sockets; each stage has a mesh of the same shape. Token tables go by MPI.

    Args:
        comm, mesh: of this rank.
        schedule: what is sent: a socket hands over in the order of sending.
        first_rank: the rank of stage 0.

    Raises:
        TTKitError: a schedule that takes messages in another order than they are sent.
    """

    def __init__(self, comm: Any, mesh: Any, schedule: Schedule, first_rank: int):
        super().__init__(comm, schedule.chunks)
        check_order(schedule)
        here = comm.rank
        sent = [task.send for stage in range(schedule.stages) for task in schedule.tasks(stage) if task.send]
        ends = [(m.what, *sorted({m.source.stage, m.destination.stage})) for m in sent]
        self._lines = {}
        for what, low, high in sorted(set(ends)):  # both ends make theirs in the same order
            if here in (low, high):
                self._lines[low + high - here, what] = Channel(mesh, first_rank + low + high - here)

    def expect(self, message: Message, shape: tuple[int, ...]) -> None:
        """A socket needs no place beforehand."""
        if message.what == "table":
            super().expect(message, shape)

    def has(self, message: Message) -> bool:
        """A socket is asked by taking from it."""
        return message.what != "table" or super().has(message)

    def send(self, message: Message, value: Value, layout: Layout) -> None:
        """Send the shards of all chips."""
        self._lines[message.destination.stage, message.what].send(value)

    def receive(self, message: Message, layout: Layout, shape: tuple[int, ...]) -> Value:
        """Wait for the shards of all chips."""
        like = layout.place(np.zeros(shape, np.float32), dtype=layout.dtype or ttnn.float32, ddp_dim=0)
        return self._lines[message.source.stage, message.what].receive(like)


def check_order(schedule: Schedule) -> None:
    """Raise unless all stages take what another sends in the order of its sending, activations and gradients apart."""
    sent: dict[tuple[int, int, str], list[Message]] = {}
    taken: dict[tuple[int, int, str], list[Message]] = {}
    for stage in range(schedule.stages):
        for task in schedule.tasks(stage):
            for message, found in ((task.send, sent), (task.receive, taken)):
                if message:
                    found.setdefault((message.source.stage, message.destination.stage, message.what), []).append(message)
    for (source, destination, what), order in sent.items():
        if taken[source, destination, what] != order:
            rule = f"stage {destination} takes the {what} of stage {source} in another order than they are sent, and a socket keeps the order"
            fail(f"run {schedule!r} over the fabric", rule, "socket_type: mpi")

"""Point to point: how activations and gradients travel from one pipeline stage to another, weights
and gradients between the ranks of hierarchical training.

A transport takes messages (`ttkit.plans.schedule.Message`) from any stage at once and returns them
once they have arrived. A tensor travels through the hosts as the global array of its batch, so the
meshes of two stages may differ in shape; `socket_type: fabric` changes no number."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.backend import to_numpy
from ttkit.plans.schedule import Message
from ttkit.train.autograd.tensor import Value
from ttkit.train.config.layout import Layout, zigzag
from ttkit.train.parallel.ranks import POLL_S, check_timeout, wait

# What messages carry: between stages, and in hierarchical training. A message's tag counts in this
# order.
KINDS = ("activations", "gradients", "weight gradients", "weights")
AHEAD = 2  # So many receives are posted before their turn, to overlap communication with compute.


def to_host(value: Value, layout: Layout) -> np.ndarray:
    """Return the global array of a tensor whose batch is sharded over the data-parallel axis and
    whose sequence (dimension 2) is sharded as the layout asks. One replica of each shard is read.
    """
    shards, shape = ttnn.get_device_tensors(value), tuple(layout.device.shape)
    dims = {layout.dp_axis: 0, layout.cp_axis: 2}
    if layout.sequence_parallel:
        dims[layout.tp_axis] = 2

    def joined(*place: int) -> np.ndarray:
        """Join the shards at the coordinates that begin with `place`."""
        axis = len(place)
        if axis == len(shape):
            shard = shards[np.ravel_multi_index(place, shape)]
            return np.asarray(to_numpy(shard), np.float32)
        count = shape[axis] if axis in dims else 1
        return np.concatenate([joined(*place, i) for i in range(count)], dims.get(axis, 0))

    array = joined()
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

    def take(self, message: Message) -> np.ndarray:
        """Return the array of a message that has arrived."""
        return self._arrived.pop(message)

    def pause(self, start: float, awaited: Iterable[Message]) -> None:
        """Let others work: no awaited message has arrived since `start` (`time.monotonic()`)."""

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

    def receive(self, message: Message, layout: Layout) -> Value:
        """Put the array of a message that has arrived on a mesh."""
        array = self.take(message)
        parts = layout.dp * layout.cp
        return from_host(array * parts if message.what == "gradients" else array, layout)


def describe(message: Message) -> str:
    """Name a message between stages."""
    source, part = message.source.stage, message.micro_batch
    return f"the {message.what} of micro-batch {part} from stage {source}"


class MPITransport(Transport):
    """Messages between ranks, from host to host by MPI; a tag names each, so they may come in any
    order.

    Args:
        comm: an mpi4py communicator, used for nothing else, in which a message's stage is a rank.
        describe: names a message that does not arrive.
        patience: how many times `TTKIT_RANK_TIMEOUT` to wait: more for a rank whose sender waits
            itself, so that the sender's message comes first and names the culprit.
    """

    def __init__(
        self, comm: Any, describe: Callable[[Message], str] = describe, patience: float = 1
    ):
        self.comm, self.describe, self.patience = comm, describe, patience
        self._sent: list[tuple[Any, np.ndarray]] = []
        self._posted: dict[Message, tuple[Any, np.ndarray]] = {}

    def _tag(self, message: Message) -> int:
        return message.micro_batch * len(KINDS) + KINDS.index(message.what)

    def put(self, message: Message, array: np.ndarray) -> None:
        """Start to send an array, which must not change until `flush`."""
        array = np.ascontiguousarray(array, np.float32)
        request = self.comm.Isend(array, message.destination.stage, self._tag(message))
        self._sent.append((request, array))

    def has(self, message: Message, shape: tuple[int, ...]) -> bool:
        """Whether a message has arrived; the first call posts its receive."""
        if message not in self._posted:
            array = np.empty(shape, np.float32)
            request = self.comm.Irecv(array, message.source.stage, self._tag(message))
            self._posted[message] = request, array
        return bool(self._posted[message][0].Test())

    def take(self, message: Message) -> np.ndarray:
        """Return the array of a message that has arrived."""
        self._sent = [sent for sent in self._sent if not sent[0].Test()]
        return self._posted.pop(message)[1]

    def fetch(self, message: Message, shape: tuple[int, ...]) -> np.ndarray:
        """Wait for a message and return its array."""
        start = time.monotonic()
        while not self.has(message, shape):
            self.pause(start, [message])
        return self.take(message)

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

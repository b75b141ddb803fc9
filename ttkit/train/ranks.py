"""Data parallelism between ranks that have a mesh each: gradients averaged over MPI, in few
large messages, while backward goes on.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train.autograd import Value
from ttkit.train.distributed import averaged
from ttkit.train.modules import Parameter

# of gradients in one message; from some MiB on, a message's size costs and not its number (facts:
# Open MPI on one host)
BUCKET_BYTES = 4 << 20
# between looks at whether a message has come: a wait can be interrupted, and leaves the core to
# others
POLL_S = 0.0005
Result = TypeVar("Result")


def start_mpi() -> Any:
    """Initialize MPI and return mpi4py's `MPI`; after ttnn, as the real library wants it.

    A process that no launcher started shares memory with nobody: Open MPI makes no file for that
    (16 MiB in /dev/shm), which would stay where the process is killed.
    """
    name = "OMPI_MCA_btl"
    alone = "PMIX_NAMESPACE" not in os.environ and name not in os.environ
    if alone:
        os.environ[name] = "self"
    try:
        from mpi4py import MPI
    finally:
        if alone:
            del os.environ[name]  # not for the ranks that this process may start
    return MPI


def in_buckets(parameters: Iterable[tuple[str, Parameter]]) -> list[list[tuple[str, Parameter]]]:
    """Names and parameters in their order, so many together that their float32 numbers make a
    message of `BUCKET_BYTES`.
    """
    buckets: list[list[tuple[str, Parameter]]] = []
    size = BUCKET_BYTES
    for name, parameter in parameters:
        if size >= BUCKET_BYTES:
            buckets.append([])
            size = 0
        buckets[-1].append((name, parameter))
        size += 4 * math.prod(parameter.global_shape)
    return buckets


class Replicas:
    """The ranks that train a replica each.

    Every rank must train the same model with the same settings.

    Args:
        parameters: what `model.parameters()` gives.
        comm: an mpi4py communicator of those ranks.
        cluster_axes: mesh axes of a rank that hold replicas too; they are averaged first.

    Example::

        replicas = Replicas(model.parameters(), MPI.COMM_WORLD)
        replicas.start()        # before the last backward of a step
        loss.backward()         # gradients travel as they get ready
        replicas.finish()       # every gradient is the mean over the ranks now
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], comm: Any, cluster_axes: tuple[int, ...] = ()
    ):
        from mpi4py import MPI

        self._mpi, self.comm = MPI, comm
        self.rank, self.size = self.comm.rank, self.comm.size
        self.parameters, self.cluster_axes = dict(parameters), cluster_axes
        self._check()
        # the last layers' gradients are ready first
        buckets = in_buckets(reversed(self.parameters.items()))
        self._bucket_of = {
            name: number for number, bucket in enumerate(buckets) for name, _ in bucket
        }
        self._missing = [len(bucket) for bucket in buckets]
        self._active = False
        for name, parameter in self.parameters.items():
            parameter.register_hook(lambda grad, name=name: self._ready(name, grad))  # type: ignore[misc]

    def _check(self) -> None:
        mine = [(name, parameter.global_shape) for name, parameter in self.parameters.items()]
        for rank, theirs in enumerate(self.comm.allgather(mine)):
            if theirs != mine:
                at, ours, other = next(
                    (i, a, b)
                    for i, (a, b) in enumerate(zip([*mine, None], [*theirs, None]))
                    if a != b
                )
                fail(
                    "Replicas",
                    f"rank {self.rank} and rank {rank} have different models: "
                    f"parameter {at} is {ours} and {other}",
                    "the same configuration",
                )

    def start(self) -> None:
        """Send from the next backward on."""
        self._active, self._left = True, list(self._missing)
        self._parts: list[list[tuple[str, np.ndarray]]] = [[] for _ in self._missing]
        self._sent: list[tuple[Any, np.ndarray, list[tuple[str, np.ndarray]]]] = []

    def _ready(self, name: str, grad: Value) -> None:
        if not self._active:
            return
        parameter, before = self.parameters[name], self.parameters[name].get_grad()
        whole = averaged(grad if before is None else ttnn.add(before, grad), self.cluster_axes)
        bucket = self._bucket_of[name]
        self._parts[bucket].append((name, parameter.gather(whole)))
        self._left[bucket] -= 1
        if self._left[bucket] == 0:
            self._send(bucket)
        for request, _, _ in self._sent:
            request.Test()  # MPI moves data only while it is called

    def _send(self, bucket: int) -> None:
        parts = self._parts[bucket]
        flat = np.concatenate([array.ravel() for _, array in parts])
        flat *= np.float32(1 / self.size)
        self._sent.append((self.comm.Iallreduce(self._mpi.IN_PLACE, flat), flat, parts))

    def finish(self) -> None:
        """Wait until all gradients are averaged, and put them in place."""
        for bucket, left in enumerate(self._left):
            if left and self._parts[bucket]:  # some of its parameters took no part in the loss
                self._send(bucket)
        self._active = False
        for request, flat, parts in self._sent:
            wait(request)
            start = 0
            for name, array in parts:
                parameter = self.parameters[name]
                mean = flat[start : start + array.size].reshape(array.shape)
                parameter.set_grad(parameter.distribute(mean, parameter.get_value().dtype))
                start += array.size
        self._sent = []

    def average(self) -> None:
        """Average the gradients that are there: for parameters whose last backwards come at
        different times, as in a pipeline.
        """
        self.start()
        for name, parameter in self.parameters.items():
            grad = parameter.get_grad()
            if grad is not None:
                parameter.set_grad(None)
                self._ready(name, grad)
        self.finish()


def wait(request: Any, what: str = "the other ranks") -> None:
    """Wait for a message, so that Ctrl-C comes through.

    Raises:
        TTKitError: it did not come in `TTKIT_RANK_TIMEOUT` seconds, 300 unless set.
    """
    start = time.monotonic()
    while not request.Test():
        time.sleep(POLL_S)
        check_patience(start, what)


def check_patience(start: float, what: str, times: float = 1) -> None:
    """Raise where a wait that began at `start`, by `time.monotonic()`, has gone on for so many
    times the limit.
    """
    limit = times * float(os.environ.get("TTKIT_RANK_TIMEOUT", "300"))
    if time.monotonic() - start > limit:
        fail(
            f"wait for {what}",
            f"nothing came in {limit:g} s",
            "look at what they print: an error there, or a longer TTKIT_RANK_TIMEOUT",
        )


def mean(comm: Any, *numbers: float) -> list[float]:
    """The mean over the ranks of each number: also a way to ask whether any rank raised a flag."""
    from mpi4py import MPI

    values = np.array(numbers, np.float64) / comm.size
    wait(comm.Iallreduce(MPI.IN_PLACE, values))
    return [float(v) for v in values]


def of_rank_0(comm: Any, call: Callable[[], Result]) -> Result:
    """What a call gives on rank 0, which alone makes it, on every rank; an error there is raised
    on all, or the others would wait for ever.

    Example:
        >>> of_rank_0(None, lambda: 7)  # one process alone
        7
    """
    found: Any = None
    error: Exception | None = None
    if comm is None or comm.rank == 0:
        try:
            found = call()
        except Exception as raised:
            error = raised
    if comm is not None:
        found, error = comm.bcast((found, error))
    if error is not None:
        raise error
    return found

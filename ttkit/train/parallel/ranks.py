"""Ranks that train together: what they agree on, and waits for MPI that can be interrupted."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from ttkit.errors import fail

# A wait sleeps so long between two tests, so that Ctrl-C ends it and its core is free.
POLL_S = 0.0005
Result = TypeVar("Result")


def start_mpi() -> Any:
    """Initialize MPI and return mpi4py's `MPI`; after ttnn, as the real library requires.

    A process that no launcher started shares memory with no other process. Open MPI then makes no
    file for shared memory (16 MiB in /dev/shm), which would stay if the process were killed.
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


def wait(request: Any, times: float = 1) -> None:
    """Wait for an MPI request, so that Ctrl-C interrupts it.

    Raises:
        TTKitError: it is not complete after `times` times `TTKIT_RANK_TIMEOUT` seconds, which are
            300 unless set.
    """
    start = time.monotonic()
    while not request.Test():
        time.sleep(POLL_S)
        check_timeout(start, "the other ranks", times)


def check_timeout(start: float, what: str, times: float = 1) -> None:
    """Raise if a wait that began at `start`, by `time.monotonic()`, exceeds so many times the
    limit.
    """
    limit = times * float(os.environ.get("TTKIT_RANK_TIMEOUT", "300"))
    if time.monotonic() - start > limit:
        cure = "look at their output for an error, or set a longer TTKIT_RANK_TIMEOUT"
        fail(f"wait for {what}", f"nothing came in {limit:g} s", cure)


def mean(comm: Any, number: float) -> float:
    """Return the mean of a number over the ranks: above 0 if any rank has raised a flag."""
    from mpi4py import MPI

    values = np.array([number], np.float64) / comm.size
    wait(comm.Iallreduce(MPI.IN_PLACE, values))
    return float(values[0])


@contextmanager
def interrupts(comm: Any) -> Iterator[Callable[[], bool]]:
    """Collect Ctrl-C instead of raising it; a second one raises KeyboardInterrupt as usual.

    Yields:
        A call that returns whether any rank was interrupted; all ranks must make it together.
    """
    seen = [False]

    def anyone() -> bool:
        return mean(comm, float(seen[0])) > 0 if comm else seen[0]

    def note(number: int, frame: Any) -> None:
        if seen[0]:
            raise KeyboardInterrupt
        seen[0] = True

    if threading.current_thread() is not threading.main_thread():
        yield anyone  # Python delivers signals to the main thread only.
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield anyone
    finally:
        signal.signal(signal.SIGINT, before)


def of_rank_0(comm: Any, call: Callable[[], Result]) -> Result:
    """Make a call on rank 0 alone and return its result on every rank; an error there is raised
    on all ranks, which would deadlock otherwise.

    Example:
        >>> of_rank_0(None, lambda: 7)  # one process alone
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

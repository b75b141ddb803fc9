"""Waits between ranks: Ctrl-C interrupts each wait, and each wait has a time-out."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from ttkit.errors import fail

# A wait polls without sleep for `EAGER_S`, then sleeps up to `LONGEST_NAP_S` between polls.
EAGER_S, LONGEST_NAP_S = 200e-6, 1e-3
CURE = "check whether they failed or took another branch, or set a longer time-out:"
CURE += " ttkit.rank_checks(timeout_s=...) or TTKIT_RANK_TIMEOUT"

settings = SimpleNamespace(
    checks=os.environ.get("TTKIT_RANK_CHECKS", "1") not in ("0", "off", "false"),
    timeout_s=float(os.environ.get("TTKIT_RANK_TIMEOUT", "300")),
)


def rank_checks(on: bool | None = None, timeout_s: float | None = None) -> tuple[bool, float]:
    """Switch the checks between ranks on or off, and set the time-out of waits; return both.

    With checks, each collective starts with a comparison of the ranks' calls, and every wait can be
    interrupted and ends after the time-out. Without checks, data moves at MPI's own speed, and the
    ranks may hang after a mistake. All ranks must choose the same setting.

    Args:
        on: whether to check; None changes nothing. Checks are on at the start unless the
            environment has `TTKIT_RANK_CHECKS=0`.
        timeout_s: the time-out in seconds; None changes nothing. At the start it is
            `TTKIT_RANK_TIMEOUT`, or 300.

    Example:
        >>> rank_checks(timeout_s=60)
        (True, 60.0)
        >>> rank_checks(timeout_s=300)
        (True, 300.0)
    """
    if timeout_s is not None:
        settings.timeout_s = float(timeout_s)
    if on is not None:
        settings.checks = bool(on)
    return settings.checks, settings.timeout_s


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Remember a Ctrl-C instead of raising KeyboardInterrupt; a second one raises it as usual.

    Python raises KeyboardInterrupt between any two steps of the main thread. If that thread has
    just taken a lock inside a library, the lock stays taken, and the threads that need it wait
    forever.

    Yields:
        A function that returns whether Ctrl-C was pressed.

    Example:
        >>> with interrupts() as interrupted:
        ...     signal.raise_signal(signal.SIGINT)
        ...     interrupted()
        True
    """
    seen = list[int]()

    def on_sigint(number: int, frame) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # Python delivers signals to the main thread only.
        return
    before = signal.signal(signal.SIGINT, on_sigint)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)


def wait_until(
    done: Callable[[], object], keep: object = None, timeout_s: float | None = None
) -> bool:
    """Call `done` until it returns true; return False if it does not within the time-out.

    Args:
        keep: the messages that the caller waits for, with their buffers. If they are never done,
            the buffers are never freed: MPI may write into them until MPI_Finalize, which runs
            after the end of Python.
        timeout_s: the time-out in seconds; by default that of `rank_checks`.
    """
    if done():
        return True
    start, nap = time.perf_counter(), 20e-6
    limit_s = settings.timeout_s if timeout_s is None else timeout_s
    kept = ctypes.py_object(keep)
    ctypes.pythonapi.Py_IncRef(kept)
    while (waited := time.perf_counter() - start) <= limit_s:
        if done():
            ctypes.pythonapi.Py_DecRef(kept)
            return True
        if waited < EAGER_S:
            # There may be more ranks than cores, so another rank may need this core.
            os.sched_yield()
        else:
            time.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP_S)
    return False


def wait_for(
    what: str, done: Callable[[], bool], keep: object = None, timeout_factor: float = 1
) -> None:
    """Wait as `wait_until` does, and raise an error after the time-out.

    Args:
        what: the thing or the rank to wait for, as the error message names it.
        timeout_factor: a factor for the time-out. If the sender may itself be waiting, its receiver
            gets a longer time-out, so that the error names the first rank that is late.

    Raises:
        TTKitError: the time-out is over.

    Example:
        >>> wait_for("the gradients of rank 1", lambda: True)
    """
    limit_s = timeout_factor * settings.timeout_s
    if not wait_until(done, keep, limit_s):
        fail(f"wait for {what}", f"nothing came in {limit_s:g} s", CURE)

"""Chips work at the same time: independent products run on as many threads as BLAS would use, each with a BLAS of one thread.

A product that BLAS spreads over its own threads makes them wait for each other many times; when anything else runs on the
machine, each wait costs a turn of the scheduler. Products taken from one list wait once, at the end. On an idle machine
both are equally fast; with one other process on two cores the list was two to three times faster. And BLAS's own threads go on
looking for work for some 25 ms after each product, on a core that ours would use: so BLAS never gets more than one here, not even
for a product that is too small for us to share out.

Where NumPy's BLAS has no switch for its threads, jobs run one after the other, and BLAS does as it likes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

_lock = threading.Lock()
_depth, _saved = 0, 0
_inside = threading.local()


@lru_cache(maxsize=1)
def _switch() -> Any:
    """What reads and sets how many threads NumPy's BLAS uses; None where it has no switch. Looking for it takes some milliseconds."""
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return next((blas for blas in found if "numpy" in str(blas.filepath)), None)


@lru_cache(maxsize=1)
def _pool(helpers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(helpers, "ttkit-chip")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


@contextmanager
def _one_blas_thread(switch: Any) -> Iterator[None]:
    """BLAS uses one thread inside, and afterwards as many as before."""
    global _depth, _saved
    with _lock:
        if _depth == 0:
            _saved = switch.get_num_threads()
            switch.set_num_threads(1)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                switch.set_num_threads(_saved)


def _threads() -> int:
    """How many threads there may be: what BLAS was told or found, else the processors of this process."""
    switch = _switch()
    if switch is not None:
        return _saved if _depth else switch.get_num_threads()
    return int(os.environ.get("OMP_NUM_THREADS") or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))


def together(jobs: Iterable[Callable[[], object]], products: bool = True, pays: bool = True) -> None:
    """Run independent jobs; each thread takes the next one when it is done with its last.

    Args:
        products: the jobs call BLAS. Two threads must not do that while BLAS has threads of its own (it was up to 30 times slower).
        pays: the jobs take longer than waking a thread, some 50 microseconds; else they run one after the other.

    Example:
        >>> done = []
        >>> together([lambda: done.append(1), lambda: done.append(2)])
        >>> sorted(done)
        [1, 2]
    """
    rest = list(jobs)[::-1]
    busy = getattr(_inside, "busy", False)
    switch = _switch() if products and not busy else None
    threads = 1 if not pays or busy or (products and switch is None) else min(_threads(), len(rest))
    if threads == 1:
        with _one_blas_thread(switch) if switch is not None else nullcontext():
            while rest:
                rest.pop()()
        return

    def work() -> None:
        _inside.busy = True
        try:
            with np.errstate(all="ignore"):  # a thread does not inherit the caller's
                while rest:
                    try:
                        job = rest.pop()
                    except IndexError:  # the other thread was quicker
                        return
                    job()
        finally:
            _inside.busy = False

    with _one_blas_thread(switch) if switch is not None else nullcontext():
        helpers = [_pool(_threads() - 1).submit(work) for _ in range(threads - 1)]
        try:
            work()
        finally:
            for helper in helpers:
                helper.result()

"""Work on big arrays: blocks that fit the cache, threads, memory, sums of several ranks.

Independent matmuls, such as those of several chips, run on as many threads as BLAS would use, each
with a BLAS of one thread. If BLAS spreads one matmul over its own threads, these threads wait for
each other many times. Afterwards they spin for some 25 ms on cores that the next job needs. On an
idle machine both ways are equally fast. Beside one other process on two cores, independent matmuls
were two to three times faster. Where the threads of NumPy's BLAS cannot be limited, jobs run one
after the other, and BLAS chooses its threads. Block sizes and thresholds were measured.
"""

import contextlib
import ctypes
import math
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial

import numpy as np

from ttkit.sim.tensor.absent import absent

Array = np.ndarray
idle = [False]  # This is True during a call on a mesh without values; then no array is computed.
BLOCK = 1 << 17  # This many elements, with their result and scratch, fit in the cache.
THREADS_PAY_FROM = 1 << 20  # From this many elements on, threads save more than they cost.
PARTS = 4  # Big arrays are cut into this many parts; a free thread takes the next part.

# ---------------------------------------------------------------- blocks


def by_blocks(
    kernel: Callable[..., object], array: Array, *, of_rows: bool = False, in_place: bool = False
) -> Array:
    """Return an array that `kernel` computes block by block, with threads for many elements.

    Args:
        kernel: a function `kernel(values, out, scratch)`, which writes its result for a block of
            values into `out`; with `of_rows`, a function `kernel(rows, out)`.
        array: the values.
        of_rows: whether a block consists of whole rows.
        in_place: whether `out` may be the memory of the values. If not, `values`, `out` and
            `scratch` never overlap.
    """
    if idle[0]:
        return array
    source = np.ascontiguousarray(array)
    result = source if in_place and source.flags.writeable else np.empty_like(source)
    if not source.size:
        return result
    shape = (-1, array.shape[-1]) if of_rows else (-1,)
    given = source.reshape(shape)
    out = result.reshape(shape)
    size = len(given)
    step = max(1, BLOCK // math.prod(given.shape[1:]))

    def work(low: int, high: int) -> None:
        space = [] if of_rows else [np.empty(min(step, high - low), source.dtype)]
        for start in range(low, high, step):
            end = min(start + step, high)
            kernel(given[start:end], out[start:end], *(part[: end - start] for part in space))

    if source.size < THREADS_PAY_FROM:
        work(0, size)
    else:
        part = -(-size // PARTS // step) * step
        jobs = (partial(work, low, min(low + part, size)) for low in range(0, size, part))
        run(jobs, uses_blas=False)
    return result


# ---------------------------------------------------------------- threads
_lock = threading.Lock()
_depth, _saved = 0, 0
_inside = threading.local()


@cache
def _switch():
    """Return the object that gets and sets the number of threads of NumPy's BLAS, or None.

    The search for it takes milliseconds, so the result is cached.
    """
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return next((blas for blas in found if "numpy" in str(blas.filepath)), None)


@lru_cache(1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "ttkit-chip")


# A forked child has none of its parent's threads, so it needs a new pool.
os.register_at_fork(after_in_child=_pool.cache_clear)


@contextlib.contextmanager
def _one_blas_thread(switch) -> Iterator[None]:
    """Let BLAS use one thread inside the block, and as many as before afterwards."""
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
    """Return how many threads may run: as many as BLAS has. If that is not known, it is the value
    of OMP_NUM_THREADS, or the number of processors."""
    switch = _switch()
    if switch is not None:
        return _saved if _depth else switch.get_num_threads()
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)


def run(
    jobs: Iterable[Callable[[], object]], uses_blas: bool = True, worth_threads: bool = True
) -> None:
    """Run independent jobs; each thread takes the next job when it has finished one.

    Args:
        uses_blas: whether the jobs call BLAS. Two threads must not call BLAS while it has threads
            of its own: that was up to 30 times slower.
        worth_threads: whether the jobs take longer than waking a thread, some 50 microseconds. If
            not, they run one after the other.

    Example:
        >>> done = []
        >>> run([lambda: done.append(1), lambda: done.append(2)])
        >>> sorted(done)
        [1, 2]
    """
    rest = [] if idle[0] else list(jobs)[::-1]
    busy = getattr(_inside, "busy", False)
    switch = _switch() if uses_blas and not busy else None
    alone = not worth_threads or busy or (uses_blas and switch is None)
    threads = 1 if alone else min(_threads(), len(rest))
    with _one_blas_thread(switch) if switch is not None else contextlib.nullcontext():
        if threads == 1:
            while rest:
                rest.pop()()
            return
        helpers = [_pool(_threads() - 1).submit(_work, rest) for _ in range(threads - 1)]
        try:
            _work(rest)
        finally:
            for helper in helpers:
                helper.result()


def _work(rest: list[Callable[[], object]]) -> None:
    _inside.busy = True
    try:
        with np.errstate(all="ignore"):  # A thread does not inherit the caller's error state.
            while rest:
                try:
                    job = rest.pop()
                except IndexError:  # Another thread took the last job.
                    return
                job()
    finally:
        _inside.busy = False


# ---------------------------------------------------------------- memory
# By default malloc takes the memory of each big array from the system, and gives it back when the
# array is freed. Filling fresh pages costs as much as adding two arrays, so these settings make
# glibc's malloc keep up to 128 MiB of free memory. Chains of elementwise operations on shards of 32
# to 128 KiB then took half to two thirds of the time. The two constants are those of <malloc.h>.
# Systems without glibc may have no function `mallopt`.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
with contextlib.suppress(AttributeError, OSError):
    malloc = ctypes.CDLL(None)
    malloc.mallopt(MMAP_THRESHOLD, 32 << 20)  # This is the largest number that glibc takes.
    malloc.mallopt(TRIM_THRESHOLD, 128 << 20)


def empty(shape: tuple[int, ...], dtype=np.float32) -> Array:
    """Return an array with arbitrary values; on a mesh without values, an array without values."""
    return absent(shape, dtype) if idle[0] else np.empty(shape, dtype)


# ---------------------------------------------------------------- sums of several ranks
# Each rank on a host writes its array into shared memory, adds up a part of all arrays, and reads
# the result. This takes half the time of MPI's Allreduce or less, because Allreduce copies every
# byte several times (measured: 4 ranks on 2 cores, 64 KiB to 16 MiB).
#
# Ranks add up this many bytes of an array at a time, so that the slots of a few ranks fit in a
# processor's cache.
SHARED_CHUNK = 1 << 19
# Up to this many bytes each rank adds up all of the array itself, which is faster than a second
# barrier.
SHARED_WHOLE = 1 << 16


class SharedSum:
    """Shared memory with a slot for each rank of a communicator and one slot for the sum.

    There are two sets of slots, because a late rank may still read the slots of one sum when the
    next sum begins.
    """

    def __init__(self, memory: mmap.mmap, rank: int, ranks: int):
        self.rank, self.ranks = rank, ranks
        slots = np.frombuffer(memory, np.uint8, 2 * (ranks + 1) * SHARED_CHUNK)
        slots = slots.reshape(2, ranks + 1, SHARED_CHUNK)
        self.side = [list(slots[0]), list(slots[1])]

    def add_up(self, mine: Array, total: Array, meet: Callable[[], None]) -> None:
        """Write the sum of the arrays `mine` of all ranks, in the order of the ranks, into `total`.

        Both arrays must be contiguous. `meet` is a barrier: it returns when all ranks have called
        it.
        """
        given = mine.reshape(-1)
        wanted = total.reshape(-1)
        step = SHARED_CHUNK // mine.itemsize
        for low in range(0, given.size, step):
            part = given[low : low + step]
            result = wanted[low : low + step]
            self.side.reverse()
            *slots, shared = (slot.view(part.dtype)[: part.size] for slot in self.side[0])
            slots[self.rank][:] = part
            meet()
            if part.nbytes <= SHARED_WHOLE:
                _sum(slots, result)
                continue
            own = slice(
                part.size * self.rank // self.ranks, part.size * (self.rank + 1) // self.ranks
            )
            _sum([slot[own] for slot in slots], shared[own])
            meet()
            result[:] = shared


def _sum(arrays: list[Array], out: Array) -> None:
    with np.errstate(all="ignore"):  # The hardware overflows to infinity without a warning.
        np.add(arrays[0], arrays[1], out=out)
        for array in arrays[2:]:
            np.add(out, array, out=out)


def shared_sum(comm) -> SharedSum | None:
    """Return the shared memory of a communicator's ranks. All ranks must call this function.

    It is None for one rank, for ranks on several hosts, or if a rank cannot open the memory. The
    memory has no file name, so no file can be left behind. The other ranks find it through the
    process id of the first rank.
    """
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    together = here.size == comm.size
    here.Free()
    if comm.allreduce(not together) or comm.size < 2:
        return None
    size = 2 * (comm.size + 1) * SHARED_CHUNK
    file = -1
    memory = None
    # If this fails (not on Linux, or not allowed), the `open` below fails, too, and `memory` stays
    # None.
    with contextlib.suppress(AttributeError, OSError):
        if comm.rank == 0:
            file = os.memfd_create("ttkit")
            os.ftruncate(file, size)
    place = comm.bcast(f"/proc/{os.getpid()}/fd/{file}")
    with contextlib.suppress(OSError, ValueError), open(place, "r+b") as shared:
        memory = mmap.mmap(shared.fileno(), size)
    # This also waits until all ranks have opened the file, because rank 0 closes it next.
    everybody = comm.allreduce(memory is not None, MPI.LAND)
    if file >= 0:
        os.close(file)
    return SharedSum(memory, comm.rank, comm.size) if everybody and memory is not None else None

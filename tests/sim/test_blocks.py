"""Work on several threads: every job runs once, BLAS gets its threads back, warnings and errors
behave as in one thread. And sums of ranks in shared memory (here threads), in the order of the ranks.
"""

import mmap
import os
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttkit.sim import blocks
from ttkit.sim.blocks import SharedSum
from ttkit.sim.ops.matmul import product


def blas_threads():
    switch = blocks._switch()
    return switch.get_num_threads() if switch else None


@pytest.mark.parametrize("products", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_every_job_runs_once(count, products):
    done = []
    before = blas_threads()
    blocks.run([lambda i=i: done.append(i) for i in range(count)], products)
    assert sorted(done) == list(range(count))
    assert blas_threads() == before


def test_an_error_of_a_job_comes_out_and_blas_is_as_before():
    before = blas_threads()
    with pytest.raises(ZeroDivisionError):
        blocks.run([lambda: 1 / 0] * 4)
    assert blas_threads() == before


def test_jobs_may_start_jobs():
    done = []
    blocks.run([lambda: blocks.run([lambda: done.append(1)] * 3)] * 3)
    assert done == [1] * 9


def test_several_callers_at_once():
    before, done = blas_threads(), []
    callers = [
        threading.Thread(target=blocks.run, args=([lambda: done.append(1)] * 20,)) for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(done) == 80 and blas_threads() == before


def test_numpy_does_not_warn_in_any_thread():
    big = np.full(4, 3e38, np.float32)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        blocks.run([lambda: big * big] * 50)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
# Python 3.12 on: fork in a process with threads
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own():
    blocks.run([lambda: None] * 4)
    child = os.fork()
    if child == 0:
        done = []
        blocks.run([lambda: done.append(1)] * 4)
        os._exit(len(done))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4


@pytest.mark.parametrize(
    "a, b",
    [
        # more columns than rows do not fit into eight equal pieces
        ((1, 1, 700, 640), (1, 1, 640, 700)),
        ((2, 4, 130, 640), (1, 1, 640, 601)),
        ((1, 1, 640, 512), (2, 4, 512, 300)),
        ((2, 1, 256, 128), (1, 4, 128, 96)),
    ],
)
def test_products_in_pieces_equal_numpy(a, b):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(a, dtype=np.float32), rng.standard_normal(b, dtype=np.float32)
    wanted = np.matmul(x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(product(x, y, 2), wanted, rtol=1e-3, atol=1e-3)


# ---------------------------------------------------------------- sums of several ranks
def play(ranks, sizes, dtype, seed):
    """The sums of several arrays, one after the other; each rank is late at its own moments."""
    memory = mmap.mmap(-1, 2 * (ranks + 1) * blocks.SHARED_CHUNK)
    meeting = threading.Barrier(ranks)
    drawn = np.random.default_rng(seed)
    values = [(drawn.standard_normal((ranks, size)) * 100).astype(dtype) for size in sizes]
    late = drawn.integers(0, 3, (ranks, len(sizes))) / 1000

    def work(rank):
        mine, sums = SharedSum(memory, rank, ranks), []
        for number, arrays in enumerate(values):
            sums.append(np.empty_like(arrays[rank]))

            def meet(number=number):
                meeting.wait(20)
                time.sleep(late[rank, number])  # the others are ahead: with the next sum, perhaps

            mine.add_up(arrays[rank].copy(), sums[-1], meet)
        return sums

    with ThreadPoolExecutor(ranks) as pool:
        found = list(pool.map(work, range(ranks)))
    for number, arrays in enumerate(values):
        wanted = arrays[0]
        for array in arrays[1:]:
            wanted = wanted + array
        for rank in range(ranks):
            where = f"sum {number} on rank {rank}"
            np.testing.assert_array_equal(found[rank][number], wanted, where)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(blocks, "SHARED_CHUNK", 256)
    monkeypatch.setattr(blocks, "SHARED_WHOLE", 64)


@settings(max_examples=40, deadline=None)
@given(
    ranks=st.integers(2, 5),
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=8),
    dtype=st.sampled_from([np.float32, np.int32, np.uint16, np.uint8]),
    seed=st.integers(0, 2**32),
)
def test_every_rank_gets_the_sum(ranks, sizes, dtype, seed):
    play(ranks, sizes, dtype, seed)


def test_a_sum_that_is_too_large_is_silent():
    memory, given_array = mmap.mmap(-1, 6 * blocks.SHARED_CHUNK), np.full(4, 3e38, np.float32)
    meeting, found = threading.Barrier(2), np.empty((2, 4), np.float32)

    def work(rank):
        with np.errstate(all="raise"):
            SharedSum(memory, rank, 2).add_up(given_array, found[rank], lambda: meeting.wait(20))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (0, 1)))
    assert np.isposinf(found).all()

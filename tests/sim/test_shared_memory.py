"""Ranks that add up in memory that they share, here as threads: every rank gets the sum in the
order of the ranks, whoever is late.
"""

import mmap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttkit.sim import shared_memory
from ttkit.sim.shared_memory import SharedSum


def play(ranks, sizes, dtype, seed):
    """The sums of several arrays, one after the other; each rank is late at its own moments."""
    memory = mmap.mmap(-1, 2 * (ranks + 1) * shared_memory.CHUNK)
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
            np.testing.assert_array_equal(
                found[rank][number], wanted, err_msg=f"sum {number} on rank {rank}"
            )


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(shared_memory, "CHUNK", 256)
    monkeypatch.setattr(shared_memory, "WHOLE", 64)


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
    memory, given_array = mmap.mmap(-1, 6 * shared_memory.CHUNK), np.full(4, 3e38, np.float32)
    meeting, found = threading.Barrier(2), np.empty((2, 4), np.float32)

    def work(rank):
        with np.errstate(all="raise"):
            SharedSum(memory, rank, 2).add_up(given_array, found[rank], lambda: meeting.wait(20))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (0, 1)))
    assert np.isposinf(found).all()

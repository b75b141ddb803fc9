"""Work on several threads: every job runs once, BLAS gets its threads back, warnings and errors
behave as in one thread.
"""

import os
import threading
import warnings

import numpy as np
import pytest

from ttkit.sim import blocks
from ttkit.sim.matmul import product


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
    np.testing.assert_allclose(
        product(x, y, 2),
        np.matmul(x.astype(np.float64), y.astype(np.float64)),
        rtol=1e-3,
        atol=1e-3,
    )

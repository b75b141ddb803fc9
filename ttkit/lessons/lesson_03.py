"""Lesson 03, one program, many chips."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.lessons import exercise, require
from ttkit.lessons.answers import Answer, asks, numbers, row_of

# What each device holds after a product whose inner dimension is cut, as lessons 07 and 03 check.
PARTIAL = "each device holds its partial sum only: the sum over the devices is missing"


def _rows(whole: np.ndarray, n: int) -> list[np.ndarray]:
    """Return the samples of each of n devices."""
    return np.split(whole, n)


@exercise(
    "03.data_parallel",
    "What does each chip need: some of the samples, or all? And of the weights?",
    "ttnn.ShardTensorToMesh(mesh, dim=0) for x, ttnn.ReplicateTensorToMesh(mesh) for w1 and w2",
    "The program of one chip is ttnn.matmul, ttnn.relu, ttnn.matmul.",
)
@asks("data_parallel(mesh, x, w1, w2)", (2, 4), (1, 3))
def _data_parallel(data_parallel: Answer, mesh: Any) -> str:
    n = mesh.get_num_devices()
    x, w1, w2 = numbers(32 * n, 8 * n), numbers(8 * n, 16 * n), numbers(16 * n, 24 * n)
    run = data_parallel.on(mesh, (x, (32, 8 * n)), (w1, w1.shape), (w2, w2.shape))
    both = "relu stands between the two products"
    run.differs(
        (_rows(x @ w1 @ w2, n), f"your tensor is x @ w1 @ w2: the relu is missing; {both}"),
        (_rows(np.maximum(x @ w1 @ w2, 0), n), f"relu came after the second product; {both}"),
        (_rows(np.maximum(x, 0) @ w1 @ w2, n), f"relu came before the first product; {both}"),
        (_rows(x @ w1, n), "your tensor is x @ w1: relu and the product with w2 are missing"),
        (_rows(np.maximum(x @ w1, 0), n), "the product with w2 is missing"),
    )
    run.equals(_rows(np.maximum(x @ w1, 0) @ w2, n))
    run.multiplied(((32, 8 * n), w1.shape), ((32, 16 * n), w2.shape))
    run.nothing_sent()
    run.put_as_given()
    same = "each device did its own rows, and all of them the same program"
    return f"{same}; nothing sent, {run.given()}"


@exercise(
    "03.column_parallel",
    "A chip computes some columns of the result. Which numbers of the bias does it add?",
    "The bias has shape [1, n]: cut it along dimension 1, as the columns of w are cut.",
    "ttnn.linear(x, w, bias=b) on the three tensors",
)
@asks("column_parallel(mesh, x, w, b)", (2, 4), (1, 3))
def _column_parallel(column_parallel: Answer, mesh: Any) -> str:
    n = mesh.get_num_devices()
    x, w, b = numbers(4 * n, 8 * n), numbers(8 * n, 32 * n), numbers(1, 32 * n)
    run = column_parallel.on(mesh, (x, x.shape), (w, (8 * n, 32)), (b, (1, 32)))
    run.differs(
        (np.split(x @ w, n, 1), "your tensor is x @ w: the bias b was not added"),
        (np.split(x @ w + 2 * b, n, 1), "the bias b was added twice"),
        (np.split(x @ w - b, n, 1), "the bias b was subtracted, not added"),
    )
    run.equals(np.split(x @ w + b, n, 1))
    run.multiplied((x.shape, (8 * n, 32)))
    run.nothing_sent()
    run.put_as_given()
    return f"weights and bias cut alike; nothing sent, {run.given()}"


def _one_sum(sent: list[str]) -> None:
    """Check that the chips sent what one sum needs: an all_reduce, its two halves, or a gather."""
    sums = sent.count("all_reduce") + sent.count("reduce_scatter")
    gathers = sent.count("all_reduce") + sent.count("all_gather")
    enough = "one all_reduce is enough, or one reduce_scatter and one all_gather"
    require(max(sums, gathers) <= 1, f"it is right, but you called {', '.join(sent)}: {enough}")


@exercise(
    "03.row_parallel",
    "Which dimension of x and which of w are summed over?",
    "Cut x along dimension 1 and w along dimension 0: each chip has a partial sum.",
    "ttnn.all_reduce(..., cluster_axis=1) adds the partial sums of a row of chips.",
)
@asks("row_parallel(mesh, x, w)", (1, 4), (1, 3), fabric=True)
def _row_parallel(row_parallel: Answer, mesh: Any) -> str:
    n = row_of(mesh)
    x, w = numbers(8 * n, 32 * n), numbers(32 * n, 16 * n)
    run = row_parallel.on(mesh, (x, (8 * n, 32)), (w, (32, 16 * n)))
    parts = [a @ b for a, b in zip(np.split(x, n, 1), np.split(w, n), strict=True)]
    often = f"each device holds {n} times the result: the partial sums were added twice"
    run.differs((parts, PARTIAL), ([n * (x @ w)] * n, often))
    run.equals([x @ w] * n)
    run.summed()
    run.multiplied(((8 * n, 32), (32, 16 * n)))
    run.put_as_given()
    _one_sum(run.sent())
    return f"partial sums added, the same result everywhere; {run.given()}"

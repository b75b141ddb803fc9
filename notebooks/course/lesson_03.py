"""Lesson 03, one program, many chips: its exercises."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes, numbers, replicas, split

# A matmul whose inner dimension is sharded leaves a partial sum on each device.
PARTIAL = "each device holds only its partial sum: the sum over the devices is missing"


def relu(x: np.ndarray) -> np.ndarray:
    """Return the positive numbers, and 0 for the others."""
    return np.maximum(x, 0)


# ---------------------------------------------------------------- 03.data_parallel
def _by_rows(result: Callable[..., np.ndarray]) -> Callable[..., list[np.ndarray]]:
    """Return a reference that shards the rows of a function's result over the devices."""
    return lambda mesh, *arrays: split(mesh, result(*arrays), 0)


def _two_layers(rows: int, columns: int) -> list:
    n = rows * columns
    x, w1, w2 = numbers(32 * n, 8 * n), numbers(8 * n, 16 * n), numbers(16 * n, 24 * n)
    return [(x, (32, 8 * n)), (w1, w1.shape), (w2, w2.shape)]


Exercise(
    "03.data_parallel",
    asks="data_parallel(mesh, x, w1, w2)",
    reference=_by_rows(lambda x, w1, w2: relu(x @ w1) @ w2),
    cases=OnMeshes([(2, 4), (1, 3)], _two_layers),
    mistakes={
        "the relu is missing; it stands between the two products": _by_rows(
            lambda x, w1, w2: x @ w1 @ w2
        ),
        "relu came after the second product; it stands between the two": _by_rows(
            lambda x, w1, w2: relu(x @ w1 @ w2)
        ),
        "relu and the product with w2 are missing": _by_rows(lambda x, w1, w2: x @ w1),
        "the product with w2 is missing": _by_rows(lambda x, w1, w2: relu(x @ w1)),
        "every device computed all samples: cut the rows of x": lambda mesh, x, w1, w2: replicas(
            mesh, relu(x @ w1) @ w2
        ),
    },
    budget=Budget(sends=0),
    praise="each device computed its own rows with the same program, and nothing was sent",
    hints=[
        "Does each chip need all samples, or some of them? Does it need all weights?",
        "place(mesh, x, dim=0) cuts the rows of x; place(mesh, w1) and place(mesh, w2) replicate",
        "The program of one chip is ttnn.matmul, then ttnn.relu, then ttnn.matmul.",
    ],
)


# ---------------------------------------------------------------- 03.column_parallel
def _with_bias(rows: int, columns: int) -> list:
    n = rows * columns
    x, w, b = numbers(4 * n, 8 * n), numbers(8 * n, 32 * n), numbers(1, 32 * n)
    return [(x, x.shape), (w, (8 * n, 32)), (b, (1, 32))]


Exercise(
    "03.column_parallel",
    asks="column_parallel(mesh, x, w, b)",
    reference=lambda mesh, x, w, b: split(mesh, x @ w + b, 1),
    cases=OnMeshes([(2, 4), (1, 3)], _with_bias),
    mistakes={
        "the bias b was not added": lambda mesh, x, w, b: split(mesh, x @ w, 1),
        "the bias b was added twice": lambda mesh, x, w, b: split(mesh, x @ w + 2 * b, 1),
        "the bias b was subtracted, not added": lambda mesh, x, w, b: split(mesh, x @ w - b, 1),
        "every device has all columns: cut those of w and b": lambda mesh, x, w, b: replicas(
            mesh, x @ w + b
        ),
    },
    budget=Budget(sends=0),
    praise="weights and bias are cut alike, and nothing was sent",
    hints=[
        "A chip computes some columns of the result. Which numbers of the bias does it add?",
        "The bias has shape [1, n]: cut it along dimension 1, as the columns of w are cut.",
        "ttnn.linear(x, w, bias=b) on the three tensors",
    ],
)


# ---------------------------------------------------------------- 03.row_parallel
def partial_sums(mesh, x: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
    """Return what each device holds of x @ w where the inner dimension is cut."""
    return [a @ b for a, b in zip(split(mesh, x, 1), split(mesh, w, 0), strict=True)]


def _inner(rows: int, columns: int) -> list:
    n = rows * columns
    return [(numbers(8 * n, 32 * n), (8 * n, 32)), (numbers(32 * n, 16 * n), (32, 16 * n))]


Exercise(
    "03.row_parallel",
    asks="row_parallel(mesh, x, w)",
    reference=lambda mesh, x, w: replicas(mesh, x @ w),
    cases=OnMeshes([(1, 4), (1, 3)], _inner, fabric=True),
    mistakes={
        PARTIAL: partial_sums,
        "it is {n} times the result: the partial sums were added twice": lambda mesh, x, w: (
            replicas(mesh, mesh.get_num_devices() * (x @ w))
        ),
        "it is {n} times too small: a sum is asked for, not a mean": lambda mesh, x, w: replicas(
            mesh, x @ w / mesh.get_num_devices()
        ),
    },
    budget=Budget(sends=1),
    praise="the partial sums are added, and every device has the result",
    hints=[
        "Which dimension of x is summed over, and which of w?",
        "Cut x along dimension 1 and w along dimension 0: each chip has a partial sum.",
        "ttnn.all_reduce(..., cluster_axis=1) adds the partial sums of a row of chips.",
    ],
)

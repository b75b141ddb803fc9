"""Lesson 06, data parallel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.lessons import difference, exercise, require
from ttkit.lessons.answers import Answer, asks, numbers
from ttkit.lessons.lesson_05 import on_ranks, ranks_of


@exercise("06.gradient")
@asks("mean_gradient(mesh, x, w, y)", (1, 4), (2, 4), fabric=True)
def _gradient(mean_gradient: Answer, mesh: Any) -> str:
    n = mesh.get_num_devices()
    x, w, y = numbers(32 * n, 32), numbers(32, 64), numbers(32 * n, 64)
    run = mean_gradient.on(mesh, (x, (32, 32)), (w, w.shape), (y, (32, 64)))
    samples = zip(np.split(x, n), np.split(y, n), strict=True)
    own = [2 / b.size * a.T @ (a @ w - b) for a, b in samples]
    whole = np.mean(own, axis=0)
    run.differs(
        (own, "each device has the gradient of its own samples: nothing was averaged"),
        (
            [n * whole] * n,
            f"it is {n} times too large: the sum over {n} devices, where the loss is a mean",
        ),
        (
            [whole / n] * n,
            f"it is {n} times too small: error.logical_volume() counts one device's elements, "
            f"so that the sum needs 1/{n} once",
        ),
    )
    placed = np.reshape(own, (*mesh.shape, *w.shape))
    for axis in (0, 1) if min(mesh.shape) > 1 else ():
        mean = np.broadcast_to(placed.mean(axis, keepdims=True), placed.shape)
        message = "the mean is over one axis of the mesh only: each has its own all_reduce"
        run.differs((list(mean.reshape(n, *w.shape)), message))
    run.equals([whole] * n, 1e-4)
    run.summed()
    run.multiplied(((32, 32), (32, 64)), ((32, 32), (32, 64)))
    return f"one gradient on all {n} devices, that of one device; {run.given()}"


@exercise("06.bucket")
def _bucket(average: Any, cluster: Any) -> str:
    n = ranks_of(cluster)
    shapes = ((3, 5), (7,), (2, 2, 4))
    values = [[numbers(n, *shape)[rank] for shape in shapes] for rank in range(n)]
    means = [np.mean(each, axis=0) for each in zip(*values, strict=True)]
    those_are = "Allreduce (capital A, NumPy arrays) is"
    results = on_ranks(cluster, average, "average", values, ("Allreduce",), those_are)
    for rank, (result, _, calls) in enumerate(results):
        several = f"rank {rank} gave {len(result)} arrays back; there are {len(means)} gradients"
        require(len(result) == len(means), several)
        for i, (mean, mine) in enumerate(zip(means, result, strict=True)):
            wrong, here = difference(mean, mine, 1e-4, 1e-5), f"rank {rank}, gradient {i}"
            is_sum = wrong and not difference(n * mean, mine, 1e-4, 1e-5)
            require(not is_sum, f"{here} is {n} times too large: the sum, not the mean")
            is_own = wrong and not difference(values[rank][i], mine, 1e-4, 1e-5)
            require(not is_own, f"{here} is its own still")
            require(not wrong, f"{here}: {wrong}")
        require(
            calls <= 1,
            f"it is right, but rank {rank} called Allreduce {calls} times; "
            f"the budget is 1 for all {len(means)} gradients",
        )
    return f"{len(means)} gradients averaged over {n} ranks in one message"

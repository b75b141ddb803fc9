"""Lesson 06, data parallel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.lessons import (
    CheckFailed,
    device_difference,
    difference,
    exercise,
    require,
    values_mean_something,
)
from ttkit.lessons.answers import Answer, asks, numbers
from ttkit.lessons.on_ranks import on_ranks


@exercise("06.gradient")
@asks("mean_gradient(mesh, x, w, y)", (1, 4), (2, 4), fabric=True)
def _gradient(mean_gradient: Answer, mesh: Any) -> str:
    n = mesh.get_num_devices()
    x, w, y = numbers(32 * n, 32), numbers(32, 64), numbers(32 * n, 64)
    run = mean_gradient.on(mesh, x, w, y)
    run.cut("x", x.shape, (32, 32))
    run.cut("y", y.shape, (32, 64))
    run.cut("w", w.shape, w.shape)
    own = [
        2 / b.size * a.T @ (a @ w - b) for a, b in zip(np.split(x, n), np.split(y, n), strict=True)
    ]
    whole = np.mean(own, axis=0)
    if values_mean_something():
        size = 1e-4 * float(np.abs(whole).max())
        by_place = np.reshape(own, (*mesh.shape, *w.shape))
        in_part = [
            np.broadcast_to(by_place.mean(axis, keepdims=True), by_place.shape).reshape(n, *w.shape)
            for axis in (0, 1)
            if mesh.shape[axis] > 1
        ]
        wrong = [
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
            *(
                (
                    list(part),
                    "the mean is over one axis of the mesh only: each has its own all_reduce",
                )
                for part in in_part
                if not np.allclose(part, whole)
            ),
        ]
        for values, message in wrong:
            if not device_difference(values, run.tensor(), 1e-4, size):
                raise CheckFailed(f"on {mesh!r} {message}")
    run.equals([whole] * n, 1e-4)
    run.summed()
    run.multiplied(((32, 32), (32, 64)), ((32, 32), (32, 64)))
    return (
        f"one gradient on all {n} devices, that of one device; "
        f"{run.given((32, 32), (32, 64), (32, 64))}"
    )


@exercise("06.bucket")
def _bucket(average: Any, cluster: Any) -> str:
    n = getattr(cluster, "n", 1)
    shapes = ((3, 5), (7,), (2, 2, 4))
    values = [[numbers(n, *shape)[rank] for shape in shapes] for rank in range(n)]
    means = [np.mean(each, axis=0) for each in zip(*values, strict=True)]
    told = on_ranks(
        cluster,
        average,
        "average",
        values,
        ("Allreduce",),
        "Allreduce (capital A, NumPy arrays) is",
    )
    for rank, (result, _, calls) in enumerate(told):
        require(
            len(result) == len(means),
            f"rank {rank} gave {len(result)} arrays back; there are {len(means)} gradients",
        )
        for i, (mean, mine) in enumerate(zip(means, result, strict=True)):
            require(
                mine.shape == mean.shape,
                f"rank {rank}, gradient {i}: the shape should be {list(mean.shape)}, "
                f"is {list(mine.shape)}",
            )
            require(
                bool(difference(n * mean, mine, 1e-4, 1e-5)),
                f"rank {rank}, gradient {i} is {n} times too large: the sum, not the mean",
            )
            require(
                bool(difference(values[rank][i], mine, 1e-4, 1e-5)),
                f"rank {rank}, gradient {i} is its own still",
            )
            wrong = difference(mean, mine, 1e-4, 1e-5)
            require(not wrong, f"rank {rank}, gradient {i}: {wrong}")
        require(
            calls <= 1,
            f"it is right, but rank {rank} called Allreduce {calls} times; "
            f"the budget is 1 for all {len(means)} gradients",
        )
    return f"{len(means)} gradients averaged over {n} ranks in one message"

"""Lesson 13, fully sharded data parallel: its exercise."""

from functools import partial

import numpy as np

import ttkit
from course.arrays import numbers
from course.common import place
from course.lesson_12 import along, axis_of
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes


# ---------------------------------------------------------------- 13.layer
def _given(rows: int, columns: int) -> list:
    """Return for each chip 32 samples, and 32 rows of a weight."""
    width = 32 * (columns if rows == 1 else rows)
    return [(numbers(rows, columns, 32, size), None) for size in (width, 256)]


def _layer(answer, mesh, *arrays: np.ndarray):
    """Call an answer with matrices, the axis, and a `rest` that looks for the whole weight."""
    x, mine = (place(mesh, each.reshape(-1, each.shape[3]), dim=0) for each in arrays)

    def held():
        return sum(ttkit.memory(mesh).used.values())

    before = held()

    def rest(y):
        if held() - before > 2 * arrays[1].nbytes:  # `y` is as large as `mine`.
            raise CheckFailed("while rest runs, the chips still hold the whole weight: free it")
        return y * 0.5

    return answer(x, mine, axis_of(mesh), rest)


def _rows(mesh, x, mine, mean=np.mean, cut=True) -> list:
    """Return for each chip its rows of the mean gradient, or with cut=False all rows."""
    axis, n = axis_of(mesh), along(mesh)
    w = np.concatenate(np.split(mine, n, axis), 2)
    own = x.swapaxes(2, 3) @ (x @ w) / 2
    found = np.broadcast_to(mean(own, axis, keepdims=True), own.shape)
    chips = np.ndindex(*mesh.shape)
    return [np.split(found[at], n)[at[axis]] if cut else found[at] for at in chips]


Exercise(
    "13.layer",
    asks="fsdp_layer(x, mine, axis, rest)",
    reference=_rows,
    cases=OnMeshes([(1, 8), (2, 4)], _given, fabric=True, call=_layer),
    mistakes={
        "that is the sum of the gradients; expected the mean": partial(_rows, mean=np.sum),
        "those are the rows of the gradient of each chip's own samples: nothing was added": partial(
            _rows, mean=lambda own, *_, **__: own
        ),
        "that is the whole gradient; return only the rows of `mine`": partial(_rows, cut=False),
    },
    budget=Budget(link_bytes=lambda mesh, x, mine: 2 * (along(mesh) - 1) * mine.nbytes),
    rtol=1e-4,
    praise="the rows of the mean gradient, with two sweeps and no whole weight while rest runs",
    hints=[
        "Which weight does x @ w need, and how long does a chip need it?",
        "The gradient of w is xᵀ dy, where dy is rest(y). Which collective adds it up and leaves "
        "each chip with its own rows?",
        "In this order: all_gather, matmul, deallocate, rest, matmul with transpose_a=True, "
        "reduce_scatter. Both collectives take dimension 0 and cluster_axis=axis. How does a sum "
        "become a mean?",
    ],
)

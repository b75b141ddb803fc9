"""Lesson 09, the Trainer: its exercises."""

from functools import partial

import numpy as np

from course.arrays import numbers, replicas
from course.common import place
from ttkit import backend
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes

# ---------------------------------------------------------------- 09.bucket
SHAPES = (64, 256), (32, 64), (256, 64)  # The gradients on a chip have these shapes.


def _average(answer, mesh, *arrays: np.ndarray):
    """Call an answer with tensors, and join the means that it returns as 32 columns."""
    ttnn = backend.load()
    gradients = [place(mesh, each.reshape(-1, each.shape[2]), dim=0) for each in arrays]
    means = answer(mesh, gradients)
    if [tuple(mean.shape) for mean in means] != [*SHAPES]:
        raise CheckFailed("the means should have the shapes of the gradients, in their order")
    return ttnn.concat([ttnn.reshape(m, (m.logical_volume() // 32, 32)) for m in means], dim=0)


def _joined(mesh, *arrays: np.ndarray, over=np.mean) -> list[np.ndarray]:
    """Return for each chip the joined means of the gradients, or their sums."""
    return replicas(mesh, np.concatenate([over(each, 0).reshape(-1, 32) for each in arrays]))


Exercise(
    "09.bucket",
    asks="average(mesh, gradients)",
    reference=_joined,
    cases=OnMeshes(
        [(1, 4), (1, 3)],
        lambda rows, columns: [(numbers(columns, *shape), None) for shape in SHAPES],
        fabric=True,
        call=_average,
    ),
    mistakes={
        "each chip still has its own gradients": lambda mesh, *arrays: [
            np.concatenate([each.reshape(-1, 32) for each in own]) for own in zip(*arrays)
        ],
        "it is {n} times too large: that is the sum, not the mean": partial(_joined, over=np.sum),
    },
    budget=Budget(sends=1),
    rtol=1e-4,
    praise="all gradients are averaged in one all-reduce",
    hints=[
        "One all-reduce takes one tensor. How do you make one tensor out of several?",
        "ttnn.reshape(g, (g.logical_volume() // 32, 32)) makes 32 columns, and ttnn.concat joins "
        "such tensors. all_reduce adds: what turns a sum into a mean?",
        "After the all_reduce, cut the rows where each gradient ends, and give each part the "
        "gradient's shape: ttnn.reshape(part, g.shape).",
    ],
)


# ---------------------------------------------------------------- 09.step
Exercise(
    "09.step",
    asks="samples_needed(computing, sending, share)",
    reference=lambda computing, sending, share: share * sending / ((1 - share) * computing),
    cases=[(686.0, 310.0, 0.9), (100.0, 130.0, 0.5), (52.0, 400.0, 0.75), (2578.0, 640.0, 0.95)],
    mistakes={
        "that is upside down: more sending needs more samples": lambda computing, sending, share: (
            (1 - share) * computing / (share * sending)
        ),
        "sending may take 1 - share of the whole step, not of its computing": (
            lambda computing, sending, share: sending / ((1 - share) * computing)
        ),
        "sending is a part of the step: a step takes b times computing, plus sending": (
            lambda computing, sending, share: share * sending / computing
        ),
    },
    rtol=1e-4,
    praise="with this many samples per chip, n chips reach that share of the ideal",
    hints=[
        "How long is a step of n chips with b times the samples, and how much of it is computing?",
        "n chips reach n times b c / (b c + s). Which equation must b satisfy?",
        "b c = share (b c + s). Bring b to one side.",
    ],
)

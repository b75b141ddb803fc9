"""Lesson 09, the Trainer: its exercises."""

from __future__ import annotations

import numpy as np

from course.ranks import OneAllreduce, OnRanks, RankBudget
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import numbers

# ---------------------------------------------------------------- 09.bucket
Gradients = list[list[np.ndarray]]  # Each rank has a list of gradients.


def _means(values: Gradients, factor: float = 1) -> Gradients:
    """Return each rank's means of the gradients, times a factor."""
    return [[factor * np.mean(each, axis=0) for each in zip(*values)]] * len(values)


def _of_ranks(n: int) -> Gradients:
    shapes = [(7, 2), (4,)] if n % 2 else [(3, 5), (7,), (2, 2, 4)]
    return [[numbers(n, *shape)[rank] for shape in shapes] for rank in range(n)]


Exercise(
    "09.bucket",
    asks="average(comm, gradients)",
    reference=_means,
    cases=OnRanks(_of_ranks, comm=OneAllreduce),
    mistakes={
        "each rank still has its own": lambda values: values,
        "it is {n} times too large: the sum, not the mean": lambda values: _means(
            values, len(values)
        ),
        "it is {n} times too small: divided by {n} twice": lambda values: _means(
            values, 1 / len(values)
        ),
    },
    budget=RankBudget(sends=lambda gradients, n: sum(g.nbytes for g in gradients), calls=1),
    rtol=1e-4,
    praise="all gradients averaged in one message",
    hints=[
        "One Allreduce takes one array. How do you make one array of several?",
        "np.concatenate joins arrays of one dimension; g.ravel() makes such an array. Allreduce "
        "adds: what is missing to a mean?",
        "After the Allreduce, cut the flat array where each gradient ends, and give each part the "
        "gradient's shape: part.reshape(g.shape).",
    ],
)


# ---------------------------------------------------------------- 09.step
Exercise(
    "09.step",
    asks="faster(n, computing, sending)",
    reference=lambda n, computing, sending: n * computing / (computing + sending),
    cases=[(8, 686.0, 310.0), (4, 100.0, 100.0), (1, 50.0, 0.0), (32, 2578.0, 640.0)],
    mistakes={
        "that is the ideal line: the sending is missing": lambda n, *times: n,
        "n chips do n times the samples of one": lambda n, computing, sending: (
            computing / (computing + sending)
        ),
        "that is the time of one chip's samples; asked is how many times faster": (
            lambda n, computing, sending: (computing + sending) / (n * computing)
        ),
        "that is only the share that is sending": lambda n, computing, sending: (
            sending / (computing + sending)
        ),
        "each chip has as many samples as before, so its computing is not divided by n": (
            lambda n, computing, sending: computing / (computing / n + sending)
        ),
    },
    rtol=1e-4,
    praise="each step as much faster as it is",
    hints=[
        "How many times the samples of one chip do n chips do in one step?",
        "How long is the step of one chip, and how long is that of n chips?",
        "n times the samples in (computing + sending); one chip needs computing for its own.",
    ],
)

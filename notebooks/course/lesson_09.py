"""Lesson 09, the Trainer: its exercises."""

import numpy as np

from course.arrays import numbers
from course.ranks import OneAllreduce, OnRanks, RankBudget
from ttkit.lessons.exercises import Exercise

# ---------------------------------------------------------------- 09.bucket
Gradients = list[list[np.ndarray]]  # Each rank has a list of gradients.


def _means(values: Gradients, factor: float = 1) -> Gradients:
    """Return for each rank the means of the gradients over the ranks, times a factor."""
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
        "each rank still has its own gradients": lambda values: values,
        "it is {n} times too large: that is the sum, not the mean": lambda values: _means(
            values, len(values)
        ),
        "it is {n} times too small: you divided by {n} twice": lambda values: _means(
            values, 1 / len(values)
        ),
    },
    budget=RankBudget(sends=lambda gradients, n: sum(g.nbytes for g in gradients), calls=1),
    rtol=1e-4,
    praise="all gradients are averaged in one message",
    hints=[
        "One Allreduce takes one array. How do you make one array out of several?",
        "np.concatenate joins arrays of one dimension; g.ravel() makes such an array. Allreduce "
        "adds: what turns a sum into a mean?",
        "After the Allreduce, cut the flat array where each gradient ends, and give each part the "
        "gradient's shape: part.reshape(g.shape).",
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
        "that b gives 1 - share of the ideal, not share": lambda computing, sending, share: (
            (1 - share) * sending / (share * computing)
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

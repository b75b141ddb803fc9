"""Lesson 06, engines and ranks: its exercises."""

import numpy as np

from course.arrays import numbers
from course.ranks import OnRanks
from ttkit.lessons.exercises import Exercise

Arrays = list[np.ndarray]


def _from(values: Arrays, steps: int) -> Arrays:
    """Return what each rank has if it gets the array of the rank `steps` places before it."""
    return [values[(rank - steps) % len(values)] for rank in range(len(values))]


def _rows(n: int) -> Arrays:
    return list(numbers(n, n, 5))


Exercise(
    "06.shift",
    asks="shift(comm, x)",
    reference=lambda values: _from(values, 1),
    cases=OnRanks(_rows),
    mistakes={
        "that is the right neighbour's x: send x the other way, to rank + 1": (
            lambda values: _from(values, -1)
        ),
        "each rank still has its own values": lambda values: values,
        "x went one rank too far": lambda values: _from(values, 2),
    },
    budget=lambda x, n: x.nbytes,
    praise="each rank has what its left neighbour had",
    hints=[
        "Which rank does rank 3 of 4 send to, and which rank does rank 0 receive from?",
        "The operator % closes the ring: (comm.rank + 1) % comm.size.",
        "Make an empty array like x, then one call: "
        "comm.Sendrecv(x, dest=..., recvbuf=..., source=...).",
    ],
)


def _sum(values: Arrays, times: float = 1, own: bool = False) -> Arrays:
    """Return for each rank `times` the sum; if `own`, with the rank's own values added again."""
    total = np.sum(values, axis=0)
    return [times * total + (value if own else 0) for value in values]


def _chunks(x, n: int) -> int:
    """Return the bytes of 2 (n - 1) chunks, each of which is 1/n of an array."""
    return int(2 * (n - 1) * x.nbytes // n)


Exercise(
    "06.all_reduce",
    asks="all_reduce(comm, x)",
    reference=_sum,
    cases=OnRanks(lambda n: list(numbers(n, 2 * n * n))),
    mistakes={
        "each rank still has its own values": lambda values: values,
        "that is the mean; expected the sum": lambda values: _sum(values, 1 / len(values)),
        "each rank added its own values twice": lambda values: _sum(values, own=True),
        "that is {n} times the sum": lambda values: _sum(values, len(values)),
    },
    budget=_chunks,
    praise="every rank has the sum",
    hints=[
        "After n - 1 rounds each rank should have the finished sum of one chunk. Which chunk must "
        "rank k send first, so that the next rank adds its own to it?",
        "In round r rank k sends chunk (k - r) % n and adds what arrives to chunk (k - r - 1) % n.",
        "After these rounds rank k has the sum of chunk (k + 1) % n. Go round once more with the "
        "same formulas, for r from n - 1 to 2n - 3, and replace the chunk instead of adding to it.",
    ],
)

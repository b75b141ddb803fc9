"""Lesson 20: its exercise with right and with wrong answers."""

from collections import Counter

import numpy as np
from answers import both


def positions(tokens, capacity):
    turns, found = Counter(), []
    for expert in tokens:
        found.append(turns[expert] if turns[expert] < capacity else -1)
        turns[expert] += 1
    return found


def as_columns(tokens, capacity):
    """As the kit does it: a column for each expert, and sums down the columns."""
    if not tokens:
        return np.array([])
    chosen = np.eye(max(tokens) + 1)[tokens]
    turn = (np.cumsum(chosen, 0) * chosen).sum(1) - 1
    return np.where(turn < capacity, turn, -1)


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "20.positions": (
            [
                positions,
                as_columns,
                lambda t, c: [k if (k := t[:i].count(e)) < c else -1 for i, e in enumerate(t)],
            ],
            {
                "item 1 should be 0, but is 1: each expert has a queue of its own": lambda t, c: [
                    i if i < c else -1 for i in range(len(t))
                ],
                "should have 7 items, but has 6": lambda t, c: positions(t, c)[:-1],
                "returned nothing": lambda t, c: None,
            },
        )
    }
)

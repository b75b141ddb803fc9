"""Lesson 26: its exercise with right and with wrong answers."""

import numpy as np
from answers import both


def reads(heads, kv_heads, chips):
    owners = np.arange(heads).reshape(chips, -1) * kv_heads // heads
    return [np.unique(row) for row in owners]


def by_ends(heads, kv_heads, chips):
    """From the head of a chip's first query to that of its last."""
    each = heads // chips
    ends = [(chip * each, chip * each + each - 1) for chip in range(chips)]
    return [list(range(a * kv_heads // heads, b * kv_heads // heads + 1)) for a, b in ends]


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "26.reads": (
            [reads, by_ends],
            {"should have 8 items, but has 4": lambda h, k, c: reads(h, k, c)[: c // 2]},
        )
    }
)

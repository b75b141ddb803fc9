"""Lesson 19: its picture, and its exercises with right and with wrong answers."""

import numpy as np
import pytest
from answers import both

from course.lesson_19 import UNLIKE, CausalWork
from ttkit.train.config.layout import zigzag


# ---------------------------------------------------------------- the picture
@pytest.mark.parametrize("chips", [2, 3, 8, 32])
def test_the_picture_has_the_work_of_every_position(chips):
    """Of chunks so long that the diagonal's own half does not matter."""
    length = 200 * chips
    for name, order in {"plain": np.arange(length), "zig-zag": zigzag(length, chips)}.items():
        work = (order.reshape(chips, -1) + 0.5).sum(1)
        np.testing.assert_allclose(CausalWork(chips, name).percent, 100 * work / work.sum())


# ---------------------------------------------------------------- the exercises
def balanced(length, chips):
    chunks = np.arange(length).reshape(2 * chips, -1)
    return np.concatenate([chunks[[i, 2 * chips - 1 - i]].ravel() for i in range(chips)])


def plain(length, chips):
    return np.arange(length)


def neighbours(length, chips):
    chunks = np.arange(length).reshape(2 * chips, -1)
    return chunks[[*range(0, 2 * chips, 2), *range(1, 2 * chips, 2)]]


def merge(out1, max1, sum1, out2, max2, sum2):
    top = np.maximum(max1, max2)
    one, two = np.exp(max1 - top), np.exp(max2 - top)
    return out1 * one + out2 * two, top, sum1 * one + sum2 * two


def in_place(out1, max1, sum1, out2, max2, sum2):
    top = np.maximum(max1, max2)
    out1 *= np.exp(max1 - top)
    sum1 *= np.exp(max1 - top)
    out1 += out2 * np.exp(max2 - top)
    sum1 += sum2 * np.exp(max2 - top)
    return [out1, top, sum1]


def without_factors(out1, max1, sum1, out2, max2, sum2):
    return out1 + out2, np.maximum(max1, max2), sum1 + sum2


@np.errstate(all="ignore")
def without_a_max(out1, max1, sum1, out2, max2, sum2):
    one, two, top = np.exp(max1), np.exp(max2), np.maximum(max1, max2)
    return (out1 * one + out2 * two) / np.exp(top), top, (sum1 * one + sum2 * two) / np.exp(top)


def divided(*parts):
    out, top, total = merge(*parts)
    return out / total, top, total


def any_hidden(out1, max1, sum1, out2, max2, sum2):
    """Leaves part 2 out as soon as it is hidden from one query."""
    if np.isinf(max2).any():
        return out1, max1, sum1
    return merge(out1, max1, sum1, out2, max2, sum2)


@np.errstate(all="ignore")
def chosen_by_factors(out1, max1, sum1, out2, max2, sum2):
    """Is no number where -inf is multiplied by 0."""
    top = max1 * (max1 >= max2) + max2 * (max1 < max2)
    one, two = np.exp(max1 - top), np.exp(max2 - top)
    return out1 * one + out2 * two, top, sum1 * one + sum2 * two


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "19.balanced": (
            [balanced, zigzag, lambda *run: balanced(*run).tolist()[::-1]],
            {
                "chip 1 computes 100 scores and chip 0 only 36; all wait for the slowest": plain,
                "and the limit per chip is 68": neighbours,
                "position 8 is missing": lambda n, c: balanced(n, c) // 2,
                "expected 16 positions, got 17": lambda n, c: [*balanced(n, c), 0],
            },
        ),
        "19.merge": (
            [merge, in_place],
            {
                UNLIKE: without_factors,
                "is nan (30 of 30 elements": without_a_max,
                "do not divide `out` by `sum` yet": divided,
                "should be 3.867, but is -3.6": any_hidden,
                "is nan (10 of 30 elements": chosen_by_factors,
            },
        ),
    }
)

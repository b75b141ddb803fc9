"""Lesson 16: its picture, and its exercises with right and with wrong answers."""

import numpy as np
import pytest
from answers import both

from course.lesson_16 import UNLIKE, CausalWork
from ttkit.train.config.layout import zigzag


# ---------------------------------------------------------------- the picture
@pytest.mark.parametrize("chips", [2, 3, 8, 32])
def test_the_picture_has_the_work_of_every_position(chips):
    """Of chunks so long that the diagonal's own half does not matter."""
    length = 200 * chips
    orders = {"plain order": np.arange(length), "zig-zag order": zigzag(length, chips)}
    for name, order in orders.items():
        work = (order.reshape(chips, -1) + 0.5).sum(1)
        np.testing.assert_allclose(CausalWork(chips).percent[name], 100 * work / work.sum())


# ---------------------------------------------------------------- the exercises
def balanced(length, chips):
    chunks = np.arange(length).reshape(2 * chips, -1)
    return np.concatenate([chunks[[i, 2 * chips - 1 - i]].ravel() for i in range(chips)])


def by_lists(length, chips):
    """A list for each chip, the last chunk first."""
    size = length // (2 * chips)
    chunks = [list(range(start, start + size)) for start in range(0, length, size)]
    return [chunks[-1 - i] + chunks[i] for i in range(chips)]


def by_tokens(length, chips):
    """There and back again, a position each."""
    owners = [*range(chips), *reversed(range(chips))] * (length // (2 * chips))
    return np.argsort(owners, kind="stable")


def plain(length, chips):
    return np.arange(length)


def dealt(length, chips):
    return np.arange(length).reshape(-1, chips).T.ravel()


def neighbours(length, chips):
    chunks = np.arange(length).reshape(2 * chips, -1)
    return chunks[[*range(0, 2 * chips, 2), *range(1, 2 * chips, 2)]]


def merge(out1, max1, sum1, out2, max2, sum2):
    top = np.maximum(max1, max2)
    one, two = np.exp(max1 - top), np.exp(max2 - top)
    return out1 * one + out2 * two, top, sum1 * one + sum2 * two


def by_rows(*parts):
    """Row by row, where the higher part stays as it is."""
    out1, max1, sum1, out2, max2, sum2 = parts
    found = [array.copy() for array in parts[:3]]
    for i in range(len(out1)):
        if max1[i] >= max2[i]:
            shrink = np.exp(max2[i] - max1[i])
            found[0][i], found[2][i] = out1[i] + shrink * out2[i], sum1[i] + shrink * sum2[i]
        else:
            shrink = np.exp(max1[i] - max2[i])
            found[0][i], found[2][i] = shrink * out1[i] + out2[i], shrink * sum1[i] + sum2[i]
            found[1][i] = max2[i]
    return found


def in_place(out1, max1, sum1, out2, max2, sum2):
    top = np.maximum(max1, max2)
    out1 *= np.exp(max1 - top)
    sum1 *= np.exp(max1 - top)
    out1 += out2 * np.exp(max2 - top)
    sum1 += sum2 * np.exp(max2 - top)
    return [out1, top, sum1]


def without_factors(out1, max1, sum1, out2, max2, sum2):
    return out1 + out2, np.maximum(max1, max2), sum1 + sum2


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


def chosen_by_factors(out1, max1, sum1, out2, max2, sum2):
    """Is no number where -inf is multiplied by 0."""
    top = max1 * (max1 >= max2) + max2 * (max1 < max2)
    one, two = np.exp(max1 - top), np.exp(max2 - top)
    return out1 * one + out2 * two, top, sum1 * one + sum2 * two


def the_second_shrinks(out1, max1, sum1, out2, max2, sum2):
    """Right where the max of part 1 is the higher one."""
    shrink = np.exp(max2 - max1)
    return out1 + out2 * shrink, max1, sum1 + sum2 * shrink


def quietly(answer):
    """NumPy does not warn of infinite numbers."""

    def given(*parts):
        with np.errstate(all="ignore"):
            return answer(*parts)

    return given


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "16.balanced": (
            [balanced, zigzag, by_lists, by_tokens, lambda *run: balanced(*run).tolist()[::-1]],
            {
                "chip 1 computes 100 scores and chip 0 only 36; all wait for the slowest": plain,
                "chip 1 computes 72 scores and chip 0 only 64": dealt,
                "and the limit per chip is 68": neighbours,
                "position 8 is missing": lambda n, c: balanced(n, c) // 2,
                "expected 16 positions, got 17": lambda n, c: [*balanced(n, c), 0],
            },
        ),
        "16.merge": (
            [merge, by_rows, in_place],
            {
                UNLIKE: without_factors,
                "is nan (30 of 30 elements": quietly(without_a_max),
                "do not divide `out` by `sum` yet": divided,
                "item 0 element [0, 0] should be": the_second_shrinks,
                "should be 3.867, but is -3.6": any_hidden,
                "is nan (10 of 30 elements": quietly(chosen_by_factors),
            },
        ),
    }
)

"""Lesson 16: its runs, its picture, and its exercises with right and with wrong answers."""

import numpy as np
import pytest
from answers import both

import ttkit
from course.lesson_16 import (
    UNLIKE,
    CausalWork,
    block_bytes,
    compare,
    opened,
    rates,
    step,
    trained_losses,
    wrong_ones,
)
from ttkit.lessons import tidy
from ttkit.train.config.layout import zigzag


# ---------------------------------------------------------------- what is run
@pytest.fixture
def on_a_t3000():
    ttkit.use_system("t3000")
    yield
    tidy()
    ttkit.use_system(None)


def test_a_row_of_chips_is_opened_again_and_again(on_a_t3000):
    first = opened(8).device
    layout = opened(4, {"tp": 1}, sequence_parallel=True)
    assert not first.is_open and layout.device.is_open
    assert (layout.tp_axis, layout.tp, layout.sequence_parallel) == (1, 4, True)


def test_a_block_keeps_vectors_of_tokens_and_numbers_of_pairs(on_a_t3000):
    """Of 256 float32; a pair has a number in each of 8 heads and one in the mask."""
    layout = opened(1)
    token, pair = rates(layout)
    assert (token / 1024, pair / 4) == (25, 9)
    assert block_bytes(256, layout) == token * 256 + pair * 256**2


def test_gradients_of_one_chip_are_those_of_four_and_another_one_is_named(on_a_t3000):
    good = step(64, opened(1))[1]
    grads = step(64, opened(4, {"tp": 1}))[1]
    assert wrong_ones(good, grads) == []
    name = next(iter(grads))
    assert wrong_ones(good, grads | {name: grads[name] + 1}) == [name]


def test_a_layout_is_compared_with_one_chip(on_a_t3000, capsys):
    compare("tensor", step(512, opened(1)), opened(8, {"tp": 1}))
    first, gradients, *sent, kept = capsys.readouterr().out.splitlines()
    assert first == "yes: tensor parallel: the loss of one chip"
    assert gradients == "  wrong gradients: 0 of 37"
    assert sent[0] == "  MB on links in both passes: 75.2 in 12 all_reduce, 3.7 in 1 all_gather"
    assert sent[1] == "  MB on links once a step: none"
    assert kept == "  kept: 12.1 vectors a token, 2.0 numbers a pair"


def test_two_chips_train_as_one(on_a_t3000):
    np.testing.assert_allclose(trained_losses(1, 128), trained_losses(2, 128), 1e-4)


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


def lower(out1, max1, sum1, out2, max2, sum2):
    top = np.minimum(max1, max2)
    one, two = np.exp(max1 - top), np.exp(max2 - top)
    return out1 * one + out2 * two, top, sum1 * one + sum2 * two


def divided(*parts):
    out, top, total = merge(*parts)
    return out / total, top, total


def other_factors(out1, max1, sum1, out2, max2, sum2):
    top = np.maximum(max1, max2)
    one, two = np.exp(max2 - top), np.exp(max1 - top)
    return out1 * one + out2 * two, top, sum1 * one + sum2 * two


def any_hidden(out1, max1, sum1, out2, max2, sum2):
    """Leaves part 2 out as soon as it is hidden from one query."""
    if np.isinf(max2).any():
        return out1, max1, sum1
    return merge(out1, max1, sum1, out2, max2, sum2)


def one_max_for_all(out1, max1, sum1, out2, max2, sum2):
    top = np.maximum(max1, max2).max() + 0 * max1
    one, two = np.exp(max1 - top), np.exp(max2 - top)
    return out1 * one + out2 * two, top, sum1 * one + sum2 * two


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
            [
                balanced,
                zigzag,
                by_lists,
                by_tokens,
                lambda length, chips: balanced(length, chips).tolist()[::-1],
            ],
            {
                "chip 1 computes 100 scores and chip 0 36; all wait for the slowest": plain,
                "chip 1 computes 72 scores and chip 0 64": dealt,
                "and the budget of a chip is 68": neighbours,
                "position 8 is missing": lambda n, c: balanced(n, c) // 2,
                "16 positions are asked for, there are 17": lambda n, c: [*balanced(n, c), 0],
            },
        ),
        "16.merge": (
            [merge, by_rows, in_place],
            {
                UNLIKE: without_factors,
                "exp overflows; subtract the higher max": quietly(without_a_max),
                "max is the higher of the two": quietly(lower),
                "out is not divided by sum yet": divided,
                "exp(its own max - the higher one)": quietly(other_factors),
                "each query has a max of its own": one_max_for_all,
                "the order is (out, max, sum)": lambda *parts: [
                    merge(*parts)[i] for i in (0, 2, 1)
                ],
                "item 0 element [0, 0] should be": the_second_shrinks,
                "should be 3.867, is -3.6": any_hidden,
                "its max is -inf: exp(-inf) is 0": quietly(chosen_by_factors),
                "your part takes 320 bytes; one that came has 160": lambda *parts: [
                    array.astype(np.float64) for array in merge(*parts)
                ],
            },
        ),
    }
)

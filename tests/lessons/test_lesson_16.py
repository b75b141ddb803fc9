"""The exercises of lesson 16: right answers, and wrong ones that are told what is wrong."""

import numpy as np
import pytest
from answers import right, wrong

import ttkit
from ttkit.lessons import tidy
from ttkit.lessons.lesson_16 import (
    CausalWork,
    block_bytes,
    compare,
    opened,
    rates,
    step,
    trained_losses,
    wrong_ones,
)
from ttkit.train.parallel import zigzag


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
    assert (layout.tp_axis, layout.tp_size, layout.sequence_parallel) == (1, 4, True)


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
    assert sent[0].startswith("  MB on links in both passes: all_reduce ")
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


def from_the_ends(length, chips):
    for i in range(length // 2):
        yield i
        yield length - 1 - i


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


def out_without_factors(out1, max1, sum1, out2, max2, sum2):
    _, top, total = merge(out1, max1, sum1, out2, max2, sum2)
    return out1 + out2, top, total


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


def wider(*parts):
    return [array.astype(np.float64) for array in merge(*parts)]


def one_max(*parts):
    out, top, total = merge(*parts)
    return out, top.max(), total


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


def of_four_queries(*parts):
    """The sizes of the first call, hard-coded."""
    out, top, total = merge(*parts)
    found = np.empty((4, 8), np.float32)
    found[:] = out
    return found, top, total


def hidden_as_zero(out1, max1, sum1, out2, max2, sum2):
    """Right where the max of part 1 is above 0."""
    return merge(out1, max1, sum1, out2, np.where(np.isinf(max2), 0, max2), sum2)


def the_second_shrinks(out1, max1, sum1, out2, max2, sum2):
    """Right where the max of part 1 is the higher one."""
    shrink = np.exp(max2 - max1)
    return out1 + out2 * shrink, max1, sum1 + sum2 * shrink


def uneven(length, chips):
    """The right positions, a wrong number of them for each chip."""
    order = balanced(length, chips)
    return [order[:-1], *[[] for _ in range(chips - 2)], order[-1:]] if chips > 1 else order


test_right_answers = right(
    [
        ("16.balanced", balanced),
        ("16.balanced", zigzag),
        ("16.balanced", by_lists),
        ("16.balanced", by_tokens),
        ("16.balanced", from_the_ends),
        ("16.balanced", lambda n, c: map(int, balanced(n, c))),
        ("16.balanced", lambda n, c: balanced(n, c).reshape(c, 2, -1)),
        ("16.balanced", lambda length, chips: balanced(length, chips).tolist()[::-1]),
        ("16.merge", merge),
        ("16.merge", by_rows),
        ("16.merge", in_place),
        ("16.merge", lambda *parts: (np.asfortranarray(array) for array in merge(*parts))),
        ("16.balanced", lambda n, c: [{*part} for part in balanced(n, c).reshape(c, -1).tolist()]),
        ("16.balanced", lambda n, c: balanced(n, c).astype(object)),
    ]
)

ALL_WAIT = "all wait for the slowest, and the budget of a chip is"
test_wrong_answers = wrong(
    [
        ("16.balanced", plain, f"chip 1 computes 100 scores and chip 0 36; {ALL_WAIT} 68"),
        ("16.balanced", lambda *a: plain(*a)[::-1], "chip 0 computes 100 scores and chip 1 36"),
        ("16.balanced", dealt, "chip 1 computes 72 scores and chip 0 64"),
        ("16.balanced", neighbours, f"chip 1 computes .* and chip 0 .*{ALL_WAIT}"),
        ("16.balanced", lambda n, c: balanced(n, c)[1:], "should give 16 positions, .* it has 15"),
        ("16.balanced", lambda n, c: balanced(n, c) // 2, r"position \[8\] is missing"),
        ("16.balanced", lambda n, c: balanced(n, c) + 1, r"position \[0\] is missing"),
        ("16.balanced", lambda n, c: balanced(n, c) / 1, "whole numbers, not float64"),
        ("16.balanced", lambda n, c: balanced(16, 2), r"balanced\(64, 4\) should give 64"),
        ("16.balanced", lambda n, c: [range(n - 1), [n - 1]], r"gives the chips \[15, 1\]"),
        ("16.balanced", lambda n, c: [], "it has 0"),
        ("16.balanced", uneven, r"gives the chips \[15, 1\] positions, not 8 each"),
        ("16.balanced", lambda n, c: [[1, [2]], 3], "should give 16 positions, .* it has 3"),
        ("16.balanced", lambda n, c: None, "does it end in `return`"),
        ("16.balanced", lambda n, c: n // c, "should give positions, chip by chip, gave a int"),
        ("16.balanced", lambda n: n, "it is called as balanced"),
        ("16.balanced", lambda n, c: balanced(n, c).astype(str), "whole numbers, not"),
        ("16.balanced", lambda n, c: balanced(n, 2), "chip . computes .* scores"),
        ("16.merge", of_four_queries, "your merge stopped with ValueError"),
        ("16.merge", hidden_as_zero, "the mask hides part 2 from two queries: max"),
        ("16.merge", the_second_shrinks, "small scores: max: element"),
        ("16.merge", without_factors, "sum: element .*different max subtracted"),
        ("16.merge", out_without_factors, "out: element .*different max subtracted"),
        (
            "16.merge",
            without_a_max,
            "scores up to 960: sum.*exp overflows; subtract the higher max",
        ),
        ("16.merge", lower, "max: element .*lower of the two"),
        ("16.merge", divided, "divided by sum already"),
        ("16.merge", other_factors, "small scores: sum: element .*look at its factors"),
        (
            "16.merge",
            lambda *parts: merge(*parts)[0],
            r"three arrays, \(out, max, sum\), gave a ndarray",
        ),
        ("16.merge", lambda *parts: merge(*parts)[::-1], "sum should have the shape"),
        ("16.merge", one_max, r"max should have the shape \(4, 1\), has \(\)"),
        ("16.merge", wider, "max takes 32 bytes as float64; a part has 16"),
        (
            "16.merge",
            lambda *parts: [array.astype(np.float16) for array in merge(*parts)],
            "max should hold float32 as the parts do, holds float16",
        ),
        ("16.merge", any_hidden, "hides part 2 from two queries: max"),
        ("16.merge", one_max_for_all, "each query has a max of its own, the higher of its two"),
        (
            "16.merge",
            lambda *parts: [merge(*parts)[i] for i in (0, 2, 1)],
            r"that is sum; the order is \(out, max, sum\)",
        ),
        ("16.merge", chosen_by_factors, "hides part 2 .*: max: .* -inf times 0, .* are no number"),
    ]
)

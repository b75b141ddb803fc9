"""The exercises of lesson 14: right answers, and wrong ones that are told what is wrong."""

import itertools

import numpy as np
import pytest
from answers import right, wrong

from ttkit.lessons.lesson_14 import layer_times


def fused(arrays, chips):
    parts = [np.split(array, chips, axis=1) for array in arrays]
    return np.concatenate([part[chip] for chip in range(chips) for part in parts], axis=1)


def one_after_the_other(arrays, chips):
    return np.concatenate(arrays, axis=1)


def columns_in_order_of_size(arrays, chips):
    return np.sort(np.concatenate(arrays, axis=1), axis=1)


def largest(width, heads, kv_heads, inner, chips):
    for n in range(chips, 0, -1):
        whole = chips % n == 0 and heads % n == 0 and kv_heads % n == 0
        if whole and width % (32 * n) == 0 and inner % (32 * n) == 0:
            return n


def by_reshape(arrays, chips):
    parts = [array.reshape(len(array), chips, -1) for array in arrays]
    return np.concatenate(parts, axis=2).reshape(len(arrays[0]), -1)


def by_gcd(width, heads, kv_heads, inner, chips):
    """The divisors of the greatest common divisor: its largest is itself."""
    return np.gcd.reduce([chips, heads, kv_heads, width // 32, inner // 32])


def by_the_first_width(arrays, chips):
    """Each part as wide as the first array's."""
    width = arrays[0].shape[1] // chips
    parts = [each[:, chip * width :][:, :width] for chip in range(chips) for each in arrays]
    return np.concatenate(parts, axis=1)


def of_three_rows(arrays, chips):
    parts = [array.reshape(3, chips, -1) for array in arrays]
    return np.concatenate(parts, axis=2).reshape(3, -1)


def the_widest_first(arrays, chips):
    return fused(sorted(arrays, key=lambda array: -array.shape[1]), chips)


def emptied(arrays, chips):
    found = fused(arrays, chips)
    arrays[0][:] = 0
    return found


def by_halves(width, heads, kv_heads, inner, chips):
    n = chips
    while any(size % n for size in (chips, heads, kv_heads, width // 32, inner // 32)):
        n //= 2
    return n


def by_doubling(width, heads, kv_heads, inner, chips):
    n = 1
    while not any(size % (2 * n) for size in (chips, heads, kv_heads, width // 32, inner // 32)):
        n *= 2
    return n


def without_the_rest(width, heads, kv_heads, inner, chips):
    """Each slice is of whole tiles, but the slices are not all of it."""
    for n in range(chips, 0, -1):
        whole = chips % n == 0 and heads % n == 0 and kv_heads % n == 0
        if whole and (width // n) % 32 == 0 and (inner // n) % 32 == 0:
            return n


def fewer_than_heads(width, heads, kv_heads, inner, chips):
    return max(
        n
        for n in range(1, kv_heads + 1)
        if not any(size % n for size in (chips, heads, width // 32, inner // 32))
    )


test_right_answers = right(
    [
        ("14.fuse", fused),
        ("14.fuse", by_reshape),
        ("14.fuse", lambda arrays, chips: fused(arrays, chips).tolist()),
        ("14.fuse", lambda arrays, chips: fused(arrays, chips).astype(object)),
        ("14.largest", largest),
        ("14.largest", by_gcd),
        ("14.largest", lambda *model: np.array(by_gcd(*model))),
    ]
)

test_wrong_answers = wrong(
    [
        ("14.fuse", one_after_the_other, "one after the other; chip 0 then has 4 columns of"),
        ("14.fuse", of_three_rows, r"has shape \(3, 20\); all columns once: \(5, 12\)"),
        ("14.fuse", lambda arrays, chips: fused(arrays[:3], chips), r"once: \(2, 30\)"),
        ("14.fuse", the_widest_first, "the columns of chip 0 are in another order than the list"),
        ("14.fuse", lambda *a: fused(*a) + 1j, "should give one array, gave a ndarray"),
        ("14.fuse", lambda *a: fused(*a).astype(str), "should give one array, gave a ndarray"),
        ("14.fuse", lambda *a: [10**400], "should give one array, gave a list"),
        ("14.fuse", lambda arrays, chips: fused(arrays, 1), "one after the other"),
        ("14.fuse", lambda arrays, chips: fused(arrays[::-1], chips), "another order"),
        ("14.fuse", lambda arrays, chips: fused(arrays[:1], chips), "all columns once"),
        ("14.fuse", columns_in_order_of_size, "not those of its parts"),
        (
            "14.fuse",
            by_the_first_width,
            "chip 0 .*: its column 3 should be column 0 of array 2, is column 1 of array 1",
        ),
        ("14.fuse", emptied, "changes the weights that it was given"),
        ("14.fuse", lambda arrays, chips: arrays, "should give one array, gave a list"),
        ("14.fuse", lambda arrays, chips: None, "does it end in `return`"),
        ("14.largest", by_halves, r"18\) gives 2: so many fit, and more would fit; it is 6"),
        ("14.largest", by_doubling, r"18\) gives 2: .* it is 6"),
        ("14.largest", without_the_rest, "2080 columns over 64 chips are no whole tiles"),
        ("14.largest", fewer_than_heads, "4 chips do not divide 6 heads of keys and values"),
        ("14.largest", lambda *model: 1, "more would fit"),
        ("14.largest", lambda *model: model[-1], "do not divide 8 heads of keys and values"),
        ("14.largest", lambda w, h, k, i, c: largest(w, h, h, i, c), "heads of keys and values"),
        ("14.largest", lambda w, h, k, i, c: largest(w, h, k, 32 * i, c), "no whole tiles"),
        ("14.largest", lambda w, h, k, i, c: largest(w, h, k, i, 12 * c), "no whole groups"),
        (
            "14.largest",
            lambda w, h, k, i, c: largest(w, k, k, i, c),
            "do not divide 12 query heads",
        ),
        ("14.largest", lambda *model: 0, "at least one chip"),
        ("14.largest", lambda *model: None, "is None: does it end in `return`"),
    ]
)


@pytest.mark.parametrize(("chips", "from_width"), [(8, 4096), (4, 2048), (2, 1024)])
def test_wide_layers_compute_longer_than_they_send(chips, from_width):
    """As the lesson says; and the times grow with the square of the width, and slower."""
    widths = [512 * 2**i for i in range(6)]
    times = [[max(row) for row in layer_times(width, chips).rows.values()] for width in widths]
    computing, sending = zip(*times)
    longer = [width for width, a, b in zip(widths, computing, sending) if a > b]
    assert longer == [width for width in widths if width >= from_width]
    assert all(b / a == pytest.approx(4) for a, b in itertools.pairwise(computing))
    assert all(1 < b / a < 2 for a, b in itertools.pairwise(sending))

"""Lesson 18: its exercises with right and with wrong answers."""

import numpy as np
from answers import both


def fused(arrays, chips):
    parts = [np.split(array, chips, axis=1) for array in arrays]
    return np.concatenate([part[chip] for chip in range(chips) for part in parts], axis=1)


def by_reshape(arrays, chips):
    parts = [array.reshape(len(array), chips, -1) for array in arrays]
    return np.concatenate(parts, axis=2).reshape(len(arrays[0]), -1)


def largest(width, heads, kv_heads, inner, chips):
    for n in range(chips, 0, -1):
        whole = chips % n == 0 and heads % n == 0 and kv_heads % n == 0
        if whole and width % (32 * n) == 0 and inner % (32 * n) == 0:
            return n


def by_gcd(width, heads, kv_heads, inner, chips):
    """The divisors of the greatest common divisor: its largest is itself."""
    return np.gcd.reduce([chips, heads, kv_heads, width // 32, inner // 32])


def by_halves(*model):
    n = model[-1]
    while any(size % n for size in (*model[1:3], model[-1], model[0] // 32, model[3] // 32)):
        n //= 2
    return n


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "18.fuse": (
            [fused, by_reshape, lambda arrays, chips: fused(arrays, chips).tolist()],
            {
                "element [0, 2] should be 100, is 2 (": lambda arrays, chips: fused(arrays, 1),
                "the shape should be [2, 30], is [2, 24]": lambda arrays, chips: fused(
                    arrays[:3], chips
                ),
                "does it end in `return`": lambda arrays, chips: None,
            },
        ),
        "18.largest": (
            [largest, by_gcd],
            {
                "largest(768, 12, 6, 3072, 18) should be 6, is 2: more would fit": by_halves,
                "do not divide 8 heads of keys and values": lambda w, h, k, i, c: largest(
                    w, h, h, i, c
                ),
                "do not divide 12 query heads": lambda w, h, k, i, c: largest(w, k, k, i, c),
                "no whole tiles": lambda w, h, k, i, c: largest(w, h, k, 32 * i, c),
                "8 chips make no whole groups": lambda w, h, k, i, c: largest(w, h, k, i, 12 * c),
                "more would fit": lambda *model: 1,
                "should be 8, is None": lambda *model: None,
            },
        ),
    }
)

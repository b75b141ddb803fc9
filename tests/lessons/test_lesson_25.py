"""Lesson 25: its exercise with right and with wrong answers."""

import numpy as np
from answers import both


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
        "25.largest": (
            [largest, by_gcd],
            {
                "largest(768, 12, 6, 3072, 18) should be 6, but is 2": by_halves,
                "it does not divide 8 heads of keys and values": lambda w, h, k, i, c: largest(
                    w, h, h, i, c
                ),
                "it does not divide 12 query heads": lambda w, h, k, i, c: largest(w, k, k, i, c),
                "not whole tiles": lambda w, h, k, i, c: largest(w, h, k, 32 * i, c),
                "8 is not a multiple of that": lambda w, h, k, i, c: largest(w, h, k, i, 12 * c),
                "more chips would fit": lambda *model: 1,
                "returned nothing": lambda *model: None,
            },
        )
    }
)

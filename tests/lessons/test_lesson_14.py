"""The exercises of lesson 14: right answers, and wrong ones that are told what is wrong."""

import numpy as np
from answers import right, wrong


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


test_right_answers = right([("14.fuse", fused), ("14.largest", largest)])

test_wrong_answers = wrong(
    [
        ("14.fuse", one_after_the_other, "one after the other; chip 0 then has"),
        ("14.fuse", lambda arrays, chips: fused(arrays, 1), "one after the other"),
        ("14.fuse", lambda arrays, chips: fused(arrays[::-1], chips), "another order"),
        ("14.fuse", lambda arrays, chips: fused(arrays[:1], chips), "all columns once"),
        ("14.fuse", columns_in_order_of_size, "not those of its parts"),
        ("14.largest", lambda *model: 1, "more would fit"),
        ("14.largest", lambda *model: model[-1], "do not divide 8 heads of keys and values"),
        ("14.largest", lambda w, h, k, i, c: largest(w, h, h, i, c), "heads of keys and values"),
        ("14.largest", lambda w, h, k, i, c: largest(w, h, k, 32 * i, c), "no whole tiles"),
        ("14.largest", lambda w, h, k, i, c: largest(w, h, k, i, 12 * c), "no whole groups"),
        ("14.largest", lambda *model: 0, "at least one chip"),
    ]
)

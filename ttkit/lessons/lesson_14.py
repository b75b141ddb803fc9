"""Lesson 14, a real model without a card: a layer's times, and its exercises. The answers are
ordered weights, and chip counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.lessons import exercise, require
from ttkit.lessons.answers import Answer, asks, numbers, whole_number
from ttkit.visualize.charts import Stacks

TOKENS, BFLOAT16, TILE_BYTES = 64, 2, 32 * 32 * 2


# ---------------------------------------------------------------- a picture of a layer's times
def layer_times(width: int, chips: int) -> Stacks:
    """Return how long the lesson's layer computes and sends on a row of chips, modelled.

    It is as wide as given, with half as many heads of keys and values as of queries, and twice as
    many inner features. The chips read all weights once; of norms and scores nothing is counted.
    """
    from ttkit.hardware.systems import system_named
    from ttkit.plans import all_gather, cost, reduce_scatter, topology
    from ttkit.roofline import roofline

    weights = 9 * width**2 // chips  # q, out: 1 each; k, v: a half; gate, up, down: 2
    chip = system_named("t3000").chip
    computing = roofline(chip, 2 * TOKENS * weights, BFLOAT16 * weights, "HiFi2").time_s
    row, whole = topology("t3000", (1, chips)), TOKENS * width * BFLOAT16
    each = (  # of a block: the squares, the slices, the partial sums
        all_gather(row, TOKENS // 32 * TILE_BYTES, axis=1, algorithm="line"),
        all_gather(row, whole // chips, axis=1, algorithm="line"),
        reduce_scatter(row, whole, axis=1, algorithm="line"),
    )
    sending = 2 * sum(cost(plan).time_s for plan in each)
    longer = "computing" if computing > sending else "sending"
    rows = {"computing": [1e6 * computing], "sending": [1e6 * sending]}
    title = f"a layer {width:,} wide on {chips} chips (modelled): {longer} takes longer"
    return Stacks(title, rows, ["microseconds"])


# ---------------------------------------------------------------- exercises
@exercise(
    "14.fuse",
    "ShardTensorToMesh gives chip 0 the first columns of the result. Which columns must these be?",
    "np.split(array, chips, axis=1) has a part of an array for each chip.",
    "For chip 0 the parts 0 of all arrays, then for chip 1 the parts 1, ...; np.concatenate them.",
)
@asks("fused(arrays, chips)")
def _fuse(answer: Answer) -> str:
    for columns, chips, rows in (([8, 4, 4], 4, 3), ([6, 6], 2, 5), ([9, 3, 12, 6], 3, 2)):
        arrays = [numbers(rows, n) + i for i, n in enumerate(columns)]
        each = [np.split(array, chips, axis=1) for array in arrays]
        call = f"fused of arrays with {columns} columns over {chips} chips"
        given = [array.copy() for array in arrays]
        made = answer(given, chips)
        try:
            found = np.asarray(made)
            found = found.astype(float) if found.dtype.kind in "fiuO" else np.empty(0)
        except (TypeError, ValueError, OverflowError):
            found = np.empty(0)
        answer.must_give("one array", made is not None and found.size > 0, made)
        same = len(given) == len(arrays) and all(map(np.array_equal, given, arrays))
        require(same, f"{call} changes the weights that it was given; make a new array")
        want = (rows, sum(columns))
        require(found.shape == want, f"{call} has shape {found.shape}; all columns once: {want}")
        plain = np.array_equal(found, np.concatenate(arrays, axis=1))
        first = min(columns[0], sum(columns) // chips)
        hint = f"; chip 0 then has {first} columns of the first array"
        require(not plain, f"{call} has the arrays one after the other{hint}, and none of the last")
        places = {
            tuple(column): f"column {place} of array {i}"
            for i, array in enumerate(arrays)
            for place, column in enumerate(array.T.astype(float))
        }
        for chip, part in enumerate(np.split(found, chips, axis=1)):
            wanted = np.concatenate([array[chip] for array in each], axis=1)
            known = sorted(map(tuple, part.T)) == sorted(map(tuple, wanted.T))
            why = "in another order than the list's" if known else "not those of its parts"
            for at, (have, want_here) in enumerate(zip(part.T, wanted.T.astype(float))):
                is_now = places.get(tuple(have), "of no array")
                rule = f"its column {at} should be {places[tuple(want_here)]}, is {is_now}"
                right = np.array_equal(have, want_here)
                require(right, f"{call}: the columns of chip {chip} are {why}: {rule}")
    return "each chip has its part of every array"


@exercise(
    "14.largest",
    "Which five numbers must the number of chips divide, or divide in whole tiles?",
    "width % (32 * n) == 0 says that n chips have slices of whole tiles.",
    "for n in range(chips, 0, -1): return the first n that passes all five.",
)
@asks("largest(width, heads, kv_heads, inner, chips)")
def _largest(answer: Any) -> str:
    for model in (
        (512, 16, 8, 1024, 8),
        (4096, 32, 8, 14336, 32),  # Llama-8B on a Galaxy: 8 heads of keys and values
        (2048, 32, 32, 5632, 32),  # 5632 is 176 tiles: not over 32 chips
        (512, 16, 2, 1024, 8),
        (96, 6, 6, 192, 8),  # 3 chips fit the model and do not divide 8
        (768, 12, 6, 3072, 18),  # 6: no power of two, and not 18 halved
        (768, 12, 6, 3072, 8),  # 4 chips are fewer than 6 heads, and do not divide them
        (2080, 64, 64, 8192, 64),  # 65 tiles: 64 chips have one each, and one is left
        (4544, 71, 1, 18176, 8),  # Falcon-7B: one head of keys and values
        (1024, 12, 8, 4096, 8),  # no model has fewer whole heads of both kinds; the rule is for all
    ):
        wanted = next(n for n in range(model[-1], 0, -1) if not _misfit(n, *model))
        found = whole_number(answer(*model), f"largest{model}")
        why = _misfit(found, *model) if found > 0 else "there is at least one chip"
        why = why or "so many fit, and more would fit"
        require(found == wanted, f"largest{model} gives {found}: {why}; it is {wanted}")
    return "no more chips than heads, tiles and groups allow"


def _misfit(n: int, width: int, heads: int, kv_heads: int, inner: int, chips: int) -> str:
    """Return why a layer cannot be cut over n chips, "" where it can."""
    rules = {
        f"{chips} chips make no whole groups of {n}": chips % n,
        f"{n} chips do not divide {heads} query heads": heads % n,
        f"{n} chips do not divide {kv_heads} heads of keys and values": kv_heads % n,
        f"{width} columns over {n} chips are no whole tiles": width % (32 * n),
        f"{inner} inner features over {n} chips are no whole tiles": inner % (32 * n),
    }
    return next((rule for rule, rest in rules.items() if rest), "")

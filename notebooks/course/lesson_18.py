"""Lesson 18, a real model without a card: its exercises."""

from __future__ import annotations

import functools
import math

import numpy as np

from ttkit.lessons.exercises import Exercise


# ---------------------------------------------------------------- 18.fuse
def _arrays(rows: int, *columns: int) -> list[np.ndarray]:
    """Return arrays in which 203 is in column 3 of array 2."""
    return [np.tile(100 * i + np.arange(float(n)), (rows, 1)) for i, n in enumerate(columns)]


def _fused(arrays: list[np.ndarray], chips: int) -> np.ndarray:
    parts = [np.split(array, chips, axis=1) for array in arrays]
    return np.concatenate([part[chip] for chip in range(chips) for part in parts], axis=1)


def _as_wide_as_the_first(arrays: list[np.ndarray], chips: int) -> np.ndarray:
    width = arrays[0].shape[1] // chips
    parts = [each[:, chip * width :][:, :width] for chip in range(chips) for each in arrays]
    return np.concatenate(parts, axis=1)


OTHER_ORDER = "each chip has its parts in another order than the list's"

Exercise(
    "18.fuse",
    asks="fused(arrays, chips)",
    reference=_fused,
    cases=[(_arrays(3, 8, 4, 4), 4), (_arrays(5, 6, 6), 2), (_arrays(2, 9, 3, 12, 6), 3)],
    mistakes={
        "the arrays are one after the other; chip 0 has none of the last": lambda arrays, chips: (
            np.concatenate(arrays, axis=1)
        ),
        OTHER_ORDER: lambda arrays, chips: _fused(arrays[::-1], chips),
        f"{OTHER_ORDER}: the widest first": lambda arrays, chips: _fused(
            sorted(arrays, key=lambda array: -array.shape[1]), chips
        ),
        "each part is as wide as the first array's": _as_wide_as_the_first,
    },
    praise="each chip has its part of every array",
    hints=[
        "ShardTensorToMesh gives chip 0 the first columns of the result. Which columns must these "
        "be?",
        "np.split(array, chips, axis=1) has a part of an array for each chip.",
        "For chip 0 the parts 0 of all arrays, then for chip 1 the parts 1, ...; np.concatenate "
        "them.",
    ],
)


# ---------------------------------------------------------------- 18.largest
def _rests(n: int, width: int, heads: int, kv_heads: int, inner: int, chips: int) -> dict[str, int]:
    """Return the remainder that each rule leaves for n chips that share a layer; all must be 0."""
    return {
        "{chips} chips make no whole groups of that": chips % n,
        "they do not divide {heads} query heads": heads % n,
        "they do not divide {kv_heads} heads of keys and values": kv_heads % n,
        "slices of {width} columns are then no whole tiles": width % (32 * n),
        "slices of {inner} inner features are then no whole tiles": inner % (32 * n),
    }


def _largest(*model: int, without: str = "") -> int:
    for n in range(model[-1], 0, -1):
        if not any(rest for rule, rest in _rests(n, *model).items() if rule != without):
            return n
    return 1


Exercise(
    "18.largest",
    asks="largest(width, heads, kv_heads, inner, chips)",
    reference=_largest,
    cases=[
        (512, 16, 8, 1024, 8),
        (4096, 32, 8, 14336, 32),  # This is Llama-8B on a Galaxy; it has 8 KV heads.
        (2048, 32, 32, 5632, 32),  # 32 does not divide the 176 tiles of 5632.
        (512, 16, 2, 1024, 8),
        (96, 6, 6, 192, 8),  # 3 chips fit the model but do not divide 8.
        (768, 12, 6, 3072, 18),  # The answer 6 is no power of two and no halving of 18.
        (768, 12, 6, 3072, 8),  # 4 chips are fewer than 6 heads, but do not divide them.
        (2080, 64, 64, 8192, 64),  # 64 chips cannot share 65 tiles.
        (4544, 71, 1, 18176, 8),  # Falcon-7B has one KV head.
        (1024, 12, 8, 4096, 8),  # 4 is the largest divisor of both 12 and 8 heads.
    ],
    mistakes={rule: functools.partial(_largest, without=rule) for rule in _rests(1, 1, 1, 1, 1, 1)}
    | {
        "more would fit": lambda *model: 1,
        "more would fit: not only powers of two": lambda *model: math.gcd(_largest(*model), 2**16),
    },
    praise="no more chips than heads, tiles and groups allow",
    hints=[
        "Which five numbers must the number of chips divide, or divide in whole tiles?",
        "width % (32 * n) == 0 says that n chips have slices of whole tiles.",
        "for n in range(chips, 0, -1): return the first n that passes all five.",
    ],
)

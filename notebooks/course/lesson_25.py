"""Lesson 25, a real model without a card: its exercise."""

import functools

from ttkit.lessons.exercises import Exercise


def _rests(n: int, width: int, heads: int, kv_heads: int, inner: int, chips: int) -> dict[str, int]:
    """Return {rule: remainder} for n chips that share a layer; all remainders must be 0."""
    return {
        "{chips} is not a multiple of that": chips % n,
        "it does not divide {heads} query heads": heads % n,
        "it does not divide {kv_heads} heads of keys and values": kv_heads % n,
        "slices of {width} columns are not whole tiles": width % (32 * n),
        "slices of {inner} hidden features are not whole tiles": inner % (32 * n),
    }


def _largest(*model: int, without: str = "") -> int:
    for n in range(model[-1], 0, -1):
        if not any(rest for rule, rest in _rests(n, *model).items() if rule != without):
            return n
    return 1


Exercise(
    "25.largest",
    asks="largest(width, heads, kv_heads, inner, chips)",
    reference=_largest,
    cases=[
        (512, 16, 8, 1024, 8),
        (4096, 32, 8, 14336, 32),  # This is Llama-8B on a Galaxy; it has 8 KV heads.
        (2048, 32, 32, 5632, 32),  # 32 does not divide the 176 tiles of 5632.
        (768, 12, 6, 3072, 18),  # The answer 6 is no power of two, and not half of 18.
        (768, 12, 6, 3072, 8),  # 4 is less than 6 heads, but does not divide 6.
        (2080, 64, 64, 8192, 64),  # 64 chips cannot share 65 tiles.
        (1024, 12, 8, 4096, 8),  # 4 is the largest divisor of both 12 and 8 heads.
    ],
    mistakes={rule: functools.partial(_largest, without=rule) for rule in _rests(1, 1, 1, 1, 1, 1)}
    | {"more chips would fit": lambda *model: 1},
    praise="as many chips as heads and tiles allow",
    hints=[
        "Which five quantities must n, the number of chips that share the layer, divide? Which two "
        "of them must it cut into whole tiles?",
        "width % (32 * n) == 0 says that n chips have slices of whole tiles.",
        "for n in range(chips, 0, -1): return the first n that passes all five.",
    ],
)

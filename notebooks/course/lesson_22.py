"""Lesson 22, when it pays: its exercises."""

from ttkit.lessons.exercises import Exercise

# ---------------------------------------------------------------- 22.ring
Exercise(
    "22.ring",
    asks="the number of tokens",
    # For each weight, the all-reduce has 2 * 4 steps, each with an eighth of 2 bytes, and a token
    # needs 6 operations. With 1000 tokens both take the same time.
    reference=lambda: 1000,
    mistakes={
        "this is the answer for a line": lambda: 1750,
        "a bfloat16 has two bytes, not four": lambda: 2000,
        "these are the tokens of all eight devices": lambda: 8000,
    },
    praise="that is four sevenths of the tokens that a line needs",
    hints=[
        "How many steps do the links of a ring take for an all-reduce? Lesson 05 has a table.",
        "The links of this ring take 2 * 4 steps, each with an eighth of the gradients.",
        "Set 2 * 4 / 8 * 2 / rate equal to 6 * tokens / speed.",
    ],
)


# ---------------------------------------------------------------- 22.split
def _replicas(chips: int, tokens: int, width: int) -> int:
    """Return the number of replicas with which a chip sends the fewest bytes.

    The sum leaves out terms without n, and the factor `8 * width / chips` of both other terms.
    """
    splits = [n for n in range(1, chips + 1) if chips % n == 0]
    return min(splits, key=lambda n: 13 * width * n + 4 * tokens * chips / n)


Exercise(
    "22.split",
    asks="replicas(chips, tokens, width)",
    reference=_replicas,
    cases=[(8, 2048, 4096), (32, 65536, 4096), (12, 8192, 1024)],
    mistakes={
        "these are the tensor-parallel ranks": lambda chips, *sizes: (
            chips // _replicas(chips, *sizes)
        ),
        "a block adds activations four times, not once": lambda chips, tokens, width: _replicas(
            chips, tokens // 4, width
        ),
    },
    praise="no other split sends fewer bytes",
    hints=[
        "What does a chip all-reduce along each of the two axes? How large is it?",
        "Gradients: 13 * width**2 / tp numbers, over dp chips. Activations: four times "
        "tokens / dp * width numbers, over tp chips. An all-reduce sends 2 (n - 1) / n of them.",
        "min(splits, key=sent), where `splits` are the divisors of chips.",
    ],
)

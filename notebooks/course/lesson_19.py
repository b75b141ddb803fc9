"""Lesson 19, ring attention: a picture of the work under a causal mask, and the exercises."""

import numpy as np

from course.arrays import numbers
from ttkit.lessons.exercises import Exercise
from ttkit.train.config.layout import zigzag
from ttkit.visualize.charts import Chart


class CausalWork(Chart):
    """A chart of the chunks of keys that the queries of each chip need.

    Args:
        chips: the number of chips; each chip has two chunks.
        order: the order of the chunks, "plain" or "zig-zag".

    Example:
        >>> CausalWork(2)
        plain order, 2 chips: the busiest computes 75 % of the scores
          chips 0 to 1 compute 25 %, 75 %
        >>> CausalWork(2, "zig-zag")
        zig-zag order, 2 chips: the busiest computes 50 % of the scores
          chips 0 to 1 compute 50 %, 50 %
    """

    height = 4.0

    def __init__(self, chips: int = 8, order: str = "plain"):
        self.chips, chunks = chips, 2 * chips
        self.order = zigzag(chunks, chips) if order == "zig-zag" else np.arange(chunks)
        # A chunk of queries needs all keys of earlier chunks, and half of those of its own chunk.
        work = (2 * self.order + 1).reshape(chips, 2).sum(1)
        self.percent = 100 * work / work.sum()
        self.shares = [f"{each:.3g} %" for each in self.percent]
        busiest = f"the busiest computes {self.percent.max():.3g} % of the scores"
        self.title = f"{order} order, {chips} chips: {busiest}"

    def __repr__(self) -> str:
        return f"{self.title}\n  chips 0 to {self.chips - 1} compute {', '.join(self.shares)}"

    def draw(self, ax) -> None:
        """Draw a row for each chunk of queries, and a column for each chunk of keys."""
        from matplotlib.colors import ListedColormap

        keys, queries = self.order, self.order[:, None]
        # Chunks that are not needed are grey; half of one lets the grey through.
        work = (keys < queries) + 0.5 * (keys == queries)
        ax.pcolormesh(work, cmap=ListedColormap(["#3466b8"]), alpha=work, edgecolors="white")
        ax.invert_yaxis()
        chunks = len(keys)
        for edge in range(2, chunks, 2):  # Lines in the colour of the page separate the chips.
            ax.axhline(edge, color="white", lw=3)
            ax.axvline(edge, color="white", lw=3)
        names = [f"chip {chip}: {share}" for chip, share in enumerate(self.shares)]
        ax.set_yticks(range(1, chunks, 2), names)
        ax.set_xticks(range(1, chunks, 2), range(self.chips))
        ax.set(
            title=f"{self.title}\nfaint: half of the chunk's scores",
            xlabel="chunks of keys, by chip",
            ylabel="chunks of queries, by chip",
            facecolor="#f1f3f7",
            aspect="equal",
        )


# ---------------------------------------------------------------- 19.balanced
def _uneven(order, length: int, chips: int) -> str:
    """Return the rule that an order of positions breaks, or ""."""
    found = np.ravel(order)
    if missing := sorted(set(range(length)).difference(found.tolist())):
        return f"position {missing[0]} is missing; each belongs to one chip"
    if found.size != length:
        return f"expected {length} positions, got {found.size}"
    work = (found.reshape(chips, -1) + 1).sum(1)  # The query at position p sees p + 1 keys.
    most, least = int(work.argmax()), int(work.argmin())
    if work[most] == work[least]:
        return ""
    return (
        f"chip {most} computes {work[most]} scores and chip {least} only {work[least]}; "
        f"all wait for the slowest, and the limit per chip is {work.sum() // chips}"
    )


Exercise(
    "19.balanced",
    asks="balanced(length, chips)",
    cases=[(16, 2), (64, 4), (48, 3), (96, 8), (20, 1)],
    rules=_uneven,
    praise="in five cases no chip computes more scores than another",
    hints=[
        "How many keys does position p see? Which positions see the most, and which the least?",
        "Give each chip as many early positions as late ones.",
        "np.arange(length).reshape(2 * chips, -1) makes chunks; chip i takes the chunks i and "
        "2 * chips - 1 - i.",
    ],
)


# ---------------------------------------------------------------- 19.merge
Part = tuple[np.ndarray, ...]  # A part of attention is an output, a maximum and a sum.
UNLIKE = "you added exponentials of scores from which different maxima were subtracted"


def _part(scores: np.ndarray, values: np.ndarray) -> Part:
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - top)
    return powers @ values, top, powers.sum(-1, keepdims=True)


def _parts(queries: int, d: int, height: float, hidden: slice = slice(0)) -> Part:
    """Return two parts of attention in one tuple. The scores are at most 8 times `height`.

    Args:
        hidden: the queries for which a mask hides the second part.
    """
    scores, values = numbers(queries, 24) * np.float32(height), numbers(24, d)
    # For query 0 the second part has far higher scores, for query 1 the first part.
    scores[0, :9] -= 16 * height
    scores[1, 9:] -= 16 * height
    one, two = _part(scores[:, :9], values[:9]), _part(scores[:, 9:], values[9:])
    for array, empty in zip(two, (0, -np.inf, 0)):
        array[hidden] = empty
    return *one, *two


def _merged(*parts: np.ndarray, shrinks: bool = True) -> Part:
    out1, max1, sum1, out2, max2, sum2 = parts
    new = np.maximum(max1, max2)
    one, two = (np.exp(each - new) if shrinks else np.float32(1) for each in (max1, max2))
    return out1 * one + out2 * two, new, sum1 * one + sum2 * two


Exercise(
    "19.merge",
    asks="merge(out1, max1, sum1, out2, max2, sum2)",
    reference=_merged,
    cases=[
        _parts(4, 8, 1),
        _parts(6, 5, 120),  # Scores go up to 960, where exp overflows.
        _parts(6, 5, 120, slice(2, 4)),
        _parts(6, 5, 120, slice(None)),
    ],
    reads=lambda found, *_: tuple(map(np.asarray, found)),
    mistakes={
        UNLIKE: lambda *parts: _merged(*parts, shrinks=False),
        "do not divide `out` by `sum` yet": lambda *parts: (
            _merged(*parts)[0] / _merged(*parts)[2],
            *_merged(*parts)[1:],
        ),
    },
    praise="merged correctly, even for large scores",
    hints=[
        "What would each part be if the other part's max had been subtracted from its scores?",
        "The new max is np.maximum(max1, max2). Part 1 is multiplied by np.exp(max1 - new max).",
        "Multiply both out and sum of each part by its factor; then add the two parts.",
    ],
)

"""Lesson 16, long sequences: the order that balances causal work, and parts of a softmax merged."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.lessons import difference, exercise, require
from ttkit.lessons.answers import Answer, asks, numbers
from ttkit.visualize.chart import BLUE, GREY, SMALL, Chart, bars, entitle

PLAIN, ZIGZAG = "plain order", "zig-zag order"


# ---------------------------------------------------------------- a picture of causal work
def chunks_of(chips: int) -> dict[str, np.ndarray]:
    """Return which two of 2 x chips chunks each chip has, [chips, 2], in both orders."""
    early = np.arange(chips)
    return {
        PLAIN: np.stack([2 * early, 2 * early + 1], 1),
        ZIGZAG: np.stack([early, 2 * chips - 1 - early], 1),
    }


class CausalWork(Chart):
    """Which chunks of keys the queries of each chip need, in plain and in zig-zag order.

    Example:
        >>> CausalWork(2)
        causal attention on 2 chips: who needs which keys
          plain order: chips 0 to 1 compute 25 %, 75 % of the scores
          zig-zag order: chips 0 to 1 compute 50 %, 50 % of the scores
    """

    height = 4.4

    def __init__(self, chips: int = 8):
        self.chips, self.orders = chips, chunks_of(chips)
        self.title = f"causal attention on {chips} chips: who needs which keys"
        # a chunk of queries needs the chunks before it whole, and half of its own
        work = {name: (2 * chunks + 1).sum(1) for name, chunks in self.orders.items()}
        self.percent = {name: 100 * each / each.sum() for name, each in work.items()}

    def __repr__(self) -> str:
        lines = [self.title]
        for name, percent in self.percent.items():
            texts = ", ".join(f"{each:.3g} %" for each in percent)
            lines.append(f"{name}: chips 0 to {self.chips - 1} compute {texts} of the scores")
        return "\n  ".join(lines)

    def draw(self, ax: Any) -> None:
        """Draw a row for each chunk of queries and a column for each of keys, chip by chip."""
        side = 2 * self.chips
        for left, (name, chunks) in zip((0, 1.42 * side), self.orders.items()):
            rows = chunks.ravel()
            for row, query in enumerate(rows):
                spans = {"whole": rows < query, "half, masked": rows == query}
                for (label, which), colour in zip(spans.items(), (BLUE, (BLUE, 0.35))):
                    cells = [(left + k, left + k + 1) for k in np.flatnonzero(which)]
                    bars(ax, row + 0.5, cells, label, colour, height=1)
            for chip, percent in enumerate(self.percent[name]):
                look = {"va": "center", "size": SMALL if self.chips <= 12 else SMALL - 1.5}
                ax.text(left - 0.3, 2 * chip + 1, f"{chip}", ha="right", **look)
                ax.text(left + side + 0.3, 2 * chip + 1, f"{percent:.3g} %", **look)
            for edge in range(0, side + 1, 2):
                thin = {"color": GREY, "linewidth": 1.1}
                ax.plot([left, left + side], [edge, edge], **thin)
                ax.plot([left + edge, left + edge], [0, side], **thin)
            about = f"{name}: the busiest chip computes {self.percent[name].max():.3g} %"
            ax.text(left, side * 1.03, about, va="top")
        ax.set(xlim=(-0.08 * side, 2.72 * side), ylim=(side * 1.1, -0.01 * side))
        ax.axis("off")
        entitle(ax, f"{self.title}\nrow: a chunk of queries; column: one of keys; numbered: chips")


# ---------------------------------------------------------------- exercises
@exercise("16.balanced")
@asks("balanced(length, chips)")
def _balanced(answer: Answer) -> str:
    for length, chips in ((16, 2), (64, 4), (48, 3), (96, 8), (20, 1)):
        call, found = f"balanced({length}, {chips})", answer(length, chips)
        answer.must_give("positions, chip by chip", hasattr(found, "__iter__"), found)
        order = np.concatenate([np.empty(0, int), *map(np.ravel, found)])
        size = f"{call} should give {length} positions, chip by chip; it has {order.size}"
        require(order.size == length, size)
        whole = np.issubdtype(order.dtype, np.integer)
        require(whole, f"{call}: positions are whole numbers, not {order.dtype}")
        missing = sorted(set(range(length)).difference(order.tolist()))
        require(not missing, f"{call}: position {missing[:1]} is missing; each belongs to one chip")
        work = (order.reshape(chips, -1) + 1).sum(1)  # position p sees p + 1 keys
        most, least = int(work.argmax()), int(work.argmin())
        require(
            work[most] == work[least],
            f"{call}: chip {most} computes {work[most]} scores and chip {least} {work[least]}; "
            f"all wait for the slowest, and the budget of a chip is {work.sum() // chips}",
        )
    return "in five cuts no chip computes more scores than another"


Part = tuple[np.ndarray, ...]  # out, max, sum
UNLIKE = "exponentials are added that have different max subtracted"


def _part(scores: np.ndarray, values: np.ndarray) -> Part:
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - top)
    return powers @ values, top, powers.sum(-1, keepdims=True)


@exercise("16.merge")
@asks("merge(out1, max1, sum1, out2, max2, sum2)")
def _merge(answer: Answer) -> str:
    for case, height in (("small scores", 1), ("scores up to 960", 120)):
        scores, values = numbers(4, 24) * np.float32(height), numbers(24, 8)
        scores[0, :9] -= 16 * height  # the second part is far higher
        scores[1, 9:] -= 16 * height
        one, two = _part(scores[:, :9], values[:9]), _part(scores[:, 9:], values[9:])
        _compare(answer, one, two, _part(scores, values), case)
    hidden = np.zeros_like(two[0]), np.full_like(two[1], -np.inf), np.zeros_like(two[2])
    _compare(answer, one, hidden, one, "a second part that the mask hides")
    return "the parts make the whole, large scores too, in the bytes of one part"


def _compare(answer: Answer, one: Part, two: Part, whole: Part, case: str) -> None:
    with np.errstate(all="ignore"):
        found = answer(*(array.copy() for array in (*one, *two)))
    three = isinstance(found, (tuple, list)) and len(found) == 3
    answer.must_give("three arrays, (out, max, sum)", three, found)
    mistakes = {
        "max": [(np.minimum(one[1], two[1]), "that is the lower of the two")],
        "sum": [(one[2] + two[2], UNLIKE)],
        "out": [(one[0] + two[0], UNLIKE), (whole[0] / whole[2], "it is divided by sum already")],
    }
    for name, at in (("max", 1), ("sum", 2), ("out", 0)):
        have, want = np.asarray(found[at]), whole[at]
        shape = f"{name} should have the shape {want.shape}, has {have.shape}"
        require(have.shape == want.shape, shape)
        size = f"{name} takes {have.nbytes} bytes as {have.dtype}; a part has {want.nbytes}"
        require(have.nbytes <= want.nbytes, size)
        wrong = difference(want, have, 1e-3, 1e-4)
        whys = [why for values, why in mistakes[name] if not difference(values, have, 1e-3, 1e-4)]
        if not np.isfinite(have).all():
            whys = ["exp overflows; subtract the higher max first"]
        require(not wrong, f"{case}: {name}: {wrong}; {(whys or ['look at its factors'])[0]}")

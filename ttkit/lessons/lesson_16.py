"""Lesson 16, long sequences: the order that balances causal work, and parts of a softmax merged."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.lessons import CheckFailed, exercise, require
from ttkit.lessons.answers import Answer, asks, numbers
from ttkit.visualize.chart import BLUE, Chart, bars, entitle

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
                look = {"va": "center", "size": 8 if self.chips <= 12 else 6.5}
                ax.text(left - 0.3, 2 * chip + 1, f"{chip}", ha="right", **look)
                ax.text(left + side + 0.3, 2 * chip + 1, f"{percent:.3g} %", **look)
            for edge in range(0, side + 1, 2):
                thin = {"color": "#7a828c", "linewidth": 1.1}
                ax.plot([left, left + side], [edge, edge], **thin)
                ax.plot([left + edge, left + edge], [0, side], **thin)
            about = f"{name}: the busiest chip computes {self.percent[name].max():.3g} %"
            ax.text(left, side * 1.03, about, va="top")
        ax.set(xlim=(-0.08 * side, 2.72 * side), ylim=(side * 1.1, -0.01 * side))
        ax.axis("off")
        entitle(ax, f"{self.title}\nrow: a chunk of queries; column: one of keys; numbered: chips")


def explore_causal_work(most: int = 16) -> None:
    """Show `CausalWork` with a slider for the number of chips; below it, that of eight chips."""
    import ipywidgets as widgets
    from IPython.display import display

    slider = widgets.IntSlider(8, min=2, max=most, description="chips")
    figure = widgets.HTML()

    def show(_: Any = None) -> None:
        figure.value = CausalWork(slider.value)._repr_html_()

    slider.observe(show, "value")
    show()
    words = {"text/plain": "Run this cell to move the slider."}  # on a saved page
    display({**widgets.VBox([slider, figure])._repr_mimebundle_(), **words}, raw=True)
    display(CausalWork(8))


# ---------------------------------------------------------------- exercises
@exercise("16.balanced")
@asks("balanced(length, chips)")
def _balanced(answer: Answer) -> str:
    for length, chips in ((16, 2), (64, 4), (48, 3), (96, 8), (20, 1)):
        call = f"balanced({length}, {chips})"
        order = _order(answer(length, chips), call, length)
        work = (order.reshape(chips, -1) + 1).sum(1)  # position p sees p + 1 keys
        most, least, equal = int(work.argmax()), int(work.argmin()), work.sum() // chips
        require(
            work[most] == work[least],
            f"{call}: chip {most} computes {work[most]:,} scores and chip {least} "
            f"{work[least]:,}; all wait for the slowest, and the budget of a chip is {equal:,}",
        )
    return "in five cuts no chip computes more scores than another"


def _order(found: Any, call: str, length: int) -> np.ndarray:
    """Return the answer as one row of positions, each of them once."""
    kind = f"{call} should give {length} positions, chip by chip"
    require(found is not None, f"{kind}; it gave nothing back: does it end in `return`?")
    try:
        rows = [np.asarray(row).ravel() for row in found]
    except TypeError:
        raise CheckFailed(f"{kind}, gave a {type(found).__name__}") from None
    uneven = len({row.size for row in rows}) > 1
    require(not uneven, f"{call}: the chips have {[row.size for row in rows]} positions each")
    order = np.concatenate(rows) if rows else np.empty(0, int)
    require(order.size == length, f"{kind}; it has {order.size}")
    whole = np.issubdtype(order.dtype, np.integer)
    require(whole, f"{call}: positions are whole numbers, not {order.dtype}")
    times = {p: int((order == p).sum()) for p in range(length)}
    wrong = next((p for p, n in times.items() if n != 1), None)
    count = "is missing" if wrong is None or not times[wrong] else f"comes {times[wrong]} times"
    require(wrong is None, f"{call}: position {wrong} {count}; each belongs to one chip")
    return order


Part = tuple[np.ndarray, ...]


def _part(scores: np.ndarray, values: np.ndarray) -> Part:
    """Return the sum of values, the highest score and the sum of exponentials of each query."""
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - top)
    return powers @ values, top, powers.sum(-1, keepdims=True)


@exercise("16.merge")
@asks("merge(out1, max1, sum1, out2, max2, sum2)")
def _merge(answer: Answer) -> str:
    for case, height in (("small scores", 1), ("scores up to 960", 120)):
        scores, values = numbers(4, 24) * np.float32(height), numbers(24, 8)
        scores[0, :9] -= 2 * height * 8  # of this query the second part is far higher
        scores[1, 9:] -= 2 * height * 8
        one, two = _part(scores[:, :9], values[:9]), _part(scores[:, 9:], values[9:])
        _compare(answer, one, two, _part(scores, values), case)
    hidden = np.zeros_like(two[0]), np.full_like(two[1], -np.inf), np.zeros_like(two[2])
    _compare(answer, one, hidden, one, "a second part that the mask hides")
    return "the parts make the whole, large scores too, in the bytes of one part"


def _compare(answer: Answer, one: Part, two: Part, whole: Part, case: str) -> None:
    with np.errstate(all="ignore"):
        found = answer(*(array.copy() for array in (*one, *two)))
    good = isinstance(found, (tuple, list)) and len(found) == 3
    require(good, "merge should return three arrays: (out, max, sum)")
    out, top, total = parts = [np.asarray(each) for each in found]
    for name, have, want in zip(("out", "max", "sum"), parts, whole):
        shape = f"{name} should have the shape {want.shape}, has {have.shape}"
        require(have.shape == want.shape, shape)
        more = f"{name} takes {have.nbytes} bytes as {have.dtype}; a part has {want.nbytes}"
        require(have.nbytes <= want.nbytes, more)
    mistakes = (
        (top, np.minimum(one[1], two[1]), "max is the lower of the two"),
        (total, one[2] + two[2], "sum adds exponentials that have different max subtracted"),
        (out, one[0] + two[0], "out adds sums whose exponentials have different max subtracted"),
        (out, whole[0] / whole[2], "out is divided by sum already; the ring does that at its end"),
    )
    at = ""
    for name, have, want in zip(("max", "sum", "out"), (top, total, out), (*whole[1:], whole[0])):
        close = np.isclose(have, want, 1e-3, 1e-4)
        if close.all():
            continue
        row, column = map(int, np.argwhere(~close)[0])
        value = have[row, column]
        at = f"{name} of query {row} should be {want[row, column]:.4g}, is {value:.4g}"
        why = next((f": {why}" for a, b, why in mistakes if a is have and _alike(a, b)), "")
        if not np.isfinite(value):
            why = ": exp overflows; subtract the higher max before exp"
        break
    require(not at, f"{case}: {at}{why if at else ''}")


def _alike(have: np.ndarray, want: np.ndarray) -> bool:
    return bool(np.allclose(have, want, 1e-3, 1e-4))

"""How much a plan sends from each chip to the next."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ttkit.plans import Plan
from ttkit.visualize.chart import BLUE, GREY, Chart, entitle
from ttkit.visualize.moments import ranges, size_text, title_of

MOST, KINDS = 16, 8  # ways with a bar of their own, and bars for the others


@dataclass(frozen=True)
class LinkUse:
    """What a chip sends to one that it is linked to: bytes in all, and the steps with a
    transfer.
    """

    source: int
    destination: int
    bytes: int
    steps: tuple[int, ...]


def link_use(plan: Plan) -> list[LinkUse]:
    """Return both ways of every pair of linked chips, the busiest first.

    Example:
        >>> from ttkit.plans import all_gather, topology
        >>> link_use(all_gather(topology("n300"), 4096))[0]
        LinkUse(source=0, destination=1, bytes=4096, steps=(1,))
    """
    sizes: Counter[tuple[int, int]] = Counter()
    steps: dict[tuple[int, int], set[int]] = {pair: set() for pair in plan.topology.pairs}
    for number, t in plan.transfers:
        if (t.source, t.destination) in steps:
            sizes[t.source, t.destination] += t.bytes or 0
            steps[t.source, t.destination].add(number)
    uses = [LinkUse(*pair, sizes[pair], tuple(sorted(busy))) for pair, busy in steps.items()]
    place = plan.topology.place
    return sorted(
        uses,
        key=lambda use: (-use.bytes, -len(use.steps), place[use.source], place[use.destination]),
    )


@dataclass(frozen=True)
class Bar:
    """A bar of the chart: for one way, or for `many` that carry as much in as many steps."""

    name: str
    bytes: int
    words: str
    many: bool = False


@dataclass(frozen=True, repr=False)
class LinkChart(Chart):
    """A bar for each of the busiest ways from chip to chip, and sentences about the others."""

    title: str
    bars: tuple[Bar, ...]
    foot: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(
            [self.title, *(f"{bar.name}: {bar.words}" for bar in self.bars), *self.foot]
        )

    @property
    def height(self) -> float:
        """Of the figure, in inches."""
        return 0.9 + 0.22 * len(self.bars) + 0.15 * len(self.foot)

    def draw(self, ax: Any) -> None:
        """Draw the bars, the busiest on top."""
        names, sizes = [bar.name for bar in self.bars], [bar.bytes for bar in self.bars]
        colours = [GREY if bar.many else BLUE for bar in self.bars]
        drawn = ax.barh(range(len(names)), sizes, 0.7, color=colours)
        ax.bar_label(drawn, [bar.words for bar in self.bars], padding=5)
        ax.set_yticks(range(len(names)), names)
        ax.set(
            xlim=(0, 1.5 * max(sizes, default=1)), ylim=(max(len(names), 1) - 0.5, -0.5), xticks=[]
        )
        ax.set_xlabel("\n".join(self.foot), loc="left")
        entitle(ax, self.title)


def link_chart(plan: Plan) -> LinkChart:
    """Chart what a plan sends from chip to chip; less busy ways of the same bytes share a bar.

    Example:
        >>> from ttkit.plans import broadcast, topology
        >>> link_chart(broadcast(topology("n300"), 4096))
        broadcast on n300 1x2, both ways · bytes from chip to chip
        0 → 1: 4 KiB, busy in 1 of 1 steps
        Busiest: from chip 0 to chip 1, 4 KiB in step 1.
        1 way carries nothing.
    """
    uses, steps = link_use(plan), len(plan.steps)
    busy = [use for use in uses if use.bytes]
    same = itertools.groupby(busy[MOST:], key=lambda use: (use.bytes, len(use.steps)))
    rest = [(nbytes, count, len(list(group))) for (nbytes, count), group in same]
    bars = [
        Bar(
            f"{use.source} → {use.destination}", use.bytes, _words(use.bytes, len(use.steps), steps)
        )
        for use in busy[:MOST]
    ]
    bars += [
        Bar(f"{n} more", nbytes, f"{_words(nbytes, count, steps)}{' each' * (n > 1)}", True)
        for nbytes, count, n in rest[:KINDS]
    ]
    foot = []
    if busy:
        first, equal = busy[0], sum(use.bytes == busy[0].bytes for use in busy) - 1
        numbers = f"step{'s' * (len(first.steps) != 1)} {ranges(first.steps)}"
        others = f"; as many over {equal} other{'s' * (equal != 1)}" * bool(equal)
        foot.append(
            f"Busiest: from chip {first.source} to chip {first.destination}, "
            f"{size_text(first.bytes)} in {numbers}{others}."
        )
    if rest[KINDS:]:
        foot.append(
            f"{sum(n for _, _, n in rest[KINDS:])} more carry {size_text(rest[KINDS][0])} or less."
        )
    if idle := len(uses) - len(busy):
        foot.append(f"{idle} way{'s' * (idle != 1)} carr{'ies' if idle == 1 else 'y'} nothing.")
    return LinkChart(f"{title_of(plan)} · bytes from chip to chip", tuple(bars), tuple(foot))


def _words(nbytes: int, busy: int, steps: int) -> str:
    return f"{size_text(nbytes)}, busy in {busy} of {steps} steps"

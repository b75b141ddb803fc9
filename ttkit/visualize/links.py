"""How busy the cables are in a plan."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from ttkit.plans import Plan
from ttkit.visualize.drawing import Drawing, width_of
from ttkit.visualize.moments import ranges, size_text, title_of

MOST, KINDS = 16, 8  # ways with a bar of their own, and bars for the others
NAME, BAR, STEP = 76, 380, 20  # widths of the names and the longest bar; from bar to bar


@dataclass(frozen=True)
class LinkUse:
    """What goes over the cable from one chip to another: bytes in all, and the numbers of the steps in which it is busy."""

    source: int
    destination: int
    bytes: int
    steps: tuple[int, ...]


def link_use(plan: Plan) -> list[LinkUse]:
    """Both ways of every cable, the busiest first.

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
    return sorted(uses, key=lambda use: (-use.bytes, -len(use.steps), place[use.source], place[use.destination]))


def link_chart(plan: Plan) -> Drawing:
    """A bar for each way of the busiest cables; of the others, a bar for all that carry the same.

    Example:
        >>> from ttkit.plans import broadcast, topology
        >>> print(link_chart(broadcast(topology("n300"), 4096)))
        broadcast on n300 1x2, both ways · bytes over each cable
        0 → 1: 4 KiB, busy in 1 of 1 steps
        Busiest: from chip 0 to chip 1, 4 KiB in step 1.
        1 way carries nothing.
    """
    bars, foot = link_bars(plan)
    title = f"{title_of(plan)} · bytes over each cable"
    longest = bars[0].bytes if bars else 1
    text = [f"{bar.name}: {bar.words}" for bar in bars]
    ends = [NAME + BAR * bar.bytes / longest + 8 + width_of(bar.words, 11) for bar in bars]
    width = max([width_of(title, 13, bold=True) + 8, *ends, *(width_of(sentence, 11) + 8 for sentence in foot)])
    drawing = Drawing(width, 34 + STEP * len(bars) + 15 * len(foot) + 6, title, "\n".join([title, *text, *foot]))
    drawing.words(3, 16, title, size=13, anchor="start", bold=True)
    for i, bar in enumerate(bars):
        y, length = 30 + i * STEP, max(2, BAR * bar.bytes / longest)
        drawing.words(NAME - 8, y + 11, bar.name, size=12, anchor="end")
        drawing.box(NAME, y, length, 14, fill="var(--edge)" if bar.many else "var(--wire)", edge="none", round=3)
        drawing.words(NAME + length + 8, y + 11, bar.words, size=11, anchor="start", colour="var(--soft)")
    drawing.lines(3, 30 + STEP * len(bars) + 12, foot, size=11, step=15, anchor="start", colour="var(--soft)")
    return drawing


@dataclass(frozen=True)
class Bar:
    """A bar of the chart: for one way, or for `many` that carry as much in as many steps."""

    name: str
    bytes: int
    words: str
    many: bool = False


def link_bars(plan: Plan) -> tuple[list[Bar], list[str]]:
    """The bars of the chart, and what is said under them."""
    uses, steps = link_use(plan), len(plan.steps)
    busy = [use for use in uses if use.bytes]
    same = itertools.groupby(busy[MOST:], key=lambda use: (use.bytes, len(use.steps)))
    rest = [(nbytes, count, len(list(group))) for (nbytes, count), group in same]
    bars = [Bar(f"{use.source} → {use.destination}", use.bytes, _words(use.bytes, len(use.steps), steps)) for use in busy[:MOST]]
    bars += [Bar(f"{n} more", nbytes, f"{_words(nbytes, count, steps)}{' each' * (n > 1)}", True) for nbytes, count, n in rest[:KINDS]]
    foot = []
    if busy:
        first, equal = busy[0], sum(use.bytes == busy[0].bytes for use in busy) - 1
        numbers = f"step{'s' * (len(first.steps) != 1)} {ranges(first.steps)}"
        others = f"; as many over {equal} other{'s' * (equal != 1)}" * bool(equal)
        foot.append(f"Busiest: from chip {first.source} to chip {first.destination}, {size_text(first.bytes)} in {numbers}{others}.")
    if rest[KINDS:]:
        foot.append(f"{sum(n for _, _, n in rest[KINDS:])} more carry {size_text(rest[KINDS][0])} or less.")
    idle = len(uses) - len(busy)
    if idle:
        foot.append(f"{idle} way{'s' * (idle != 1)} carr{'ies' if idle == 1 else 'y'} nothing.")
    return bars, foot


def _words(nbytes: int, busy: int, steps: int) -> str:
    return f"{size_text(nbytes)}, busy in {busy} of {steps} steps"

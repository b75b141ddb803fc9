"""A timeline: a lane for each chip, or for chips that do the same, with what ran there when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill, shorten
from typing import Any

from ttkit.visualize.chart import Chart, Span, bars, entitle, fitting, lanes, leave_empty, write
from ttkit.visualize.drawing import ranges, tone
from ttkit.words import short

COMPUTE, COMMUNICATION = "compute", "communication"
LOOKS = {COMPUTE: (tone(1), ""), COMMUNICATION: (tone(3), "\\\\")}  # colour and hatch
EXPOSED = ("exposed: only sending", tone(3), "//")


@dataclass(frozen=True)
class Bar:
    """One operation on a chip, in seconds."""

    name: str
    kind: str  # COMPUTE or COMMUNICATION
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Lane:
    """Chips that do the same at the same time."""

    chips: tuple[int, ...]
    bars: tuple[Bar, ...]

    @property
    def label(self) -> str:
        """The chips by number.

        Example:
            >>> Lane((0, 1, 2, 3, 6), ()).label
            'chips 0-3, 6 alike'
        """
        named = shorten(ranges(self.chips), 50, placeholder=" …")
        return f"chip {named}" if len(self.chips) == 1 else f"chips {named} alike"

    def spans(self, kind: str) -> list[Span]:
        """Return (start, end) of each bar of one kind."""
        return [(bar.start_s, bar.end_s) for bar in self.bars if bar.kind == kind]

    @property
    def exposed(self) -> list[Span]:
        """When the chips communicate and compute nothing meanwhile: (start, end) in seconds."""
        busy, found, first = sorted(self.spans(COMPUTE)), [], 0
        for at, stop in sorted(self.spans(COMMUNICATION)):
            while first < len(busy) and busy[first][1] <= at:
                first += 1
            for start, end in busy[first:]:
                if start >= stop:
                    break
                if start > at:
                    found.append((at, start))
                at = max(at, end)
            if at < stop:
                found.append((at, stop))
        return found


def total(spans: Sequence[Span]) -> float:
    """Return the seconds of spans."""
    return sum(end - start for start, end in spans)


def lanes_of(bars: Mapping[int, Sequence[Bar]], join: bool) -> tuple[Lane, ...]:
    """Return lanes in the order of the chips' ids.

    Args:
        bars: of each chip.
        join: one lane for all chips of equal bars.
    """
    alike: dict[Any, list[int]] = {}
    for chip in sorted(bars):
        alike.setdefault(tuple(bars[chip]) if join else chip, []).append(chip)
    return tuple(Lane(tuple(chips), tuple(bars[chips[0]])) for chips in alike.values())


@dataclass(frozen=True, repr=False)
class Timeline(Chart):
    """What ran when on which chips, and its chart.

    Args:
        beside: chips compute and communicate at the same time: two rows in a lane.
    """

    title: str
    lanes: tuple[Lane, ...]
    beside: bool = False

    @property
    def end_s(self) -> float:
        """Seconds at the last bar's end."""
        return max((bar.end_s for lane in self.lanes for bar in lane.bars), default=0.0)

    def __repr__(self) -> str:
        lines = [self.title]
        for lane in self.lanes:
            kinds = (lane.spans(COMPUTE), lane.spans(COMMUNICATION), lane.exposed)
            compute, sent, exposed = (short(total(spans), "s") for spans in kinds)
            spent = f"{compute} of compute, {sent} of communication ({exposed} exposed)"
            lines.append(f"  {lane.label}: {spent}, modelled")
        return "\n".join(lines)

    @property
    def height(self) -> float:
        """Of the figure, in inches."""
        return 1.0 + (0.5 if self.beside else 0.4) * max(len(self.lanes), 1)

    def draw(self, ax: Any) -> None:
        """Draw a lane under the other on an axis of modelled time."""
        from matplotlib.ticker import EngFormatter

        if not self.end_s:
            entitle(ax, self.title)
            leave_empty(ax, "nothing that takes modelled time")
            return
        lanes(ax, [fill(lane.label, 20) for lane in self.lanes], self.end_s, "idle")
        high, lower = (0.4, 0.2) if self.beside else (0.8, 0.0)
        for row, lane in enumerate(self.lanes):
            rows = {COMPUTE: row - lower, COMMUNICATION: row + lower}
            for kind, look in LOOKS.items():
                bars(ax, rows[kind], lane.spans(kind), kind, *look, high)
            bars(ax, rows[COMMUNICATION], lane.exposed, *EXPOSED, high)
            for bar in lane.bars:
                colour, hatch = LOOKS[bar.kind]
                span = (bar.start_s, bar.end_s)
                name = fitting(ax, span, [bar.name.rpartition(".")[2]])
                if name:
                    write(ax, rows[bar.kind], span, name, colour if hatch else None)
        entitle(ax, self.title)
        ax.xaxis.set_major_formatter(EngFormatter(unit="s"))
        ax.set_xlabel("modelled time")

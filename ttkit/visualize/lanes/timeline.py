"""A timeline: a lane for each chip, or for chips that do the same, with what ran there when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten, wrap
from typing import Any

from ttkit.visualize.drawing import ALARM, Figure, ranges, tone
from ttkit.visualize.lanes import Bar, Look, draw_lanes
from ttkit.visualize.lanes import Lane as Row
from ttkit.words import short

COMPUTE, COMMUNICATION, EXPOSED = "compute", "communication", "exposed"
LOOKS = {
    COMPUTE: Look(COMPUTE, tone(1)),
    COMMUNICATION: Look("communication, hidden", tone(3), 12),
    EXPOSED: Look("communication, exposed", ALARM, 6),
}
COLUMN = 18  # A line of a lane's name has at most so many letters.
Span = tuple[float, float]  # A span is (start, end) in seconds.


@dataclass(frozen=True)
class Lane:
    """Chips that do the same at the same time: bars of compute and communication, in seconds."""

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
        return [(bar.start, bar.end) for bar in self.bars if bar.kind == kind]

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
class Timeline:
    """What ran when on which chips, as a picture in a notebook.

    Args:
        beside: chips compute and communicate at the same time: two rows in a lane.
        until: where the axis ends, if not at the last bar's end.
    """

    title: str
    lanes: tuple[Lane, ...]
    beside: bool = False
    until: float = 0.0

    @property
    def end_s(self) -> float:
        """Seconds at the last bar's end."""
        return max((bar.end for lane in self.lanes for bar in lane.bars), default=0.0)

    def __repr__(self) -> str:
        lines = [self.title]
        for lane in self.lanes:
            kinds = (lane.spans(COMPUTE), lane.spans(COMMUNICATION), lane.exposed)
            compute, sent, exposed = (short(total(spans), "s") for spans in kinds)
            spent = f"{compute} of compute, {sent} of communication ({exposed} exposed)"
            lines.append(f"  {lane.label}: {spent}, modelled")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self.end_s:
            return Figure(self.title, [], ["Nothing that takes modelled time."])._repr_html_()
        rows = [row for lane in self.lanes for row in self._rows(lane)]
        drawing = draw_lanes(rows, LOOKS, self.end_s, title=repr(self), idle="idle",
                             axis="modelled time", unit="s", until=self.until)  # fmt: skip
        return Figure(self.title, [drawing])._repr_html_()

    def _rows(self, lane: Lane) -> list[Row]:
        """Return the rows of a lane: one, or one of compute above one of communication."""
        drawn = [*lane.bars, *(Bar(*span, EXPOSED) for span in lane.exposed)]
        if not self.beside:
            name, about = [*wrap(lane.label, COLUMN, max_lines=2, placeholder=" …"), ""][:2]
            return [Row(name, drawn, about)]
        name = shorten(lane.label, COLUMN, placeholder=" …")
        sent = [bar for bar in drawn if bar.kind != COMPUTE]
        return [
            Row(name, [bar for bar in drawn if bar.kind == COMPUTE], COMPUTE),
            Row("", sent, COMMUNICATION),
        ]

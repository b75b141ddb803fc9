"""A timeline: a lane for each chip, or for chips that do the same, with what ran there when."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill, shorten
from typing import Any

from ttkit.visualize.chart import EMPTY, MANY, Chart, bars, entitle, fits, lanes, write
from ttkit.visualize.drawing import tone
from ttkit.visualize.moments import ranges
from ttkit.words import short

COMPUTE, COMMUNICATION = "compute", "communication"
LOOKS = {COMPUTE: (tone(1), ""), COMMUNICATION: (tone(3), "\\\\")}  # colour and hatch
Interval = tuple[float, float]


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

    def spent(self, kind: str) -> float:
        """Seconds of one kind."""
        return sum(bar.end_s - bar.start_s for bar in self.bars if bar.kind == kind)

    @property
    def exposed(self) -> list[Interval]:
        """When the chips communicate and compute nothing meanwhile: (start, end) in seconds."""
        busy = sorted((b.start_s, b.end_s) for b in self.bars if b.kind == COMPUTE)
        ends = list(itertools.accumulate((end for _, end in busy), max))
        found = []
        for bar in self.bars:
            if bar.kind == COMMUNICATION:
                at = bar.start_s
                for i in range(bisect.bisect_right(ends, at), len(busy)):
                    start, end = busy[i]
                    if start >= bar.end_s:
                        break
                    if start > at:
                        found.append((at, start))
                    at = max(at, end)
                if at < bar.end_s:
                    found.append((at, bar.end_s))
        return found


def lanes_of(bars: Mapping[int, Sequence[Bar]], join: bool) -> tuple[Lane, ...]:
    """Lanes for chips and their bars in the order of the ids; with `join` one lane for all chips
    of equal bars.
    """
    if not join:
        return tuple(Lane((chip,), tuple(bars[chip])) for chip in sorted(bars))
    alike: dict[tuple[Bar, ...], list[int]] = {}
    for chip in sorted(bars):
        alike.setdefault(tuple(bars[chip]), []).append(chip)
    return tuple(Lane(tuple(chips), same) for same, chips in alike.items())


@dataclass(frozen=True, repr=False)
class Timeline(Chart):
    """What ran when on which chips, and its chart."""

    title: str
    lanes: tuple[Lane, ...]

    @property
    def end_s(self) -> float:
        """Seconds at the last bar's end."""
        return max((bar.end_s for lane in self.lanes for bar in lane.bars), default=0.0)

    def __repr__(self) -> str:
        lines = [self.title]
        for lane in self.lanes:
            exposed = sum(end - start for start, end in lane.exposed)
            spent = (
                f"{short(lane.spent(COMPUTE), 's')} of compute, "
                f"{short(lane.spent(COMMUNICATION), 's')} of communication"
            )
            lines.append(f"  {lane.label}: {spent} ({short(exposed, 's')} exposed), modelled")
        return "\n".join(lines)

    @property
    def height(self) -> float:
        """Of the figure, in inches."""
        return 1.0 + 0.4 * max(len(self.lanes), 1)

    def draw(self, ax: Any) -> None:
        """Draw a lane under the other on an axis of modelled time."""
        from matplotlib.ticker import EngFormatter

        exposed = (LOOKS[COMMUNICATION][0], "//")
        entitle(
            ax,
            self.title,
            {**LOOKS, "exposed: the chip computes nothing meanwhile": exposed, "idle": (EMPTY, "")},
        )
        end = self.end_s
        if not end:
            ax.text(
                0.5, 0.5, "nothing that takes modelled time", transform=ax.transAxes, ha="center"
            )
            ax.set(xticks=[], yticks=[])
            return
        lanes(ax, [fill(lane.label, 20) for lane in self.lanes], end)
        many = sum(len(lane.bars) for lane in self.lanes) > MANY
        for row, lane in enumerate(self.lanes):
            for kind, look in LOOKS.items():
                bars(
                    ax,
                    row,
                    [(bar.start_s, bar.end_s) for bar in lane.bars if bar.kind == kind],
                    *look,
                    many,
                )
            bars(ax, row, lane.exposed, *exposed, many)
            for bar in lane.bars:
                name, plate = (
                    bar.name.rpartition(".")[2],
                    LOOKS[bar.kind][0] if bar.kind == COMMUNICATION else None,
                )
                if fits(ax, name, bar.end_s - bar.start_s, end):
                    write(ax, (bar.start_s + bar.end_s) / 2, row, name, plate)
        ax.xaxis.set_major_formatter(EngFormatter(unit="s"))
        ax.set_xlabel("modelled time")

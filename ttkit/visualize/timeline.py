"""A timeline: a lane for each chip, or for chips that do the same, with what ran there when."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ttkit.visualize.drawing import INK, Drawing, tone, width_of, wrap
from ttkit.words import PREFIXES, short

COMPUTE, COMMUNICATION = "compute", "communication"
FILL = {COMPUTE: tone(1), COMMUNICATION: tone(3)}
LEFT, PLOT, RIGHT = 128, 760, 34  # widths: labels, time, half of the last number
TOP, LANE, BAR = 66, 34, 24  # heights: above the lanes, a lane, a bar in it
LEAST = 1.0  # width of a bar that can still be seen; shorter ones are drawn together
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
        runs: list[list[int]] = []
        for chip in self.chips:
            if runs and chip == runs[-1][-1] + 1:
                runs[-1].append(chip)
            else:
                runs.append([chip])
        each = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
        named = ", ".join(each) if len(each) <= 8 else f"{each[0]}, {each[1]} … {each[-1]}"
        return f"chip {named}" if len(self.chips) == 1 else f"chips {named} alike"

    def spent(self, kind: str) -> float:
        """Seconds of one kind."""
        return sum(bar.end_s - bar.start_s for bar in self.bars if bar.kind == kind)

    @property
    def exposed(self) -> list[Interval]:
        """When the chips communicate and compute nothing meanwhile: (start, end) in seconds."""
        busy = sorted((b.start_s, b.end_s) for b in self.bars if b.kind == COMPUTE)
        found = []
        for bar in self.bars:
            if bar.kind == COMMUNICATION:
                at = bar.start_s
                for start, end in busy:
                    if start < bar.end_s and end > at:
                        if start > at:
                            found.append((at, start))
                        at = max(at, end)
                if at < bar.end_s:
                    found.append((at, bar.end_s))
        return found


def lanes_of(bars: Mapping[int, Sequence[Bar]], join: bool) -> tuple[Lane, ...]:
    """Lanes for chips and their bars in the order of the ids; with `join` one lane for all chips of equal bars."""
    if not join:
        return tuple(Lane((chip,), tuple(bars[chip])) for chip in sorted(bars))
    alike: dict[tuple[Bar, ...], list[int]] = {}
    for chip in sorted(bars):
        alike.setdefault(tuple(bars[chip]), []).append(chip)
    return tuple(Lane(tuple(chips), same) for same, chips in alike.items())


@dataclass(frozen=True)
class Timeline:
    """What a picture of a timeline shows."""

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
            spent = f"{short(lane.spent(COMPUTE), 's')} of compute, {short(lane.spent(COMMUNICATION), 's')} of communication"
            lines.append(f"  {lane.label}: {spent} ({short(exposed, 's')} exposed), modelled")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return draw_timeline(self).html()


def ticks(end: float) -> list[float]:
    """Five to eleven round numbers from 0 to `end`.

    Example:
        >>> ticks(7.0)
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    rough = end / 10
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough * 0.999)
    return [i * step for i in range(int(end / step * 1.0001) + 1)]


def draw_timeline(timeline: Timeline) -> Drawing:
    """A lane under the other, bars to scale, with an axis of modelled time; stripes where communication is exposed."""
    lanes, end = timeline.lanes, timeline.end_s
    bottom = TOP + LANE * max(1, len(lanes))
    drawing = Drawing(LEFT + PLOT + RIGHT, bottom + 46, timeline.title, repr(timeline))
    drawing.words(3, 16, timeline.title, size=13, anchor="start", bold=True)
    _legend(drawing)
    if not end:
        drawing.words(LEFT, TOP + 20, "nothing that takes modelled time", anchor="start", colour="var(--soft)")
        return drawing
    scale = PLOT / end
    size, unit = next((size, prefix) for size, prefix in PREFIXES if end >= size or size == PREFIXES[-1][0])
    for tick in ticks(end / size):
        x = LEFT + tick * size * scale
        drawing.line(x, TOP - 6, x, bottom, colour="var(--frame)", width=1)
        drawing.words(x, bottom + 16, f"{tick:.6g}", size=11, colour="var(--soft)")
    drawing.words(LEFT + PLOT / 2, bottom + 36, f"modelled time in {unit}s", size=11, colour="var(--soft)")
    for i, lane in enumerate(lanes):
        y = TOP + i * LANE
        for j, line in enumerate(lines := wrap(lane.label, LEFT - 16, 11, 2)):
            drawing.words(LEFT - 10, y + BAR / 2 + 4 + 12 * (j - (len(lines) - 1) / 2), line, size=11, anchor="end")
        drawing.box(LEFT, y, PLOT, BAR, fill="var(--empty)", edge="none", round=0)
        _bars(drawing, lane, y, scale)
    return drawing


def _bars(drawing: Drawing, lane: Lane, y: float, scale: float) -> None:
    drawn = [(b, LEFT + b.start_s * scale, (b.end_s - b.start_s) * scale) for b in _seen(lane.bars, LEAST / scale)]
    for bar, x, width in drawn:
        drawing.box(x, y, width, BAR, fill=FILL[bar.kind], edge="var(--page)" if width > 4 else "none", round=0)
    for start, stop in _joined(lane.exposed):
        if (stop - start) * scale >= LEAST:
            _shade(drawing, LEFT + start * scale, y, (stop - start) * scale, BAR)
    for bar, x, width in drawn:
        name = bar.name.rpartition(".")[2]
        room = width_of(name, 10)
        if room + 6 <= width:
            if bar.kind == COMMUNICATION:  # a plate under the words, so that the stripes leave them readable
                drawing.box(x + (width - room) / 2 - 2, y + 5, room + 4, BAR - 10, fill=FILL[bar.kind], edge="none", round=2)
            drawing.words(x + width / 2, y + BAR / 2 + 3.5, name, size=10, colour=INK)


def _seen(bars: Sequence[Bar], least: float) -> list[Bar]:
    """The bars with those that are too short to be seen put together, in the colour of what most of their time is."""
    found: list[Bar] = []
    crowd: list[Bar] = []
    for bar, following in itertools.zip_longest(bars, bars[1:]):
        crowd.append(bar)
        apart = following is None or following.start_s - bar.end_s > least
        if apart or bar.end_s - crowd[0].start_s >= least:
            spent = {kind: sum(b.end_s - b.start_s for b in crowd if b.kind == kind) for kind in FILL}
            kind = max(spent, key=lambda k: spent[k])
            found.append(bar if len(crowd) == 1 else Bar(f"{len(crowd)} operations", kind, crowd[0].start_s, bar.end_s))
            crowd = []
    return found


def _joined(parts: Sequence[Interval]) -> list[Interval]:
    """Intervals that follow each other at once, as one."""
    found: list[Interval] = []
    for start, end in parts:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _legend(drawing: Drawing) -> None:
    x: float = LEFT
    why = "exposed: the chip computes nothing meanwhile"
    for text, fill in ((COMPUTE, FILL[COMPUTE]), (COMMUNICATION, FILL[COMMUNICATION]), (why, FILL[COMMUNICATION]), ("idle", "var(--empty)")):
        drawing.box(x, 30, 14, 14, fill=fill, edge="none", round=2)
        if text == why:
            _shade(drawing, x, 30, 14, 14)
        drawing.words(x + 20, 41, text, size=11, anchor="start", colour="var(--soft)")
        x += 20 + width_of(text, 11) + 24


def _shade(drawing: Drawing, x: float, y: float, w: float, h: float) -> None:
    drawing.stripes(x, y, w, h, colour="rgba(28,36,48,.3)", step=7, width=1.6)

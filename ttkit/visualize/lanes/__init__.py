"""Lanes: rows of bars on one axis of time, and arrows from row to row.

Pipeline schedules, timelines and messages between ranks are drawn with them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from textwrap import shorten, wrap
from typing import NamedTuple

from ttkit.visualize.cells import Cell, Cells, Grid
from ttkit.visualize.drawing import (
    ALARM,
    BAD,
    BOLD,
    HALO,
    INK,
    LETTER,
    ROLES,
    STEP_S,
    Attributes,
    Drawing,
    Figure,
    Point,
    Rectangle,
    ranges,
    size_text,
    tone,
    width_of,
)
from ttkit.words import short

LEFT, WIDTH = 158, 540  # The names of lanes are LEFT px wide, all their bars WIDTH px.
LANE, BOX, HEAD = 40, 30, 26  # These are the heights in px of a lane, a bar and a legend.
# If a bar is narrower than SLIM px, all edges are thin. Below NARROW px a bar has no hatches.
SLIM, NARROW = 16, 7
LATER = 30  # A bar that never starts has this many px, with a gap before it.
SIZE = 12.5  # Letters of this size have at least 10 px on the page, even if the drawing shrinks.
MANY = 600  # More bars are merged into a few shapes without texts: the page stays small.
LEFT_WORDS: Attributes = {"size": SIZE, "text_anchor": "start"}
SOFT: Attributes = {"size": SIZE, "fill": "var(--soft)"}


class Look(NamedTuple):
    """How bars of one kind are drawn.

    Attributes:
        name: the name of the kind in the legend; with "" it is not there.
        fill: the colour, such as "#rrggbb".
        gap: the distance in px of the lines of the hatching, which shows the kind without colour.
    """

    name: str
    fill: str
    gap: float = 0


class Bar(NamedTuple):
    """A bar from `start` to `end`.

    Attributes:
        kind: the key of the bar's look.
        text: it is written in the bar if it fits; the mouse shows it with the bar's times.
        fill: replaces the colour of the look, if it is given.
        drag: the name of the bar on a `touchable` page, where a reader can drag bars.
        trace: a name that bars share. When the mouse is on one of them, all other bars fade.
    """

    start: float
    end: float
    kind: str
    text: str = ""
    fill: str = ""
    drag: str = ""
    trace: str = ""


class Lane(NamedTuple):
    """A row of bars, with two lines of text beside it; `about` has the colour.

    Attributes:
        never: bars that never start, in their order. They are drawn after the end of the axis.
    """

    name: str
    bars: Sequence[Bar]
    about: str = ""
    never: Sequence[Bar] = ()
    colour: str = "var(--soft)"


class Arrow(NamedTuple):
    """An arrow from a time on one lane to a time on another, both lanes by number."""

    lane: int
    start: float
    to: int
    end: float
    text: str = ""


class Lanes(Drawing):
    """The drawing of lanes, the first on top, on one axis that begins at 0.

    A bar whose text does not fit is hatched, which shows its kind without colour. If the traces of
    all bars of its kind fit, such as numbers of micro-batches, they are written instead.

    Args:
        looks: the look of each kind, in the order of the legend.
        end: the time at which the last bar ends.
        title: the text alternative.
        axis: the text below the axis.
        idle: the text of the legend for the time without bars; "" leaves this entry out.
        unit: the unit of the times; "" if they are plain numbers.
        until: the end of the axis, if it is after `end`, so that pictures can share one axis.
        arrows: arrows between the lanes.
        seconds: how long the animation takes to run along the axis, in a loop; 0 for no animation.

    Example:
        >>> lane, looks = Lane("chip 0", [Bar(0, 2, "a", "matmul")]), {"a": Look("a", "#f0dc7d")}
        >>> ">matmul<" in Lanes([lane], looks, 4, title="a run", idle="idle", axis="time").svg()
        True
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        looks: Mapping[str, Look],
        end: float,
        *,
        title: str,
        axis: str,
        idle: str = "",
        unit: str = "",
        until: float = 0.0,
        arrows: Sequence[Arrow] = (),
        seconds: float = 0.0,
    ):
        bars = [bar for lane in lanes for bar in lane.bars]
        self.looks = {k: look for k, look in looks.items() if any(b.kind == k for b in bars)}
        self.head = HEAD if idle or any(look.name for look in self.looks.values()) else 4
        bottom = self.head + LANE * len(lanes)
        super().__init__(LEFT + WIDTH + 6, bottom + 36, title)
        later = max((len(lane.never) for lane in lanes), default=0) * LATER
        self.unit, self.end = unit, max(end, until)
        self.scale = (WIDTH - later) / (self.end or 1)
        self.rate = seconds / (self.end or 1)
        empty = end * self.scale or WIDTH
        self.many, self.loops, self.seconds = len(bars) > MANY, seconds > 0, seconds + STEP_S
        self.wide = {b.kind for b in bars if self._width(b) >= NARROW}
        self.thick = 0.35 if any(self._width(b) < SLIM for b in bars) else 0.7
        self.hatched = {b.kind for b in bars if self.many or not self._fits(b, b.text)}
        self.traced = self.hatched - {b.kind for b in bars if not self._fits(b, b.trace)}
        self._legend(idle)
        for row, lane in enumerate(lanes):
            top = self.head + row * LANE
            first, second = (14, 29) if lane.name and lane.about else (22, 22)
            self.words(0, top + first, lane.name, **LEFT_WORDS, font_weight=BOLD)
            self.words(0, top + second, lane.about, **LEFT_WORDS, fill=lane.colour)
            self.box((LEFT, top + 2, empty, BOX), rx=0, fill="var(--empty)", stroke="none")
            self._bars(lane.bars, top + 2)
            for i, bar in enumerate(lane.never):  # A deadlock stops the lane at the first.
                area = LEFT + WIDTH - later + LATER * i + 6, top + 2, LATER - 6, BOX
                edge, thick = ("var(--edge)", 0.7) if i else (BAD, 2)
                self._bar(area, bar, thick, fill="var(--page)", stroke=edge, stroke_dasharray="4 3")
                self._text(area, bar.text, fill="var(--ink)")
        if seconds:
            self._run(end, lanes, arrows)
        self._arrows(arrows)  # After the dots, which must cover no text.
        self._axis(bottom, axis, end)

    def _spot(self, lane: int, time: float) -> Point:
        """Return the point in the middle of a lane at a time."""
        return LEFT + time * self.scale, self.head + lane * LANE + 2 + BOX / 2

    def _ghost(self, time: float):
        """Return a context: in a moving drawing, the parts drawn in it are pale until a time."""
        at = time * self.rate
        return self.moving(at, self.seconds - at, ghost=True) if self.loops else nullcontext()

    def _run(self, end: float, lanes: Sequence[Lane], arrows: Sequence[Arrow]) -> None:
        """Draw the line of the time, a dot for each message, and a dot that follows trace "0"."""
        (x, top), (_, bottom) = self._spot(0, end), self._spot(len(lanes) - 1, end)
        with self.moving(0, end * self.rate, (LEFT - x, 0), end * self.rate):
            self.line((x, top - BOX / 2), (x, bottom + BOX / 2), stroke="var(--ink)")
        ways = [(tone(arrow.lane), 0, *arrow[:4]) for arrow in arrows]
        for row, lane in enumerate(lanes):  # A dot in a bar is 8 px lower, below the bar's text.
            ways += [("white", 8, row, b.start, row, b.end) for b in lane.bars if b.trace == "0"]
        for fill, down, source, start, to, end in ways:
            (x1, y1), (x2, y2) = self._spot(source, start), self._spot(to, end)
            took = (end - start) * self.rate
            with self.moving(start * self.rate, took, (x1 - x2, y1 - y2), took):
                self.add("circle", cx=x2, cy=y2 + down, r=6 - down / 4, fill=fill, stroke=INK)

    def _arrows(self, arrows: Sequence[Arrow]) -> None:
        """Draw arrows with a dot at each start, then their texts, so that no text is covered."""
        places = []
        for lane, start, to, end, text in arrows:
            (x1, y1), (x2, y2) = self._spot(lane, start), self._spot(to, end)
            # The text of a long arrow is near its start, away from the texts of short arrows.
            part = 0.34 if abs(to - lane) == 1 else 0.14
            places.append((x1 + (x2 - x1) * part + 6, y1 + (y2 - y1) * part + 3, text))
            with self._ghost(start):
                self.arrow((x1 + 4, y1), (x2 - 2, y2))
                self.add("circle", cx=x1 + 4, cy=y1, r=5, fill=tone(lane), stroke=INK)
        for x, y, text in places:
            self.words(x, y, text or [], **LEFT_WORDS, **HALO)

    def _width(self, bar: Bar) -> float:
        return (bar.end - bar.start) * self.scale

    def _fits(self, bar: Bar, text: str) -> bool:
        return bool(text) and 0.92 * width_of(text, SIZE) <= self._width(bar)

    def _label(self, bar: Bar) -> str:
        """Return the text that is written in a bar; "" if it does not fit."""
        text = bar.trace if bar.kind in self.traced else bar.text
        return text if self._fits(bar, text) else ""

    def _bars(self, bars: Sequence[Bar], top: float) -> None:
        """Draw the bars of a lane."""
        areas = [(LEFT + b.start * self.scale, top, self._width(b), BOX) for b in bars]
        if self.many:
            self._shapes(bars, areas)
            return
        for bar, area in zip(bars, areas):
            times = " to ".join(map(self._time, (bar.start, bar.end)))
            hover, look = f"{bar.text}: {times}" if bar.text else "", self.looks[bar.kind]
            (x, y, w, h), fill, traced = area, bar.fill or look.fill, bar.kind in self.traced
            edge = fill if w < 4 else INK
            with self._ghost(bar.start):
                self._bar(area, bar, self.thick, hover=hover, fill=fill, stroke=edge)
                if traced or (w >= NARROW and not self._fits(bar, bar.text)):
                    ends = (x, y, w, h / 4), (x, y + 0.75 * h, w, h / 4)
                    self.hatch(ends if traced else [area], look.gap)
        for bar, area in zip(bars, areas):  # Texts come last, so that no bar covers a text.
            if text := self._label(bar):
                with self._ghost(bar.start):
                    self._text(area, text, fill=LETTER, data_trace=bar.trace)

    def _bar(self, area: Rectangle, bar: Bar, thick: float, **look) -> None:
        # A bar without a text lets the mouse through, so that it reaches the bar below.
        look |= {"data_trace": bar.trace, "pointer_events": "" if bar.text else "none"}
        if bar.drag:
            label = f"{bar.text}: left and right arrow keys move it"
            look |= {"data_drag": bar.drag, "data_drop": bar.drag, "style": "cursor:grab"}
            look |= {"tabindex": "0", "role": "button", "aria_label": label}
        self.box(area, rx=0, stroke_width=thick, **look)

    def _text(self, area: Rectangle, text: str, **look) -> None:
        x, y, w, h = area
        # A text that is wider than its bar is squeezed, so that it does not touch the next text.
        squeezed: Attributes = {"textLength": w - 3, "lengthAdjust": "spacingAndGlyphs"}
        look |= squeezed if width_of(text, SIZE) > w else {}
        self.words(x + w / 2, y + h / 2 + 4.5, text, SIZE, **look)

    def _shapes(self, bars: Sequence[Bar], areas: Sequence[Rectangle]) -> None:
        """Draw very many bars as one shape for each look; very narrow bars are merged."""
        groups: dict[tuple[str, str], list[Rectangle]] = {}
        for bar, (x, y, w, h) in zip(bars, areas):
            same = groups.setdefault((bar.kind, bar.fill or self.looks[bar.kind].fill), [])
            if same and w < 1 and x - sum(same[-1][::2]) < 0.5:
                start = same.pop()[0]
                x, w = start, x + w - start
            same.append((x, y, w, h))
        for (kind, fill), joined in groups.items():
            self.blocks(joined, fill=fill, stroke=fill, stroke_width=0.4)
            self.hatch((area for area in joined if area[2] >= NARROW), self.looks[kind].gap)

    def _legend(self, idle: str) -> None:
        x = float(LEFT)
        for kind, look in (self.looks | {"": Look(idle, "var(--empty)")}).items():
            if not look.name:
                continue
            self.box(area := (x, 2, 20, 16), rx=0, fill=look.fill)
            if kind in self.hatched:
                self.hatch([area], look.gap if kind in self.wide else 0)
            elif len(kind) == 1:
                self.words(x + 10, 15, kind, SIZE, fill=INK)
            self.words(x + 26, 15, look.name, **LEFT_WORDS)
            x += 44 + width_of(look.name, SIZE)

    def _axis(self, top: float, words: str, end: float) -> None:
        """Draw the axis. The end of the bars is in bold, because readers compare pictures by it."""
        ten = 10 ** math.floor(math.log10(self.end / 4)) if self.end else 1
        step = next(n * ten for n in (1, 2, 5, 10) if n * ten * 6 >= self.end)
        step = step if self.unit else max(step, 1)
        times = [i * step for i in range(int(self.end / step * (1 + 1e-9)) + 1)]
        near = (width_of(self._time(end), SIZE) + 20) / self.scale
        for time in [*(t for t in times if abs(t - end) > near), end]:
            look = {"fill": "var(--ink)", "font_weight": BOLD} if time == end else {}
            x = LEFT + time * self.scale
            self.line((x, top - 4), (x, top), stroke="var(--edge)", stroke_width=1)
            anchor = "end" if x > LEFT + WIDTH - 15 else "middle"
            self.words(x, top + 14, self._time(time), **SOFT | look, text_anchor=anchor)
        self.words(LEFT, top + 30, words, **SOFT, text_anchor="start")

    def _time(self, time: float) -> str:
        return short(time, self.unit) if self.unit else f"{round(time, 1):g}"


# ---------------------------------------------------------------- what ran when on which chips
COMPUTE, COMMUNICATION, EXPOSED = "compute", "communication", "exposed"
KINDS = {
    COMPUTE: Look(COMPUTE, ROLES["compute"]),
    COMMUNICATION: Look("communication, hidden", ROLES["communication"], 12),
    EXPOSED: Look("communication, exposed", ROLES["exposed communication"], 6),
}
COLUMN = 18  # A line of a lane's name has at most this many letters.
Span = tuple[float, float]  # A span is (start, end) in seconds.


class ChipLane(NamedTuple):
    """Chips that do the same at the same time: bars of compute and communication, in seconds."""

    chips: tuple[int, ...]
    bars: tuple[Bar, ...]

    @property
    def label(self) -> str:
        """The numbers of the chips, as text.

        Example:
            >>> ChipLane((0, 1, 2, 3, 6), ()).label
            'chips 0-3, 6 alike'
        """
        named = shorten(ranges(self.chips), 50, placeholder=" …")
        return f"chip {named}" if len(self.chips) == 1 else f"chips {named} alike"

    def spans(self, kind: str) -> list[Span]:
        """Return (start, end) of each bar of one kind."""
        return [(bar.start, bar.end) for bar in self.bars if bar.kind == kind]

    @property
    def exposed(self) -> list[Span]:
        """The times in which the chips communicate but do not compute, (start, end) in seconds."""
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
    """Return the sum of the lengths of spans, in seconds."""
    return sum(end - start for start, end in spans)


@dataclass(frozen=True, repr=False)
class Timeline:
    """The operations that ran on each chip over time. A notebook shows them as a picture.

    Args:
        beside: whether chips compute while they communicate, so that each of the two has a row.
        until: the end of the axis in seconds, if it is after the end of the last bar.
    """

    title: str
    lanes: tuple[ChipLane, ...]
    beside: bool = False
    until: float = 0.0

    @property
    def end_s(self) -> float:
        """The time in seconds at which the last bar ends."""
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
            return Figure(self.title, [], ["Nothing here takes modelled time."])._repr_html_()
        rows = []
        for lane in self.lanes:
            name, about = [*wrap(lane.label, COLUMN, max_lines=2, placeholder=" …"), ""][:2]
            spans = lane.exposed
            drawn = [b._replace(kind=EXPOSED) if b[:2] in spans else b for b in lane.bars]
            drawn += [Bar(*span, EXPOSED) for span in spans]
            if self.beside:
                name = shorten(lane.label, COLUMN, placeholder=" …")
                rows.append(Lane(name, [bar for bar in drawn if bar.kind == COMPUTE], COMPUTE))
                drawn = [bar for bar in drawn if bar.kind != COMPUTE]
                name, about = "", COMMUNICATION
            rows.append(Lane(name, drawn, about))
        drawing = Lanes(rows, KINDS, self.end_s, title=repr(self), idle="idle",
                        axis="modelled time", unit="s", until=self.until)  # fmt: skip
        return Figure(self.title, [drawing])._repr_html_()


# ---------------------------------------------------------------- messages between ranks
LABELLED = 6  # With more steps than this, there is no room for the texts of messages.


def draw_exchange(run) -> Iterator[Figure]:
    """Yield a figure of all messages over time and, if ranks wait, one of who waits for whom."""
    end = run.steps + (1 if run.waits else 0)
    lanes = [Lane(f"rank {rank}", []) for rank in range(run.ranks)]
    for wait in run.waits:
        bars = [Bar(wait.since, end, "waits")]
        lanes[wait.rank] = Lane(f"rank {wait.rank}", bars, f"waits for {wait.whom}")
    sizes, arrows, notes = sorted({m.nbytes for m in run.messages}), [], []
    # The longest arrows are drawn first, so that short arrows lie above them.
    for m in sorted(run.messages, key=lambda m: -abs(m.receiver - m.sender)):
        text = m.text or (size_text(m.nbytes) if sizes[1:] else "")
        text = text if run.steps <= LABELLED else ""
        arrows.append(Arrow(m.sender, m.sent, m.receiver, m.step, text))
    if sizes:
        each = ("up to " if sizes[1:] else "") + size_text(sizes[-1])
        notes += [f"Each arrow is a message of {each}, with a dot where it is sent."]
    waits = Look("waits forever", ROLES["exposed communication"], 6)
    drawing = Lanes(lanes, {"waits": waits}, end, title=repr(run),
                    axis="steps (time is not to scale)", arrows=arrows,
                    seconds=STEP_S * end * bool(arrows))  # fmt: skip
    yield Figure(run.title, [drawing], notes, text=repr(run))
    if run.waits:
        yield _waits(run)


def _waits(run) -> Figure:
    """Draw an arrow from each rank that waits to the rank that it waits for."""
    ring = ": the arrows form a cycle, so no rank can continue" if run.cycle else ""
    title, ranks = f"Which rank waits for which{ring}", tuple(range(run.ranks))
    cells = [Cell(f"rank {rank}", ["is done"]) for rank in ranks]
    for wait in run.waits:
        cells[wait.rank] = Cell(f"rank {wait.rank}", [f"in {wait.call}"], ALARM, dashed=True)
    # More than three ranks are drawn as a ring: the second half in a second row, right to left.
    fold = (run.ranks + 1) // 2 if run.ranks > 3 else 0
    pairs = [(wait.rank, wait.peer) for wait in run.waits if wait.peer in ranks]
    among = tuple((min(pair), max(pair)) for pair in pairs)
    drawing = Cells(Grid(title, (1, run.ranks), ranks, among, 0, fold=fold), cells, gap=(40, 36))
    for pair in pairs:
        drawing.arrow(*drawing.course(*pair), BAD)
    return Figure(title, [drawing], run.waiting)

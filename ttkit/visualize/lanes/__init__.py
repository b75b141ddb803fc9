"""Lanes: rows of bars on one axis of time, and arrows from row to row.

Pipeline schedules, timelines and messages between ranks are drawn with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ttkit.visualize.drawing import BAD, INK, Drawing, Rectangle, tone, width_of
from ttkit.words import short

LEFT, WIDTH = 158, 540  # Names take LEFT px, bars WIDTH px.
LANE, BOX, HEAD = 40, 30, 26  # These are the heights in px of a lane, a bar and the legend.
LATER = 30  # A bar that never starts has so many px.
SIZE = 12.5  # Letters of this size still have 10 px where a drawing shrinks most.
# More bars than this are merged into a few shapes without texts, so that the page stays small.
MANY = 600


class Look(NamedTuple):
    """How bars of one kind are drawn.

    Attributes:
        name: in the legend.
        fill: as "#rrggbb".
        gap: between the lines of the hatching, which shows the kind without colour; 0 is none.
    """

    name: str
    fill: str
    gap: float = 0


class Bar(NamedTuple):
    """A bar from `start` to `end`.

    Attributes:
        kind: a key of the looks.
        text: what stands in the bar where it fits, and with its times under the mouse.
        fill: in place of its look's.
        drag: names the bar on a `touchable` page, where it can be moved onto another one.
    """

    start: float
    end: float
    kind: str
    text: str = ""
    fill: str = ""
    drag: str = ""


@dataclass(frozen=True)
class Lane:
    """A row of bars.

    Args:
        name, about: words beside it.
        never: bars that never start, in order; they stand behind the axis.
    """

    name: str
    bars: Sequence[Bar]
    about: str = ""
    never: Sequence[Bar] = field(default=())


class Arrow(NamedTuple):
    """An arrow from a time on one lane to a time on another, both lanes by number."""

    lane: int
    start: float
    to: int
    end: float
    text: str = ""


def draw_lanes(
    lanes: Sequence[Lane],
    looks: Mapping[str, Look],
    end: float,
    *,
    title: str,
    idle: str,
    axis: str,
    unit: str = "",
    until: float = 0.0,
    arrows: Sequence[Arrow] = (),
) -> Drawing:
    """Return the drawing of lanes, the first on top, on one axis that begins at 0.

    A bar whose text does not fit is hatched, so that no kind needs its colour.

    Args:
        looks: of each kind, in the order of the legend.
        end: when the last bar ends.
        title: the text alternative.
        idle: what the legend says of the time without bars; "" says nothing.
        axis: what the axis says.
        unit: of the times, "" where they are counted.
        until: where the axis ends, if not at `end`: pictures that are compared share it.

    Example:
        >>> lane = Lane("chip 0", [Bar(0, 2, "compute", "matmul")])
        >>> page = draw_lanes([lane], {"compute": Look("compute", "#f0dc7d")}, 4, title="a run",
        ...                   idle="idle", axis="time")
        >>> ">matmul<" in page.svg()
        True
    """
    later = max((len(lane.never) for lane in lanes), default=0) * LATER
    scale = (WIDTH - later) / (max(end, until) or 1)
    empty = end * scale + later if end else WIDTH
    bars = [bar for lane in lanes for bar in lane.bars]
    used = {kind: look for kind, look in looks.items() if any(bar.kind == kind for bar in bars)}
    many = len(bars) > MANY
    hatched = {bar.kind for bar in bars if many or not _fits(bar, scale)}
    drawing = Drawing(LEFT + WIDTH + 6, HEAD + LANE * len(lanes) + 36, title)
    _legend(drawing, used, hatched, idle)
    for row, lane in enumerate(lanes):
        top = HEAD + row * LANE
        drawing.words(0, top + 14, lane.name, size=SIZE, anchor="start", bold=True)
        drawing.words(0, top + 29, lane.about, size=SIZE, anchor="start", colour="var(--soft)")
        drawing.box(LEFT, top + 2, empty, BOX, fill="var(--empty)", edge="none", round=0)
        areas = [
            (LEFT + b.start * scale, top + 2, (b.end - b.start) * scale, BOX) for b in lane.bars
        ]
        if many:
            _shapes(drawing, areas, lane.bars, used)
            continue
        for bar, area in zip(lane.bars, areas):
            times = " to ".join(_time(time, unit) for time in (bar.start, bar.end))
            hover = f"{bar.text}: {times}" if bar.text else ""
            fill = bar.fill or used[bar.kind].fill
            _box(drawing, area, bar, hover=hover, fill=fill, edge=INK)
            if not _fits(bar, scale):
                drawing.hatch([area], used[bar.kind].gap)
        for bar, area in zip(lane.bars, areas):  # A bar may lie over another, never over a text.
            if _fits(bar, scale):
                _text(drawing, area, bar.text, INK)
        for i, bar in enumerate(lane.never):
            place = LEFT + WIDTH - later + LATER * i + 1.0, top + 2.0, LATER - 2.0, float(BOX)
            edge = "var(--edge)" if i else BAD
            _box(drawing, place, bar, fill="var(--page)", edge=edge, dash="4 3")
            _text(drawing, place, bar.text, "var(--ink)")
    for arrow in arrows:
        _arrow(drawing, arrow, scale)
    _axis(drawing, HEAD + LANE * len(lanes), scale, max(end, until), axis, unit)
    return drawing


def _arrow(drawing: Drawing, arrow: Arrow, scale: float) -> None:
    """Draw an arrow with a dot at its start, where its text stands, too."""
    (x1, y1), (x2, y2) = (
        (LEFT + time * scale, HEAD + lane * LANE + 2 + BOX / 2)
        for lane, time in ((arrow.lane, arrow.start), (arrow.to, arrow.end))
    )
    drawing.arrow((x1 + 4, y1), (x2 - 2, y2), colour="var(--link)")
    drawing.add("circle", cx=x1 + 4, cy=y1, r=5, fill=tone(arrow.lane), stroke=INK)
    # The text of a long arrow stands near its start, away from the texts of short arrows.
    part = 0.34 if abs(arrow.to - arrow.lane) == 1 else 0.14
    x, y = x1 + (x2 - x1) * part, y1 + (y2 - y1) * part
    drawing.words(x + 6, y + 3, arrow.text, size=SIZE, halo=True, anchor="start")


def _fits(bar: Bar, scale: float) -> bool:
    return bool(bar.text) and 0.92 * width_of(bar.text, SIZE) <= (bar.end - bar.start) * scale


def _box(drawing: Drawing, area: Rectangle, bar: Bar, **look: Any) -> None:
    if bar.drag:
        label = f"{bar.text}: left and right arrow keys move it"
        look |= {"data_drag": bar.drag, "data_drop": bar.drag, "style": "cursor:grab"}
        look |= {"tabindex": "0", "role": "button", "aria_label": label}
    drawing.box(*area, round=0, stroke_width=0.7, **look)


def _text(drawing: Drawing, area: Rectangle, text: str, colour: str) -> None:
    x, y, w, h = area
    drawing.words(x + w / 2, y + h / 2 + 4.5, text, size=SIZE, colour=colour)


def _shapes(
    drawing: Drawing, areas: Sequence[Rectangle], bars: Sequence[Bar], looks: Mapping[str, Look]
) -> None:
    """Draw very many bars as one shape for each look; slivers that touch become one."""
    groups: dict[tuple[str, str], list[Rectangle]] = {}
    for bar, (x, y, w, h) in zip(bars, areas):
        same = groups.setdefault((bar.kind, bar.fill or looks[bar.kind].fill), [])
        if same and w < 1 and x - sum(same[-1][::2]) < 0.5:
            start = same.pop()[0]
            x, w = start, x + w - start
        same.append((x, y, w, h))
    for (kind, fill), joined in groups.items():
        drawing.blocks(joined, fill=fill, edge=INK, width=0.4)
        drawing.hatch(joined, looks[kind].gap)


def _legend(drawing: Drawing, looks: Mapping[str, Look], hatched: set[str], idle: str) -> None:
    x = float(LEFT)
    shown = {**looks, "": Look(idle, "var(--empty)")} if idle else looks
    for kind, look in shown.items():
        area = (x, 2.0, 20.0, 16.0)
        drawing.box(*area, fill=look.fill, edge=INK if kind else "var(--edge)", round=0)
        if kind in hatched:
            drawing.hatch([area], look.gap)
        elif len(kind) == 1:
            drawing.words(x + 10, 15, kind, size=SIZE, colour=INK)
        drawing.words(x + 26, 15, look.name, size=SIZE, anchor="start")
        x += 44 + width_of(look.name, SIZE)


def _axis(drawing: Drawing, top: float, scale: float, end: float, words: str, unit: str) -> None:
    ten = 10 ** math.floor(math.log10(end / 4)) if end else 1
    step = next(n * ten for n in (1, 2, 5, 10) if n * ten * 6 >= end)
    if not unit:
        step = max(step, 1)
    for i in range(int(end / step * (1 + 1e-9)) + 1):
        time, x = i * step, LEFT + i * step * scale
        drawing.line((x, top - 4), (x, top), colour="var(--edge)", width=1)
        anchor = "end" if x > LEFT + WIDTH - 15 else "middle"
        drawing.words(
            x, top + 14, _time(time, unit), size=SIZE, anchor=anchor, colour="var(--soft)"
        )
    drawing.words(LEFT, top + 30, words, size=SIZE, anchor="start", colour="var(--soft)")


def _time(time: float, unit: str) -> str:
    return short(time, unit) if unit else f"{time:g}"

"""Lanes: rows of bars on one axis of time. Pipeline schedules and timelines are drawn with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ttkit.visualize.drawing import BAD, INK, Drawing, Rectangle, width_of
from ttkit.words import short

LEFT, WIDTH = 158, 540  # px of the names, and of the bars
LANE, BOX, HEAD = 40, 30, 26  # px: heights of a lane, of a bar, and of the legend
LATER = 30  # px of a bar that never starts
SIZE = 12.5  # of the letters: 10 px where a drawing shrinks most
MANY = 600  # bars: more are drawn as a few shapes, without texts


class Look(NamedTuple):
    """How bars of one kind are drawn.

    Attributes:
        name: in the legend.
        fill: as "#rrggbb".
        lines: the hatching, by which the kind is seen without its colour: "/", "-" or "|"; "" is
            none.
        always: whether the bars are hatched even where their texts fit.
    """

    name: str
    fill: str
    lines: str = ""
    always: bool = False


class Bar(NamedTuple):
    """A bar from `start` to `end`.

    Attributes:
        kind: a key of the looks.
        text: what stands in the bar where it fits.
        hover: what the bar says under the mouse.
        fill: in place of its look's.
        more: further attributes of the box and their values, such as those of a `touchable` page.
    """

    start: float
    end: float
    kind: str
    text: str = ""
    hover: str = ""
    fill: str = ""
    more: tuple[tuple[str, str], ...] = ()


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
) -> Drawing:
    """Return the drawing of lanes, the first on top, on one axis that begins at 0.

    A kind whose texts do not all fit is hatched, so that no kind needs its colour.

    Args:
        looks: of each kind, in the order of the legend.
        end: when the last bar ends.
        title: the text alternative.
        idle: what the legend says of the time without bars.
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
    hatched = {
        kind
        for kind, look in used.items()
        if look.always
        or len(bars) > MANY
        or not all(_fits(b, scale) for b in bars if b.kind == kind)
    }
    drawing = Drawing(LEFT + WIDTH + 6, HEAD + LANE * len(lanes) + 36, title)
    _legend(drawing, used, hatched, idle)
    for row, lane in enumerate(lanes):
        top = HEAD + row * LANE
        drawing.words(0, top + 14, lane.name, size=SIZE, anchor="start", bold=True)
        drawing.words(0, top + 29, lane.about, size=SIZE, anchor="start", colour="var(--soft)")
        drawing.box(LEFT, top + 2, empty, BOX, fill="var(--empty)", edge="none", round=0)
        if len(bars) > MANY:
            _shapes(drawing, top, lane.bars, used, scale)
            continue
        for bar in lane.bars:
            look, area = used[bar.kind], _area(bar, top, scale)
            _box(drawing, area, bar.fill or look.fill, bar.hover, bar.more)
            drawing.hatch([area] if bar.kind in hatched else [], look.lines)
        for bar in lane.bars:  # above all boxes
            if _fits(bar, scale):
                area = _area(bar, top, scale)
                _name(drawing, bar, area, used[bar.kind], bar.kind in hatched)
        for i, bar in enumerate(lane.never):
            x = LEFT + WIDTH - later + LATER * i + 1
            edge = BAD if i == 0 else "var(--edge)"
            more = (*bar.more, ("stroke_dasharray", "4 3"), ("stroke", edge))
            _box(drawing, (x, top + 2, LATER - 2, BOX), "var(--page)", bar.hover, more)
            _text(drawing, (x, top + 2, LATER - 2, BOX), bar.text, "var(--ink)")
    _axis(drawing, HEAD + LANE * len(lanes), scale, max(end, until), axis, unit)
    return drawing


def _fits(bar: Bar, scale: float) -> bool:
    return bool(bar.text) and 0.92 * width_of(bar.text, SIZE) <= (bar.end - bar.start) * scale


def _area(bar: Bar, top: float, scale: float) -> Rectangle:
    return LEFT + bar.start * scale, top + 2, (bar.end - bar.start) * scale, BOX


def _name(drawing: Drawing, bar: Bar, area: Rectangle, look: Look, hatched: bool) -> None:
    """Write a bar's text; a plate keeps it apart from the hatching."""
    if hatched and look.lines:
        if not look.always:
            return
        wide = min(width_of(bar.text, SIZE), area[2] - 2)
        left, fill = area[0] + (area[2] - wide) / 2, bar.fill or look.fill
        drawing.box(left, area[1] + 6, wide, 18, fill=fill, edge="none", round=0)
    _text(drawing, area, bar.text, INK)


def _box(
    drawing: Drawing, area: Rectangle, fill: str, hover: str, more: Sequence[tuple[str, str]]
) -> None:
    x, y, w, h = area
    box: dict[str, Any] = {"x": x, "y": y, "width": w, "height": h}
    look = {"fill": fill, "stroke": INK, "stroke_width": 0.7}
    drawing.add("rect", hover=hover, **{**box, **look, **dict(more)})


def _text(drawing: Drawing, area: Rectangle, text: str, colour: str) -> None:
    """Write into the middle of a box; the mouse reaches the box below."""
    x, y, w, h = area
    look = {"fill": colour, "text_anchor": "middle", "pointer_events": "none"}
    drawing.add("text", text, x=x + w / 2, y=y + h / 2 + 4.5, font_size=SIZE, **look)


def _shapes(
    drawing: Drawing, top: float, bars: Sequence[Bar], looks: Mapping[str, Look], scale: float
) -> None:
    """Draw very many bars as one shape for each look; slivers that touch become one."""
    groups: dict[tuple[str, str], list[Rectangle]] = {}
    for bar in bars:
        areas = groups.setdefault((bar.kind, bar.fill or looks[bar.kind].fill), [])
        x, y, w, h = _area(bar, top, scale)
        if areas and w < 1 and x - sum(areas[-1][::2]) < 0.5:
            start = areas.pop()[0]
            x, w = start, x + w - start
        areas.append((x, y, w, h))
    for (kind, fill), areas in groups.items():
        drawing.blocks(areas, fill=fill, edge=INK, width=0.4)
        drawing.hatch(areas, looks[kind].lines)


def _legend(drawing: Drawing, looks: Mapping[str, Look], hatched: set[str], idle: str) -> None:
    x = float(LEFT)
    for kind, look in {**looks, "": Look(idle, "var(--empty)")}.items():
        area = (x, 2.0, 20.0, 16.0)
        drawing.box(*area, fill=look.fill, edge=INK if kind else "var(--edge)", round=0)
        if kind in hatched:
            drawing.hatch([area], look.lines)
        elif len(kind) == 1:
            drawing.words(x + 10, 15, kind, size=SIZE, colour=INK)
        drawing.words(x + 26, 15, look.name, size=SIZE, anchor="start")
        x += 44 + width_of(look.name, SIZE)


def _axis(drawing: Drawing, top: float, scale: float, end: float, words: str, unit: str) -> None:
    ten = 10 ** math.floor(math.log10(end / 4)) if end else 1
    step = next(n * ten for n in (1, 2, 5, 10) if n * ten * 6 >= end)
    for i in range(int(end / step * (1 + 1e-9)) + 1):
        time, x = i * step, LEFT + i * step * scale
        drawing.line((x, top - 4), (x, top), colour="var(--edge)", width=1)
        text = short(time, unit) if unit else f"{time:g}"
        anchor = "end" if x > LEFT + WIDTH - 15 else "middle"
        drawing.words(x, top + 14, text, size=SIZE, anchor=anchor, colour="var(--soft)")
    drawing.words(LEFT, top + 30, words, size=SIZE, anchor="start", colour="var(--soft)")

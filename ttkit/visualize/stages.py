"""The drawing of a pipeline schedule: a lane for each stage, a box for each action."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ttkit.plans.actions import KINDS, Action
from ttkit.plans.timetable import Slot
from ttkit.visualize.drawing import BAD, INK, Drawing, Rectangle, tone, width_of
from ttkit.visualize.hatching import slanted
from ttkit.words import short

FILL = {"F": tone(1), "B": tone(2), "I": tone(5), "W": tone(3)}
LEFT, WIDTH, LANE, BOX = 158, 540, 40, 30  # the names, the lanes, and heights
SIZE = 12.5  # of the letters: 10 px where a drawing shrinks most
HEAD = 26  # the legend
MANY = 600  # boxes: more are drawn as one shape, without words
Touch = Callable[[int, Action], Mapping[str, str]]


def shade(kind: str, chunk: int, chunks: int) -> tuple[float, ...]:
    """Return the fill of a bar: one colour a kind, lighter for later chunks."""
    light = 0.6 * chunk / max(chunks - 1, 1)
    parts = (int(FILL[kind][i : i + 2], 16) / 255 for i in (1, 3, 5))
    return tuple(part * (1 - light) + light for part in parts)


def stage_lanes(
    rows: Sequence[tuple[str, tuple[Slot, ...], str]],
    end: float,
    *,
    title: str,
    unit: str = "",
    chunks: int = 1,
    waiting: Sequence[Sequence[Action]] = (),
    touch: Touch | None = None,
) -> Drawing:
    """Return the drawing of lanes on one axis; a box has its letters, or its kind's hatching.

    Args:
        rows: name, what runs, and words about it, for each lane.
        end: of the axis.
        title: the text alternative.
        unit: of times, "" where they are counted in forwards.
        waiting: for each lane the actions that never start, in order; their boxes are dashed.
        touch: attributes of an action's box that make it a part of a `touchable` page.
    """
    # what never starts stands behind all that ran, a box of one size each
    left_out = max(map(len, waiting), default=0) * 30
    scale = (WIDTH - left_out) / (end or 1)
    drawing = Drawing(LEFT + WIDTH + 6, HEAD + LANE * len(rows) + 36, title)
    slots = [slot for _, row, _ in rows for slot in row]
    lettered = all((s.end_s - s.start_s) * scale >= _width(s.action) for s in slots)
    many = len(slots) > MANY
    _legend(drawing, sorted({s.action.kind for s in slots}, key="FBIW".index), not lettered)
    for lane, (name, row, about) in enumerate(rows):
        top = HEAD + lane * LANE
        drawing.words(0, top + 14, name, size=SIZE, anchor="start", bold=True)
        drawing.words(0, top + 29, about, size=SIZE, anchor="start", colour="var(--soft)")
        drawing.box(LEFT, top + 2, WIDTH, BOX, fill="var(--empty)", edge="none", round=0)
        boxes = [(LEFT + s.start_s * scale, s) for s in row]
        if many:
            _blocks(drawing, top, boxes, scale, chunks)
            continue
        for x, slot in boxes:
            w, times = (slot.end_s - slot.start_s) * scale, _times(slot, unit)
            place = (x, top + 2, w, BOX)
            more = touch(lane, slot.action) if touch else {}
            _box(drawing, place, slot.action, f"{_named(slot.action, name)}, {times}",
                 fill=_hex(slot.action, chunks), letters=lettered, more=more)  # fmt: skip
        for i, action in enumerate(waiting[lane] if waiting else ()):
            place = (LEFT + WIDTH - left_out + 30 * i + 1, top + 2, 28, BOX)
            says = "never starts: waits here" if i == 0 else "never starts"
            more = dict(touch(lane, action) if touch else {})
            more |= {"stroke_dasharray": "4 3", "stroke": BAD if i == 0 else "var(--edge)"}
            _box(drawing, place, action, f"{_named(action, name)}: {says}", more=more)
    _axis(drawing, HEAD + LANE * len(rows), scale, end, unit)
    return drawing


def _width(action: Action) -> float:
    return 0.92 * width_of(str(action), SIZE)


def _hex(action: Action, chunks: int) -> str:
    parts = shade(action.kind, action.chunk, chunks)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def _named(action: Action, lane: str) -> str:
    chunk = f" in chunk {action.chunk}" if action.chunk else ""
    return f"{action}: {KINDS[action.kind]} of micro-batch {action.micro_batch}{chunk}, {lane}"


def _times(slot: Slot, unit: str) -> str:
    start, end = (short(t, unit) if unit else f"{t:g}" for t in (slot.start_s, slot.end_s))
    return f"{start} to {end}"


def _box(
    drawing: Drawing,
    place: Rectangle,
    action: Action,
    hover: str,
    *,
    more: Mapping[str, str],
    fill: str = "var(--page)",
    letters: bool = True,
) -> None:
    x, y, w, h = place
    shape: dict[str, Any] = {"x": x, "y": y, "width": w, "height": h, "fill": fill, "stroke": INK}
    drawing.add("rect", hover=hover, **(shape | {"stroke_width": 0.7} | dict(more)))
    if letters:
        ink = "var(--ink)" if fill.startswith("var") else INK
        look = {"fill": ink, "text_anchor": "middle", "pointer_events": "none"}
        drawing.add("text", str(action), x=x + w / 2, y=y + h / 2 + 4.5, font_size=SIZE, **look)
    else:
        _hatch(drawing, [place], action.kind)


def _hatch(drawing: Drawing, boxes: Sequence[Rectangle], kind: str) -> None:
    """Hatch boxes by kind: B rises, I lies, W stands, F is plain; no kind needs its colour."""
    path = ""
    for x, y, w, h in boxes:
        if kind == "B":
            path += slanted((x, y, w, h), 6)
        elif kind == "I":
            path += "".join(f"M{x:.4g} {y + k:.4g}h{w:.4g}" for k in range(5, int(h), 6))
        elif kind == "W":
            path += "".join(f"M{x + k:.4g} {y:.4g}v{h:.4g}" for k in range(2, int(w) + 1, 4))
    if path:
        drawing.add("path", d=path, stroke=INK, stroke_width=0.9, pointer_events="none")


def _blocks(
    drawing: Drawing, top: float, boxes: Sequence[tuple[float, Slot]], scale: float, chunks: int
) -> None:
    looks = sorted({(s.action.kind, s.action.chunk) for _, s in boxes})
    for kind, chunk in looks:
        these = [
            (x, top + 2, (s.end_s - s.start_s) * scale, BOX)
            for x, s in boxes
            if (s.action.kind, s.action.chunk) == (kind, chunk)
        ]
        fill = _hex(Action(kind, 0, chunk), chunks)
        drawing.blocks(these, fill=fill, edge=INK, width=0.4)
        _hatch(drawing, these, kind)


def _legend(drawing: Drawing, kinds: Sequence[str], hatched: bool) -> None:
    x = float(LEFT)
    for kind in [*kinds, ""]:
        fill, name = (FILL[kind], KINDS[kind]) if kind else ("var(--empty)", "bubble: waits")
        place = (x, 2, 20, 16)
        drawing.box(*place, fill=fill, edge=INK if kind else "var(--edge)", round=0)
        if kind and hatched:
            _hatch(drawing, [place], kind)
        elif kind:
            drawing.words(x + 10, 15, kind, size=SIZE, colour=INK)
        drawing.words(x + 26, 15, name, size=SIZE, anchor="start")
        x += 44 + width_of(name, SIZE)


def _axis(drawing: Drawing, top: float, scale: float, end: float, unit: str) -> None:
    ten = 10 ** math.floor(math.log10(end / 4)) if end else 1
    step = next(n * ten for n in (1, 2, 5, 10) if n * ten * 6 >= end)
    for i in range(int(end / step * (1 + 1e-9)) + 1):
        time, x = i * step, LEFT + i * step * scale
        drawing.line((x, top - 4), (x, top), colour="var(--edge)", width=1)
        text = short(time, unit) if unit else f"{time:g}"
        anchor = "end" if x > LEFT + WIDTH - 15 else "middle"
        drawing.words(x, top + 14, text, size=SIZE, anchor=anchor, colour="var(--soft)")
    words = "time" if unit else "time; a forward of a stage takes 1"
    drawing.words(LEFT, top + 30, words, size=SIZE, anchor="start", colour="var(--soft)")

"""Pictures of plans: what each chip holds after a step, and what the step sends over which
cable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ttkit.errors import fail
from ttkit.plans import Plan
from ttkit.plans.plan import REDUCES
from ttkit.visualize.drawing import ALARM, BAD, INK, Drawing, Point, tone, width_of
from ttkit.visualize.mesh import MeshDrawing
from ttkit.visualize.moments import (
    Arrow,
    StepPicture,
    size_text,
    step_pictures,
    step_text,
    title_of,
)

NUMBER = 10  # size of the numbers in the boxes and of the words at the arrows
COPY, SUM, CABLE = "var(--wire)", "var(--wrap)", "var(--frame)"
PAPER = "#dde2ea"  # the part of a box that is still to be filled, in both themes
PLUS = 5.5  # half the height of the badge on an arrow


@dataclass(frozen=True)
class Style:
    """How big things are: boxes for chunks in so many columns, the gaps between chips, and
    whether there is room for words.
    """

    columns: int
    box_w: float
    box_h: float
    rows: int
    width: float
    head: float  # room above the boxes
    gap: tuple[float, float]
    words: bool
    numbers: bool
    shares: bool  # "3/8" under the number

    @property
    def height(self) -> float:
        """Of a chip."""
        return max(self.head + self.rows * self.box_h + 7, 52 if self.words else 0)


def style_of(picture: StepPicture, small: bool) -> Style:
    """Boxes as big as there is room for in a chip that holds so many of them."""
    most = max(1, *(len(chunks) for chunks in picture.slots.values()))
    sums = picture.plan.collective in REDUCES
    if small:
        columns, w, h = (
            (4, 11.0, 11.0) if most <= 8 else (8, 6.0, 6.0) if most <= 64 else (16, 4.0, 4.0)
        )
        numbers = shares = False
    else:
        numbers, shares = most <= 64, sums and most <= 8 and picture.plan.group_size < 100
        columns, w, h = (
            (4, 27.0, 31.0 if shares else 24.0)
            if most <= 8
            else (8, 18.0, 15.0)
            if most <= 64
            else (20, 6.0, 6.0)
        )
    columns = min(columns, most)
    name = max(
        width_of(_name(picture, i, small), NUMBER + 1, bold=True)
        for i in range(len(picture.mesh.devices))
    )
    width = max(columns * w, name, 0 if small else 100) + (8 if small else 14)
    gap = (18.0, 18.0) if small else (66.0, 50.0)
    return Style(
        columns,
        w,
        h,
        -(-most // columns),
        width,
        18 if small else 23,
        gap,
        not small,
        numbers,
        shares,
    )


def _name(picture: StepPicture, index: int, small: bool) -> str:
    device = picture.mesh.devices[index]
    return str(device) if small else f"device {device} {picture.mesh.label(index)}"


def draw_step(plan: Plan, number: int) -> Drawing:
    """What each chip holds after a step of a plan, and the step's messages on their cables; 0 is
    the moment before the first.

    Raises:
        TTKitError: no such step.

    Example:
        >>> from ttkit.plans import all_gather, topology
        >>> print(draw_step(all_gather(topology("n300"), 4096), 1))
        all_gather on n300 1x2, line · step 1: 8 KiB in 2 messages
        0 -> 1: 4 KiB, chunks 0
        1 -> 0: 4 KiB, chunks 1
        device 0 holds 0, 1
        device 1 holds 0, 1
    """
    if number not in range(len(plan.steps) + 1):
        fail(
            f"step {number} of {plan!r}",
            f"the steps have the numbers 1 to {len(plan.steps)}; 0 is the moment before the first",
        )
    return draw_picture(step_pictures(plan)[number])


def draw_picture(picture: StepPicture, small: bool = False) -> Drawing:
    """A step, with words; or small, one of many."""
    style = style_of(picture, small)
    title = (
        (f"step {picture.number} goes wrong" if picture.wrong else picture.caption)
        if small
        else f"{title_of(picture.plan)} · {picture.caption}"
    )
    mesh = (
        replace(picture.mesh, wires=tuple(replace(wire, links=1) for wire in picture.mesh.wires))
        if small
        else picture.mesh
    )
    frame = MeshDrawing(
        mesh,
        style.width,
        style.height,
        title,
        [] if small else notes(picture.plan, style),
        gap=style.gap,
        curves=(4, 4) if small else (22, 46),
        wire=CABLE,
        alarm="" if small else picture.problem,
        tight=small,
    )
    for index in range(len(picture.mesh.devices)):
        x, y = frame.corner(picture.mesh.place(index))
        frame.drawing.box(x, y, frame.w, frame.h, fill="var(--chip)")
        if small:
            frame.drawing.words(
                x + 7, y + 13, _name(picture, index, small), size=NUMBER, anchor="start", bold=True
            )
        else:
            frame.drawing.words(
                x + frame.w / 2, y + 15, _name(picture, index, small), size=NUMBER + 1, bold=True
            )
    _draw_boxes(frame, picture, style)
    for arrow in picture.arrows:
        if not arrow.wrong:
            _draw_arrow(frame, picture, arrow, style)
    if style.words:  # over all arrows, so that none hides them
        _draw_labels(frame, picture, style)
    for arrow in picture.arrows:
        if arrow.wrong:
            _draw_wrong(frame, picture, arrow, style)
    frame.drawing.text = step_text(picture)
    return frame.drawing


def notes(plan: Plan, style: Style) -> list[str]:
    """Sentences that say what the boxes and arrows mean."""
    sums = plan.collective in REDUCES
    box = "Each box is a chunk, coloured by the chip that it " + (
        "belongs to" if sums else "comes from"
    )
    box += (
        f", and fills up with the parts of all {plan.group_size} chips" * sums
        + "; a rim: new in this step."
    )
    links = f", over {plan.links} links at once" if plan.links > 1 else ""
    arrow = f"Each arrow is a message over a cable{links}"
    arrow += ": its bytes, and the colours of its chunks" * style.words
    return [
        box,
        arrow
        + (
            f"; orange{', with a plus,' * style.words} where the chip adds it to its own."
            if sums
            else "."
        ),
    ]


def _draw_boxes(frame: MeshDrawing, picture: StepPicture, style: Style) -> None:
    """The chunks of all chips, one shape for each colour."""
    Box = tuple[float, float, float, float]
    empty: list[Box] = []
    paper: list[Box] = []
    rims: list[Box] = []
    fills: dict[str, list[Box]] = {}
    numbers = []
    pad = 1.5 if style.box_w > 8 else 0.5
    w, h = style.box_w - 2 * pad, style.box_h - 2 * pad
    # in which the chip is seen between a rim and what it surrounds: on dark pages both are light
    gap = min(1.2, style.box_w / 10)
    for index, chip in enumerate(picture.mesh.devices):
        left, top = frame.corner(picture.mesh.place(index))
        left += (frame.w - style.columns * style.box_w) / 2
        held = {one.chunk: one for one in picture.held[chip]}
        for i, chunk in enumerate(picture.slots[chip]):
            row, column = divmod(i, style.columns)
            x, y = left + column * style.box_w + pad, top + style.head + row * style.box_h + pad
            one = held.get(chunk)
            if one is None:
                empty.append((x, y, w, h))
                continue
            g = gap if one.new else 0
            tall = h - 2 * g
            full = tall * min(1, one.parts / one.of)  # a bad plan may add what is not asked for
            if one.parts < one.of:
                paper.append((x + g, y + g, w - 2 * g, tall))
            fills.setdefault(tone(chunk), []).append((x + g, y + g + tall - full, w - 2 * g, full))
            if one.new:
                rims.append((x, y, w, h))
            numbers.append((x + w / 2, y + h / 2 + 3.5, one))
    frame.drawing.blocks(
        empty, fill="var(--empty)", edge="var(--frame)", width=0.6 if style.box_w > 8 else 0.3
    )
    frame.drawing.blocks(paper, fill=PAPER, edge="var(--edge)", width=0.6)
    for fill, boxes in fills.items():
        frame.drawing.blocks(boxes, fill=fill)
    rim = 1.8 if style.words and style.box_w > 8 else 1 if style.box_w > 8 else 0.8
    frame.drawing.blocks(
        [(x - rim / 2, y - rim / 2, w + rim, h + rim) for x, y, w, h in rims],
        edge="var(--ink)",
        width=rim,
    )
    for x, y, one in numbers:
        if style.shares:
            frame.drawing.words(x, y - 6, str(one.chunk), size=NUMBER + 1, colour=INK, bold=True)
            frame.drawing.words(x, y + 7, f"{one.parts}/{one.of}", size=NUMBER, colour=INK)
        elif style.numbers:
            frame.drawing.words(x, y, str(one.chunk), size=NUMBER, colour=INK)


def _course(
    frame: MeshDrawing, picture: StepPicture, arrow: Arrow, style: Style
) -> tuple[Point, Point, Point | None]:
    """Where an arrow is drawn: each way on its own side of the cable."""
    forward, at = picture.forward(arrow), picture.plan.topology.coordinate
    off, out = (8, 9) if style.words else (3.5, 4)
    return frame.course(
        at(arrow.source), at(arrow.destination), -off if forward else off, -2 if forward else out
    )


def _draw_arrow(frame: MeshDrawing, picture: StepPicture, arrow: Arrow, style: Style) -> None:
    """An arrow along its cable, the two ways side by side."""
    start, end, lift = _course(frame, picture, arrow, style)
    colour = SUM if arrow.reduce else COPY
    frame.drawing.arrow(
        start,
        end,
        lift or (0, 0),
        colour=colour,
        width=2 if style.words else 1.5,
        head=8 if style.words else 6,
    )


def _draw_label(frame: MeshDrawing, picture: StepPicture, arrow: Arrow, style: Style) -> None:
    """On a straight arrow the colours of its chunks, and beside it its bytes."""
    (x1, y1), (x2, y2), _ = _course(frame, picture, arrow, style)
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    _badge(frame.drawing, picture, arrow, x, y)
    text, forward = size_text(arrow.bytes), picture.forward(arrow)
    if abs(x2 - x1) > abs(y2 - y1):
        frame.drawing.words(x, y - 9 if forward else y + 17, text, size=NUMBER, halo=True)
    else:
        frame.drawing.words(
            x + (-12 if forward else 12),
            y + 4,
            text,
            size=NUMBER,
            anchor="end" if forward else "start",
            halo=True,
        )


def _badge(drawing: Drawing, picture: StepPicture, arrow: Arrow, x: float, y: float) -> None:
    """The colours of what an arrow carries; a plus where it is added."""
    tones = list(dict.fromkeys(tone(c) for c in arrow.chunks))[:8]
    w = max(10.0, 3.0 * len(tones))
    if arrow.reduce:
        w = max(w, 2 * PLUS + 1)
    drawing.box(x - w / 2 - 1, y - PLUS - 1, w + 2, 2 * PLUS + 2, fill=INK, edge="none", round=2)
    for i, fill in enumerate(tones):
        drawing.blocks(
            [(x - w / 2 + i * w / len(tones), y - PLUS, w / len(tones), 2 * PLUS)], fill=fill
        )
    if arrow.reduce:
        drawing.line(x - 4, y, x + 4, y, colour=INK, width=2)
        drawing.line(x, y - 4, x, y + 4, colour=INK, width=2)


def _draw_labels(frame: MeshDrawing, picture: StepPicture, style: Style) -> None:
    """The words at the arrows; those of curves tell both ways of a cable in one place."""
    curves: dict[frozenset[int], list[Arrow]] = {}
    for arrow in picture.arrows:
        if arrow.wrong:
            continue
        if not any(_course(frame, picture, arrow, style)[2] or ()):
            _draw_label(frame, picture, arrow, style)
        else:
            curves.setdefault(frozenset((arrow.source, arrow.destination)), []).append(arrow)
    for arrows in curves.values():
        (x1, y1), (x2, y2), lift = _course(frame, picture, arrows[0], style)
        dy = lift[1] if lift else 0
        texts = []
        for arrow in sorted(arrows, key=lambda a: picture.forward(a)):
            sign = (
                ("→" if picture.forward(arrow) else "←")
                if dy
                else ("↓" if picture.forward(arrow) else "↑")
            )
            texts.append(f"{sign} {'+ ' * arrow.reduce}{size_text(arrow.bytes)}")
        wide = max(width_of(text, NUMBER) for text in texts) + 12
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        left, top = (x - wide / 2, y - 12 * len(texts) - 5) if dy else (x + 4, y - 7 * len(texts))
        frame.drawing.box(
            left, top, wide, 12 * len(texts) + 2, fill="var(--page)", edge="var(--frame)", round=3
        )
        frame.drawing.lines(left + 3, top + 10, texts, size=NUMBER, step=12, anchor="start")


def _draw_wrong(frame: MeshDrawing, picture: StepPicture, arrow: Arrow, style: Style) -> None:
    """What cannot be sent is no arrow: a dashed red line that says why; a chip that is not there
    has no place for one.
    """
    place = picture.plan.topology.place
    if arrow.source not in place or arrow.destination not in place:
        return
    at = picture.plan.topology.coordinate
    corners = [frame.corner(at(chip)) for chip in (arrow.source, arrow.destination)]
    (x1, y1), (x2, y2) = ((x + frame.w / 2, y + frame.h / 2) for x, y in corners)
    if picture.plan.topology.joined(arrow.source, arrow.destination):
        start, end, lift = frame.course(at(arrow.source), at(arrow.destination), 0, 0)
        if lift is None:
            (x1, y1), (x2, y2) = start, end
    frame.drawing.line(x1, y1, x2, y2, colour=BAD, width=2.5, dash="6 4")
    wide = width_of(arrow.wrong, NUMBER, bold=True) + 8
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    frame.drawing.box(x - wide / 2, y - 8, wide, 16, fill=ALARM, edge=BAD, round=3)
    frame.drawing.words(x, y + 4, arrow.wrong, size=NUMBER, colour=INK, bold=True)

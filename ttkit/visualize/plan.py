"""Pictures of plans: the chunks on each chip after a step, and the transfers on their links."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ttkit.errors import fail
from ttkit.plans import Plan
from ttkit.visualize.cells import PAPER, SIZE, Box, Cell, Cells
from ttkit.visualize.drawing import (
    ALARM,
    BAD,
    INK,
    Figure,
    Point,
    ranges,
    size_text,
    tone,
    width_of,
)
from ttkit.visualize.steps import (
    Arrow,
    StepPicture,
    plan_text,
    step_pictures,
    summary_of,
    title_of,
    whole_of,
)

MOST = 12  # A plan of at most so many steps is shown whole on one page.
# Each row is for chips that hold at most so many chunks; it has the columns, and the width and
# height of a box.
LARGE_BOXES = ((8, 4, 24, 24), (64, 6, 19, 16), (math.inf, 20, 6, 6))
SMALL_BOXES = ((4, 2, 20, 18), (8, 4, 20, 18), (64, 8, 9, 9), (math.inf, 16, 6, 6))
SHARE_H = 33  # A box with "3/8" under its number has this height.
BADGE = 7  # The numbers on an arrow are 2 * BADGE px high.
HIT = 26  # A click hits an arrow within a band of so many px.
Course = tuple[Point, Point, Point]


# ---------------------------------------------------------------- one step
def step_cells(
    step: StepPicture,
    small: bool = False,
    title: str = "",
    glides: Collection[tuple[int, int]] | None = None,
    clickable: bool = False,
    chunk: int | None = None,
) -> Cells:
    """Draw what each chip holds after a step, and the step's transfers on their links.

    Args:
        small: one of several on a page.
        title: its caption; by default the step and what it sends.
        glides: the (chip, chunk) that glide; by default all that are new, in a large drawing.
        clickable: each way of each cable can be clicked, which does "send SOURCE DESTINATION".
        chunk: what a click sends; None where each arrow has its own.
    """
    wrong = f"step {step.number} goes wrong" if step.wrong and small else step.caption
    grid = replace(step.grid, title=title or wrong, links=1 if small else step.grid.links)
    cells = _chips(step, small, [] if small and glides is None else glides)
    look: dict[str, Any] = {"gap": (46, 50), "room": (26, 46)}
    if small:
        look = {"gap": (18, 22), "room": (4, 4), "frame": ""}
    drawing = Cells(grid, cells, colour="var(--frame)", **look)
    good = [arrow for arrow in step.arrows if not arrow.wrong]
    for arrow in good:
        course = _way(drawing, step, arrow.source, arrow.destination, small)
        colour = "var(--curve)" if arrow.reduce else "var(--link)"
        size = {"width": 1.5, "head": 6} if small else {"width": 2, "head": 8}
        drawing.arrow(*course, colour=colour, **size)
    # Labels are drawn after all arrows, so that no arrow hides them.
    for arrow in good if not small else ():
        _label(drawing, step, arrow)
    for arrow in step.arrows:
        if arrow.wrong:
            _wrong(drawing, step, arrow)
    if clickable:
        _buttons(drawing, step, chunk)
    return drawing


def _chips(
    step: StepPicture, small: bool, glides: Collection[tuple[int, int]] | None
) -> list[Cell]:
    """Return the chips with their chunks; those that glide know where they come from."""
    plan, whole, slots = step.plan, whole_of(step.plan), step.slots
    most = max(1, *map(len, slots.values()))
    sizes = SMALL_BOXES if small else LARGE_BOXES
    columns, *box = next(size for limit, *size in sizes if most <= limit)
    shares = most <= 8 and plan.adds and plan.group_size < 100
    if shares:
        box = [math.ceil(width_of(f"{whole}/{whole}", SIZE)) + 5, SHARE_H]
    chips = step.grid.devices
    sources: dict[tuple[int, int], list[tuple[int, int]]] = {}
    added = set()
    for arrow in step.arrows:
        for one in arrow.chunks if not arrow.wrong else ():
            key = arrow.destination, one
            if glides is None or key in glides:
                come = chips.index(arrow.source), slots[arrow.source].index(one)
                sources.setdefault(key, []).append(come)
                added |= {key} if arrow.reduce else set()
    cells = []
    for chip, label in zip(chips, step.grid.labels):
        held = {one.chunk: one for one in step.held[chip]}
        boxes = []
        for slot in slots[chip]:
            if slot not in held:
                boxes.append(Box())
                continue
            parts = held[slot].parts
            about = f"{parts}/{whole}" if shares else ""
            come_from = sources.get((chip, slot), [])
            fill, new = tone(slot), held[slot].new
            adds = (chip, slot) in added
            boxes.append(
                Box([str(slot)], about, fill, parts / whole, new, sources=come_from, added=adds)
            )
        name = f"device {chip} {label}"
        if small or chip in step.names:
            name = str(step.names.get(chip, chip)) if small else step.name(chip)
        size = float(box[0]), float(box[1])
        hover = step.holds(chip)
        cells.append(Cell(name, hover=hover, boxes=boxes, columns=min(columns, most), box=size))
    return cells


def _way(
    drawing: Cells, step: StepPicture, source: int, destination: int, small: bool = False
) -> Course:
    """Return how an arrow between two chips is drawn: each way on its own side of the link."""
    at = step.plan.topology.place
    off, out = (3.5, 4.0) if small else (9.0, 13.0)
    if step.grid.spot(at[source]) < step.grid.spot(at[destination]):
        off, out = -off, -2
    return drawing.course(at[source], at[destination], off, out)


def _label(drawing: Cells, step: StepPicture, arrow: Arrow) -> None:
    """Write on an arrow the numbers of its chunks, a plus if the chip adds them, and its bytes."""
    (x1, y1), (x2, y2), (right, up) = _way(drawing, step, arrow.source, arrow.destination)
    x, y = (x1 + x2) / 2 + 0.85 * right, (y1 + y2) / 2 + 0.85 * up
    forward, upright = step.forward(arrow), abs(x2 - x1) <= abs(y2 - y1)
    first = forward != bool(right or up)  # Of two arcs, the forward one is the inner.
    if upright:  # Labels of a vertical link would not fit side by side.
        y += -9 if forward else 9
    chunks = ranges(arrow.chunks)
    text = chunks if len(chunks) <= 5 else f"{len(arrow.chunks)} x"
    text = f"+{text}" if arrow.reduce else text
    wide = max(13, width_of(text, SIZE, bold=True) + 4)
    fill = tone(arrow.chunks[0]) if len(set(arrow.chunks)) == 1 else PAPER
    ends = " to ".join(map(step.name, (arrow.source, arrow.destination)))
    adds = ", which adds it" if arrow.reduce else ""
    hover = f"{ends}{adds}: {arrow.brings}, {size_text(arrow.bytes)}"
    at = (x - wide / 2, y - BADGE, wide, 2 * BADGE)
    drawing.box(*at, fill=fill, edge=INK, round=0, hover=hover)
    drawing.words(x, y + 4, text, size=SIZE, colour=INK, bold=True)
    if len(step.grid.devices) > 8:
        return  # A mesh of more chips has no room for bytes.
    place, anchor = (x, y - 10 if first else y + 19), "middle"
    if upright:
        off = wide / 2 + 4
        place, anchor = ((x - off, y + 4), "end") if first else ((x + off, y + 4), "start")
    drawing.words(*place, size_text(arrow.bytes), size=SIZE, anchor=anchor, halo=True)


def _wrong(drawing: Cells, step: StepPicture, arrow: Arrow) -> None:
    """Draw a dashed red line for what cannot be sent, with the reason."""
    at = step.plan.topology.place
    if arrow.source not in at or arrow.destination not in at:
        return  # A line cannot end at a chip that does not exist.
    start, end = (drawing.centre(at[chip]) for chip in (arrow.source, arrow.destination))
    drawing.line(start, end, colour=BAD, width=2.5, dash="6 4")
    wide = width_of(arrow.wrong, SIZE, bold=True) + 8
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    drawing.box(x - wide / 2, y - 8, wide, 16, fill=ALARM, edge=BAD, round=3)
    drawing.words(x, y + 4, arrow.wrong, size=SIZE, colour=INK, bold=True)


def _buttons(drawing: Cells, step: StepPicture, chunk: int | None) -> None:
    """Lay something to click over each way of each cable."""
    used = {(arrow.source, arrow.destination) for arrow in step.arrows}
    for source, destination in sorted(step.plan.topology.pairs):
        course = _way(drawing, step, source, destination)
        (x1, y1), (x2, y2), (right, up) = course
        if (source, destination) not in used:
            drawing.arrow(*course, colour="var(--edge)", width=1.2, head=7)
        x, y = (x1 + x2) / 2 + 0.75 * right, (y1 + y2) / 2 + 0.75 * up
        out = HIT / 2 - 10  # The two ways of a cable do not share a pixel.
        out = -out if step.forward(Arrow(source, destination, ())) else out
        w, h = abs(x2 - x1), float(HIT)
        if abs(x2 - x1) <= abs(y2 - y1):
            x, w, h = x + out, float(HIT), abs(y2 - y1)
        else:
            y += out
        what = "send" if chunk is None else f"send chunk {chunk}"
        name = f"{what} from {step.name(source)} to {step.name(destination)}"
        look: dict[str, Any] = {"fill": "transparent", "edge": "none", "style": "cursor:pointer"}
        look |= {"role": "button", "tabindex": 0, "aria_label": name}
        act = f"send {source} {destination}"
        drawing.box(x - w / 2, y - h / 2, w, h, round=0, hover=name, data_act=act, **look)


# ---------------------------------------------------------------- figures
def _notes(picture: StepPicture, small: bool) -> list[str]:
    """Return the legend of the boxes and arrows."""
    plan, most = picture.plan, max(map(len, picture.slots.values()), default=0)
    box = "Each box is a chunk"
    if plan.adds:
        box += f"; it fills up with the parts of all {plan.group_size} chips"
        box += "" if most <= 8 else " (a slanted line: not finished)"
    if plan.collective == "all_to_all":
        box += ", as parts for this chip and those after it"
    if small and most > 8:
        box += "; chunks stand in the order of their numbers"
    links = f", over {plan.links} links at once" if plan.links > 1 else ""
    few = len(plan.topology.chips) <= 8
    numbers, plus = "", ""
    if not small:
        numbers = f": {'its bytes, and ' if few else ''}the numbers of its chunks"
        plus = ", with a plus,"
    added = f"; orange{plus} where the chip adds it to its own" if plan.adds else ""
    return [
        f"{box}. A rim: new in this step.",
        f"Each arrow is a transfer from chip to chip{links}{numbers}{added}.",
    ]


def step_figure(step: StepPicture) -> Figure:
    """Return a step with words."""
    title = f"{title_of(step.plan)} · {step.caption}"
    notes = _notes(step, small=False)
    return Figure(title, [step_cells(step)], notes, step.text, step.problem)


def draw_step(plan: Plan, number: int, names: Sequence[str] = ()) -> Figure:
    """Draw what each chip holds after a step of a plan, and the step's transfers on their links.

    Args:
        number: of the step; 0 is the moment before the first.
        names: of the chips, in the order of the mesh, such as "abcd".

    Raises:
        TTKitError: no such step.

    Example:
        >>> from ttkit.plans import all_gather, topology
        >>> print(draw_step(all_gather(topology("n300"), 4096), 1))
        all_gather on n300 1x2, line · step 1: 8 KiB in 2 transfers
        0 -> 1: 4 KiB, chunk 0
        1 -> 0: 4 KiB, chunk 1
        device 0 holds 0, 1
        device 1 holds 0, 1
    """
    if number not in range(len(plan.steps) + 1):
        fail(
            f"step {number} of {plan!r}",
            f"the steps have the numbers 1 to {len(plan.steps)}; 0 is the moment before the first",
        )
    return step_figure(step_pictures(plan, names)[number])


def chosen(pictures: list[StepPicture]) -> list[int]:
    """Return the steps that a page shows: all, or some of many, and the one that goes wrong.

    Example:
        >>> from ttkit.plans import all_gather, topology
        >>> chosen(step_pictures(all_gather(topology("galaxy_torus", (1, 32)), 1024)))
        [0, 1, 2, 5, 8, 11, 15, 16]
    """
    last = len(pictures) - 1
    if last <= MOST:
        return list(range(last + 1))
    middle = (2 + (last - 3) * i // 4 for i in (1, 2, 3))
    wrong = (picture.number for picture in pictures if picture.wrong)
    return sorted({0, 1, 2, *middle, last - 1, last, *wrong})


def draw_plan(plan: Plan, names: Sequence[str] = ()) -> Figure:
    """Draw all steps of a plan; of many steps some, and a note that lists the others."""
    pictures = step_pictures(plan, names)
    shown, notes = chosen(pictures), _notes(pictures[0], small=True)
    left_out = set(range(len(pictures))) - set(shown)
    if left_out:
        notes.insert(0, f"Left out: steps {ranges(left_out)}.")
    drawings = [step_cells(pictures[number], small=True) for number in shown]
    return Figure(summary_of(plan), drawings, notes, plan_text(pictures), pictures[0].problem)


def short_title(plan: Plan) -> str:
    """Return the shape and the algorithm of a plan, short."""
    rows, columns = plan.topology.shape
    return f"{rows} x {columns} {plan.algorithm}"


def draw_moment(strips: Sequence[list[StepPicture]], number: int) -> Figure:
    """Draw the same moment of several plans beside one another; a shorter one stays at its end.

    Args:
        strips: the pictures of each plan, as of `step_pictures`.
    """
    drawings, texts = [], []
    for pictures in strips:
        plan, last = pictures[0].plan, len(pictures) - 1
        now = pictures[min(number, last)]
        caption = f"{short_title(plan)}: {now.caption}"
        if number > last:
            now = replace(now, arrows=())
            caption = f"{short_title(plan)}: finished after step {last}"
        moves = [(a.destination, c) for a in now.arrows for c in a.chunks]
        drawings.append(step_cells(now, True, caption, glides=moves))
        texts.append(caption)
    collectives = " and ".join(dict.fromkeys(title_of(one[0].plan) for one in strips))
    when = f"step {number}" if number else "start"
    title = f"{when} of {len(strips)} plans side by side"
    return Figure(title, drawings, _notes(strips[0][0], small=True), f"{title}: {collectives}")

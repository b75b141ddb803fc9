"""Pictures of plans: a step, all steps on one page, and a widget to walk through them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ttkit.errors import fail
from ttkit.plans import Plan
from ttkit.visualize.drawing import (
    ALARM,
    BAD,
    INK,
    Figure,
    Point,
    Rectangle,
    ranges,
    size_text,
    tone,
    width_of,
)
from ttkit.visualize.mesh import MeshDrawing
from ttkit.visualize.steps import (
    Arrow,
    StepPicture,
    plan_text,
    step_pictures,
    summary_of,
    title_of,
    whole_of,
)

NUMBER = 10  # size of the numbers in the boxes and of the words at the arrows
# Boxes of chips that hold at most so many chunks: columns, and width and height of a box.
LARGE_BOXES = ((8, 4, 27, 24), (64, 8, 18, 15), (math.inf, 20, 6, 6))
SMALL_BOXES = ((8, 4, 11, 11), (64, 8, 6, 6), (math.inf, 16, 4, 4))
SHARE_H = 31  # of a box with "3/8" under its number
COPY, SUM, LINK = "var(--link)", "var(--curve)", "var(--frame)"
EMPTY = "var(--empty)"  # a box for a chunk that has not come
PAPER = "#dde2ea"  # the part of a box that is still to be filled, in both themes
BADGE = 5.5  # half the height of the badge on an arrow
MOST = 12  # steps that are all shown on one page


class StepDrawing(MeshDrawing):
    """A drawing of what each chip holds after a step, and of its messages on their links.

    Args:
        small: one of many, without words.
    """

    def __init__(self, step: StepPicture, small: bool = False):
        self.step, self.small, plan = step, small, step.plan
        most = max(1, *map(len, step.slots.values()))
        sizes = SMALL_BOXES if small else LARGE_BOXES
        columns, self.box_w, self.box_h = next(box for limit, *box in sizes if most <= limit)
        self.numbers = not small and most <= 64
        self.shares = not small and most <= 8 and plan.adds and plan.group_size < 100
        if self.shares:
            self.box_h = SHARE_H
        self.columns = min(columns, most)
        chips = zip(step.mesh.devices, step.mesh.labels)
        names = [str(id) if small else f"device {id} {label}" for id, label in chips]
        widest = max(width_of(name, NUMBER + 1, bold=True) for name in names)
        width = max(self.columns * self.box_w, widest) + 12
        self.head = 18 if small else 23  # above the boxes
        height = self.head + math.ceil(most / self.columns) * self.box_h + 7
        title = f"step {step.number} goes wrong" if step.wrong and small else step.caption
        mesh = replace(step.mesh, title=title, links=1 if small else step.mesh.links)
        host, gap, room = ("", (18, 18), (4, 4)) if small else ("host", (66, 50), (26, 46))
        super().__init__(mesh, width, height, host, gap=gap, room=room, colour=LINK)
        for name, (x, y) in zip(names, self.corners):
            self.box(x, y, self.w, self.h, fill="var(--chip)")
            self.words(x + self.w / 2, y + 14, name, size=NUMBER + 1, bold=True)
        self._boxes()
        good = [arrow for arrow in step.arrows if not arrow.wrong]
        for arrow in good:
            width, head = (1.5, 6) if small else (2, 8)
            colour = SUM if arrow.reduce else COPY
            self.arrow(*self._course(arrow), colour=colour, width=width, head=head)
        for arrow in good if not small else ():  # over all arrows, so that none hides them
            self._label(arrow)
        for arrow in step.arrows:
            if arrow.wrong:
                self._wrong(arrow)

    def _boxes(self) -> None:
        """Draw the chunks of all chips, one shape for each look."""
        fills: dict[str, list[Rectangle]] = {EMPTY: [], PAPER: []}
        rims: list[Rectangle] = []
        numbers = []
        # the chip is seen between a box and its rim: on dark pages both are light
        pad, whole = min(2.4, self.box_w / 7), whole_of(self.step.plan)
        rim = 0.6 * pad
        w, h = self.box_w - 2 * pad, self.box_h - 2 * pad
        for chip, corner in zip(self.picture.devices, self.corners):
            left = corner[0] + (self.w - self.columns * self.box_w) / 2 + pad
            top = corner[1] + self.head + pad
            held = {one.chunk: one for one in self.step.held[chip]}
            for i, chunk in enumerate(self.step.slots[chip]):
                row, column = divmod(i, self.columns)
                x, y = left + column * self.box_w, top + row * self.box_h
                one = held.get(chunk)
                if one is None:
                    fills[EMPTY].append((x, y, w, h))
                    continue
                numbers.append((x + w / 2, y + h / 2 + 3.5, one))
                full = h * min(1, one.parts / whole)  # a bad plan may add what is not asked for
                if full < h:
                    fills[PAPER].append((x, y, w, h))
                fill = tone(chunk)
                fills.setdefault(fill, []).append((x, y + h - full, w, full))
                if one.new:
                    off = pad - rim / 2
                    rims.append((x - off, y - off, w + 2 * off, h + 2 * off))
        for fill, boxes in fills.items():
            edge = LINK if fill in (EMPTY, PAPER) else "none"
            self.blocks(boxes, fill=fill, edge=edge, width=min(0.6, self.box_w / 15))
        self.blocks(rims, edge="var(--ink)", width=rim)
        for x, y, one in numbers:
            if self.shares:
                share = f"{one.parts}/{whole}"
                self.words(x, y - 6, str(one.chunk), size=NUMBER + 1, colour=INK, bold=True)
                self.words(x, y + 7, share, size=NUMBER, colour=INK)
            elif self.numbers:
                self.words(x, y, str(one.chunk), size=NUMBER, colour=INK)

    def _course(self, arrow: Arrow) -> tuple[Point, ...]:
        """Return how an arrow is drawn: each way on its own side of the link."""
        at = self.step.plan.topology.place
        off, out = (3.5, 4) if self.small else (8, 13)
        if self.step.forward(arrow):
            off, out = -off, -2
        return self.course(at[arrow.source], at[arrow.destination], off, out)

    def _label(self, arrow: Arrow) -> None:
        """Draw the colours of an arrow's chunks, a plus if the chip adds them, and its bytes."""
        (x1, y1), (x2, y2), (right, up) = self._course(arrow)
        x, y = (x1 + x2) / 2 + 0.85 * right, (y1 + y2) / 2 + 0.85 * up
        tones = list(dict.fromkeys(tone(c) for c in arrow.chunks))[:8]
        wide = max(12, 3 * len(tones))
        left, top, each = x - wide / 2, y - BADGE, wide / len(tones)
        self.blocks([(left - 1, top - 1, wide + 2, 2 * BADGE + 2)], fill=INK)
        for i, fill in enumerate(tones):
            self.blocks([(left + i * each, top, each, 2 * BADGE)], fill=fill)
        if arrow.reduce:
            self.words(x, y + 5, "+", size=14, colour=INK, bold=True)
        # of two curves, the way forward is the inner one
        first = self.step.forward(arrow) != bool(right or up)
        if right or abs(x2 - x1) > abs(y2 - y1):
            at, anchor = (x, y - 9 if first else y + 17), "middle"
        else:
            at, anchor = ((x - 12, y + 4), "end") if first else ((x + 12, y + 4), "start")
        self.words(*at, size_text(arrow.bytes), size=NUMBER, anchor=anchor, halo=True)

    def _wrong(self, arrow: Arrow) -> None:
        """Draw a dashed red line for what cannot be sent, with the reason."""
        at = self.step.plan.topology.place
        if arrow.source not in at or arrow.destination not in at:
            return  # a chip that is not there has no place
        corners = (self.corner(at[chip]) for chip in (arrow.source, arrow.destination))
        start, end = ((x + self.w / 2, y + self.h / 2) for x, y in corners)
        self.line(start, end, colour=BAD, width=2.5, dash="6 4")
        wide = width_of(arrow.wrong, NUMBER, bold=True) + 8
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        self.box(x - wide / 2, y - 8, wide, 16, fill=ALARM, edge=BAD, round=3)
        self.words(x, y + 4, arrow.wrong, size=NUMBER, colour=INK, bold=True)


def _notes(plan: Plan, small: bool) -> list[str]:
    """Return the legend of the boxes and arrows."""
    box = "Each box is a chunk, coloured by the chip that it "
    if plan.adds:
        box += f"belongs to, and fills up with the parts of all {plan.group_size} chips"
    else:
        box += "comes from"
        box += ", as parts for this chip and those after it" * (plan.collective == "all_to_all")
    links = f", over {plan.links} links at once" if plan.links > 1 else ""
    colours = "" if small else ": its bytes, and the colours of its chunks"
    plus = "" if small else ", with a plus,"
    added = f"; orange{plus} where the chip adds it to its own" if plan.adds else ""
    return [
        f"{box}; a rim: new in this step.",
        f"Each arrow is a message over a link{links}{colours}{added}.",
    ]


def step_figure(step: StepPicture) -> Figure:
    """Return a step with words."""
    title = f"{title_of(step.plan)} · {step.caption}"
    notes = _notes(step.plan, small=False)
    return Figure(title, [StepDrawing(step)], notes, step.text, step.problem)


def draw_step(plan: Plan, number: int) -> Figure:
    """Draw what each chip holds after a step of a plan, and the step's messages on their links.

    Args:
        number: of the step; 0 is the moment before the first.

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
    return step_figure(step_pictures(plan)[number])


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


def draw_plan(plan: Plan) -> Figure:
    """Draw all steps of a plan; of many steps some, and a note that lists the others."""
    pictures = step_pictures(plan)
    shown, notes = chosen(pictures), _notes(plan, small=True)
    left_out = set(range(len(pictures))) - set(shown)
    if left_out:
        notes.insert(0, f"Left out: steps {ranges(left_out)}.")
    drawings = [StepDrawing(pictures[number], small=True) for number in shown]
    return Figure(summary_of(plan), drawings, notes, plan_text(pictures), pictures[0].problem)


def stepper(plan: Plan) -> Any:
    """Return a widget that shows one moment of a plan: a play button and a slider."""
    import ipywidgets as widgets

    pictures = step_pictures(plan)
    last = len(pictures) - 1
    play = widgets.Play(min=0, max=last, interval=1200)
    slider = widgets.IntSlider(min=0, max=last, description="step")
    label, figure = widgets.Label(), widgets.HTML()

    def show(_: Any = None) -> None:
        number = slider.value
        sent = plan.bytes_per_step[:number]
        label.value = (
            f"{size_text(sent[-1] if sent else 0)} in this step, "
            f"{size_text(sum(sent))} of {size_text(plan.total_bytes)} so far"
        )
        figure.value = step_figure(pictures[number])._repr_html_()

    widgets.jslink((play, "value"), (slider, "value"))
    slider.observe(show, "value")
    show()
    controls = widgets.HBox([play, slider, label], layout={"flex_flow": "row wrap"})
    return widgets.VBox([controls, figure])

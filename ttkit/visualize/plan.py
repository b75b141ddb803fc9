"""Pictures of plans: the chunks on each chip after a step, and the transfers on their links."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ttkit.errors import TTKitError, fail
from ttkit.plans import Plan, Transfer
from ttkit.visualize.cells import PAPER, SIZE, Box, Cell, Cells, Grid, Pair
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
from ttkit.words import counted

LONGEST = 6  # A line of more chips is folded: chips are wider here than in the picture of a mesh.
MOST = 12  # A plan of at most so many steps is shown whole on one page.
# Each row is for chips that hold at most so many chunks; it has the columns, and the width and
# height of a box.
BOXES = ((4, 2, 24, 22), (8, 4, 24, 22), (64, 8, 9, 9), (math.inf, 16, 6, 6))
SHARE_H = 33  # A box with "3/8" under its number has this height.
# How drawings are laid out: one step alone, and one of several on a page.
ALONE: dict[str, Any] = {"gap": (46, 50)}
SMALL: dict[str, Any] = {"gap": (18, 22), "frame": ""}
# Each chip maps its chunks to the chips that have contributed to them.
State = dict[int, dict[int, frozenset[int]]]


# ---------------------------------------------------------------- what a picture shows
@dataclass(frozen=True)
class Arrow:
    """The transfers of a step from one chip to another.

    Args:
        wrong: the reason why they cannot be sent, or "".
    """

    source: int
    destination: int
    transfers: tuple[Transfer, ...]
    wrong: str = ""

    @property
    def reduce(self) -> bool:
        """Whether the destination adds what arrives."""
        return any(t.reduce for t in self.transfers)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The chunks of all transfers."""
        return tuple(c for t in self.transfers for c in t.chunks)

    @property
    def bytes(self) -> int:
        """The size of all transfers."""
        return sum(t.bytes or 0 for t in self.transfers)

    @property
    def brings(self) -> str:
        """Its size and its chunks in words."""
        chunks = f"{'chunk' if len(self.chunks) == 1 else 'chunks'} {ranges(self.chunks)}"
        return f"{size_text(self.bytes)}, {chunks}"


@dataclass(frozen=True)
class StepPicture:
    """What a picture of a step shows: the chips after it, and its transfers.

    Args:
        number: of the step; 0 is the moment before the first.
        slots: for each chip the chunks that it holds at some time or should hold at the end.
        before, after: the chunks of each chip before and after the step.
        problem: the error of `plan.validate()`, "" for a valid plan.
        wrong: whether the error names this step.
        names: of the chips, such as {4: "a"}; a chip without a name goes by its device id.
    """

    plan: Plan
    number: int
    grid: Grid
    slots: dict[int, tuple[int, ...]]
    before: State
    after: State
    arrows: tuple[Arrow, ...]
    problem: str = ""
    wrong: bool = False
    names: Mapping[int, str] = field(default_factory=dict)

    def name(self, chip: int) -> str:
        """Return what a chip is called: its name and its device id, as far as there are any."""
        return f"{self.names[chip]} (device {chip})" if chip in self.names else f"device {chip}"

    def forward(self, source: int, destination: int) -> bool:
        """Return whether an arrow between two chips is drawn downwards, or to the right."""
        at = self.plan.topology.place
        return self.grid.spot(at[source]) < self.grid.spot(at[destination])

    def parts(self, chip: int, chunk: int) -> int:
        """Return how many chips have contributed to a chunk that a chip holds."""
        return len(self.after[chip][chunk]) if self.plan.adds else 1

    def holds(self, chip: int) -> str:
        """Return which chunks a chip holds, and how much of each sum."""
        whole, same = whole_of(self.plan), dict[int, list[int]]()
        for chunk in self.after[chip]:
            same.setdefault(self.parts(chip, chunk), []).append(chunk)
        texts = []
        for parts in sorted(same):
            share = f" ({parts} of {whole} parts)" if whole > 1 else ""
            texts.append(ranges(same[parts]) + share)
        return f"{self.name(chip)} holds {'; '.join(texts) or 'nothing'}"

    @property
    def sent(self) -> int:
        """How many transfers the step has."""
        return sum(len(arrow.transfers) for arrow in self.arrows)

    @property
    def size(self) -> str:
        """The bytes of all transfers, in words."""
        return size_text(sum(arrow.bytes for arrow in self.arrows))

    @property
    def caption(self) -> str:
        """The step and what it sends.

        Example:
            >>> from ttkit.plans import all_gather, topology
            >>> [picture.caption for picture in step_pictures(all_gather(topology("n300"), 4096))]
            ['start', 'step 1: 8 KiB in 2 transfers']
        """
        if not self.number:
            return "start"
        return f"step {self.number}: {self.size} in {counted(self.sent, 'transfer')}"

    @property
    def text(self) -> str:
        """The step for pages without pictures: its transfers, and what each chip holds."""
        lines = [f"{title_of(self.plan)} · {self.caption}"]
        for arrow in self.arrows:
            sign = "+>" if arrow.reduce else "->"
            wrong = f" ({arrow.wrong})" if arrow.wrong else ""
            ends = (self.names.get(chip, chip) for chip in (arrow.source, arrow.destination))
            way = f" {sign} ".join(map(str, ends))
            lines.append(f"{way}: {arrow.brings}{wrong}")
        lines += map(self.holds, self.after)
        return "\n".join([*lines, *([self.problem] if self.problem else [])])


def whole_of(plan: Plan) -> int:
    """Return how many chips contribute to a finished chunk."""
    return plan.group_size if plan.adds else 1


def title_of(plan: Plan) -> str:
    """Return the plan in the title of a picture."""
    rows, columns = plan.topology.shape
    along = "" if plan.axis is None else f" along axis {plan.axis}"
    return f"{plan.collective}{along} on {plan.topology.name} {rows}x{columns}, {plan.algorithm}"


def problem_of(plan: Plan) -> tuple[str, int]:
    """Return the error of `plan.validate()` and the step it names; ("", 0) for a valid plan."""
    try:
        plan.validate()
    except TTKitError as error:
        message = str(error).replace("\n  try:", "; try:")
        named = re.match(r"step (\d+) of", message)
        return message, int(named[1]) if named else len(plan.steps)
    return "", 0


def step_pictures(plan: Plan, names: Sequence[str] = ()) -> list[StepPicture]:
    """Return the pictures of all moments, before the first step and after each; of bad plans too.

    A chip has a slot for each chunk that it holds at some time or should hold at the end.

    Args:
        names: of the chips, in the order of the mesh, such as "abcd".
    """
    states = list(_states(plan))
    slots = {}
    # A chip never drops a chunk, so its first and last state have all chunks that it ever holds.
    for chip in plan.topology.chips:
        ever = {*plan.goal(chip), *states[0].get(chip, ()), *states[-1].get(chip, ())}
        slots[chip] = tuple(sorted(ever))
    topology, at = plan.topology, plan.topology.place
    pairs = sorted((at[a], at[b]) for a, b in topology.pairs if at[a] < at[b])
    grid = Grid("", topology.shape, topology.chips, tuple(pairs), topology.links).folded(LONGEST)
    problem, where = problem_of(plan)
    known = dict(zip(topology.chips, names))
    pictures = []
    for number, (before, after) in enumerate(itertools.pairwise([states[0], *states])):
        arrows = tuple(_arrows(plan, number, before)) if number else ()
        wrong = bool(problem) and number == where
        pictures.append(
            StepPicture(plan, number, grid, slots, before, after, arrows, problem, wrong, known)
        )
    return pictures


def _states(plan: Plan) -> Iterator[State]:
    """As `plan.states()`; a plan that cannot go on stays as it is."""
    state, left = {}, len(plan.steps) + 1
    try:
        for state in plan.states():
            yield state
            left -= 1
    except KeyError:  # The plan names a chip or a chunk that does not exist.
        yield from itertools.repeat(state, left)


def _arrows(plan: Plan, number: int, before: State) -> Iterator[Arrow]:
    ways: dict[tuple[int, int, str], list[Transfer]] = {}
    for t in plan.steps[number - 1]:
        if not plan.topology.joined(t.source, t.destination):
            wrong = "no cable"
        else:
            wrong = "" if all(c in before[t.source] for c in t.chunks) else "not held"
        ways.setdefault((t.source, t.destination, wrong), []).append(t)
    for (source, destination, wrong), transfers in ways.items():
        yield Arrow(source, destination, tuple(transfers), wrong)


# ---------------------------------------------------------------- one step
def step_cells(
    step: StepPicture,
    small: bool = False,
    title: str = "",
    glides: Collection[Pair] | None = None,
) -> Cells:
    """Draw what each chip holds after a step, and the step's transfers on their links.

    Args:
        small: one of several on a page.
        title: its caption; by default the step and what it sends.
        glides: the (chip, chunk) that glide; by default all that are new.
    """
    grid = replace(step.grid, title=title or step.caption, links=1 if small else step.grid.links)
    look = SMALL if small else ALONE
    drawing = Cells(grid, _chips(step, small, glides), colour="var(--frame)", **look)
    for arrow in step.arrows:
        if not arrow.wrong:
            course = way(drawing, step, arrow.source, arrow.destination)
            drawing.arrow(*course, colour="var(--curve)" if arrow.reduce else "var(--link)")
    # Labels are drawn after all arrows, so that no arrow hides them.
    for arrow in step.arrows:
        if arrow.wrong:
            _wrong(drawing, step, arrow)
        elif not small:
            _label(drawing, step, arrow)
    return drawing


def _chips(step: StepPicture, small: bool, glides: Collection[Pair] | None) -> list[Cell]:
    """Return the chips with their chunks; those that glide know where they come from."""
    plan, whole, slots = step.plan, whole_of(step.plan), step.slots
    most = max(1, *map(len, slots.values()))
    columns, *box = next(size for limit, *size in BOXES if most <= limit)
    shares = most <= 8 and plan.adds and plan.group_size < 100
    if shares:
        box = [math.ceil(width_of(f"{whole}/{whole}", SIZE)) + 5, SHARE_H]
    chips = step.grid.devices
    sources: dict[Pair, list[Pair]] = {}
    for arrow in step.arrows:
        for chunk in arrow.chunks if not arrow.wrong else ():
            key = arrow.destination, chunk
            if glides is None or key in glides:
                come = chips.index(arrow.source), slots[arrow.source].index(chunk)
                sources.setdefault(key, []).append(come)
    added = {(a.destination, chunk) for a in step.arrows if a.reduce for chunk in a.chunks}
    cells = []
    for chip, label in zip(chips, step.grid.labels):
        boxes = []
        for chunk in slots[chip]:
            if chunk not in step.after[chip]:
                boxes.append(Box())
                continue
            parts, come_from = step.parts(chip, chunk), sources.get((chip, chunk), ())
            about = f"{parts}/{whole}" if shares else ""
            new = step.before[chip].get(chunk) != step.after[chip][chunk]
            part = (0, 1 - parts / whole, 1, parts / whole)
            box_of = Box([str(chunk)], about, tone(chunk), part, new, sources=come_from)
            boxes.append(replace(box_of, added=(chip, chunk) in added))
        name = f"device {chip} {label}"
        if small or chip in step.names:
            name = str(step.names.get(chip, chip)) if small else step.name(chip)
        size = float(box[0]), float(box[1])
        cells.append(Cell(name, boxes=boxes, columns=min(columns, most), box=size))
    return cells


def way(drawing: Cells, step: StepPicture, source: int, destination: int) -> tuple[Point, ...]:
    """Return the course of an arrow between two chips: each way on its own side of the link."""
    at = step.plan.topology.place
    off = min(9.0, drawing.gap_x / 5)
    out = 1.4 * off
    if step.forward(source, destination):
        off, out = -off, -2
    return drawing.course(at[source], at[destination], off, out)


def _label(drawing: Cells, step: StepPicture, arrow: Arrow) -> None:
    """Write on an arrow the numbers of its chunks, with a plus if the chip adds them."""
    (x1, y1), (x2, y2), (right, up) = way(drawing, step, arrow.source, arrow.destination)
    x, y = (x1 + x2) / 2 + 0.85 * right, (y1 + y2) / 2 + 0.85 * up
    if abs(x2 - x1) <= abs(y2 - y1):  # Labels of a vertical link would not fit side by side.
        y += -9 if step.forward(arrow.source, arrow.destination) else 9
    chunks = ranges(arrow.chunks)
    text = chunks if len(chunks) <= 5 else f"{len(arrow.chunks)} x"
    fill = tone(arrow.chunks[0]) if len(set(arrow.chunks)) == 1 else PAPER
    ends = " to ".join(map(step.name, (arrow.source, arrow.destination)))
    adds = ", which adds it" if arrow.reduce else ""
    look = {"fill": fill, "edge": INK, "hover": f"{ends}{adds}: {arrow.brings}"}
    drawing.badge(x, y, f"+{text}" if arrow.reduce else text, **look)


def _wrong(drawing: Cells, step: StepPicture, arrow: Arrow) -> None:
    """Draw a dashed red line for what cannot be sent, with the reason."""
    at = step.plan.topology.place
    if arrow.source not in at or arrow.destination not in at:
        return  # A line cannot end at a chip that does not exist.
    start, end = (drawing.centre(at[chip]) for chip in (arrow.source, arrow.destination))
    drawing.line(start, end, colour=BAD, width=2.5, dash="6 4")
    middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    drawing.badge(*middle, arrow.wrong, fill=ALARM, edge=BAD)


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
    if most > 8:
        box += "; chunks stand in the order of their numbers"
    links = f", over {plan.links} links at once" if plan.links > 1 else ""
    numbers = "" if small else ", with the numbers of its chunks"
    added = "; orange where the chip adds it to its own" if plan.adds else ""
    return [
        f"{box}. A rim: new in this step.",
        f"Each arrow is a transfer from chip to chip{links}{numbers}{added}.",
    ]


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


def step_figure(step: StepPicture) -> Figure:
    """Return a step with words."""
    title = f"{title_of(step.plan)} · {step.caption}"
    return Figure(title, [step_cells(step)], _notes(step, small=False), step.text, step.problem)


def chosen(pictures: list[StepPicture]) -> list[int]:
    """Return the steps that a page shows: all, or some of many, and the one that goes wrong.

    Example:
        >>> from ttkit.plans import all_gather, topology
        >>> chosen(step_pictures(all_gather(topology("galaxy_torus", (1, 32)), 1024)))
        [0, 1, 2, 3, 8, 15, 16]
    """
    last = len(pictures) - 1
    if last <= MOST:
        return list(range(last + 1))
    wrong = (picture.number for picture in pictures if picture.wrong)
    return sorted({0, 1, 2, 3, last // 2, last - 1, last, *wrong})


def draw_plan(plan: Plan, names: Sequence[str] = ()) -> Figure:
    """Draw all steps of a plan; of many steps some, and a note that lists the others.

    The text has a line for each step: transfers, bytes, and how much the chips hold after it."""
    pictures = step_pictures(plan, names)
    title = f"{title_of(plan)} · {counted(len(plan.steps), 'step')}, "
    title += f"{size_text(plan.total_bytes)} in all"
    problem, lines = pictures[0].problem, [title]
    head = f"{'step':>6} {'transfers':>9} {'bytes':>10}  chunks held"
    lines.append(head + (", finished sums" if plan.adds else ""))
    for now in pictures:
        held = [now.parts(chip, chunk) for chip, chunks in now.after.items() for chunk in chunks]
        done = f", {held.count(whole_of(plan))}" if plan.adds else ""
        number = now.number or "start"
        lines.append(f"{number:>6} {now.sent:>9} {now.size:>10}  {len(held)}{done}")
    text = "\n".join([*lines, *([problem] if problem else [])])

    shown, notes = chosen(pictures), _notes(pictures[0], small=True)
    left_out = set(range(len(pictures))) - set(shown)
    if left_out:
        notes.insert(0, f"Left out: steps {ranges(left_out)}.")
    drawings = []
    for number in shown:
        caption = f"step {number} goes wrong" if pictures[number].wrong else ""
        drawings.append(step_cells(pictures[number], small=True, title=caption, glides=()))
    return Figure(title, drawings, notes, text, problem)

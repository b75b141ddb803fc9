"""Pictures of plans: the chunks on each chip after a step, and the transfers on their links."""

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ttkit.errors import TTKitError, fail
from ttkit.plans import Plan, Transfer
from ttkit.visualize.cells import PAPER, SIZE, Box, Cell, Cells, Grid, Pair
from ttkit.visualize.drawing import (
    ALARM,
    BAD,
    INK,
    Figure,
    Frames,
    Point,
    ranges,
    size_text,
    tone,
    width_of,
)
from ttkit.words import counted, grouped

LONGEST = 6  # A line of more chips than this is folded, since chips are wide here.
MOST = 12  # A plan of at most this many steps is shown whole on one page.
# Each row is (most, columns, width, height). It is used if no chip has more than `most` chunks. It
# gives the number of columns of boxes, and the size of a box in px.
BOXES = ((4, 2, 24, 22), (8, 4, 24, 22), (64, 8, 13, 12), (math.inf, 16, 6, 6))
SHARE_H = 30  # A box whose lower half shows the part of a sum has this height.
# A state maps each chip to its chunks, and each chunk to the chips that have contributed to it.
State = dict[int, dict[int, frozenset[int]]]


# ---------------------------------------------------------------- what a picture shows
class Arrow(NamedTuple):
    """The transfers of a step from one chip to another.

    Attributes:
        why_not: the reason why the transfers cannot be sent, or "".
    """

    source: int
    destination: int
    why_not: str
    transfers: tuple[Transfer, ...]

    @property
    def reduce(self) -> bool:
        """Whether the destination adds the chunks that arrive to its own."""
        return any(t.reduce for t in self.transfers)

    @property
    def chunks(self) -> list[int]:
        """The chunks of all transfers."""
        return [c for t in self.transfers for c in t.chunks]

    @property
    def brings(self) -> str:
        """The size of the transfers and the numbers of their chunks, in words."""
        chunks = f"{'chunk' if len(self.chunks) == 1 else 'chunks'} {ranges(self.chunks)}"
        return f"{_size(self.transfers)}, {chunks}"


class StepPicture(NamedTuple):
    """The contents of a picture of a step: the chips after the step, and the step's transfers.

    Args:
        number: the number of the step; 0 is the moment before the first step.
        names: names of chips, such as {4: "a"}; a chip without a name is called by its device id.
        slots: for each chip the chunks that it holds at some time or should hold at the end.
        before, after: the chunks of each chip before and after the step.
        problem: the error of `plan.validate()`, "" for a valid plan.
        goes_wrong: whether the error names this step.
    """

    plan: Plan
    number: int
    names: Mapping[int, str]
    slots: dict[int, tuple[int, ...]]
    before: State
    after: State
    problem: str = ""
    goes_wrong: bool = False

    @property
    def sent(self) -> Sequence[Transfer]:
        """The transfers of the step."""
        return tuple(self.plan.steps[self.number - 1]) if self.number else ()

    @property
    def arrows(self) -> list[Arrow]:
        """The transfers of the step, grouped by source, destination and `why_not`."""

        def way(t: Transfer) -> tuple[int, int, str]:
            held = self.before.get(t.source, {}).keys() >= set(t.chunks)
            joined = self.plan.topology.joined(t.source, t.destination)
            why_not = "no cable" if not joined else "" if held else "not held"
            return t.source, t.destination, why_not

        return [Arrow(*key, tuple(same)) for key, same in grouped(self.sent, way).items()]

    def name(self, chip: int) -> str:
        """Return the name of a chip, or its device id if it has no name."""
        return self.names.get(chip, f"device {chip}")

    def contributors(self, chip: int, chunk: int) -> int:
        """Return how many chips have contributed to a chunk that a chip holds."""
        return len(self.after[chip][chunk]) if self.plan.adds else 1

    def holds(self, chip: int) -> str:
        """Return in words which chunks a chip holds, and how many parts of each sum."""
        whole = contributors_in_all(self.plan)
        same = grouped(self.after[chip], lambda chunk: self.contributors(chip, chunk))
        texts = []
        for parts in sorted(same):
            share = f" ({parts} of {whole} parts)" if whole > 1 else ""
            texts.append(ranges(same[parts]) + share)
        return f"{self.name(chip)} holds {'; '.join(texts) or 'nothing'}"

    @property
    def caption(self) -> str:
        """The number of the step, and the size and number of its transfers.

        Example:
            >>> from ttkit.plans import all_gather, topology
            >>> [picture.caption for picture in step_pictures(all_gather(topology("n300"), 4096))]
            ['start', 'step 1: 8 KiB in 2 transfers']
        """
        sent = f"{_size(self.sent)} in {counted(len(self.sent), 'transfer')}"
        return f"step {self.number}: {sent}" if self.number else "start"

    @property
    def title(self) -> str:
        """The title and the algorithm of the plan."""
        return f"{self.plan.title}, {self.plan.algorithm}"

    @property
    def text(self) -> str:
        """The step as text: its transfers, and the chunks that each chip holds after it."""
        lines = [f"{self.title} · {self.caption}"]
        for arrow in self.arrows:
            why_not = f" ({arrow.why_not})" if arrow.why_not else ""
            source, to = (self.names.get(chip, chip) for chip in arrow[:2])
            lines.append(f"{source} {'+>' if arrow.reduce else '->'} {to}: {arrow.brings}{why_not}")
        return "\n".join([*lines, *map(self.holds, self.after), self.problem]).rstrip("\n")


def _size(transfers: Sequence[Transfer]) -> str:
    return size_text(sum(t.bytes or 0 for t in transfers))


def contributors_in_all(plan: Plan) -> int:
    """Return how many chips contribute to a finished chunk."""
    return plan.group_size if plan.adds else 1


def problem_of(plan: Plan, names: Sequence[str] = ()) -> tuple[str, int]:
    """Return the error of `plan.validate()`, and the number of the step that goes wrong.

    In the error a name stands in place of an id after the word "chip"; ids in a list of chips stay.
    A valid plan gives ("", -1).
    """
    named = dict(zip(map(str, plan.topology.chips), names))
    try:
        plan.validate()
    except TTKitError as error:
        message = str(error).replace("\n  try:", "; try:")
        step = re.match(r"step (\d+) of", message)
        message = re.sub(r"chip (\d+)", lambda id: f"chip {named.get(id[1], id[1])}", message)
        return message, int(step[1]) if step else len(plan.steps)
    return "", -1


def step_pictures(plan: Plan, names: Sequence[str] = ()) -> list[StepPicture]:
    """Return pictures of a plan, even of a wrong one: before the first step, and after each step.

    A chip has a slot for each chunk that it holds at some time or should hold at the end.

    Args:
        names: the names of the chips, in the order of the mesh, such as "abcd".
    """
    chips, (problem, where) = plan.topology.chips, problem_of(plan, names)
    states: list[State] = []
    # A transfer of a chunk that its source does not hold raises KeyError. The states from there on
    # repeat the last one.
    with suppress(KeyError):
        states += plan.states()
    states += states[-1:] * (len(plan.steps) + 1 - len(states))
    # A chip never drops a chunk, so its last state has all chunks that it ever holds.
    slots = {chip: tuple(sorted({*plan.goal(chip), *states[-1].get(chip, ())})) for chip in chips}
    named = dict(zip(chips, names))
    pairs = itertools.pairwise([states[0], *states])
    return [
        StepPicture(plan, number, named, slots, before, after, problem, number == where)
        for number, (before, after) in enumerate(pairs)
    ]


# ---------------------------------------------------------------- one step
class StepCells(Cells):
    """The drawing of what each chip holds after a step, and of the step's transfers on links.

    Args:
        small: whether this is one of several drawings on a page.
        glides: the (chip, chunk) that glide; by default all that arrive, and none if `small`.
        framed: whether a frame with the caption of the step is around the chips.
    """

    def __init__(
        self,
        step: StepPicture,
        small: bool = False,
        glides: Collection[Pair] | None = None,
        framed: bool = True,
    ):
        self.step, topology = step, step.plan.topology
        self.at = topology.place
        pairs = sorted((self.at[a], self.at[b]) for a, b in topology.pairs)
        grid = Grid(
            f"step {step.number} goes wrong" if small and step.goes_wrong else step.caption,
            topology.shape,
            topology.chips,
            tuple((a, b) for a, b in pairs if a < b),
            1 if small else topology.links,
        ).folded(LONGEST)
        chips = self._chips(grid, small, () if small else glides)
        gap = (18, 22) if small else (46, 28)
        frame = step.caption if framed and not small else ""
        super().__init__(grid, chips, frame=frame, gap=gap, colour="var(--frame)")
        for arrow in step.arrows:
            if not arrow.why_not:
                colour = "var(--curve)" if arrow.reduce else "var(--link)"
                self.arrow(*self.way(arrow.source, arrow.destination), colour)
        # Labels are drawn after all arrows, so that no arrow hides a label. Transfers that cannot
        # be sent come last.
        for arrow in sorted(step.arrows, key=lambda arrow: arrow.why_not):
            if arrow.why_not and {*arrow[:2]} <= self.at.keys():
                self._draw_impossible(arrow, ["✕"] if small else arrow.why_not.split())
            elif not arrow.why_not and not small:
                self._label(arrow)

    def _chips(self, grid: Grid, small: bool, glides: Collection[Pair] | None) -> list[Cell]:
        """Return the chips with their chunks; a chunk that glides has the boxes of its sources."""
        step = self.step
        plan = self.step.plan
        slots = self.step.slots
        whole = contributors_in_all(plan)
        most = max(1, *map(len, slots.values()))
        columns, wide, high = next(row for limit, *row in BOXES if most <= limit)
        texts = most <= 8  # More boxes are too small for texts.
        high = SHARE_H if texts and plan.adds else high
        sources: dict[Pair, list[Pair]] = {}
        added = set()
        for arrow in step.arrows:
            for chunk in arrow.chunks:
                key = arrow.destination, chunk
                if not arrow.why_not and (glides is None or key in glides):
                    come = self.at[arrow.source], slots[arrow.source].index(chunk)
                    sources.setdefault(key, []).append(come)
                added |= {key} if arrow.reduce else set()
        cells = []
        for chip, label in zip(grid.devices, grid.labels):
            boxes = []
            for chunk in slots[chip]:
                if chunk not in step.after[chip]:
                    boxes.append(Box([str(chunk)]))  # The chunk has not arrived yet.
                    continue
                key = (chip, chunk)
                share = step.contributors(chip, chunk)
                top = 0.5 if texts and share < whole else 0
                box = Box(
                    [str(chunk)] * texts,
                    fill=tone(chunk),
                    part=(0, top, share / whole, 1 - top),
                    new=step.before[chip].get(chunk) != step.after[chip][chunk],
                    sources=sources.get(key, ()),
                    added=key in added,
                )
                boxes.append(box)
            name = step.names.get(chip, str(chip))
            lines = []
            if not small and chip not in step.names:
                name, lines = "", [f"{label} device {chip}"]
            cells.append(
                Cell(name, lines, boxes=boxes, columns=min(columns, most), box=(wide, high))
            )
        return cells

    def way(self, source: int, destination: int) -> tuple[Point, Point, Point]:
        """Return the course of an arrow between two chips.

        The arrows of the two directions are on different sides of the link.
        """
        a, b = self.at[source], self.at[destination]
        off = min(9.0, self.gap_x / 5)
        forward = self.grid.spot(a) < self.grid.spot(b)  # True if it points down or right.
        return self.course(a, b, -off, -2) if forward else self.course(a, b, off, 1.4 * off)

    def _label(self, arrow: Arrow) -> None:
        """Write the chunk numbers of an arrow on it, with a plus if the destination adds them.

        If the numbers are too long, write only how many chunks there are.
        """
        source, to, (first, *_) = arrow.source, arrow.destination, arrow.chunks
        (x1, y1), (x2, y2), (right, up) = self.way(source, to)
        x = (x1 + x2) / 2 + 0.85 * right
        y = (y1 + y2) / 2 + 0.85 * up
        chunks = ranges(arrow.chunks)
        fill = tone(first) if len(set(arrow.chunks)) == 1 else PAPER
        plus, adds = ("+", ", which adds it") if arrow.reduce else ("", "")
        text = plus + (chunks if len(chunks) <= 5 else f"{len(arrow.chunks)} x")
        # The labels of the two directions of a vertical link stand side by side, those of two arcs
        # one above the other.
        down = 1 if y1 < y2 else -1
        if right:
            x, y = x - 3, y - 9 * down
        elif x1 == x2:
            x -= (width_of(text, SIZE, bold=True) / 2 - 5) * down
        hover = f"{self.step.name(source)} to {self.step.name(to)}{adds}: {arrow.brings}"
        self.badge(x, y, text, fill=fill, stroke=INK, hover=hover)

    def _draw_impossible(self, arrow: Arrow, why_not: Sequence[str]) -> None:
        """Draw a dashed red line for a transfer that cannot be sent, and write the reason on it."""
        (x1, y1), (x2, y2), (right, up) = way = self.way(arrow.source, arrow.destination)
        self.line(*way, stroke=BAD, stroke_width=2.5, stroke_dasharray="6 4")
        x, y = (x1 + x2) / 2 + 0.75 * right, (y1 + y2) / 2 + 0.75 * up
        self.badge(x, y, *why_not, fill=ALARM, stroke=BAD, hover=arrow.why_not)


# ---------------------------------------------------------------- figures
def _notes(picture: StepPicture, small: bool) -> list[str]:
    """Return the legend of the boxes and arrows."""
    plan = picture.plan
    most = max(map(len, picture.slots.values()), default=0)
    box = "Each box is a chunk, without colour until it has arrived"
    if plan.adds:
        box += f"; its bar grows with the parts of the {plan.group_size} chips"
    if plan.collective == "all_to_all":
        box += "; it has parts for this chip and those after it"
    if most > 8:
        box += "; chunks stand in the order of their numbers"
    links = f", over {plan.links} links at once" if plan.links > 1 else ""
    numbers = "" if small else ", with the numbers of its chunks"
    added = "; orange where the chip adds it to its own chunk" if plan.adds else ""
    return [
        f"{box}. An outline marks what is new in this step; point at a chunk to follow it.",
        f"Each arrow is a transfer from chip to chip{links}{numbers}{added}.",
    ]


def draw_step(plan: Plan, number: int, names: Sequence[str] = ()) -> Figure:
    """Draw what each chip holds after a step of a plan, and the step's transfers on their links.

    Args:
        number: the number of the step; 0 is the moment before the first step.
        names: the names of the chips, in the order of the mesh, such as "abcd".

    Raises:
        TTKitError: the plan has no step of this number.

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


def step_figure(step: StepPicture, note: str = "") -> Figure:
    """Return the figure of a step: its drawing, title, notes and text.

    Args:
        note: a note below the chips; the caption of the step is then there, and not at a frame.
    """
    drawing = StepCells(step, framed=not note)
    notes = _notes(step, small=False)
    if note:
        notes.insert(0, f"{'after ' if step.number else ''}{step.caption}; {note}")
    return Figure(step.title, [drawing], notes, step.text, step.problem)


def chosen(pictures: list[StepPicture]) -> list[int]:
    """Return the numbers of the steps that a page shows.

    A page shows all steps of a plan of at most `MOST` steps. Of a longer plan it shows some steps,
    always with the one that goes wrong.

    Example:
        >>> from ttkit.plans import all_gather, topology
        >>> chosen(step_pictures(all_gather(topology("galaxy_torus", (1, 32)), 1024)))
        [0, 1, 2, 3, 8, 15, 16]
    """
    last = len(pictures) - 1
    if last <= MOST:
        return list(range(last + 1))
    wrong = (picture.number for picture in pictures if picture.goes_wrong)
    return sorted({0, 1, 2, 3, last // 2, last - 1, last, *wrong})


def draw_plan(plan: Plan, names: Sequence[str] = (), moving: bool = False) -> Figure:
    """Draw the steps of a plan. If there are more than `MOST`, draw some and list the others.

    The text has a line for each step: its transfers and bytes, and how many chunks the chips hold
    after it.

    Args:
        moving: whether one drawing plays the steps one after the other; otherwise each step has a
            drawing.
    """
    pictures = step_pictures(plan, names)
    title = f"{pictures[0].title} · {counted(len(plan.steps), 'step')}, "
    title += f"{size_text(plan.total_bytes)} in all"
    problem, lines = pictures[0].problem, [title]
    head = f"{'step':>6} {'transfers':>9} {'bytes':>10}  chunks held"
    lines.append(head + (", finished sums" if plan.adds else ""))
    for now in pictures:
        held = [
            now.contributors(chip, chunk) for chip, chunks in now.after.items() for chunk in chunks
        ]
        done = f", {held.count(contributors_in_all(plan))}" if plan.adds else ""
        sent = f"{len(now.sent):>9} {_size(now.sent):>10}"
        lines.append(f"{now.number or 'start':>6} {sent}  {len(held)}{done}")
    shown = chosen(pictures)
    notes = _notes(pictures[0], small=not moving)
    if left_out := set(range(len(pictures))) - set(shown):
        notes.insert(0, f"Left out: steps {ranges(left_out)}.")
    steps = [StepCells(pictures[number], small=not moving) for number in shown]
    drawings = [Frames(steps)] if moving else steps
    text = "\n".join([*lines, *([problem] if problem else [])])
    return Figure(title, drawings, notes, text, problem)

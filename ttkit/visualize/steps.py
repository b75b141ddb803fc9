"""What pictures of plans show: the chunks on each chip after each step, and what a step sends."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ttkit.errors import TTKitError
from ttkit.plans import Plan, Transfer
from ttkit.visualize.cells import Grid
from ttkit.visualize.drawing import ranges, size_text
from ttkit.words import counted

LONGEST = 6  # A line of more chips is folded: chips are wider here than in the picture of a mesh.
# Each chip maps its chunks to the chips that have contributed to them.
State = dict[int, dict[int, frozenset[int]]]


@dataclass(frozen=True)
class Held:
    """A chunk on a chip, with the contributions of `parts` chips.

    Args:
        new: whether it arrived or grew in this step.
    """

    chunk: int
    parts: int
    new: bool


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
    def brings(self) -> str:
        """The chunks in words."""
        return f"{'chunk' if len(self.chunks) == 1 else 'chunks'} {ranges(self.chunks)}"

    @property
    def bytes(self) -> int:
        """The size of all transfers."""
        return sum(t.bytes or 0 for t in self.transfers)


@dataclass(frozen=True)
class StepPicture:
    """What a picture of a step shows: the chips after it, and its transfers.

    Args:
        number: of the step; 0 is the moment before the first.
        slots: for each chip the chunks that it holds at some time or should hold at the end.
        held: for each chip what it holds.
        problem: the error of `plan.validate()`, "" for a valid plan.
        wrong: whether the error names this step.
        names: of the chips, such as {4: "a"}; a chip without a name goes by its device id.
    """

    plan: Plan
    number: int
    grid: Grid
    slots: dict[int, tuple[int, ...]]
    held: dict[int, tuple[Held, ...]]
    arrows: tuple[Arrow, ...]
    problem: str = ""
    wrong: bool = False
    names: Mapping[int, str] = field(default_factory=dict)

    def name(self, chip: int) -> str:
        """Return what a chip is called: its name and its device id, as far as there are any."""
        return f"{self.names[chip]} (device {chip})" if chip in self.names else f"device {chip}"

    def forward(self, arrow: Arrow) -> bool:
        """Return whether an arrow is drawn downwards, or to the right."""
        at = self.plan.topology.place
        return self.grid.spot(at[arrow.source]) < self.grid.spot(at[arrow.destination])

    def holds(self, chip: int) -> str:
        """Return which chunks a chip holds, and how much of each sum."""
        held, whole = self.held[chip], whole_of(self.plan)
        texts = []
        for parts in sorted({one.parts for one in held}):
            share = f" ({parts} of {whole} parts)" if whole > 1 else ""
            texts.append(ranges(one.chunk for one in held if one.parts == parts) + share)
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
            lines.append(f"{way}: {size_text(arrow.bytes)}, {arrow.brings}{wrong}")
        lines += map(self.holds, self.held)
        return "\n".join([*lines, *([self.problem] if self.problem else [])])


def whole_of(plan: Plan) -> int:
    """Return how many chips contribute to a finished chunk."""
    return plan.group_size if plan.adds else 1


def title_of(plan: Plan) -> str:
    """Return the plan in the title of a picture."""
    rows, columns = plan.topology.shape
    along = "" if plan.axis is None else f" along axis {plan.axis}"
    return f"{plan.collective}{along} on {plan.topology.name} {rows}x{columns}, {plan.algorithm}"


def summary_of(plan: Plan) -> str:
    """Return the title with the number of steps and bytes."""
    steps = counted(len(plan.steps), "step")
    return f"{title_of(plan)} · {steps}, {size_text(plan.total_bytes)} in all"


def plan_text(pictures: list[StepPicture]) -> str:
    """Return a line for each step: transfers, bytes, and how much the chips hold after it."""
    plan, problem = pictures[0].plan, pictures[0].problem
    head = f"{'step':>6} {'transfers':>9} {'bytes':>10}  chunks held"
    lines = [summary_of(plan), head + (", finished sums" if plan.adds else "")]
    for picture in pictures:
        held = [one for chip in picture.held.values() for one in chip]
        done = sum(one.parts == whole_of(plan) for one in held)
        about = f"{len(held)}, {done}" if plan.adds else f"{len(held)}"
        number = picture.number or "start"
        lines.append(f"{number:>6} {picture.sent:>9} {picture.size:>10}  {about}")
    return "\n".join([*lines, *([problem] if problem else [])])


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
    for number, state in enumerate(states):
        before = states[max(number - 1, 0)]
        held = {}
        for chip, chunks in state.items():
            held[chip] = tuple(
                Held(c, len(parts) if plan.adds else 1, before[chip].get(c) != parts)
                for c, parts in sorted(chunks.items())
            )
        arrows = tuple(_arrows(plan, number, before)) if number else ()
        wrong = bool(problem) and number == where
        now = StepPicture(plan, number, grid, slots, held, arrows, problem, wrong, known)
        pictures.append(now)
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

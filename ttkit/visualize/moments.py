"""What pictures of plans show: the chunks on each chip after each step, and what is sent over
which cable.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ttkit.errors import TTKitError
from ttkit.plans import Plan, Transfer
from ttkit.plans.plan import REDUCES
from ttkit.visualize.mesh import MeshPicture, topology_picture
from ttkit.words import counted

LONGEST = 6  # chips in a line that is not folded: they are wider here than in the picture of a mesh


@dataclass(frozen=True)
class Held:
    """A chunk on a chip: with the contributions of `parts` chips out of the `of` of a finished
    sum, or a copy (1 of 1).
    """

    chunk: int
    parts: int
    of: int
    new: bool  # it has come, or grown, in this step


@dataclass(frozen=True)
class Arrow:
    """The messages of a step from one chip to another;

    `wrong` says why they cannot be sent, "" if they can.
    """

    source: int
    destination: int
    transfers: tuple[Transfer, ...]
    wrong: str = ""

    @property
    def reduce(self) -> bool:
        """True where the destination adds what arrives."""
        return any(t.reduce for t in self.transfers)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The chunks of all messages."""
        return tuple(c for t in self.transfers for c in t.chunks)

    @property
    def bytes(self) -> int:
        """The size of all messages."""
        return sum(t.bytes or 0 for t in self.transfers)


@dataclass(frozen=True)
class StepPicture:
    """What a picture of a step shows: the chips after it, and its messages.

    Args:
        number: of the step; 0 is the moment before the first.
        slots: for each chip the chunks that have a place in it: all that it holds at some time or
        should hold at the end. held: for each chip what it holds. problem: what `plan.validate()`
        says, "" for a good plan. wrong: this is the step that it names.
    """

    plan: Plan
    number: int
    mesh: MeshPicture
    slots: dict[int, tuple[int, ...]]
    held: dict[int, tuple[Held, ...]]
    arrows: tuple[Arrow, ...]
    problem: str = ""
    wrong: bool = False

    def forward(self, arrow: Arrow) -> bool:
        """True for an arrow that is drawn downwards, or to the right."""
        at = self.plan.topology.coordinate
        return self.mesh.spot(at(arrow.source)) < self.mesh.spot(at(arrow.destination))

    @property
    def caption(self) -> str:
        """The step and what it sends.

        Example:
            >>> from ttkit.plans import all_gather, topology
            >>> [picture.caption for picture in step_pictures(all_gather(topology("n300"), 4096))]
            ['start', 'step 1: 8 KiB in 2 messages']
        """
        if not self.number:
            return "start"
        messages = sum(len(arrow.transfers) for arrow in self.arrows)
        size = size_text(sum(arrow.bytes for arrow in self.arrows))
        return f"step {self.number}: {size} in {counted(messages, 'message')}"


def size_text(nbytes: float) -> str:
    """Bytes for people.

    Example:
        >>> size_text(1000), size_text(4096), size_text(1.5 * 2**20)
        ('1000 B', '4 KiB', '1.5 MiB')
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= size:
            amount = nbytes / size
            return (
                f"{amount:.0f} {unit}"
                if amount >= 100 or amount == int(amount)
                else f"{amount:.3g} {unit}"
            )
    return f"{nbytes:g} B"


def problem_of(plan: Plan) -> tuple[str, int]:
    """What `plan.validate()` says and the number of the step that it names;

    ("", 0) for a good plan.
    """
    try:
        plan.validate()
    except TTKitError as error:
        message = str(error).replace("\n  try:", "; try:")
        named = re.match(r"step (\d+) of", message)
        return message, int(named[1]) if named else len(plan.steps)
    return "", 0


def step_pictures(plan: Plan) -> list[StepPicture]:
    """The data of the pictures of all moments: before the first step, and after each; those of a
    bad plan too.
    """
    states = list(_states(plan))
    ever: dict[int, set[int]] = {chip: set(plan.goal(chip)) for chip in plan.topology.chips}
    for state in (states[0], states[-1]):  # nothing that is held is ever dropped
        for chip, chunks in state.items():
            ever[chip].update(chunks)
    slots = {chip: tuple(sorted(chunks)) for chip, chunks in ever.items()}
    mesh = topology_picture("", plan.topology, LONGEST)
    problem, where = problem_of(plan)
    whole = plan.group_size if plan.collective in REDUCES else 1
    pictures = []
    for number, state in enumerate(states):
        before = states[number - 1] if number else state
        held = {
            chip: tuple(
                Held(c, len(parts) if whole > 1 else 1, whole, before[chip].get(c) != parts)
                for c, parts in sorted(chunks.items())
            )
            for chip, chunks in state.items()
        }
        arrows = tuple(_arrows(plan, number, before)) if number else ()
        pictures.append(
            StepPicture(
                plan, number, mesh, slots, held, arrows, problem, bool(problem) and number == where
            )
        )
    return pictures


def _states(plan: Plan) -> Iterator[dict[int, dict[int, frozenset[int]]]]:
    """As `plan.states()`; a plan that cannot go on stays as it is."""
    state, left = {}, len(plan.steps) + 1
    try:
        for state in plan.states():
            yield state
            left -= 1
    except KeyError:  # a chip or a chunk that is not there
        yield from itertools.repeat(state, left)


def _arrows(
    plan: Plan, number: int, before: dict[int, dict[int, frozenset[int]]]
) -> Iterator[Arrow]:
    ways: dict[tuple[int, int, str], list[Transfer]] = {}
    for t in plan.steps[number - 1]:
        if not plan.topology.joined(t.source, t.destination):
            wrong = "no cable"
        else:
            wrong = "" if all(c in before[t.source] for c in t.chunks) else "not held"
        ways.setdefault((t.source, t.destination, wrong), []).append(t)
    for (source, destination, wrong), transfers in ways.items():
        yield Arrow(source, destination, tuple(transfers), wrong)


def title_of(plan: Plan) -> str:
    """The plan in the title of a picture."""
    rows, columns = plan.topology.shape
    along = "" if plan.axis is None else f" along axis {plan.axis}"
    return f"{plan.collective}{along} on {plan.topology.name} {rows}x{columns}, {plan.algorithm}"


def step_text(picture: StepPicture) -> str:
    """A step for pages without pictures: its messages, and what each chip holds."""
    lines = [f"{title_of(picture.plan)} · {picture.caption}"]
    for arrow in picture.arrows:
        sign, wrong = "+> " if arrow.reduce else "-> ", f" ({arrow.wrong})" if arrow.wrong else ""
        lines.append(
            f"{arrow.source} {sign}{arrow.destination}: {size_text(arrow.bytes)}, "
            f"chunks {ranges(arrow.chunks)}{wrong}"
        )
    for chip, held in picture.held.items():
        shares = itertools.groupby(
            sorted(held, key=lambda one: (one.parts, one.chunk)),
            key=lambda one: (one.parts, one.of),
        )
        texts = [
            ranges([one.chunk for one in ones]) + (f" ({parts} of {of} parts)" if of > 1 else "")
            for (parts, of), ones in shares
        ]
        lines.append(f"device {chip} holds {'; '.join(texts) or 'nothing'}")
    return "\n".join([*lines, *([picture.problem] if picture.problem else [])])


def ranges(numbers: Sequence[int]) -> str:
    """Whole numbers in short.

    Example:
        >>> ranges([0, 1, 2, 3, 7, 9, 10])
        '0-3, 7, 9, 10'
    """
    texts: list[str] = []
    for _, run in itertools.groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        found = [n for _, n in run]
        texts += [f"{found[0]}-{found[-1]}"] if len(found) > 2 else map(str, found)
    return ", ".join(texts)

"""A pipeline schedule as data: which stage does what in which order with which micro-batch.

A model is cut into stages, and a batch is cut into micro-batches. A stage does one
action at a time, in the order of its list, and waits for what the action needs:
activations from the stage before, gradients from the stage after. All other code reads
this one object: a schedule is checked, timed, drawn, graded and executed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

from ttkit.errors import fail
from ttkit.lazy import drawn_by
from ttkit.words import counted

KINDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_WRITTEN = re.compile(r"(\d{,9})([FBIW])(\d{1,9})")
# A caller gives one number for all stages, or one for each.
Each = float | Sequence[float]


class Action(NamedTuple):
    """One thing that a stage does with one micro-batch.

    It is written as its kind and the number of its micro-batch, such as F3. The number of the chunk
    comes first if it is not 0, such as 1F3.

    Args:
        kind: "F" is a forward and "B" a whole backward. A backward may be split in two parts: "I"
            computes the gradient of the input, which the stage before waits for, and "W" the
            gradients of the weights, which no stage waits for.
        micro_batch: the number of the micro-batch, from 0.
        chunk: the number of the chunk, a part of the model on this stage, from 0.

    Example:
        >>> Action("F", 3), Action.read("B0"), Action.read("1W2")
        (F3, B0, 1W2)
    """

    kind: str
    micro_batch: int
    chunk: int = 0

    @classmethod
    def read(cls, text: str | Action) -> Action:
        """Return the action that a text names, such as "1F3" or "F3"; "0F3" is the same as "F3".

        Raises:
            TTKitError: the text names no action.
        """
        if isinstance(text, Action):
            return text
        found = _WRITTEN.fullmatch(str(text))
        if not found:
            rule = f"an action is one of {', '.join(KINDS)} and a micro-batch's number"
            fail(f"the action {text!r}", rule, "'F3', or '1F3' for the second chunk of a stage")
        chunk, kind, micro_batch = found.groups()
        return cls(kind, int(micro_batch), int(chunk or 0))

    @property
    def after(self) -> Action | None:
        """The action that the same stage must do before this one, or None."""
        return None if self.kind == "F" else self._replace(kind="I" if self.kind == "W" else "F")

    def __repr__(self) -> str:
        return f"{self.chunk or ''}{self.kind}{self.micro_batch}"


class StageChunk(NamedTuple):
    """A part of the model: the stage that runs it, and its chunk number on this stage."""

    stage: int
    chunk: int = 0


class Message(NamedTuple):
    """The "activations" or "gradients" that one action makes and another action waits for."""

    what: str
    micro_batch: int
    source: StageChunk
    destination: StageChunk


class Task(NamedTuple):
    """An action with the message to receive before it and the message to send after it.

    A message is None if there is nothing to receive or to send.

    A forward that receives nothing takes its input from the data. A forward that sends nothing
    computes the loss."""

    action: Action
    receive: Message | None
    send: Message | None


def each(schedule: Schedule, name: str, value: Each) -> tuple[float, ...]:
    """Return one number for each stage, given one for all stages or one for each."""
    values = tuple(value) if isinstance(value, Iterable) else (value,) * schedule.stages
    if len(values) != schedule.stages or min(values) < 0:
        rule = f"it must be a number of at least 0, or {schedule.stages} of them"
        fail(f"{name}={value!r} for {schedule!r}", f"{rule}, one for each stage")
    return values


# A stage holds the activations of some micro-batches. An action of this kind changes their number
# by this much.
_HOLDS = {"F": 1, "B": -1, "I": 0, "W": -1}


@dataclass(frozen=True)
class Schedule:
    """The actions of each stage of a pipeline, in order.

    The stages have the parts of the model in turn: with `chunks` > 1, chunk c of stage s is part
    c * stages + s.

    Args:
        name: the name in pictures and messages.
        stages, micro_batches: the numbers of stages and of micro-batches.
        actions: for each stage its actions in order, also as a text such as "F0 F1 B0 B1".
        chunks: the number of parts of the model on each stage.

    Raises:
        TTKitError: there is not one list for each stage, or a text names no action.

    Example:
        >>> mine = Schedule("mine", 2, 2, ["F0 F1 B0 B1", "F0 B0 F1 B1"])
        >>> mine.validate().peak_activations()
        (2.0, 1.0)
        >>> mine.timeline(forward_s=1, backward_s=2).time_s
        9
    """

    name: str
    stages: int
    micro_batches: int
    actions: tuple[tuple[Action, ...], ...]
    chunks: int = 1

    def __post_init__(self) -> None:
        if len(self.actions) != self.stages:
            rule = f"actions are {counted(self.stages, 'list')}, one for each stage"
            fail(repr(self), f"{rule}, this is {self.actions!r}", 'actions=["F0 B0", ...]')
        given: Any = self.actions  # A stage's actions may be one string.
        words = (row.split() if isinstance(row, str) else row for row in given)
        object.__setattr__(self, "actions", tuple(tuple(map(Action.read, row)) for row in words))

    @property
    def title(self) -> str:
        """The name, and the numbers of stages, micro-batches and chunks."""
        chunks = f", {self.chunks} chunks a stage" if self.chunks > 1 else ""
        stages = counted(self.stages, "stage")
        work = counted(self.micro_batches, "micro-batch")
        return f"{self.name}: {stages}, {work}{chunks}"

    def __repr__(self) -> str:
        return f"Schedule({self.title})"

    _repr_html_ = drawn_by("lanes.schedule:schedule_picture")

    def tasks(self, stage: int) -> tuple[Task, ...]:
        """Return a stage's actions in order, each with the message to receive before it and the
        message to send after it.

        A valid schedule never deadlocks if its stages wait for each receive, but not for the end of
        a send. A message may have to wait at its destination. In all schedules of
        `ttkit.plans.pipelines`, a stage receives the activations from one source in the order in
        which they were sent, and in the same way the gradients from one source.

        Example:
            >>> from ttkit.plans import one_f_one_b
            >>> for action, receive, send in one_f_one_b(2, 1).tasks(1):
            ...     print(action, receive and receive.what, send and send.what)
            F0 activations None
            B0 None gradients
        """
        return self._tasks[stage]

    @cached_property
    def _tasks(self) -> tuple[tuple[Task, ...], ...]:
        return tuple(
            tuple(self._task(stage, action) for action in row)
            for stage, row in enumerate(self.actions)
        )

    def _task(self, stage: int, action: Action) -> Task:
        if action.kind == "W":
            return Task(action, None, None)
        what, onwards = ("activations", 1) if action.kind == "F" else ("gradients", -1)
        here = action.chunk * self.stages + stage
        parts = range(self.stages * self.chunks)

        def message(source: int) -> Message | None:
            """Return the message from a part of the model to the next one, where both exist."""
            if source not in parts or source + onwards not in parts:
                return None
            ends = (
                StageChunk(n % self.stages, n // self.stages) for n in (source, source + onwards)
            )
            return Message(what, action.micro_batch, *ends)

        return Task(action, message(here - onwards), message(here))

    def validate(self) -> Schedule:
        """Return this schedule if it can run and does the work of a training step.

        Raises:
            TTKitError: an action is missing, comes twice, does not belong to this pipeline or comes
                before an action that it needs; or stages wait for each other. The message names the
                stage and the action.
        """
        return self._valid

    @cached_property
    def _valid(self) -> Schedule:
        """This schedule, after its check. A schedule never changes, so it is checked only once."""
        check_actions(self)
        return self

    def timeline(self, forward_s: Each = 1, backward_s: Each = 2) -> Timetable:
        """Return when each action starts and ends, if a stage does one action at a time and starts
        it as soon as its inputs are there.

        By default a forward takes one unit of time and a backward two. If a backward is split, each
        of its parts takes half of its time.

        Args:
            forward_s, backward_s: the seconds of one micro-batch on a stage, for all chunks
                together.

        Raises:
            TTKitError: `validate` fails, a time is negative, or there is not one time
                for each stage.

        Example:
            >>> from ttkit.plans import gpipe, one_f_one_b, zb_h1
            >>> [schedule(4, 8).timeline().time_s for schedule in (gpipe, one_f_one_b, zb_h1)]
            [33, 33, 27.0]
        """
        return timetable(self.validate(), forward_s, backward_s)

    def peak_activations(self) -> tuple[float, ...]:
        """Return the largest number of micro-batches whose activations each stage holds at once.

        A forward leaves activations on its stage. A backward frees them; if the backward is split,
        its part W frees them. With several chunks on a stage, the activations of one chunk count as
        the fraction 1 / chunks.

        Example:
            >>> from ttkit.plans import gpipe, one_f_one_b
            >>> gpipe(4, 8).peak_activations(), one_f_one_b(4, 8).peak_activations()
            ((8.0, 8.0, 8.0, 8.0), (4.0, 3.0, 2.0, 1.0))
        """
        counts = ([_HOLDS[action.kind] for action in row] for row in self.actions)
        held = map(itertools.accumulate, counts)
        return tuple(max(totals, default=0) / self.chunks for totals in held)


class Slot(NamedTuple):
    """An action of a stage, with the times of its start and its end."""

    action: Action
    start_s: float
    end_s: float

    def __repr__(self) -> str:
        return f"{self.action} {self.start_s:g}-{self.end_s:g}"


Slots = tuple[tuple[Slot, ...], ...]  # Each stage has a row.


@dataclass(frozen=True)
class Timetable:
    """The times of all actions; `slots[stage]` has those of a stage, in order of time.

    Example:
        >>> from ttkit.plans import one_f_one_b
        >>> one_f_one_b(2, 2).timeline().slots[1]
        (F0 1-2, B0 2-4, F1 4-5, B1 5-7)
    """

    schedule: Schedule
    slots: Slots

    @cached_property
    def time_s(self) -> float:
        """The time at which the last action ends."""
        return max((slot.end_s for row in self.slots for slot in row), default=0)

    @cached_property
    def bubbles(self) -> tuple[float, ...]:
        """For each stage the fraction of the time in which it does nothing: 0 to 1."""
        time = self.time_s
        work = (sum(slot.end_s - slot.start_s for slot in row) for row in self.slots)
        # Rounding may make the work exceed the time by a little.
        return tuple(max(0.0, 1 - spent / time) if time else 0.0 for spent in work)

    @property
    def bubble_fraction(self) -> float:
        """The fraction of the time in which stages do nothing, as a mean over all stages: 0 to 1.

        It is a fraction of the whole time, as in GPipe's paper. Narayanan et al. and Qi et al.
        divide the bubble by the time of the work alone."""
        return sum(self.bubbles) / len(self.bubbles)

    def __repr__(self) -> str:
        bubble = f"bubble {self.bubble_fraction:.1%}"
        return f"Timetable({self.schedule.name}: {self.time_s:.6g} s, {bubble})"


def timetable(schedule: Schedule, forward_s: Each = 1, backward_s: Each = 2) -> Timetable:
    """Return the same as `Schedule.timeline`, without validation: if the schedule
    deadlocks, only the actions that run before the deadlock have slots.
    """
    forward = each(schedule, "forward_s", forward_s)
    backward = each(schedule, "backward_s", backward_s)
    kinds = [{"F": f, "B": b, "I": b / 2, "W": b / 2} for f, b in zip(forward, backward)]
    if schedule.chunks > 1:
        kinds = [{k: time / schedule.chunks for k, time in times.items()} for times in kinds]
    return Timetable(schedule, _play(schedule, lambda stage, action: kinds[stage][action.kind]))


def _play(schedule: Schedule, duration: Callable[[int, Action], float]) -> Slots:
    """Return the actions of each stage with their times. A stage stops before an action whose input
    never arrives, or which needs an earlier action that the stage has not done.
    """
    tasks = list(map(schedule.tasks, range(schedule.stages)))
    slots: list[list[Slot]] = [[] for _ in tasks]
    arrives: dict[Message, float] = {}
    done = set[tuple[int, Action]]()
    moved = True
    while moved:
        moved = False
        for stage, row in enumerate(slots):
            for action, receive, send in tasks[stage][len(row) :]:
                if (receive and receive not in arrives) or (
                    action.after and (stage, action.after) not in done
                ):
                    break
                start = max(row[-1].end_s if row else 0, arrives[receive] if receive else 0)
                row.append(Slot(action, start, start + duration(stage, action)))
                done.add((stage, action))
                if send is not None:
                    arrives[send] = row[-1].end_s
                moved = True
    return tuple(map(tuple, slots))


def check_actions(schedule: Schedule) -> None:
    """Raise an error that names the first stage and action that are wrong, if there are any."""
    chunks = range(schedule.chunks)
    micro_batches = range(schedule.micro_batches)
    for stage, row in enumerate(schedule.actions):
        work: dict[tuple[int, int], list[Action]] = {
            key: [] for key in itertools.product(chunks, micro_batches)
        }
        for action in row:
            if (action.chunk, action.micro_batch) not in work:
                there = f"{counted(len(micro_batches), 'micro-batch')} and "
                there += f"{counted(len(chunks), 'chunk')}, counted from 0"
                _fail_at_stage(schedule, stage, f"{_named(action)}, but there are {there}")
            work[action.chunk, action.micro_batch].append(action)
        for (chunk, i), actions in work.items():
            # A micro-batch goes forward once and backward once, whole or in two parts.
            f, b, *parts = (Action(kind, i, chunk) for kind in KINDS)
            has = sorted(actions, key=lambda action: list(KINDS).index(action.kind))
            if has not in ([f, b], [f, *parts]):
                done = " and ".join(map(str, has)) or "no action"
                rule = f"micro-batch {i} has {done}; a stage does"
                rule += f" {f} and {b}, or {f}, {parts[0]} and {parts[1]}"
                _fail_at_stage(schedule, stage, rule, "each of them once")
        numbers = {action: number for number, action in enumerate(row)}
        for action in row:
            needed = action.after
            if needed and numbers[needed] > numbers[action]:
                rule = f"{_named(action)} needs {_named(needed)}, which comes after it"
                _fail_at_stage(schedule, stage, rule, f"{needed} before {action}")
    _check_waiting(schedule)


def _check_waiting(schedule: Schedule) -> None:
    """Run the schedule without times; where it stops, name the stages that wait for each other."""
    slots = _play(schedule, lambda stage, action: 0)
    stuck = {
        stage: (action, message)
        for stage, row in enumerate(slots)
        for action, message, _ in schedule.tasks(stage)[len(row) : len(row) + 1]
        # An action without a message can wait only for its own stage, and that order was checked.
        if message
    }
    if not stuck:
        return
    way = [min(stuck)]
    while way.count(way[-1]) < 2:  # Follow who waits for whom until a stage comes twice.
        way.append(stuck[way[-1]][1].source.stage)
    circle = way[way.index(way[-1]) : -1]
    waits, earlier = [], []
    for stage in circle:
        action, message = stuck[stage]
        source = message.source.stage
        what = f"the {message.what} of micro-batch {message.micro_batch} from stage {source}"
        waits.append(f"stage {stage} at {action} waits for {what}")
        send = next(task.action for task in schedule.tasks(source) if task.send == message)
        earlier.append(f"{send} of stage {source} before its {stuck[source][0]}")
    cure = f"put {', or '.join(earlier)}"
    _fail_at_stage(schedule, circle[0], f"a deadlock: {'; '.join(waits)}", cure)


def _named(action: Action) -> str:
    chunk = f" in chunk {action.chunk}" if action.chunk else ""
    return f"{action} ({KINDS[action.kind]} of micro-batch {action.micro_batch}{chunk})"


def _fail_at_stage(schedule: Schedule, stage: int, rule: str, cure: str = "") -> NoReturn:
    fail(f"stage {stage} of {schedule!r}", rule, cure)

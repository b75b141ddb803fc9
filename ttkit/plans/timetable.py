"""When the actions of a pipeline schedule start and end, and whether they can."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from ttkit.errors import fail
from ttkit.plans.actions import KINDS, Action, Each, Message, each
from ttkit.words import counted

Schedule = Any  # It is that of plans.schedule, which imports this module.


class Slot(NamedTuple):
    """An action of a stage, from when to when."""

    action: Action
    start_s: float
    end_s: float

    def __repr__(self) -> str:
        return f"{self.action} {self.start_s:g}-{self.end_s:g}"


@dataclass(frozen=True)
class Timetable:
    """When each stage does what: `slots[stage]` in order of time.

    Example:
        >>> from ttkit.plans import one_f_one_b
        >>> one_f_one_b(2, 2).timeline().slots[1]
        (F0 1-2, B0 2-4, F1 4-5, B1 5-7)
    """

    schedule: Schedule
    slots: tuple[tuple[Slot, ...], ...]

    @functools.cached_property
    def time_s(self) -> float:
        """When the last action ends."""
        return max((slot.end_s for row in self.slots for slot in row), default=0)

    @functools.cached_property
    def bubbles(self) -> tuple[float, ...]:
        """For each stage the fraction of the time in which it does nothing: 0 to 1."""
        time = self.time_s
        work = (sum(slot.end_s - slot.start_s for slot in row) for row in self.slots)
        # A sum of fractions may pass the whole.
        return tuple(max(0.0, 1 - spent / time) if time else 0.0 for spent in work)

    @property
    def bubble_fraction(self) -> float:
        """The fraction of all stages' time in which they do nothing: 0 to 1.

        It is a part of the whole time, as in GPipe's paper; Narayanan et al. and Qi et al. divide
        by the time of the work alone."""
        return sum(self.bubbles) / len(self.bubbles)

    def __repr__(self) -> str:
        return (
            f"Timetable({self.schedule.name}: {self.time_s:.6g} s, "
            f"bubble {self.bubble_fraction:.1%})"
        )


def timetable(
    schedule: Schedule,
    forward_s: Each = 1,
    backward_s: Each = 2,
    weight_s: Each | None = None,
) -> Timetable:
    """Return what `Schedule.timeline` gives; as far as it comes where a schedule does not work.

    Args:
        weight_s: seconds of the backward that are W's; half of it by default.
    """
    forward = each(schedule, "forward_s", forward_s)
    backward = each(schedule, "backward_s", backward_s)
    weight = [time / 2 for time in backward] if weight_s is None else weight_s
    weight = each(schedule, "weight_s", weight)
    times = zip(forward, backward, weight, strict=True)
    kinds = [{"F": f, "B": b, "I": b - w, "W": w} for f, b, w in times]
    if schedule.chunks > 1:
        kinds = [{k: time / schedule.chunks for k, time in times.items()} for times in kinds]
    return Timetable(schedule, _play(schedule, lambda stage, action: kinds[stage][action.kind]))


def _play(
    schedule: Schedule, duration: Callable[[int, Action], float]
) -> tuple[tuple[Slot, ...], ...]:
    """Each stage's actions with their times, as far as they come: a stage stops at an action
    whose input never arrives.
    """
    tasks = [schedule.tasks(stage) for stage in range(schedule.stages)]
    slots: list[list[Slot]] = [[] for _ in tasks]
    arrives: dict[Message, float] = {}
    done: set[tuple[int, Action]] = set()
    moved = True
    while moved:
        moved = False
        for stage, row in enumerate(slots):
            while len(row) < len(tasks[stage]):
                action, receive, send = tasks[stage][len(row)]
                if (receive and receive not in arrives) or (
                    action.after and (stage, action.after) not in done
                ):
                    break
                start = max(row[-1].end_s if row else 0, arrives[receive] if receive else 0)
                end = start + duration(stage, action)
                row.append(Slot(action, start, end))
                done.add((stage, action))
                if send is not None:
                    arrives[send] = end
                moved = True
    return tuple(map(tuple, slots))


# ---------------------------------------------------------------- what a schedule must keep to
def check_actions(schedule: Schedule) -> None:
    """Raise at the first thing that is wrong, naming stage and action."""
    chunks, micro_batches = range(schedule.chunks), range(schedule.micro_batches)
    for stage, row in enumerate(schedule.actions):
        for action in row:
            if action.micro_batch not in micro_batches or action.chunk not in chunks:
                there = f"{counted(len(micro_batches), 'micro-batch')} and "
                there += f"{counted(len(chunks), 'chunk')}, counted from 0"
                _wrong(schedule, stage, f"{_named(action)}, but there are {there}")
        counts = Counter(row)
        for chunk, i in itertools.product(chunks, micro_batches):
            _check_work(schedule, stage, [Action(kind, i, chunk) for kind in KINDS], counts)
        numbers = {action: number for number, action in enumerate(row)}
        for action in row:
            needed = action.after
            if needed and numbers[needed] > numbers[action]:
                rule = f"{_named(action)} needs {_named(needed)}, which comes after it"
                _wrong(schedule, stage, rule, f"{needed} before {action}")
    _check_waiting(schedule)


def _check_work(
    schedule: Schedule, stage: int, actions: list[Action], counts: Counter[Action]
) -> None:
    """Check that a micro-batch goes forward once and backward once, whole or in two parts."""
    f, b, *parts = actions
    has = [action for action in actions for _ in range(counts[action])]
    if has not in ([f, b], [f, *parts]):
        done = " and ".join(map(str, has)) or "no action"
        rule = f"micro-batch {f.micro_batch} has {done}; a stage does"
        rule += f" {f} and {b}, or {f}, {parts[0]} and {parts[1]}"
        _wrong(schedule, stage, rule, "each of them once")


def _check_waiting(schedule: Schedule) -> None:
    """Run the schedule without times; where it stops, name the stages that wait for each other."""
    slots = _play(schedule, lambda stage, action: 0)
    stuck = {
        stage: (action, message)
        for stage, row in enumerate(slots)
        for action, message, _ in schedule.tasks(stage)[len(row) : len(row) + 1]
        if message  # The order on each stage is right: what is stuck waits for a message.
    }
    if not stuck:
        return
    way = [min(stuck)]
    while way.count(way[-1]) < 2:  # A stage that is stuck waits for one that is stuck.
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
    _wrong(schedule, circle[0], f"a deadlock: {'; '.join(waits)}", cure)


def check_memory(schedule: Schedule, limit: Each) -> None:
    """Raise at the first action after which a stage holds more than its limit."""
    limits = each(schedule, "memory_limit", limit)
    for stage, (held, most) in enumerate(zip(schedule.held(), limits, strict=True)):
        for number, (action, now) in enumerate(zip(schedule.actions[stage], held, strict=True), 1):
            if now > most * (1 + 1e-9):  # Sums of fractions are rounded.
                has = f"the activations of {counted(now, 'micro-batch')}"
                rule = f"after action {number}, {action}, it holds {has}; the memory is for"
                _wrong(schedule, stage, f"{rule} {most:.4g}", f"a backward before {action}")


def _named(action: Action) -> str:
    chunk = f" in chunk {action.chunk}" if action.chunk else ""
    return f"{action} ({KINDS[action.kind]} of micro-batch {action.micro_batch}{chunk})"


def _wrong(schedule: Schedule, stage: int, rule: str, cure: str = "") -> NoReturn:
    fail(f"stage {stage} of {schedule!r}", rule, cure)

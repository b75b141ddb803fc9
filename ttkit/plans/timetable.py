"""When the actions of a pipeline schedule start and end."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ttkit.errors import fail
from ttkit.plans.schedule import Action, Each, Message, Schedule, each


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
        """For each stage the part of the time in which it does nothing: 0 to 1."""
        time = self.time_s
        work = (sum(slot.end_s - slot.start_s for slot in row) for row in self.slots)
        # sums of fractions may pass the whole
        return tuple(max(0.0, 1 - spent / time) if time else 0.0 for spent in work)

    @property
    def bubble_fraction(self) -> float:
        """The part of all stages' time in which they do nothing: 0 to 1.

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
    transfer_s: float = 0,
) -> Timetable:
    """What `Schedule.timeline` gives; of a schedule that does not work, as far as it comes."""
    forward, backward = (
        each(schedule, "forward_s", forward_s),
        each(schedule, "backward_s", backward_s),
    )
    weight = (
        tuple(time / 2 for time in backward)
        if weight_s is None
        else each(schedule, "weight_s", weight_s)
    )
    if any(part > time for part, time in zip(weight, backward, strict=True)):
        fail(
            f"weight_s={weight_s!r} for {schedule!r}",
            f"it is a part of backward_s={backward_s!r}, so it cannot be longer",
            "weight_s=None takes half",
        )
    if not 0 <= transfer_s < math.inf:
        fail(
            f"transfer_s={transfer_s!r} for {schedule!r}",
            "it must be a number of seconds of at least 0",
        )
    kinds = [
        {"F": f, "B": b, "I": b - w, "W": w}
        for f, b, w in zip(forward, backward, weight, strict=True)
    ]
    parts = schedule.chunks
    if parts > 1:
        kinds = [{kind: time / parts for kind, time in times.items()} for times in kinds]
    return Timetable(
        schedule, run(schedule, lambda stage, action: kinds[stage][action.kind], transfer_s)
    )


def run(
    schedule: Schedule, duration: Callable[[int, Action], float], transfer_s: float = 0
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
                    arrives[send] = end + (transfer_s if send.destination.stage != stage else 0)
                moved = True
    return tuple(map(tuple, slots))

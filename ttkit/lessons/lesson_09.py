"""Lesson 09, pipeline parallel. The answers are formulas and schedules."""

from __future__ import annotations

from typing import Any

from ttkit.lessons import as_number, check_schedule, exercise, require
from ttkit.lessons.answers import asks
from ttkit.plans import Schedule, interleaved, one_f_one_b

STAGES, MICRO_BATCHES, ROOM, BUBBLE = 4, 6, 3, 0.5  # of the exercise 09.budget
ON_THE_LAST = "F0 F1 F2 B0 F3 B1 B2 B3"  # the order of the first stage, on the last one
BROKEN = ("F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", ON_THE_LAST)


@exercise("09.bubble")
@asks("bubble(stages, micro_batches, chunks)")
def _bubble(answer: Any) -> str:
    for stages, micro_batches, chunks in (
        (2, 1, 1),
        (2, 4, 1),
        (4, 8, 1),
        (3, 12, 1),
        (4, 8, 2),
        (2, 6, 3),
        (8, 16, 4),
    ):
        schedule = (
            interleaved(stages, micro_batches, chunks)
            if chunks > 1
            else one_f_one_b(stages, micro_batches)
        )
        time, given = schedule.timeline(), as_number(answer(stages, micro_batches, chunks))
        call, fact = f"bubble({stages}, {micro_batches}, {chunks})", time.bubble_fraction
        require(given is not None, f"{call} should be a number")
        assert given is not None
        idle = fact / (1 - fact)
        require(
            abs(given - idle) > 1e-6,
            f"{call} gives {given:.4g}, the idle time as a part of the work; "
            f"asked is its part of the whole time, {fact:.4g}",
        )
        require(
            abs(given - fact) < 1e-6,
            f"{call} gives {given:.4g}; the schedule {schedule.name} has {fact:.4g}",
        )
    return "the formula gives what the timetables of seven pipelines show"


@exercise("09.budget")
def _budget(answer: Any, mesh: Any) -> str:
    check_schedule(answer, STAGES, MICRO_BATCHES, memory=ROOM, bubble=BUBBLE)
    return f"room for {ROOM} on every stage was enough"


@exercise("09.repair")
def _repair(answer: Any, mesh: Any) -> str:
    pair = isinstance(answer, tuple) and len(answer) == 2
    require(
        pair,
        'a pair is asked for: the number of the stage, and its list put right, as (0, "F0 F1 ...")',
    )
    stage, row = answer
    require(
        stage in range(len(BROKEN)),
        f"there is no stage {stage!r}; there are 0 to {len(BROKEN) - 1}",
    )
    rows = [row if place == stage else old for place, old in enumerate(BROKEN)]
    good = one_f_one_b(3, 4)
    schedule = Schedule("repaired", 3, 4, rows)  # type: ignore[arg-type]
    check_schedule(
        schedule, 3, 4, memory=good.peak_activations(), bubble=good.timeline().bubble_fraction
    )
    return f"stage {stage} was the one"

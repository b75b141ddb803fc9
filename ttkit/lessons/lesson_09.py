"""Lesson 09, pipeline parallel: its playground, and exercises about formulas and schedules."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed, NotDone, exercise, require
from ttkit.lessons.answers import Answer, asks
from ttkit.lessons.lesson_08 import planned
from ttkit.lessons.predicting import as_number
from ttkit.plans import Schedule, gpipe, interleaved, one_at_a_time, one_f_one_b, zb_h1
from ttkit.visualize.schedule import SchedulePicture
from ttkit.words import counted

STAGES, MICRO_BATCHES, ROOM, BUBBLE = 4, 6, 3, 0.4  # of the exercise 09.budget
MOST = 1000  # entries of an answer that are read
ON_THE_LAST = "F0 F1 F2 B0 F3 B1 B2 B3"  # the order of the first stage, on the last one
BROKEN = ("F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", ON_THE_LAST)
BUILD: dict[str, Callable[..., Schedule]] = {
    "one at a time": one_at_a_time,
    "GPipe": gpipe,
    "1F1B": one_f_one_b,
    "interleaved": interleaved,
    "ZB-H1": zb_h1,
}


# ---------------------------------------------------------------- the playground
def schedule_of(
    schedule: str, stages: int, micro_batches: int, chunks: int = 1, backward: float = 2
) -> SchedulePicture:
    """Return the picture of a schedule by its name.

    Args:
        schedule: one of `BUILD`.
        stages, micro_batches: how many.
        chunks: of each stage; of "interleaved" only.
        backward: how much longer a backward takes than a forward.

    Example:
        >>> schedule_of("1F1B", 2, 1)
        1F1B: 2 stages, 1 micro-batch · bubble 50.0% of the time
          stage 0 |F0----..................B0----------| bubble 50.0%, holds 1
          stage 1 |......F0----B0----------............| bubble 50.0%, holds 1
    """
    more = (chunks,) if schedule == "interleaved" else ()
    built = BUILD[schedule](stages, micro_batches, *more)
    return SchedulePicture(built.timeline(1, backward), unit="")


# ---------------------------------------------------------------- what the lesson measures
def timed(settings: Any, text: str, seconds: float) -> tuple[list[float], Any]:
    """Train three steps; then time three slow ones. For `cluster.run`, a stage on each rank.

    Args:
        settings, text: of a `PipelineTrainer`.
        seconds: how long each forward sleeps; each backward sleeps twice as long.

    Returns:
        The losses of the first three steps, and the timetable of the fastest slow step: the one
        that other programs disturbed least.
    """
    from ttkit.train import PipelineTrainer

    def slow(call: Callable[..., Any], pause: float) -> Callable[..., Any]:
        def slept(*args: Any) -> Any:
            time.sleep(pause)
            return call(*args)

        return slept

    with PipelineTrainer(settings, text=text) as trainer:
        losses = [record.loss for record in trainer.fit(3, show=False)]
        for stage in trainer.stages.values():
            stage.forward = slow(stage.forward, seconds)  # type: ignore[method-assign]
            stage.backward = slow(stage.backward, 2 * seconds)  # type: ignore[method-assign]
        found = []
        for _ in range(3):
            trainer.step()
            found.append(trainer.timetable())
        return losses, min(found, key=lambda table: table.time_s)


def card(model: Any, layout: Any, batch: int) -> dict[str, float]:
    """Return what one step costs a chip of a T3000, modelled, by the name of its column.

    Args:
        model: a `TransformerConfig`.
        layout: a `ttkit.train.layout.Layout`.
        batch: sequences of a step, of all groups together.
    """
    found = planned(model, layout, batch)
    times = found.times
    return {
        "MB sent": round(sum(each.bytes_sent for each in found.traffic) / 1e6),
        "calls": sum(each.times for each in found.traffic),
        "GB held": round(found.memory.total / 1e9, 1),
        "% waits": round(100 * (times.communication + times.bubble) / times.total),
    }


# ---------------------------------------------------------------- exercises
@exercise(
    "09.bubble",
    "A stage works for micro_batches slots. In how many slots does it wait until the line is full, "
    "and when it empties?",
    "Chunks cut each slot in pieces: a stage works for chunks x micro_batches short slots. How "
    "long, in short slots, does it wait now?",
    "Idle slots over all slots: stages - 1 are idle. How many are there in all?",
)
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
        if chunks > 1:
            schedule = interleaved(stages, micro_batches, chunks)
        else:
            schedule = one_f_one_b(stages, micro_batches)
        fact = schedule.timeline().bubble_fraction
        call = f"bubble({stages}, {micro_batches}, {chunks})"
        value = answer(stages, micro_batches, chunks)
        given = as_number(value)
        if given is None:
            raise CheckFailed(f"{call} should be a number, is {value!r}")
        require(
            abs(given - fact / (1 - fact)) > 1e-6,
            f"{call} gives {given:.4g}, the idle time as a part of the work; "
            f"asked is its part of the whole time, {fact:.4g}",
        )
        percent = f"{call} gives {given:.4g}, a percentage; asked is a part, {fact:.4g}"
        require(abs(given - 100 * fact) > 1e-6, percent)
        wrong = f"{call} gives {given:.4g}; the schedule {schedule.name} has {fact:.4g}"
        require(abs(given - fact) < 1e-6, wrong)
    return "the formula gives what the timetables of seven pipelines show"


def _grade(answer: Any, stages: int, micro_batches: int, memory: Any, bubble: float) -> None:
    """Check that a schedule does a training step's work within a memory and a bubble.

    Print what it achieved.

    Args:
        answer: a `ttkit.plans.Schedule`, or for each stage a text such as "F0 F1 B0 B1"; or a
            function of the two numbers that returns one of them.
        memory: the micro-batches whose activations a stage has room for; one number, or one for
            each stage.
        bubble: which part of the time may be bubble, if a backward takes twice as long as a
            forward.
    """
    if callable(answer):
        answer = answer(stages, micro_batches)
    size = f"{counted(stages, 'stage')}, {counted(micro_batches, 'micro-batch')}"
    if answer is None or answer is Ellipsis:
        raise NotDone(f"a schedule of {size}")
    try:
        schedule = answer
        if not isinstance(answer, Schedule):
            schedule = Schedule("yours", stages, micro_batches, answer)
        for what, asked in (("stages", stages), ("micro_batches", micro_batches)):
            has = getattr(schedule, what)
            require(has == asked, f"the schedule is for {what}={has}, asked is {what}={asked}")
        timeline, peaks = schedule.timeline(), schedule.peak_activations()
        schedule.validate(memory_limit=memory)
    except TTKitError as wrong:
        raise CheckFailed(str(wrong)) from None
    fraction = timeline.bubble_fraction
    if fraction > bubble + 1e-9:
        pauses = [
            (b.start_s - a.end_s, stage, b.action)
            for stage, row in enumerate(timeline.slots)
            for a, b in itertools.pairwise(row)
        ]
        length, stage, action = max(pauses, key=lambda pause: pause[0])
        raise CheckFailed(
            f"it is right, but {fraction:.1%} of the time is bubble; at most {bubble:.1%} may be. "
            f"The longest wait: stage {stage}, {length:.4g} forwards long, before {action}"
        )
    held = counted(float(max(peaks)), "micro-batch")
    print(
        f"yes: {size}, bubble {fraction:.1%} of the time, "
        f"at most the activations of {held} on a stage"
    )


def _rows(answer: Any) -> Any:
    """Return the schedule of an answer, or its list of stages, however it is written."""
    answer = getattr(answer, "schedule", answer)  # of an editor
    if isinstance(answer, Schedule) or not isinstance(answer, Iterable):
        return answer
    if isinstance(answer, str):
        answer = [line for line in answer.splitlines() if line.strip()]
    if isinstance(answer, Mapping):  # by stage
        answer = [answer[stage] for stage in sorted(answer, key=str)]
    return [_row(row) for row in itertools.islice(answer, MOST)]


def _row(row: Any) -> Any:
    if isinstance(row, str):
        return re.sub(r"[,;()\[\]'\"]", " ", row).upper()
    return list(itertools.islice(row, MOST)) if isinstance(row, Iterable) else row


def _not_split(whole: Any) -> None:
    rows = whole.actions if isinstance(whole, Schedule) else whole
    split = "a backward is whole here: write B0, not I0 and W0"
    require(not any(kind in str(rows) for kind in "IW"), split)


@exercise(
    "09.budget",
    "Stage 0 may hold three. When can it start F3, and when F5? One trip there and back takes 12.",
    "F5 needs B0, B1 and B2 done on stage 0, so the end is F5's start plus 12. Which forward of "
    "a middle stage delays a backward that stage 0 waits for?",
    "Start from 1F1B with stage 0 like stage 1. Then, on stages 1 and 2, move B1 or B2 one place "
    "to the left, past a forward; look at the bubble after each move.",
)
def _budget(answer: Any, mesh: Any) -> str:
    if callable(answer):
        answer = Answer(answer, "schedule(stages, micro_batches)")(STAGES, MICRO_BATCHES)
    whole = _rows(answer)
    if isinstance(whole, Schedule):
        one = "each stage has one chunk of the model here, and the schedule has"
        require(whole.chunks == 1, f"{one} {whole.chunks}")
    _not_split(whole)
    _grade(whole, STAGES, MICRO_BATCHES, ROOM, BUBBLE)
    return f"room for {ROOM} on every stage was enough"


@exercise(
    "09.repair",
    "Follow the picture's red boxes: which stage waits for what, and who should send it?",
    "How many forwards does the last stage do before its first backward? Who is behind it?",
    "The last stage can do B0 right after F0. Write its whole list so.",
)
def _repair(answer: Any, mesh: Any) -> str:
    pair = 'the number of the stage, and its list put right, as (0, "F0 F1 ...")'
    is_pair = isinstance(answer, (tuple, list)) and len(answer) == 2
    require(is_pair, f"a pair is asked for: {pair}")
    stage, row = as_number(answer[0]), _rows([answer[1]])[0]
    there = f"there is no stage {answer[0]!r}; the number of the stage is 0, 1 or 2"
    require(stage in range(len(BROKEN)), there)
    _not_split(row)
    rows = [row if place == stage else old for place, old in enumerate(BROKEN)]
    good = one_f_one_b(3, 4)
    _grade(rows, 3, 4, good.peak_activations(), good.timeline().bubble_fraction)
    return f"stage {stage} was the one"

"""What a pipeline schedule must keep to: every action once, none before what it needs, no stages
that wait for each other.
"""

from __future__ import annotations

from typing import NoReturn

from ttkit.errors import fail
from ttkit.plans.schedule import KINDS, Action, Each, Message, Schedule, each
from ttkit.plans.timetable import run
from ttkit.words import counted


def check_actions(schedule: Schedule) -> None:
    """Raise at the first thing that cannot be, naming stage and action."""
    for stage, row in enumerate(schedule.actions):
        places: dict[Action, int] = {}
        for number, action in enumerate(row, 1):
            _known(schedule, stage, number, action)
            if action in places:
                _wrong(
                    schedule,
                    stage,
                    f"{_named(schedule, action)} comes twice, as action {places[action]} and as "
                    f"action {number}",
                    "leave one out",
                )
            places[action] = number
        _complete(schedule, stage, places)
        for action in row:
            _in_order(schedule, stage, action, places)
    _runs(schedule)


def _known(schedule: Schedule, stage: int, number: int, action: Action) -> None:
    for what, value, count in (
        ("micro-batch", action.micro_batch, schedule.micro_batches),
        ("chunk", action.chunk, schedule.chunks),
    ):
        if value not in range(count):
            there = "is only one" if count == 1 else f"are only {count}"
            _wrong(
                schedule,
                stage,
                f"action {number}, {action}, is for {what} {value!r}, but there {there}, "
                "counted from 0",
            )


def _complete(schedule: Schedule, stage: int, places: dict[Action, int]) -> None:
    """Each micro-batch goes forward once and backward once, whole or in two parts."""
    for chunk in range(schedule.chunks):
        for micro_batch in range(schedule.micro_batches):
            has = {kind: Action(kind, micro_batch, chunk) in places for kind in KINDS}
            whole, *parts = (Action(kind, micro_batch, chunk) for kind in "BIW")
            if not has["F"]:
                _wrong(
                    schedule,
                    stage,
                    f"{_named(schedule, Action('F', micro_batch, chunk))} is missing",
                    "each micro-batch once through each stage",
                )
            for part in parts:
                if has["B"] and has[part.kind]:
                    cure = f"either {whole}, or {parts[0]} and {parts[1]}"
                    _wrong(
                        schedule,
                        stage,
                        f"{_named(schedule, part)} is done twice: {whole} holds it already",
                        cure,
                    )
            if not has["B"] and not (has["I"] or has["W"]):
                _wrong(
                    schedule,
                    stage,
                    f"{_named(schedule, whole)} is missing",
                    f"{whole}, or its two parts {parts[0]} and {parts[1]}",
                )
            for part, other in (parts, parts[::-1]):
                if has[other.kind] and not has[part.kind]:
                    _wrong(
                        schedule,
                        stage,
                        f"{_named(schedule, part)} is missing, though {other} is there",
                        f"{part}, or {whole} for both",
                    )


def _in_order(schedule: Schedule, stage: int, action: Action, places: dict[Action, int]) -> None:
    """On one stage, forward before backward, I before W; forward from chunk to chunk and
    backward from last to first.
    """
    first: list[tuple[Action, str]] = [(action.after, "")] if action.after else []
    if action.kind == "F" and action.chunk:
        first.append(
            (
                action._replace(chunk=action.chunk - 1),
                ": a micro-batch goes forward through the chunks in order",
            )
        )
    if action.kind in "BI" and action.chunk + 1 < schedule.chunks:
        later = (action._replace(kind=kind, chunk=action.chunk + 1) for kind in "BI")
        first.append(
            (
                next(one for one in later if one in places),
                ": a micro-batch goes backward through the chunks from the last to the first",
            )
        )
    for needed, why in first:
        if places[needed] > places[action]:
            rule = (
                f"{_named(schedule, action)} is action {places[action]}, "
                f"but needs {_named(schedule, needed)}, which is action {places[needed]}{why}"
            )
            _wrong(schedule, stage, rule, f"{needed} before {action}")


def _runs(schedule: Schedule) -> None:
    """Play it; where it stops, say which stages wait for each other."""
    slots = run(schedule, lambda stage, action: 0)
    stuck = {
        stage: schedule.tasks(stage)[len(row)]
        for stage, row in enumerate(slots)
        if len(row) < len(schedule.actions[stage])
    }
    if not stuck:
        return
    way = [min(stuck)]
    while way.count(way[-1]) < 2:  # every stage that is stuck waits for one that is stuck
        way.append(_awaited(stuck[way[-1]].receive).source.stage)
    circle = way[way.index(way[-1]) : -1]
    waits = []
    for stage in circle:
        message = _awaited(stuck[stage].receive)
        waits.append(
            f"stage {stage} at {stuck[stage].action} waits for the {message.what} of micro-batch "
            f"{message.micro_batch} from stage {message.source.stage}"
        )
    _wrong(
        schedule,
        circle[0],
        f"a deadlock: {'; '.join(waits)}",
        "on one of these stages, what another waits for before what it waits at",
    )


def _awaited(message: Message | None) -> Message:
    if message is None:  # the order on each stage was checked before
        raise RuntimeError("a stage stopped though nothing is missing")
    return message


def check_memory(
    schedule: Schedule, limit: Each, activation_bytes: Each, kept_for_weights: Each | None
) -> None:
    """Raise at the first action after which a stage holds more than its limit."""
    limits = each(schedule, "memory_limit", limit)
    in_bytes = activation_bytes != 1
    for stage, (row, held, most) in enumerate(
        zip(
            schedule.actions, schedule.held(activation_bytes, kept_for_weights), limits, strict=True
        )
    ):
        for number, (action, now) in enumerate(zip(row, held, strict=True), 1):
            if now > most * (1 + 1e-9):  # sums of fractions
                has, may = f"the activations of {counted(float(now), 'micro-batch')}", f"{most:.4g}"
                if in_bytes:
                    has, may = f"{now:,.0f} bytes of activations", f"{most:,.0f}"
                _wrong(
                    schedule,
                    stage,
                    f"after action {number}, {action}, it holds {has}; the memory is for {may}",
                    f"a backward before {action}",
                )


def _named(schedule: Schedule, action: Action) -> str:
    chunk = f" in chunk {action.chunk}" if schedule.chunks > 1 else ""
    return f"{action} ({KINDS[action.kind]} of micro-batch {action.micro_batch}{chunk})"


def _wrong(schedule: Schedule, stage: int, rule: str, cure: str = "") -> NoReturn:
    fail(f"stage {stage} of {schedule!r}", rule, cure)

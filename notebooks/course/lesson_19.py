"""Lesson 19, choosing a layout: its exercises."""

from __future__ import annotations

import functools
import math
from typing import Any

from ttkit.layouts.search import plan_layouts
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.folder import course


# ---------------------------------------------------------------- 19.batch
def _exact(parameters: int, sequence: int, chips: int, flops_per_s: float, rate: float) -> float:
    """Return how many sequences take as long as sending."""
    sending = 2 * (chips - 1) / chips * 4 * parameters / rate
    return sending / (4 * parameters * sequence / flops_per_s)


def _batch(*run, times: float = 1) -> int:
    return max(1, math.ceil(_exact(*run) * times))


Exercise(
    "19.batch",
    asks="break_even(parameters, sequence, chips, flops_per_s, bytes_per_s)",
    reference=_batch,
    cases=[
        (1_000_000_000, 64, 8, 19.0e12, 8.0e9),
        # The exact result is 116.25; rounding it gives too few.
        (8_000_000_000, 80, 32, 60.0e12, 12.5e9),
        (2**30, 1024, 4, 2**44, 2**33),  # The exact result is 3, which must not be rounded up.
        (1_000_000_000, 4096, 1, 16.0e12, 8.0e9),
    ],
    mistakes={
        "asked are whole sequences, the next number up": _exact,
        "one less is too few: whole ones are the next number up": lambda *run: _batch(*run) - 1,
        "6 operations a weight and token are forward and backward; gradients can hide under the "
        "backward alone, which has 4": functools.partial(_batch, times=4 / 6),
        "2 operations a weight and token are the forward, which is over before the first gradient "
        "is there": functools.partial(_batch, times=4 / 2),
        "an all-reduce, a reduce-scatter and an all-gather, sends 2 (n - 1) / n of the gradients, "
        "of 4 bytes each; this is half of it": functools.partial(_batch, times=1 / 2),
        "that is the batch of all chips; asked is that of one": lambda *run: run[2] * _batch(*run),
        "these are tokens; asked are whole sequences": lambda *run: run[1] * _batch(*run),
    },
    praise="right for four cases; for one chip, too, which sends nothing",
    hints=[
        "During which part of a step can a gradient be sent? How many operations does it have?",
        "An all-reduce sends 2 (n - 1) / n of the gradients, of 4 bytes each. The backward of a "
        "sequence takes 4 operations a weight and token.",
        "The seconds of sending divided by those of a sequence's backward, rounded up; at least 1.",
    ],
)


# ---------------------------------------------------------------- 19.layout
BLOCKS = "of every block would go over the hosts' network: put between hosts what sends least"
BETWEEN = {
    "pp": "",
    "dp": "dp is 1: the hosts have no replicas of their own",
    "tp": f"the tensor-parallel sums {BLOCKS}",
    "cp": f"the keys and values {BLOCKS}",
}


@functools.cache
def _planned(headroom: float = 0.1):
    """Return the plans of the capstone."""
    return plan_layouts(
        str(course() / "configs/models/llama70b.yaml"),
        "galaxy",
        batch=128,
        sequence=256,
        hosts=2,
        precision="bfloat16",
        optimizer={"type": "AdamW", "master_weights": False},
        headroom=headroom,
    )


def _read(answer) -> tuple[Any, str, str]:
    """Return the planner's candidate, what is between the hosts, and what binds."""
    layout, between, binding = answer
    return _planned().find(str(layout)), between.strip().lower(), binding.strip().lower()


def _gains(best) -> dict[str, float]:
    """Return the speed-up of a step without each limit other than memory."""
    waits = {"chip links": 0.0, "network": 0.0, "bubble": best.times.bubble}
    for each in best.traffic:
        waits["network" if each.link == "between hosts" else "chip links"] += each.time_s
    return {limit: best.times.total / (best.times.total - wait) for limit, wait in waits.items()}


def _faster(best) -> float:
    """Return the speed-up by twice the memory."""
    speed: float = _planned(headroom=-1).best.tokens_per_s
    return speed / best.tokens_per_s


def _room(best) -> str:
    twice = _planned(headroom=-1).best
    return f"with twice the memory, {twice.layout} would be {_faster(best):.2f} times as fast"


def _largest(best) -> str:
    kinds: dict[str, int] = best.memory._asdict()
    return max(kinds, key=lambda kind: kinds[kind])


def _broken(found: tuple[Any, str, str]) -> str:
    """Return what is wrong with a layout, what is between the hosts, or what binds."""
    mine, between, binding = found
    best = _planned().best
    if mine.refused:
        return f"{mine.layout} cannot run: {mine.refused}"
    if (faster := best.tokens_per_s / mine.tokens_per_s) > 1.02:
        said = f"{mine.layout} fits and trains {mine.tokens_per_s:,.0f} tokens/s"
        return f"{said}; another one that fits is {faster:.2f} times as fast"
    if wrong := BETWEEN.get(between, f"between the hosts lies one of {', '.join(BETWEEN)}"):
        return f"between the hosts is not {between!r}: {wrong}"
    gains, held = _gains(mine), mine.memory._asdict()
    if binding not in (*gains, *held):
        return f"what binds is one of {', '.join((*gains, *held))}, not {binding!r}"
    most = max(gains, key=lambda limit: gains[limit])
    if gains[most] < _faster(mine):
        most = _largest(mine)
    if binding == most:
        return ""
    if binding in held:
        sizes = ", ".join(f"{kind} {size / 1e9:.1f}" for kind, size in held.items())
        return f"{binding} is not the limit: of a chip's GB, {sizes}; {_room(mine)}"
    said = f"{binding} is not the limit: if nothing waited for that, a step would be "
    return f"{said}{gains[binding]:.2f} times as fast; another limit gains more"


def _praised(found: tuple[Any, str, str]) -> str:
    mine, _, binding = found
    gains = ", ".join(f"{limit} {gain:.2f}" for limit, gain in _gains(mine).items())
    said = f"{mine.layout}, {mine.tokens_per_s:,.0f} tokens/s modelled; {_room(mine)}"
    return f"{said}, without waiting for one limit {gains}: {binding} binds"


Exercise(
    "19.layout",
    asks="layout, what is cut between the hosts, what binds",
    reads=_read,
    rules=_broken,
    praise=_praised,
    hints=[
        "Which call makes the table? `CASE` has its options.",
        'ttkit.plan_layouts(LLAMA70B, "galaxy", **CASE).best has .layout, .place, .times, .memory.',
        "best.place.stages says whether pipeline stages lie between the hosts.",
        "times.total / (times.total - times.bubble) is what a step without bubble would gain; "
        "compare it with links and network, and with tokens_per_s of a plan with headroom=-1. If "
        "memory gains most, the kind is the largest in best.memory.",
    ],
)

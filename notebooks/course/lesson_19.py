"""Lesson 19, choosing a layout: its exercises."""

from __future__ import annotations

import functools
import math
from typing import Any

from ttkit.layouts.report import ERROR
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
        "give whole sequences, rounded up": _exact,
        "6 operations a weight and token are forward and backward; gradients can hide under the "
        "backward alone, which has 4": functools.partial(_batch, times=4 / 6),
        "2 operations a weight and token are the forward, which is over before the first gradient "
        "is there": functools.partial(_batch, times=4 / 2),
        "an all-reduce, a reduce-scatter and an all-gather, sends 2 (n - 1) / n of the gradients, "
        "of 4 bytes each; this is half of it": functools.partial(_batch, times=1 / 2),
        "that is the global batch; give the batch per chip": lambda *run: run[2] * _batch(*run),
        "that is in tokens; give sequences": lambda *run: run[1] * _batch(*run),
    },
    praise="right in all four cases, including one chip, which sends nothing",
    hints=[
        "During which part of a step can a gradient be sent? How many operations does it have?",
        "An all-reduce sends 2 (n - 1) / n of the gradients, of 4 bytes each. The backward of a "
        "sequence takes 4 operations a weight and token.",
        "The seconds of sending divided by those of a sequence's backward, rounded up; at least 1.",
    ],
)


# ---------------------------------------------------------------- 19.layout
@functools.cache
def _planned(headroom: float = 0.1):
    """Return the plans of the capstone."""
    return plan_layouts(
        str(course() / "configs/models/llama70b.yaml"),
        "galaxy_bh",
        batch=8,
        sequence=4096,
        precision="bfloat16",
        optimizer={"type": "AdamW", "master_weights": False},
        headroom=headroom,
        overlap=True,
    )


def _gains() -> dict[str, float]:
    """Return how many times as fast the best layout's step would be without each limit."""
    best, roomy = _planned().best, _planned(headroom=-1).best
    waits = {"links": best.times.communication, "bubble": best.times.bubble}
    gains = {name: best.times.total / (best.times.total - wait) for name, wait in waits.items()}
    return gains | {"memory": roomy.tokens_per_s / best.tokens_per_s}


def _broken(found: tuple[Any, str]) -> str:
    """Return what is wrong with a layout, or with what binds."""
    mine, binding = found
    if mine.refused:
        return f"{mine.layout} cannot run: {mine.refused}"
    if (faster := _planned().best.tokens_per_s / mine.tokens_per_s) > 1 + ERROR:
        said = f"{mine.layout} fits and trains {mine.tokens_per_s:,.0f} tokens/s"
        return f"{said}; another one that fits is {faster:.2f} times as fast"
    gains = _gains()
    if binding not in gains:
        return f"what binds must be one of {', '.join(gains)}, not {binding!r}"
    if gains[binding] == max(gains.values()):
        return ""
    gain = f"without this limit a step would be {gains[binding]:.2f} times as fast"
    return f"{binding} is not the limit: {gain}; another limit gains more"


def _praised(found: tuple[Any, str]) -> str:
    mine, binding = found
    gains = ", ".join(f"{limit} {gain:.2f}" for limit, gain in _gains().items())
    said = f"{mine.layout}, {mine.tokens_per_s:,.0f} tokens/s modelled"
    return f"{said}; times as fast without one limit: {gains}: {binding} binds"


Exercise(
    "19.layout",
    asks="layout, what binds",
    reads=lambda answer: (_planned().find(str(answer[0])), answer[1].strip().lower()),
    rules=_broken,
    praise=_praised,
    hints=[
        "Which call makes the table? `CASE` has its options.",
        'ttkit.plan_layouts(LLAMA70B, "galaxy_bh", **CASE).best has .layout and .times.',
        "times.total / (times.total - times.bubble) is what a step without bubble would gain; "
        "compare it with times.communication, and with tokens_per_s of a plan with headroom=-1.",
    ],
)

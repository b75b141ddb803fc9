"""Lesson 19, choosing a layout: its exercises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ttkit.layouts.search import plan_layouts
from ttkit.lessons import CheckFailed
from ttkit.lessons.challenges import Challenge
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.folder import course

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


# ---------------------------------------------------------------- the challenges
MODEL = str(course() / "configs/models/llama8b.yaml")
MOST, SEQUENCE = 64, 2048


def _scored(figure: Callable, answer) -> tuple[float, str]:
    """Return a figure of the planner's candidate for a batch and a layout."""
    batch, layout = answer
    if batch not in range(1, MOST + 1):
        raise CheckFailed(f"a batch of 1 to {MOST} sequences is asked for, not {batch!r}")
    found = plan_layouts(MODEL, "galaxy", batch=batch, sequence=SEQUENCE).find(str(layout))
    if found.refused:
        raise CheckFailed(f"{layout} cannot run: {found.refused}")
    return figure(found), f"batch {batch}, {layout}"


def _bytes_a_token(found) -> float:
    sent: int = sum(each.bytes_sent for each in found.traffic)
    return sent / found.times.total / found.tokens_per_s


Challenge(
    "19.speed",
    asks="Llama-8B on a Galaxy: the most tokens in a second",
    score=functools.partial(_scored, lambda found: found.tokens_per_s),
    unit="{:,.0f} tokens/s",
    reference=lambda: (64, "DP4 TP4 PP2 ZeRO-2 SP recompute interleaved-2 8 micro-batches"),
    higher=True,
)
Challenge(
    "19.bytes",
    asks="Llama-8B on a Galaxy: the fewest bytes that a chip sends for a token",
    score=functools.partial(_scored, _bytes_a_token),
    unit="{:,.0f} bytes",
    reference=lambda: (64, "DP2 TP4 PP4 ZeRO-1 SP recompute 32 micro-batches"),
)

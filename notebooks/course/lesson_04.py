"""Lesson 04, collectives: its exercises, whose answers are plans."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from ttkit import plans
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import numbers
from ttkit.words import counted


def _row(*chips: int) -> plans.Topology:
    """Return a row of a T3000 with these chips, each cabled to the next."""
    places = range(len(chips))
    cables = tuple(tuple(chips[j] for j in (i - 1, i + 1) if j in places) for i in places)
    shape = (1, len(chips))
    return dataclasses.replace(plans.topology("t3000"), chips=chips, shape=shape, cables=cables)


ROWS = (_row(5, 1, 3, 7), _row(4, 0, 2, 6))
SIZES = (384, 768)  # These are bytes of a shard of 8 rows in float32: 12 and 24 columns.
Planner = Callable[[plans.Topology, int], plans.Plan]


# ---------------------------------------------------------------- plans
def _shards(row: plans.Topology, shard_bytes: int) -> list[np.ndarray]:
    """Return what each chip of a row holds at the start."""
    return [numbers(8, shard_bytes // 32) + chip for chip in range(len(row.chips))]


def _ends(plan, row: plans.Topology, shard_bytes: int) -> list[np.ndarray]:
    """Return what each chip of the row holds in the end."""
    if not isinstance(plan, plans.Plan):
        raise CheckFailed(f"expected a Plan, got a {type(plan).__name__}")
    if plan.topology != row or plan.shard_bytes != shard_bytes:
        asked = f"chips {list(row.chips)} and {shard_bytes} bytes"
        given = f"chips {list(plan.topology.chips)} and {plan.shard_bytes} bytes"
        raise CheckFailed(f"the plan is for {given}; take the parameters, {asked}")
    try:
        plan.validate()
    except TTKitError as wrong:
        raise CheckFailed(str(wrong)) from None
    return plan.run(_shards(row, shard_bytes))


def _cheap(best_of: Planner) -> Callable[..., str]:
    """Return rules: a plan costs no more than the best one."""

    def rules(plan: plans.Plan, row: plans.Topology, shard_bytes: int) -> str:
        best = best_of(row, shard_bytes)
        (source, destination), busiest = max(plan.bytes_per_link.items(), key=lambda item: item[1])
        extra = plan.peak_extra_bytes
        sends = f"chip {source} sends {busiest:,} bytes to chip {destination}"
        for used, most, what in (
            (len(plan.steps), len(best.steps), f"takes {counted(len(plan.steps), 'step')}"),
            (busiest, max(best.bytes_per_link.values()), sends),
            (extra, best.peak_extra_bytes, f"a chip holds {extra:,} bytes more than at the start"),
        ):
            if used > most:
                return f"it is right, but {what}; the budget is {most:,}"
        return ""

    return rules


def _figures(plan: plans.Plan, row: plans.Topology, shard_bytes: int) -> str:
    busiest = max(plan.bytes_per_link.values())
    return (
        f"{plan.collective} in {counted(len(plan.steps), 'step')}, at most {busiest:,} bytes from "
        f"a chip to a neighbour, {plan.peak_extra_bytes:,} bytes of extra memory"
    )


def _sums(row: plans.Topology, shard_bytes: int) -> np.ndarray:
    return np.sum(_shards(row, shard_bytes), axis=0)


Exercise(
    "04.broadcast",
    asks="my_broadcast(row, shard_bytes)",
    reference=lambda row, size: [_shards(row, size)[1]] * 4,
    cases=[*zip(ROWS, SIZES)],
    reads=_ends,
    mistakes={
        f"that is what the {name} chip had; the second chip sends: root=1": (
            lambda row, size, root=root: [_shards(row, size)[root]] * 4
        )
        for root, name in ((0, "first"), (2, "third"), (3, "last"))
    }
    | {"each chip still has its own shard": _shards},
    rules=_cheap(functools.partial(plans.broadcast, root=1, axis=1)),
    praise=_figures,
    hints=[
        "Which chips can b reach in one step? Which is left?",
        "Step 1: b sends chunk 1 to both its neighbours. Who can reach d in step 2?",
        "a, b, c, d = row.chips; steps = [[Transfer(b, a, chunk=1), ...], [Transfer(...)]]",
    ],
)

Exercise(
    "04.reduce_scatter",
    asks="my_reduce_scatter(row, shard_bytes)",
    reference=lambda row, size: np.split(_sums(row, size), 4),
    cases=[*zip(ROWS, SIZES)],
    reads=_ends,
    mistakes={
        "each chip has the whole sum, as after an all_reduce; expected one quarter": (
            lambda row, size: [_sums(row, size)] * 4
        ),
        "each chip has all shards, as after an all_gather; expected sums": (
            lambda row, size: [np.concatenate(_shards(row, size))] * 4
        ),
    },
    rules=_cheap(functools.partial(plans.reduce_scatter, axis=1)),
    praise=_figures,
    hints=[
        "Look at the all-gather that the lesson builds by hand. What does it look like backwards?",
        "Take step_3, step_2, step_1, in this order, and turn each arrow around.",
        "The first step: [Transfer(d, c, chunk=0, reduce=True), "
        "Transfer(a, b, chunk=3, reduce=True)]",
    ],
)

"""Lesson 04, collectives. The answers are plans and a number."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit import plans
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed, difference, exercise, require
from ttkit.lessons.answers import Answer, asks, numbers, whole_number
from ttkit.words import counted

BAND = 0.1  # how far from the cross-over an answer may be, as a part of it


def _row(*chips: int) -> plans.Topology:
    """Return a row of a T3000 with these chips, each cabled to the next."""
    places = range(len(chips))
    cables = tuple(tuple(chips[j] for j in (i - 1, i + 1) if j in places) for i in places)
    shape = (1, len(chips))
    return dataclasses.replace(plans.topology("t3000"), chips=chips, shape=shape, cables=cables)


ROWS = (_row(4, 0, 2, 6), _row(5, 1, 3, 7))
SHARD = (8, 24)  # float32, on every chip
SHARD_BYTES = 4 * 8 * 24


def _written(answer: Answer, row: plans.Topology, collective: str, root: int | None) -> plans.Plan:
    """Return the plan that an answer gives; it must be for the row, its steps written by hand."""
    plan = answer(row, SHARD_BYTES)
    answer.must_give("a Plan", isinstance(plan, plans.Plan), plan)
    goal = f"the plan should be for {collective!r}, is for {plan.collective!r}"
    require(plan.collective == collective, goal)
    chips = f"the plan is for chips {list(plan.topology.chips)}, {answer.name} was given a row with"
    require(plan.topology == row, f"{chips} chips {list(row.chips)}")
    size = f"a shard of {SHARD_BYTES} bytes was given, the plan is for one of {plan.shard_bytes}"
    require(plan.shard_bytes == SHARD_BYTES, size)
    require(
        plan.group_size == len(row.chips),
        f"axis={plan.axis} makes groups of {plan.group_size} chips; "
        f"all {len(row.chips)} of the row work together: axis=1",
    )
    for number, t in plan.transfers:
        require(
            all(isinstance(c, int) for c in t.chunks),
            f"step {number}, chip {t.source} to chip {t.destination}: "
            f"chunk={t.chunk!r} should be a whole number, or a tuple of them",
        )
    roots = f"the plan's root is {plan.root}; the second chip sends: root={root}"
    require(root is None or plan.root == root, roots)
    made = f"this plan was made by ttkit.plans.{collective}: write its steps yourself"
    require(plan.algorithm == "by hand", made)
    return plan


def _graded(plan: plans.Plan, best: plans.Plan) -> str:
    """Check that a plan works and costs no more than the best one; return its figures in words."""
    try:
        plan.validate()
    except TTKitError as wrong:
        raise CheckFailed(str(wrong)) from None
    (source, destination), busiest = max(plan.bytes_per_link.items(), key=lambda item: item[1])
    extra, steps = plan.peak_extra_bytes, counted(len(plan.steps), "step")
    sends = f"chip {source} sends {busiest:,} bytes to chip {destination}"
    for used, most, what in (
        (len(plan.steps), len(best.steps), f"takes {steps}"),
        (busiest, max(best.bytes_per_link.values()), sends),
        (extra, best.peak_extra_bytes, f"a chip holds {extra:,} bytes beside its shard"),
    ):
        require(used <= most, f"it is right, but {what}; the budget is {most:,}")
    return (
        f"{plan.collective} in {steps}, at most {busiest:,} bytes from a "
        f"chip to a neighbour, {extra:,} bytes of extra memory"
    )


def _on_rows(
    answer: Answer,
    best_of: Callable[[plans.Topology], plans.Plan],
    expected: Callable[[list[np.ndarray]], list[np.ndarray]],
    root: int | None = None,
) -> str:
    """Check the plans for both rows: what they cost, and what they give each chip."""
    praise = ""
    for row in ROWS:
        best = best_of(row)
        plan = _written(answer, row, best.collective, root)
        praise = _graded(plan, best)
        shards = [numbers(*SHARD) + i for i in range(len(row.chips))]
        for chip, want, have in zip(row.chips, expected(shards), plan.run(shards), strict=True):
            found = difference(want, have, rtol=1e-4, atol=1e-4)
            require(not found, f"on chip {chip}, {found}")
    return praise


@exercise("04.broadcast")
@asks("my_broadcast(row, shard_bytes)")
def _broadcast(my_broadcast: Answer) -> str:
    best_of = functools.partial(plans.broadcast, shard_bytes=SHARD_BYTES, root=1, axis=1)
    return _on_rows(my_broadcast, best_of, lambda shards: [shards[1]] * len(shards), root=1)


@exercise("04.reduce_scatter")
@asks("my_reduce_scatter(row, shard_bytes)")
def _reduce_scatter(my_reduce_scatter: Answer) -> str:
    best_of = functools.partial(plans.reduce_scatter, shard_bytes=SHARD_BYTES, axis=1)
    return _on_rows(my_reduce_scatter, best_of, lambda shards: np.split(np.sum(shards, axis=0), 4))


@exercise("04.crossover")
def _crossover(answer: Any, mesh: Any) -> str:
    have = whole_number(answer, "the number of bytes")
    require(have > 0, f"a shard has at least 1 byte, not {have:,}")

    def build(size: int, algorithm: str) -> plans.Plan:
        return plans.all_reduce(ROWS[0], size, 1, algorithm=algorithm)

    tree, pair = (plans.cost(build(have, name)).time_s * 1e6 for name in ("tree", "line"))
    # never None here: each wins somewhere
    want = plans.crossover(lambda n: build(n, "tree"), lambda n: build(n, "line")) or 0
    times = (
        f"at {have:,} bytes a chip the tree takes {tree:.2f} us, "
        f"scatter and gather {pair:.2f} us (modelled)"
    )

    def near(size: int) -> bool:
        return abs(size - want) <= BAND * want

    hint = ""
    for size, unit in ((4, "float32"), (2, "bfloat16")):
        if near(size * have):
            hint = f" (that would be right in {unit} elements; bytes are asked for)"
    side = "higher" if have < want else "lower"
    require(near(have), f"{times}: the cross-over is {side}{hint}")
    return f"{times}; the cross-over is within a tenth of this"

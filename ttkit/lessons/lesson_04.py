"""Lesson 04, collectives."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from typing import Any

import numpy as np

from ttkit import plans
from ttkit.lessons import check_plan, difference, exercise, require
from ttkit.lessons.answers import Answer, asks, numbers, whole_number

BAND = 0.1  # how far from the cross-over an answer may be, as a part of it


def _row(*chips: int) -> plans.Topology:
    """A row of a T3000 with these chips, each cabled to the next."""
    cables = tuple(
        tuple(chips[j] for j in (i - 1, i + 1) if 0 <= j < len(chips)) for i in range(len(chips))
    )
    return dataclasses.replace(
        plans.topology("t3000"), chips=chips, shape=(1, len(chips)), cables=cables
    )


ROWS = (_row(4, 0, 2, 6), _row(5, 1, 3, 7))
SHARD = (8, 24)  # float32, on every chip
SHARD_BYTES = 4 * 8 * 24


def _written(
    answer: Answer, row: plans.Topology, collective: str, root: int | None = None
) -> plans.Plan:
    """The plan that an answer gives for a row, once it is for that row and nothing else."""
    plan = answer(row, SHARD_BYTES)
    require(
        plan is not None, f"{answer.asks} gave nothing back: does it end in `return Plan(...)`?"
    )
    require(
        isinstance(plan, plans.Plan),
        f"{answer.asks} should give a Plan, gave a {type(plan).__name__}",
    )
    require(
        plan.collective == collective,
        f"the plan should be for {collective!r}, is for {plan.collective!r}",
    )
    require(
        plan.topology == row,
        f"the plan is for chips {list(plan.topology.chips)}, {answer.name} was given a row with "
        f"chips {list(row.chips)}",
    )
    require(
        plan.shard_bytes == SHARD_BYTES,
        f"a shard of {SHARD_BYTES} bytes was given, the plan is for one of {plan.shard_bytes}",
    )
    alone = f"axis={plan.axis} makes groups of {plan.group_size} chips"
    require(
        plan.group_size == len(row.chips),
        f"{alone}; all {len(row.chips)} of the row work together: axis=1",
    )
    for number, t in plan.transfers:
        whole = all(isinstance(c, int) for c in t.chunks)
        require(
            whole,
            f"step {number}, chip {t.source} to chip {t.destination}: "
            f"chunk={t.chunk!r} should be a whole number, or a tuple of them",
        )
    require(
        root is None or plan.root == root,
        f"the plan's root is {plan.root}; the second chip sends: root={root}",
    )
    require(
        plan.algorithm == "by hand",
        f"this plan was made by ttkit.plans.{collective}: write its steps yourself",
    )
    return plan


def _graded(plan: plans.Plan, **budget: int) -> str:
    """What `check_plan` says of a plan that is right; the praise is printed once for all rows."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        check_plan(plan, plan.collective, **budget)
    return said.getvalue().strip().removeprefix("yes: ")


@exercise("04.broadcast")
@asks("my_broadcast(row, shard_bytes)")
def _broadcast(my_broadcast: Answer) -> str:
    praise = ""
    for row in ROWS:
        plan, best = (
            _written(my_broadcast, row, "broadcast", root=1),
            plans.broadcast(row, SHARD_BYTES, 1, 1),
        )
        praise = _graded(
            plan, max_steps=len(best.steps), max_bytes_per_link=max(best.bytes_per_link.values())
        )
        shards = [numbers(*SHARD) + i for i in range(4)]
        for chip, have in zip(row.chips, plan.run(shards), strict=True):
            found = difference(shards[1], have)
            require(not found, f"on chip {chip}, {found}")
    return praise


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
    if abs(have - want) > BAND * want:
        unit = next(
            (
                word
                for factor, word in ((4, "float32 elements"), (2, "bfloat16 elements"))
                if abs(have * factor - want) <= BAND * want
            ),
            "",
        )
        hint = f" (that would be right in {unit}; bytes are asked for)" if unit else ""
        require(False, f"{times}: the cross-over is {'higher' if have < want else 'lower'}{hint}")
    return f"{times}; the cross-over is within a tenth of this"


@exercise("04.reduce_scatter")
@asks("my_reduce_scatter(row, shard_bytes)")
def _reduce_scatter(my_reduce_scatter: Answer) -> str:
    praise = ""
    for row in ROWS:
        plan, best = (
            _written(my_reduce_scatter, row, "reduce_scatter"),
            plans.reduce_scatter(row, SHARD_BYTES, 1),
        )
        busiest = max(best.bytes_per_link.values())
        praise = _graded(
            plan,
            max_steps=len(best.steps),
            max_bytes_per_link=busiest,
            max_extra_bytes=best.peak_extra_bytes,
        )
        shards = [numbers(*SHARD) + i for i in range(4)]
        for chip, want, have in zip(
            row.chips, np.split(sum(shards[1:], shards[0]), 4), plan.run(shards), strict=True
        ):
            found = difference(want, have, rtol=1e-4, atol=1e-4)
            require(not found, f"on chip {chip}, {found}")
    return praise

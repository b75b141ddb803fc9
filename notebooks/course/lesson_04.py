"""Lessons 04 and 04b, collectives and what they cost: their exercises.

The answers are plans and numbers.
"""

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
from ttkit.lessons.predicting import as_number
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
        raise CheckFailed(f"a Plan is asked for, this is a {type(plan).__name__}")
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
            (extra, best.peak_extra_bytes, f"a chip holds {extra:,} bytes beside its shard"),
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
    | {"each chip has its own shard still": _shards},
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
        "each chip has the whole sum, as after an all_reduce; a quarter is asked for": (
            lambda row, size: [_sums(row, size)] * 4
        ),
        "each chip has all shards, as after an all_gather; sums are asked for": (
            lambda row, size: [np.concatenate(_shards(row, size))] * 4
        ),
    },
    rules=_cheap(functools.partial(plans.reduce_scatter, axis=1)),
    praise=_figures,
    hints=[
        "Look at the all-gather of the section By hand first. What does it look like backwards?",
        "Read step_3, step_2, step_1, in this order, each arrow turned around.",
        "The first step: [Transfer(d, c, chunk=0, reduce=True), "
        "Transfer(a, b, chunk=3, reduce=True)]",
    ],
)


# ---------------------------------------------------------------- 04.crossover
BAND = 0.1  # An answer may be 10 % off the cross-over.


def _all_reduce(size: float, algorithm: str) -> plans.Plan:
    return plans.all_reduce(ROWS[1], int(size), 1, algorithm=algorithm)


def _times(size) -> str:
    tree, pair = (1e6 * plans.cost(_all_reduce(size, name)).time_s for name in ("tree", "line"))
    return (
        f"at {int(size):,} bytes a chip the tree takes {tree:.2f} us, "
        f"scatter and gather {pair:.2f} us (modelled)"
    )


def _off(answer) -> str:
    """Return why a number of bytes is not the cross-over."""
    size = as_number(answer)
    if size is None or size < 1:
        return f"a number of bytes is asked for, at least 1, not {answer!r}"
    # Each algorithm is faster at some size, so there is a cross-over.
    want = plans.crossover(lambda n: _all_reduce(n, "tree"), lambda n: _all_reduce(n, "line")) or 0
    if abs(size - want) <= BAND * want:
        return ""
    return f"{_times(size)}: the cross-over is {'higher' if size < want else 'lower'}"


Exercise(
    "04.crossover",
    asks="the number of bytes",
    rules=_off,
    praise=lambda size: f"{_times(size)}; the cross-over is within a tenth of this",
    hints=[
        "Which way is faster for 64 bytes, which for a million?",
        "Print both times for 1024 << i, i from 0 to 9. Between which two does the winner change?",
        "ttkit.plans.crossover(small, large) finds it: two functions that build a plan for n "
        "bytes.",
    ],
)


# ---------------------------------------------------------------- 04.price
# They differ from every real link, so that an answer must use its arguments.
LATENCY_S, BYTES_PER_S = 2e-6, 4e9
Sizes = list[int]


def _price(plan: plans.Plan, latency_s: float, rate: float) -> float:
    return _priced(max, plan, latency_s, rate)


def _priced(of: Callable[[Sizes], float], plan: plans.Plan, latency_s: float, rate: float) -> float:
    """Return the sum over steps of the latency and of a step's size over the links."""
    sizes = [of([t.bytes or 0 for t in step]) for step in plan.steps]
    return latency_s * len(sizes) + sum(sizes) / plan.links / rate


def _plans() -> list[plans.Plan]:
    t3000 = plans.topology("t3000")
    rim = plans.topology("t3000", (1, 8))
    # In this plan the largest transfer of a step is neither its first nor its last, so that an
    # answer must take the maximum.
    uneven = plans.all_to_all(t3000, 240_000)
    turned = [[*step][2:] + [*step][:2] for step in uneven.steps]
    return [
        plans.all_gather(t3000, 240_000),
        plans.all_gather(rim, 240_000, 1, links=1),
        plans.all_reduce(ROWS[0], 240_000, 1, algorithm="tree"),
        dataclasses.replace(uneven, steps=turned),  # type: ignore[arg-type]
    ]


SLOWEST = "a step ends with its slowest pair, the one with the largest transfer"

Exercise(
    "04.price",
    asks="my_price(plan, latency_s, bytes_per_s)",
    reference=_price,
    cases=[(plan, LATENCY_S, BYTES_PER_S) for plan in _plans()],
    mistakes={
        "the latency is paid in each step": lambda plan, latency_s, rate: (
            _price(plan, 0, rate) + latency_s
        ),
        "the latency is missing": lambda plan, latency_s, rate: _price(plan, 0, rate),
        "a transfer uses plan.links links at once": lambda plan, latency_s, rate: _price(
            plan, latency_s, rate / plan.links
        ),
        "transfers of a step happen at the same time": functools.partial(_priced, sum),
        SLOWEST: functools.partial(_priced, lambda sizes: sum(sizes) / len(sizes)),
        f"{SLOWEST}, not with its first": functools.partial(_priced, lambda sizes: sizes[0]),
        "the busiest pair of the whole plan may be idle in a step: each step has its own": (
            lambda plan, latency_s, rate: (
                latency_s * len(plan.steps) + max(plan.bytes_per_link.values()) / plan.links / rate
            )
        ),
        "latency_s and bytes_per_s are swapped": lambda plan, latency_s, rate: _price(
            plan, rate, latency_s
        ),
    },
    rtol=1e-6,
    praise="four plans, each the sum of its steps, each step as slow as its slowest pair",
    hints=[
        "What takes longest in a step? Do its other transfers make it longer?",
        "For each step: the largest t.bytes, divided by plan.links and by bytes_per_s. And "
        "latency?",
        "for step in plan.steps: seconds += latency_s + max(...) / plan.links / bytes_per_s",
    ],
)

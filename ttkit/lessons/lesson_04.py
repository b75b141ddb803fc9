"""Lessons 04 and 04b, collectives and what they cost. The answers are plans and numbers."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import numpy as np

from ttkit import plans
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed, difference, exercise, require
from ttkit.lessons.answers import Answer, asks, numbers, whole_number
from ttkit.lessons.copied import as_given, library_plans, require_own
from ttkit.lessons.predicting import as_number
from ttkit.words import counted

BAND = 0.1  # how far from the cross-over an answer may be, as a part of it


def _row(*chips: int) -> plans.Topology:
    """Return a row of a T3000 with these chips, each cabled to the next."""
    places = range(len(chips))
    cables = tuple(tuple(chips[j] for j in (i - 1, i + 1) if j in places) for i in places)
    shape = (1, len(chips))
    return dataclasses.replace(plans.topology("t3000"), chips=chips, shape=shape, cables=cables)


ROWS = (_row(4, 0, 2, 6), _row(5, 1, 3, 7))
SHARDS = ((8, 24), (8, 12))  # float32, on every chip of a row


def _written(
    answer: Answer, row: plans.Topology, size: int, collective: str, root: int | None
) -> plans.Plan:
    """Return the plan that an answer gives; it must be for the row, its steps written by hand."""
    with library_plans() as made, as_given() as given:
        plan = answer(row, size)
    answer.must_give("a Plan", isinstance(plan, plans.Plan), plan)
    goal = f"the plan should be for {collective!r}, is for {plan.collective!r}"
    require(plan.collective == collective, goal)
    chips = f"the plan is for chips {list(plan.topology.chips)}, {answer.name} was given a row with"
    require(plan.topology == row, f"{chips} chips {list(row.chips)}")
    given_size = f"a shard of {size} bytes was given, the plan is for one of {plan.shard_bytes}"
    require(plan.shard_bytes == size, given_size)
    require(
        plan.group_size == len(row.chips),
        f"axis={plan.axis} makes groups of {plan.group_size} chips; "
        f"all {len(row.chips)} of the row work together: axis=1",
    )
    for number, t in plan.transfers:
        require(
            all(isinstance(c, Integral) for c in t.chunks),
            f"step {number}, chip {t.source} to chip {t.destination}: "
            f"chunk={t.chunk!r} should be a whole number, or a tuple of them",
        )
    roots = f"the plan's root is {plan.root}; the second chip sends: root={root}"
    require(root is None or plan.root == root, roots)
    require_own(answer, given, made)
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
    best_of: Callable[[plans.Topology, int], plans.Plan],
    expected: Callable[[list[np.ndarray]], list[np.ndarray]],
    root: int | None = None,
) -> str:
    """Check the plans for both rows: what they cost, and what they give each chip."""
    praise = ""
    for row, shape in zip(ROWS, SHARDS, strict=True):
        best = best_of(row, 4 * math.prod(shape))
        plan = _written(answer, row, best.shard_bytes, best.collective, root)
        figures = _graded(plan, best)
        praise = praise or figures
        shards = [numbers(*shape) + i for i in range(len(row.chips))]
        for chip, want, have in zip(row.chips, expected(shards), plan.run(shards), strict=True):
            found = difference(want, have, rtol=1e-4, atol=1e-4)
            require(not found, f"on chip {chip}, {found}")
    return praise


@exercise(
    "04.broadcast",
    "Which chips can b reach in one step? Which is left?",
    "Step 1: b sends chunk 1 to both its neighbours. Who can reach d in step 2?",
    "a, b, c, d = row.chips; steps = [[Transfer(b, a, chunk=1), ...], [Transfer(...)]]",
)
@asks("my_broadcast(row, shard_bytes)")
def _broadcast(my_broadcast: Answer) -> str:
    best_of = functools.partial(plans.broadcast, root=1, axis=1)
    return _on_rows(my_broadcast, best_of, lambda shards: [shards[1]] * len(shards), root=1)


@exercise(
    "04.reduce_scatter",
    "Look at the all-gather of the section By hand first. What does it look like backwards?",
    "Read step_3, step_2, step_1, in this order, each arrow turned around.",
    "The first step: [Transfer(d, c, chunk=0, reduce=True), Transfer(a, b, chunk=3, reduce=True)]",
)
@asks("my_reduce_scatter(row, shard_bytes)")
def _reduce_scatter(my_reduce_scatter: Answer) -> str:
    best_of = functools.partial(plans.reduce_scatter, axis=1)
    return _on_rows(my_reduce_scatter, best_of, lambda shards: np.split(np.sum(shards, axis=0), 4))


@exercise(
    "04.crossover",
    "Which way is faster for 64 bytes, which for a million?",
    "Print both times for 1024 << i, i from 0 to 9. Between which two does the winner change?",
    "ttkit.plans.crossover(small, large) finds it: two functions that build a plan for n bytes.",
)
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

    unit = ""
    for size, name in ((4, "float32"), (2, "bfloat16")):
        if near(size * have):
            unit = f" (that would be right in {name} elements; bytes are asked for)"
    side = "higher" if have < want else "lower"
    require(near(have), f"{times}: the cross-over is {side}{unit}")
    return f"{times}; the cross-over is within a tenth of this"


# ---------------------------------------------------------------- the price of a plan
LATENCY_S, BYTES_PER_S = 2e-6, 4e9  # none of a real link


def _price(plan: plans.Plan, latency_s: float, bytes_per_s: float) -> float:
    largest = [max(t.bytes or 0 for t in step) / plan.links for step in plan.steps]
    return sum(latency_s + size / bytes_per_s for size in largest)


def _slips(plan: plans.Plan) -> Iterator[tuple[float, str]]:
    """Yield what a usual mistake gives, and what to say about it."""
    right, steps = _price(plan, LATENCY_S, BYTES_PER_S), len(plan.steps)
    sums, rate = plan.bytes_per_step, BYTES_PER_S * plan.links
    most = max(plan.bytes_per_link.values())
    yield right - LATENCY_S * (steps - 1), "the latency is paid in each step"
    yield right - LATENCY_S * steps, "the latency is missing"
    yield _price(plan, LATENCY_S, rate / plan.links**2), "a transfer uses plan.links links at once"
    yield LATENCY_S * steps + sum(sums) / rate, "transfers of a step happen at the same time"
    yield LATENCY_S * steps + sum(sums) / BYTES_PER_S, "transfers of a step happen at the same time"
    slowest = "a step ends with its slowest pair, the one with the largest transfer"
    for size in (min, lambda sizes: sum(sizes) / len(sizes), lambda sizes: sizes[0]):
        of_steps = sum(size([t.bytes or 0 for t in step]) for step in plan.steps)
        yield LATENCY_S * steps + of_steps / rate, slowest
    whole = "the busiest pair of the whole plan may be idle in a step: each step has its own"
    yield LATENCY_S * steps + most / rate, whole
    yield _price(plan, BYTES_PER_S, LATENCY_S), "latency_s and bytes_per_s are swapped"


@exercise(
    "04.price",
    "What takes longest in a step? Do its other transfers make it longer?",
    "For each step: the largest t.bytes, divided by plan.links and by bytes_per_s. And latency?",
    "for step in plan.steps: seconds += latency_s + max(...) / plan.links / bytes_per_s",
)
@asks("my_price(plan, latency_s, bytes_per_s)")
def _my_price(my_price: Answer) -> str:
    t3000, row = plans.topology("t3000"), ROWS[1]
    rim = plans.topology("t3000", (1, 8))
    size = 240_000
    uneven = plans.all_to_all(t3000, size)  # the largest transfer of a step neither first nor last
    turned = [[*step][2:] + [*step][:2] for step in uneven.steps]
    uneven = dataclasses.replace(uneven, steps=turned)  # type: ignore[arg-type]
    for plan in (
        plans.all_gather(t3000, size),
        plans.all_gather(rim, size, 1, links=1),
        plans.all_reduce(row, size, 1, algorithm="tree"),
        uneven,
    ):
        have = my_price(plan, LATENCY_S, BYTES_PER_S)
        seconds = as_number(have)
        my_price.must_give("a number of seconds", seconds is not None, have)
        number = float(seconds or 0)
        want = _price(plan, LATENCY_S, BYTES_PER_S)
        if np.isclose(number, want, rtol=1e-6, atol=0):
            continue
        slips = (about for slip, about in _slips(plan) if np.isclose(number, slip, 1e-6, 0))
        found = next(slips, "one step alone: latency + largest transfer / links / rate")
        raise CheckFailed(
            f"{plan!r}, {plan.links} links a transfer, latency {1e6 * LATENCY_S:g} us, "
            f"{BYTES_PER_S / 1e9:g} GB/s: {1e6 * number:,.2f} us from you, "
            f"{1e6 * want:,.2f} us by the model. {found[0].upper()}{found[1:]}"
        )
    return "four plans, each the sum of its steps, each step as slow as its slowest pair"

"""Lesson 04, collectives: exercises that ask for plans."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course.arrays import numbers
from ttkit import plans
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Challenge, Exercise
from ttkit.words import counted


def _row(*chips: int) -> plans.Topology:
    """Return a row of a T3000 with these chips, each cabled to the next."""
    places = range(len(chips))
    cables = tuple(tuple(chips[j] for j in (i - 1, i + 1) if j in places) for i in places)
    shape = (1, len(chips))
    return dataclasses.replace(plans.topology("t3000"), chips=chips, shape=shape, cables=cables)


ROWS = (_row(5, 1, 3, 7), _row(4, 0, 2, 6))
# These are the bytes of shards of 8 rows in float32, with 12 and with 24 columns.
SIZES = (384, 768)
Planner = Callable[[plans.Topology, int], plans.Plan]


# ---------------------------------------------------------------- plans
def _shards(row: plans.Topology, shard_bytes: int) -> list[np.ndarray]:
    """Return what each chip of a row holds at the start."""
    return [numbers(8, shard_bytes // 32) + chip for chip in range(len(row.chips))]


def _valid(plan, topologies: Sequence[plans.Topology], shard_bytes: int) -> plans.Plan:
    """Return the plan if it is complete, for one of these topologies and this size.

    Raises:
        CheckFailed: it is not.
    """
    if not isinstance(plan, plans.Plan):
        raise CheckFailed(f"expected a Plan, got a {type(plan).__name__}")
    if plan.topology not in topologies or plan.shard_bytes != shard_bytes:
        asked = f"chips {list(topologies[0].chips)} and {shard_bytes} bytes"
        given = f"chips {list(plan.topology.chips)} and {plan.shard_bytes} bytes"
        raise CheckFailed(f"the plan is for {given}; expected {asked}")
    try:
        return plan.validate()
    except TTKitError as wrong:
        raise CheckFailed(str(wrong)) from None


def _ends(plan, row: plans.Topology, shard_bytes: int) -> list[np.ndarray]:
    """Return what each chip of the row holds after the last step of a plan."""
    return _valid(plan, [row], shard_bytes).run(_shards(row, shard_bytes))


Figure = tuple[int, str]  # A figure is a number and the text that shows it.


def _steps(plan: plans.Plan) -> Figure:
    return len(plan.steps), counted(len(plan.steps), "step")


def _link(plan: plans.Plan) -> Figure:
    (source, to), most = max(plan.bytes_per_link.items(), key=lambda item: item[1])
    return most, f"{most:,} bytes from chip {source} to chip {to}"


def _memory(plan: plans.Plan) -> Figure:
    return plan.peak_extra_bytes, f"{plan.peak_extra_bytes:,} bytes of extra memory on a chip"


FIGURES = (_steps, _link, _memory)


def _cheap(best_of: Planner) -> Callable[..., str]:
    """Return a rule that a plan breaks if one of its figures is worse than the best plan's."""

    def rules(plan: plans.Plan, *case) -> str:
        for figure in FIGURES:
            (used, words), (most, _) = figure(plan), figure(best_of(*case))
            if used > most:
                return f"it is right, but it takes {words}; the budget is {most:,}"
        return ""

    return rules


def _figures(plan: plans.Plan, *_) -> str:
    return f"{plan.collective}: {', '.join(figure(plan)[1] for figure in FIGURES)}"


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
        "In step 1, b sends chunk 1 to both its neighbours. Which chip can reach d in step 2?",
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


# ---------------------------------------------------------------- the challenges
GRID, RING = plans.topology("t3000"), plans.topology("t3000", (1, 8))
NAMED = dict(zip("abcdefgh", GRID.chips))  # a to d are the upper row, e to h the lower one.
ARRAY = 1 << 20  # Each chip has an array of this many bytes.


def _least(name: str, asks: str, unit: str, figure: Callable, steps: Any) -> None:
    """Declare a challenge: an all-reduce on eight chips whose `figure` is as small as possible."""

    def score(plan) -> Figure:
        whole = _valid(plan, [GRID, RING], ARRAY)
        if whole.collective != "all_reduce" or whole.group_size < 8:
            raise CheckFailed(f"expected an all_reduce of all eight chips, got {plan!r}")
        return figure(whole)[0], repr(whole)

    best = functools.partial(plans.Plan, "all_reduce", GRID, steps, ARRAY)
    Challenge(name, asks=asks, score=score, unit=unit, reference=best)


def _sends(pairs: str, *chunks: int, reduce: bool = True) -> list[plans.Transfer]:
    """Return the transfers of a step. The pair "ab" is a transfer of the chunks from a to b."""
    return [
        plans.Transfer(NAMED[a], NAMED[b], chunks, reduce=reduce)
        for a, b in map(tuple, pairs.split())
    ]


# In step 1 the two chips of each column exchange arrays and add them. In step 2 the ends of each
# row send their sums inwards. In step 3 the two middle chips of the row exchange sums, and in step
# 4 they send the result to the ends. Opposite corners are four links apart, so no plan has fewer
# steps.
EXCHANGE = [
    _sends(pairs, *range(8), reduce=pairs != "ba cd fe gh")
    for pairs in ("ae ea bf fb cg gc dh hd", "ab dc ef hg", "bc cb fg gf", "ba cd fe gh")
]

# Each chunk is added up along a tree, and the sum goes back along the same tree. Two trees serve
# two chunks each. Eight trees have 56 edges, but there are only ten pairs, so some pair is in at
# least six trees. Here no pair is in more than six.
TREES = 2 * ["ab bc cd ae bf cg dh", "ef fg gh ea fb gc hd"] + [
    "ab bc cd ae ef fg gh",
    "ba bc cd bf fe fg gh",
    "cb ba cd cg gf fe gh",
    "dc cb ba dh hg gf fe",
]


def _along_trees():
    steps = []
    for chunk, tree in enumerate(TREES):
        there = tree.split()
        steps += [_sends(pair[::-1], chunk) for pair in there[::-1]]
        steps += [_sends(pair, chunk, reduce=False) for pair in there]
    return steps


# The chunks go around the ring in one direction, so in each step one chunk arrives at each chip.
AROUND = [
    [
        each
        for i, pair in enumerate(["ab", "bc", "cd", "dh", "hg", "gf", "fe", "ea"])
        for each in _sends(pair, (i - step) % 8, reduce=step < 7)
    ]
    for step in range(14)
]

_least(
    "04.steps", "an all-reduce on eight chips in the fewest steps", "{:,} steps", _steps, EXCHANGE
)
_least(
    "04.link",
    "an all-reduce on eight chips with the fewest bytes over the busiest pair",
    "{:,} bytes",
    _link,
    _along_trees(),
)
_least(
    "04.memory",
    "an all-reduce on eight chips with the least extra memory on a chip",
    "{:,} bytes",
    _memory,
    AROUND,
)

"""Wrong plans, each refused with a message that names chip, chunk and step."""

import dataclasses

import pytest

from ttkit.errors import TTKitError
from ttkit.plans import Plan, Transfer, all_gather, broadcast, reduce_scatter, shift, topology

T3000 = topology("t3000")  # 4 0 2 6 / 5 1 3 7
N300 = topology("n300")


def steps_of(plan):
    return [list(step) for step in plan.steps]


def changed(plan, **what):
    return dataclasses.replace(plan, **what)


def swap(plan, step, index, **what):
    """The plan with one transfer changed (steps counted from 1, as in messages)."""
    steps = steps_of(plan)
    steps[step - 1][index] = dataclasses.replace(steps[step - 1][index], **({"bytes": None} | what))
    return changed(plan, steps=steps)


def find(plan, step, source, destination):
    ends = [(t.source, t.destination) for t in plan.steps[step - 1]]
    return ends.index((source, destination))


def without(plan, left_out):
    """The plan without the transfers of which `left_out` is true."""
    return changed(plan, steps=[[t for t in step if not left_out(t)] for step in plan.steps])


GATHER = all_gather(T3000, 1024, axis=1, links=1)
SCATTER = reduce_scatter(T3000, 1024, axis=1, links=1)
SHIFT = shift(T3000, 1024, axis=1)

WRONG = {
    "a shift the other way": (
        lambda: changed(SHIFT, backwards=True),
        ["step 3 of 3", "chip 4 does not hold chunk 1"],
    ),
    "a shift without the way back": (
        lambda: changed(SHIFT, steps=steps_of(SHIFT)[:2]),
        ["step 2 of 2", "chip 4 does not hold chunk 3"],
    ),
    "off-by-one chunk": (
        lambda: swap(GATHER, 2, find(GATHER, 2, 0, 2), chunk=1),
        ["step 3", "chunk 0", "chip 6"],
    ),
    "a chunk sent before it has come": (
        lambda: changed(GATHER, steps=[steps_of(GATHER)[i] for i in (1, 0, 2)]),
        ["step 1", "does not hold it yet"],
    ),
    "a step left out": (
        lambda: changed(GATHER, steps=steps_of(GATHER)[:2]),
        ["step 2 of 2", "after the last step", "chip 4", "chunk 3"],
    ),
    "one transfer left out": (
        lambda: without(GATHER, lambda t: (t.source, t.destination) == (3, 7)),
        ["chip 7 does not hold chunk 4"],
    ),
    "a ring on a line": (
        lambda: swap(GATHER, 1, find(GATHER, 1, 6, 2), destination=4),
        ["step 1", "chip 6 sends chunk 3 to chip 4", "no cable joins them", "chip 2, chip 7"],
    ),
    "a chip that is not there": (
        lambda: swap(GATHER, 1, 0, destination=8),
        ["step 1", "there is no chip 8"],
    ),
    "a chunk that is not there": (
        lambda: swap(GATHER, 1, find(GATHER, 1, 4, 0), chunk=8),
        ["step 1", "chip 4 sends chunk 8", "does not hold it"],
    ),
    "two messages on one link": (
        lambda: Plan("all_gather", topology("galaxy"), [[Transfer(0, 1, 0)] * 6], 64, axis=1),
        ["step 1", "chip 0 sends 6 messages", "chip 1", "4 links"],
    ),
    "two writers of one chunk": (
        lambda: Plan("all_reduce", T3000, [[Transfer(4, 0, 0), Transfer(2, 0, 0)]], 64, axis=1),
        ["step 1", "chip 0", "chunk 0", "overwrite"],
    ),
    "a missing reduction": (
        lambda: swap(SCATTER, 1, 0, reduce=False),
        ["step 1", "overwrite the part of chip", "reduce=True"],
    ),
    "a part added twice": (
        lambda: Plan("reduce_scatter", N300, [[Transfer(0, 1, 1, reduce=True)]] * 2, 64),
        ["step 2", "chip 0 sends chunk 1 to chip 1", "part of chip 0 a second time"],
    ),
    "a sum that lacks a part": (
        lambda: without(SCATTER, lambda t: t.source == 6),
        ["chunk 0 on chip 4 lacks the part of chip 6"],
    ),
    "an addition in a gather": (
        lambda: swap(GATHER, 1, 0, reduce=True),
        ["step 1", "all_gather adds nothing"],
    ),
    "a broadcast that ends early": (
        lambda: changed(broadcast(T3000, 64), steps=steps_of(broadcast(T3000, 64))[:-1]),
        ["after the last step", "chip 5 does not hold chunk 0"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_plan_is_refused_with_chip_chunk_and_step(name):
    build, phrases = WRONG[name]
    plan = build()
    with pytest.raises(TTKitError) as refused:
        plan.validate()
    for phrase in ["step", "chip", *phrases]:
        assert phrase in str(refused.value)


@pytest.mark.parametrize(
    ("ask", "phrase"),
    [
        (lambda: Plan("gather", N300, [], 10), "the collectives are all_gather"),
        (lambda: Plan("all_gather", N300, [], 10, links=3), "joined by 2"),
        (lambda: Plan("all_gather", N300, [], 0), "shard_bytes=0 must be a whole number"),
    ],
)
def test_what_is_no_plan(ask, phrase):
    with pytest.raises(TTKitError, match=phrase):
        ask()


def test_chunks_as_a_list():
    there, back = Transfer(0, 1, [0, 1], reduce=True), Transfer(1, 0, [0, 1])
    assert Plan("all_reduce", N300, [[there], [back]], 10).validate().total_bytes == 20

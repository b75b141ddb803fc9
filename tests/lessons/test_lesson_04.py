"""The exercises of lessons 04 and 04b, whose answers are plans and numbers, with right answers and
with wrong ones.
"""

import dataclasses
import functools
from decimal import Decimal

import numpy as np
import pytest
from answers import right, wrong

from ttkit import lessons
from ttkit.plans import (
    Plan,
    Transfer,
    all_gather,
    all_reduce,
    broadcast,
    collectives,
    cost,
    crossover,
    reduce_scatter,
    topology,
)

ROW = topology("t3000", (1, 4))
STOLEN = reduce_scatter(ROW, 64, axis=1)
STOLEN_STEPS = reduce_scatter(ROW, 768, axis=1).steps
SPREAD = broadcast(ROW, 768, 1, axis=1)


def scattering(*steps, adds=True, **options):
    """An answer to 04.reduce_scatter whose steps are written as 'dc0 ab3': chips and chunk."""

    def answer(row, shard_bytes):
        chip = dict(zip("abcd", row.chips))
        written = [
            [Transfer(chip[s], chip[t], int(c), reduce=adds) for s, t, c in step.split()]
            for step in steps
        ]
        return Plan("reduce_scatter", row, written, shard_bytes, **{"axis": 1, **options})

    return answer


def spreading(*steps, root=1, **options):
    """An answer to 04.broadcast, written alike."""

    def answer(row, shard_bytes):
        chip = dict(zip("abcd", row.chips))
        written = [
            [Transfer(chip[s], chip[t], int(c)) for s, t, c in step.split()] for step in steps
        ]
        return Plan("broadcast", row, written, shard_bytes, **{"axis": 1, "root": root, **options})

    return answer


def with_device_ids(row, shard_bytes):
    steps = [[Transfer(0, 4, 1), Transfer(0, 2, 1)], [Transfer(2, 6, 1)]]
    return Plan("broadcast", row, steps, shard_bytes, axis=1, root=1)


def own_backwards(row, shard_bytes):
    """The learner's own all-gather, of the lesson's first section, turned around by a program."""
    chip = dict(zip((4, 0, 2, 6), row.chips))
    steps = [
        [Transfer(chip[t.destination], chip[t.source], t.chunk, reduce=True) for t in step]
        for step in reversed(BY_HAND.steps)
    ]
    return Plan("reduce_scatter", row, steps, shard_bytes, axis=1)


def scatter_by(steps):
    """An answer that takes its steps from a function of row and bytes."""
    return lambda row, n: Plan("reduce_scatter", row, steps(row, n), n, axis=1)


def relabelled(plan, row):
    chip = dict(zip(plan.topology.chips, row.chips))
    return [
        [Transfer(chip[t.source], chip[t.destination], t.chunk, reduce=True) for t in step]
        for step in plan.steps
    ]


def from_a_variable(row, shard_bytes):
    return Plan("reduce_scatter", row, relabelled(STOLEN, row), shard_bytes, axis=1)


def from_its_steps(row, shard_bytes):
    chip = dict(zip((4, 0, 2, 6), row.chips))
    steps = [
        [dataclasses.replace(t, source=chip[t.source], destination=chip[t.destination]) for t in s]
        for s in STOLEN_STEPS
    ]
    return Plan("reduce_scatter", row, steps, shard_bytes, axis=1)


def with_a_default(row, shard_bytes, plan=STOLEN):
    return Plan("reduce_scatter", row, relabelled(plan, row), shard_bytes, axis=1)


def spread_by_variable(row, shard_bytes):
    return Plan("broadcast", row, SPREAD.steps, SPREAD.shard_bytes, axis=1, root=1)


def price(largest=max, links=True, latency=1.0, once=False):
    """An answer to 04.price, with its usual mistakes."""

    def my_price(plan, latency_s, bytes_per_s):
        seconds = latency_s if once else 0
        for step in plan.steps:
            size = largest(t.bytes for t in step) / (plan.links if links else 1)
            seconds += (0 if once else latency * latency_s) + size / bytes_per_s
        return seconds

    return my_price


def price_by_pairs(plan, latency_s, bytes_per_s):
    seconds = 0
    for step in plan.steps:
        load = {}
        for t in step:
            load[t.source, t.destination] = load.get((t.source, t.destination), 0) + t.bytes
        seconds += latency_s + max(load.values()) / (plan.links * bytes_per_s)
    return np.float64(seconds)


def price_of_the_busiest(plan, latency_s, bytes_per_s):
    most = max(plan.bytes_per_link.values())
    return latency_s * len(plan.steps) + most / plan.links / bytes_per_s


def backwards(row, shard_bytes):
    """The film of the all-gather, turned around by a program."""
    gather = all_gather(row, shard_bytes, axis=1)
    steps = [
        [Transfer(t.destination, t.source, t.chunk, reduce=True) for t in step]
        for step in reversed(gather.steps)
    ]
    return Plan("reduce_scatter", row, steps, shard_bytes, axis=1)


def two_plans_for_two_rows(row, shard_bytes):
    return GOOD(row, shard_bytes) if row.chips[0] == 4 else scattering("dc0")(row, shard_bytes)


def for_768_bytes(row, shard_bytes):
    return GOOD(row, 768)


class Keeper:
    """Keeps a plan of the library in an object, and its steps in a method."""

    def __init__(self):
        self.plan = STOLEN

    def steps_of(self, row, shard_bytes):
        return relabelled(self.plan, row)

    def __call__(self, row, shard_bytes):
        return Plan("reduce_scatter", row, self.steps_of(row, shard_bytes), shard_bytes, axis=1)


@functools.cache
def in_a_cache(row, shard_bytes):
    return from_a_variable(row, shard_bytes)


def in_numpy_numbers(answer):
    """The same plan, its chips and chunks as NumPy counts."""

    def numbered(row, shard_bytes):
        plan = answer(row, shard_bytes)
        steps = [
            [
                Transfer(*map(np.int64, (t.source, t.destination, t.chunk)), reduce=t.reduce)
                for t in step
            ]
            for step in plan.steps
        ]
        return dataclasses.replace(plan, steps=steps)

    return numbered


T3000 = topology("t3000")
CROSS = crossover(
    lambda n: all_reduce(T3000, n, 1, algorithm="tree"),
    lambda n: all_reduce(T3000, n, 1, algorithm="line"),
)
A, B, C, D = ROW.chips
BY_HAND = Plan(
    "all_gather",
    ROW,
    [
        [Transfer(*t) for t in step]
        for step in (
            [(A, B, 0), (B, A, 1), (B, C, 1), (C, B, 2), (C, D, 2), (D, C, 3)],
            [(B, C, 0), (C, D, 1), (B, A, 2), (C, B, 3)],
            [(C, D, 0), (B, A, 3)],
        )
    ],
    64,
    axis=1,
)
IN = dict(zip(ROW.chips, "abcd"))
GOOD = scattering("dc0 ab3", "cb0 dc1 ab2 bc3", "ba0 ab1 cb1 bc2 dc2 cd3")

RIGHT = [
    ("04.broadcast", spreading("ba1 bc1", "cd1")),
    ("04.broadcast", spreading("bc1", "ba1 cd1")),
    # in a single row all chips are the row's
    ("04.broadcast", spreading("ba1 bc1", "cd1", axis=None)),
    ("04.broadcast", in_numpy_numbers(spreading("ba1 bc1", "cd1"))),
    ("04.reduce_scatter", in_numpy_numbers(GOOD)),
    ("04.crossover", Decimal(CROSS)),
    ("04.crossover", CROSS),
    ("04.crossover", np.int64(1.09 * CROSS)),
    ("04.crossover", float(int(0.91 * CROSS))),
    ("04.reduce_scatter", GOOD),
    ("04.reduce_scatter", own_backwards),
    # the library's very order, but by hand
    (
        "04.reduce_scatter",
        scattering(
            *(
                " ".join(f"{IN[t.source]}{IN[t.destination]}{t.chunk}" for t in step)
                for step in STOLEN.steps
            )
        ),
    ),
    ("04.price", price()),
    ("04.price", price_by_pairs),
    # a message over each of two cables
    ("04.reduce_scatter", scattering("dc0 dc1 ab3 ab2", "cb0 cb1 bc3 bc2", "ba0 ab1 dc2 cd3")),
    (
        "04.reduce_scatter",
        scattering("dc0 ab3", "cb0 dc1 ab2 bc3", "ba0 ab1 cb1 bc2 dc2 cd3", links=2),
    ),
]

# (exercise, wrong answer, what the feedback must name)
WRONG = [
    (
        "04.broadcast",
        spreading("ba1 bc1 bd1"),
        "step 1 of 1 of broadcast .* chip 0 sends chunk 1 to chip 6, but no cable joins them",
    ),
    (
        "04.broadcast",
        spreading("ba1 bc1 cd1"),
        "chip 2 sends chunk 1 to chip 6, but does not hold it yet",
    ),
    (
        "04.broadcast",
        spreading("ba1", "bc1", "cd1"),
        "it is right, but takes 3 steps; the budget is 2",
    ),
    ("04.broadcast", spreading("bc1", "cd1"), "after the last step chip 4 does not hold chunk 1"),
    (
        "04.broadcast",
        spreading("ab0", "bc0", "cd0", root=0),
        "the plan's root is 0; the second chip sends: root=1",
    ),
    (
        "04.broadcast",
        spreading("ba0 bc0", "cd0"),
        "chip 0 sends chunk 0 to chip 4, but does not hold it",
    ),
    (
        "04.broadcast",
        spreading("ba1 bc1", "cd1 bc1"),
        "chip 0 sends 1,536 bytes to chip 2; the budget is 768",
    ),
    ("04.broadcast", with_device_ids, "there is no chip"),
    (
        "04.broadcast",
        lambda row, n: broadcast(row, n, 1, 1),
        "the library made a plan for broadcast",
    ),
    (
        "04.broadcast",
        lambda row, n: Plan("broadcast", row, broadcast(row, n, 1, 1).steps, n, 1, root=1),
        "the library made a plan for broadcast: write the steps yourself",
    ),
    ("04.broadcast", spread_by_variable, "uses a plan of the library"),
    (
        "04.broadcast",
        lambda row, n: Plan("broadcast", row, [], n, axis=0, root=0),
        "axis=0 makes groups of 1 chips",
    ),
    (
        "04.broadcast",
        lambda row, n: Plan("all_gather", row, [], n, axis=1),
        "should be for 'broadcast', is for 'all_gather'",
    ),
    (
        "04.broadcast",
        lambda row, n: spreading("ba1 bc1", "cd1")(row, 1),
        "a shard of 768 bytes was given, the plan is for one of 1",
    ),
    (
        "04.broadcast",
        lambda row, n: Plan("broadcast", topology("t3000"), [], n, axis=1, root=1),
        "the plan is for chips",
    ),
    ("04.broadcast", lambda row, n: None, "gave nothing back"),
    ("04.broadcast", lambda row, n: [[Transfer(0, 4, 1)]], "should give a Plan, gave a list"),
    (
        "04.broadcast",
        lambda row, n: Plan(
            "broadcast", row, [[Transfer(row.chips[1], row.chips[0], "1")]], n, root=1
        ),
        "should be a whole number, or a tuple",
    ),
    (
        "04.broadcast",
        lambda row, n: Plan("broadcast", row, [[(row.chips[1], row.chips[0], 1)]], n, root=1),
        "your my_broadcast stopped with TTKitError: step 1",
    ),
    ("04.broadcast", lambda row: row, "it is called as my_broadcast"),
    ("04.broadcast", Plan("broadcast", T3000, [], 64, 1, root=1), "without brackets"),
    ("04.crossover", 64, r"at 64 bytes a chip the tree takes .* us, .*: the cross-over is higher"),
    ("04.crossover", 1 << 20, "the cross-over is lower"),
    ("04.crossover", CROSS // 4, "right in float32 elements; bytes are asked for"),
    ("04.crossover", CROSS // 2, "right in bfloat16 elements"),
    (
        "04.reduce_scatter",
        lambda row, n: Plan("reduce_scatter", row, [], n, axis="x"),
        r"^axis 'x' of Topology\(t3000 1x4.*a mesh has the axes 0",
    ),
    (
        "04.reduce_scatter",
        lambda row, n: Plan("reduce_scatter", row, [[Transfer([1], 2, 0)]], n, axis=1),
        "the check cannot read your answer: .*unhashable(.|\n)*  try: compare",
    ),
    ("04.crossover", 0, "at least 1 byte"),
    ("04.crossover", 10**400, "should be a whole number below"),
    ("04.price", lambda plan, s, r: 10**400, "should give a number of seconds, gave a int"),
    ("04.reduce_scatter", for_768_bytes, "a shard of 384 bytes was given"),
    ("04.reduce_scatter", Keeper(), "uses a plan of the library"),
    ("04.reduce_scatter", scatter_by(Keeper().steps_of), "uses a plan of the library"),
    ("04.reduce_scatter", in_a_cache, "uses a plan of the library"),
    ("04.crossover", "8 KiB", "should be a whole number"),
    (
        "04.reduce_scatter",
        scattering("dc0 ab3", "cb0 dc1 ab2 bc3", "ba0 ab1 cb1 bc2 dc2 cd3", adds=False),
        "would overwrite the part of chip 2",
    ),
    (
        "04.reduce_scatter",
        scattering("ba0 ab1 cb1 bc2 dc2 cd3", "cb0 dc1 ab2 bc3", "dc0 ab3"),
        "chunk 0 on chip 4 lacks the part of chips 2, 6",
    ),
    (
        "04.reduce_scatter",
        scattering("dc0 ab3", "cb0 dc1 ab2 bc3", "ba0 ab1 bc2 dc2 cd3"),
        "chunk 1 on chip 0 lacks the part of chips 2, 6",
    ),
    (
        "04.reduce_scatter",
        scattering("dc0 ab3", "cb0 dc1 ab2 bc3 dc0", "ba0 ab1 cb1 bc2 dc2 cd3"),
        "add the part of chip 6 a second time",
    ),
    ("04.reduce_scatter", scattering("da0 ad3"), "no cable joins them"),
    (
        "04.reduce_scatter",
        scattering("dc0", "cb0", "ba0 dc1", "cb1 ab3", "ab1 bc3", "cd3 ab2", "bc2 dc2"),
        "it is right, but takes 7 steps; the budget is 3",
    ),
    (
        "04.reduce_scatter",
        scattering("dc0 dc1 ab3 ab2", "cb0 bc3", "ba0 ab1 cb1 bc2 dc2 cd3", links=2),
        "2 links carry 1 at a time, each over 2",
    ),
    (
        "04.reduce_scatter",
        scattering("dc0 dc1 ab3", "cb0 cb1 ab2 bc3", "ba0 ab1 bc2 dc2 cd3"),
        "a chip holds 576 bytes beside its shard; the budget is 384",
    ),
    ("04.reduce_scatter", two_plans_for_two_rows, "chip 5 lacks the part of chips"),
    (
        "04.reduce_scatter",
        lambda row, n: reduce_scatter(row, n, 1),
        "the library made a plan for reduce_scatter",
    ),
    (
        "04.reduce_scatter",
        scatter_by(lambda row, n: reduce_scatter(row, n, 1).steps),
        "while my_reduce_scatter ran, the library made a plan for reduce_scatter",
    ),
    (
        "04.reduce_scatter",
        lambda row, n: dataclasses.replace(reduce_scatter(row, n, 1), algorithm="by hand"),
        "the library made a plan",
    ),
    ("04.reduce_scatter", backwards, "the library made a plan for all_gather"),
    (
        "04.reduce_scatter",
        scatter_by(lambda row, n: relabelled(STOLEN, row)),
        "uses a plan of the library, Plan.reduce_scatter",
    ),
    ("04.reduce_scatter", from_a_variable, "uses a plan of the library"),
    ("04.reduce_scatter", from_its_steps, "uses the steps of a plan of the library"),
    ("04.reduce_scatter", with_a_default, "uses a plan of the library"),
    ("04.price", price(links=False), "A transfer uses plan.links links at once"),
    ("04.price", price(largest=sum), "Transfers of a step happen at the same time"),
    ("04.price", price(largest=min), "A step ends with its slowest pair"),
    ("04.price", price(largest=lambda sizes: np.mean([*sizes])), "ends with its slowest pair"),
    ("04.price", price(largest=next), "ends with its slowest pair"),
    ("04.price", price(once=True), "The latency is paid in each step"),
    ("04.price", price(latency=0), "The latency is missing"),
    ("04.price", price_of_the_busiest, "the whole plan may be idle in a step"),
    ("04.price", lambda plan, s, r: price()(plan, r, s), "swapped"),
    ("04.price", lambda plan, s, r: cost(plan).time_s, "us by the model"),
    ("04.price", lambda plan, s, r: price()(plan, s, r) * 1e6, "us by the model"),
    ("04.price", lambda plan, s, r: 158e-6, "us by the model"),
    ("04.price", lambda plan, s, r: "long", "should give a number of seconds, gave a str"),
    ("04.price", lambda plan, s, r: None, "gave nothing back"),
    (
        "04.reduce_scatter",
        lambda row, n: dataclasses.replace(GOOD(row, n), collective="all_reduce"),
        "should be for 'reduce_scatter'",
    ),
    (
        "04.reduce_scatter",
        lambda row, n: row.nothing,
        "your my_reduce_scatter stopped with AttributeError",
    ),
    ("04.reduce_scatter", lambda row, n: Plan("reduce", row, [], n), "the collectives are"),
]


test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_where = wrong(WRONG)


def test_a_stub_stays_to_do():
    for name in ("04.broadcast", "04.reduce_scatter", "04.price"):
        with pytest.raises(lessons.NotDone, match=name.replace(".", r"\.")):
            lessons.check(name, lambda *args: lessons.todo())


def test_the_check_leaves_the_library_as_it_was():
    before = Plan.__post_init__, collectives._finished
    with pytest.raises(lessons.CheckFailed):
        lessons.check("04.broadcast", lambda row, n: broadcast(row, n, 1, 1))
    assert before == (Plan.__post_init__, collectives._finished)


def test_every_exercise_has_four_wrong_answers():
    for name in (name for name in lessons.exercises() if name.startswith("04.")):
        assert name in dict(RIGHT) and sum(w[0] == name for w in WRONG) >= 4, name

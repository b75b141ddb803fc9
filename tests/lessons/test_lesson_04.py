"""Lessons 04 and 05: their exercises, whose answers are plans and numbers, with right answers and
with wrong ones.
"""

from answers import both

from ttkit.plans import Plan, Transfer, all_reduce, broadcast, crossover, reduce_scatter, topology

ROW = topology("t3000", (1, 4))


def planned(collective, *steps, reduce=False, **options):
    """An answer whose steps are written as 'dc0 ab3': chips and chunk."""

    def answer(row, shard_bytes):
        chip = dict(zip("abcd", row.chips))
        written = [
            [Transfer(chip[s], chip[t], int(c), reduce=reduce) for s, t, c in step.split()]
            for step in steps
        ]
        return Plan(collective, row, written, shard_bytes, **{"axis": 1, **options})

    return answer


def spreading(*steps, root=1):
    return planned("broadcast", *steps, root=root)


def scattering(*steps, reduce=True):
    return planned("reduce_scatter", *steps, reduce=reduce)


LAST = "ba0 ab1 cb1 bc2 dc2 cd3"


def price(plan, latency_s, bytes_per_s, of=max, links=True):
    sizes = [of([t.bytes for t in step]) for step in plan.steps]
    return sum(latency_s + n / (plan.links if links else 1) / bytes_per_s for n in sizes)


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "04.broadcast": (
            [
                spreading("ba1 bc1", "cd1"),
                spreading("bc1", "ba1 cd1"),
                lambda row, size: broadcast(row, size, 1, axis=1),
            ],
            {
                "what the first chip had": spreading("ab0", "bc0", "cd0", root=0),
                "it is right, but it takes 3 steps; the budget is 2": spreading(
                    "ba1", "bc1", "cd1"
                ),
                "no cable": spreading("ba1 bd1", "bc1"),
                "; expected chips [": lambda row, size: spreading("ba1 bc1", "cd1")(ROW, size),
                "expected a Plan, got a list": lambda row, size: [],
                "chip 7": spreading("ba1 bc1"),
            },
        ),
        "04.reduce_scatter": (
            [
                scattering("dc0 ab3", "cb0 dc1 ab2 bc3", LAST),
                lambda row, size: reduce_scatter(row, size, axis=1),
            ],
            {
                "reduce=True": scattering("dc0 ab3", "cb0 dc1 ab2 bc3", LAST, reduce=False),
                "as after an all_reduce": lambda row, size: all_reduce(row, size, axis=1),
                "chip": scattering("dc0 ab3", LAST),
            },
        ),
        "05.crossover": (
            [
                85_000,
                crossover(
                    lambda n: all_reduce(ROW, n, 1, algorithm="tree"),
                    lambda n: all_reduce(ROW, n, 1, algorithm="line"),
                ),
            ],
            {
                "the cross-over is lower": 10**6,
                "the cross-over is higher": 8120,
                "expected a number of bytes": "8 kB",
            },
        ),
        "05.price": (
            [
                price,
                lambda plan, latency_s, rate: (
                    len(plan.steps) * latency_s + price(plan, 0, rate * plan.links, links=False)
                ),
            ],
            {"should be 6.8e-05": lambda *case: price(*case, of=min)},
        ),
    }
)

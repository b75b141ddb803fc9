"""Lesson 13: its exercises with right and with wrong answers."""

from answers import both


def role(rank, world, n):
    if rank < n:
        return "worker"
    if world == n + 1:
        return "aggregator_optimizer"
    return "aggregator" if rank == n else "optimizer"


def from_a_list(rank, world, n):
    two = ["worker", "aggregator_optimizer"]
    three = ["worker", "aggregator", "optimizer"]
    return (two if world == n + 1 else three)[max(0, rank - n + 1)]


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "13.roles": (
            [role, from_a_list],
            {
                "with 2 ranks and 1 workers one rank has both jobs": lambda rank, world, n: role(
                    rank, n + 2, n
                ),
                "the workers are ranks 0 to 1 - 1": lambda rank, world, n: (
                    "worker" if rank <= n else role(rank - 1, world, n)
                ),
                "role(0, 3, 1) should be 'worker', is 'aggregator'": lambda rank, world, n: role(
                    rank + (world > n + 1), world, n
                ),
                "should be 'aggregator', is 'optimizer'": lambda rank, world, n: (
                    "optimizer" if world == n + 2 and rank >= n else role(rank, world, n)
                ),
            },
        ),
        "13.bytes": (
            [
                lambda n, g, w: (n * g + w, g + n * w),
                lambda n, g, w: [sum([g] * n, w), float(sum([w] * n, g))],
            ],
            {
                "in and out are swapped": lambda n, g, w: (g + n * w, n * g + w),
                "the optimizer is a neighbour, too": lambda n, g, w: (n * g, n * w),
                "the optimizer sends weights": lambda n, g, w: ((n + 1) * g, (n + 1) * w),
                "item 0 should be 9,216, is 9.216": lambda n, g, w: ((n * g + w) / 1e3, 6.144),
                "should be a list of 2, is 9216": lambda n, g, w: n * g + w,
            },
        ),
    }
)

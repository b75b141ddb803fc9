"""The exercises of lesson 10, with right answers and with wrong ones."""

from answers import right, wrong


def role(rank, world, n):
    two = ["worker", "aggregator_optimizer"]
    three = ["worker", "aggregator", "optimizer"]
    return (two if world == n + 1 else three)[max(0, rank - n + 1)]


RIGHT = [
    ("10.roles", role),
    ("10.bytes", lambda n, size: ((n + 1) * size, (n + 1) * size)),
]

# (exercise, wrong answer, what the feedback must name)
WRONG = [
    (
        "10.roles",
        lambda rank, world, n: ["worker", "aggregator", "optimizer"][max(0, rank - n + 1)],
        "in 2-tier mode rank 1 is 'aggregator_optimizer'",
    ),
    (
        "10.roles",
        lambda rank, world, n: role((rank + 1) % world, world, n),
        r"role\(0, 2, 1\) gives 'aggregator_optimizer'",
    ),
    ("10.bytes", lambda n, size: (n * size, n * size), "the optimizer is a neighbour, too"),
    ("10.bytes", lambda n, size: (n + 1) * size, "should be a pair"),
    ("10.bytes", lambda n, size: ((n + 1) * size, size), r"says that 100 bytes go out"),
]

test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_where = wrong(WRONG)

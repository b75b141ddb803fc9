"""The exercises of lesson 10, with right answers and with wrong ones."""

from answers import right, wrong


def role(rank, world, n):
    two = ["worker", "aggregator_optimizer"]
    three = ["worker", "aggregator", "optimizer"]
    return (two if world == n + 1 else three)[max(0, rank - n + 1)]


RIGHT = [
    ("10.roles", role),
    ("10.bytes", lambda n, g, w: (n * g + w, g + n * w)),
    ("10.bytes", lambda n, g, w: [sum([g] * n, w), float(sum([w] * n, g))]),
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
    (
        "10.bytes",
        lambda n, g, w: (n * g, n * w),
        "8192 bytes come in; the optimizer is a neighbour",
    ),
    ("10.bytes", lambda n, g, w: (n * g + w, n * w), "2048 bytes go out; the optimizer is"),
    ("10.bytes", lambda n, g, w: n * g + w, "should be a pair"),
    ("10.bytes", lambda n, g, w: (g + n * w, n * g + w), "in and out are swapped"),
    (
        "10.bytes",
        lambda n, g, w: ((n + 1) * g, (n + 1) * w),
        "come in; the optimizer sends weights",
    ),
    ("10.bytes", lambda n, g, w: (n * g + w, (n + 1) * w), "go out; the optimizer sends weights"),
    ("10.bytes", lambda n, g, w: (n * g + w, g), "says that 4096 bytes go out; it is 6,144"),
    ("10.bytes", lambda n, g, w: ((n + 1) * (g + w),) * 2, "bytes come in; it is 9,216"),
]

test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_where = wrong(WRONG)

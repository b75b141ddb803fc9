"""The exercises of lessons 09 and 10, with right answers and with wrong ones."""

import pytest
from answers import wrong

from ttkit import lessons
from ttkit.lessons.lesson_09 import BROKEN
from ttkit.plans import gpipe, one_at_a_time, one_f_one_b


def two_ahead(stages, micro_batches):
    rows = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, 2)
        row = [f"F{i}" for i in range(ahead)]
        for i in range(micro_batches):
            row += [f"F{ahead + i}"] * (ahead + i < micro_batches) + [f"B{i}"]
        rows.append(" ".join(row))
    return rows


def role(rank, world, n):
    two = ["worker", "aggregator_optimizer"]
    three = ["worker", "aggregator", "optimizer"]
    return (two if world == n + 1 else three)[max(0, rank - n + 1)]


RIGHT = [
    ("09.bubble", lambda p, m, v: (p - 1) / (v * m + p - 1)),
    ("09.budget", two_ahead),
    ("09.budget", two_ahead(4, 6)),
    ("09.repair", (2, "F0 B0 F1 B1 F2 B2 F3 B3")),
    ("10.roles", role),
    ("10.bytes", lambda n, size: ((n + 1) * size, (n + 1) * size)),
]

# (exercise, wrong answer, what the feedback must name)
WRONG = [
    (
        "09.bubble",
        lambda p, m, v: (p - 1) / (m + p - 1),
        r"bubble\(4, 8, 2\) gives 0.2727; the schedule interleaved 1F1B has 0.1579",
    ),
    (
        "09.bubble",
        lambda p, m, v: (p - 1) / (v * m),
        "a part of the work; asked is its part of the whole time, 0.5",
    ),
    ("09.bubble", lambda p, m, v: None, r"bubble\(2, 1, 1\) should be a number"),
    ("09.bubble", lambda p, m: 0, "it is called as bubble"),
    (
        "09.budget",
        one_f_one_b,
        "after action 4, F3, it holds the activations of 4 micro-batches; the memory is for 3",
    ),
    ("09.budget", gpipe, "the memory is for 3"),
    ("09.budget", one_at_a_time, "75.0% of the time is bubble; at most 50.0% may be"),
    (
        "09.budget",
        lambda p, m: one_at_a_time(p, m - 1),
        "micro_batches=5, asked is micro_batches=6",
    ),
    ("09.repair", 2, "a pair is asked for"),
    ("09.repair", (3, BROKEN[0]), "there is no stage 3"),
    ("09.repair", (1, "F0 F1 F2 B0 F3 B1 B2 B3"), "stage 1 .*the memory is for 2"),
    ("09.repair", (2, "F0 F1 B0 F2 B1 F3 B2 B3"), "stage 2 .*the memory is for 1"),
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


@pytest.mark.parametrize(("name", "answer"), RIGHT)
def test_right_answers(name, answer, capsys):
    lessons.check(name, answer)
    assert f"exercise {name}: " in capsys.readouterr().out


test_wrong_answers = wrong(WRONG)


def test_every_exercise_has_two_wrong_answers():
    for name in [name for name in lessons.exercises() if name[:2] in ("09", "10")]:
        assert len([1 for wrong, *_ in WRONG if wrong == name]) >= 2, name

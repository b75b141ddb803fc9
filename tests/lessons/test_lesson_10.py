"""The exercises of lesson 10, with right answers and with wrong ones."""

import re
from fractions import Fraction

import numpy as np
import pytest
from answers import right, wrong

from ttkit import lessons
from ttkit.lessons.lesson_10 import TEXT, count_sent, part_of_batches, roles_picture, small_gpt
from ttkit.plans.actions import Message, Place
from ttkit.train import make_tokenizer
from ttkit.train.p2p import MPITransport


def role(rank, world, n):
    two = ["worker", "aggregator_optimizer"]
    three = ["worker", "aggregator", "optimizer"]
    return (two if world == n + 1 else three)[max(0, rank - n + 1)]


RIGHT = [
    ("10.roles", role),
    ("10.bytes", lambda n, g, w: (n * g + w, g + n * w)),
    ("10.bytes", lambda n, g, w: (Fraction(each) for each in (n * g + w, g + n * w))),
    ("10.roles", lambda *given: np.str_(role(*given))),
    ("10.bytes", lambda n, g, w: np.array([n * g + w, g + n * w])),
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
        "10.roles",
        lambda rank, world, n: role(min(rank, 2), 4, 2),
        r"role\(1, 2, 1\) gives 'worker'",
    ),
    (
        "10.roles",
        lambda rank, world, n: "worker" if rank <= n else "optimizer",
        r"role\(1, 2, 1\) gives 'worker'; in 2-tier mode rank 1 is 'aggregator_optimizer'",
    ),
    ("10.roles", lambda rank, world, n: role(rank, world, n).title(), "gives 'Worker'"),
    ("10.roles", lambda rank, world, n: role(rank, 4, 2), r"role\(1, 2, 1\) gives 'worker'"),
    (
        "10.roles",
        lambda rank, world, n: "optimizer" if rank == world - 1 else role(rank, world, n),
        r"role\(1, 2, 1\) gives 'optimizer'",
    ),
    ("10.roles", lambda rank, world, n: role(min(rank, n), world, n), "gives 'aggregator'"),
    (
        "10.roles",
        lambda rank, world, n: (["worker"] * 5 + ["aggregator", "optimizer"])[rank - n + 5],
        "in 2-tier mode rank 1 is",
    ),
    ("10.roles", lambda rank, world, n: f"rank {rank} is {role(rank, world, n)}", "gives 'rank 0"),
    (
        "10.roles",
        lambda rank, world, n: role(rank, world, n) if rank < 9 else "worker",
        "rank 40 is",
    ),
    ("10.bytes", lambda n, g, w: (n * g + w, g + n * w, 0), "should be a pair"),
    ("10.bytes", lambda n, g, w: {n * g + w, g + n * w}, "should be a pair"),
    ("10.bytes", lambda n, g, w: (float("nan"), g + n * w), "should be a pair of numbers"),
    ("10.bytes", lambda n, g, w: (n * w + g, w + n * g), "in and out are swapped"),
    ("10.bytes", lambda n, g, w: ((n * g + w) / 1e6, (g + n * w) / 1e6), "it is 9,216"),
    (
        "10.bytes",
        lambda n, g, w: (n * g, n * w),
        "8,192 bytes come in; the optimizer is a neighbour",
    ),
    ("10.bytes", lambda n, g, w: (n * g + w, n * w), "2,048 bytes go out; the optimizer is"),
    ("10.bytes", lambda n, g, w: n * g + w, "should be a pair"),
    ("10.bytes", lambda n, g, w: (f"{n * g + w}", "0"), r"a pair of numbers.* is \('9216', '0'\)"),
    ("10.roles", lambda rank, world, n: np.array([role(rank, world, n)]), "gives array"),
    ("10.bytes", lambda n, g, w: (g + n * w, n * g + w), "in and out are swapped"),
    (
        "10.bytes",
        lambda n, g, w: ((n + 1) * g, (n + 1) * w),
        "come in; the optimizer sends weights",
    ),
    ("10.bytes", lambda n, g, w: (n * g + w, (n + 1) * w), "go out; the optimizer sends weights"),
    ("10.bytes", lambda n, g, w: (n * g + w, g), "says that 4,096 bytes go out; it is 6,144"),
    ("10.bytes", lambda n, g, w: ((n + 1) * (g + w),) * 2, "bytes come in; it is 9,216"),
]

test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_where = wrong(WRONG)


def test_every_exercise_has_four_wrong_answers_and_hints(capsys):
    for name in ("10.roles", "10.bytes"):
        assert len([1 for wrong, *_ in WRONG if wrong == name]) >= 4
        lessons.hint(name)
    assert capsys.readouterr().out.count("hint 1 of 3") == 2


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("tiers", [2, 3])
def test_the_picture_of_roles_counts_what_an_aggregator_passes_on(workers, tiers):
    picture = roles_picture(workers, tiers)
    through = workers + (tiers == 3)
    assert f"{2 * through} models are sent" in picture.title
    assert f"sends {through}, gets {through}" in repr(picture)
    page = picture._repr_html_()
    names = re.findall(r">rank (\d+)<", page)
    assert sorted(map(int, names)) == list(range(workers + tiers - 1))
    assert page.count("<polygon") == 2 * through  # an arrow each way
    plain = roles_picture(workers, tiers, counts=False)
    assert "sent" not in repr(plain) and f"is rank {workers}" in repr(plain)


def test_the_workers_parts_are_the_batches_of_one_device():
    assert small_gpt().transformer_config.vocab_size == make_tokenizer("char", TEXT, 0).vocab_size
    whole, _ = part_of_batches(small_gpt(1), 0).batch(1)
    parts = [part_of_batches(small_gpt(3), rank).batch(1)[0] for rank in range(3)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_what_a_rank_sends_is_counted_once(monkeypatch):
    put = []
    monkeypatch.setattr(MPITransport, "put", lambda *given: put.append(given))
    count_sent()
    sent = count_sent()  # the cell runs again
    array = np.zeros(5, np.float32)
    for what in ("weights", "weights", "weight gradients"):
        MPITransport.put(None, Message(what, 0, Place(0, 0), Place(1, 0)), array)
    assert sent == {"weights": 2 * array.nbytes, "weight gradients": array.nbytes}
    assert len(put) == 3 and not count_sent()

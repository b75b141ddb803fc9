"""Lesson 10: its exercises with right and with wrong answers, its picture, and what its ranks do."""

import re

import numpy as np
import pytest
from answers import both

from course.lesson_10 import TEXT, count_sent, part_of_batches, roles_picture, small_gpt
from ttkit.plans.actions import Message, Place
from ttkit.train import make_tokenizer
from ttkit.train.pipeline.p2p import MPITransport


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
        "10.roles": (
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
        "10.bytes": (
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

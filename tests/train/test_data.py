"""Text: the kit's own is the same everywhere, the learner's own is read whole or refused by name.
Batches: the order is a shuffle, follows from seed and step alone, and does not depend on how the
batch is shared.
"""

import hashlib
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from train.runs import refused

from ttkit.train.run.data import Batches, TokenDataset, builtin_corpus, shuffled


def test_a_model_can_learn_the_stories():
    """Sums and differences are right, days follow each other, and each animal has one home."""
    text = builtin_corpus()
    assert text.isascii()
    sums = re.findall(r"(\d+) ([+-]) (\d+) = (\d+)", text)
    assert len(sums) > 300
    for a, sign, b, result in sums:
        assert int(a) + int(sign + b) == int(result) >= 0
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "Monday"]
    for story in re.split(r"The \w+ and the \w+\n", text)[1:]:
        first, *rest = re.findall("On ([A-Z][a-z]+day)", story)
        assert all(day == days[days.index(first) + 1] for day in rest)
    homes = set(re.findall(r"The (\w+) lives by the (\w+)", text))
    assert len(homes) == len(dict(homes)) == 8


def counted(length=1000, sequence_length=8, stride=1):
    """A dataset whose ids are their own positions."""
    return TokenDataset(np.arange(length), sequence_length, stride)


def test_targets_are_the_inputs_one_further_on():
    x, y = Batches(counted(), 4).batch(3)
    assert x.shape == y.shape == (4, 1, 1, 8) and x.dtype == y.dtype == np.uint32
    assert x.flags.c_contiguous and y.flags.c_contiguous
    assert (y == x + 1).all() and (np.diff(x) == 1).all()


@pytest.mark.parametrize(
    "length, sequence_length, stride, windows",
    [(9, 8, 1, 1), (10, 8, 1, 2), (17, 8, 8, 2), (16, 8, 8, 1), (100, 8, 3, 31)],
)
def test_windows_reach_the_last_id(length, sequence_length, stride, windows):
    dataset = counted(length, sequence_length, stride)
    assert len(dataset) == windows
    x, y = dataset.windows(np.arange(windows))
    assert x[0, 0] == 0 and y[-1, -1] <= length - 1 < y[-1, -1] + stride
    with pytest.raises(IndexError):
        dataset.windows([windows])


@given(st.integers(1, 3000), st.text(max_size=8))
def test_shuffled_is_a_shuffle(count, key):
    assert sorted(shuffled(np.arange(count), count, key).tolist()) == list(range(count))


@given(
    st.integers(1, 2**40),
    st.lists(st.integers(0, 2**40), min_size=1, max_size=20),
    st.integers(0, 2**64),
)
def test_shuffled_works_place_by_place(count, places, seed):
    places = [place % count for place in places]
    together = shuffled(places, count, str(seed))
    assert together.tolist() == [int(shuffled([place], count, str(seed))[0]) for place in places]
    assert 0 <= together.min()
    assert together.max() < count
    assert len(set(together.tolist())) == len(set(places))


def test_the_same_batches_on_every_machine():
    """Losses that a lesson prints depend on these numbers: a change of them is a break."""
    batches = Batches(counted(5000, 16), 32, seed=42)
    seen = hashlib.sha256()
    for step in (0, 1, 154, 155, 156, 10_000):
        for part in batches.batch(step):
            seen.update(part.astype("<u4").tobytes())
    assert batches.batch(0)[0][:4, 0, 0, 0].tolist() == FIRST
    assert seen.hexdigest() == DIGEST


FIRST = [4732, 302, 2275, 2622]
DIGEST = "39e82c1d7048f6f8d4b05fd384d65154848fcd4dd9cbbb54674d1dcba8d74dd3"


@given(st.integers(10, 60), st.integers(1, 10), st.integers(0, 2**70))
def test_an_epoch_has_each_window_at_most_once(length, batch_size, seed):
    batches = Batches(counted(length, 2), min(batch_size, length - 2), seed)
    for epoch in range(2):
        firsts = np.concatenate(
            [
                batches.batch(epoch * len(batches) + step)[0][:, 0, 0, 0]
                for step in range(len(batches))
            ]
        )
        assert len(set(firsts.tolist())) == firsts.size == len(batches) * batches.batch_size


@given(
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([1, 2, 3]),
    st.integers(0, 500),
)
def test_ranks_and_micro_batches_make_up_the_global_batch(world, inner, micro_batches, step):
    batches = Batches(counted(), world * inner * micro_batches * 2)
    x, y = batches.batch(step)
    parts = [
        batches.part(rank, world).part(group, inner)
        for rank in range(world)
        for group in range(inner)
    ]
    whole = [part.batch(step, k, micro_batches) for part in parts for k in range(micro_batches)]
    assert (np.concatenate([each[0] for each in whole]) == x).all()
    assert (np.concatenate([each[1] for each in whole]) == y).all()


def test_validation_is_apart_and_in_order():
    training, validation = counted(1000, 9).split(0.2)
    assert training.ids.max() < validation.ids.min() and len(training) == 791
    batches = Batches(validation, 5, seed=None)
    seen = np.concatenate([batches.batch(step)[0].reshape(-1) for step in range(len(batches))])
    assert seen.tolist() == list(range(800, 800 + 4 * 5 * 9))
    assert (batches.batch(len(batches))[0] == batches.batch(0)[0]).all()


def test_too_few_windows():
    refused(lambda: Batches(counted(8), 1), "0 windows of 8 tokens do not fill one batch")
    refused(lambda: Batches(counted(20), 13), "12 windows of 8 tokens do not fill one batch")

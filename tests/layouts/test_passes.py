"""One dry run for all numbers of rows, against a dry run for each of them."""

from dataclasses import replace

import numpy as np
import pytest

from ttkit.layouts import passes
from ttkit.layouts.passes import MOST, computed, pass_of
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TransformerConfig

SIZES = {"num_heads": 4, "num_groups": 2, "embedding_dim": 128, "num_blocks": 1, "vocab_size": 500}
GPT = TransformerConfig(**SIZES, max_sequence_length=128)
LLAMA = replace(GPT, model_type="llama", dropout_prob=0.0)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("ends", [(True, True), (False, False), (True, False)])
@pytest.mark.parametrize(
    "config, layout",
    [
        (GPT, Layout(dp=2, tp=2, zero=3, sequence_parallel=True, recompute=True, micro_batches=2)),
        (LLAMA, Layout(cp=2, tp=2, zero=2, micro_batches=2, precision="bfloat16")),
        (replace(GPT, max_sequence_length=40), Layout(dp=2, micro_batches=2)),
        (replace(LLAMA, num_experts=4), Layout(dp=2, ep=2)),
    ],
)
def test_a_pass_of_any_number_of_rows(config, layout, ends, rows):
    found = pass_of(config, layout, ends, rows)
    alone, events = passes._run(config, layout, ends, rows)
    assert np.array_equal(found.in_use, alone.in_use)
    assert (found.at, found.sends) == (alone.at, alone.sends)
    works = computed(events, rows, MOST)
    assert all(map(np.array_equal, found.computed, works))


@pytest.mark.parametrize("layout", [Layout(dp=2, tp=2), Layout(dp=2, zero=3, recompute=True)])
def test_the_first_micro_batch_is_one_without_gradients(layout):
    """A stage in the middle holds as much in the first of several micro-batches as in one alone."""
    ends = False, False
    first = pass_of(LLAMA, replace(layout, micro_batches=2), ends, 1)
    alone = pass_of(LLAMA, layout, ends, 1)
    held = first.in_use[0][first.in_use[0] > 0]
    assert np.array_equal(held, alone.in_use[0])
    assert {k: v[0] for k, v in first.at.items()} == {k: v[0] for k, v in alone.at.items()}

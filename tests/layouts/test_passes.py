"""One dry run for all stages and numbers of rows, against a dry run for each of them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ttkit.layouts import passes
from ttkit.layouts.passes import pass_of
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TransformerConfig

SIZES = {"num_heads": 4, "num_groups": 2, "embedding_dim": 128, "num_blocks": 1, "vocab_size": 500}
GPT = TransformerConfig(**SIZES, max_sequence_length=128)
LLAMA = replace(GPT, model_type="llama", dropout_prob=0.0)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("ends", list(itertools.product([True, False], repeat=2)))
@pytest.mark.parametrize(
    "config, layout",
    [
        (GPT, Layout(dp=2, tp=2, zero=3, sequence_parallel=True, recompute=True, micro_batches=2)),
        (LLAMA, Layout(cp=2, tp=2, zero=2, micro_batches=2, precision="bfloat16")),
        (LLAMA, Layout(tp=2, recompute=True)),
        (GPT, Layout(dp=2, zero=2)),
        (replace(GPT, max_sequence_length=40), Layout(dp=2, micro_batches=2)),
        (replace(LLAMA, num_experts=4), Layout(dp=2, ep=2)),
    ],
)
def test_one_run_is_shared(config, layout, ends, rows):
    """Other stages, other rows, one micro-batch or several: each is as in a run of its own."""
    found = pass_of(config, layout, ends, rows)
    alone = passes._share((config, layout, ends, rows), layout, ends, rows)
    batches = slice(0, min(layout.micro_batches, 2))  # In a lone micro-batch the second is none.
    assert np.array_equal(found.in_use[batches], alone.in_use[batches])
    at = [{part: each.at[part][batches] for part in alone.at} for each in (found, alone)]
    assert at[0] == at[1]
    assert (found.constants, found.sends) == (alone.constants, alone.sends)
    others = ("kept", "back", "repeated", "forward", "flops", "moved", "multiplied")
    assert all(np.array_equal(getattr(found, key), getattr(alone, key)) for key in others)

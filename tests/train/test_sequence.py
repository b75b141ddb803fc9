"""Sequence parallelism and ZeRO against one device; the traffic and memory of the first."""

from dataclasses import replace

import numpy as np
import pytest
from train.runs import Case, Form, filled, opened, small, wrong

import ttkit
from ttkit.sim.tensor.tensor import bytes_in_use

MEGATRON = Form((1, 4), None, 1)


def model(kind="gpt2", **changes):
    sizes = {"num_heads": 8, "num_groups": 8, "embedding_dim": 64, "max_sequence_length": 300}
    return small(kind, **(sizes | changes))


SP, AGAIN = {"sequence_parallel": True}, {"runner_type": "memory_efficient"}
TIED, PLAIN = {"weight_tying": "enabled"}, {"bias": False}
CASES = [
    Case(model("llama"), Form((1, 2), None, 1, **SP), 2, 64, 2),
    Case(model("gpt2", **TIED, **AGAIN), Form((4, 2), 0, 1, zero=3, **SP), 1, 10),
    Case(model("llama", embedding_dim=96), Form((2, 4), 0, 1, zero=2, **SP), 1, 64, 2),
    Case(model("gpt2", embedding_dim=128, **PLAIN), Form((4, 2), 1, 0, zero=1, **SP), 2, 20, 2),
    Case(model("llama", **TIED, **AGAIN), Form((4, 2), 1, 0, **SP), 1, 128),
    Case(model("gpt2", embedding_dim=128, **AGAIN), Form((2, 4), 0, 1, zero=3), 1, 32, 2),
    Case(model("llama", embedding_dim=128, **TIED), Form((4, 1), 0, zero=3), 2, 5, 2),
    Case(model("gpt2", embedding_dim=128), Form((1, 2), 1, zero=2), 1, 32),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_every_gradient_is_that_of_one_device(case):
    assert wrong(case) == []


def sent_and_held(form, blocks):
    """Bytes on the links of a step, without the small sums, and the bytes kept by the forward."""
    with opened(form) as mesh:
        built = filled(Case(model(num_blocks=blocks), form, 2, 128), mesh)
        layout = built.layout
        tokens = layout.tokens(np.zeros((2, 1, 1, 128), int))
        with ttkit.profile() as prof:
            logits = built(tokens)
            held = max(bytes_in_use().values())
            loss = built.loss(logits, tokens)
            loss.backward()
    hidden = [r for r in prof.records if r.bytes_read >= 2 * 32 * 64 * 4]
    return sum(r.bytes_on_links for r in hidden if r.kind == "communication"), held


def test_as_much_is_sent_and_less_is_kept():
    plain, sequential = (
        [sent_and_held(replace(MEGATRON, sequence_parallel=on), n) for n in (2, 4)]
        for on in (False, True)
    )
    # all but the backward of a forward's all-gather, which Megatron's f does not need: the head's
    assert sequential[1][0] - sequential[0][0] == plain[1][0] - plain[0][0]
    hidden = 2 * 128 * 64 * 4  # [B, 1, S, E]
    kept = [(b[1] - a[1]) / 2 for a, b in (plain, sequential)]
    assert kept[0] - kept[1] >= 3 / 4 * 2 * hidden

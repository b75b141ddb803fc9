"""Sequence parallelism and ZeRO against one device; the traffic and memory of the first."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from train.runs import Case, Form, filled, opened, quiet, small, wrong

import ttkit
from ttkit.sim.tensor.tensor import bytes_in_use

MEGATRON = Form((1, 4), None, 1)


def model(kind="gpt2", **changes):
    sizes = {"num_heads": 8, "num_groups": 8, "embedding_dim": 64, "max_sequence_length": 300}
    return small(kind, **(sizes | changes))


# Shapes with their axes of tensor and data parallelism.
SHARING = [((1, 2), 1, None), ((4, 2), 1, 0), ((2, 4), 1, 0), ((4, 2), 0, 1)]
SHARING += [((4, 1), None, 0), ((1, 2), None, 1)]


@st.composite
def cases(draw):
    shape, tp, ddp = draw(st.sampled_from(SHARING))
    zero = draw(st.integers(0, 3)) if ddp is not None else 0
    sequence_parallel = tp is not None and draw(st.sampled_from([True, True, False]))
    form = Form(shape, ddp, tp, zero=zero, sequence_parallel=sequence_parallel)
    config = model(
        draw(st.sampled_from(["gpt2", "llama"])),
        embedding_dim=draw(st.sampled_from([64, 96, 128])),
        weight_tying=draw(st.sampled_from(["enabled", "disabled"])),
        bias=draw(st.booleans()),
        runner_type=draw(st.sampled_from(["default", "memory_efficient"])),
    )
    small = st.integers(1, 2)
    length = form.size(tp) * draw(st.sampled_from([5, 16, 32]))
    return Case(config, form, draw(small), length, draw(small))


@settings(max_examples=8, **quiet)
@given(cases())
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

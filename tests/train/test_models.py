"""Loss and every gradient of every device equal one device's and torch's, for every way to lay a model on a mesh."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from train.runs import Case, Form, different, run, wrong

from ttkit.cluster.settings import RopeScaling, TransformerConfig

pytest.importorskip("torch", reason="torch is not installed (make .venv/with-torch)")
from train import oracle

BOTH = [Form((d, t), 0, 1) for d in range(1, 5) for t in range(1, 9)]
TURNED = [Form((t, d), 1, 0) for d in (2, 3) for t in (2, 4)]
LINES = [Form((n, 1), 0) for n in (2, 3, 8)] + [Form((1, n), 1) for n in (2, 5, 8)]  # data parallel
LINES += [Form((n, 1), None, 0) for n in (2, 3, 8)] + [Form((1, n), None, 1) for n in (2, 5, 8)]  # tensor parallel
COPIES = [Form((2, 3), 0), Form((2, 3), 1), Form((2, 3), None, 0), Form((2, 3), None, 1), Form((2, 4))]
FORMS = [*BOTH, *TURNED, *LINES, *COPIES]


@st.composite
def cases(draw):
    """Models whose sizes divide by their tensor-parallel axis and by little else.

    At least 16 features: a layer norm over 2 magnifies rounding until torch's own float32 misses its float64 by six times the tolerance.
    """
    form = draw(st.sampled_from(FORMS))
    tp, small = form.size(form.tp_axis), st.integers(1, 3)
    kind = draw(st.sampled_from(["gpt2", "llama"]))
    groups = tp * draw(st.integers(1, 2))
    heads = groups * draw(small)
    scaling = RopeScaling(draw(st.sampled_from([0.0, 2.0, 8.0])), 4.0, 1.0, draw(st.integers(4, 64)))
    length = draw(st.sampled_from([1, 2, 7, 31, 32, 33, 40]))
    config = TransformerConfig(
        model_type=kind,
        num_heads=heads,
        num_groups=groups,
        embedding_dim=heads * draw(st.sampled_from([width for width in (2, 4, 6, 16) if 16 <= heads * width < 160])),
        dropout_prob=0.0,
        num_blocks=draw(st.integers(1, 2)),
        vocab_size=draw(st.integers(2, 300)),
        max_sequence_length=length + draw(st.integers(0, 9)),
        bias=draw(st.booleans()),
        weight_tying=draw(st.sampled_from(["enabled", "disabled"])),
        intermediate_dim=tp * draw(st.integers(1, 9)),
        theta=draw(st.sampled_from([10.0, 10000.0])),
        rope_scaling=draw(st.sampled_from([None, scaling])),
    )
    return Case(config, form, draw(st.integers(1, 2)), length, draw(small), draw(st.integers(0, 9)))


def check(case):
    """The mesh against torch and against one device."""
    alone = case.on_one_device()
    loss, gradients, weights = run(alone)
    right = oracle.loss_and_gradients(case.config, weights, *alone.tokens()[:, 0])
    assert not different(loss, right[0])
    assert set(gradients) == set(right[1])
    assert [name for name in gradients if different(gradients[name], right[1][name])] == []
    against_torch, against_one_device = wrong(case, right, (loss, gradients))
    assert against_torch == []
    assert against_one_device == []


quiet = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=20, **quiet)
@given(cases())
def test_every_gradient_is_that_of_one_device_and_of_torch(case):
    check(case)


@pytest.mark.long
@settings(max_examples=300, **quiet)
@given(cases())
def test_every_gradient_in_hundreds_of_layouts(case):
    check(case)

"""Loss and every gradient of every device equal one device's, for every way to lay a model on a
mesh.

One device's equal torch's, where torch is installed.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train import runs
from train.runs import (
    Case,
    Form,
    backward,
    different,
    filled,
    opened,
    parts,
    quiet,
    refused,
    run,
    wrong,
    wrong_by_torch,
)

from ttkit import ttnn
from ttkit.train.autograd import no_grad
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import RopeScaling, TransformerConfig
from ttkit.train.model.models import create_model

BOTH = [Form((d, t), 0, 1) for d in range(1, 5) for t in range(1, 7)]
TURNED = [Form((t, d), 1, 0) for d in (2, 3) for t in (2, 4)]
LINES = [Form((n, 1), 0) for n in (2, 3, 8)] + [Form((1, n), 1) for n in (2, 5, 8)]  # data parallel
# tensor parallel
LINES += [Form((n, 1), None, 0) for n in (2, 3, 8)] + [Form((1, n), None, 1) for n in (2, 5, 8)]
COPIES = [Form((2, 3), *axes) for axes in ((0,), (1,), (None, 0), (None, 1))] + [Form((2, 4))]
ONE = Form()
FORMS = [*BOTH, *TURNED, *LINES, *COPIES]


@st.composite
def cases(draw):
    """Models whose sizes divide by their tensor-parallel axis and by little else.

    At least 16 features: a layer norm over 2 magnifies rounding until torch's own float32 misses
    its float64 by six times the tolerance."""
    form = draw(st.sampled_from(FORMS))
    tp, small = form.size(form.tp_axis), st.integers(1, 3)
    kind = draw(st.sampled_from(["gpt2", "llama"]))
    groups = tp * draw(st.integers(1, 2))
    heads = groups * draw(small)
    scaling = RopeScaling(
        draw(st.sampled_from([0.0, 2.0, 8.0])), 4.0, 1.0, draw(st.integers(4, 64))
    )
    length = draw(st.sampled_from([1, 2, 7, 31, 32, 33, 40]))
    config = TransformerConfig(
        model_type=kind,
        runner_type=draw(st.sampled_from(["default", "memory_efficient"])),
        num_heads=heads,
        num_groups=groups,
        embedding_dim=heads
        * draw(st.sampled_from([width for width in (2, 4, 6, 16) if 16 <= heads * width < 160])),
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


@settings(max_examples=8, **quiet)
@given(cases())
def test_every_gradient_is_that_of_one_device(case):
    assert wrong(case) == []


@settings(max_examples=5, **quiet)
@given(cases())
def test_one_device_has_torchs_gradients(torch, case):
    assert wrong_by_torch(case) == []


def small(kind, form=ONE, **changes):
    return Case(runs.small(kind, **changes), form, batch=2, length=12)


@pytest.mark.parametrize(
    ("kind", "form"), [("gpt2", Form((2, 2), 0, 1)), ("llama", Form((4, 1), None, 0))]
)
def test_bfloat16_loosely(kind, form):
    """Parameters, activations and gradients of two bytes, on one device and on many, near those
    of four.
    """
    case = small(kind, form)
    right = run(case.on_one_device())[:2]
    narrow = replace(case, dtype=ttnn.bfloat16)
    with opened(narrow.form) as mesh:
        model = filled(narrow, mesh)
        backward(narrow, model)
        for p in model.parameters().values():
            assert p.get_value().dtype == p.get_grad().dtype == ttnn.bfloat16
    for have in (narrow.on_one_device(), narrow):
        assert wrong(have, right, rtol=0.1, atol=1e-3) == []
    assert wrong(narrow, right)  # it is another arithmetic


@pytest.mark.parametrize(("kind", "runner"), [("gpt2", "default"), ("llama", "memory_efficient")])
def test_dropout_drops_the_same_on_every_tensor_parallel_mesh(kind, runner):
    """So a run with dropout is the same run on another mesh, and where blocks are computed
    again.
    """
    case = small(kind, Form((2, 2), None, 1), dropout_prob=0.3)
    loss, gradients, _ = run(case.on_one_device())
    again, without = (
        replace(case, config=replace(case.config, **change))
        for change in ({"runner_type": runner}, {"dropout_prob": 0.0})
    )
    assert wrong(again, (loss, gradients)) == []
    assert different(run(without.on_one_device())[0], loss)


def test_computing_again_does_not_repeat_what_was_dropped():
    """As in a pipeline, where the backward of one micro-batch comes between the forwards of the
    next ones.
    """
    losses = []
    for runner in ("default", "memory_efficient"):
        case = small("llama", dropout_prob=0.3, runner_type=runner)
        with opened(case.form) as mesh:
            model = filled(case, mesh)
            x, y = (
                model.layout.tokens(ids.reshape(-1, 1, 1, case.length)) for ids in case.tokens()
            )
            first, second = (model.loss(model(x), y) for _ in range(2))
            first.backward()
            third = model.loss(model(x), y)
            second.backward()
            third.backward()
            gradients = [p.gather_grad() for p in model.parameters().values()]
            losses.append(
                ([float(loss.to_numpy().squeeze()) for loss in (first, second, third)], gradients)
            )
    assert losses[0][0] == losses[1][0] and len(set(losses[0][0])) == 3
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(losses[0][1], losses[1][1]))


@pytest.mark.parametrize("runner", ["default", "memory_efficient"])
def test_layers_behind_a_table_that_is_not_trained(runner):
    case = small("llama", runner_type=runner)
    _, gradients, _ = run(small("llama"))
    with opened(case.form) as mesh:
        model = filled(case, mesh)
        parameters = model.parameters()
        parameters["vocabulary.table"].set_requires_grad(False)
        backward(case, model)
        found = {n: p.gather_grad() for n, p in parameters.items() if p.is_grad_initialized()}
    assert parameters.keys() - found.keys() == {"vocabulary.table"}
    assert not any(different(grad, gradients[name]) for name, grad in found.items())


@pytest.mark.parametrize(
    ("kind", "form"), [("gpt2", Form((2, 2), None, 0)), ("llama", Form((1, 4), None, 1))]
)
def test_every_device_can_have_the_logits_of_the_whole_vocabulary(kind, form):
    case = small(kind, form)
    ids = case.tokens()[0, 0]
    found = []
    for each in (case, case.on_one_device()):
        with opened(each.form) as mesh, no_grad():
            model = filled(each, mesh)
            logits = model.whole(model(model.layout.tokens(ids[:, None, None])))
            assert not logits.get_requires_grad()
            shown = [
                np.split(part, [case.config.vocab_size], -1) for part in parts(logits.get_value())
            ]
            found.append([real for real, _ in shown])
            assert all((padding < -1e8).all() for _, padding in shown)
    for part in found[0]:
        np.testing.assert_allclose(part, found[1][0], atol=1e-5)


def names(kind, **changes):
    return list(
        create_model(replace(small(kind).config, num_blocks=1, **changes), Layout()).parameters()
    )


def test_names_of_the_parameters():
    linears = {f"attention.{name}" for name in ("query", "key", "value", "out")} | {"up", "down"}
    norms, ends = (
        {"blocks.0.norm1", "blocks.0.norm2", "norm"},
        {"vocabulary.table", "vocabulary.head"},
    )

    def wanted(layers, *parts):
        return {f"{layer}.{part}" for layer in layers for part in parts}

    blocks = {f"blocks.0.{name}" for name in linears}
    both = "weight", "bias"
    assert set(names("gpt2")) == {*wanted(blocks | norms, *both), *ends, "position"}
    assert set(names("llama")) == {*wanted(blocks | norms | {"blocks.0.gate"}, "weight"), *ends}
    for kind in ("gpt2", "llama"):
        assert set(names(kind)) - set(names(kind, weight_tying="enabled")) == {"vocabulary.head"}
    assert not any("bias" in name and "norm" not in name for name in names("gpt2", bias=False))


def test_a_sequence_longer_than_the_positions():
    case = replace(small("gpt2"), length=17)
    words = "a sequence of 17 tokens", "max_sequence_length 16\n  try: "
    with opened(case.form) as mesh:
        refused(lambda: backward(case, filled(case, mesh)), *words)

"""Parameters lie where their layout says, whatever the mesh; layers compute what one device
computes.
"""

import formulas
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from train.runs import Form, compared, different, opened, parts, refused, small

import ttkit
from ttkit import ttnn
from ttkit.train.autograd import Tensor
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.model.models import create_model
from ttkit.train.model.modules import (
    ColumnParallelLinear,
    Dropout,
    LayerNorm,
    Linear,
    Module,
    Parameter,
    RMSNorm,
    RowParallelLinear,
    constant,
    normal,
)

FORMS = [Form(), Form((2, 3), 0, 1), Form((2, 3), 1, 0), Form((2, 4), None, 1), Form((2, 2), 0)]
each_form = pytest.mark.parametrize("form", FORMS, ids=str)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(FORMS),
    st.sampled_from([None, 2, 3]),
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(0, 70),
)
def test_what_is_placed_is_gathered(form, shard_dim, rows, columns, filled):
    tp = form.size(form.tp_axis)
    shape = (1, 1, rows * tp, columns * tp)
    with opened(form) as mesh:
        layout = form.layout(mesh)
        p = Parameter(shape, constant(0.0), layout, shard_dim, placed_rows=shape[2] + filled * tp)
        array = random(*shape)
        p.place(array)
        assert np.array_equal(p.gather(), array)
        for at, have, want in compared(p.get_value(), p, form, array):
            assert np.array_equal(have, want), at
        grad = random(*shape, seed=1)
        assert np.array_equal(p.gather(p.distribute(grad)), grad)
        assert p.distribute(grad, ttnn.bfloat16).dtype == ttnn.bfloat16


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_first_weights_do_not_depend_on_the_layout(kind):
    sizes = {"num_heads": 12, "num_groups": 12, "embedding_dim": 24, "intermediate_dim": 36}
    config = small(kind, **sizes)
    first = None
    for form in FORMS:
        with opened(form) as mesh:
            model = create_model(config, form.layout(mesh))
            model.init_weights(5)
            weights = {name: p.gather() for name, p in model.parameters().items()}
            for name, p in model.parameters().items():
                for _, have, want in compared(p.get_value(), p, form, weights[name]):
                    assert np.array_equal(have, want)
        first = first or weights
        assert list(weights) == list(first)
        assert all(np.array_equal(weights[name], first[name]) for name in first), form
    drawn = [w for w in first.values() if np.ptp(w)]
    assert len({w.ravel()[0] for w in drawn}) == len(drawn)  # no two start alike
    with opened(Form()) as mesh:
        other = create_model(config, Form().layout(mesh))
        other.init_weights(6)
        assert not np.array_equal(
            other.parameters()["vocabulary.table"].gather(), first["vocabulary.table"]
        )


def test_a_model_has_no_values_before_it_gets_them():
    parameters = create_model(small("llama"), Layout(tp=4)).parameters()
    refused(parameters["blocks.1.down.weight"].get_value, "blocks.1.down.weight", "no values yet")
    assert not parameters["blocks.1.down.weight"].gather_grad().any()


def x_and_gradients(layer, form, x, cut=None, out_cut=None):
    """The layer on an input: each device's output, input gradient and weight gradients, for a
    gradient from above that all share.
    """
    for i, p in enumerate(layer.parameters().values()):
        p.place(random(*p.global_shape, seed=10 + i))
    layout = form.layout(next(iter(layer.parameters().values())).get_value().device())
    tensor = Tensor(layout.place(x, dtype=ttnn.float32, tp_dim=cut))
    out = layer(tensor)
    whole = list(out.shape())
    whole[3] *= form.size(form.tp_axis) if out_cut else 1
    out.set_grad(layout.place(random(*whole, seed=99), dtype=ttnn.float32, tp_dim=out_cut))
    out.backward()
    return out, tensor, {name: p.gather_grad() for name, p in layer.parameters().items()}


@each_form
@pytest.mark.parametrize("kind", ["columns", "columns gathered", "rows", "rows of whole inputs"])
def test_parallel_linear_is_linear(form, kind):
    bias = "whole" not in kind
    shapes = {0: (2, 1, 5, 12), 10: (1, 1, 24, 12), 11: (1, 1, 1, 24), 99: (2, 1, 5, 24)}  # by seed
    x, w, b, g = (random(*shape, seed=seed).astype(np.float64) for seed, shape in shapes.items())
    right, w = formulas.linear(x, w[0, 0], b if bias else 0), w[0, 0]
    dx, dw, db = g @ w, np.einsum("bcso,bcsi->oi", g, x), g.sum((0, 1, 2))
    layer, how = {
        "columns": (ColumnParallelLinear, {}),
        "columns gathered": (ColumnParallelLinear, {"gather_output": True}),
        "rows": (RowParallelLinear, {}),
        "rows of whole inputs": (RowParallelLinear, {"input_is_parallel": False}),
    }[kind]
    cut = 3 if kind == "rows" and form.tp_axis is not None else None
    out_cut = 3 if kind == "columns" and form.tp_axis is not None else None
    with opened(form) as mesh:
        made = layer(12, 24, bias, layout=form.layout(mesh), **how)
        out, tensor, gradients = x_and_gradients(made, form, np.float32(x), cut, out_cut)
        for value, whole, dim in ((out.get_value(), right, out_cut), (tensor.get_grad(), dx, cut)):
            lies = Parameter(whole.shape, constant(0.0), form.layout(mesh), dim)
            for at, have, want in compared(value, lies, form, whole):
                np.testing.assert_allclose(have, want, atol=1e-4, err_msg=str(at))
    assert not different(gradients["weight"][0, 0], dw)
    assert ("bias" in gradients) == bias
    assert not bias or not different(gradients["bias"][0, 0, 0], db)


def linear(x, w, b=0.0):
    return formulas.linear(x, w[0, 0], b)


BOTH = ["weight", "bias"]
PLAIN = {
    "linear": (Linear, (12, 24), linear, BOTH),
    "linear without bias": (Linear, (12, 24, False), linear, ["weight"]),
    "layer norm": (LayerNorm, (12,), formulas.layer_norm, BOTH),
    "layer norm without bias": (LayerNorm, (12, False), formulas.layer_norm, ["weight"]),
    "RMS norm": (RMSNorm, (12,), formulas.rms_norm, ["weight"]),
    "RMS norm, epsilon": (
        RMSNorm,
        (12, 0.5),
        lambda x, w: formulas.rms_norm(x, w, 0.5),
        ["weight"],
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_layers(one, name):
    kind, sizes, formula, names = PLAIN[name]
    layer, x = kind(*sizes, layout=Layout().on(one)), random(2, 1, 5, 12)
    out, tensor, gradients = x_and_gradients(layer, Form(), x)
    assert list(gradients) == names
    operands = [
        v.astype(np.float64) for v in (x, *(p.gather() for p in layer.parameters().values()))
    ]
    right = formula(*operands)
    np.testing.assert_allclose(out.to_numpy(), right, **formulas.tolerance(additions=100))
    wanted = formulas.gradients(formula, random(*right.shape, seed=99), *operands)
    for have, want in zip(
        (ttkit.to_numpy(tensor.get_grad()), *gradients.values()), wanted, strict=True
    ):
        assert not different(have, want)


def test_sizes_that_do_not_divide():
    layout = Layout(tp=4)
    llama = TransformerConfig("llama", num_heads=8, num_groups=2, embedding_dim=64, num_blocks=1)
    odd, ids = TransformerConfig(num_heads=5, embedding_dim=64), np.zeros((3, 1, 1, 4), int)
    for call, rule in (
        (lambda: ColumnParallelLinear(8, 30, layout=layout), "Output features = 30, devices = 4"),
        (lambda: RowParallelLinear(30, 8, layout=layout), "Input features = 30, devices = 4"),
        (lambda: create_model(llama, layout), "num_groups must be divisible"),
        (lambda: create_model(odd, Layout()), "embedding_dim 64 is not divisible by num_heads 5"),
        (
            lambda: Layout(dp=2).tokens(ids),
            "batch_size 3 is not divisible by the number of replicas",
        ),
    ):
        refused(call, rule)


def test_tokens_are_cut_over_the_replicas_only():
    ids = np.arange(24).reshape(4, 1, 1, 6)
    with opened(Form((2, 3), 0, 1)) as mesh:
        value = Form((2, 3), 0, 1).layout(mesh).tokens(ids)
        assert (value.dtype, value.layout) == (ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
        for i, have in enumerate(parts(value)):
            assert np.array_equal(have, ids[:2] if i < 3 else ids[2:])


class Pair(Module):
    """Two layers that share their weights, and a dictionary of others."""

    def __init__(self):
        self.first = Linear(2, 3, layout=Layout())
        self.second = Linear(2, 3, layout=Layout())
        self.second.weight = self.first.weight
        self.more = {"a": Dropout(0.5), 7: Linear(1, 1, False, layout=Layout())}
        self.own = Parameter((1, 1, 1, 1), normal(), Layout())


def test_parameters_come_once_under_their_first_name():
    pair = Pair()
    found = pair.parameters()
    assert list(found) == ["own", "first.weight", "first.bias", "second.bias", "more.7.weight"]
    assert all(p.name == name for name, p in found.items())
    assert found["first.weight"] is pair.second.weight


def test_dropout_is_for_training_only(one):
    pair = Pair()
    dropout = pair.more["a"]
    x = Tensor(ttnn.ones_like(Tensor.from_numpy(random(1, 1, 64, 64), device=one).get_value()))
    first, second = dropout(x).to_numpy(), dropout(x).to_numpy()
    assert 0.3 < (first == 0).mean() < 0.7 and not np.array_equal(first, second)
    pair.eval()
    assert dropout(x) is x
    pair.train()
    assert dropout(x) is not x
    again = Dropout(0.5)
    assert np.array_equal(again(x).to_numpy(), first)  # of the same seed

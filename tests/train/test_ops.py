"""Each operation and its gradients against float64 formulas: odd shapes, broadcasting, both
types.
"""

import math
import operator

import formulas
import numpy as np
import pytest
from formulas import attention, gradients, tolerance

import ttkit
from ttkit import ttnn
from ttkit.train.autograd import Tensor, ops
from ttkit.train.config.layout import Layout
from ttkit.train.parallel.distributed import cross_entropy_loss, padding_masked


def one_number(value):
    """A loss as training has it."""
    return np.reshape(value, (1, 1, 1, 1))


# name: ours, the formula, shapes of the operands
CASES = {
    "add": (operator.add, np.add, [(2, 1, 5, 7), (2, 1, 5, 7)]),
    "add a row": (operator.add, np.add, [(2, 1, 5, 7), (1, 1, 1, 7)]),
    "add to a row": (operator.add, np.add, [(1, 1, 1, 7), (2, 3, 5, 7)]),
    "add of fewer dimensions": (operator.add, np.add, [(2, 1, 5, 7), (5, 7)]),
    "add a number": (lambda x: operator.add(x, 2.5), lambda x: x + 2.5, [(3, 5)]),
    "sub": (operator.sub, np.subtract, [(2, 1, 5, 7), (2, 1, 5, 7)]),
    "sub a number": (lambda x: operator.sub(x, 2.5), lambda x: x - 2.5, [(3, 5)]),
    "mul": (operator.mul, np.multiply, [(2, 1, 33, 7), (2, 1, 33, 7)]),
    "mul by one element": (operator.mul, np.multiply, [(1, 1, 1, 1), (2, 3, 5, 7)]),
    "mul by a number": (lambda x: operator.mul(x, -2.5), lambda x: x * -2.5, [(3, 5)]),
    "matmul": (operator.matmul, np.matmul, [(2, 3, 5, 7), (2, 3, 7, 33)]),
    "matmul by one": (operator.matmul, np.matmul, [(2, 1, 5, 7), (1, 1, 7, 4)]),
    "linear": (ops.linear, lambda x, w: formulas.linear(x, w[0, 0]), [(2, 1, 5, 7), (1, 1, 35, 7)]),
    "linear with bias": (ops.linear, lambda x, w, b: formulas.linear(x, w[0, 0], b), [(3, 1, 33, 7), (1, 1, 4, 7), (1, 1, 1, 4)]),
    "gelu": (ops.gelu, formulas.gelu_tanh, [(2, 1, 5, 7)]),
    "silu": (ops.silu, formulas.silu, [(2, 1, 5, 7)]),
    "relu": (ops.relu, formulas.relu, [(2, 1, 5, 7)]),
    "mean": (ops.mean, lambda x: one_number(x.mean()), [(2, 1, 5, 7)]),
    "heads_creation": (lambda x: ops.heads_creation(x, 3), lambda x: formulas.split_heads(x, 3), [(2, 1, 5, 21)]),
    "heads_fusion": (ops.heads_fusion, formulas.join_heads, [(2, 3, 5, 7)]),
    "layernorm": (ops.layernorm, formulas.layer_norm, [(2, 1, 5, 19), (1, 1, 1, 19), (1, 1, 1, 19)]),
    "layernorm without bias": (ops.layernorm, formulas.layer_norm, [(2, 1, 5, 40), (1, 1, 1, 40)]),
    "rmsnorm": (ops.rmsnorm, formulas.rms_norm, [(2, 1, 33, 19), (1, 1, 1, 19)]),
    "layernorm, epsilon": (
        lambda *operands: ops.layernorm(*operands, epsilon=0.5),
        lambda *operands: formulas.layer_norm(*operands, eps=0.5),
        [(2, 1, 5, 19), (1, 1, 1, 19), (1, 1, 1, 19)],
    ),
    "rmsnorm, epsilon": (
        lambda *operands: ops.rmsnorm(*operands, epsilon=0.5),
        lambda *operands: formulas.rms_norm(*operands, eps=0.5),
        [(2, 1, 33, 19), (1, 1, 1, 19)],
    ),
    "attention": (ops.scaled_dot_product_attention, attention, [(2, 3, 5, 7), (2, 3, 5, 7), (2, 3, 5, 7)]),
    "attention of groups": (ops.scaled_dot_product_attention, attention, [(2, 6, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)]),
    "attention to more keys": (ops.scaled_dot_product_attention, attention, [(1, 4, 3, 4), (1, 2, 35, 4), (1, 2, 35, 4)]),
    "mse_loss": (ops.mse_loss, lambda a, b: one_number(((a - b) ** 2).mean()), [(2, 1, 5, 7), (2, 1, 5, 7)]),
}  # fmt: skip


def compare(mesh, ours, formula, shapes, dtype=ttnn.float32, roundings=4):
    """The value and each gradient, for a random gradient from above.

    Sums have fewer than 100 terms; `roundings` results in a row are stored in `dtype`.
    """
    random = np.random.default_rng(len(shapes) + shapes[0][-1])
    near = tolerance(dtype, additions=100, roundings=roundings)
    tensors = [drawn(random, shape, dtype, mesh) for shape in shapes]
    operands = [t.to_numpy().astype(np.float64) for t in tensors]
    have, want = ours(*tensors), formula(*operands)
    np.testing.assert_allclose(have.to_numpy(), want, **near)
    above = drawn(random, want.shape, dtype, mesh)
    have.set_grad(above.get_value())
    have.backward()
    for tensor, right in zip(tensors, gradients(formula, above.to_numpy(), *operands), strict=True):
        got = tensor.get_grad()
        assert got.dtype == dtype
        scale = max(1, np.abs(right).max())  # the terms of a sum are not larger than its largest
        np.testing.assert_allclose(ttkit.to_numpy(got) / scale, right / scale, **near)


def drawn(random, shape, dtype, mesh):
    values = random.standard_normal(shape).astype(np.float32)
    return Tensor.from_numpy(values, new_type=dtype, device=mesh)


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients(one, name, dtype):
    stored = 9 if "attention" in name else 4  # in a row: the gradient of queries has nine
    compare(one, *CASES[name], dtype, stored)


@pytest.mark.parametrize(
    "name", ["add a row", "matmul by one", "linear with bias", "layernorm", "attention of groups"]
)
def test_each_device_of_a_mesh_does_the_same(mesh, name):
    ours, formula, shapes = CASES[name]
    # a part for each device
    values = np.random.default_rng(0).standard_normal((8, *shapes[0])).astype(np.float32)
    rest = [
        np.random.default_rng(i).standard_normal(s).astype(np.float32)
        for i, s in enumerate(shapes[1:], 1)
    ]
    x = Tensor.from_numpy(
        values.reshape(-1, *shapes[0][1:]), mapper=ttnn.ShardTensorToMesh(mesh, 0), device=mesh
    )
    others = [
        Tensor.from_numpy(v, mapper=ttnn.ReplicateTensorToMesh(mesh), device=mesh) for v in rest
    ]
    ours(x, *others).backward()
    for place, value in enumerate(values):
        wanted = gradients(formula, 1.0, *(v.astype(np.float64) for v in (value, *rest)))
        for tensor, want in zip((x, *others), wanted, strict=True):
            have = ttkit.to_numpy(ttnn.get_device_tensors(tensor.get_grad())[place])
            np.testing.assert_allclose(have, want, **tolerance(additions=100))


@pytest.mark.parametrize("length, heads, groups", [(1, 4, 2), (5, 2, 2), (9, 6, 2), (26, 4, 1)])
def test_causal_attention_with_and_without_stored_scores(one, monkeypatch, length, heads, groups):
    """Blocks of 8 queries: one, two of which the second has one query, and four."""
    monkeypatch.setattr(ops, "ATTENTION_BLOCK", 8)
    layout = Layout().on(one)

    def stored(q, k, v):
        mask = ops.causal_mask(length, heads // groups, layout)
        return ops.scaled_dot_product_attention(q, k, v, mask)

    def flash(q, k, v):
        return ops.causal_attention(q, k, v, layout)

    shapes = [(2, n, length, 4) for n in (heads, groups, groups)]
    for ours in (stored, flash):
        compare(one, ours, lambda *qkv: attention(*qkv, formulas.causal(length)), shapes)


def test_rope_turns_neighbours_as_complex_numbers(one):
    length, width = 5, 6
    angles = np.random.default_rng(0).uniform(-4, 4, (length, width // 2)).astype(np.float32)
    turn = np.zeros((1, 1, width, width), np.float32)
    for i in range(0, width, 2):
        turn[0, 0, i + 1, i], turn[0, 0, i, i + 1] = -1, 1
    tables = [
        Tensor.from_numpy(t, device=one).get_value()
        for t in (*(f(angles).repeat(2, 1)[None, None] for f in (np.cos, np.sin)), turn)
    ]

    compare(
        one,
        lambda x: ops.rope(x, *tables),
        lambda x: formulas.rotated(x, angles),
        [(2, 3, length, width)],
    )


def ids(mesh, high, shape=(2, 1, 1, 5), seed=0):
    """Random tokens as ours and as an array [B, S]."""
    drawn = np.random.default_rng(seed).integers(0, high, shape)
    ours = Tensor.from_numpy(
        drawn.astype(np.uint32), ttnn.ROW_MAJOR_LAYOUT, ttnn.uint32, device=mesh
    ).get_value()
    return ours, drawn.reshape(shape[0], shape[-1])


def columns(mesh, count):
    return Tensor.from_numpy(
        np.arange(count, dtype=np.float32).reshape(1, 1, 1, -1), device=mesh
    ).get_value()


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("length", [5, 32])
@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"])
def test_embedding(one, dtype, length, sharded):
    mine, numbers = ids(one, 300, (2, 1, 1, length))
    compare(
        one,
        lambda w: ops.embedding(mine, w, columns(one, 300) if sharded else None),
        lambda w: w[0, 0][numbers][:, None],
        [(1, 1, 300, 7)],
        dtype,
    )


@pytest.mark.parametrize(
    "dtype, scale",
    [(ttnn.float32, 1.0), (ttnn.bfloat16, 1.0), (ttnn.float32, 256.0)],
    ids=["float32", "bfloat16", "powers that overflow"],
)
def test_cross_entropy(one, dtype, scale):
    mine, numbers = ids(one, 37)
    compare(
        one,
        lambda x: cross_entropy_loss(x * scale, mine, columns(one, 37)),
        lambda x: one_number(formulas.cross_entropy(x * scale, numbers)),
        [(2, 1, 5, 37)],
        dtype,
    )


def test_cross_entropy_of_bfloat16_is_summed_in_float32(one):
    """The mean of 1,024 tokens is nearer to the exact one than a bfloat16, with its 8 bits,
    could be.
    """
    mine, numbers = ids(one, 37, (32, 1, 1, 32))
    logits = operator.mul(drawn(np.random.default_rng(0), (32, 1, 32, 37), ttnn.bfloat16, one), 2.0)
    loss = cross_entropy_loss(logits, mine, columns(one, 37))
    right = formulas.cross_entropy(logits.to_numpy().astype(np.float64), numbers)
    assert loss.get_value().dtype == ttnn.float32
    assert float(loss.to_numpy().squeeze()) == pytest.approx(right, rel=5e-4)


def test_padding_takes_no_part(one):
    """Logits of numbers past the vocabulary neither change the loss nor get a gradient."""
    mine, numbers = ids(one, 37)

    def ours(x):
        return cross_entropy_loss(padding_masked(x, columns(one, 64), 37), mine, columns(one, 64))

    compare(
        one,
        ours,
        lambda x: one_number(formulas.cross_entropy(x[..., :37], numbers)),
        [(2, 1, 5, 64)],
    )


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"])
def test_dropout(one, dtype):
    """Each element is kept or not, scaled so that the mean stays, and its gradient with it."""
    x = Tensor.from_numpy(np.ones((1, 1, 100, 100), np.float32), new_type=dtype, device=one)
    y = ops.dropout(x, 0.2, 7)
    y.backward()
    values, scaled = y.to_numpy(), 1.25
    assert set(np.unique(values)) == {0, scaled}
    assert abs((values == 0).mean() - 0.2) < 5 * math.sqrt(0.2 * 0.8 / values.size)
    assert x.get_grad().dtype == dtype
    assert np.array_equal(ttkit.to_numpy(x.get_grad()), values)
    assert np.array_equal(ops.dropout(x, 0.2, 7).to_numpy(), values)
    assert not np.array_equal(ops.dropout(x, 0.2, 8).to_numpy(), values)
    assert ops.dropout(x, 0.0, 7) is x


def test_dropout_is_the_same_on_every_device(mesh):
    x = Tensor.from_numpy(
        np.ones((1, 1, 32, 32), np.float32), device=mesh, mapper=ttnn.ReplicateTensorToMesh(mesh)
    )
    first, *others = [
        ttkit.to_numpy(t) for t in ttnn.get_device_tensors(ops.dropout(x, 0.5, 3).get_value())
    ]
    assert len(others) == 7 and all(np.array_equal(first, other) for other in others)

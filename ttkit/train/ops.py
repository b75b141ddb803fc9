"""Operations that can be differentiated: each computes with ttnn and says how a gradient goes
back through it.

Shapes are those on one device: activations [B, 1, S, E], heads [B, h, S, d], weights [1, 1, out,
in], as in ttml."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ttkit import ttnn
from ttkit.convert import from_numpy
from ttkit.errors import fail
from ttkit.train.autograd import Tensor, Value, recorded

# added to a score that must not be chosen; far below any real one, and finite in bfloat16
NEVER = -1e9


def _summed_to(grad: Value, shape: list[int]) -> Value:
    """A gradient summed over the dimensions along which the operand was repeated."""
    shape = [1] * (len(grad.shape) - len(shape)) + shape
    repeated = [i for i, (got, had) in enumerate(zip(grad.shape, shape)) if got != had]
    return ttnn.sum(grad, dim=repeated, keepdim=True) if repeated else grad


def _back_to(tensor: Tensor, grad: Value) -> Value:
    """A gradient in the shape and type of the operand that it is of."""
    grad = _summed_to(grad, tensor.shape())
    return grad if list(grad.shape) == tensor.shape() else ttnn.reshape(grad, tuple(tensor.shape()))


def add(a: Tensor, b: Tensor | float) -> Tensor:
    """a + b; shapes repeat where they are 1."""
    if not isinstance(b, Tensor):
        return recorded("add", ttnn.add(a.get_value(), b), [a], lambda grad: [grad])
    return recorded(
        "add",
        ttnn.add(a.get_value(), b.get_value()),
        [a, b],
        lambda grad: [_back_to(a, grad), _back_to(b, grad)],
    )


def sub(a: Tensor, b: Tensor | float) -> Tensor:
    """a - b; shapes repeat where they are 1."""
    if not isinstance(b, Tensor):
        return add(a, -b)
    return recorded(
        "sub",
        ttnn.subtract(a.get_value(), b.get_value()),
        [a, b],
        lambda grad: [_back_to(a, grad), ttnn.neg(_back_to(b, grad))],
    )


def mul(a: Tensor, b: Tensor | float) -> Tensor:
    """a * b, element by element; shapes repeat where they are 1."""
    if not isinstance(b, Tensor):
        return recorded(
            "mul", ttnn.multiply(a.get_value(), b), [a], lambda grad: [ttnn.multiply(grad, b)]
        )
    x, y = a.get_value(), b.get_value()
    return recorded(
        "mul",
        ttnn.multiply(x, y),
        [a, b],
        lambda grad: [_back_to(a, ttnn.multiply(grad, y)), _back_to(b, ttnn.multiply(grad, x))],
    )


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The product over the last two dimensions; a leading dimension of b may be 1."""
    x, y = a.get_value(), b.get_value()

    def backward(grad: Value) -> list[Value]:
        return [
            _back_to(a, ttnn.matmul(grad, y, transpose_b=True)),
            _back_to(b, ttnn.matmul(x, grad, transpose_a=True)),
        ]

    return recorded("matmul", ttnn.matmul(x, y), [a, b], backward)


def _rows(value: Value) -> Value:
    """[..., n] as [1, 1, rows, n]."""
    *front, width = value.shape
    return ttnn.reshape(value, (1, 1, math.prod(front), width))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b: x [..., in], weight [1, 1, out, in], bias [1, 1, 1, out] -> [..., out]."""
    value, w = x.get_value(), weight.get_value()
    out = ttnn.linear(value, w, bias=bias.get_value() if bias else None, transpose_b=True)

    def backward(grad: Value) -> list[Value | None]:
        dx = ttnn.matmul(grad, w) if x.get_requires_grad() else None
        dw = (
            ttnn.matmul(_rows(grad), _rows(value), transpose_a=True)
            if weight.get_requires_grad()
            else None
        )
        return [dx, dw] if bias is None else [dx, dw, _back_to(bias, grad)]

    return recorded("linear", out, [x, weight] if bias is None else [x, weight, bias], backward)


def _elementwise(
    name: str, forward: Callable[[Value], Value], backward: Callable[[Value, Value], list[Value]]
) -> Callable[[Tensor], Tensor]:
    def operation(x: Tensor) -> Tensor:
        value = x.get_value()
        return recorded(name, forward(value), [x], lambda grad: backward(grad, value))

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"{name}, element by element."
    return operation


gelu = _elementwise(
    "gelu",
    lambda x: ttnn.gelu(x, variant=ttnn.GeluVariant.Tanh),
    lambda grad, x: ttnn.gelu_bw(grad, x, variant=ttnn.GeluVariant.Tanh),
)
silu = _elementwise("silu", lambda x: ttnn.silu(x), lambda grad, x: ttnn.silu_bw(grad, x))
relu = _elementwise("relu", lambda x: ttnn.relu(x), lambda grad, x: ttnn.relu_bw(grad, x))


def mean(x: Tensor) -> Tensor:
    """The mean of all elements on each device, [1, 1, 1, 1]."""
    shape = x.shape()
    value = ttnn.mean(x.get_value(), dim=list(range(len(shape))), keepdim=True)

    def backward(grad: Value) -> list[Value]:
        return [
            ttnn.multiply(ttnn.ones_like(x.get_value()), ttnn.multiply(grad, 1 / math.prod(shape)))
        ]

    return recorded("mean", value, [x], backward)


def reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same values in another shape."""
    before = tuple(x.shape())
    return recorded(
        "reshape",
        ttnn.reshape(x.get_value(), tuple(shape)),
        [x],
        lambda grad: [ttnn.reshape(grad, before)],
    )


def rows(x: Tensor, start: int, stop: int) -> Tensor:
    """Rows start to stop of the last but one dimension of [1, 1, n, m]."""
    one, two, n, m = x.shape()
    if (start, stop) == (0, n):
        return x

    def part(value: Value, start: int, stop: int) -> Value:
        return ttnn.slice(value, [0, 0, start, 0], [one, two, stop, m])

    def backward(grad: Value) -> list[Value]:
        # around the rows; on a device ttnn.pad only fills up below
        zeros = ttnn.zeros_like(x.get_value())
        above, below = (
            [part(zeros, 0, start)] if start else [],
            [part(zeros, stop, n)] if stop < n else [],
        )
        return [ttnn.concat([*above, grad, *below], dim=2)]

    return recorded("rows", part(x.get_value(), start, stop), [x], backward)


def heads_creation(x: Tensor, num_heads: int) -> Tensor:
    """[B, 1, S, heads * d] -> [B, heads, S, d]."""
    batch, _, length, width = x.shape()
    split = ttnn.transpose(
        ttnn.reshape(x.get_value(), (batch, length, num_heads, width // num_heads)), 1, 2
    )
    return recorded(
        "heads_creation",
        split,
        [x],
        lambda grad: [ttnn.reshape(ttnn.transpose(grad, 1, 2), (batch, 1, length, width))],
    )


def heads_fusion(x: Tensor) -> Tensor:
    """[B, heads, S, d] -> [B, 1, S, heads * d]."""
    batch, heads, length, width = x.shape()
    fused = ttnn.reshape(ttnn.transpose(x.get_value(), 1, 2), (batch, 1, length, heads * width))
    return recorded(
        "heads_fusion",
        fused,
        [x],
        lambda grad: [ttnn.transpose(ttnn.reshape(grad, (batch, length, heads, width)), 1, 2)],
    )


def layernorm(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, epsilon: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last dimension (Ba, Kiros,
    Hinton 2016).
    """
    value, w = x.get_value(), weight.get_value()
    out = ttnn.layer_norm(value, weight=w, bias=bias.get_value() if bias else None, epsilon=epsilon)

    def backward(grad: Value) -> list[Value]:
        centred = ttnn.subtract(value, ttnn.mean(value, dim=-1, keepdim=True))
        scale = ttnn.rsqrt(ttnn.add(ttnn.mean(ttnn.square(centred), dim=-1, keepdim=True), epsilon))
        normal = ttnn.multiply(centred, scale)
        steep = ttnn.multiply(grad, w)
        along = ttnn.multiply(normal, ttnn.mean(ttnn.multiply(steep, normal), dim=-1, keepdim=True))
        level = ttnn.mean(steep, dim=-1, keepdim=True)
        dx = ttnn.multiply(ttnn.subtract(ttnn.subtract(steep, level), along), scale)
        dw = _back_to(weight, ttnn.multiply(grad, normal))
        return [dx, dw] if bias is None else [dx, dw, _back_to(bias, grad)]

    return recorded("layernorm", out, [x, weight] if bias is None else [x, weight, bias], backward)


def rmsnorm(x: Tensor, weight: Tensor, epsilon: float = 1e-5) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last dimension (Zhang, Sennrich 2019)."""
    value, w = x.get_value(), weight.get_value()
    out = ttnn.rms_norm(value, weight=w, epsilon=epsilon)

    def backward(grad: Value) -> list[Value]:
        scale = ttnn.rsqrt(ttnn.add(ttnn.mean(ttnn.square(value), dim=-1, keepdim=True), epsilon))
        normal = ttnn.multiply(value, scale)
        steep = ttnn.multiply(grad, w)
        along = ttnn.multiply(normal, ttnn.mean(ttnn.multiply(steep, normal), dim=-1, keepdim=True))
        return [
            ttnn.multiply(ttnn.subtract(steep, along), scale),
            _back_to(weight, ttnn.multiply(grad, normal)),
        ]

    return recorded("rmsnorm", out, [x, weight], backward)


def causal_mask(length: int, heads_per_group: int, like: Value) -> Value:
    """[1, 1, heads_per_group * length, length] to add to scores: each query sees the keys up to
    its own place.
    """
    hidden = np.triu(np.full((length, length), NEVER, np.float32), 1)
    mask = np.tile(hidden, (heads_per_group, 1))[None, None]
    return from_numpy(
        mask,
        dtype=like.dtype,
        layout=ttnn.TILE_LAYOUT,
        device=like.device(),
        mesh_mapper=ttnn.ReplicateTensorToMesh(like.device()),
    )


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Value | None = None
) -> Tensor:
    """softmax(Q K^T / sqrt(d) + mask) V; query heads share the keys of their group (Vaswani 2017;

    Ainslie 2023).

    The heads of a group are laid under one another as rows, so their keys and values need no
    copies.

    Args:
        query: [B, heads, S, d].
        key, value: [B, groups, T, d]; heads is a multiple of groups.
        mask: [1, 1, heads / groups * S, T], added to the scores.

    Returns:
        [B, heads, S, d].
    """
    batch, heads, length, width = query.shape()
    groups = key.shape()[1]
    if heads % groups:
        fail(
            "scaled_dot_product_attention",
            f"{heads} query heads do not share {groups} groups of keys evenly",
            "num_heads a multiple of num_groups",
        )
    scale = 1 / math.sqrt(width)
    stacked = (batch, groups, heads // groups * length, width)
    q = ttnn.multiply(ttnn.reshape(query.get_value(), stacked), scale)
    k, v = key.get_value(), value.get_value()
    scores = ttnn.matmul(q, k, transpose_b=True)
    chances = ttnn.softmax(scores if mask is None else ttnn.add(scores, mask), dim=-1)
    out = ttnn.reshape(ttnn.matmul(chances, v), (batch, heads, length, width))

    def backward(grad: Value) -> list[Value]:
        grad = ttnn.reshape(grad, stacked)
        dv = ttnn.matmul(chances, grad, transpose_a=True)
        steep = ttnn.multiply(chances, ttnn.matmul(grad, v, transpose_b=True))
        slope = ttnn.subtract(steep, ttnn.multiply(chances, ttnn.sum(steep, dim=-1, keepdim=True)))
        dq = ttnn.multiply(ttnn.matmul(slope, k), scale)
        return [
            ttnn.reshape(dq, (batch, heads, length, width)),
            ttnn.matmul(slope, q, transpose_a=True),
            dv,
        ]

    return recorded("scaled_dot_product_attention", out, [query, key, value], backward)


def rope(x: Tensor, cos: Value, sin: Value, turn: Value) -> Tensor:
    """Rotary positions: each pair of neighbours (2i, 2i + 1) turned by its position's angle (Su
    2021).

    Args:
        x: [B, heads, S, d].
        cos, sin: [1, 1, S, d], each angle twice.
        turn: [1, 1, d, d], which takes (a, b) to (-b, a).
    """
    value = x.get_value()
    out = ttnn.add(ttnn.multiply(value, cos), ttnn.multiply(ttnn.matmul(value, turn), sin))

    def backward(grad: Value) -> list[Value]:
        return [
            ttnn.add(
                ttnn.multiply(grad, cos),
                ttnn.matmul(ttnn.multiply(grad, sin), turn, transpose_b=True),
            )
        ]

    return recorded("rope", out, [x], backward)


def dropout(x: Tensor, probability: float, seed: int) -> Tensor:
    """Zeros with the given probability, the rest scaled up to keep the mean.

    All devices drop the same places, as tensor-parallel replicas need; so which elements of a batch
    go depends on the mesh. ttnn drops in bfloat16 only, so a mask of ones and zeros, which are
    exact there, goes through it."""
    if not probability:
        return x
    value = x.get_value()
    kept = ttnn.experimental.dropout(
        ttnn.typecast(ttnn.ones_like(value), ttnn.bfloat16),
        probability,
        1.0,
        seed,
        use_per_device_seed=False,
    )
    mask = ttnn.multiply(ttnn.typecast(kept, value.dtype), 1 / (1 - probability))
    return recorded(
        "dropout", ttnn.multiply(value, mask), [x], lambda grad: [ttnn.multiply(grad, mask)]
    )


def one_hot(ids: Value, numbers: Value) -> Value:
    """[B, 1, S, V]: 1 where a row's token has the column's number.

    Args:
        ids: [B, 1, 1, S], UINT32, row-major.
        numbers: [1, 1, 1, V], which token each column stands for: a device that has a part of the
        vocabulary has its part of the numbers,
            and gets zeros for the tokens of others.
    """
    batch, length = ids.shape[0], ids.shape[-1]
    column = ttnn.to_layout(ttnn.reshape(ids, (batch, 1, length, 1)), ttnn.TILE_LAYOUT)
    return ttnn.eq(ttnn.typecast(column, numbers.dtype), numbers)


def embedding(ids: Value, weight: Tensor, numbers: Value) -> Tensor:
    """A row of the table for each token, [B, 1, S, E], as a product with one-hot rows.

    ttnn.embedding takes bfloat16 tables only and no part of a vocabulary; the product takes both
    and costs what the logits cost.

    Args:
        ids: [B, 1, 1, S], UINT32, row-major.
        weight: [1, 1, V, E].
        numbers: as for `one_hot`.
    """
    w = weight.get_value()
    chosen = ttnn.typecast(one_hot(ids, numbers), w.dtype)
    return recorded(
        "embedding",
        ttnn.matmul(chosen, w),
        [weight],
        lambda grad: [ttnn.matmul(_rows(chosen), _rows(grad), transpose_a=True)],
    )


def mse_loss(prediction: Tensor, target: Tensor) -> Tensor:
    """The mean squared difference on each device, [1, 1, 1, 1]."""
    difference = sub(prediction, target)
    return mean(mul(difference, difference))

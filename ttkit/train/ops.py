"""Differentiable operations: each computes with ttnn and defines its backward.

Shapes are those on one device: activations [B, 1, S, E], heads [B, h, S, d], weights [1, 1, out,
in], as in ttml."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ttkit import ttnn
from ttkit.convert import from_numpy
from ttkit.errors import fail
from ttkit.train.autograd import Tensor, Value, back_to, recorded

# added to a score that must not be chosen: far below any real score, and finite in bfloat16
NEVER = -1e9


def _rows(value: Value) -> Value:
    """[..., n] as [1, 1, rows, n]."""
    *front, width = value.shape
    return ttnn.reshape(value, (1, 1, math.prod(front), width))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b: x [..., in], weight [1, 1, out, in], bias [1, 1, 1, out] -> [..., out]."""
    value, w = x.get_value(), weight.get_value()
    out = ttnn.linear(value, w, bias=bias.get_value() if bias else None, transpose_b=True)

    def backward(grad: Value) -> list[Value | None]:
        dx = dw = None
        if x.get_requires_grad():
            dx = ttnn.matmul(grad, w)
        if weight.get_requires_grad():
            dw = ttnn.matmul(_rows(grad), _rows(value), transpose_a=True)
        return [dx, dw] if bias is None else [dx, dw, back_to(bias, grad)]

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
    """Return the mean of all elements on each device, [1, 1, 1, 1]."""
    shape = x.shape()
    value = ttnn.mean(x.get_value(), dim=list(range(len(shape))), keepdim=True)

    def backward(grad: Value) -> list[Value]:
        each = ttnn.multiply(grad, 1 / math.prod(shape))
        return [ttnn.multiply(ttnn.ones_like(x.get_value()), each)]

    return recorded("mean", value, [x], backward)


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
        dnormal = ttnn.multiply(grad, w)
        average = ttnn.mean(dnormal, dim=-1, keepdim=True)
        dx = ttnn.subtract(ttnn.subtract(dnormal, average), _projection(dnormal, normal))
        dx = ttnn.multiply(dx, scale)
        dw = back_to(weight, ttnn.multiply(grad, normal))
        return [dx, dw] if bias is None else [dx, dw, back_to(bias, grad)]

    return recorded("layernorm", out, [x, weight] if bias is None else [x, weight, bias], backward)


def rmsnorm(x: Tensor, weight: Tensor, epsilon: float = 1e-5) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last dimension (Zhang, Sennrich 2019)."""
    value, w = x.get_value(), weight.get_value()
    out = ttnn.rms_norm(value, weight=w, epsilon=epsilon)

    def backward(grad: Value) -> list[Value]:
        scale = ttnn.rsqrt(ttnn.add(ttnn.mean(ttnn.square(value), dim=-1, keepdim=True), epsilon))
        normal = ttnn.multiply(value, scale)
        dnormal = ttnn.multiply(grad, w)
        dx = ttnn.multiply(ttnn.subtract(dnormal, _projection(dnormal, normal)), scale)
        return [dx, back_to(weight, ttnn.multiply(grad, normal))]

    return recorded("rmsnorm", out, [x, weight], backward)


def _projection(grad: Value, normal: Value) -> Value:
    """Return the part of a gradient along the normalized values: a norm does not depend on it."""
    return ttnn.multiply(normal, ttnn.mean(ttnn.multiply(grad, normal), dim=-1, keepdim=True))


def causal_mask(length: int, heads_per_group: int, like: Value) -> Value:
    """Return [1, 1, heads_per_group * length, length] to add to scores: each query sees the keys up
    to its own position.
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
    """softmax(Q K^T / sqrt(d) + mask) V (Vaswani 2017); query heads may share keys (Ainslie 2023).

    The heads of a group are stacked as rows, so their keys and values need no copies.

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
        rule = f"{heads} query heads do not share {groups} groups of keys evenly"
        fail("scaled_dot_product_attention", rule, "num_heads a multiple of num_groups")
    scale = 1 / math.sqrt(width)
    stacked = (batch, groups, heads // groups * length, width)
    q = ttnn.multiply(ttnn.reshape(query.get_value(), stacked), scale)
    k, v = key.get_value(), value.get_value()
    scores = ttnn.matmul(q, k, transpose_b=True)
    probs = ttnn.softmax(scores if mask is None else ttnn.add(scores, mask), dim=-1)
    out = ttnn.reshape(ttnn.matmul(probs, v), (batch, heads, length, width))

    def backward(grad: Value) -> list[Value]:
        grad = ttnn.reshape(grad, stacked)
        dv = ttnn.matmul(probs, grad, transpose_a=True)
        # the gradient of the softmax
        weighted = ttnn.multiply(probs, ttnn.matmul(grad, v, transpose_b=True))
        total = ttnn.sum(weighted, dim=-1, keepdim=True)
        dscores = ttnn.subtract(weighted, ttnn.multiply(probs, total))
        dq = ttnn.reshape(ttnn.multiply(ttnn.matmul(dscores, k), scale), tuple(query.shape()))
        return [dq, ttnn.matmul(dscores, q, transpose_a=True), dv]

    return recorded("scaled_dot_product_attention", out, [query, key, value], backward)


def rope(x: Tensor, cos: Value, sin: Value, turn: Value) -> Tensor:
    """Rotary positions: rotate each pair (2i, 2i + 1) by its position's angle (Su 2021).

    Args:
        x: [B, heads, S, d].
        cos, sin: [1, 1, S, d], each angle twice.
        turn: [1, 1, d, d], which maps (a, b) to (-b, a).
    """
    value = x.get_value()
    out = ttnn.add(ttnn.multiply(value, cos), ttnn.multiply(ttnn.matmul(value, turn), sin))

    def backward(grad: Value) -> list[Value]:
        turned = ttnn.matmul(ttnn.multiply(grad, sin), turn, transpose_b=True)
        return [ttnn.add(ttnn.multiply(grad, cos), turned)]

    return recorded("rope", out, [x], backward)


def dropout(x: Tensor, probability: float, seed: int) -> Tensor:
    """Set elements to zero with the given probability and scale the rest up to keep the mean.

    All devices drop the same places, as tensor-parallel replicas need, so which elements of a batch
    are dropped depends on the mesh. ttnn drops in bfloat16 only, where the ones and zeros of a mask
    are exact."""
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
    """Return [B, 1, S, V]: 1 where a row's token has the column's number.

    Args:
        ids: [B, 1, 1, S], UINT32, row-major.
        numbers: [1, 1, 1, V], which token each column stands for. A device with a part of the
            vocabulary has its part of the numbers and gets zeros for tokens of other devices.
    """
    batch, length = ids.shape[0], ids.shape[-1]
    column = ttnn.to_layout(ttnn.reshape(ids, (batch, 1, length, 1)), ttnn.TILE_LAYOUT)
    return ttnn.eq(ttnn.typecast(column, numbers.dtype), numbers)


def embedding(ids: Value, weight: Tensor, numbers: Value) -> Tensor:
    """Return the table's row of each token, [B, 1, S, E], as a product with one-hot rows.

    ttnn.embedding takes bfloat16 tables only and no part of a vocabulary; the product takes both
    and costs as much as the logits.

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


def mse_loss(prediction: Tensor, target: Tensor, reduce: object = None) -> Tensor:
    """Return the mean squared difference on each device, [1, 1, 1, 1].

    Args:
        reduce: ttml's, of which the mean is the only one here.
    """
    difference = prediction - target
    return mean(difference * difference)

"""Differentiable operations: each computes with ttnn and defines its backward.

Shapes are those on one device: activations [B, 1, S, E], heads [B, h, S, d], weights [1, 1, out,
in], as in ttml."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ttkit import ttnn
from ttkit.backend import constant
from ttkit.train.autograd import Gradients, Tensor, Value, back_to, recorded

# A mask adds this number to the scores that it hides. The number is far below any real score, and
# bfloat16 can represent numbers of this size.
MASKED_SCORE = -1e9


# `causal_attention` keeps the scores of this many queries in memory at the same time.
ATTENTION_BLOCK = 512


@functools.lru_cache(16)
def causal_mask(length: int, copies: int, layout, keys_first: bool = False) -> Value:
    """Return the mask that hides later keys, [1, 1, copies * length, length], to add to scores.

    Args:
        copies: how many heads share keys; their scores are stacked as rows.
        layout: the `Layout` of the scores.
        keys_first: True if the scores, and so the mask, are [keys, queries].
    """

    def hidden() -> np.ndarray:
        once = np.triu(np.full((length, length), MASKED_SCORE, np.float32), 1)
        mask = np.tile(once, (copies, 1))
        return (mask.T if keys_first else mask)[None, None]

    shape = (length, copies * length)
    whole = (1, 1, *(shape if keys_first else shape[::-1]))
    return layout.place(constant(whole, hidden, layout.device))


def _rows(value: Value) -> Value:
    """Return [..., n] as [1, 1, rows, n]."""
    *front, width = value.shape
    return ttnn.reshape(value, (1, 1, math.prod(front), width))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b, [..., out].

    The shapes are x [..., in], weight [1, 1, out, in] and bias [1, 1, 1, out]. With n weights, [1,
    n, out, in], and x [1, n, rows, in], it does n matmuls and returns [1, n, rows, out]."""
    value, biases = x.get_value(), [bias] if bias else []
    out = ttnn.linear(value, weight.full(), bias=bias.full() if bias else None, transpose_b=True)

    def backward(grad: Value) -> list[Value | None]:
        dx = dw = None
        if x.get_requires_grad():
            dx = grad @ weight.full()
        if weight.get_requires_grad():
            left, right = (grad, value) if weight.shape()[1] > 1 else (_rows(grad), _rows(value))
            dw = ttnn.matmul(left, right, transpose_a=True)
        return [dx, dw, *(back_to(each, grad) for each in biases)]

    return recorded("linear", out, [x, weight, *biases], backward)


def _elementwise(
    name: str, x: Tensor, forward: Callable[..., Value], back: Callable[..., Gradients], **how
) -> Tensor:
    value = x.get_value()
    return recorded(name, forward(value, **how), [x], lambda grad: back(grad, value, **how))


def gelu(x: Tensor) -> Tensor:
    """Return GELU by tanh, element by element."""
    return _elementwise("gelu", x, ttnn.gelu, ttnn.gelu_bw, variant=ttnn.GeluVariant.Tanh)


def silu(x: Tensor) -> Tensor:
    """Return x sigmoid(x), element by element."""
    return _elementwise("silu", x, ttnn.silu, ttnn.silu_bw)


def relu(x: Tensor) -> Tensor:
    """Return max(x, 0), element by element."""
    return _elementwise("relu", x, ttnn.relu, ttnn.relu_bw)


def softmax(x: Tensor) -> Tensor:
    """Return the softmax over the last dimension."""
    probs = ttnn.softmax(x.get_value(), dim=-1)
    return recorded("softmax", probs, [x], lambda grad: [softmax_back(probs, grad)])


def softmax_back(probs: Value, grad: Value) -> Value:
    """Return the gradient of a softmax's input, given its result and the gradient of the result."""
    weighted = probs * grad
    total = ttnn.sum(weighted, dim=-1, keepdim=True)
    return weighted - probs * total


def reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the same elements in another shape."""
    back = tuple(x.shape())
    value = ttnn.reshape(x.get_value(), shape)
    return recorded("reshape", value, [x], lambda grad: [ttnn.reshape(grad, back)])


def transpose(x: Tensor, a: int, b: int) -> Tensor:
    """Swap two dimensions."""
    value = ttnn.transpose(x.get_value(), a, b)
    return recorded("transpose", value, [x], lambda grad: [ttnn.transpose(grad, a, b)])


def mean(x: Tensor) -> Tensor:
    """Return the mean of all elements on each device, [1, 1, 1, 1]."""
    value = ttnn.mean(x.get_value(), keepdim=True)

    def backward(grad: Value) -> Gradients:
        each = grad * (1 / math.prod(x.shape()))
        return [ttnn.ones_like(x.get_value()) * each]

    return recorded("mean", value, [x], backward)


def _split(value: Value, heads: int) -> Value:
    batch, _, length, width = value.shape
    return ttnn.transpose(ttnn.reshape(value, (batch, length, heads, width // heads)), 1, 2)


def _fused(value: Value) -> Value:
    batch, heads, length, width = value.shape
    return ttnn.reshape(ttnn.transpose(value, 1, 2), (batch, 1, length, heads * width))


def heads_creation(x: Tensor, num_heads: int) -> Tensor:
    """Separate the heads: [B, 1, S, heads * d] -> [B, heads, S, d]."""
    split = _split(x.get_value(), num_heads)
    return recorded("heads_creation", split, [x], lambda grad: [_fused(grad)])


def heads_fusion(x: Tensor) -> Tensor:
    """Join the heads: [B, heads, S, d] -> [B, 1, S, heads * d]."""
    heads = x.shape()[1]
    return recorded("heads_fusion", _fused(x.get_value()), [x], lambda grad: [_split(grad, heads)])


def layernorm(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, epsilon: float = 1e-5
) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) * weight + bias over the last dimension.

    This is layer normalization (Ba, Kiros, Hinton 2016).
    """
    value, w = x.get_value(), weight.full()
    out = ttnn.layer_norm(value, weight=w, bias=bias.full() if bias else None, epsilon=epsilon)
    inputs = [x, weight, *([bias] if bias else [])]
    return _norm("layernorm", out, inputs, epsilon, lambda value: value - _mean(value))


def rmsnorm(x: Tensor, weight: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Return x / sqrt(mean(x^2) + epsilon) * weight over the last dimension.

    This is RMS normalization (Zhang, Sennrich 2019).
    """
    out = ttnn.rms_norm(x.get_value(), weight=weight.full(), epsilon=epsilon)
    return _norm("rmsnorm", out, [x, weight], epsilon, lambda value: value)


def _mean(value: Value) -> Value:
    return ttnn.mean(value, dim=-1, keepdim=True)


def _norm(
    name: str, out: Value, inputs: list[Tensor], epsilon: float, centre: Callable[[Value], Value]
) -> Tensor:
    """Record a norm: it applies `centre` to x, and divides by the root of the mean square.

    The inputs are x, a weight and perhaps a bias.
    """
    x, weight, *biases = inputs
    value = x.get_value()

    def backward(grad: Value) -> Gradients:
        centred = centre(value)
        scale = ttnn.rsqrt(_mean(ttnn.square(centred)) + epsilon)
        normal = centred * scale
        dnormal = grad * weight.full()
        # A norm does not change when its input is scaled, so the gradient has no component along
        # the normalized values.
        along = normal * _mean(dnormal * normal)
        dx = (centre(dnormal) - along) * scale
        dw = back_to(weight, grad * normal)
        return [dx, dw, *(back_to(bias, grad) for bias in biases)]

    return recorded(name, out, inputs, backward)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Value | None = None
) -> Tensor:
    """Return softmax(Q K^T / sqrt(d) + mask) V (Vaswani 2017).

    Query heads may share keys (Ainslie 2023). The heads of a group are stacked as rows, so their
    keys and values need no copies.

    Args:
        query: [B, heads, S, d].
        key, value: [B, groups, T, d]; heads is a multiple of groups.
        mask: [1, 1, heads / groups * S, T], added to the scores.

    Returns:
        [B, heads, S, d].
    """
    heads = query.shape()[1]
    groups = key.shape()[1]
    scale = 1 / math.sqrt(query.shape()[3])
    q = stacked(query.get_value(), groups) * scale
    k, v = key.get_value(), value.get_value()
    scores = ttnn.matmul(q, k, transpose_b=True)
    probs = ttnn.softmax(scores if mask is None else scores + mask, dim=-1)

    def backward(grad: Value) -> Gradients:
        grad = stacked(grad, groups)
        dv = ttnn.matmul(probs, grad, transpose_a=True)
        dscores = softmax_back(probs, ttnn.matmul(grad, v, transpose_b=True))
        dq = unstacked([(dscores @ k) * scale], heads)
        return [dq, ttnn.matmul(dscores, q, transpose_a=True), dv]

    out = unstacked([probs @ v], heads)
    return recorded("scaled_dot_product_attention", out, [query, key, value], backward)


def causal_attention(query: Tensor, key: Tensor, value: Tensor, layout) -> Tensor:
    """Return `scaled_dot_product_attention` under a causal mask; no scores are kept for backward.

    The queries are cut into blocks. A block computes its scores with the keys up to its own end,
    and backward computes them again (Dao 2022, "FlashAttention"). So the memory of scores grows
    with the sequence, not with its square. With n blocks, only (n + 1) / (2 n) of all scores are
    computed.

    Args:
        query: [B, heads, S, d].
        key, value: [B, groups, S, d]; heads is a multiple of groups.
        layout: the `Layout` of these tensors.

    Returns:
        [B, heads, S, d].
    """
    _, heads, length, width = query.shape()
    groups = key.shape()[1]
    copies, scale = heads // groups, 1 / math.sqrt(width)
    blocks = [(at, min(at + ATTENTION_BLOCK, length)) for at in range(0, length, ATTENTION_BLOCK)]
    q = query.get_value() * scale
    k = key.get_value()
    v = value.get_value()

    def rows(values: Value, start: int, end: int) -> Value:
        return stacked(positions(values, start, end), groups)

    def probabilities(start: int, end: int) -> Value:
        queries = rows(q, start, end)
        mask = causal_mask(end - start, copies, layout)
        scores = ttnn.matmul(queries, positions(k, start, end), transpose_b=True)
        scores = scores + mask
        if start:
            before = ttnn.matmul(queries, positions(k, 0, start), transpose_b=True)
            scores = ttnn.concat([before, scores], dim=3)
        return ttnn.softmax(scores, dim=-1)

    out = [probabilities(*each) @ positions(v, 0, each[1]) for each in blocks]

    def backward(grad: Value) -> Gradients:
        dqs: Gradients = []
        # A block adds to the gradients of all keys and values up to its own end. So the loop goes
        # from the last block to the first, and `sofar` has the sums for all earlier positions.
        ends: list[Gradients] = [[], []]
        sofar: list[Value | None] = [None, None]
        for start, end in reversed(blocks):
            probs = probabilities(start, end)
            given = rows(grad, start, end)
            dprobs = ttnn.matmul(given, positions(v, 0, end), transpose_b=True)
            dscores = softmax_back(probs, dprobs)
            dqs.insert(0, dscores @ positions(k, 0, end))
            parts = ((dscores, rows(q, start, end)), (probs, given))
            for i, (left, right) in enumerate(parts):
                more = ttnn.matmul(left, right, transpose_a=True)
                had = sofar[i]
                more = more if had is None else had + more
                ends[i].insert(0, positions(more, start, end))
                sofar[i] = positions(more, 0, start) if start else None
        dk, dv = map(joined, ends)
        return [unstacked(dqs, heads) * scale, dk, dv]

    return recorded("causal_attention", unstacked(out, heads), [query, key, value], backward)


def stacked(values: Value, groups: int) -> Value:
    """Return [B, heads, n, d] as [B, groups, rows, d].

    Heads that share keys are stacked as rows, so their keys need no copies.
    """
    return ttnn.reshape(values, (values.shape[0], groups, -1, values.shape[3]))


def unstacked(blocks: Sequence[Value], heads: int) -> Value:
    """Undo `stacked` for each block of positions, and return the joined blocks [B, heads, n, d]."""
    shapes = ((each.shape[0], heads, -1, each.shape[3]) for each in blocks)
    return joined(list(map(ttnn.reshape, blocks, shapes)))


def joined(blocks: Sequence[Value]) -> Value:
    """Join blocks [B, heads, n, d] along the positions."""
    return blocks[0] if len(blocks) == 1 else ttnn.concat(list(blocks), dim=2)


def positions(values: Value, start: int, end: int) -> Value:
    """Return the positions from `start` to before `end` of [B, heads, S, d]."""
    batch, heads, length, width = values.shape
    if (start, end) == (0, length):
        return values
    return ttnn.slice(values, [0, 0, start, 0], [batch, heads, end, width])


def rope(x: Tensor, cos: Value, sin: Value, turn: Value) -> Tensor:
    """Rotate each pair (2i, 2i + 1) by its position's angle: rotary positions (Su 2021).

    Args:
        x: [B, heads, S, d].
        cos, sin: [1, 1, S, d]; each angle comes twice, for the two numbers of its pair.
        turn: the matrix [1, 1, d, d] that maps each pair (a, b) to (-b, a).
    """
    value = x.get_value()
    out = value * cos + (value @ turn) * sin

    def backward(grad: Value) -> Gradients:
        turned = ttnn.matmul(grad * sin, turn, transpose_b=True)
        return [grad * cos + turned]

    return recorded("rope", out, [x], backward)


def dropout(x: Tensor, probability: float, seed: int) -> Tensor:
    """Set elements to zero with the given probability and scale the rest up to keep the mean.

    All devices drop the same positions of their shards, because tensor-parallel chips must drop
    the same elements of a replicated tensor. So the choice of dropped elements of a batch depends
    on the mesh. ttnn has dropout only in bfloat16, so the mask is made in bfloat16, in which its
    ones and zeros are exact."""
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
    mask = ttnn.typecast(kept, value.dtype) * (1 / (1 - probability))
    return recorded("dropout", value * mask, [x], lambda grad: [grad * mask])


def one_hot(ids: Value, numbers: Value) -> Value:
    """Return [B, 1, S, V]: 1 where a row's token has the column's number, and 0 elsewhere.

    Args:
        ids: [B, 1, 1, S], UINT32, row-major.
        numbers: [1, 1, 1, V], the token that each column stands for. If the vocabulary is sharded,
            a device has its shard of the numbers and gets zeros for tokens of other shards.
    """
    batch, length = ids.shape[0], ids.shape[-1]
    column = _tiled(ttnn.reshape(ids, (batch, 1, length, 1)))
    return ttnn.eq(ttnn.typecast(column, numbers.dtype), numbers)


def embedding(ids: Value, weight: Tensor, numbers: Value | None = None) -> Tensor:
    """Return the table's row of each token, [B, 1, S, E].

    ttnn.embedding and its backward take only bfloat16 tables. For a float32 table ttnn.gather and
    ttnn.scatter_add are used.

    Args:
        ids: [B, 1, 1, S], UINT32, row-major.
        weight: [1, 1, V, E].
        numbers: [1, 1, 1, V on this device], the token of each row of a device's table; it is given
            only if the vocabulary is sharded. A token whose row another device has gets zeros.
    """
    table, (_, _, rows, width) = weight.full(), weight.shape()
    batch, length = ids.shape[0], ids.shape[-1]
    row, here = ids, None
    if numbers is not None:
        first = ttnn.slice(numbers, [0, 0, 0, 0], [1, 1, 1, 1])
        row = ttnn.typecast(_tiled(ids), numbers.dtype) - first
        here = (row >= 0.0) * (row < float(rows))
        row = ttnn.typecast(row * here, ttnn.uint32)
        here = ttnn.typecast(ttnn.reshape(here, (batch, 1, length, 1)), table.dtype)
    count = batch * length
    flat = ttnn.to_layout(ttnn.reshape(row, (1, count)), ttnn.ROW_MAJOR_LAYOUT)
    is_bfloat16 = table.dtype == ttnn.bfloat16
    kept = table is weight.get_value()

    def zeros(like: Value, layout) -> Value:
        """Return a table of zeros."""
        return ttnn.zeros(weight.shape(), dtype=like.dtype, layout=layout, device=like.device())

    def index() -> Value:
        """Return the table's row for each element of the result, for gather and scatter_add."""
        column = ttnn.reshape(_tiled(flat), (1, 1, count, 1))
        return ttnn.expand(column, [1, 1, count, width])

    if is_bfloat16:
        found = ttnn.embedding(flat, table, layout=ttnn.TILE_LAYOUT)
    else:
        found = ttnn.gather(table, 2, index())
    found = ttnn.reshape(found, (batch, 1, length, width))

    def backward(grad: Value) -> Gradients:
        given = _rows(grad if here is None else grad * here)
        if is_bfloat16 and count % ttnn.TILE_SIZE == 0:
            # Only the shape matters here, so backward keeps no table that ZeRO 3 has gathered.
            like = weight.get_value() if kept else zeros(grad, ttnn.TILE_LAYOUT)
            return [ttnn.embedding_bw(flat, like, given)]
        # ttnn.scatter_add adds up float32 values only in row-major layout.
        plain = ttnn.ROW_MAJOR_LAYOUT
        at, rows = (ttnn.to_layout(each, plain) for each in (index(), given))
        return [_tiled(ttnn.scatter_add(zeros(grad, plain), 2, at, rows))]

    value = found if here is None else found * here
    return recorded("embedding", value, [weight], backward)


def _tiled(value: Value) -> Value:
    return ttnn.to_layout(value, ttnn.TILE_LAYOUT)


def mse_loss(prediction: Tensor, target: Tensor, reduce: object = None) -> Tensor:
    """Return the mean squared difference on each device, [1, 1, 1, 1].

    Args:
        reduce: a reduction of ttml; it is ignored, because only the mean is available here.
    """
    difference = prediction - target
    return mean(difference * difference)

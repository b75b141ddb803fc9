"""Operations of models: here softmax and attention, on each chip's own heads and batch.

Beside it: caches, decode, heads, norms, experts.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ttkit.errors import fail, is_strict
from ttkit.sim.arguments import check
from ttkit.sim.ops import blocks
from ttkit.sim.ops.matmul import THREADS_PAY_FROM
from ttkit.sim.ops.operation import Operands, each_element, operation, result
from ttkit.sim.ops.shaping import RANGE, axis_of, shards
from ttkit.sim.tensor.dtypes import FLOATS
from ttkit.sim.tensor.tensor import Tensor
from ttkit.sim.tensor.types import DataType, Layout

F = np.float32
Array = np.ndarray
NEVER = F(-1e9)  # A masked score gets this value, so that its weight after softmax is zero.
BLOCK_ROWS = 256  # Queries are scored in blocks of this size.
# From this many scores per head, one head at a time is faster than all heads at once.
LOOP_PAYS_FROM = 1 << 14


def shaped(array: Array, keep: int, *shape: int) -> Array:
    """Return an array with its first axes as they are, and the others in another shape."""
    return array.reshape((*array.shape[:keep], *shape))


# ---------------------------------------------------------------- softmax
def _softmax_rows(rows: Array, out: Array) -> None:
    np.subtract(rows, np.maximum.reduce(rows, -1, keepdims=True), out=out)
    np.exp(out, out=out)
    out *= np.reciprocal(np.add.reduce(out, -1, keepdims=True))


def softmax_of(array: Array) -> Array:
    """Return the softmax of float32 values along the last axis, in blocks of rows."""
    return blocks.rowwise(_softmax_rows, array)


def check_tiles(name: str, tensor: Tensor, types: tuple[DataType, ...], size: int = 1) -> None:
    """Check the layout, the type, and that `size` divides the width of a float operand."""
    if tensor.layout is not Layout.TILE:
        cure = "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)"
        fail(None, f"Inputs to {name} must be tilized", cure)
    if tensor.dtype not in types:
        known = ", ".join(t.name for t in types)
        rule = f"Unsupported data type: Input tensor must be {known}, got"
        fail(None, f"{rule} DataType::{tensor.dtype.name}", "ttnn.typecast")
    if tensor.shard_shape[-1] % size:
        rule = f"Padding is not supported on the head_dim dimension, got {tensor.shard_shape[-1]}"
        fail(None, rule, f"a head size that is a multiple of {size}")


@operation("softmax", flops=each_element(5))
def softmax(input_tensor: Tensor, dim: int = -1) -> Tensor:
    """Return exp(x) over its sum along `dim` of each shard, without overflow.

    Raises:
        TTKitError: no such dim, row-major or integer input.
    """
    array, lead = shards(input_tensor)
    axis = lead + axis_of(input_tensor, dim, RANGE)
    check_tiles("softmax", input_tensor, FLOATS[:3])
    values = softmax_of(array.swapaxes(axis, -1))
    return result(input_tensor, values.swapaxes(axis, -1))


def scale_mask_softmax_in_place(
    input_tensor: Tensor, scale: float | None = None, mask: Tensor | None = None
) -> Tensor:
    """Write softmax(scale * x + mask) of [b, heads, s, n] into the tensor.

    Args:
        mask: [b or 1, 1, s or 1, n].
    """
    check_tiles("softmax", input_tensor, FLOATS[:3])
    on = Operands(input_tensor, mask)
    values, *added = on.broadcast() if mask is not None else on.arrays[:1]
    if scale is not None:
        values = values * F(scale)
    for one in added:
        values = shaped(values + one, on.lead, *input_tensor.shard_shape)
    return on.result(softmax_of(values), output=input_tensor)


for _name in ("scale_mask_softmax_in_place", "scale_causal_mask_hw_dims_softmax_in_place"):
    operation(_name, flops=each_element(7))(scale_mask_softmax_in_place)


@operation("transformer.attention_softmax_", flops=each_element(7))
def attention_softmax_(
    tensor: Tensor, *, head_size: int | None = None, attention_mask: Tensor
) -> Tensor:
    """Write softmax(x / sqrt(head_size) + mask) into the tensor, and return it.

    Args:
        attention_mask: [batch, 1, s or 1, keys].
    """
    scale = 1 / math.sqrt(head_size) if head_size else 1.0
    return scale_mask_softmax_in_place(tensor, scale, attention_mask)


# ---------------------------------------------------------------- attention
def _attention_flops(given: Any, operands: Any, results: Any, shape: Any) -> int:
    """Count two matmuls for every pair of a query and a key that it sees."""
    batch, heads, queries, size = shape(given["input_tensor_q"])
    keys = shape(given["input_tensor_k"])[2]
    pairs = queries * keys
    if given.get("is_causal", True):
        seen = min(given.get("sliding_window_size") or keys, keys)
        pairs = seen * (seen + 1) // 2 + (queries - seen) * seen
    return 4 * batch * heads * pairs * size


@operation("transformer.scaled_dot_product_attention", flops=_attention_flops)
def scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = True,
    scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Tensor:
    """Return softmax(q k^T * scale + mask) v of each head; query heads may share a key head.

    Args:
        input_tensor_q: [batch, heads, queries, size].
        input_tensor_k, input_tensor_v: [batch, key heads, keys, size].
        attn_mask: [batch or 1, heads or 1, queries, keys], added to the scores;
            only without `is_causal`.
        scale: 1 / sqrt(size) when left out.
        sliding_window_size: causal, only the last so many keys count; else a window of that size
            around the query.

    Raises:
        TTKitError: sizes or head counts that do not fit; row-major; float32 in the strict
            dialect, as on a card; a mask with `is_causal`.
    """
    on = Operands(input_tensor_q, input_tensor_k, input_tensor_v, attn_mask)
    _check_attention(on.tensors, is_causal)
    q, k, v, mask = on.arrays
    values = attend(q, k, v, mask, scale, is_causal, sliding_window_size or 0)
    return on.result(values)


def _grouped(x: Array, n: int) -> Array:
    """Return [..., heads, s, d] as [..., key heads, n, s, d]: n query heads share a key head."""
    *front, many, length, size = x.shape
    return x.reshape((*front, many // n, n, length, size))


def _check_attention(tensors: list[Tensor], is_causal: bool) -> None:
    for tensor in tensors[:3]:
        check_tiles("SDPA", tensor, FLOATS[1:] if is_strict() else FLOATS, 32)
    q, k, v, *masks = (list(tensor.shard_shape) for tensor in tensors)
    lengths = "Causal SDPA requires Q and K to have the same sequence length. Got Q:"
    alike = "K and V must match, and have the batch and the hidden dim of Q. Got Q:"
    heads = "Q num_heads must be >= K num_heads and divisible by K num_heads, and K num_heads must"
    both = "is_causal and attn_mask cannot both be present. Got is_causal: true, attn_mask: true"
    check(
        (is_causal and q[2] != k[2], f"{lengths} {q[2]}, K: {k[2]}", "is_causal=False with a mask"),
        (k != v or (q[0], q[3]) != (k[0], k[3]), f"{alike} {q}, K: {k}, V: {v}"),
        (
            q[1] % k[1],
            f"{heads} be greater than 0. Got Q: {q[1]}, K: {k[1]}",
            "shard query and key heads over the same chips",
        ),
        (is_causal and masks, both, "is_causal=False, or no mask"),
    )
    for mask in masks:
        rule = f"Mask must be {[*q[:3], k[2]]}, or 1 in one of the first two, got {mask}"
        fits = mask[0] in (1, q[0]) and mask[1] in (1, q[1]) and mask[2:] == [q[2], k[2]]
        check((not fits, rule, "ttnn.reshape the mask, or shard it like the heads"))


def hidden(behind: Array, window: int | None) -> Array:
    """Mark the keys that a query does not see in causal attention, by their distance behind it."""
    return (behind < 0) | (behind >= window) if window else behind < 0


def attend(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    scale: float | None,
    causal: bool = False,
    window: int = 0,
) -> Array:
    """Attention of float32 values [..., heads, s, size]; heads of `q` share a head of `k` and `v`.

    Keys that no query of a block sees are not scored.

    Args:
        mask: [..., heads or 1, s, keys], added to the scores.
        scale: 1 / sqrt(size) when left out.
    """
    *_, many, queries, size = q.shape
    shared, keys = many // k.shape[-3], k.shape[-2]
    factor = F(1 / math.sqrt(size) if scale is None else scale)
    given = [_grouped(q, shared), _grouped(k, 1), _grouped(v, 1)]
    if mask is not None:
        given.append(_grouped(mask, shared if mask.shape[-3] == many else 1))
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in given))
    q, k, v, *masks = (np.broadcast_to(x, batch + x.shape[-2:]) for x in given)
    out = blocks.empty(batch + (queries, v.shape[-1]))
    pays = out.size * keys >= THREADS_PAY_FROM
    split = batch if queries * keys >= LOOP_PAYS_FROM else batch[: int(pays)]
    heads = [(*place, ...) for place in np.ndindex(split)]

    def part(head: Any, rows: slice, columns: slice, seen: int, unseen: Array | None) -> None:
        """Write the attention of queries to keys; `unseen` masks the keys from `seen` on."""
        ours, theirs = (*head, rows, slice(None)), (*head, columns, slice(None))
        scores = (q[ours] * factor) @ k[theirs].swapaxes(-1, -2)
        for added in masks:
            scores += added[(*head, rows, columns)]
        if unseen is not None:
            np.copyto(scores[..., seen:], NEVER, where=unseen)
        scores -= np.maximum.reduce(scores, -1, keepdims=True)
        np.exp(scores, out=scores)
        np.matmul(scores, v[theirs], out=out[ours])
        out[ours] /= np.add.reduce(scores, -1, keepdims=True)

    jobs = []
    for low in range(0, queries, BLOCK_ROWS):
        high = min(low + BLOCK_ROWS, queries)
        first, last = (max(0, low - window + 1) if window else 0, high) if causal else (0, keys)
        # All queries of the block see the first `seen` keys, which therefore need no mask.
        seen = low - first if causal and not window else 0
        behind = np.arange(low, high)[:, None] - np.arange(first + seen, last)
        unseen = hidden(behind, window) if causal else None
        if window and not causal:
            unseen = np.abs(behind) > window // 2
        which = (slice(low, high), slice(first, last), seen, unseen)
        jobs += [partial(part, head, *which) for head in heads]
    blocks.run(jobs, pays=pays)
    return shaped(out, -4, many, queries, -1)

"""Attention on each chip's own heads and batch."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ttkit.dialect import is_strict
from ttkit.errors import fail
from ttkit.sim import blocks
from ttkit.sim.arguments import describe
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.matmul import THREADS_PAY_FROM
from ttkit.sim.operation import each_element, on_mesh, operation, result, together
from ttkit.sim.softmax import scaled_softmax, softmax_of
from ttkit.sim.tensor import Tensor

F = np.float32
Array = np.ndarray
NEVER = F(-1e9)  # stands for a score that must not count
BLOCK_ROWS = 256  # queries that are scored at a time
LOOP_PAYS_FROM = 1 << 14  # scores of one head from which heads one by one beat all heads at once


@operation(
    "transformer.attention_softmax_",
    flops=each_element(7),
    hints="program_config causal_mask memory_config",
)
def attention_softmax_(
    tensor: Tensor, *, head_size: int | None = None, attention_mask: Tensor | None = None
) -> Tensor:
    """Write softmax(x / sqrt(head_size) + mask) into the tensor, and return it.

    Args:
        attention_mask: [batch, 1, s or 1, keys]; ttnn needs one here.
    """
    name = "attention_softmax_"
    if attention_mask is None:
        rule = (
            "Cannot apply divide by sqrt(head_size) using in-place version when attention_mask is"
        )
        fail(describe(name, (tensor,)), f"{rule} not set.", "ttnn.softmax(ttnn.multiply(x, scale))")
    scale = 1 / math.sqrt(head_size) if head_size else 1.0
    return scaled_softmax(name, tensor, scale, attention_mask, tensor)


def of_rank_four(name: str, *tensors: Tensor) -> tuple[Tensor, list[Array], Any]:
    """`together`, where the first three tensors must have rank 4."""
    on_mesh(name, *tensors, letters="QKVMN")
    asked = describe(name, tensors)
    for tensor in tensors[:3]:
        rank = len(tensor.shard_shape)
        if rank != 4:
            rule = f"inputs must have rank 4, got {list(tensor.shard_shape)}"
            rule += f": ShapeBase[] index out of range. 3 not in [-4, {rank})"
            fail(asked, rule, "[batch, heads, sequence, head size]")
    return together(name, tensors)


def _attention_flops(given: Any, operands: Any, results: Any, shape: Any) -> int:
    """Two products for every pair of a query and a key that it sees."""
    batch, heads, queries, size = shape(given["input_tensor_q"])
    keys = shape(given["input_tensor_k"])[2]
    pairs = queries * keys
    if given.get("is_causal", True):
        seen = min(given.get("sliding_window_size") or keys, keys)
        pairs = seen * (seen + 1) // 2 + (queries - seen) * seen
    return 4 * batch * heads * pairs * size


@operation(
    "transformer.scaled_dot_product_attention",
    flops=_attention_flops,
    hints="memory_config program_config compute_kernel_config windowed_q_token_offset "
    "windowed_q_token_offset_tensor attn_mask_block_map",
)
def scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = True,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    attention_sink: Any = None,
    cu_window_seqlens: Any = None,
    output_concat_heads: bool = False,
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
        output_concat_heads: give [batch, 1, queries, heads * size].

    Raises:
        TTKitError: ranks, sizes or head counts that do not fit; row-major; float32 in the strict
            dialect, as on a card; a mask with `is_causal`.
    """
    name = "scaled_dot_product_attention"
    operands = (
        input_tensor_q,
        input_tensor_k,
        input_tensor_v,
        *([] if attn_mask is None else [attn_mask]),
    )
    like, arrays, topology = of_rank_four(name, *operands)
    asked = describe(name, operands, {"is_causal": is_causal})
    _check_attention(asked, operands, is_causal)
    if attention_sink is not None or cu_window_seqlens is not None:
        rule = "attention sinks and windows by sequence are not simulated"
        fail(asked, rule, "is_causal or attn_mask")
    (_, heads, _, size), groups = input_tensor_q.shard_shape, input_tensor_k.shard_shape[1]
    lead = len(like.grid.shape)

    def grouped(x: Array, n: int) -> Array:
        """[..., heads, s, d] as [..., key heads, n, s, d]: a key head repeats over its query
        heads.
        """
        front, (many, *back) = x.shape[: lead + 1], x.shape[lead + 1 :]
        return x.reshape((*front, many // n, n, *back))

    shared = heads // groups
    q, k, v = grouped(arrays[0], shared), grouped(arrays[1], 1), grouped(arrays[2], 1)
    mask = (
        None
        if attn_mask is None
        else grouped(arrays[3], shared if attn_mask.shard_shape[1] == heads else 1)
    )
    values = _attend(
        q,
        k,
        v,
        mask,
        F(1 / math.sqrt(size) if scale is None else scale),
        is_causal,
        sliding_window_size or 0,
    )
    values = values.reshape((*values.shape[: lead + 1], heads, *values.shape[-2:]))
    if output_concat_heads:
        joined = values.swapaxes(-3, -2)
        values = joined.reshape((*joined.shape[: lead + 1], 1, joined.shape[-3], heads * size))
    return result(like, values, dtype=input_tensor_q.dtype, topology=topology)


def _check_attention(asked: object, operands: tuple[Tensor, ...], is_causal: bool) -> None:
    q, k, v, *masks = operands
    for tensor in (q, k, v):
        if tensor.layout is not Layout.TILE:
            rule = "Inputs to SDPA must be tilized"
            fail(asked, rule, "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
        if tensor.dtype not in (DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.BFLOAT4_B) and (
            is_strict() or tensor.dtype is not DataType.FLOAT32
        ):
            rule = "Data type of input tensor must be BFLOAT16, BFLOAT8_B, or BFLOAT4_B and is"
            rule += f" DataType::{tensor.dtype.name}"
            fail(asked, rule, "ttnn.typecast(tensor, ttnn.bfloat16)")
        if tensor.shard_shape[3] % 32:
            rule = "Padding is not supported on the head_dim dimension, got"
            rule += f" {tensor.shard_shape[3]}"
            fail(asked, rule, "a head size that is a multiple of 32")
    (batch, heads, queries, _), (_, groups, keys, _) = q.shard_shape, k.shard_shape
    if is_causal and queries != keys:
        rule = "Causal SDPA requires Q and K to have the same sequence length. Got Q:"
        rule += f" {queries}, K: {keys}"
        fail(asked, rule, "is_causal=False with a mask")
    for what, place in (("batch", 0), ("hidden dim", 3)):
        if not q.shard_shape[place] == k.shard_shape[place] == v.shard_shape[place]:
            rule = f"K and V {what} must match. Got K: {k.shard_shape[place]}, V:"
            rule += f" {v.shard_shape[place]}"
            fail(asked, rule, f"Q has {q.shard_shape[place]}")
    if k.shard_shape != v.shard_shape:
        rule = f"K and V must have one shape. Got K: {list(k.shard_shape)}, V:"
        rule += f" {list(v.shard_shape)}"
        fail(asked, rule)
    if not groups or heads < groups or heads % groups:
        rule = "Q num_heads must be >= K num_heads and divisible by K num_heads, and K"
        rule += " num_heads must be greater than 0"
        rule = f"{rule}. Got Q: {heads}, K: {groups}"
        fail(asked, rule, "shard query and key heads over the same chips")
    if not masks:
        return
    if is_causal:
        rule = "is_causal and attn_mask cannot both be present. Got is_causal: true, attn_mask:"
        rule += " true"
        fail(asked, rule, "is_causal=False, or no mask")
    mask = masks[0].shard_shape
    if len(mask) != 4 or mask[0] not in (1, batch):
        fail(asked, f"Mask batch dim must either be 1 or match Q batch, got {list(mask)}")
    if mask[1] not in (1, heads):
        rule = "Mask num_heads must either be 1 (to be broadcasted across all heads) or must"
        rule += f" match Q heads dimension, got {mask[1]} and {heads}"
        fail(asked, rule)
    if mask[2] != queries:
        rule = f"Mask sequence length must match Q sequence length, got {mask[2]} and {queries}"
        fail(asked, rule)
    if mask[3] != keys:
        fail(asked, f"Mask sequence length must match K sequence length, got {mask[3]} and {keys}")


def _hidden(low: int, high: int, first: int, last: int, causal: bool, window: int) -> Array | None:
    """Which of the keys first..last the queries low..high must not see; None where they see all."""
    behind = np.arange(low, high)[:, None] - np.arange(first, last)[None, :]
    if not causal:
        return np.abs(behind) > window // 2 if window else None
    return (behind < 0) | (behind >= window) if window else behind < 0


def _attend(
    q: Array, k: Array, v: Array, mask: Array | None, scale: Any, causal: bool, window: int
) -> Array:
    """Attention of float32 values [..., s, d].

    Keys that no query of a block sees are not scored.
    """
    queries, keys = q.shape[-2], k.shape[-2]
    batch = np.broadcast_shapes(
        q.shape[:-2], k.shape[:-2], v.shape[:-2], () if mask is None else mask.shape[:-2]
    )
    if queries * keys < LOOP_PAYS_FROM:
        scores = np.matmul(q * scale, k.swapaxes(-1, -2))
        hidden = _hidden(0, queries, 0, keys, causal, window)
        if hidden is not None:
            scores = np.where(hidden, NEVER, scores)
        return np.matmul(softmax_of(scores if mask is None else scores + mask), v)
    out = blocks.empty(batch + (queries, v.shape[-1]))
    q, k, v = (np.broadcast_to(x, batch + x.shape[-2:]) for x in (q, k, v))
    mask = None if mask is None else np.broadcast_to(mask, batch + mask.shape[-2:])
    jobs = []
    for low in range(0, queries, BLOCK_ROWS):
        high = min(low + BLOCK_ROWS, queries)
        first, last = (max(0, low - window + 1) if window else 0, high) if causal else (0, keys)
        # so many of the keys do all queries of the block see
        seen = low - first if causal and not window else 0
        hidden = _hidden(low, high, first + seen, last, causal, window)
        rows, columns = slice(low, high), slice(first, last)
        for i in np.ndindex(batch):
            added = None if mask is None else mask[i][rows, columns]
            jobs.append(
                partial(
                    _attend_rows,
                    q[i][rows],
                    k[i][columns],
                    v[i][columns],
                    scale,
                    added,
                    hidden,
                    seen,
                    out[i][rows],
                )
            )
    blocks.run(jobs, pays=out.size * keys >= THREADS_PAY_FROM)
    return out


def _attend_rows(
    q: Array,
    k: Array,
    v: Array,
    scale: Any,
    mask: Array | None,
    hidden: Array | None,
    seen: int,
    out: Array,
) -> None:
    """The attention of some queries of one head, into `out`.

    `hidden` begins at the key number `seen`.
    """
    scores = (q * scale) @ k.T
    if mask is not None:
        scores += mask
    if hidden is not None:
        np.copyto(scores[:, seen:], NEVER, where=hidden)
    scores -= np.maximum.reduce(scores, -1, keepdims=True)
    np.exp(scores, out=scores)
    np.matmul(scores, v, out=out)
    out /= np.add.reduce(scores, -1, keepdims=True)

"""Attention: heads made and joined, scores, rotary positions, on each chip's own heads and batch."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ttkit.dialect import is_strict
from ttkit.errors import fail
from ttkit.sim import recycle
from ttkit.sim.arguments import describe
from ttkit.sim.binary import aligned
from ttkit.sim.dispatch import common_grid, merged, on_mesh, operation, result
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.matmul import THREADS_PAY_FROM, product
from ttkit.sim.nn import scaled_softmax, softmax_of
from ttkit.sim.tensor import Tensor
from ttkit.sim.threads import together

F = np.float32
Array = np.ndarray
NEVER = F(-1e9)  # stands for a score that must not count
BLOCK_ROWS = 256  # queries that are scored at a time
LOOP_PAYS_FROM = 1 << 14  # scores of one head from which heads one by one beat all heads at once


def _four(name: str, *tensors: Tensor) -> tuple[Tensor, list[Array], Any]:
    on_mesh(name, *tensors, letters="QKVMN")
    asked = describe(name, tensors)
    for tensor in tensors[:3]:
        if len(tensor.shard_shape) != 4:
            rule = f"inputs must have rank 4, got {list(tensor.shard_shape)}: ShapeBase[] index out of range. 3 not in [-4, {len(tensor.shard_shape)})"
            fail(asked, rule, "[batch, heads, sequence, head size]")
    like, arrays = common_grid(tensors, lambda: asked)
    return like, arrays, merged(like.mesh.grid, *(t.topology for t in tensors))


@operation("transformer.scaled_dot_product_attention")
def scaled_dot_product_attention(
    input_tensor_q: Tensor, input_tensor_k: Tensor, input_tensor_v: Tensor, *, attn_mask: Tensor | None = None, is_causal: bool = True,
    scale: float | None = None, sliding_window_size: int | None = None, memory_config: Any = None, program_config: Any = None,
    compute_kernel_config: Any = None, attention_sink: Any = None, cu_window_seqlens: Any = None, windowed_q_token_offset: int = 0,
    windowed_q_token_offset_tensor: Any = None, output_concat_heads: bool = False, attn_mask_block_map: Any = None,
) -> Tensor:  # fmt: skip
    """softmax(q k^T * scale + mask) v for each head; fewer key heads are shared by groups of query heads.

    Args:
        input_tensor_q: [batch, heads, queries, size].
        input_tensor_k, input_tensor_v: [batch, key heads, keys, size].
        attn_mask: [batch or 1, heads or 1, queries, keys], added to the scores; only without `is_causal`.
        scale: 1 / sqrt(size) when left out.

        sliding_window_size: causal, only the last so many keys count; else a window of that size around the query.
        output_concat_heads: give [batch, 1, queries, heads * size].

    Raises:
        TTKitError: ranks, sizes or head counts that do not fit; row-major; float32 in the strict dialect, as on a card; a mask with `is_causal`.
    """
    name = "scaled_dot_product_attention"
    operands = (input_tensor_q, input_tensor_k, input_tensor_v, *([] if attn_mask is None else [attn_mask]))
    like, arrays, topology = _four(name, *operands)
    asked = describe(name, operands, {"is_causal": is_causal})
    _check_attention(asked, operands, is_causal, sliding_window_size)
    if attention_sink is not None or cu_window_seqlens is not None:
        fail(asked, "attention sinks and windows by sequence are not simulated", "is_causal or attn_mask")
    (_, heads, _, size), groups = input_tensor_q.shard_shape, input_tensor_k.shard_shape[1]
    lead = len(like.grid.shape)

    def grouped(x: Array, n: int) -> Array:
        """[..., heads, s, d] as [..., key heads, n, s, d], so that a key head repeats over its query heads."""
        front, (many, *back) = x.shape[: lead + 1], x.shape[lead + 1 :]
        return x.reshape((*front, many // n, n, *back))

    shared = heads // groups
    q, k, v = grouped(arrays[0], shared), grouped(arrays[1], 1), grouped(arrays[2], 1)
    mask = None if attn_mask is None else grouped(arrays[3], shared if attn_mask.shard_shape[1] == heads else 1)
    values = _attend(q, k, v, mask, F(1 / math.sqrt(size) if scale is None else scale), is_causal, sliding_window_size or 0)
    values = values.reshape((*values.shape[: lead + 1], heads, *values.shape[-2:]))
    if output_concat_heads:
        joined = values.swapaxes(-3, -2)
        values = joined.reshape((*joined.shape[: lead + 1], 1, joined.shape[-3], heads * size))
    return result(like, values, dtype=input_tensor_q.dtype, topology=topology, memory_config=memory_config)


def _check_attention(asked: object, operands: tuple[Tensor, ...], is_causal: bool, window: int | None) -> None:
    q, k, v, *masks = operands
    for tensor in (q, k, v):
        if tensor.layout is not Layout.TILE:
            fail(asked, "Inputs to SDPA must be tilized", "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
        if tensor.dtype not in (DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.BFLOAT4_B) and (is_strict() or tensor.dtype is not DataType.FLOAT32):
            rule = f"Data type of input tensor must be BFLOAT16, BFLOAT8_B, or BFLOAT4_B and is DataType::{tensor.dtype.name}"
            fail(asked, rule, "ttnn.typecast(tensor, ttnn.bfloat16)")
        if tensor.shard_shape[3] % 32:
            fail(asked, f"Padding is not supported on the head_dim dimension, got {tensor.shard_shape[3]}", "a head size that is a multiple of 32")
    (batch, heads, queries, _), (_, groups, keys, _) = q.shard_shape, k.shard_shape
    if is_causal and queries != keys:
        fail(asked, f"Causal SDPA requires Q and K to have the same sequence length. Got Q: {queries}, K: {keys}", "is_causal=False with a mask")
    for what, place in (("batch", 0), ("hidden dim", 3)):
        if not q.shard_shape[place] == k.shard_shape[place] == v.shard_shape[place]:
            fail(asked, f"K and V {what} must match. Got K: {k.shard_shape[place]}, V: {v.shard_shape[place]}", f"Q has {q.shard_shape[place]}")
    if k.shard_shape != v.shard_shape:
        fail(asked, f"K and V must have one shape. Got K: {list(k.shard_shape)}, V: {list(v.shard_shape)}")
    if not groups or heads < groups or heads % groups:
        rule = "Q num_heads must be >= K num_heads and divisible by K num_heads, and K num_heads must be greater than 0"
        fail(asked, f"{rule}. Got Q: {heads}, K: {groups}", "shard query and key heads over the same chips")
    if not masks:
        return
    if is_causal:
        fail(asked, "is_causal and attn_mask cannot both be present. Got is_causal: true, attn_mask: true", "is_causal=False, or no mask")
    mask = masks[0].shard_shape
    if len(mask) != 4 or mask[0] not in (1, batch):
        fail(asked, f"Mask batch dim must either be 1 or match Q batch, got {list(mask)}")
    if mask[1] not in (1, heads):
        fail(asked, f"Mask num_heads must either be 1 (to be broadcasted across all heads) or must match Q heads dimension, got {mask[1]} and {heads}")
    if mask[2] != queries:
        fail(asked, f"Mask sequence length must match Q sequence length, got {mask[2]} and {queries}")
    if mask[3] != keys:
        fail(asked, f"Mask sequence length must match K sequence length, got {mask[3]} and {keys}")


def _hidden(low: int, high: int, first: int, last: int, causal: bool, window: int) -> Array | None:
    """Which of the keys first..last the queries low..high must not see; None where they see all."""
    behind = np.arange(low, high)[:, None] - np.arange(first, last)[None, :]
    if not causal:
        return np.abs(behind) > window // 2 if window else None
    return (behind < 0) | (behind >= window) if window else behind < 0


def _attend(q: Array, k: Array, v: Array, mask: Array | None, scale: Any, causal: bool, window: int) -> Array:
    """Attention of float32 values [..., s, d]; the axes before them repeat as NumPy's do. Keys that none of a block's queries see are not scored."""
    queries, keys = q.shape[-2], k.shape[-2]
    batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2], () if mask is None else mask.shape[:-2])
    if queries * keys < LOOP_PAYS_FROM:
        scores = np.matmul(q * scale, k.swapaxes(-1, -2))
        hidden = _hidden(0, queries, 0, keys, causal, window)
        if hidden is not None:
            scores = np.where(hidden, NEVER, scores)
        return np.matmul(softmax_of(scores if mask is None else scores + mask), v)
    out = recycle.empty(batch + (queries, v.shape[-1]))
    q, k, v = (np.broadcast_to(x, batch + x.shape[-2:]) for x in (q, k, v))
    mask = None if mask is None else np.broadcast_to(mask, batch + mask.shape[-2:])
    jobs = []
    for low in range(0, queries, BLOCK_ROWS):
        high = min(low + BLOCK_ROWS, queries)
        first, last = (max(0, low - window + 1) if window else 0, high) if causal else (0, keys)
        seen = low - first if causal and not window else 0  # so many of the keys do all queries of the block see
        hidden = _hidden(low, high, first + seen, last, causal, window)
        rows, columns = slice(low, high), slice(first, last)
        for i in np.ndindex(batch):
            added = None if mask is None else mask[i][rows, columns]
            jobs.append(partial(_attend_rows, q[i][rows], k[i][columns], v[i][columns], scale, added, hidden, seen, out[i][rows]))
    together(jobs, pays=out.size * keys >= THREADS_PAY_FROM)
    return out


def _attend_rows(q: Array, k: Array, v: Array, scale: Any, mask: Array | None, hidden: Array | None, seen: int, out: Array) -> None:
    """The attention of some queries of one head, into `out`; `hidden` begins at the key number `seen`."""
    scores = (q * scale) @ k.T
    if mask is not None:
        scores += mask
    if hidden is not None:
        np.copyto(scores[:, seen:], NEVER, where=hidden)
    scores -= np.maximum.reduce(scores, -1, keepdims=True)
    np.exp(scores, out=scores)
    np.matmul(scores, v, out=out)
    out /= np.add.reduce(scores, -1, keepdims=True)


def _heads(array: Array, lead: int, heads: int) -> Array:
    """[..., s, h * d] as [..., h, s, d]."""
    *front, width = array.shape
    return array.reshape([*front, heads, width // heads]).swapaxes(-3, -2)


def _qkv(name: str, tensor: Tensor, kv: Tensor | None, heads: int, groups: int | None, transpose: bool, memory_config: Any) -> tuple[Tensor, Tensor, Tensor]:
    operands = (tensor,) if kv is None else (tensor, kv)
    on_mesh(name, *operands)
    asked = describe(name, operands, {"num_heads": heads, "num_kv_heads": groups})
    groups = groups or heads
    like, arrays = common_grid(operands, lambda: asked)
    lead = len(like.grid.shape)
    width = tensor.shard_shape[-1]
    if kv is None:
        if width % (heads + 2 * groups):
            fail(
                asked,
                f"Unsupported input shape: the last dimension {width} is not a multiple of {heads} query and 2 x {groups} key and value heads",
                "[..., (heads + 2 * key heads) * size]",
            )
        size = width // (heads + 2 * groups)
        parts = np.split(arrays[0], [heads * size, (heads + groups) * size], -1)
    else:
        if width % heads or kv.shard_shape[-1] % (2 * groups):
            fail(asked, f"{width} is not a multiple of {heads} heads, or {kv.shard_shape[-1]} not of 2 x {groups}")
        parts = [arrays[0], *np.split(arrays[1], 2, -1)]
    if len(tensor.shard_shape) == 4:  # [batch, 1, s, width]
        parts = [p.reshape(p.shape[:lead] + (p.shape[lead], p.shape[-2], p.shape[-1])) for p in parts]
    q, k, v = (_heads(p, lead, n) for p, n in zip(parts, (heads, groups, groups), strict=True))
    if transpose:
        k = k.swapaxes(-1, -2)
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    made = [result(like, x, dtype=tensor.dtype, topology=topology, memory_config=memory_config, owned=False) for x in (q, k, v)]
    return made[0], made[1], made[2]


@operation("transformer.split_query_key_value_and_split_heads")
def split_query_key_value_and_split_heads(
    input_tensor: Tensor, kv_input_tensor: Tensor | None = None, *, num_heads: int, num_kv_heads: int | None = None, transpose_key: bool = True,
    memory_config: Any = None, use_falcon7b_backend: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """[batch, s, 3 * heads * size] as query and value [batch, heads, s, size] and key, by default transposed, [batch, heads, size, s]."""
    name = "split_query_key_value_and_split_heads"
    if len(input_tensor.shard_shape) != 3:
        rule = f"Invalid input tensor: expected 3 dimensions, but found {len(input_tensor.shard_shape)}."
        fail(describe(name, (input_tensor,)), rule, "[batch, sequence, width]")
    parts = num_heads + 2 * (num_kv_heads or num_heads) if kv_input_tensor is None else num_heads
    head_size = input_tensor.shard_shape[-1] // parts
    if head_size % 32:
        rule = f"Invalid head size: {head_size}. The head size must be a multiple of the tile width (32)."
        fail(describe(name, (input_tensor,), {"num_heads": num_heads}), rule, "adjust the dimensions, or shard by whole heads")
    return _qkv(name, input_tensor, kv_input_tensor, num_heads, num_kv_heads, transpose_key, memory_config)


@operation("experimental.nlp_create_qkv_heads")
def nlp_create_qkv_heads(
    input: Tensor, input_kv: Tensor | None = None, *, num_heads: int, num_kv_heads: int | None = None, transpose_k_heads: bool = True,
    kv_tied: bool = False, memory_config: Any = None, output_tensors: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """[batch, 1, s, (heads + 2 * key heads) * size] as query, key and value [batch, heads, s, size]; the key by default as [..., size, s]."""
    name = "nlp_create_qkv_heads"
    if len(input.shard_shape) != 4 or input.shard_shape[1] != 1:
        rule = f"Unsupported input shape {list(input.shard_shape)}: the input sequence length (dimension 1) is not equal to 1"
        fail(describe(name, (input,)), rule, "[batch, 1, sequence, width]")
    parts = num_heads + 2 * (num_kv_heads or num_heads) if input_kv is None else num_heads
    if input.shard_shape[-1] % parts == 0 and input.shard_shape[-1] // parts % 32:
        rule = f"heads of size {input.shard_shape[-1] // parts}, which ttnn pads to a multiple of 32, are not simulated"
        fail(describe(name, (input,), {"num_heads": num_heads}), rule, "a head size that is a multiple of 32, or shard by whole heads")
    return _qkv(name, input, input_kv, num_heads, num_kv_heads, transpose_k_heads, memory_config)


def _join(name: str, tensor: Tensor, keep_one: bool, memory_config: Any) -> Tensor:
    on_mesh(name, tensor)
    if len(tensor.shard_shape) != 4:
        fail(describe(name, (tensor,)), f"Input tensor must have rank 4. Shape: {list(tensor.shard_shape)}", "[batch, heads, sequence, size]")
    if not keep_one and tensor.shard_shape[-1] % 32:
        rule = f"Head size must be a multiple of 32 but was found to be {tensor.shard_shape[-1]}."
        fail(describe(name, (tensor,)), rule, "ttnn.experimental.nlp_concat_heads, or a padded head size")
    batch, heads, length, size = tensor.shard_shape
    lead = tensor.array.shape[: len(tensor.grid.shape)]
    front = (batch, 1, length) if keep_one else (batch, length)
    return result(tensor, tensor.array.swapaxes(-3, -2).reshape((*lead, *front, heads * size)), memory_config=memory_config)


@operation("transformer.concatenate_heads")
def concatenate_heads(input_tensor: Tensor, *, memory_config: Any = None) -> Tensor:
    """[batch, heads, s, size] as [batch, s, heads * size]."""
    return _join("concatenate_heads", input_tensor, False, memory_config)


@operation("experimental.nlp_concat_heads")
def nlp_concat_heads(input_tensor: Tensor, *, memory_config: Any = None) -> Tensor:
    """[batch, heads, s, size] as [batch, 1, s, heads * size]."""
    return _join("nlp_concat_heads", input_tensor, True, memory_config)


def _attention_softmax(name: str, tensor: Tensor, head_size: int | None, mask: Tensor | None, memory_config: Any, output: Tensor | None) -> Tensor:
    scale = 1 / math.sqrt(head_size) if head_size else 1.0
    if mask is not None:
        return scaled_softmax(name, tensor, scale, mask, memory_config, output)
    if output is not None:
        rule = "Cannot apply divide by sqrt(head_size) using in-place version when attention_mask is not set."
        fail(describe(name, (tensor,)), rule, "ttnn.transformer.attention_softmax")
    on_mesh(name, tensor)
    return result(tensor, softmax_of(tensor.array * F(scale)), memory_config=memory_config)


@operation("transformer.attention_softmax")
def attention_softmax(
    tensor: Tensor, *, head_size: int | None = None, attention_mask: Tensor | None = None, program_config: Any = None, causal_mask: bool | None = False,
    memory_config: Any = None,
) -> Tensor:  # fmt: skip
    """softmax(x / sqrt(head_size) + mask) along the last dimension.

    Args:
        attention_mask: [batch, 1, s or 1, keys].
        causal_mask: says that the mask is a causal one; it does not make one.
    """
    return _attention_softmax("attention_softmax", tensor, head_size, attention_mask, memory_config, None)


@operation("transformer.attention_softmax_")
def attention_softmax_(
    tensor: Tensor, *, head_size: int | None = None, attention_mask: Tensor | None = None, program_config: Any = None, causal_mask: bool | None = False,
    memory_config: Any = None,
) -> Tensor:  # fmt: skip
    """`attention_softmax` whose result replaces the tensor's values."""
    return _attention_softmax("attention_softmax_", tensor, head_size, attention_mask, memory_config, tensor)


@operation("experimental.rotary_embedding")
def rotary_embedding(
    input_tensor: Tensor, cos_cache: Tensor, sin_cache: Tensor, token_index: int | None = None, *, memory_config: Any = None, compute_kernel_config: Any = None
) -> Tensor:
    """Positions turned into angles: x cos + rotate_half(x) sin, the halves of the last dimension paired.

    Args:
        input_tensor: [batch, heads, s, size].
        cos_cache, sin_cache: [1, 1, positions, size].
        token_index: decode one token: row of the caches for all.

    Returns:
        [batch, heads, s, size] with s rounded up to a multiple of 32, as ttnn gives it; the added rows are zero.
    """
    operands = (input_tensor, cos_cache, sin_cache)
    on_mesh("rotary_embedding", *operands)
    asked = describe("rotary_embedding", operands, {"token_index": token_index})
    length, size, cache = input_tensor.shard_shape[-2], input_tensor.shard_shape[-1], cos_cache.shard_shape
    width = input_tensor.padded[-1]
    if width != 32 and width % 64:
        rule = f"Input X dimension ({width}) must be either 32 (single tile) or divisible by 64 (rotate_half midpoint must align with a tile boundary)."
        fail(asked, rule, "another head size, or shard by whole heads")
    if size != width:
        fail(asked, f"the halves of a padded last dimension ({size} in {width}) are not simulated", "a head size without padding")
    if cache != sin_cache.shard_shape:
        fail(asked, f"Cosine and Sine cache dimensions must match. Cos cache dimensions: {list(cache)}, Sin cache dimensions: {list(sin_cache.shard_shape)}.")
    if len(cache) != 4 or cache[:2] != (1, 1) or cos_cache.padded[-1] != width:
        fail(asked, f"Cosine cache dimensions must match input dimensions. Expected (1, 1, {width}), but got {list(cache)}.", "[1, 1, positions, size]")
    if token_index is not None and cache[2] <= token_index:
        fail(asked, f"Cosine cache must cover the token index. Token index: {token_index}, Cos cache sequence length: {cache[2]}.")
    if token_index is None and cache[2] < length:
        rule = f"Cosine cache must cover the input sequence length. Input sequence length: {length}, Cos cache sequence length: {cache[2]}."
        fail(asked, rule, "a longer cache, or the sequence sharded")
    like, (x, cos, sin) = aligned(operands, lambda: asked)
    rows = slice(0, length) if token_index is None else slice(token_index, token_index + 1)
    turned = np.concatenate([-x[..., size // 2 :], x[..., : size // 2]], -1)
    values = x * cos[..., rows, :] + turned * sin[..., rows, :]
    if length % 32:  # ttnn makes whole tiles of it
        values = np.concatenate([values, np.zeros(values.shape[:-2] + (-length % 32, size), F)], -2)
    values = values.reshape(values.shape[: len(like.grid.shape)] + input_tensor.shard_shape[:-2] + values.shape[-2:])
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    return result(like, values, dtype=input_tensor.dtype, topology=topology, memory_config=memory_config)


@operation("experimental.rotary_embedding_llama")
def rotary_embedding_llama(
    input_tensor: Tensor, cos_cache: Tensor, sin_cache: Tensor, trans_mat: Tensor, *, is_decode_mode: bool = False, memory_config: Any = None,
    compute_kernel_config: Any = None,
) -> Tensor:  # fmt: skip
    """Positions turned into angles: x cos + (x T) sin, neighbours of the last dimension paired by the 32 x 32 matrix T.

    Args:
        input_tensor: [batch, heads, s, size]; [1, batch, heads, size] to decode.
        cos_cache, sin_cache: [1, 1 or heads, positions, size]; [1, batch, 1, size] to decode.
        trans_mat: [1, 1, 32, 32].
    """
    operands = (input_tensor, cos_cache, sin_cache, trans_mat)
    like, (x, cos, sin, matrix), topology = _four("rotary_embedding_llama", *operands)
    asked = describe("rotary_embedding_llama", operands)
    size, length, lead = input_tensor.shard_shape[-1], input_tensor.shard_shape[-2], len(like.grid.shape)
    if any(t.dtype is not DataType.BFLOAT16 for t in operands):
        fail(asked, "All input tensors must have dtype = bfloat16", "ttnn.typecast")
    if trans_mat.shard_shape[-2:] != (32, 32):
        fail(asked, f"Transformation matrix must have 4th dim equal to TILE_WIDTH, and 3rd too, got {list(trans_mat.shard_shape)}", "[1, 1, 32, 32]")
    if size % 32:
        fail(asked, f"the head size {size} must be a multiple of 32")
    if cos_cache.shard_shape != sin_cache.shard_shape or cos_cache.shard_shape[-1] != size:
        fail(asked, f"the caches must be [1, 1, positions, {size}], got {list(cos_cache.shard_shape)} and {list(sin_cache.shard_shape)}")
    if not is_decode_mode and cos_cache.shard_shape[-2] < length:
        fail(asked, f"the caches have {cos_cache.shard_shape[-2]} positions, the input {length}", "longer caches, or the sequence sharded")
    tiles = x.reshape(x.shape[:-1] + (size // 32, 32))
    matrix = matrix.reshape(matrix.shape[:lead] + (1,) * (tiles.ndim - lead - 2) + (32, 32))
    turned = product(tiles, matrix, lead)
    turned = turned.reshape(turned.shape[:-2] + (size,))
    rows = slice(0, 1) if is_decode_mode else slice(0, length)
    return result(like, x * cos[..., rows, :] + turned * sin[..., rows, :], dtype=input_tensor.dtype, topology=topology, memory_config=memory_config)

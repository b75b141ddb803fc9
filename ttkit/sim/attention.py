"""Attention: heads made and joined, scores, rotary positions, on each chip's own heads and batch."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import recycle
from ttkit.sim.dispatch import common_grid, describe, merged, on_mesh, operation, result
from ttkit.sim.matmul import THREADS_PAY_FROM, product
from ttkit.sim.nn import softmax_of
from ttkit.sim.tensor import Tensor
from ttkit.sim.threads import together

F = np.float32
Array = np.ndarray
QUERIES = 256  # of one head at a time: their scores stay in the cache
LATER = np.triu(np.ones((QUERIES, QUERIES), bool), 1)
NEVER = F(-1e9)  # added to a score that must not count


def _four(name: str, *tensors: Tensor) -> tuple[Tensor, list[Array], Any]:
    on_mesh(name, *tensors, letters="QKVMN")
    asked = describe(name, tensors)
    for tensor in tensors[:3]:
        if len(tensor.shard_shape) != 4:
            fail(asked, f"inputs must have rank 4, got {list(tensor.shard_shape)}", "[batch, heads, sequence, head size]")
    like, arrays = common_grid(tensors, lambda: asked)
    return like, arrays, merged(like.mesh.grid, *(t.topology for t in tensors))


def _float(array: Array) -> Array:
    return array.astype(F, copy=False)


def _attend(q: Array, k: Array, v: Array, out: Array, scale: Any, causal: bool, window: int, mask: Array | None) -> None:
    """One head, a block of queries at a time; keys that no query of the block may see are not touched."""
    keys = len(k)
    for start in range(0, len(q), QUERIES):
        end = min(start + QUERIES, len(q))
        first, last = max(0, start - window + 1) if window else 0, min(end, keys) if causal else keys
        scores = (q[start:end] * scale) @ k[first:last].T
        if causal and not window:
            scores[:, start:][LATER[: end - start, : end - start]] = NEVER
        elif window:
            behind = np.arange(start, end)[:, None] - np.arange(first, last)[None, :]
            hidden = behind < 0 if causal else np.zeros_like(behind, bool)
            scores[hidden | (behind >= window)] = NEVER
        if mask is not None:
            scores += mask[start:end, first:last]
        scores -= np.maximum.reduce(scores, -1, keepdims=True)
        np.exp(scores, out=scores)
        np.matmul(scores, v[first:last], out=out[start:end])
        out[start:end] *= np.reciprocal(np.add.reduce(scores, -1, keepdims=True))


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
        attn_mask: added to the scores; only without `is_causal`.
        scale: 1 / sqrt(size) when left out.

    Raises:
        TTKitError: ranks, sizes or head counts that do not fit; a mask together with `is_causal`.
    """
    name = "scaled_dot_product_attention"
    operands = (input_tensor_q, input_tensor_k, input_tensor_v, *([] if attn_mask is None else [attn_mask]))
    like, arrays, topology = _four(name, *operands)
    asked = describe(name, operands)
    (_, heads, queries, size), (_, groups, keys, other) = input_tensor_q.shard_shape, input_tensor_k.shard_shape
    if attn_mask is not None and is_causal:
        fail(asked, "attn_mask must be None when is_causal is true", "is_causal=False, or no mask")
    if size != other or heads % groups or input_tensor_v.shard_shape != input_tensor_k.shard_shape:
        fail(
            asked,
            f"{heads} query heads of size {size} cannot share {groups} key heads of size {other}",
            "equal sizes, and key heads that divide the query heads",
        )
    if is_causal and queries != keys:
        fail(asked, f"is_causal needs as many keys as queries: {keys} and {queries}", "is_causal=False with a mask")
    if attention_sink is not None or cu_window_seqlens is not None or output_concat_heads:
        fail(asked, "attention sinks, windows by sequence and joined heads are not simulated", "ttnn.transformer.concatenate_heads after it")
    lead = len(like.grid.shape)
    q, k, v = (_float(x) for x in arrays[:3])
    factor = F(1 / math.sqrt(size) if scale is None else scale)
    batch = np.broadcast_shapes(*(x.shape[: lead + 1] for x in (q, k, v, *arrays[3:])))
    mask = None if attn_mask is None else np.broadcast_to(_float(arrays[3]), batch + (heads, queries, keys))
    q, k, v = (np.broadcast_to(x, batch + x.shape[lead + 1 :]) for x in (q, k, v))
    values = recycle.empty(batch + (heads, queries, size))
    jobs = (
        partial(
            _attend, q[i], k[i[:-1]][i[-1] * groups // heads], v[i[:-1]][i[-1] * groups // heads], values[i], factor, is_causal, sliding_window_size or 0,
            None if mask is None else mask[i],
        )
        for i in np.ndindex(batch + (heads,))
    )  # fmt: skip
    together(jobs, pays=values.size * keys >= THREADS_PAY_FROM)
    return result(like, values, dtype=input_tensor_q.dtype, topology=topology, memory_config=memory_config)


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
                f"the last dimension {width} is not a multiple of {heads} query and 2 x {groups} key and value heads",
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
        fail(describe(name, (input_tensor,)), f"the input must have rank 3, got {list(input_tensor.shard_shape)}", "[batch, sequence, width]")
    return _qkv(name, input_tensor, kv_input_tensor, num_heads, num_kv_heads, transpose_key, memory_config)


@operation("experimental.nlp_create_qkv_heads")
def nlp_create_qkv_heads(
    input: Tensor, input_kv: Tensor | None = None, *, num_heads: int, num_kv_heads: int | None = None, transpose_k_heads: bool = True,
    kv_tied: bool = False, memory_config: Any = None, output_tensors: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """[batch, 1, s, (heads + 2 * key heads) * size] as query, key and value of [batch, heads, s, size] each."""
    name = "nlp_create_qkv_heads"
    if len(input.shard_shape) != 4 or input.shard_shape[1] != 1:
        fail(describe(name, (input,)), f"the input must be [batch, 1, sequence, width], got {list(input.shard_shape)}")
    return _qkv(name, input, input_kv, num_heads, num_kv_heads, transpose_k_heads, memory_config)


def _join(name: str, tensor: Tensor, keep_one: bool, memory_config: Any) -> Tensor:
    on_mesh(name, tensor)
    if len(tensor.shard_shape) != 4:
        fail(describe(name, (tensor,)), f"the input must have rank 4, got {list(tensor.shard_shape)}", "[batch, heads, sequence, size]")
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


def _attention_softmax(
    name: str, tensor: Tensor, head_size: int | None, mask: Tensor | None, causal: bool | None, memory_config: Any, output: Tensor | None
) -> Tensor:
    operands = (tensor,) if mask is None else (tensor, mask)
    on_mesh(name, *operands)
    like, arrays = common_grid(operands, lambda: describe(name, operands))
    scores = arrays[0] * F(1 / math.sqrt(head_size)) if head_size else arrays[0]
    if mask is not None:
        scores = scores + arrays[1]
    if causal and mask is None:
        scores = np.where(np.triu(np.ones(tensor.shard_shape[-2:], bool), 1), NEVER, scores)
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    return result(like, softmax_of(scores), dtype=tensor.dtype, topology=topology, memory_config=memory_config, output=output)


@operation("transformer.attention_softmax")
def attention_softmax(
    tensor: Tensor, *, head_size: int | None = None, attention_mask: Tensor | None = None, program_config: Any = None, causal_mask: bool | None = False,
    memory_config: Any = None,
) -> Tensor:  # fmt: skip
    """softmax(x / sqrt(head_size) + mask) along the last dimension."""
    return _attention_softmax("attention_softmax", tensor, head_size, attention_mask, causal_mask, memory_config, None)


@operation("transformer.attention_softmax_")
def attention_softmax_(
    tensor: Tensor, *, head_size: int | None = None, attention_mask: Tensor | None = None, program_config: Any = None, causal_mask: bool | None = False,
    memory_config: Any = None,
) -> Tensor:  # fmt: skip
    """`attention_softmax` whose result replaces the tensor's values."""
    return _attention_softmax("attention_softmax_", tensor, head_size, attention_mask, causal_mask, memory_config, tensor)


@operation("experimental.rotary_embedding")
def rotary_embedding(
    input_tensor: Tensor, cos_cache: Tensor, sin_cache: Tensor, token_index: int | None = None, *, memory_config: Any = None, compute_kernel_config: Any = None
) -> Tensor:
    """Positions turned into angles: x cos + rotate_half(x) sin, the halves of the last dimension paired.

    Args:
        input_tensor: [batch, heads, s, size].
        cos_cache, sin_cache: [1, 1, positions, size].
        token_index: decode one token: row of the caches for all.
    """
    like, (x, cos, sin), topology = _four("rotary_embedding", input_tensor, cos_cache, sin_cache)
    length = input_tensor.shard_shape[-2]
    if cos_cache.shard_shape != sin_cache.shard_shape or cos_cache.shard_shape[-1] != input_tensor.shard_shape[-1] or cos_cache.shard_shape[-2] < length:
        rule = (
            f"the caches must be [1, 1, at least {length}, {input_tensor.shard_shape[-1]}], got {list(cos_cache.shard_shape)} and {list(sin_cache.shard_shape)}"
        )
        fail(describe("rotary_embedding", (input_tensor,)), rule)
    rows = slice(0, length) if token_index is None else slice(token_index, token_index + 1)
    half = input_tensor.shard_shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], -1)
    return result(like, x * cos[..., rows, :] + turned * sin[..., rows, :], dtype=input_tensor.dtype, topology=topology, memory_config=memory_config)


@operation("experimental.rotary_embedding_llama")
def rotary_embedding_llama(
    input_tensor: Tensor, cos_cache: Tensor, sin_cache: Tensor, trans_mat: Tensor, *, is_decode_mode: bool = False, memory_config: Any = None,
    compute_kernel_config: Any = None,
) -> Tensor:  # fmt: skip
    """Positions turned into angles: x cos + (x T) sin, neighbours of the last dimension paired by the 32 x 32 matrix T."""
    operands = (input_tensor, cos_cache, sin_cache, trans_mat)
    like, (x, cos, sin, matrix), topology = _four("rotary_embedding_llama", *operands)
    size = input_tensor.shard_shape[-1]
    if size % 32 or trans_mat.shard_shape[-2:] != (32, 32):
        fail(
            describe("rotary_embedding_llama", operands),
            f"the head size {size} must be a multiple of 32 and the matrix 32 x 32, got {list(trans_mat.shard_shape)}",
        )
    length, lead = input_tensor.shard_shape[-2], len(like.grid.shape)
    tiles = x.reshape(x.shape[:-1] + (size // 32, 32))
    turned = product(tiles, matrix.reshape(matrix.shape[:lead] + (1,) * (len(input_tensor.shard_shape) - 1) + (32, 32)), lead).reshape(
        np.broadcast_shapes(x.shape[:lead], matrix.shape[:lead]) + x.shape[lead:]
    )
    rows = slice(None) if is_decode_mode else slice(0, length)
    return result(like, x * cos[..., rows, :] + turned * sin[..., rows, :], dtype=input_tensor.dtype, topology=topology, memory_config=memory_config)

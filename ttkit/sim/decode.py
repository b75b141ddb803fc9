"""Attention of queries that come later than most keys: one token of each user, or a chunk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.dialect import is_strict
from ttkit.sim.arguments import check, describe
from ttkit.sim.attention import NEVER, F, attend, grouped
from ttkit.sim.cache import INT32, by_pages
from ttkit.sim.dtypes import FLOATS
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.operation import operands, operation, result
from ttkit.sim.tensor import Tensor

Array = np.ndarray
HINTS = "memory_config program_config compute_kernel_config"


def _flops(given: Any, operands: Any, results: Any, shape: Any) -> int:
    """Two products of each query with all keys that its user's cache has room for."""
    table, keys = given.get("page_table_tensor"), shape(given["input_tensor_k"])[2]
    keys *= 1 if table is None else shape(table)[1]
    return 4 * math.prod(shape(given["input_tensor_q"])) * keys


def _operands(
    name: str, qkv: tuple[Tensor, ...], table: Tensor | None, chunk: bool, *more: Tensor | None
) -> tuple[describe, Tensor, list[Array], Any]:
    """Return what was asked and `together`, with keys and values of pages put in a row."""
    given = [t for t in (table, *more) if t is not None]
    asked, like, arrays, topology = operands(name, *qkv, *given)
    q, k, v = (t.shard_shape for t in qkv)
    check(asked, (len(q) + len(k) != 8, "ShapeBase[] index out of range: rank must be 4"))
    users, heads = q[:2] if chunk else q[1:3]
    kinds = [t.dtype for t in qkv if t.dtype not in FLOATS[is_strict() :]]
    size = f"K tensor hidden dimension ({k[3]}) must equal Q tensor hidden dimension ({q[3]})"
    length = f"K and V tensors must have the same sequence length. K: {k[2]}, V: {v[2]}"
    shared = f"GQA expects Q to have a multiple of K heads, but got {heads} and {k[1]}"
    check(
        asked,
        ({t.layout for t in qkv} != {Layout.TILE}, "Inputs to SDPA must be tilized"),
        (kinds, f"Unsupported data type {kinds}.", "ttnn.typecast"),
        (not chunk and q[0] != 1, f"Q tensor batch size must be 1 for decode mode but got {q[0]}"),
        (k[3] != q[3], size, "the head size of the cache"),
        (k != v, length, "equal shapes"),
        (heads % k[1], shared, "shard query and key heads over the same chips"),
    )
    if table is not None:
        rule = f"Page table batch size must match input batch size {users}: {table.shape}"
        ints = table.dtype is DataType.INT32
        check(
            asked,
            (not ints, "Page table must be int32: SDPA currently only supports INT32", INT32),
            (table.shard_shape[0] != users, rule),
        )
        rows, lead = arrays.pop(3), len(like.grid.shape)
        arrays[1:3] = (by_pages(x, rows, lead) for x in arrays[1:3])
    return asked, like, arrays, topology


def _later(positions: Array, keys: int, window: int | None) -> Array:
    """Return what to add to scores [..., keys]: queries see no key after their own position."""
    behind = positions[..., None] - np.arange(keys)
    return np.where((behind < 0) | (behind >= (window or keys)), NEVER, F(0))


def _decode(
    name: str,
    qkv: tuple[Tensor, ...],
    table: Tensor | None,
    is_causal: bool,
    mask: Tensor | None,
    positions: Tensor | None,
    scale: float | None,
    window: int | None,
    listed: Sequence[int] = (),
    shared: bool | None = False,
) -> Tensor:
    asked, like, found, topology = _operands(name, qkv, table, False, mask, positions)
    (query, key, value, *others), lead = found, len(like.grid.shape)
    (_, users, heads, size), (many, groups, keys) = qkv[0].shard_shape, key.shape[lead:-1]
    at = np.reshape(listed or 0, (1,) * lead + (-1,))
    if positions is not None:
        at = others.pop().astype(np.int32)
    count, last = at.shape[-1], int(at.max()) + 1
    batch = f"K tensor batch size ({many}) must equal B ({users})"
    both = "attn_mask must not be provided when is_causal=True. Pass is_causal=False"
    none = "Must have cur_pos tensor for paged attention in causal mode"
    few = f"cur_pos tensor must have at least one position per batch ({users}), got {count}"
    check(
        asked,
        (not shared and many != users, batch, "the users of the cache, or share_cache=True"),
        (is_causal and mask is not None, both),
        (is_causal and positions is None and not listed, none, "a position for each user"),
        (is_causal and count < users, few, "-1 skips a user"),
        (last > keys, f"cur_pos must be <= K sequence dim: {last - 1}, {keys}", "a longer cache"),
    )

    def split(x: Array) -> Array:
        """[1, users, heads, n] or [users, 1, heads, n] by key heads."""
        return x.reshape((*x.shape[:lead], users, groups, heads // groups, x.shape[-1]))

    if is_causal:
        at = at[..., :users]
        added: Any = _later(at[..., None, None], last, window)
        key, value = key[..., :last, :], value[..., :last, :]
    else:
        added = None
    if mask is not None:
        *_, rows, width = mask.shard_shape
        alike = "Expect same {} in mask as in {}, got {} and {}"
        check(
            asked,
            (rows != heads, alike.format("number of heads", "Q", rows, heads)),
            (width != keys, alike.format("sequence length", "K", width, keys)),
        )
        added = split(others[0])
    factor = F(1 / math.sqrt(size) if scale is None else scale)
    values = attend(split(query), key, value, added, factor, False, 0)
    values = values * (at >= 0)[..., None, None, None]  # a skipped user has zeros
    values = values.reshape((*values.shape[:lead], 1, users, heads, size))
    return result(like, values, dtype=qkv[0].dtype, topology=topology)


@operation("transformer.scaled_dot_product_attention_decode", flops=_flops, hints=HINTS)
def scaled_dot_product_attention_decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    *,
    is_causal: bool = True,
    attn_mask: Tensor | None = None,
    cur_pos: Sequence[int] = (),
    cur_pos_tensor: Tensor | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    share_cache: bool | None = None,
) -> Tensor:
    """Return the attention of one token of each user to the keys up to its position.

    Args:
        input_tensor_q: [1, users, heads, size].
        input_tensor_k, input_tensor_v: caches [users, key heads, positions, size].
        attn_mask: [1, users, heads, positions], added to the scores; only without `is_causal`.
        cur_pos, cur_pos_tensor: the position of each user's token, a list or a tensor [users];
            of -1 the result is zero.
        sliding_window_size: only the last so many keys count.
        share_cache: all users read the cache of the first.
    """
    name, qkv = "scaled_dot_product_attention_decode", (input_tensor_q, input_tensor_k)
    seen = (None, is_causal, attn_mask, cur_pos_tensor, scale, sliding_window_size)
    return _decode(name, (*qkv, input_tensor_v), *seen, cur_pos, share_cache)


@operation("transformer.paged_scaled_dot_product_attention_decode", flops=_flops, hints=HINTS)
def paged_scaled_dot_product_attention_decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    page_table_tensor: Tensor,
    *,
    is_causal: bool = True,
    attn_mask: Tensor | None = None,
    cur_pos_tensor: Tensor | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Tensor:
    """Do `scaled_dot_product_attention_decode` with keys and values in pages.

    Args:
        input_tensor_k, input_tensor_v: [pages, key heads, rows of a page, size].
        page_table_tensor: the pages of each user, int32 [users, pages].
    """
    name, qkv = "paged_scaled_dot_product_attention_decode", (input_tensor_q, input_tensor_k)
    seen = (page_table_tensor, is_causal, attn_mask, cur_pos_tensor, scale, sliding_window_size)
    return _decode(name, (*qkv, input_tensor_v), *seen)


@operation("transformer.chunked_scaled_dot_product_attention", flops=_flops, hints=HINTS)
def chunked_scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    page_table_tensor: Tensor,
    chunk_start_idx: int | None = None,
    *,
    chunk_start_idx_tensor: Tensor | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Tensor:
    """Return the causal attention of a later part of a prompt to all of it so far.

    Args:
        input_tensor_q: [users, heads, s, size], the queries of positions from `chunk_start_idx` on.
        input_tensor_k, input_tensor_v: [pages, key heads, rows of a page, size].
        page_table_tensor: the pages of each user, int32 [users, pages].
    """
    name, start = "chunked_scaled_dot_product_attention", chunk_start_idx_tensor
    qkv = (input_tensor_q, input_tensor_k, input_tensor_v)
    asked, like, found, topology = _operands(name, qkv, page_table_tensor, True, start)
    (query, key, value, *others), lead = found, len(like.grid.shape)
    (_, heads, length, size), keys = input_tensor_q.shard_shape, key.shape[-2]
    neither = start is None and chunk_start_idx is None
    check(asked, (neither, "chunk_start_idx (int) is required for legacy chunked SDPA"))
    first = others[0].astype(np.int32) if others else np.array(chunk_start_idx)
    last = int(first.max()) + length
    rule = f"K's sequence length must be >= Q's sequence length + chunk_start_idx. Got K: {keys}"
    check(asked, (last > keys, f"{rule}, Q: {length}, chunk_start_idx: {last - length}"))
    first = first.reshape(first.shape[:lead] + (1,) * 4)
    added = _later(first + np.arange(length), last, sliding_window_size)
    query = grouped(query, heads // key.shape[-3])
    key, value = (grouped(x[..., :last, :], 1) for x in (key, value))
    factor = F(1 / math.sqrt(size) if scale is None else scale)
    values = attend(query, key, value, added, factor, False, 0)
    values = values.reshape((*values.shape[: lead + 1], heads, length, size))
    return result(like, values, dtype=input_tensor_q.dtype, topology=topology)


# ---------------------------------------------------------------- products of one token
def _enter(name: str, one: bool) -> None:
    """Enter a product of each user's query with the user's own matrix."""

    def call(
        input_tensor_a: Tensor,
        input_tensor_b: Tensor,
        *,
        compute_with_storage_grid_size: Any,
        dtype: DataType | None = None,
    ) -> Tensor:
        asked, like, (x, y), topology = operands(name, input_tensor_a, input_tensor_b)
        length, heads, users, size = input_tensor_a.padded
        many, groups, inner, _ = input_tensor_b.padded
        check(
            asked,
            (length != 1, "Input q_len must be 1!", "[1, heads, users, size]"),
            (users != many, "Num of users must match!", "a matrix for each of 32 users"),
            (one and groups != 1, "Number of kv_heads must be 1!", "ttnn.experimental.group_"),
            (heads % groups, "Number of q_heads must be divisible by kv_heads!"),
            (size != inner, f"Dimension K (A.shape[3] and B.shape[2]) must match: {size}, {inner}"),
        )
        x = x[..., 0, :, :, :].swapaxes(-3, -2)
        values = np.matmul(x.reshape((*x.shape[:-2], groups, -1, size)), y)
        values = values.reshape((*values.shape[:-3], heads, values.shape[-1])).swapaxes(-3, -2)
        return result(like, values[..., None, :, :, :], dtype=dtype, topology=topology)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = """Return [1, heads, users, k] x [users, key heads, k, n] of each user.

    The result is [1, heads, users, n]; query heads share key heads.
    """
    hints = "memory_config compute_kernel_config output_tensor optional_output_tensor"
    operation(f"experimental.{name}", "product", flops=_attn_flops, hints=hints)(call)


def _attn_flops(given: Any, operands: Any, results: Any, shape: Any) -> int:
    return 2 * math.prod(shape(results[0])) * shape(given["input_tensor_a"])[-1]


_enter("attn_matmul", True)
_enter("group_attn_matmul", False)

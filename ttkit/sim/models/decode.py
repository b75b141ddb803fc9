"""Decode: attention of one token of each user, or of a chunk; and the choice of the next token."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.sim.arguments import check, keywords_of
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.models import NEVER, F, attend, hidden, shaped, softmax_of
from ttkit.sim.models.cache import by_pages, numbers
from ttkit.sim.ops.matmul import product_flops
from ttkit.sim.ops.operation import Operands, each_element, on_mesh, operation
from ttkit.sim.tensor.creation import tensor_from
from ttkit.sim.tensor.tensor import Tensor
from ttkit.sim.tensor.types import DataType, Layout

Array = np.ndarray


def _flops(given: Any, operands: Any, results: Any, shape: Any) -> int:
    """Count two matmuls of each query with all keys that its user's cache has room for."""
    table, keys = given.get("page_table_tensor"), shape(given["input_tensor_k"])[2]
    keys *= 1 if table is None else shape(table)[1]
    return 4 * math.prod(shape(given["input_tensor_q"])) * keys


def _operands(
    qkv: tuple[Tensor, ...], table: Tensor | None, of: slice, *more: Tensor | None
) -> Operands:
    """Return the operands without the page table: keys and values of its pages are joined.

    Args:
        of: which dimensions of the queries are users and heads.
    """
    on = Operands(*qkv, *more, table)
    pages = on.arrays.pop()
    q, k, v = (t.shard_shape for t in qkv)
    users, heads = q[of]
    size = f"K tensor hidden dimension ({k[3]}) must equal Q tensor hidden dimension ({q[3]})"
    length = f"K and V tensors must have the same sequence length. K: {k[2]}, V: {v[2]}"
    shared = f"GQA expects Q to have a multiple of K heads, but got {heads} and {k[1]}"
    check(
        (k[3] != q[3], size, "the head size of the cache"),
        (k != v, length, "equal shapes"),
        (heads % k[1], shared, "shard query and key heads over the same chips"),
    )
    if table is not None:
        rule = f"Page table batch size must match input batch size {users}: {table.shape}"
        check((table.shard_shape[0] != users, rule))
        on.arrays[1:3] = (by_pages(x, pages, on.lead) for x in on.arrays[1:3])
    return on


def _attended(
    on: Operands,
    at: Array,
    window: int | None,
    scale: float | None,
    rule: str,
) -> Array:
    """Return the attention of queries [users, heads, s, size] to keys up to their positions.

    Args:
        at: [*chips, users or 1, s].
    """
    query, key, value = on.arrays[:3]
    last = int(at.max()) + 1
    check((last > key.shape[-2], rule.format(key.shape[-2], last - 1), "a longer cache"))
    behind = at[..., None, :, None] - np.arange(last)
    added = np.where(hidden(behind, window), NEVER, F(0))
    return attend(query, key[..., :last, :], value[..., :last, :], added, scale)


def _decode(
    qkv: tuple[Tensor, ...],
    table: Tensor | None,
    cur_pos: Sequence[int] = (),
    share_cache: bool | None = None,
    *,
    is_causal: bool = True,
    attn_mask: Tensor | None = None,
    cur_pos_tensor: Tensor | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Tensor:
    on = _operands(qkv, table, slice(1, 3), attn_mask, cur_pos_tensor)
    (query, key, value, mask, at), lead = on.arrays, on.lead
    (_, users, heads, _), (many, _, keys) = qkv[0].shard_shape, key.shape[lead:-1]
    at = numbers(at, cur_pos, lead)
    batch = f"K tensor batch size ({many}) must equal B ({users})"
    both = "attn_mask must not be provided when is_causal=True. Pass is_causal=False"
    few = f"cur_pos tensor must have at least one position per batch ({users}), got {at.shape[-1]}"
    check(
        (not share_cache and many != users, batch, "the users of the cache, or share_cache=True"),
        (is_causal and mask is not None, both),
        (is_causal and at.shape[-1] < users, few, "-1 skips a user"),
    )
    query = on.arrays[0] = shaped(query, lead, users, heads, 1, -1)
    if is_causal:
        at = at[..., :users, None]
        rule = "cur_pos must be <= K sequence dim: {1}, {0}"
        values = _attended(on, at, sliding_window_size, scale, rule)
        # A user with a negative position is skipped and gets zeros.
        values = values * (at >= 0)[..., None, None]
    else:
        if mask is not None:
            wanted, got = [heads, keys], list(mask.shape[-2:])
            rule = f"Expect same number of heads in mask as in Q, and keys as in K: {wanted}, {got}"
            check((got != wanted, rule))
            mask = shaped(mask, lead, users, heads, 1, keys)
        values = attend(query, key, value, mask, scale)
    values = shaped(values, lead, *qkv[0].shard_shape)
    return on.result(values)


@operation("transformer.scaled_dot_product_attention_decode", flops=_flops)
@keywords_of(_decode)
def scaled_dot_product_attention_decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    *,
    cur_pos: Sequence[int] = (),
    share_cache: bool | None = None,
    **how: Any,
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
    qkv = (input_tensor_q, input_tensor_k, input_tensor_v)
    return _decode(qkv, None, cur_pos, share_cache, **how)


@operation("transformer.paged_scaled_dot_product_attention_decode", flops=_flops)
@keywords_of(_decode)
def paged_scaled_dot_product_attention_decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    page_table_tensor: Tensor,
    **how: Any,
) -> Tensor:
    """Do `scaled_dot_product_attention_decode` with keys and values in pages.

    Args:
        input_tensor_k, input_tensor_v: [pages, key heads, rows of a page, size].
        page_table_tensor: the pages of each user, int32 [users, pages].
    """
    qkv = (input_tensor_q, input_tensor_k, input_tensor_v)
    return _decode(qkv, page_table_tensor, **how)


@operation("transformer.chunked_scaled_dot_product_attention", flops=_flops)
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
    start = chunk_start_idx_tensor
    qkv = (input_tensor_q, input_tensor_k, input_tensor_v)
    on = _operands(qkv, page_table_tensor, slice(2), start)
    neither = start is None and chunk_start_idx is None
    check((neither, "chunk_start_idx (int) is required for legacy chunked SDPA"))
    first = numbers(on.arrays[3], chunk_start_idx, on.lead)
    length = input_tensor_q.shard_shape[2]
    rule = "K's sequence length must be >= Q's sequence length + chunk_start_idx. Got K: {0}"
    rule += f", Q: {length}, chunk_start_idx: {first.max()}"
    at = first[..., None] + np.arange(length)
    values = _attended(on, at, sliding_window_size, scale, rule)
    return on.result(values)


# ---------------------------------------------------------------- products of one token
def group_attn_matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    compute_with_storage_grid_size: Any,
    dtype: DataType | None = None,
    optional_output_tensor: Tensor | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return [1, heads, users, k] x [users, key heads, k, n] of each user.

    The result is [1, heads, users, n]; query heads share key heads.
    """
    on = Operands(input_tensor_a, input_tensor_b)
    x, y = on.arrays
    (_, heads, users, size), groups = input_tensor_a.shard_shape, input_tensor_b.shard_shape[1]
    check((heads % groups, "Number of q_heads must be divisible by kv_heads!"))
    x = shaped(x, -4, groups, heads // groups, users, size)
    values = np.einsum("...ghuk,...ugkn->...ghun", x, y)
    values = shaped(values, -4, 1, heads, users, -1)
    return on.result(values, dtype, output=optional_output_tensor or output_tensor)


for _name in ("attn_matmul", "group_attn_matmul"):
    operation(f"experimental.{_name}", "product", flops=product_flops)(group_attn_matmul)


# ---------------------------------------------------------------- the next token
# Each user of a mesh has a random stream; all chips draw the same number for a user.
_streams: weakref.WeakKeyDictionary[MeshDevice, dict[int, Any]] = weakref.WeakKeyDictionary()


@operation("manual_seed", "arrange")
def manual_seed(
    seeds: int | Tensor = 0,
    *,
    device: MeshDevice | None = None,
    user_ids: int | Tensor | None = None,
) -> Tensor:
    """Set the seed of `sampling`, of all users or of some; return an empty tensor, as ttnn does."""
    given: Any = [np.arange(32) if user_ids is None else user_ids, seeds]
    tensors = [x for x in given if isinstance(x, Tensor)]
    mesh: Any = on_mesh(*tensors) if tensors else device
    users, values = (np.ravel(next(x.shards()) if isinstance(x, Tensor) else x) for x in given)
    values = values if isinstance(seeds, Tensor) else np.full(users.size, seeds)
    count = f"number of elements. Got seeds volume: {values.size} and user_ids volume: {users.size}"
    check(
        (mesh is None, "Device must be provided when seeds is a uint32_t value.", "device=mesh"),
        (users.size != values.size, f"must have the same {count}"),
    )
    streams = _streams.setdefault(mesh, {})
    for user, value in zip(users.tolist(), values.tolist(), strict=True):
        streams[user] = np.random.default_rng([value, user])
    return tensor_from(np.zeros(1, np.uint32), device=mesh)


@operation("sampling", flops=each_element(5))
def sampling(
    input_values_tensor: Tensor,
    input_indices_tensor: Tensor,
    k: Tensor,
    p: Tensor,
    temp: Tensor,
    *,
    seed: int | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return a token of each user [1, 1, 1, users], drawn from softmax(values * temp).

    It is drawn among the `k` largest, and of these among the fewest whose probabilities add up to
    `p`. All chips draw the same random numbers.

    Args:
        input_values_tensor, input_indices_tensor: [1, 1, users, n]: logits, and their tokens.
        k, p, temp: [users].
        seed: of this call; without it the streams that `manual_seed` set go on.
    """
    on = Operands(input_values_tensor, input_indices_tensor, k, p, temp)
    users = input_values_tensor.shard_shape[-2]
    streams = _streams.setdefault(on.like.mesh, {}) if seed is None else {}
    for user in range(users):
        streams.setdefault(user, np.random.default_rng([seed or 0, user]))
    drawn = np.array([streams[user].random() for user in range(users)])
    values, tokens, *settings = on.arrays
    draw = np.vectorize(_draw, [np.uint32], signature="(n),(n),(),(),(),()->()")
    chosen = draw(values[..., 0, 0, :, :], tokens[..., 0, 0, :, :], *settings, drawn)
    chosen = chosen[..., None, None, None, :]
    return on.result(chosen, DataType.UINT32, layout=Layout.ROW_MAJOR, output=output_tensor)


def _draw(values: Array, tokens: Array, most: int, mass: F, factor: F, drawn: float) -> int:
    """Return the token of one user for a number between 0 and 1."""
    order = np.argsort(-values, kind="stable")[: max(most, 1)]
    sums = np.cumsum(softmax_of(values[order] * factor))
    sums = sums[: np.searchsorted(sums, mass) + 1]
    return tokens[order[np.searchsorted(sums, drawn * sums[-1], "right")]]


@operation("plus_one", flops=each_element(1))
def plus_one(
    input_tensor: Tensor, sub_core_grids: Any = None, skip_negative_entries: bool = False
) -> Tensor:
    """Add 1 to each element in place, such as the positions of a decode step."""
    on = Operands(input_tensor)
    (array,) = on.arrays
    grows = (array.view(np.int32) >= 0) | (not skip_negative_entries)
    return on.result(array + grows.astype(array.dtype), output=input_tensor)

"""Compute softmax and attention for models, on each chip's own heads and batch.

Attention is computed for a whole prompt, for one more token of each user, or for a chunk of a
prompt. The other modules of this folder have caches, heads, norms, experts and the choice of the
next token.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ttkit.sim import blocks
from ttkit.sim.arguments import refuse
from ttkit.sim.models.cache import by_pages, numbers
from ttkit.sim.ops import (
    Array,
    Operands,
    axis_of,
    each_element,
    in_place,
    operation,
    result,
    shaped,
)
from ttkit.sim.ops.matmul import THREADS_PAY_FROM, matmul, product_flops
from ttkit.sim.ops.shaping import permute, reshape, shards
from ttkit.sim.tensor import DataType
from ttkit.sim.tensor.tensor import Tensor

F = np.float32
MASKED_SCORE = F(-1e9)  # A masked score gets this value, so that its weight after softmax is zero.
# Queries are scored in blocks of this many rows. Causal attention has smaller blocks, so that fewer
# scores are computed and then masked.
BLOCK_ROWS, CAUSAL_ROWS = 256, 64
# From this many scores per head on, computing one head at a time is faster than all heads at once.
LOOP_PAYS_FROM = 1 << 15


# ---------------------------------------------------------------- softmax
def _softmax_rows(rows: Array, out: Array) -> None:
    np.subtract(rows, np.maximum.reduce(rows, -1, keepdims=True), out=out)
    np.exp(out, out=out)
    out *= np.reciprocal(np.add.reduce(out, -1, keepdims=True))


def softmax_of(array: Array) -> Array:
    """Return the softmax of float32 values along the last axis, in blocks of rows."""
    return blocks.by_blocks(_softmax_rows, array, of_rows=True)


@operation("softmax", flops=each_element(5))
def softmax(input_tensor: Tensor, dim: int = -1) -> Tensor:
    """Return exp(x) divided by its sum along `dim` of each shard, without overflow.

    Raises:
        TTKitError: the shard has no dimension `dim`.
    """
    array, lead = shards(input_tensor)
    axis = lead + axis_of(input_tensor, dim)
    return result(input_tensor, softmax_of(array.swapaxes(axis, -1)).swapaxes(axis, -1))


def scale_mask_softmax(
    input_tensor: Tensor, scale: float | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return softmax(scale * x + mask) of [b, heads, s, n].

    Args:
        mask: [b or 1, 1, s or 1, n].
    """
    on = Operands(input_tensor, mask)
    values, added = on.arrays
    if scale is not None:
        values = values * F(scale)
    if added is not None:
        values = shaped(values + added, on.lead, *input_tensor.shard_shape)
    return on.result(softmax_of(values))


def attention_softmax(
    tensor: Tensor, *, head_size: int | None = None, attention_mask: Tensor | None = None
) -> Tensor:
    """Return softmax(x / sqrt(head_size) + mask).

    Args:
        attention_mask: [batch, 1, s or 1, keys].
    """
    scale = 1 / math.sqrt(head_size) if head_size else 1.0
    return scale_mask_softmax(tensor, scale, attention_mask)


_TABLE: dict[str, Callable[..., Tensor]] = {
    "scale_mask_softmax": scale_mask_softmax,
    "scale_mask_softmax_in_place scale_causal_mask_hw_dims_softmax_in_place": (
        in_place(scale_mask_softmax)
    ),
    "softmax_in_place": in_place(softmax),
    "transformer.attention_softmax": attention_softmax,
    "transformer.attention_softmax_": in_place(attention_softmax),
}
for _names, _function in _TABLE.items():
    operation(_names, flops=each_element(7))(_function)


# ---------------------------------------------------------------- attention
def _attention_flops(given, operands, results, shape) -> int:
    """Count the flops of two matmuls, for every pair of a query and a key that the query sees.

    Without `is_causal`, all pairs count, even with a sliding window.
    """
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
        attn_mask: [batch or 1, heads or 1, queries, keys], added to the scores; only without
            `is_causal`.
        scale: 1 / sqrt(size) when left out.
        sliding_window_size: in causal attention a query sees this many keys, of which
            its own is the last; in other attention it sees half as many on each side of
            its own.

    Raises:
        TTKitError: sizes or head counts do not fit together.
    """
    on = Operands(input_tensor_q, input_tensor_k, input_tensor_v, attn_mask)
    sizes = zip(*(t.shard_shape for t in on.tensors[:2]))
    (users, key_users), (heads, key_heads), (queries, keys), _ = sizes
    _check_batch(users, key_users)
    if heads % key_heads:
        rule = "Q num_heads must be >= K num_heads and divisible by K num_heads. Got"
        refuse(f"{rule} Q: {heads}, K: {key_heads}", "queries and keys sharded alike")
    if is_causal and attn_mask is not None:
        rule = "is_causal and attn_mask cannot both be present"
        refuse(rule, "is_causal=False, and a mask that hides later keys, too")
    if is_causal and queries != keys:
        rule = "Causal SDPA requires Q and K to have the same sequence length. Got"
        refuse(f"{rule} Q: {queries}, K: {keys}", "is_causal=False with a mask")
    q, k, v, mask = on.arrays
    return on.result(attend(q, k, v, mask, scale, is_causal, sliding_window_size or 0))


def _check_batch(users: int, key_users: int) -> None:
    """Check that each user has its own keys: NumPy would repeat one user's keys for all."""
    if users != key_users:
        rule = f"K tensor batch size ({key_users}) must equal B ({users})"
        refuse(rule, "queries and keys sharded alike over the users")


def _grouped(x: Array, n: int) -> Array:
    """Return [..., heads, s, d] as [..., key heads, n, s, d]: n query heads share a key head."""
    heads, length, size = x.shape[-3:]
    return shaped(x, -3, heads // n, n, length, size)


def hidden(behind: Array, window: int | None) -> Array:
    """Mark the keys that a query does not see in causal attention.

    `behind` says how many positions a key lies before the query.
    """
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
    """Return the attention of float32 values [..., heads, s, size].

    Several heads of `q` may share a head of `k` and `v`. In causal attention, a block of queries
    computes no scores for keys that none of its queries sees.

    Args:
        mask: [..., heads or 1, s, keys], added to the scores.
        scale: 1 / sqrt(size) when left out.
    """
    *_, many, queries, size = q.shape
    shared = many // k.shape[-3]
    keys = k.shape[-2]
    factor = F(1 / math.sqrt(size) if scale is None else scale)
    given = [_grouped(q, shared), _grouped(k, 1), _grouped(v, 1)]
    if mask is not None:
        given.append(_grouped(mask, shared if mask.shape[-3] == many else 1))
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in given))
    q, k, v, *masks = (np.broadcast_to(x, batch + x.shape[-2:]) for x in given)
    out = blocks.empty(batch + (queries, v.shape[-1]))
    worth_threads = out.size * keys >= THREADS_PAY_FROM
    split = batch if queries * keys >= LOOP_PAYS_FROM else batch[: int(worth_threads)]
    heads = [(*place, ...) for place in np.ndindex(split)]

    def part(head, rows: slice, columns: slice, seen: int, unseen: Array | None) -> None:
        """Write the results of the queries `rows`, which attend to the keys `columns`.

        Of these keys `unseen` marks those that are masked; it begins at key number `seen`.
        """
        ours = (*head, rows, slice(None))
        theirs = (*head, columns, slice(None))
        scores = (q[ours] * factor) @ k[theirs].swapaxes(-1, -2)
        for added in masks:
            scores += added[(*head, rows, columns)]
        if unseen is not None:
            np.copyto(scores[..., seen:], MASKED_SCORE, where=unseen)
        scores -= np.maximum.reduce(scores, -1, keepdims=True)
        np.exp(scores, out=scores)
        np.matmul(scores, v[theirs], out=out[ours])
        out[ours] /= np.add.reduce(scores, -1, keepdims=True)

    jobs = []
    step = CAUSAL_ROWS if causal else BLOCK_ROWS
    for low in range(0, queries, step):
        high = min(low + step, queries)
        first, last = (max(0, low - window + 1) if window else 0, high) if causal else (0, keys)
        # All queries of the block see the first `seen` keys, which therefore need no mask.
        seen = low - first if causal and not window else 0
        behind = np.arange(low, high)[:, None] - np.arange(first + seen, last)
        unseen = hidden(behind, window) if causal else None
        if window and not causal:
            unseen = np.abs(behind) > window // 2
        which = (slice(low, high), slice(first, last), seen, unseen)
        jobs += [partial(part, head, *which) for head in heads]
    blocks.run(jobs, worth_threads=worth_threads)
    return shaped(out, -4, many, queries, -1)


# ---------------------------------------------------------------- later tokens, with a cache
def _flops(given, operands, results, shape) -> int:
    """Count the flops of two matmuls, of each query with all positions of its user's cache."""
    table = given.get("page_table_tensor")
    keys = shape(given["input_tensor_k"])[2]
    keys *= 1 if table is None else shape(table)[1]
    return 4 * math.prod(shape(given["input_tensor_q"])) * keys


def _join_pages(on: Operands, users: int | None, last: int | None) -> None:
    """Remove the page table, which is the last operand, and join the pages of keys and of values.

    A table that is sharded over cores has all users once for each core.

    Args:
        users: how many users the cache must have; None where all users may share the
            cache of one user.
        last: how many positions are needed, from the first on; None for all.
    """
    pages = on.arrays.pop()
    if pages is not None:
        rows = on.arrays[1].shape[-2]
        pages = pages[..., :users, : None if last is None else max(1, -(-last // rows))]
        on.arrays[1:3] = (by_pages(x, pages, on.lead) for x in on.arrays[1:3])
    if users is not None:
        _check_batch(users, on.arrays[1].shape[on.lead])


def _attended(on: Operands, at: Array, window: int | None, scale: float | None) -> Array:
    """Return the attention of queries [users, heads, s, size] to keys up to their positions.

    Args:
        at: the positions of the queries, [*chips, users or 1, s].
    """
    query, key, value = on.arrays[:3]
    last = int(at.max(initial=0)) + 1
    keys = key.shape[-2]
    if last > keys:
        refuse(f"cur_pos must be <= K sequence dim: {last - 1}, {keys}", "a longer cache")
    added = np.where(hidden(at[..., None, :, None] - np.arange(last), window), MASKED_SCORE, F(0))
    return attend(query, key[..., :last, :], value[..., :last, :], added, scale)


@operation(
    "transformer.scaled_dot_product_attention_decode"
    " transformer.paged_scaled_dot_product_attention_decode",
    flops=_flops,
)
def scaled_dot_product_attention_decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    page_table_tensor: Tensor | None = None,
    *,
    cur_pos: Sequence[int] = (),
    share_cache: bool | None = None,
    is_causal: bool = True,
    attn_mask: Tensor | None = None,
    cur_pos_tensor: Tensor | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Tensor:
    """Return the attention of one token of each user to the keys up to the token's position.

    Without `is_causal`, a token attends to all keys that the mask leaves.

    Args:
        input_tensor_q: [1, users, heads, size].
        input_tensor_k, input_tensor_v: caches [users, key heads, positions, size]; with a page
            table [pages, key heads, rows of a page, size].
        page_table_tensor: the pages of each user, int32 [users, pages], for a paged cache.
        attn_mask: [1, users, heads, positions], added to the scores; only without `is_causal`.
        cur_pos, cur_pos_tensor: the position of each user's token, a list or a tensor [users];
            with `is_causal`, position -1 gives zeros.
        sliding_window_size: with `is_causal` a token sees this many keys, of which its
            own is the last.
        share_cache: whether the cache may be that of one user; all users then read it.
    """
    _, users, heads, _ = input_tensor_q.shard_shape
    caches = input_tensor_k, input_tensor_v
    on = Operands(input_tensor_q, *caches, attn_mask, cur_pos_tensor, page_table_tensor)
    lead = on.lead
    at = numbers(on.arrays[4], cur_pos, lead)
    last = int(at.max(initial=0)) + 1 if is_causal else None
    _join_pages(on, None if share_cache else users, last)
    query, key, value, mask, _ = on.arrays
    if is_causal and mask is not None:
        refuse("attn_mask must not be provided when is_causal=True. Pass is_causal=False")
    query = on.arrays[0] = shaped(query, lead, users, heads, 1, -1)
    if is_causal:
        if at.shape[-1] < users:
            few = f"{at.shape[-1]} positions for {users} users"
            refuse(few, "a position for each user; -1 skips one")
        at = at[..., :users, None]
        values = _attended(on, at, sliding_window_size, scale)
        # A user with a negative position is skipped and gets zeros.
        values = values * (at >= 0)[..., None, None]
    else:
        if mask is not None:
            mask = shaped(mask, lead, users, heads, 1, key.shape[-2])
        values = attend(query, key, value, mask, scale)
    return on.result(shaped(values, lead, *input_tensor_q.shard_shape))


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
    """Return the causal attention of a chunk of a prompt.

    Each query of the chunk attends to the whole prompt up to its own position.

    Args:
        input_tensor_q: [users, heads, s, size], the queries of positions from `chunk_start_idx` on.
        input_tensor_k, input_tensor_v: [pages, key heads, rows of a page, size].
        page_table_tensor: the pages of each user, int32 [users, pages].
    """
    users, _, length, _ = input_tensor_q.shard_shape
    caches = input_tensor_k, input_tensor_v
    on = Operands(input_tensor_q, *caches, chunk_start_idx_tensor, page_table_tensor)
    at = numbers(on.arrays[3], chunk_start_idx, on.lead)[..., None] + np.arange(length)
    _join_pages(on, users, int(at.max()) + 1)
    return on.result(_attended(on, at, sliding_window_size, scale))


# ---------------------------------------------------------------- products of one token
@operation(
    "experimental.group_attn_matmul experimental.attn_matmul", "product", flops=product_flops
)
def group_attn_matmul(
    input_tensor_a: Tensor, input_tensor_b: Tensor, *, dtype: DataType | None = None
) -> Tensor:
    """Return the product [1, heads, users, k] x [users, key heads, k, n] of each user.

    The result is [1, heads, users, n]; query heads share key heads.
    """
    heads, users = input_tensor_a.shard_shape[1:3]
    by_user = permute(input_tensor_a, [2, 1, 0, 3])
    groups = input_tensor_b.shard_shape[1]
    rows = reshape(by_user, [users, groups, heads // groups, -1])
    made = reshape(matmul(rows, input_tensor_b, dtype=dtype), [users, heads, 1, -1])
    return permute(made, [2, 1, 0, 3])

"""KV caches, written in place: many rows of one user, or one row of each; whole, or in pages.

A cache is [users, heads, positions, size]; a paged one [pages, heads, rows of a page, size], and
of a table [users, pages of a user] each entry is the number of a page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.dialect import is_strict
from ttkit.sim.arguments import check, describe
from ttkit.sim.dtypes import convert
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.operation import operands, operation
from ttkit.sim.tensor import Tensor
from ttkit.sim.types import integer, integers

Array = np.ndarray
Place = tuple[Any, tuple[int, ...]]  # topology, and how long the leading axes become
IN_TILES = "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)"
INT32 = "dtype=ttnn.int32"
HINTS = "compute_kernel_config"


# ---------------------------------------------------------------- each chip's own places
def _chips(array: Array, lengths: tuple[int, ...], more: int) -> list[Array]:
    """Return an index for each leading axis of `array`, as if the axes had these lengths.

    Along a replicated axis, which has length 1, all chips read place 0.

    Args:
        more: how many axes of an index follow.
    """
    places = np.indices(lengths + (1,) * more, sparse=True)[: len(lengths)]
    return [place % n for place, n in zip(places, array.shape, strict=False)]


def looked_up(array: Array, lead: int, places: Array, *inner: Array) -> Array:
    """Return `array` at each chip's own places [*chips, ...] of the first axis after `lead`."""
    lengths = np.broadcast_shapes(array.shape[:lead], places.shape[:lead])
    return array[(*_chips(array, lengths, places.ndim - lead), places, *inner)]


def by_pages(cache: Array, table: Array, lead: int) -> Array:
    """Return pages [*chips, pages, heads, rows, size] as [*chips, users, heads, positions, size].

    Args:
        table: [*chips, users, pages of a user]; a negative entry reads page 0.
    """
    taken = looked_up(cache, lead, np.maximum(table, 0)).swapaxes(-4, -3)
    return taken.reshape((*taken.shape[:-3], -1, taken.shape[-1]))


# ---------------------------------------------------------------- writing
def _operands(name: str, *tensors: Tensor) -> tuple[describe, Place, list[Array]]:
    """Return what was asked, where the cache will be, and the arrays of the other operands."""
    asked, like, arrays, topology = operands(name, *tensors)
    fewer, lead = like.grid is not tensors[0].grid, len(like.grid.shape)
    check(asked, (fewer, "operands lie on fewer chips than the cache", "the same mapper"))
    return asked, (topology, np.broadcast_shapes(*(a.shape[:lead] for a in arrays))), arrays[1:]


def _write(
    cache: Tensor, place: Place, values: Array, pages: Any, rows: Any, coords: Any = None
) -> Tensor:
    """Write values [*chips, n, heads, size] to n places of each chip; skip negative ones.

    Args:
        pages: [*chips, n] or what broadcasts to it: the index in the first dimension.
        rows: likewise, in the third dimension.
        coords: only on the chips at these coordinates.
    """
    lengths = cache.grid.shape if coords else place[1]
    shape = lengths + cache.shard_shape
    # An array that nothing else refers to (the tensor and this call do) may be written into.
    alone = cache.array.flags.owndata and sys.getrefcount(cache._array) == 2
    if not alone or cache.array.shape != shape:
        cache.rebind(np.array(np.broadcast_to(cache.array, shape)))
    array = cache.array
    index = np.broadcast_arrays(*_chips(array, lengths, 1), pages, rows)
    seen = (index[-2] >= 0) & (index[-1] >= 0)
    if coords:
        wanted = {tuple(c) for c in coords}
        here = [c in wanted for c in cache.grid.coords]
        seen &= np.reshape(here, (*lengths, 1))
    *chips, pages, rows = (i[seen] for i in index)
    given = np.broadcast_to(values, seen.shape + values.shape[-2:])[seen]
    array[(*chips, pages, slice(None), rows)] = convert(given, cache.dtype)
    cache.topology = place[0]
    return cache


def _check_whole(asked: describe, cache: Tensor, tensor: Tensor) -> None:
    """Check a cache that has no pages, and an input [1, heads, rows, size]."""
    tiles = Layout.ROW_MAJOR not in (cache.layout, tensor.layout)
    check(asked, (not tiles, "Inputs to update_cache must be tilized", IN_TILES))
    (one, heads, _, width), (_, own, _, size) = tensor.padded, cache.padded
    rule = f"Input tensor height ({heads}) must equal cache tensor height ({own})"
    check(
        asked,
        (width != size, f"Input tensor width ({width}) must equal cache tensor width ({size})"),
        (one != 1, f"Input tensor batch size must be 1 but got {one}", "one user at a time"),
        (heads != own, rule, "shard the heads of both over the same chips"),
    )


@operation("fill_cache", "store", moves="part")
def fill_cache(
    cache_tensor: Tensor, input_tensor: Tensor, batch_idx: int, *, update_idx: int = 0
) -> Tensor:
    """Write [1, heads, s, size] to s positions of one user, from `update_idx` on."""
    asked, place, (values,) = _operands("fill_cache", cache_tensor, input_tensor)
    user, first = integer(batch_idx, asked, 0), integer(update_idx, asked, 0)
    _check_whole(asked, cache_tensor, input_tensor)
    (users, _, length, _), height = cache_tensor.padded, input_tensor.padded[2]
    alike = cache_tensor.dtype is input_tensor.dtype
    rule = f"Fill update_idx ({first}) + input tensor height ({height}) must be <= cache tensor"
    check(
        asked,
        (not alike, "Input and cache tensors must have same dtype!", "ttnn.typecast the input"),
        (
            user >= users,
            f"Batch index ({user}) must be less than cache tensor batch size ({users})",
        ),
        (first % 32, f"Fill update_idx ({first}) must be a multiple of TILE_HEIGHT (32)"),
        (first + height > length, f"{rule} height ({length})", "a longer cache"),
    )
    rows = np.arange(first, first + input_tensor.shard_shape[2])
    return _write(cache_tensor, place, values[..., 0, :, :, :].swapaxes(-3, -2), user, rows)


@operation("kv_cache.fill_cache_for_user_", "store", moves="part")
def fill_cache_for_user_(
    cache: Tensor, input: Tensor, batch_index: int, *, update_idx: int = 0
) -> Tensor:
    """Do as `fill_cache` does."""
    return fill_cache(cache, input, batch_index, update_idx=update_idx)


@operation("update_cache", "store", moves="part", hints=HINTS)
def update_cache(cache: Tensor, input: Tensor, update_idx: int, *, batch_offset: int = 0) -> Tensor:
    """Write [1, heads, users, size] to the position `update_idx` of each user.

    Args:
        batch_offset: the row of the input that is the first user's.
    """
    asked, place, (values,) = _operands("update_cache", cache, input)
    row, first = integer(update_idx, asked, 0), integer(batch_offset, asked, 0)
    _check_whole(asked, cache, input)
    users, height, given = cache.shard_shape[0], input.padded[2], input.shard_shape[2]
    rule = f"Batch offset ({first}) + cache tensor batch size ({users}) must be <="
    size = f"Cache tensor batch size ({users}) must be <= input tensor height ({height})"
    check(
        asked,
        (users > height, size, "a row for each user"),
        (users < 32 < first + users, f"{rule} 32"),
        (first + users > given, f"{rule} {given}, the rows of the input", "a row for each user"),
    )
    values = values[..., 0, :, first : first + users, :].swapaxes(-3, -2)
    return _write(cache, place, values, np.arange(users), row)


@operation("kv_cache.update_cache_for_token_", "store", moves="part")
def update_cache_for_token_(
    cache: Tensor,
    input: Tensor,
    update_index: int,
    batch_offset: int = 0,
    compute_kernel_config: Any = None,
) -> Tensor:
    """Do as `update_cache` does."""
    return update_cache(cache, input, update_index, batch_offset=batch_offset)


# ---------------------------------------------------------------- a position for each user
@operation("experimental.paged_update_cache", "store", moves="part", hints=HINTS)
def paged_update_cache(
    cache_tensor: Tensor,
    input_tensor: Tensor,
    *,
    update_idxs: Sequence[int] = (),
    update_idxs_tensor: Tensor | None = None,
    share_cache: bool | None = None,
    page_table: Tensor | None = None,
    batch_offset: int = 0,
    mesh_coords: Any = None,
) -> Tensor:
    """Write [1, users, heads, size] to one position of each user, its own; -1 writes nothing.

    Args:
        update_idxs, update_idxs_tensor: the positions, a list or an int32 tensor [users].
        share_cache: all users write into the cache of the first.
        page_table: the pages of each user, int32 [users, pages]; without it the cache is whole.
        mesh_coords: only the chips at these coordinates write.
    """
    given = [t for t in (update_idxs_tensor, page_table) if t is not None]
    tensors = (cache_tensor, input_tensor, *given)
    asked, place, (values, *others) = _operands("paged_update_cache", *tensors)
    listed, whole = integers(update_idxs, asked, 0), page_table is None
    rows = np.array(listed, int) if update_idxs_tensor is None else others.pop(0).astype(np.int32)
    (many, own, length, size), (one, users, heads, width) = (t.shard_shape for t in tensors[:2])
    other = [t.dtype for t in given if t.dtype is not DataType.INT32]
    loose = is_strict() and not input_tensor.is_sharded()
    both = "Only an update tensor or an update vector can be provided. Not both or neither."
    count = f"Number of update_idxs ({rows.shape[-1]}) should match batch size ({users})"
    last = f"Last dim of input tensor ({width}) must match last dim of cache tensor ({size})"
    batch = "Expect batch in input tensor match the batch in cache tensor"
    table = others[0] if others else np.arange(users)[:, None] * (not share_cache)
    rows_of = users if share_cache else table.shape[-2] if others else many
    check(
        asked,
        (one != 1, "Dim 0 of input tensor must be 1", "[1, users, heads, size]"),
        (loose, "Expect input_tensor to be sharded", "HEIGHT_SHARDED, one user on a core"),
        (batch_offset, "batch_offset must be 0"),
        (bool(listed) == (update_idxs_tensor is not None), both),
        (not whole and listed, "Paged cache requires update_idxs tensor", INT32),
        (other, f"update_idxs, page table: expected to have datatype INT32, got {other}", INT32),
        (rows.shape[-1] != users, count, "a position for each user; -1 writes nothing"),
        (width != size, f"{last} in non-paged mode"),
        (heads < own, f"the input has {heads} heads, the cache {own}"),
        (rows_of != users, f"{batch}, or in page_table: {rows_of}, {users}"),
    )
    number = np.maximum(rows, 0) // length * (not whole)
    pages = looked_up(table.swapaxes(-1, -2), table.ndim - 2, number, np.arange(users))
    rows = np.where(rows < 0, -1, rows if whole else rows % length)
    return _write(cache_tensor, place, values[..., 0, :, :own, :], pages, rows, mesh_coords)


@operation("experimental.paged_fused_update_cache", "store", moves="part", hints=HINTS)
def paged_fused_update_cache(
    cache_tensor1: Tensor,
    input_tensor1: Tensor,
    cache_tensor2: Tensor,
    input_tensor2: Tensor,
    *,
    update_idxs: Sequence[int] = (),
    update_idxs_tensor: Tensor | None = None,
    share_cache: bool | None = None,
    page_table: Tensor | None = None,
    batch_offset: int = 0,
    mesh_coords: Any = None,
) -> tuple[Tensor, Tensor]:
    """Do `paged_update_cache` for keys and for values."""
    how: Any = {
        "update_idxs": update_idxs,
        "update_idxs_tensor": update_idxs_tensor,
        "share_cache": share_cache,
        "page_table": page_table,
        "batch_offset": batch_offset,
        "mesh_coords": mesh_coords,
    }
    first = paged_update_cache(cache_tensor1, input_tensor1, **how)
    return first, paged_update_cache(cache_tensor2, input_tensor2, **how)


@operation("experimental.paged_fill_cache", "store", moves="part", hints=HINTS)
def paged_fill_cache(
    cache_tensor: Tensor,
    input_tensor: Tensor,
    page_table: Tensor,
    *,
    batch_idx_tensor: Tensor | None = None,
    batch_idx: int = 0,
    mesh_coords: Any = None,
) -> Tensor:
    """Write [n, heads, s, size] to the first positions of n users, into the pages of each.

    Args:
        page_table: int32 [users, pages]; of a negative page nothing is written.
        batch_idx_tensor, batch_idx: which users; -1 writes nothing.
    """
    tensors = (cache_tensor, input_tensor, page_table)
    tensors += () if batch_idx_tensor is None else (batch_idx_tensor,)  # type: ignore[assignment]
    asked, place, (values, table, *idxs) = _operands("paged_fill_cache", *tensors)
    lead, (_, own, rows, size) = len(place[1]), cache_tensor.shard_shape
    (many, heads, length, width), (users, most) = input_tensor.shard_shape, page_table.shard_shape
    chosen = idxs[0].astype(np.int32) if idxs else np.full((1,) * lead + (1,), batch_idx)
    count, kinds = chosen.shape[-1], [t.dtype for t in tensors]
    differ = f"Input tensor dtype (DataType::{kinds[1].name}) must match cache tensor dtype"
    view = f"cache has (kv_heads={own}, head_dim={size}) but input view is ({heads}, {width})"
    alone = f"When no batch_idx_tensor is provided, input_batch must be 1 (got {many})"
    fits = f"Input seq_len ({length}) must fit in max_num_blocks_per_seq ({most}) * block_size"
    batch = f"Batch idx tensor must have input_tensor batch dim ({many}) elements, got {count}"
    check(
        asked,
        (kinds[2] is not DataType.INT32, "Expect page_table_tensor to have datatype INT32", INT32),
        (
            kinds[0] is not kinds[1],
            f"{differ} (DataType::{kinds[0].name})",
            "ttnn.typecast the input",
        ),
        ((own, size) != (heads, width), f"paged_fill_cache geometry mismatch: {view}"),
        (not idxs and many != 1, alone, "a tensor of the users"),
        (count != many, batch),
        (chosen.max() >= users, "Batch idx must be within the page_table batch size"),
        (length > most * rows, f"{fits} ({rows})", "more pages for a user"),
    )
    position, user = np.arange(length), chosen[..., None]
    pages = looked_up(table, lead, np.maximum(user, 0), position // rows)
    pages = np.where(user < 0, -1, pages).reshape((*pages.shape[:lead], -1))
    values = values.swapaxes(-3, -2).reshape((*values.shape[:lead], -1, own, size))
    return _write(cache_tensor, place, values, pages, np.tile(position % rows, many), mesh_coords)

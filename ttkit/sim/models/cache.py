"""Write into KV caches in place: many rows of one user, or one row of each user.

A contiguous cache is [users, heads, positions, size]. A paged cache is [pages, heads, rows of a
page, size], and its page table [users, pages of a user] has the numbers of each user's pages.
"""

import sys
from collections.abc import Sequence

import numpy as np

from ttkit.sim.arguments import keywords_of, refuse
from ttkit.sim.ops import Array, Operands, looked_up, operation, shaped, spread
from ttkit.sim.tensor import integers
from ttkit.sim.tensor.dtypes import convert
from ttkit.sim.tensor.tensor import Tensor


def by_pages(cache: Array, table: Array, lead: int) -> Array:
    """Return pages [*chips, pages, heads, rows, size] as [*chips, users, heads, positions, size].

    Args:
        table: [*chips, users, pages of a user]; a negative entry reads page 0.
    """
    taken = looked_up(cache, lead, np.maximum(table, 0)).swapaxes(-4, -3)
    return shaped(taken, -3, -1, taken.shape[-1])


def numbers(given: Array | None, otherwise, lead: int) -> Array:
    """Return integers as an array [*chips, n]: those of a tensor if given, else `otherwise`.

    A tensor that is sharded over cores has them once for each core.
    """
    if given is None:
        return np.reshape(otherwise, (1,) * lead + (-1,))
    return shaped(given, lead, -1).astype(np.int32)


# ---------------------------------------------------------------- writing
def _operands(cache: Tensor, *others: Tensor | None) -> Operands:
    """Return the operands, with the values to write rounded to the type of the cache.

    The arrays of the operands begin with these values; the array of the cache is left out.
    """
    on = Operands(cache, *others)
    _, values, *rest = on.arrays
    same = on.tensors[1].dtype is cache.dtype
    on.arrays = [values if same else convert(values, cache.dtype), *rest]
    return on


def _write(on: Operands, values: Array, pages: Array, rows: Array, coords=None) -> Tensor:
    """Write n values [*chips, n, heads, size], each to one row of one page.

    A value whose page is negative is not written. A contiguous cache has one page for each user.

    Args:
        pages, rows: the page and the row of each value, [*chips, n].
        coords: only the chips at these coordinates write; all chips write when left out.
    """
    cache = on.tensors[0]
    chips = np.empty(on.like.grid.shape if coords else (1,) * on.lead)
    pages, rows, _ = spread((pages, rows, chips), on.lead)
    own = cache.shard_shape[1::2]
    new = values.shape[-2:]
    if own != new:
        rule = f"Input tensor heads and width {new} must equal those of the cache {own}"
        refuse(rule, "shard the heads of both over the same chips")
    before, values, _, _ = spread((cache.array, values, pages, chips), on.lead)
    # The array may be written in place if only the tensor, `before` and this call refer to it.
    alone = cache.array.flags.owndata and sys.getrefcount(cache._array) == 3
    if not alone or cache.array.shape != before.shape:
        cache.rebind(np.array(before))
    # Chips with the same pages and rows write in the same pass of the loop.
    for chip, place in zip(np.ndindex(pages.shape[: on.lead]), cache.grid.coords):
        if not coords or place in map(tuple, coords):
            one = zip(chip, pages.shape[: on.lead])
            these = tuple(slice(None) if n == 1 else i for i, n in one)
            seen = pages[chip] >= 0
            which = ..., pages[chip][seen], slice(None), rows[chip][seen], slice(None)
            cache.array[these][which] = np.moveaxis(values[these][..., seen, :, :], -3, 0)
    cache.topology = on.topology
    return cache


# ---------------------------------------------------------------- positions as numbers of the call
@operation("fill_cache kv_cache.fill_cache_for_user_", "store", moves="part")
def fill_cache(
    cache_tensor: Tensor, input_tensor: Tensor, batch_idx: int, *, update_idx: int = 0
) -> Tensor:
    """Write [1, heads, s, size] to s positions of one user, from `update_idx` on."""
    on = _operands(cache_tensor, input_tensor)
    user, first = integers((batch_idx, update_idx), None, 0)
    values = on.arrays[0].squeeze(-4).swapaxes(-3, -2)
    rows = numbers(None, np.arange(first, first + values.shape[-3]), on.lead)
    return _write(on, values, np.full_like(rows, user), rows)


@operation("update_cache kv_cache.update_cache_for_token_", "store", moves="part")
def update_cache(cache: Tensor, input: Tensor, update_idx: int, *, batch_offset: int = 0) -> Tensor:
    """Write [1, heads, users, size] to the position `update_idx` of each user.

    Args:
        batch_offset: the row of the input that belongs to the first user.
    """
    on = _operands(cache, input)
    row, first = integers((update_idx, batch_offset), None, 0)
    users = cache.shard_shape[0]
    values = on.arrays[0].squeeze(-4)[..., first : first + users, :].swapaxes(-3, -2)
    pages = numbers(None, np.arange(users), on.lead)
    return _write(on, values, pages, np.full_like(pages, row))


# ---------------------------------------------------------------- a position for each user
@operation("experimental.paged_update_cache", "store", moves="part")
def paged_update_cache(
    cache_tensor: Tensor,
    input_tensor: Tensor,
    *,
    update_idxs: Sequence[int] = (),
    update_idxs_tensor: Tensor | None = None,
    share_cache: bool | None = None,
    page_table: Tensor | None = None,
    mesh_coords=None,
) -> Tensor:
    """Write [1, users, heads, size]: one row for each user, to a position given for that user.

    Args:
        update_idxs, update_idxs_tensor: the positions, a list or an int32 tensor [users]; nothing
            is written for position -1.
        share_cache: whether all users write into the cache of the first user.
        page_table: the pages of each user, int32 [users, pages]; without it the cache is
            contiguous. If it and the positions are sharded over cores, they are repeated for each
            core.
        mesh_coords: only the chips at these coordinates write.
    """
    on = _operands(cache_tensor, input_tensor, update_idxs_tensor, page_table)
    values, rows, table = on.arrays
    many, own, length, _ = cache_tensor.shard_shape
    users = values.shape[-3]
    rows = numbers(rows, update_idxs, on.lead)[..., :users]
    if table is None:  # Without a page table, each user's cache counts as one page.
        pages = np.zeros(users, int) if share_cache else np.arange(many)
        table = pages.reshape((1,) * on.lead + (-1, 1))
    pages = np.take_along_axis(table[..., :users, :], rows[..., None] // length, -1)[..., 0]
    pages = np.where(rows < 0, np.int32(-1), pages)
    return _write(on, values[..., 0, :, :own, :], pages, rows % length, mesh_coords)


@operation("experimental.paged_fused_update_cache", "store", moves="part")
@keywords_of(paged_update_cache)
def paged_fused_update_cache(
    cache_tensor1: Tensor,
    input_tensor1: Tensor,
    cache_tensor2: Tensor,
    input_tensor2: Tensor,
    **how,
) -> tuple[Tensor, Tensor]:
    """Call `paged_update_cache` for the keys and for the values."""
    first = paged_update_cache(cache_tensor1, input_tensor1, **how)
    return first, paged_update_cache(cache_tensor2, input_tensor2, **how)


@operation("experimental.paged_fill_cache", "store", moves="part")
def paged_fill_cache(
    cache_tensor: Tensor,
    input_tensor: Tensor,
    page_table: Tensor,
    *,
    batch_idx_tensor: Tensor | None = None,
    batch_idx: int = 0,
    mesh_coords=None,
) -> Tensor:
    """Write [n, heads, s, size] to the first positions of n users, into the pages of each.

    Args:
        page_table: the pages of each user, int32 [users, pages]; a negative page is not written.
        batch_idx_tensor, batch_idx: the numbers of the n users; -1 writes nothing.
    """
    on = _operands(cache_tensor, input_tensor, page_table, batch_idx_tensor)
    values, table, chosen = on.arrays
    chosen = numbers(chosen, batch_idx, on.lead)
    rows = cache_tensor.shard_shape[2]
    many, heads, length, width = input_tensor.shard_shape
    position = np.arange(length)
    pages = looked_up(table, on.lead, np.maximum(chosen, 0))[..., position // rows]
    pages = shaped(np.where(chosen[..., None] < 0, np.int32(-1), pages), on.lead, -1)
    values = shaped(values.swapaxes(-3, -2), on.lead, -1, heads, width)
    inside = numbers(None, np.tile(position % rows, many), on.lead)
    return _write(on, values, pages, inside, mesh_coords)

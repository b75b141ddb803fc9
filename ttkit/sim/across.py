"""Collectives over ranks: what `exchange` does within a process, with MPI between the blocks of a mesh.

Along axes that stay inside a block nothing is sent. Else, in blocks of equal rectangles, the ranks whose blocks lie along
the axes talk; in any other layout (a mesh reshaped to a line, say) every rank gathers everything and keeps its part.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ttkit.sim import exchange, fabric, recycle
from ttkit.sim.arguments import describe
from ttkit.sim.board import Board, board
from ttkit.sim.mesh import Coordinate, Grid, grid_over, restricted
from ttkit.sim.tensor import Tensor

Array = np.ndarray
# Bytes on each rank up to which sums gather the shards and add them in mesh order, as one process
# does up to `exchange.ORDERED_UP_TO` elements: the same bits.
EXACT_BELOW = 1 << 14


class Team(NamedTuple):
    """The ranks whose blocks lie along the axes of a collective through ours."""

    hosts: tuple[int, ...]  # host ranks, row-major over the axes
    blocks: tuple[int, ...]  # how many blocks there are along each axis
    place: tuple[int, ...]  # which of them is ours
    one_chip: bool  # a block has one chip along the axes, so there is nothing to add up at home


@functools.lru_cache(maxsize=1024)
def team(grid: Grid, axes: tuple[int, ...]) -> Team | None:
    """The team along mesh axes; None where the blocks are no equal rectangles."""
    of: dict[int, list[Coordinate]] = {}
    for coordinate in grid.covers:
        of.setdefault(grid.owner_of(coordinate), []).append(coordinate)  # type: ignore[arg-type]
    me = grid.owners.me  # type: ignore[union-attr]
    shapes = {grid_over(grid.mesh_shape, tuple(coords)).shape for coords in of.values()}
    if me not in of or len(shapes) != 1 or not grid.whole:
        return None
    (shape,) = shapes
    if len(shape) != len(grid.mesh_shape):
        return None
    at = {tuple(c // n for c, n in zip(coords[0], shape, strict=True)): host for host, coords in of.items()}
    if any(c % n for coords in of.values() for c, n in zip(coords[0], shape, strict=True)):
        return None
    mine = next(place for place, host in at.items() if host == me)
    line = sorted(p for p in at if all(p[a] == mine[a] for a in range(len(mine)) if a not in axes))
    blocks = tuple(grid.mesh_shape[a] // shape[a] for a in axes)
    return Team(tuple(at[p] for p in line), blocks, tuple(mine[a] for a in axes), all(shape[a] == 1 for a in axes))


class Line(NamedTuple):
    """A team with its ranks and its communicator."""

    team: Team
    ranks: list[int]
    comm: Any
    board: Board | None  # where they add up, if they are on one host


def _line(grid: Grid, axes: tuple[int, ...]) -> Line:
    here = fabric.world()
    line = here.lines.get((grid, axes))
    if line is None:
        found = team(grid, axes)
        ranks = here.ranks(found.hosts)  # type: ignore[union-attr]
        comm = here.group(ranks)
        line = here.lines[grid, axes] = Line(found, ranks, comm, board(comm))  # type: ignore[arg-type]
    return line  # type: ignore[no-any-return]


def _empty(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Memory to receive into; for a big float32 array some that was used before."""
    return recycle.empty(shape) if dtype == np.float32 else np.empty(shape, dtype)


def _way(tensor: Tensor, axes: list[int]) -> str:
    """Where the values along the axes are: "here", along a "team", or "anywhere"."""
    found = team(tensor.grid, tuple(axes))
    return "anywhere" if found is None else "here" if len(found.hosts) == 1 else "team"


def everywhere(tensor: Tensor, name: str) -> tuple[Array, Grid]:
    """The values of all chips of a tensor on every rank of the machine: all of them must call.

    Returns:
        An array over the chips, and the grid of them all.
    """
    if tensor.grid.owners is None:
        return tensor.array, tensor.grid
    fabric.agree(tensor.grid, describe(name, (tensor,)), all_hosts=True)
    here = fabric.world()
    return _collected(tensor, here.ranks(range(tensor.grid.owners.hosts)))


def _collected(tensor: Tensor, ranks: list[int]) -> tuple[Array, Grid]:
    """Every chip's values, from these ranks; zeros where this rank is not one of them."""
    grid, here = tensor.grid, fabric.world()
    full = grid_over(grid.mesh_shape, grid.covers)
    if here.rank not in ranks:
        return np.broadcast_to(tensor.array.dtype.type(0), full.shape + tensor.shard_shape), full
    order = {rank: i for i, rank in enumerate(ranks)}
    owner = dict(zip(range(grid.owners.hosts), here.ranks(range(grid.owners.hosts)), strict=True))  # type: ignore[union-attr]
    sources = [order[owner[grid.owner_of(c)]] for c in grid.covers]  # type: ignore[index]
    shard = math.prod(tensor.shard_shape)
    counts = [sources.count(i) * shard for i in range(len(ranks))]
    mine = np.ascontiguousarray(tensor.full_array()).reshape(-1)
    flat = np.empty(full.size * shard, mine.dtype)
    here.run(here.group(ranks), "Allgatherv", (mine, [flat, counts]), "all_gather", ranks)
    by_rank = np.argsort(np.array(sources), kind="stable")  # the covered chips in the order in which their values came
    values = flat.reshape((full.size,) + tensor.shard_shape)
    if (by_rank != np.arange(full.size)).any():
        ordered = np.empty_like(values)
        ordered[by_rank] = values
        values = ordered
    if flat.nbytes <= EXACT_BELOW * len(ranks) and _one_copy(tensor.array, range(len(grid.shape)), values):
        return values[0].reshape((1,) * len(full.shape) + tensor.shard_shape), full
    return values.reshape(full.shape + tensor.shard_shape), full


def _one_copy(array: Array, axes: Iterable[int], parts: Array) -> bool:
    """True where each rank has one copy along the axes, and all ranks the same: one process would keep a single copy, and multiply it."""
    return all(array.shape[a] == 1 for a in axes) and bool((parts == parts[:1]).all())


def _anywhere(tensor: Tensor, work: Callable[[Array], Array]) -> Array:
    """`work` on the values of all chips of the mesh, as one process would, and of the result our chips' part."""
    values, full = _collected(tensor, fabric.members(tensor.grid))
    return restricted(work(values), full, tensor.grid)


def _parts(tensor: Tensor, axes: list[int]) -> tuple[Array, Team]:
    """The arrays of all blocks of the team along mesh `axes`, which are at the length of a block: the blocks along each axis lead."""
    found, ranks, comm, _ = _line(tensor.grid, tuple(axes))
    mine = np.ascontiguousarray(exchange.expanded(tensor, axes))
    parts = _empty(found.blocks + mine.shape, mine.dtype)
    fabric.world().run(comm, "Allgather", (mine, parts), "all_gather", ranks)
    return parts, found


def _along(tensor: Tensor, axes: list[int]) -> Array:
    """The array with mesh `axes` at full length, for a sum: one copy where there is only one; other leading axes are our block's."""
    parts, found = _parts(tensor, axes)
    if _one_copy(tensor.array, axes, parts.reshape((-1,) + parts.shape[len(axes) :])):
        return tensor.array
    order: list[int] = []
    for axis in range(parts.ndim - len(axes)):  # the blocks along an axis, then the chips of a block
        order += ([axes.index(axis)] if axis in axes else []) + [len(axes) + axis]
    whole = [n * (found.blocks[axes.index(a)] if a in axes else 1) for a, n in enumerate(parts.shape[len(axes) :])]
    return parts.transpose(order).reshape(whole)


def _lengths(tensor: Tensor, axes: list[int]) -> list[int]:
    return [tensor.grid.mesh_shape[a] for a in axes]


def gathered(tensor: Tensor, axes: list[int], dim: int) -> Array:
    """As `exchange.gathered`."""
    way, lead = _way(tensor, axes), len(tensor.grid.shape)
    if way == "here":
        return exchange.gathered(tensor, axes, dim)
    if way == "team":
        return _joined(_parts(tensor, axes)[0], lead, axes, dim)
    return _anywhere(tensor, lambda array: exchange.joined(_full(array, tensor, axes), len(tensor.grid.mesh_shape), axes, dim))


def _joined(parts: Array, lead: int, axes: list[int], dim: int) -> Array:
    """`exchange.joined` straight from `_parts`, in one copy."""
    k = len(axes)
    line = [at for i, axis in enumerate(axes) for at in (i, k + axis)]
    order = [k + a for a in range(lead) if a not in axes] + list(range(k + lead, k + lead + dim)) + line + list(range(k + lead + dim, parts.ndim))
    shape = [1 if a in axes else parts.shape[k + a] for a in range(lead)] + list(parts.shape[k + lead :])
    shape[lead + dim] *= math.prod(parts.shape[at] for at in line)
    return parts.transpose(order).reshape(shape)


def _full(array: Array, tensor: Tensor, axes: list[int]) -> Array:
    """The array with mesh `axes` at full length, also where there was one copy."""
    shape = [tensor.grid.mesh_shape[a] if a in axes else n for a, n in enumerate(array.shape)]
    return np.broadcast_to(array, shape)


def summed(tensor: Tensor, axes: list[int]) -> Array:
    """As `exchange.summed`; above EXACT_BELOW bytes each rank adds up its own chips first, and between hosts MPI chooses the order."""
    way = _way(tensor, axes)
    if way == "here":
        return exchange.summed(tensor, axes)
    if way == "anywhere":
        return _anywhere(tensor, lambda array: exchange.added(array, axes, _lengths(tensor, axes)))
    if _small(tensor, axes):
        return exchange.added(_along(tensor, axes), axes, _lengths(tensor, axes))
    found, ranks, comm, shared = _line(tensor.grid, tuple(axes))
    here = fabric.world()
    mine = np.ascontiguousarray(tensor.array if found.one_chip else exchange.summed(tensor, axes))
    total = _empty(mine.shape, mine.dtype)
    if shared:
        shared.add_up(mine, total, functools.partial(here.run, comm, "Barrier", (), "all_reduce", ranks))
    else:
        here.run(comm, "Allreduce", (mine, total), "all_reduce", ranks)
    return total


def _small(tensor: Tensor, axes: list[int]) -> bool:
    nbytes = tensor.array.nbytes
    if nbytes > EXACT_BELOW:
        return False
    return nbytes * math.prod(tensor.grid.shape[a] for a in axes if tensor.array.shape[a] == 1) <= EXACT_BELOW


def reduced(tensor: Tensor, axes: list[int], dim: int) -> Array:
    """As `exchange.reduced`; above EXACT_BELOW bytes MPI chooses the order of the sum."""
    way, sizes = _way(tensor, axes), _lengths(tensor, axes)
    if way == "here":
        return exchange.reduced(tensor, axes, dim)
    if way == "anywhere":
        lead = len(tensor.grid.mesh_shape)
        return _anywhere(tensor, lambda array: exchange.scattered(exchange.added(array, axes, sizes), lead, axes, sizes, dim))
    found, ranks, comm, _ = _line(tensor.grid, tuple(axes))
    lead, inner = len(tensor.grid.shape), [tensor.grid.shape[a] for a in axes]
    if _small(tensor, axes):
        total = exchange.added(_along(tensor, axes), axes, sizes)
        mine = _by_block(total, lead + dim, found.blocks, inner)[found.place]
    else:
        here = fabric.world()
        parts = np.ascontiguousarray(_by_block(exchange.summed(tensor, axes), lead + dim, found.blocks, inner))
        mine = _empty(parts.shape[len(axes) :], parts.dtype)
        here.run(comm, "Reduce_scatter_block", (parts, mine), "reduce_scatter", ranks)
    return exchange.scattered(mine, lead, axes, inner, dim)


def _by_block(array: Array, dim: int, blocks: tuple[int, ...], inner: list[int]) -> Array:
    """Dimension `dim`, which holds pieces for all chips of the axes, as leading axes over the blocks and the pieces of one block."""
    split: list[int] = []
    for n, chips in zip(blocks, inner, strict=True):
        split += [n, chips]
    split.append(array.shape[dim] // math.prod(split))
    apart = array.reshape(array.shape[:dim] + tuple(split) + array.shape[dim + 1 :])
    front = [dim + 2 * i for i in range(len(blocks))]
    moved = np.moveaxis(apart, front, range(len(blocks)))
    rest = array.shape[dim] // math.prod(blocks)
    return moved.reshape(blocks + array.shape[:dim] + (rest,) + array.shape[dim + 1 :])


def each(tensor: Tensor, over: int) -> list[Array]:
    """As `exchange.each`."""
    way = _way(tensor, [over])
    if way == "here":
        return exchange.each(tensor, over)
    if way == "team":
        parts, _ = _parts(tensor, [over])
        chips = range(tensor.grid.shape[over])
        return [part[(slice(None),) * over + (slice(i, i + 1),)] for part in parts for i in chips]
    values, full = _collected(tensor, fabric.members(tensor.grid))
    values = _full(values, tensor, [over])
    picked = (values[(slice(None),) * over + (slice(i, i + 1),)] for i in range(values.shape[over]))
    return [restricted(array, full, tensor.grid) for array in picked]


def one_of(tensor: Tensor, over: int, at: int) -> Array:
    """As `exchange.one_of`."""
    way = _way(tensor, [over])
    if way == "anywhere":
        return _anywhere(tensor, lambda array: _full(array, tensor, [over])[(slice(None),) * over + (slice(at, at + 1),)])
    length = tensor.grid.shape[over]
    if way == "here":
        return exchange.one_of(tensor, over, at)
    found, ranks, comm, _ = _line(tensor.grid, (over,))
    root = at // length
    mine = exchange.one_of(tensor, over, at % length)
    values = np.ascontiguousarray(mine) if found.place == (root,) else _empty(mine.shape, mine.dtype)
    here = fabric.world()
    here.run(comm, "Bcast", (values, root), "broadcast", ranks)
    return values


def partitioned(tensor: Tensor, axes: list[int], dim: int) -> Array:
    """As `exchange.partitioned`: nothing is sent."""
    grid = tensor.grid
    parts = math.prod(grid.mesh_shape[a] for a in axes)
    number = functools.partial(functools.reduce, lambda n, pair: n * pair[1] + pair[0])
    numbers = np.array([number([(c[a], grid.mesh_shape[a]) for a in axes], 0) for c in grid.coords], np.int64).reshape(grid.shape)
    if len(grid.shape) == len(grid.mesh_shape):
        numbers = numbers[tuple(slice(None) if a in axes else slice(0, 1) for a in range(len(grid.shape)))]
        return exchange.cut(tensor, axes, dim, parts, numbers)
    return exchange.cut(tensor, [0], dim, parts, numbers)


def sent(tensor: Tensor, base: Tensor, sender: Coordinate, receiver: Coordinate) -> Array:
    """As `exchange.sent`."""
    grid, here = tensor.grid, fabric.world()
    values = np.array(base.full_array())
    place = {c: np.unravel_index(i, grid.shape) for i, c in enumerate(grid.coords)}
    source, target = here.ranks([grid.owner_of(sender), grid.owner_of(receiver)])  # type: ignore[list-item]
    if here.rank == source:
        mine = np.ascontiguousarray(tensor.full_array()[place[sender]])
        if here.rank == target:
            values[place[receiver]] = mine
        else:
            here.run(here.comm, "Send", (mine, target, fabric.BYTES), "point_to_point", [target])
    elif here.rank == target:
        into = np.empty(tensor.shard_shape, values.dtype)
        here.run(here.comm, "Recv", (into, source, fabric.BYTES), "point_to_point", [source])
        values[place[receiver]] = into
    return values

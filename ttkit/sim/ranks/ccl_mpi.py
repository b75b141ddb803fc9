"""Collectives over ranks: what `ccl_numpy` does, with MPI between the blocks of a mesh.

A block is the rectangle of chips that one rank drives. `move` chooses: along axes that stay inside
a block nothing is sent; with blocks of equal rectangles the process group along the axes
communicates; in any other layout (such as a mesh reshaped to a line) every rank gathers everything
and keeps its part.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ttkit.sim.arguments import describe
from ttkit.sim.collectives import ccl_numpy
from ttkit.sim.ops import blocks
from ttkit.sim.ranks import mpi
from ttkit.sim.tensor.grid import Coordinate, Grid, grid_over, restricted
from ttkit.sim.tensor.tensor import Tensor

Array = np.ndarray
# Bytes on each rank up to which sums gather the shards and add them in mesh order, as one process
# does up to `ccl_numpy.ORDERED_UP_TO` elements: the same bits.
EXACT_BELOW = 1 << 14


# ---------------------------------------------------------------- process groups
class ProcessGroup(NamedTuple):
    """The ranks whose blocks lie along the axes of a collective through ours."""

    hosts: tuple[int, ...]  # host ranks, row-major over the axes
    blocks: tuple[int, ...]  # how many blocks there are along each axis
    rank: tuple[int, ...]  # which of them is ours


@functools.lru_cache(maxsize=1024)
def group_along(grid: Grid, axes: tuple[int, ...]) -> ProcessGroup | None:
    """The process group along mesh axes; None where the blocks are no equal rectangles."""
    of: dict[int, list[Coordinate]] = {}
    for coordinate in grid.covers:
        of.setdefault(grid.owner_of(coordinate), []).append(coordinate)  # type: ignore[arg-type]
    me = grid.owners.me  # type: ignore[union-attr]
    shapes = {grid_over(grid.mesh_shape, tuple(coords)).shape for coords in of.values()}
    shape = min(shapes)
    if me not in of or len(shapes) != 1 or not grid.whole or len(shape) != len(grid.mesh_shape):
        return None
    corners = {host: coords[0] for host, coords in of.items()}
    if any(c % n for corner in corners.values() for c, n in zip(corner, shape, strict=True)):
        return None
    at = {tuple(c // n for c, n in zip(c0, shape, strict=True)): h for h, c0 in corners.items()}
    mine = next(block for block, host in at.items() if host == me)
    others = [a for a in range(len(mine)) if a not in axes]
    line = sorted(block for block in at if all(block[a] == mine[a] for a in others))
    return ProcessGroup(
        tuple(at[block] for block in line),
        tuple(grid.mesh_shape[a] // shape[a] for a in axes),
        tuple(mine[a] for a in axes),
    )


class Communicator(NamedTuple):
    """A process group with its ranks and its communicator of MPI."""

    group: ProcessGroup
    ranks: list[int]
    comm: Any
    shared: blocks.SharedSum | None  # where they add up, if they are on one host

    def run(self, call: str, mine: Array, shape: Coordinate, asked: str) -> Array:
        """Return what an MPI call such as "Allgather" makes of the ranks' values, in that shape."""
        mine = np.ascontiguousarray(mine)
        made = blocks.empty(shape, mine.dtype)
        mpi.world().run(self.comm, call, (mine, made), asked, self.ranks)
        return made


def _communicator(tensor: Tensor, axes: list[int]) -> Communicator:
    here, key = mpi.world(), (tensor.grid, tuple(axes))
    if key not in here.communicators:
        found: Any = group_along(*key)  # this rank is in one
        ranks = here.ranks(found.hosts)
        comm = here.group(ranks)
        here.communicators[key] = Communicator(found, ranks, comm, blocks.shared_sum(comm))
    return here.communicators[key]  # type: ignore[no-any-return]


def move(name: str, tensor: Tensor, axes: list[int], *how: Any) -> Any:
    """Return what the function `name` of `ccl_numpy` returns, on a mesh that ranks share."""
    grid, group = tensor.grid, group_along(tensor.grid, tuple(axes))
    if group is not None and len(group.hosts) > 1:
        return OVER_RANKS[name](tensor, axes, *how)
    alone = getattr(ccl_numpy, name)
    if group is not None:
        return alone(tensor.array, grid.shape, axes, *how)
    values, full = _collected(tensor, mpi.members(grid))
    made = alone(values, full.shape, axes, *how)
    if isinstance(made, list):
        return [restricted(each, full, grid) for each in made]
    return restricted(made, full, grid)


# ---------------------------------------------------------------- from everywhere
def everywhere(tensor: Tensor, name: str) -> tuple[Array, Grid]:
    """The values of all chips of a tensor on every rank of the machine: all of them must call.

    Returns:
        An array over the chips, and the grid of them all.
    """
    if tensor.grid.owners is None:
        return tensor.array, tensor.grid
    mpi.agree(tensor.grid, describe(name, (tensor,)), all_hosts=True)
    return _collected(tensor, mpi.world().ranks(range(tensor.grid.owners.hosts)))


def _collected(tensor: Tensor, ranks: list[int]) -> tuple[Array, Grid]:
    """Every chip's values, from these ranks; zeros where this rank is not one of them."""
    grid, here, shard = tensor.grid, mpi.world(), tensor.shard_shape
    full = grid_over(grid.mesh_shape, grid.covers)
    if here.rank not in ranks:
        return np.broadcast_to(tensor.array.dtype.type(0), full.shape + shard), full
    hosts = range(grid.owners.hosts)  # type: ignore[union-attr]
    known = zip(hosts, here.ranks(hosts), strict=True)
    order = {host: ranks.index(rank) for host, rank in known if rank in ranks}
    sources = [order[grid.owner_of(c)] for c in grid.covers]  # type: ignore[index]
    counts = [sources.count(i) * math.prod(shard) for i in range(len(ranks))]
    mine = np.ascontiguousarray(tensor.full_array()).reshape(-1)
    flat = np.empty(sum(counts), mine.dtype)
    here.run(here.group(ranks), "Allgatherv", (mine, [flat, counts]), "all_gather", ranks)
    values = flat.reshape((full.size,) + shard)
    if sources != sorted(sources):  # the values came in the order of the ranks
        values = values[np.argsort(np.argsort(np.array(sources), kind="stable"))]
    small = flat.nbytes <= EXACT_BELOW * len(ranks)
    if small and _one_copy(tensor.array, range(len(grid.shape)), values):
        return values[0].reshape((1,) * len(full.shape) + shard), full
    return values.reshape(full.shape + shard), full


def _one_copy(array: Array, axes: Iterable[int], parts: Array) -> bool:
    """True where each rank has one copy along the axes, and all are the same."""
    return all(array.shape[a] == 1 for a in axes) and bool((parts == parts[:1]).all())


# ---------------------------------------------------------------- along a process group
def _parts(tensor: Tensor, axes: list[int]) -> Array:
    """The arrays of all blocks of the group, at the length of a block along `axes`: blocks lead."""
    link = _communicator(tensor, axes)
    whole = ccl_numpy.expanded(tensor.array, tensor.grid.shape, axes)
    return link.run("Allgather", whole, link.group.blocks + whole.shape, "all_gather")


def gathered(tensor: Tensor, axes: list[int], dim: int) -> Array:
    """Do `ccl_numpy.gathered` straight from the parts, in one copy."""
    return _joined(_parts(tensor, axes), axes, len(tensor.grid.shape), dim)


def _joined(parts: Array, axes: list[int], lead: int, dim: int) -> Array:
    """Join the parts of all blocks, which lead, along `dim` in the order of the mesh."""
    k = len(axes)
    line = [at for i, axis in enumerate(axes) for at in (i, k + axis)]
    front = [1 if axis in axes else parts.shape[k + axis] for axis in range(lead)]
    return ccl_numpy.joined(parts, k + lead, line, dim, front)


def _small(tensor: Tensor, axes: list[int]) -> bool:
    copies = math.prod(tensor.grid.shape[a] for a in axes if tensor.array.shape[a] == 1)
    return tensor.array.nbytes * copies <= EXACT_BELOW


def _summed_in_order(tensor: Tensor, axes: list[int]) -> Array:
    """Add in the order of the mesh, or multiply one copy by the number of chips."""
    parts, k = _parts(tensor, axes), len(axes)
    array = tensor.array
    if not _one_copy(array, axes, parts.reshape((-1,) + parts.shape[k:])):
        array = _in_mesh_order(parts, axes)
    return ccl_numpy.summed(array, tensor.grid.mesh_shape, axes)


def _in_mesh_order(parts: Array, axes: list[int]) -> Array:
    """Return the parts of all blocks as one array over the mesh."""
    k, order = len(axes), []
    shape = list(parts.shape[k:])
    for axis in range(parts.ndim - k):  # the blocks along an axis, then the chips of a block
        if axis in axes:
            order.append(axes.index(axis))
            shape[axis] *= parts.shape[axes.index(axis)]
        order.append(k + axis)
    return parts.transpose(order).reshape(shape)


def summed(tensor: Tensor, axes: list[int]) -> Array:
    """Do `ccl_numpy.summed`.

    Above EXACT_BELOW bytes each rank adds its own chips first, and between hosts MPI chooses the
    order.
    """
    if _small(tensor, axes):
        return _summed_in_order(tensor, axes)
    link = _communicator(tensor, axes)
    mine = ccl_numpy.summed(tensor.array, tensor.grid.shape, axes)
    if link.shared is None:
        return link.run("Allreduce", mine, mine.shape, "all_reduce")
    run = mpi.world().run
    meet = functools.partial(run, link.comm, "Barrier", (), "all_reduce", link.ranks)
    total = blocks.empty(mine.shape, mine.dtype)
    link.shared.add_up(np.ascontiguousarray(mine), total, meet)
    return total


def reduced(tensor: Tensor, axes: list[int], dim: int) -> Array:
    """Do `ccl_numpy.reduced`; above EXACT_BELOW bytes MPI chooses the order of the sum."""
    link = _communicator(tensor, axes)
    lead, inner = len(tensor.grid.shape), [tensor.grid.shape[a] for a in axes]
    if _small(tensor, axes):
        total = _summed_in_order(tensor, axes)
        mine = _by_block(total, lead + dim, link.group.blocks, inner)[link.group.rank]
    else:
        total = ccl_numpy.summed(tensor.array, tensor.grid.shape, axes)
        parts = _by_block(total, lead + dim, link.group.blocks, inner)
        own = parts.shape[len(axes) :]
        mine = link.run("Reduce_scatter_block", parts, own, "reduce_scatter")
    return ccl_numpy.scattered(mine, lead, axes, inner, dim)


def exchanged(tensor: Tensor, axes: list[int], into: int, cut: int) -> Array:
    """Do `ccl_numpy.exchanged`: each rank sends to each other one what its chips get."""
    link = _communicator(tensor, axes)
    lead, inner = len(tensor.grid.shape), [tensor.grid.shape[a] for a in axes]
    whole = ccl_numpy.expanded(tensor.array, tensor.grid.shape, axes)
    mine = _by_block(whole, lead + cut, link.group.blocks, inner)
    parts = link.run("Alltoall", mine, mine.shape, "all_to_all")
    return ccl_numpy.scattered(_joined(parts, axes, lead, into), lead, axes, inner, cut)


def _by_block(array: Array, dim: int, counts: tuple[int, ...], inner: list[int]) -> Array:
    """Split `dim` into the blocks of the axes, which lead, each with its own parts."""
    split: list[int] = []
    for n, chips in zip(counts, inner, strict=True):
        split += [n, chips]
    split.append(array.shape[dim] // math.prod(split))
    apart = array.reshape(array.shape[:dim] + tuple(split) + array.shape[dim + 1 :])
    moved = np.moveaxis(apart, [dim + 2 * i for i in range(len(counts))], range(len(counts)))
    rest = array.shape[dim] // math.prod(counts)
    return moved.reshape(counts + array.shape[:dim] + (rest,) + array.shape[dim + 1 :])


def each(tensor: Tensor, axes: list[int]) -> list[Array]:
    """Do `ccl_numpy.each`."""
    whole = _in_mesh_order(_parts(tensor, axes), axes)
    return ccl_numpy.each(whole, tensor.grid.mesh_shape, axes)


def one_of(tensor: Tensor, axes: list[int], at: int) -> Array:
    """Do `ccl_numpy.one_of`."""
    group, ranks, comm, _ = _communicator(tensor, axes)
    root, chip = divmod(at, tensor.grid.shape[axes[0]])
    mine = ccl_numpy.one_of(tensor.array, tensor.grid.shape, axes, chip)
    ours = group.rank == (root,)
    values = np.ascontiguousarray(mine) if ours else blocks.empty(mine.shape, mine.dtype)
    mpi.world().run(comm, "Bcast", (values, root), "broadcast", ranks)
    return values


OVER_RANKS: dict[str, Callable[..., Any]] = {
    "gathered": gathered,
    "summed": summed,
    "reduced": reduced,
    "exchanged": exchanged,
    "each": each,
    "one_of": one_of,
}


def sent(tensor: Tensor, base: Tensor, sender: Coordinate, receiver: Coordinate) -> Array:
    """Do `ccl_numpy.sent`."""
    grid, here = tensor.grid, mpi.world()
    values = np.array(base.full_array()).reshape((grid.size, *tensor.shard_shape))
    ends: Any = [grid.owner_of(sender), grid.owner_of(receiver)]
    source, target = here.ranks(ends)
    if here.rank == source:
        mine = tensor.full_array().reshape(values.shape)[grid.coords.index(sender)]
        if here.rank == target:
            values[grid.coords.index(receiver)] = mine
        else:
            message = (np.ascontiguousarray(mine), target, mpi.BYTES)
            here.run(here.comm, "Send", message, "point_to_point", [target])
    elif here.rank == target:
        into = np.empty(tensor.shard_shape, values.dtype)
        here.run(here.comm, "Recv", (into, source, mpi.BYTES), "point_to_point", [source])
        values[grid.coords.index(receiver)] = into
    return values.reshape(grid.shape + tensor.shard_shape)

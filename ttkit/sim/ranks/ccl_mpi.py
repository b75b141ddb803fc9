"""Collectives over ranks: gather what the local chips need, compute, keep the local shards.

Along axes that stay inside a rank's block of chips nothing is sent. Where the blocks are equal
rectangles, the ranks along the axes communicate; in any other layout (such as a mesh reshaped to a
line) every rank gathers everything. Large sums are not gathered: each rank adds up its own chips,
and shared memory or MPI adds up the ranks.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ttkit.sim.arguments import describe
from ttkit.sim.collectives import ccl_numpy
from ttkit.sim.ops import blocks
from ttkit.sim.ranks import mpi
from ttkit.sim.tensor.grid import Coordinate, Grid, grid_over, restricted
from ttkit.sim.tensor.tensor import Tensor

Array = np.ndarray
# Up to this many bytes on each rank, sums gather the shards and add them in mesh order, as one
# process does up to `ccl_numpy.ORDERED_UP_TO` elements, so that both give the same bits.
EXACT_BELOW = 1 << 14


class ProcessGroup(NamedTuple):
    """The ranks whose blocks lie on one line with this rank's, along the axes of a collective."""

    hosts: tuple[int, ...]  # The host ranks are in row-major order.
    blocks: tuple[int, ...]  # This is the number of blocks along each mesh axis.
    chips: Grid  # The grid covers the chips of all these ranks.


@functools.lru_cache(maxsize=1024)
def group_along(grid: Grid, axes: tuple[int, ...]) -> ProcessGroup | None:
    """The process group along mesh axes; None where the blocks are no equal rectangles."""
    owners: Any = grid.owners
    if not grid.whole or owners.me not in owners.ranks:
        return None
    owner = np.reshape(owners.ranks, grid.mesh_shape)
    first = tuple(c for c in grid.covers if owner[c] == owner.flat[0])
    block = grid_over(grid.mesh_shape, first).shape
    if len(block) != owner.ndim:
        return None
    hosts = owner[tuple(slice(None, None, n) for n in block)]
    tiled = np.kron(hosts, np.ones(block, int))
    if len(set(hosts.flat)) != hosts.size or not np.array_equal(tiled, owner):
        return None
    mine = np.argwhere(hosts == owners.me)[0]
    line = hosts[tuple(slice(None) if a in axes else slice(i, i + 1) for a, i in enumerate(mine))]
    chips = tuple(c for c in grid.covers if owner[c] in line)
    return ProcessGroup(tuple(line.flat), line.shape, grid_over(grid.mesh_shape, chips))


class Communicator(NamedTuple):
    """The communicator of a process group's ranks, and their shared memory."""

    comm: Any
    # This is None where the ranks share no memory, as on several hosts.
    shared: blocks.SharedSum | None

    def run(self, call: str, mine: Array, shape: Coordinate, asked: str) -> Array:
        """Return what an MPI call such as "Allgather" makes of the ranks' values, in that shape."""
        mine = np.ascontiguousarray(mine)
        made = blocks.empty(shape, mine.dtype)
        mpi.world().run(self.comm, call, (mine, made), asked)
        return made


communicators: dict[tuple[int, ...], Communicator] = {}  # The keys are tuples of host ranks.


def _communicator(hosts: tuple[int, ...]) -> Communicator:
    if hosts not in communicators:
        comm = mpi.world().group(mpi.world().ranks(hosts))
        communicators[hosts] = Communicator(comm, blocks.shared_sum(comm))
    return communicators[hosts]


def move(name: str, tensor: Tensor, axes: list[int], *how: Any) -> Any:
    """Return what the function `name` of `ccl_numpy` returns, on a mesh that ranks share."""
    grid, group = tensor.grid, group_along(tensor.grid, tuple(axes))
    values, chips = tensor.array, grid
    sums = name in ("summed", "reduced")
    if group is None:
        values, chips = collected(tensor)
    elif len(group.hosts) > 1:
        chips = group.chips
        if sums and chips.size * values.itemsize * math.prod(
            tensor.shard_shape
        ) > EXACT_BELOW * len(group.hosts):
            values = _added_up(tensor, axes, _communicator(group.hosts))
            if name == "summed":
                return values
            return _own(ccl_numpy.scattered(values, chips.shape, axes, *how), chips, grid)
        values = _along(tensor, axes, group)
    if sums:
        values = _without_replicas(values, axes)
    made = getattr(ccl_numpy, name)(values, chips.shape, axes, *how)
    if isinstance(made, list):
        return [_own(each, chips, grid) for each in made]
    return _own(made, chips, grid)


def _without_replicas(values: Array, axes: list[int]) -> Array:
    """Return one replica where all shards along the axes are equal.

    Its sum is then a multiple, as it is in one process.
    """
    first = values[tuple(slice(1) if a in axes else slice(None) for a in range(values.ndim))]
    return first if (values == first).all() else values


def _own(values: Array, chips: Grid, grid: Grid) -> Array:
    """Return the values of the local chips, without keeping those of others in memory."""
    own = restricted(values, chips, grid)
    return own if own.size == values.size else own.copy()


def _along(tensor: Tensor, axes: list[int], group: ProcessGroup) -> Array:
    """Return the values of the group's chips; axes that are replicated keep length 1."""
    mine = ccl_numpy.expanded(tensor.array, tensor.grid.shape, axes)
    lead, counts = len(group.blocks), group.blocks
    parts = _communicator(group.hosts).run("Allgather", mine, counts + mine.shape, "all_gather")
    # Along each mesh axis the blocks come first, then the chips within a block.
    order = [axis for i in range(lead) for axis in (i, lead + i)]
    parts = parts.transpose([*order, *range(2 * lead, parts.ndim)])
    front = tuple(n * m for n, m in zip(counts, mine.shape, strict=False))
    return parts.reshape(front + mine.shape[lead:])


def _added_up(tensor: Tensor, axes: list[int], group: Communicator) -> Array:
    """Return the sum; between hosts MPI chooses the order."""
    mine = ccl_numpy.summed(tensor.array, tensor.grid.shape, axes)
    if group.shared is None:
        return group.run("Allreduce", mine, mine.shape, "all_reduce")
    run = mpi.world().run
    meet = functools.partial(run, group.comm, "Barrier", (), "all_reduce")
    total = blocks.empty(mine.shape, mine.dtype)
    group.shared.add_up(np.ascontiguousarray(mine), total, meet)
    return total


# ---------------------------------------------------------------- from everywhere
def everywhere(tensor: Tensor, name: str) -> tuple[Array, Grid]:
    """The values of all chips of a tensor on every rank of the machine: all of them must call.

    Returns:
        An array over the chips, and the grid of them all.
    """
    if tensor.grid.owners is None:
        return tensor.array, tensor.grid
    mpi.agree(tensor.grid, describe(name, (tensor,)), all_hosts=True)
    return collected(tensor, mpi.world().ranks(range(tensor.grid.owners.hosts)))


def collected(tensor: Tensor, ranks: list[int] | None = None) -> tuple[Array, Grid]:
    """Every chip's values, from these ranks; zeros where this rank is not one of them.

    Args:
        ranks: by default those that drive chips of the tensor.
    """
    grid, here, shard = tensor.grid, mpi.world(), tensor.shard_shape
    ranks = mpi.members(grid) if ranks is None else ranks
    full = grid_over(grid.mesh_shape, grid.covers)
    if here.rank not in ranks:
        return np.broadcast_to(tensor.array.dtype.type(0), full.shape + shard), full
    hosts = range(grid.owners.hosts)  # type: ignore[union-attr]
    known = zip(hosts, here.ranks(hosts), strict=True)
    order = {host: ranks.index(rank) for host, rank in known if rank in ranks}
    sources = [order[grid.owner_of(c)] for c in grid.covers]  # type: ignore[index]
    counts = [sources.count(i) * math.prod(shard) for i in range(len(ranks))]
    mine = np.ascontiguousarray(tensor.full_array())
    flat = np.empty(sum(counts), mine.dtype)
    here.run(here.group(ranks), "Allgatherv", (mine, [flat, counts]), "all_gather")
    # The values arrive in the order of the ranks, and must be put in mesh order.
    place = np.argsort(np.argsort(sources, kind="stable"))
    return flat.reshape((full.size,) + shard)[place].reshape(full.shape + shard), full

"""Which chips of a mesh a tensor covers, how its array axes run over them, and its topology."""

import itertools
import math
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np

from ttkit.sim.tensor import (
    MeshCoordinate,
    MeshShape,
    Placement,
    PlacementReplicate,
    PlacementShard,
    TensorTopology,
)

Coordinate = tuple[int, ...]
Coordinates = tuple[Coordinate, ...]


class Owners(NamedTuple):
    """Which host rank drives each chip of a shared mesh: `ranks` has one for each chip, row-major.

    `me` is the host rank of this process. A host rank may differ from the rank in MPI.
    """

    me: int
    hosts: int  # This many ranks share the machine; some may have no chip of this mesh.
    ranks: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Grid:
    """Which chips of a mesh a tensor covers, and the shape of its leading array axes.

    If the chips form a rectangle, such as the whole mesh, `shape` is the shape of that rectangle.
    Otherwise it is one flat axis. Grids are interned by `grid_over`: two tensors cover the same
    chips of a mesh exactly when their grids are the same object.

    Args:
        coords: the covered chips whose values this process has, in row-major order; `shape` is the
            shape of these chips.
        covers: all covered chips; they are more than `coords` only if ranks share the mesh.
        owners: the host rank of each chip, or None if no ranks share the machine.
    """

    mesh_shape: Coordinate
    shape: Coordinate
    coords: Coordinates
    covers: Coordinates
    owners: Owners | None = None

    @property
    def size(self) -> int:
        """The number of covered chips whose values this process has."""
        return len(self.coords)

    @cached_property
    def lead(self) -> int:
        """The number of an array's leading axes, which run over the chips."""
        return len(self.shape)

    @cached_property
    def local(self) -> bool:
        """Whether this process drives every covered chip."""
        return len(self.coords) == len(self.covers)

    def owner_of(self, coordinate: Coordinate) -> int | None:
        """Return the host rank that drives a chip, or None if no ranks share the machine."""
        return self.owners.ranks[place_of(coordinate, self.mesh_shape)] if self.owners else None


class MeshDeviceView:
    """The shape of a mesh, or of the mesh that host shards were made for, and its local chips."""

    def __init__(self, grid: Grid):
        self._grid = grid

    def shape(self) -> MeshShape:
        """Return the rows and columns."""
        return MeshShape(self._grid.mesh_shape)

    def is_local(self, coord: MeshCoordinate) -> bool:
        """Return whether this process drives the chip at `coord`."""
        grid, place = self._grid, tuple(coord)
        inside = is_inside(place, grid.mesh_shape)
        return inside and (grid.owners is None or grid.owner_of(place) == grid.owners.me)


@cache
def grid_over(
    mesh_shape: Coordinate, coords: Coordinates | None = None, owners: Owners | None = None
) -> Grid:
    """Return the grid of the chips at `coords` (in row-major order), or of the whole mesh."""
    return _grid(mesh_shape, coords or tuple(itertools.product(*map(range, mesh_shape))), owners)


@cache
def _grid(mesh_shape: Coordinate, covers: Coordinates, owners: Owners | None) -> Grid:
    coords = covers
    if owners is not None:
        coords = tuple(c for c in covers if owners.ranks[place_of(c, mesh_shape)] == owners.me)
    box = [range(min(axis), max(axis) + 1) for axis in zip(*coords)]
    fills_box = coords == tuple(itertools.product(*box))
    shape = tuple(map(len, box)) if fills_box else (len(coords),)
    return Grid(mesh_shape, shape, coords, covers, owners)


def place_of(coordinate: Coordinate, shape: Coordinate) -> int:
    """Return the number of a chip in row-major order."""
    return int(np.ravel_multi_index(coordinate, shape))


def is_inside(coordinate: Coordinate, shape: Coordinate) -> bool:
    """Return True where a coordinate lies in a mesh of this shape."""
    return len(coordinate) == len(shape) and all(0 <= c < n for c, n in zip(coordinate, shape))


def restricted(array: np.ndarray, have: Grid, want: Grid) -> np.ndarray:
    """Return only the values of the chips of `want` from an array over the chips of `have`.

    The result is a view if possible.
    """
    if have.coords == want.coords:
        return array
    rank, wanted = have.lead, want.lead
    lead = array.shape[:rank]
    shard = array.shape[rank:]
    if rank == wanted > 1 and want.size:  # Both grids are rectangles.
        first = [w - h for w, h in zip(want.coords[0], have.coords[0])]
        box = zip(first, want.shape, lead)
        return array[tuple(slice(f, f + n) if size > 1 else slice(None) for f, n, size in box)]
    if all(n == 1 for n in lead):
        return array.reshape((1,) * wanted + shard)
    place = {c: i for i, c in enumerate(have.coords)}
    flat = np.broadcast_to(array, have.shape + shard).reshape((have.size,) + shard)
    return flat[[place[c] for c in want.coords]].reshape(want.shape + shard)


@cache
def devices_of(over: Coordinate, mesh: Coordinate, offset: Coordinate | None) -> Coordinates:
    """Return the device of each part of a distribution.

    A distribution that fits the mesh in every dimension takes a rectangle whose first device is at
    `offset`, by default at the corner. Any other one takes the first devices in row-major order.
    """
    if len(over) == len(mesh) and all(d <= m for d, m in zip(over, mesh)):
        start = offset or (0,) * len(mesh)
        return tuple(itertools.product(*(range(o, o + n) for o, n in zip(start, over))))
    return tuple(itertools.islice(np.ndindex(*mesh), math.prod(over)))


def onto_grid(cut: np.ndarray, distribution: Coordinate, grid: Grid) -> np.ndarray:
    """Replace the axes over a distribution by those of the grid; parts fill the grid row by row."""
    rank = len(distribution)
    lead = cut.shape[:rank]
    shard = cut.shape[rank:]
    if all(n == 1 for n in lead):
        return cut.reshape((1,) * grid.lead + shard)
    # Axes of one device do not matter. If the other axes equal those of the grid, a replicated axis
    # can keep length 1.
    real = [(n, have) for n, have in zip(distribution, lead) if n > 1]
    if [n for n, _ in real] == [n for n in grid.shape if n > 1]:
        lengths = iter(have for _, have in real)
        return cut.reshape(tuple(next(lengths) if n > 1 else 1 for n in grid.shape) + shard)
    return np.broadcast_to(cut, distribution + shard).reshape(grid.shape + shard)


SINGLE = grid_over((1, 1))  # A host tensor that was never distributed has this grid.


# ---------------------------------------------------------------- topologies of results
# The functions below follow the rules of ttnn 0.81.1. A number such as #7e2ea names a golden case
# in tests/conformance.
REPLICATE = PlacementReplicate()


@cache
def merged(grid, *topologies: TensorTopology) -> TensorTopology:
    """Return the topology of a result of these operands on the mesh `grid`.

    A mesh axis is sharded if any operand shards it, and the first operand that does so decides the
    dimension (#7e2ea). No dimension is used for two axes. Operands whose distribution has another
    rank than that of the sharded operands do not count (#a90fb, #db596). The result has the
    coordinates of every chip of the mesh."""
    sharded = [t for t in topologies if any(p != REPLICATE for p in t._placements)]
    rank = max(len(t._shape) for t in sharded) if sharded else len(topologies[0]._shape)
    alike = [topology for topology in topologies if len(topology._shape) == rank]
    placements: list[Placement] = [REPLICATE] * rank
    claimed: set[Placement] = {REPLICATE}
    for topology in alike:
        for axis, placement in enumerate(topology._placements):
            if placement not in claimed and placements[axis] == REPLICATE:
                placements[axis] = placement
            claimed.add(placement)
    shape = map(max, zip(*(topology._shape for topology in alike)))
    return TensorTopology(shape, placements, grid.covers)


# ---------------------------------------------------------------- topologies after collectives
# A topology does not depend on values, so each is computed once and cached.
@cache
def after_collective(
    old: TensorTopology,
    grid,
    rank: int,
    axis: int | None,
    dim: int | None,
    *,
    shards: bool = False,
    keeps: bool = False,
) -> TensorTopology:
    """Return the topology after a collective along a mesh axis, or along all axes (None).

    Args:
        shards: True if each chip keeps a shard along `dim`; otherwise all chips along the axis get
            the same values.
        keeps: True if an axis that shards another dimension stays as it is.
    """
    mesh = grid.mesh_shape
    shape = old._shape
    placements = list(old._placements)
    if len(shape) < len(mesh):  # The distribution is one line over all chips.
        if max(mesh) == shape[0]:
            axis = None
        # Along one axis the distribution gets the shape of the mesh. Along all axes it does so only
        # without a `dim`, as after all_reduce and all_broadcast.
        elif axis is not None or dim is None:
            shape, placements = mesh, placements * len(mesh)
    dim = dim if shards else None
    placement = REPLICATE if dim is None else PlacementShard(dim)
    # A placement may name its dimension by a negative number.
    cut = [p.dim % rank if rank and isinstance(p, PlacementShard) else None for p in placements]
    for each in range(len(shape)) if axis is None else [axis]:
        # If two axes shard the same dimension, the earlier axis must have sharded it first. So this
        # axis cannot shard a dimension that a later axis shards already.
        later = [d for d, n in zip(cut[each + 1 :], shape[each + 1 :]) if n > 1]
        other = keeps and cut[each] not in (None, dim)
        if not other and (dim is None or shape[each] == 1 or dim not in later):
            placements[each] = placement
            cut[each] = dim
    if dim is not None and cut.count(dim) == len(cut):
        shape, placements = (math.prod(shape),), [placement]
    return TensorTopology(shape, placements, grid.covers)


after_scatter = partial(after_collective, shards=True)
after_partition = partial(after_collective, shards=True, keeps=True)


def unchanged(old: TensorTopology, *where) -> TensorTopology:
    """Return the topology of the operand."""
    return old

"""Unexpected behaviour of ttnn 0.81.1: topologies of results, host conversions, refusals.

Cases with a number (#7e2ea) are golden ones, in tests/conformance; tests/sim/test_quirks.py has the
rest.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ttkit.sim.tensor.enums import DataType
from ttkit.sim.tensor.grid import TensorTopology
from ttkit.sim.tensor.types import Placement, PlacementReplicate, PlacementShard

REPLICATE = PlacementReplicate()


@functools.lru_cache(maxsize=4096)
def merged(grid: Any, *topologies: TensorTopology) -> TensorTopology:
    """Return the topology of a result of these operands on the mesh `grid`.

    An axis that any operand shards is sharded, and the first operand names the dimension (#7e2ea).
    Replicated operands of another distribution rank do not count (#a90fb, #db596). Every chip of
    the mesh is named."""
    sharded = [t for t in topologies if any(p != REPLICATE for p in t._placements)]
    rank = max(len(t._shape) for t in sharded) if sharded else len(topologies[0]._shape)
    shape = [1] * rank
    placements: list[Placement] = [REPLICATE] * rank
    claimed: set[Placement] = set()
    for topology in topologies:
        if len(topology._shape) == rank:
            shape = [max(a, b) for a, b in zip(shape, topology._shape, strict=True)]
            for axis, placement in enumerate(topology._placements):
                if placement != REPLICATE and placement not in claimed:
                    claimed.add(placement)
                    if placements[axis] == REPLICATE:
                        placements[axis] = placement
    return TensorTopology(shape, placements, grid.covers)


# ---------------------------------------------------------------- topologies after collectives
# Read off the library itself: all_gather, all_reduce and the broadcasts clear the axis,
# reduce_scatter and mesh_partition shard it. Values do not matter. Each is found once.
Shape = tuple[int, ...]
Label = tuple[list[Placement], Shape]


def _dim(placement: Placement, rank: int) -> int | None:
    """The tensor dimension that a placement cuts, from 0; None where it cuts none."""
    if isinstance(placement, PlacementShard) and -rank <= placement.dim < rank:
        return placement.dim % rank
    return None


def _one_line(shape: Shape) -> int | None:
    """The only axis of more than one chip, if there is just one."""
    long = [axis for axis, n in enumerate(shape) if n > 1]
    return long[0] if len(long) == 1 else None


def _per_axis(label: TensorTopology, mesh: Shape) -> list[Placement] | None:
    """One placement for each mesh axis; None where the label is of another mesh."""
    if len(label._shape) == len(mesh):
        fits = all(a <= b for a, b in zip(label._shape, mesh, strict=True))
        return list(label._placements) if fits else None
    if len(label._shape) == 1 and label._shape[0] == math.prod(mesh):
        return [label._placements[0] if n > 1 else REPLICATE for n in mesh]
    return None


def _settled(
    placements: list[Placement], shape: Shape, rank: int, last: int | None
) -> Label | None:
    """Make placements consistent: a dimension cut along several axes gives a label of one axis."""
    dims = [_dim(p, rank) for p in placements]
    for axis, n in enumerate(shape):
        if n == 1 and dims[axis] is not None and dims.count(dims[axis]) > 1:
            placements[axis], dims[axis] = REPLICATE, None
    twice = next((d for d in dims if d is not None and dims.count(d) > 1), None)
    if twice is None:
        return placements, shape
    for axis, n in enumerate(shape):
        if n > 1 and (dims[axis] != twice or (last is not None and axis > last)):
            return None
        if n == 1 and placements[axis] != REPLICATE:
            return None
    return [PlacementShard(twice)], (math.prod(shape),)


def _changed(
    old: TensorTopology,
    grid: Any,
    rank: int,
    axis: int | None,
    placement: Placement,
    gathered: int | None = None,
) -> TensorTopology:
    """Return the topology with a new placement along a mesh axis, or (None) along all of them.

    A label that makes no sense to the library stays as it was.

    Args:
        gathered: the dimension of an all_gather, which a later axis must not shard, too.
    """
    mesh, sharded = grid.mesh_shape, placement != REPLICATE
    label: Label | None = None
    placements, line = _per_axis(old, mesh), len(old._shape) == 1 < len(mesh)
    shape = mesh if line else old._shape
    if axis is None:
        if math.prod(old._shape) == math.prod(mesh):
            label = [placement] * len(old._placements), old._shape
            if sharded:
                label = [placement], (math.prod(mesh),)
    elif placements is not None and (line or old._shape[axis] == mesh[axis]):
        cut = [_dim(p, rank) for p in placements]
        later = [cut[i] for i in range(axis + 1, len(mesh)) if shape[i] > 1]
        if line and _one_line(mesh) == axis:
            label = [placement], old._shape
        elif gathered is None or gathered != cut[axis] or gathered not in later:
            placements[axis] = placement
            label = _settled(placements, shape, rank, axis if sharded else None)
    made, shape = label or (list(old._placements), old._shape)
    return TensorTopology(shape, made, grid.covers)


@functools.lru_cache(maxsize=4096)
def gather(
    old: TensorTopology, grid: Any, rank: int, axis: int | None, dim: int | None
) -> TensorTopology:
    """Return the topology after all_gather along `dim`; None: after all_reduce or a broadcast."""
    mesh = grid.mesh_shape
    every = axis is None and dim is None and min(mesh) > 1
    for each in range(len(mesh)) if every else [axis]:
        old = _changed(old, grid, rank, each, REPLICATE, dim)
    return old


@functools.lru_cache(maxsize=4096)
def scatter(
    old: TensorTopology, grid: Any, rank: int, axis: int | None, dim: int
) -> TensorTopology:
    """Return the topology after reduce_scatter along `dim`."""
    axes = range(len(grid.mesh_shape)) if axis is None and min(grid.mesh_shape) > 1 else [axis]
    for each in axes:
        old = _changed(old, grid, rank, each, PlacementShard(dim))
    return old


@functools.lru_cache(maxsize=4096)
def partition(
    old: TensorTopology, grid: Any, rank: int, axis: int | None, dim: int
) -> TensorTopology:
    """Return the topology after mesh_partition: an axis that shards another dimension stays."""
    mesh = grid.mesh_shape
    if axis is None:
        pairs = list(zip(old._placements, old._shape, strict=True))
    else:
        placements = _per_axis(old, mesh)
        line = len(old._shape) == 1 < len(mesh) and _one_line(mesh) == axis
        pairs = [] if line or placements is None else [(placements[axis], 2)]
    if any(n > 1 and p != REPLICATE and _dim(p, rank) != dim for p, n in pairs):
        return TensorTopology(old._shape, old._placements, grid.covers)
    return _changed(old, grid, rank, axis, PlacementShard(dim))


def unchanged(old: TensorTopology, *where: Any) -> TensorTopology:
    """Return the topology of the operand."""
    return old


# ---------------------------------------------------------------- types
def integers(array: np.ndarray, dtype: DataType, target: Any) -> np.ndarray:
    """Truncate floats to integers; out of range, the result is that of the host's instructions.

    Values go through int32, where everything out of range is the least number; small types
    saturate.

    Args:
        target: the NumPy type of `dtype`.
    """
    whole = np.trunc(array)
    wide = np.where(np.abs(whole) < 2.0**63, whole, -(2.0**63)).astype(np.int64)
    narrow = np.where((wide >= -(2**31)) & (wide < 2**31), wide, -(2**31))
    if dtype is DataType.UINT32:
        return np.where((wide >= 2**31) & (wide < 2**32), wide, narrow).astype(target)
    if dtype in (DataType.UINT8, DataType.UINT16):
        return np.clip(narrow, 0, np.iinfo(target).max).astype(target)
    return narrow.astype(target)

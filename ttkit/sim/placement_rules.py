"""What ttnn writes into a tensor's topology after a collective; values do not matter.

Read off the library itself: all_gather, all_reduce and the broadcasts clear the axis,
reduce_scatter and mesh_partition shard it. A label that the library cannot make sense of (a
distribution shape that is not the mesh's) stays as it was.
"""

from __future__ import annotations

import math

from ttkit.sim.grid import Grid, TensorTopology
from ttkit.sim.quirks import REPLICATE
from ttkit.sim.types import MeshShape, Placement, PlacementShard

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
    """One placement for each mesh axis; None where the label does not speak of this mesh."""
    if len(label._shape) == len(mesh):
        return (
            list(label._placements)
            if all(a <= b for a, b in zip(label._shape, mesh, strict=True))
            else None
        )
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


def _topology(label: Label | None, old: TensorTopology, grid: Grid) -> TensorTopology:
    placements, shape = label if label is not None else (list(old._placements), old._shape)
    return TensorTopology(MeshShape(shape), placements, grid.covers)  # type: ignore[arg-type]


def _covers(old: TensorTopology, mesh: Shape) -> bool:
    return math.prod(old._shape) == math.prod(mesh)


def gather(
    old: TensorTopology, grid: Grid, rank: int, axis: int | None, dim: int | None
) -> TensorTopology:
    """After all_gather along `dim`, or (dim None) all_reduce, broadcast and all_broadcast."""
    mesh = grid.mesh_shape
    if axis is None and dim is None and min(mesh) > 1:
        for each in range(len(mesh)):
            old = gather(old, grid, rank, each, None)
        return old
    if axis is None:
        return _topology(
            ([REPLICATE] * len(old._placements), old._shape) if _covers(old, mesh) else None,
            old,
            grid,
        )
    placements, line = _per_axis(old, mesh), len(old._shape) == 1 < len(mesh)
    if placements is None or (not line and old._shape[axis] != mesh[axis]):
        return _topology(None, old, grid)
    if line and _one_line(mesh) == axis:
        return _topology(([REPLICATE], old._shape), old, grid)
    shape = mesh if line else old._shape
    if dim is not None and _dim(placements[axis], rank) == dim:
        if any(
            shape[i] > 1 and _dim(placements[i], rank) == dim for i in range(axis + 1, len(mesh))
        ):
            return _topology(None, old, grid)
    placements[axis] = REPLICATE
    return _topology(_settled(placements, shape, rank, None), old, grid)


def scatter(
    old: TensorTopology, grid: Grid, rank: int, axis: int | None, dim: int
) -> TensorTopology:
    """After reduce_scatter along `dim`."""
    mesh = grid.mesh_shape
    if axis is None and min(mesh) > 1:
        for each in range(len(mesh)):
            old = scatter(old, grid, rank, each, dim)
        return old
    return _cut(old, grid, rank, axis, dim)


def _cut(old: TensorTopology, grid: Grid, rank: int, axis: int | None, dim: int) -> TensorTopology:
    mesh = grid.mesh_shape
    if axis is None:
        return _topology(
            ([PlacementShard(dim)], (math.prod(old._shape),)) if _covers(old, mesh) else None,
            old,
            grid,
        )
    placements, line = _per_axis(old, mesh), len(old._shape) == 1 < len(mesh)
    if placements is None or (not line and old._shape[axis] != mesh[axis]):
        return _topology(None, old, grid)
    if line and _one_line(mesh) == axis:
        return _topology(([PlacementShard(dim)], old._shape), old, grid)
    placements[axis] = PlacementShard(dim)
    return _topology(_settled(placements, mesh if line else old._shape, rank, axis), old, grid)


def partition(
    old: TensorTopology, grid: Grid, rank: int, axis: int | None, dim: int
) -> TensorTopology:
    """After mesh_partition along `dim`: an axis that shards another dimension stays."""
    mesh = grid.mesh_shape
    if axis is None:
        if any(
            n > 1 and p != REPLICATE and _dim(p, rank) != dim
            for p, n in zip(old._placements, old._shape, strict=True)
        ):
            return _topology(None, old, grid)
    else:
        placements = _per_axis(old, mesh)
        if placements is None:
            return _topology(None, old, grid)
        line = len(old._shape) == 1 < len(mesh) and _one_line(mesh) == axis
        if not line and placements[axis] != REPLICATE and _dim(placements[axis], rank) != dim:
            return _topology(None, old, grid)
    return _cut(old, grid, rank, axis, dim)

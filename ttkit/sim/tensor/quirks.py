"""What ttnn 0.81.1 does, as it was seen: topologies of results, conversions on the host.

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
# Values do not matter here, so each topology is found once.
@functools.lru_cache(maxsize=4096)
def _relabelled(
    old: TensorTopology,
    grid: Any,
    rank: int,
    axis: int | None,
    dim: int | None,
    *,
    shards: bool = False,
    keeps: bool = False,
) -> TensorTopology:
    """Return the topology after a collective along a mesh axis, or (None) along all of them.

    Args:
        shards: each chip keeps a shard along `dim`; else all chips of the axis have the same.
        keeps: an axis that shards another dimension stays as it is.
    """
    dim = dim if shards else None
    placement = REPLICATE if dim is None else PlacementShard(dim)
    mesh, shape, placements = grid.mesh_shape, old._shape, list(old._placements)
    if math.prod(shape) != math.prod(mesh):
        return TensorTopology(shape, placements, grid.covers)
    if len(shape) < len(mesh):  # The shards lie in a line over all chips.
        if max(mesh) == shape[0]:
            axis = None
        else:
            shape, placements = mesh, placements * len(mesh)
    # A dimension of a tensor may have a negative number.
    cut = [p.dim % rank if isinstance(p, PlacementShard) else None for p in placements]
    for each in range(len(shape)) if axis is None else [axis]:
        # Two axes shard one dimension in their order, so a later one must not shard it already.
        later = [d for d, n in zip(cut[each + 1 :], shape[each + 1 :], strict=True) if n > 1]
        other = keeps and cut[each] not in (None, dim)
        if not other and (dim is None or shape[each] == 1 or dim not in later):
            placements[each], cut[each] = placement, dim
    if dim is not None and cut.count(dim) == len(cut):
        shape, placements = (math.prod(shape),), [placement]
    return TensorTopology(shape, placements, grid.covers)


gather = _relabelled  # This also serves all_reduce and the broadcasts.
scatter = functools.partial(_relabelled, shards=True)
partition = functools.partial(_relabelled, shards=True, keeps=True)


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

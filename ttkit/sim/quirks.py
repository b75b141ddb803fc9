"""What ttnn 0.81.1 does oddly.

Cases with a number (#7e2ea) are golden ones, in tests/conformance; tests/sim/test_quirks.py has the
rest."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ttkit.dialect import is_strict
from ttkit.errors import fail
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.grid import TensorTopology
from ttkit.sim.types import (
    MeshShape,
    Placement,
    PlacementReplicate,
)

REPLICATE = PlacementReplicate()


@functools.lru_cache(maxsize=4096)
def merged(grid: Any, *topologies: TensorTopology) -> TensorTopology:
    """What ttnn says of a result with these operands on the mesh `grid`, whatever their values.

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
    return TensorTopology(MeshShape(shape), placements, grid.covers)


@functools.lru_cache(maxsize=256)
def of_nothing(grid: Any) -> TensorTopology:
    """The topology of a product with a dimension of 0: that of a new tensor of zeros."""
    return TensorTopology(MeshShape([len(grid.covers)]), [REPLICATE], grid.covers)


# Elements that the host converts at a time.
LANES = {DataType.UINT8: 8, DataType.UINT16: 4, DataType.UINT32: 8}


def integers(array: np.ndarray, dtype: DataType, target: Any, rows: int | None) -> np.ndarray:
    """Floats as integers: truncated; what does not fit becomes what the host's instructions give.

    Values go through int32, where everything out of range is the least number; small types
    saturate, uint32 wraps. The end of a row-major shard that fills no vector wraps instead.

    Args:
        target: the NumPy type of `dtype`.
        rows: how many leading axes count the shards of a row-major tensor; None in tiles.
    """
    whole = np.trunc(array)
    fits = np.abs(whole) < 2.0**63
    wide = np.where(fits, whole, 0).astype(np.int64)
    in_range = fits & (wide >= -(2**31)) & (wide < 2**31)
    narrow = np.where(in_range, wide, -(2**31))
    if dtype not in LANES:
        return narrow.astype(target)
    if array.dtype == np.float16:
        return wide.astype(target)
    if dtype is DataType.UINT32:
        wrapped = wide.astype(target)
        out = np.where((wide >= 2**31) & (wide < 2**32), wide, narrow).astype(target)
    else:
        wrapped = narrow.astype(target)
        out = np.clip(narrow, 0, np.iinfo(target).max).astype(target)
    if rows is not None and array.size:
        shards = math.prod(array.shape[:rows])
        tail = array.size // shards % LANES[dtype]
        if tail:
            out.reshape(shards, -1)[:, -tail:] = wrapped.reshape(shards, -1)[:, -tail:]
    return out


UNSUMMED = (DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.BFLOAT4_B)


def check_summed(tensor: Any, call: Any) -> None:
    """all_reduce adds whole tiles of any type, but all other shards by moreh_sum, which takes
    few.
    """
    whole_tiles = tensor.layout is Layout.TILE and tensor.shard_shape == tensor.padded
    if not whole_tiles and tensor.dtype in UNSUMMED and is_strict():
        rule = (
            "moreh_sum input only supports specific data types. [BFLOAT16, INT32]: a shard that is"
        )
        rule += (
            f" not whole tiles is added up by moreh_sum, which does not take {tensor.dtype.name}"
        )
        fail(call.asked, rule, "ttnn.typecast(tensor, ttnn.bfloat16)")


def converted_on_device(source: str, plain: DataType, dtype: DataType, layout: Layout) -> bool:
    """True where ttnn uploads a host array first and converts it there.

    Like any operation, that leaves a topology that names every device (mapper.json, partial
    meshes).

    Args:
        source: the host type's name.
        plain: what it becomes when no dtype is given.
    """
    if dtype not in (DataType.BFLOAT16, DataType.FLOAT32):
        return False
    if source in ("float32", "bfloat16"):
        return layout is Layout.TILE or plain is not dtype
    return layout is Layout.TILE and source in ("float16", "int64")

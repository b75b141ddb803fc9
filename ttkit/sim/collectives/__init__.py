"""Join, add up and cut shards along the leading axes of a tensor's array, for the collectives.

An array has a leading axis for each mesh axis, or one leading axis for all chips if
they form no rectangle. An axis has length 1 where the shards along it are the same.
"""

import math
from functools import cache, partial

import numpy as np

from ttkit.sim import blocks
from ttkit.sim.blocks import PARTS, THREADS_PAY_FROM
from ttkit.sim.ops import Array, looked_up
from ttkit.sim.tensor.grid import Grid, place_of
from ttkit.sim.tensor.tensor import Tensor

# This is the number of chips along each leading axis; in `places` it is a tuple of mesh axes.
Chips = tuple[int, ...]
# From this many elements on, BLAS adds up with its own threads. That is a third faster, but these
# threads spin for some 25 ms afterwards and take a core from the next operation.
BLAS_THREADS_FROM = 1 << 24

# Up to this many elements (32 ranks with `mpi.EXACT_UP_TO` bytes each), shards are added in mesh
# order, so that a sum has the same bits on every CPU and for every number of ranks. Larger sums use
# BLAS, which is faster and adds in its own order.
ORDERED_UP_TO = 1 << 17


def expanded(array: Array, chips: Chips, axes: list[int]) -> Array:
    """Return the array with the named leading axes at full length."""
    shape = list(array.shape)
    for axis in axes:
        shape[axis] = chips[axis]
    return array if shape == list(array.shape) else np.broadcast_to(array, shape)


def exchanged(
    array: Array,
    chips: Chips,
    axes: list[int],
    into: int | None = None,
    cut: int | None = None,
    *,
    sums: bool = False,
) -> Array:
    """Exchange shards along mesh `axes`: cut each along dimension `cut`, join them along `into`.

    Chips are in row-major order. Without `cut` each chip gets the whole result. Without `into` the
    shards along the axes must be equal (length 1 in the array), and each chip keeps its own part.

    Args:
        sums: whether the shards along the axes are added first, which makes them one
            replica.
    """
    if sums:
        array = summed(array, chips, axes)
    if into is None and cut is None:
        return array
    lead = len(chips)
    sizes = [chips[a] for a in axes]
    n = math.prod(sizes)
    array = array if into is None else expanded(array, chips, axes)
    shape = list(array.shape)
    order = list(range(array.ndim))
    if cut is not None:
        at = lead + cut
        shape[at] //= n
        array = array.reshape(array.shape[:at] + (*sizes, shape[at]) + array.shape[at + 1 :])
        # The axes of the parts take the places of the mesh axes, so this part of `order` does not
        # have them.
        order[at:] = range(at + len(axes), array.ndim)
    for i, axis in enumerate(axes):
        shape[axis] = 1 if cut is None else sizes[i]
        order[axis] = -1 if cut is None else at + i
    if into is not None:
        shape[lead + into] *= n
    place = lead + (into or 0)
    front = [a for a in order[:lead] if a >= 0]
    return array.transpose(front + order[lead:place] + axes + order[place:]).reshape(shape)


def summed(array: Array, chips: Chips, axes: list[int]) -> Array:
    """Add the shards along mesh `axes` into one replica.

    Where one shard stands for N chips, because the axis has length 1, it counts N times.
    """
    times = 1
    for axis in axes:
        n = array.shape[axis]
        if n == 1:
            times *= chips[axis]
        elif array.dtype != np.float32:
            array = array.sum(axis, keepdims=True, dtype=array.dtype)
        elif n == 2:
            first, second = (array[(slice(None),) * axis + (slice(i, i + 1),)] for i in (0, 1))
            array = np.add(first, second)
        else:
            before = math.prod(array.shape[:axis])
            after = array.shape[axis + 1 :]
            out = blocks.empty((before, 1, math.prod(after)))
            if not blocks.idle[0]:
                _add_up(np.ascontiguousarray(array).reshape(before, n, -1), out)
            array = out.reshape(array.shape[:axis] + (1,) + after)
    return array if times == 1 else array * array.dtype.type(times)


def _add_up(parts: Array, out: Array) -> None:
    """Add up `parts` [many, n, size] along n, and write the sums into `out` [many, 1, size]."""
    many, n, size = parts.shape
    if parts.size <= ORDERED_UP_TO:
        # For size > 1, NumPy adds row after row, because the rows lie along the fastest axis.
        if size > 1:
            np.add.reduce(parts, 1, keepdims=True, out=out)
        else:
            out[:] = np.add.accumulate(parts, 1)[:, -1:]
        return
    row = np.ones((1, n), np.float32)
    if not THREADS_PAY_FROM <= parts.size < BLAS_THREADS_FROM:
        np.matmul(row, parts, out=out)
        return
    step = max(1, -(-size * many // PARTS))
    columns = [slice(low, low + step) for low in range(0, size, step)]
    blocks.run(
        partial(np.matmul, row, parts[i][:, c], out=out[i][:, c])
        for i in range(many)
        for c in columns
    )


def partitioned(tensor: Tensor, axes: list[int], dim: int) -> Array:
    """Return each chip's part of `dim`.

    The place of a chip along mesh `axes`, in row-major order, is the number of its part.
    """
    array = tensor.array
    lead = tensor.grid.lead
    full, at = array.shape, lead + dim
    parts = math.prod(tensor.grid.mesh_shape[a] for a in axes)
    view = array.reshape(full[:at] + (parts, full[at] // parts) + full[at + 1 :])
    return looked_up(np.moveaxis(view, at, lead), lead, places(tensor.grid, tuple(axes)))


@cache
def places(grid: Grid, axes: Chips) -> Array:
    """Return an array over the chips of a grid with the place of each chip along mesh axes.

    The array has length 1 along the other mesh axes, unless the grid has one flat axis.
    """
    lengths = tuple(grid.mesh_shape[a] for a in axes)
    places = [place_of(tuple(c[a] for a in axes), lengths) for c in grid.coords]
    numbers = np.array(places, np.int64).reshape(grid.shape)
    if grid.lead != len(grid.mesh_shape):
        return numbers
    return numbers[tuple(slice(None if a in axes else 1) for a in range(grid.lead))]

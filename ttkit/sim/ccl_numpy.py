"""What collectives do to a tensor's array: join, add up and cut shards along leading axes."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ttkit.sim import blocks
from ttkit.sim.blocks import PIECES, THREADS_PAY_FROM
from ttkit.sim.tensor import Tensor

Array = np.ndarray
# Elements from which BLAS adds up with threads of its own: a third faster, but they spin for some
# 25 ms afterwards and take a core from what follows.
BLAS_THREADS_FROM = 1 << 24

# Elements up to which a sum is in mesh order, the same bits on every CPU and for every number of
# ranks: those of 32 ranks at `ccl_mpi.EXACT_BELOW` bytes. BLAS is faster above, in its own order.
ORDERED_UP_TO = 1 << 17


def expanded(tensor: Tensor, axes: list[int]) -> Array:
    """The array with the named leading axes at full length."""
    array = tensor._array  # a collective has checked that it is allocated
    shape = list(array.shape)
    for axis in axes:
        shape[axis] = tensor.grid.shape[axis]
    return array if shape == list(array.shape) else np.broadcast_to(array, shape)


def gathered(tensor: Tensor, axes: list[int], dim: int) -> Array:
    """Shards along mesh `axes` (in row-major order) joined along `dim`.

    The axes end with one copy.
    """
    array, lead = expanded(tensor, axes), len(tensor.grid.shape)
    keep, local = [a for a in range(lead) if a not in axes], list(range(lead, array.ndim))
    shape = [1 if a in axes else n for a, n in enumerate(array.shape)]
    shape[lead + dim] *= math.prod(array.shape[a] for a in axes)
    return array.transpose(keep + local[:dim] + axes + local[dim:]).reshape(shape)


_ones: dict[int, Array] = {}


def summed(tensor: Tensor, axes: list[int]) -> Array:
    """Shards along mesh `axes` added; they end with one copy. Of N replicas, each counts."""
    return added(tensor._array, axes, [tensor.grid.shape[axis] for axis in axes])


@np.errstate(all="ignore")  # a card adds up to infinity without a message
def added(array: Array, axes: list[int], lengths: list[int]) -> Array:
    """`summed` for an array.

    `lengths` counts the chips along the axes, also where there is one copy.
    """
    times = 1
    for axis, chips in zip(axes, lengths, strict=True):
        n = array.shape[axis]
        if n == 1:
            times *= chips
        elif array.dtype != np.float32:
            array = array.sum(axis, keepdims=True, dtype=array.dtype)
        elif n == 2:
            first, second = (array[(slice(None),) * axis + (slice(i, i + 1),)] for i in (0, 1))
            array = np.add(first, second)
        else:
            before, after = math.prod(array.shape[:axis]), array.shape[axis + 1 :]
            out = blocks.empty((before, 1, math.prod(after)))
            _add_up(np.ascontiguousarray(array).reshape(before, n, -1), out)
            array = out.reshape(array.shape[:axis] + (1,) + after)
    return array if times == 1 else array * array.dtype.type(times)


def _add_up(parts: Array, out: Array) -> None:
    """The sum of [many, n, size] over n, into `out` [many, 1, size]."""
    many, n, size = parts.shape
    if parts.size <= ORDERED_UP_TO:
        if size > 1:  # NumPy adds row after row, because the rows are along the fast axis
            np.add.reduce(parts, 1, keepdims=True, out=out)
        else:
            out[:] = np.add.accumulate(parts, 1)[:, -1:]
        return
    row = _ones.setdefault(n, np.ones((1, n), np.float32))
    if not THREADS_PAY_FROM <= parts.size < BLAS_THREADS_FROM:
        np.matmul(row, parts, out=out)
        return
    step = max(1, -(-size * many // PIECES))
    columns = [slice(low, low + step) for low in range(0, size, step)]
    blocks.run(
        partial(np.matmul, row, parts[i][:, c], out=out[i][:, c])
        for i in range(many)
        for c in columns
    )


def reduced(tensor: Tensor, axes: list[int], dim: int) -> Array:
    """Shards along mesh `axes` added, each chip keeping its piece of `dim`."""
    shape = tensor.grid.shape
    return scattered(summed(tensor, axes), len(shape), axes, [shape[a] for a in axes], dim)


def scattered(array: Array, lead: int, axes: list[int], sizes: list[int], dim: int) -> Array:
    """Cut `dim` over mesh `axes` of those sizes, of length 1 before; each chip keeps its piece."""
    parts = math.prod(sizes)
    full = array.shape
    split = (
        full[: lead + dim] + tuple(sizes) + (full[lead + dim] // parts,) + full[lead + dim + 1 :]
    )
    pieces = array.reshape(split)
    home = {axis: lead + dim + i for i, axis in enumerate(axes)}
    rest = [i for i in range(lead, pieces.ndim) if i not in home.values()]
    order = [home.get(a, a) for a in range(lead)] + rest + axes
    return pieces.transpose(order).reshape(
        [pieces.shape[i] for i in order[: len(order) - len(axes)]]
    )


def each(tensor: Tensor, over: int) -> list[Array]:
    """The shards along one mesh axis, each on all chips of the axis."""
    array = expanded(tensor, [over])
    return [array[(slice(None),) * over + (slice(i, i + 1),)] for i in range(array.shape[over])]


def one_of(tensor: Tensor, over: int, at: int) -> Array:
    """The shard at place `at` of one mesh axis, on all chips of the axis."""
    array = tensor.array
    return array[(slice(None),) * over + (slice(at, at + 1),)] if array.shape[over] > 1 else array


def partitioned(tensor: Tensor, axes: list[int], dim: int) -> Array:
    """Each chip's piece of `dim`, by its place along mesh `axes` (in row-major order)."""
    sizes = [n if a in axes else 1 for a, n in enumerate(tensor.grid.shape)]
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    return cut(tensor, axes, dim, math.prod(sizes), numbers)


def cut(tensor: Tensor, axes: list[int], dim: int, parts: int, numbers: Array) -> Array:
    """Of `dim` in `parts` pieces, the one that `numbers` names for each chip."""
    array, lead = expanded(tensor, axes), len(tensor.grid.shape)
    piece = tensor.shard_shape[dim] // parts
    view = array.reshape(array.shape[: lead + dim] + (parts, piece) + array.shape[lead + dim + 1 :])
    index = numbers.reshape(numbers.shape + (1,) * (view.ndim - lead))
    taken = np.take_along_axis(
        np.broadcast_to(
            view, np.broadcast_shapes(view.shape[:lead], numbers.shape) + view.shape[lead:]
        ),
        index,
        lead + dim,
    )
    return taken.reshape(taken.shape[: lead + dim] + (piece,) + taken.shape[lead + dim + 2 :])


def sent(tensor: Tensor, base: Tensor, sender: tuple[int, ...], receiver: tuple[int, ...]) -> Array:
    """The values of `base`, but at `receiver` those that `tensor` has at `sender`."""
    values = np.array(base.full_array())
    values[receiver] = tensor.full_array()[sender]
    return values

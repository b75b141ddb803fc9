"""What collectives do to the array of a tensor: shards joined, added up, cut, along leading axes."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ttkit.sim import recycle
from ttkit.sim.blocks import PIECES, THREADS_PAY_FROM
from ttkit.sim.tensor import Tensor
from ttkit.sim.threads import together

Array = np.ndarray
# Elements from which BLAS adds up with threads of its own: a third faster, but they spin for some 25 ms afterwards and take a core from what follows.
BLAS_THREADS_FROM = 1 << 24


def expanded(tensor: Tensor, axes: list[int]) -> Array:
    """The array with the named leading axes at full length."""
    array, shape = tensor.array, list(tensor.array.shape)
    for axis in axes:
        shape[axis] = tensor.grid.shape[axis]
    return array if shape == list(array.shape) else np.broadcast_to(array, shape)


def gathered(tensor: Tensor, axes: list[int], dim: int) -> Array:
    """Shards along mesh `axes` (in row-major order) joined along shard dimension `dim`; the axes end with one copy."""
    lead = len(tensor.grid.shape)
    array = expanded(tensor, axes)
    keep = [a for a in range(lead) if a not in axes]
    order = keep + [lead + d for d in range(dim)] + axes + [lead + d for d in range(dim, array.ndim - lead)]
    joined = array.transpose(order)
    shape = [1 if a in axes else array.shape[a] for a in range(lead)]
    local = list(tensor.shard_shape)
    local[dim] *= math.prod(array.shape[a] for a in axes)
    return joined.reshape(shape + local)


_ones: dict[int, Array] = {}


def summed(tensor: Tensor, axes: list[int]) -> Array:
    """Shards along mesh `axes` added; the axes end with one copy. A replicated axis of N chips counts N times."""
    array, times = tensor.array, 1
    for axis in axes:
        n = array.shape[axis]
        if n == 1:
            times *= tensor.grid.shape[axis]
        elif array.dtype != np.float32:
            array = array.sum(axis, keepdims=True, dtype=array.dtype)
        elif n == 2:
            first, second = (array[(slice(None),) * axis + (slice(i, i + 1),)] for i in (0, 1))
            array = np.add(first, second)
        else:
            before, after = math.prod(array.shape[:axis]), array.shape[axis + 1 :]
            out = recycle.empty((before, 1, math.prod(after)))
            _add_up(np.ascontiguousarray(array).reshape(before, n, -1), out)
            array = out.reshape(array.shape[:axis] + (1,) + after)
    return array if times == 1 else array * array.dtype.type(times)


def _add_up(parts: Array, out: Array) -> None:
    """The sum of [many, n, size] over n, into `out` [many, 1, size]: a product with ones is the fastest."""
    many, n, size = parts.shape
    row = _ones.setdefault(n, np.ones((1, n), np.float32))
    if not THREADS_PAY_FROM <= parts.size < BLAS_THREADS_FROM:
        np.matmul(row, parts, out=out)
        return
    step = max(1, -(-size * many // PIECES))
    columns = [slice(low, low + step) for low in range(0, size, step)]
    together(partial(np.matmul, row, parts[i][:, c], out=out[i][:, c]) for i in range(many) for c in columns)


def scattered(array: Array, tensor: Tensor, axes: list[int], dim: int) -> Array:
    """Shard dimension `dim` cut over mesh `axes` (in row-major order), each chip keeping its piece; the axes are of length 1 before."""
    lead = len(tensor.grid.shape)
    sizes = [tensor.grid.shape[a] for a in axes]
    parts = math.prod(sizes)
    full = array.shape
    split = full[: lead + dim] + tuple(sizes) + (full[lead + dim] // parts,) + full[lead + dim + 1 :]
    pieces = array.reshape(split)
    home = {axis: lead + dim + i for i, axis in enumerate(axes)}
    rest = [i for i in range(lead, pieces.ndim) if i not in home.values()]
    order = [home.get(a, a) for a in range(lead)] + rest + axes
    return pieces.transpose(order).reshape([pieces.shape[i] for i in order[: len(order) - len(axes)]])

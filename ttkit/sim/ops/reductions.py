"""Operations that reduce dimensions of each chip's shard: sums, extremes, statistics, indices.

Running sums, losses, and sums and look-ups by index are here, too.

A new reduction with the same arguments is one row in `REDUCTIONS`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ttkit.sim import blocks
from ttkit.sim.arguments import refuse
from ttkit.sim.ops import (
    OPERATIONS,
    Array,
    Operands,
    axis_of,
    each_element,
    in_whole_tiles,
    operation,
    result,
    shaped,
    spread,
)
from ttkit.sim.ops.shaping import axes_of, shards, split
from ttkit.sim.tensor import DataType, Layout, enumeration
from ttkit.sim.tensor.dtypes import FLOATS, convert
from ttkit.sim.tensor.tensor import Tensor

Axes = tuple[int, ...]
Dims = int | Sequence[int] | None
F = np.float32


# ---------------------------------------------------------------- the table
def _sum(x: Array, axes: Axes) -> Array:
    if x.dtype == F and axes == (x.ndim - 1,) and x.shape[-1] > 1:
        return x @ np.ones((x.shape[-1], 1), F)  # A matmul with ones is the fastest sum along rows.
    return x.sum(axes, keepdims=True, dtype=x.dtype)


def _mean(x: Array, axes: Axes) -> Array:
    return _sum(x, axes) * (F(1) / F(math.prod(x.shape[i] for i in axes)))


def _variance(x: Array, axes: Axes) -> Array:
    """Return the sum of squared deviations divided by n - 1; it is NaN where n is 1."""
    n = F(math.prod(x.shape[a] for a in axes))
    centred = x - x.sum(axes, keepdims=True) / n
    return (centred * centred).sum(axes, keepdims=True) / (n - F(1))


# Each row has a function of an array and axes, and the flops per element.
REDUCTIONS: dict[str, tuple[Callable[[Array, Axes], Array], int]] = {
    "sum": (_sum, 1),
    "mean": (_mean, 1),
    "max": (partial(np.maximum.reduce, keepdims=True), 1),
    "min": (partial(np.minimum.reduce, keepdims=True), 1),
    "prod": (partial(np.multiply.reduce, keepdims=True), 1),
    # These four flops add an element for the mean, subtract the mean, square the difference, and
    # add the square.
    "var": (_variance, 4),
    "std": (lambda x, axes: np.sqrt(_variance(x, axes)), 4),
}


def _register(name: str) -> None:
    function, flops = REDUCTIONS[name]

    def call(
        input_tensor: Tensor,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        scalar: float = 1.0,
        dims: Dims = None,
    ) -> Tensor:
        array, lead = shards(input_tensor)
        if input_tensor.dtype not in FLOATS and name in ("mean", "var", "std"):
            rule = f"ttnn.{name} does not support inputs of type"
            refuse(f"{rule} DataType::{input_tensor.dtype.name}", "ttnn.typecast")
        axes = axes_of(input_tensor, dims or dim)
        values = function(array, tuple(lead + a for a in axes))
        if not keepdim and not dims:  # Only prod takes `dims`; these keep size 1.
            kept = [n for i, n in enumerate(input_tensor.shard_shape) if i not in axes]
            values = shaped(values, lead, *kept)
        return result(input_tensor, values if scalar == 1 else values * F(scalar))

    call.__doc__ = f"""Return the {name} over dimensions of each shard; tile padding does not count.

    Each chip reduces its own shard; `ttnn.all_reduce` adds over chips.
    """
    operation(name, flops=each_element(flops))(call)


for _name in REDUCTIONS:
    _register(_name)


LossReductionMode = enumeration("LossReductionMode", "NONE MEAN SUM")


def _enter_loss(name: str, error: np.ufunc) -> None:
    def call(input_reference, input_prediction, *, reduction=LossReductionMode.NONE) -> Tensor:
        """Return the error of each element, or the mean or the sum of all errors."""
        on = Operands(input_reference, input_prediction)
        errors = on.result(error(np.subtract(*on.broadcast())))
        fold = OPERATIONS.get(reduction.name.lower())
        return fold.call(errors) if fold else errors

    operation(name)(call)


_enter_loss("l1_loss", np.abs)
_enter_loss("mse_loss", np.square)


def _enter_running(name: str, function: np.ufunc) -> None:
    def call(
        input: Tensor, dim: int, *, dtype: DataType | None = None, reverse_order: bool = False
    ) -> Tensor:
        """Cast each shard to `dtype`, and return its running sums (or products) along `dim`."""
        array, lead = shards(input)
        axis = lead + axis_of(input, dim)
        array = convert(array, dtype or input.dtype)
        array = np.flip(array, axis) if reverse_order else array
        values = function.accumulate(array, axis, array.dtype)
        return result(input, np.flip(values, axis) if reverse_order else values, dtype=dtype)

    operation(name, flops=each_element())(call)


_enter_running("cumsum", np.add)
_enter_running("cumprod", np.multiply)


# ---------------------------------------------------------------- indices of the largest
@operation("argmax", flops=each_element())
def argmax(input_tensor: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the index of the largest element along `dim` of each shard, as uint32, row-major."""
    array, lead = shards(input_tensor)
    if dim is not None:
        found = array.argmax(lead + axis_of(input_tensor, dim), keepdims=keepdim)
    else:
        if input_tensor.layout is Layout.TILE:
            refuse("For inputs with TILE layout, dim parameter must be specified!", "dim=-1")
        found = shaped(array, lead, -1).argmax(-1)
        found = found.reshape(found.shape + (1,) * len(input_tensor.shard_shape) * keepdim)
    return result(input_tensor, found, dtype=DataType.UINT32, layout=Layout.ROW_MAJOR)


@operation("topk")
def topk(input_tensor: Tensor, k: int = 32, dim: int = -1, largest: bool = True) -> list[Tensor]:
    """Return [values, indices] of the k largest or smallest elements along `dim`, sorted."""
    on = Operands(input_tensor)
    axis = on.lead + axis_of(input_tensor, dim)
    (array,) = on.arrays
    # Unsigned numbers cannot be negated to sort from the largest.
    signed = array if array.dtype.kind == "f" else array.astype(np.int64)
    order = np.argsort(-signed if largest else signed, axis, kind="stable")
    taken = np.take(order, range(k), axis)
    narrow = array.shape[axis] < 65536 and input_tensor.dtype is not DataType.FLOAT32
    index_type = DataType.UINT16 if narrow else DataType.UINT32
    return [on.result(np.take_along_axis(array, taken, axis)), on.result(taken, index_type)]


@operation("sort")
def sort(input_tensor: Tensor, dim: int = -1, descending: bool = False) -> list[Tensor]:
    """Return [values, indices] of all elements along `dim`; equal ones keep their order."""
    return topk(input_tensor, input_tensor.shape[dim], dim, descending)


# ---------------------------------------------------------------- other sums, and gather
@operation("experimental.fast_reduce_nc", flops=each_element())
def fast_reduce_nc(input: Tensor, *, dims: Sequence[int] = ()) -> Tensor:
    """Return the sum over `dims`, which must not be the last two; each of `dims` keeps size 1.

    As in ttnn, the result has whole tiles. Example: the sum over dim 0 of [chips, 1, s, n] adds up
    the shards that `all_gather` joined along that dimension.
    """
    on = Operands(input)
    values = _sum(on.arrays[0], tuple(on.lead + axis for axis in axes_of(input, dims)))
    return on.result(in_whole_tiles(values))


@operation("experimental.deepseek_moe_fast_reduce_nc", flops=each_element())
def deepseek_moe_fast_reduce_nc(input_tensor: Tensor, dim: int, *, split_size: int) -> list[Tensor]:
    """Return the sum over `dim`, which keeps size 1; cut it into parts along the last dimension.

    Each part has the size `split_size`; the last one may be smaller.
    """
    return split(fast_reduce_nc(input_tensor, dims=[dim]), split_size, -1)


@operation("gather", "arrange", moves="part")
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return the element of `input` at each index along `dim`, as torch does.

    Args:
        index: whole numbers, in as many dimensions as `input`; it may be longer only along `dim`.
    """
    on = Operands(input, index)
    axis = _checked_axis(input, dim, index)
    x, places = spread(on.arrays, on.lead)
    within = (*index.shard_shape[:axis], x.shape[on.lead + axis], *index.shard_shape[axis + 1 :])
    x = x[(slice(None),) * on.lead + tuple(map(slice, within))]
    # As in ttnn, indices are unsigned: NumPy refuses -1, because it becomes a large number.
    return on.result(np.take_along_axis(x, places.astype(np.uint32), on.lead + axis))


@operation("scatter", flops=each_element())
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str | None = None
) -> Tensor:
    """Return `input` with each element of `src` at its index along `dim`, as torch does.

    Args:
        index: whole numbers, in as many dimensions as `input`; it may be longer only along `dim`.
        src: at least as long as `index` in each dimension.
        reduce: "add" or "multiply", to combine an element with the one that is there.
    """
    on = Operands(input, index, src)
    axis = _checked_axis(input, dim, index)
    x, places, values = spread(on.arrays, on.lead)
    inner = (slice(None),) * on.lead + tuple(map(slice, index.shard_shape))
    write = getattr(np, reduce).at if reduce else np.put
    return on.result(_write_at(x.copy(), on.lead + axis, places, values[inner], write))


@operation("scatter_add", flops=each_element())
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Return `input` plus each element of `src` at its index along `dim`, as torch does."""
    return scatter(input, dim, index, src, reduce="add")


@operation("embedding_bw", flops=each_element())
def embedding_bw(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    output_gradient_tensor: Tensor,
    *,
    dtype: DataType | None = None,
) -> Tensor:
    """Return the gradient of the table of `embedding`, [1, 1, vocabulary, n], in tiles.

    Args:
        input_tensor: the indices [b, s]; s is a multiple of 32.
        weight_tensor: the table; only its shape is used.
        output_gradient_tensor: [1, 1, b * s, n], bfloat16 or bfloat8_b.
    """
    on = Operands(output_gradient_tensor, input_tensor)
    values, indices = spread(on.arrays, on.lead)
    lead = values.shape[: on.lead]
    places = np.broadcast_to(shaped(indices, on.lead, 1, 1, -1, 1), values.shape)
    out = blocks.empty((*lead, 1, 1, *weight_tensor.shard_shape[-2:]))
    out[...] = 0
    return on.result(_write_at(out, on.lead + 2, places, values), dtype, layout=Layout.TILE)


def _write_at(into: Array, axis: int, places: Array, values: Array, write=np.add.at) -> Array:
    """Add each value to `into`, at its place along an axis; return `into`, which is changed.

    Args:
        write: `np.put` replaces the element, and `np.multiply.at` multiplies it.
    """
    if blocks.idle[0]:
        return into
    first = places.min(initial=0)
    last = places.max(initial=0)
    most = into.shape[axis]
    if first < 0 or last >= most:
        refuse(f"index {first if first < 0 else last} is not one of 0 to {most - 1}")
    at: list[Array] = list(np.indices(places.shape, sparse=True))
    at[axis] = places.astype(np.int64)
    # `np.add.at` is ten times as fast with one flat index as with an index for each axis.
    flat = np.ravel_multi_index(tuple(at), into.shape)
    write(into.reshape(-1), flat.reshape(-1), values.reshape(-1))
    return into


def _checked_axis(input: Tensor, dim: int, index: Tensor) -> int:
    """Return the axis of `dim`; refuse an index that is longer than `input` in another axis."""
    axis = axis_of(input, dim)
    sizes = list(zip(index.shard_shape, input.shard_shape, strict=True))
    long = [d for d, (n, ours) in enumerate(sizes) if n > ours and d != axis]
    if long:
        refuse(f"index_shape[d] <= input_shape[d] == false for d in {long}")
    return axis

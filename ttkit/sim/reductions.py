"""Operations that fold dimensions of each chip's shard: sums, extremes, statistics, places.

A new fold of the same arguments is one row in `FOLDS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.dtypes import BLOCK_FLOATS, FLOATS, convert
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.operation import each_element, on_mesh, operation, result
from ttkit.sim.tensor import Tensor
from ttkit.sim.types import integer

Array = np.ndarray
Axes = tuple[int, ...]
Dims = int | Sequence[int] | None
F = np.float32


# ---------------------------------------------------------------- the table
def _sum(x: Array, axes: Axes, correction: Any) -> Array:
    if x.dtype == F and axes == (x.ndim - 1,) and x.shape[-1] > 1:
        return x @ np.ones((x.shape[-1], 1), F)  # a product with ones is the fastest sum of rows
    return x.sum(axes, keepdims=True, dtype=x.dtype)


def _mean(x: Array, axes: Axes, correction: Any) -> Array:
    return _sum(x, axes, None) * (F(1) / F(math.prod(x.shape[i] for i in axes)))


def _variance(x: Array, axes: Axes, correction: bool) -> Array:
    """NumPy's variance, NaN without a warning where there are too few elements."""
    n = F(math.prod(x.shape[a] for a in axes))
    centred = x - x.sum(axes, keepdims=True) / n
    return (centred * centred).sum(axes, keepdims=True) / np.maximum(n - F(correction), F(0))


ALL = tuple(kind for kind in DataType if kind is not DataType.BFLOAT4_B)
# name -> what it does with axes, the element types that it takes, flops for each element
FOLDS: dict[str, tuple[Callable[[Array, Axes, bool], Array], tuple[DataType, ...], int]] = {
    "sum": (_sum, ALL, 1),
    "mean": (_mean, FLOATS[:3], 1),
    "max": (lambda x, axes, _: x.max(axes, keepdims=True), ALL, 1),
    "min": (lambda x, axes, _: x.min(axes, keepdims=True), ALL, 1),
    "var": (_variance, FLOATS[:3], 4),  # add up; subtract, square, add up
    "std": (lambda x, axes, c: np.sqrt(_variance(x, axes, c)), FLOATS[:3], 4),
}
HINTS = "memory_config compute_kernel_config sub_core_grids fast_and_approximate_mode"


def _axes(name: str, tensor: Tensor, dim: Dims) -> list[int]:
    rank = len(tensor.shard_shape)
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(rank))
    asked = describe(name, (tensor, dim))
    axes = []
    for i, d in enumerate(dim if isinstance(dim, (list, tuple)) else [dim]):
        d = integer(d, asked)
        if not -rank <= d < max(rank, 1):
            rule = f"Unsupported dim {d} at index {i}. After possible adjustment, needs to be"
            rule += f" at least 0 and less than rank {rank}"
            fail(asked, rule, f"a dim from {-rank} to {rank - 1}")
        axes.append(d % rank if rank else 0)
    if len(set(axes)) != len(axes):
        fail(asked, f"reduce dim list contains a duplicate axis after sorting: {axes}")
    return axes if rank else []


def _check(name: str, tensor: Tensor, takes: tuple[DataType, ...], layout: Layout | None) -> None:
    asked = describe(name, (tensor,))
    if tensor.mesh is None:
        fail(asked, "Expected input tensor to be on device", "ttnn.to_device(tensor, mesh)")
    on_mesh(name, tensor)
    if tensor.dtype not in takes:
        rule = f"ttnn.{name} does not support integer inputs"
        if tensor.dtype is DataType.BFLOAT4_B:
            rule = (
                "Only FLOAT32, BFLOAT16, BFLOAT8_B, and UINT32 are supported for generic reduction"
            )
        fail(asked, f"{rule} - got DataType::{tensor.dtype.name}", "ttnn.typecast")
    if layout is Layout.ROW_MAJOR and tensor.dtype in BLOCK_FLOATS:
        rule = f"output_layout=ROW_MAJOR is not supported for a {tensor.dtype.name} result"
        fail(asked, rule, "ttnn.typecast it afterwards")


def _folded(
    name: str,
    tensor: Tensor,
    dim: Dims,
    keepdim: bool,
    fold: Callable[[Array, Axes], Array],
    takes: tuple[DataType, ...],
    layout: Layout | None = None,
) -> Tensor:
    """The body of every fold."""
    _check(name, tensor, takes, layout)
    axes, lead = _axes(name, tensor, dim), len(tensor.grid.shape)
    # Of one number there is no sum to take, but it has a variance.
    some = axes or name in ("std", "var")
    values = fold(tensor.array, tuple(lead + a for a in axes)) if some else tensor.array
    if not keepdim:
        kept = tuple(n for i, n in enumerate(tensor.shard_shape) if i not in axes)
        values = values.reshape(values.shape[:lead] + kept)
    return result(tensor, values, layout=layout, owned=bool(axes))


def _enter(name: str) -> None:
    function, takes, flops = FOLDS[name]

    def call(
        input_tensor: Tensor,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        scalar: float = 1.0,
        correction: bool | None = True,
        output_layout: Layout | None = None,
    ) -> Tensor:
        def fold(array: Array, axes: Axes) -> Array:
            values = function(array, axes, bool(correction))
            return values if scalar == 1.0 else values * F(scalar)

        return _folded(name, input_tensor, dim, keepdim, fold, takes, output_layout)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""Return the {name} over dimensions of each shard, times `scalar`.

    Chips are not put together, tile padding does not count. `correction` divides by n - 1.
    """
    operation(name, dtypes=takes, flops=each_element(flops), hints=HINTS)(call)


for _name in FOLDS:
    _enter(_name)


@operation("prod", dtypes=ALL, flops=each_element(1), hints="memory_config")
def prod(input_tensor: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the product over one dimension of each shard, or over all."""
    asked, rank = describe("prod", (input_tensor, dim)), len(input_tensor.shard_shape)
    if dim is not None and not -rank <= dim < rank:
        rule = "Dimension for prod is out of range (expected to be in range of"
        fail(asked, f"{rule} [{-rank}, {rank - 1}]), got {dim}")
    if input_tensor.mesh is None:
        fail(asked, "Tensor must already be on device", "ttnn.to_device(tensor, mesh)")
    fold = lambda x, axes: x.prod(axes, keepdims=True)  # noqa: E731
    return _folded("prod", input_tensor, dim, keepdim, fold, ALL)


@operation("cumsum", flops=each_element(1), hints="memory_config disable_compensated_sum")
def cumsum(
    input: Tensor,
    dim: int,
    *,
    dtype: DataType | None = None,
    reverse_order: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the running sums along `dim` of each shard, cast to `dtype` before they are added."""
    rank = len(input.shard_shape)
    on_mesh("cumsum", input)
    if not -rank <= dim < rank:
        rule = f"The requested accumulation axis is {dim}, while the input tensor has rank {rank}."
        fail(describe("cumsum", (input, dim)), rule, f"a dim from {-rank} to {rank - 1}")
    axis = len(input.grid.shape) + dim % rank
    turned = (lambda x: np.flip(x, axis)) if reverse_order else (lambda x: x)
    array = turned(convert(input.array, dtype or input.dtype))
    return result(input, turned(np.cumsum(array, axis, dtype=array.dtype)), dtype=dtype, output=out)


# ---------------------------------------------------------------- where the largest are
@operation(
    "argmax", flops=each_element(1), hints="memory_config sub_core_grids enable_secondary_dm"
)
def argmax(
    input_tensor: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return where the largest element is along `dim` of each shard: uint32, row-major."""
    asked, rank = describe("argmax", (input_tensor, dim)), len(input_tensor.shard_shape)
    if input_tensor.mesh is None:
        fail(asked, "Input tensor must be on device", "ttnn.to_device(tensor, mesh)")
    on_mesh("argmax", input_tensor)
    if dim is None and input_tensor.layout is Layout.TILE:
        fail(asked, "For inputs with TILE layout, dim parameter must be specified!", "dim=-1")
    if dim is not None and not -rank <= dim < rank:
        rule = "argmax: Dimension out of range (expected to be in range of"
        fail(asked, f"{rule} [{-rank}, {rank - 1}], but got {dim})")
    array, lead = input_tensor.array, len(input_tensor.grid.shape)
    if dim is None:
        found = array.reshape(array.shape[:lead] + (-1,)).argmax(-1)
        found = found.reshape(array.shape[:lead] + ((1,) * rank if keepdim else ()))
    else:
        found = array.argmax(lead + dim % rank, keepdims=keepdim)
    row_major = Layout.ROW_MAJOR
    return result(
        input_tensor, found, dtype=DataType.UINT32, layout=row_major, output=output_tensor
    )


@operation("topk", hints="memory_config sub_core_grids indices_tensor stable")
def topk(
    input_tensor: Tensor,
    k: int = 32,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    output_tensor: Any = None,
) -> list[Tensor]:
    """Return [values, indices] of the k largest or smallest elements along `dim`."""
    asked, rank = describe("topk", (input_tensor, k, dim)), len(input_tensor.shard_shape)
    on_mesh("topk", input_tensor)
    if not -rank <= dim < rank:
        rule = "Dimension for topk is out of range (expected to be in range of"
        fail(asked, f"{rule} [{-rank}, {rank - 1}]), got {dim}")
    if input_tensor.layout is not Layout.TILE:
        fail(asked, "The input must be in tiled format", "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    axis, array = len(input_tensor.grid.shape) + dim % rank, input_tensor.array
    size = array.shape[axis]
    if k > size:
        fail(asked, f"K cannot be larger than the dimension size! K={k}, dimension size={size}")
    # Unsigned numbers have no negatives to sort by.
    signed = array if array.dtype.kind == "f" else array.astype(np.int64)
    order = np.argsort(-signed if largest else signed, axis, kind="stable")
    chosen = np.take(order, range(k), axis)
    index_type = DataType.UINT16 if size < 65536 else DataType.UINT32
    into = output_tensor if output_tensor is not None else (None, None)
    values = result(input_tensor, np.take_along_axis(array, chosen, axis), output=into[0])
    return [values, result(input_tensor, chosen, dtype=index_type, output=into[1])]

"""Operations that fold dimensions of each chip's shard: sums, extremes, statistics, scans."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.dispatch import on_mesh, operation, result
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.tensor import Tensor
from ttkit.sim.types import integer

Dims = int | Sequence[int] | None
F = np.float32


def _axes(name: str, tensor: Tensor, dim: Dims) -> list[int]:
    rank = len(tensor.shard_shape)
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(rank))
    asked = describe(name, (tensor, dim))
    axes = []
    for i, d in enumerate(dim if isinstance(dim, (list, tuple)) else [dim]):
        d = integer(d, asked)
        if not -rank <= d < max(rank, 1):
            rule = f"Unsupported dim {d} at index {i}. After possible adjustment, needs to be at least 0 and less than rank {rank}"
            fail(asked, rule, f"a dim from {-rank} to {rank - 1}")
        axes.append(d % rank if rank else 0)
    if len(set(axes)) != len(axes):
        fail(asked, f"reduce dim list contains a duplicate axis after sorting: {axes}")
    return axes if rank else []


def _sum(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    if array.dtype == F and axes == (array.ndim - 1,) and array.shape[-1] > 1:
        return array @ np.ones((array.shape[-1], 1), F)  # a product with ones is the fastest sum of rows
    return array.sum(axes, keepdims=True, dtype=array.dtype)


def _scaled(array: np.ndarray, scalar: float) -> np.ndarray:
    return array if scalar == 1.0 else array * F(scalar)


def _ready(name: str, tensor: Any) -> np.ndarray:
    """The operand's values; it must lie on a mesh."""
    if isinstance(tensor, Tensor) and tensor.mesh is None:
        fail(describe(name, (tensor,)), "Expected input tensor to be on device", "ttnn.to_device(tensor, mesh)")
    on_mesh(name, tensor)
    return tensor.array


def _fold(
    name: str, tensor: Tensor, dim: Dims, keepdim: bool, function: Callable[[np.ndarray, tuple[int, ...]], np.ndarray], memory_config: Any,
    layout: Any = None,
) -> Tensor:  # fmt: skip
    array = _ready(name, tensor)
    axes = _axes(name, tensor, dim)
    if tensor.dtype is DataType.BFLOAT4_B:
        fail(
            describe(name, (tensor,)),
            "Only FLOAT32, BFLOAT16, BFLOAT8_B, and UINT32 are supported for generic reduction - got DataType::BFLOAT4_B",
            "ttnn.typecast",
        )
    if name in ("mean", "std", "var") and tensor.dtype not in dtypes.FLOATS:
        fail(describe(name, (tensor,)), f"ttnn.{name} does not support integer inputs - got DataType::{tensor.dtype.name}", "ttnn.typecast")
    if layout is Layout.ROW_MAJOR and tensor.dtype in dtypes.BLOCK_FLOATS:
        fail(describe(name, (tensor,)), f"output_layout=ROW_MAJOR is not supported for a {tensor.dtype.name} result", "ttnn.typecast it afterwards")
    lead = len(tensor.grid.shape)
    # Of one number there is no sum to take, but it has a variance.
    folded = function(array, tuple(lead + a for a in axes)) if axes or name in ("std", "var") else array
    if not keepdim:
        shape = tuple(n for i, n in enumerate(tensor.shard_shape) if i not in axes)
        folded = folded.reshape(folded.shape[:lead] + shape)
    return result(tensor, folded, layout=layout, memory_config=memory_config, owned=bool(axes))


@operation("sum")
def sum_(
    input_tensor: Tensor, dim: Dims = None, keepdim: bool = False, *, memory_config: Any = None, compute_kernel_config: Any = None, scalar: float = 1.0,
    correction: bool | None = None, sub_core_grids: Any = None, fast_and_approximate_mode: bool = False, output_layout: Any = None,
) -> Tensor:  # fmt: skip
    """The sum over dimensions of each shard (all without `dim`), times `scalar`; chips are not added together."""
    return _fold("sum", input_tensor, dim, keepdim, lambda x, a: _scaled(_sum(x, a), scalar), memory_config, output_layout)


@operation("mean")
def mean(
    input_tensor: Tensor, dim: Dims = None, keepdim: bool = False, *, memory_config: Any = None, compute_kernel_config: Any = None, scalar: float = 1.0,
    correction: bool | None = None, sub_core_grids: Any = None, fast_and_approximate_mode: bool = False, output_layout: Any = None,
) -> Tensor:  # fmt: skip
    """The mean over dimensions of each shard, tile padding not counted."""
    return _fold("mean", input_tensor, dim, keepdim, lambda x, a: _sum(x, a) * (F(scalar) / F(math.prod(x.shape[i] for i in a))), memory_config, output_layout)


@operation("max")
def max_(
    input_tensor: Tensor, dim: Dims = None, keepdim: bool = False, *, memory_config: Any = None, compute_kernel_config: Any = None, scalar: float = 1.0,
    correction: bool | None = None, sub_core_grids: Any = None, fast_and_approximate_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The largest element over dimensions of each shard, times `scalar`."""
    return _fold("max", input_tensor, dim, keepdim, lambda x, a: _scaled(x.max(a, keepdims=True), scalar), memory_config)


@operation("min")
def min_(
    input_tensor: Tensor, dim: Dims = None, keepdim: bool = False, *, memory_config: Any = None, compute_kernel_config: Any = None, scalar: float = 1.0,
    correction: bool | None = None, sub_core_grids: Any = None, fast_and_approximate_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The smallest element over dimensions of each shard, times `scalar`."""
    return _fold("min", input_tensor, dim, keepdim, lambda x, a: _scaled(x.min(a, keepdims=True), scalar), memory_config)


def _variance(x: np.ndarray, axes: tuple[int, ...], correction: bool) -> np.ndarray:
    """NumPy's variance, NaN without a warning where there are too few elements."""
    n = np.float32(np.prod([x.shape[a] for a in np.atleast_1d(axes)]))
    centred = x - x.sum(axes, keepdims=True) / n
    return (centred * centred).sum(axes, keepdims=True) / np.maximum(n - np.float32(correction), np.float32(0))


@operation("var")
def var(
    input_tensor: Tensor, dim: Dims = None, keepdim: bool = False, *, memory_config: Any = None, compute_kernel_config: Any = None, scalar: float = 1.0,
    correction: bool = True, sub_core_grids: Any = None,
) -> Tensor:  # fmt: skip
    """The variance over dimensions of each shard; with `correction` divided by n - 1."""
    return _fold("var", input_tensor, dim, keepdim, lambda x, a: _variance(x, a, correction) * F(scalar), memory_config)


@operation("std")
def std(
    input_tensor: Tensor, dim: Dims = None, keepdim: bool = False, *, memory_config: Any = None, compute_kernel_config: Any = None, scalar: float = 1.0,
    correction: bool = True, sub_core_grids: Any = None,
) -> Tensor:  # fmt: skip
    """The standard deviation over dimensions of each shard; with `correction` divided by n - 1."""
    return _fold("std", input_tensor, dim, keepdim, lambda x, a: np.sqrt(_variance(x, a, correction)) * F(scalar), memory_config)


@operation("prod")
def prod(input_tensor: Tensor, dim: int | None = None, keepdim: bool = False, *, memory_config: Any = None) -> Tensor:
    """The product over one dimension of each shard."""
    asked = describe("prod", (input_tensor, dim))
    rank = len(input_tensor.shard_shape)
    if dim is not None and not -rank <= dim < rank:
        fail(asked, f"Dimension for prod is out of range (expected to be in range of [{-rank}, {rank - 1}]), got {dim}")
    if input_tensor.mesh is None:
        fail(asked, "Tensor must already be on device", "ttnn.to_device(tensor, mesh)")
    return _fold("prod", input_tensor, dim, keepdim, lambda x, a: x.prod(a, keepdims=True), memory_config)


@operation("argmax")
def argmax(
    input_tensor: Tensor, dim: int | None = None, keepdim: bool = False, *, sub_core_grids: Any = None, memory_config: Any = None,
    output_tensor: Tensor | None = None, enable_secondary_dm: bool | None = None,
) -> Tensor:  # fmt: skip
    """Where the largest element is along `dim` of each shard: uint32, row-major, counted within the shard."""
    asked, rank = describe("argmax", (input_tensor, dim)), len(input_tensor.shard_shape)
    if input_tensor.mesh is None:
        fail(asked, "Input tensor must be on device", "ttnn.to_device(tensor, mesh)")
    on_mesh("argmax", input_tensor)
    if dim is None and input_tensor.layout is Layout.TILE:
        fail(asked, "For inputs with TILE layout, dim parameter must be specified!")
    if dim is not None and not -rank <= dim < rank:
        fail(asked, f"argmax: Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    array, lead = input_tensor.array, len(input_tensor.grid.shape)
    if dim is None:
        found = array.reshape(array.shape[:lead] + (-1,)).argmax(-1).reshape(array.shape[:lead] + ((1,) * rank if keepdim else ()))
    else:
        found = array.argmax(lead + dim % rank)
        if keepdim:
            found = np.expand_dims(found, lead + dim % rank)
    return result(input_tensor, found, dtype=DataType.UINT32, layout=Layout.ROW_MAJOR, memory_config=memory_config, output=output_tensor)


@operation("topk")
def topk(
    input_tensor: Tensor, k: int = 32, dim: int = -1, largest: bool = True, sorted: bool = True, *, memory_config: Any = None, sub_core_grids: Any = None,
    indices_tensor: Any = None, output_tensor: Any = None, stable: bool = False,
) -> list[Tensor]:  # fmt: skip
    """The k largest (or smallest) elements along `dim` of each shard and where they are: [values, uint16 indices]."""
    asked, rank = describe("topk", (input_tensor, k, dim)), len(input_tensor.shard_shape)
    on_mesh("topk", input_tensor)
    if not -rank <= dim < rank:
        fail(asked, f"Dimension for topk is out of range (expected to be in range of [{-rank}, {rank - 1}]), got {dim}")
    if input_tensor.layout is not Layout.TILE:
        fail(asked, "The input must be in tiled format", "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    axis = len(input_tensor.grid.shape) + dim % rank
    array = input_tensor.array
    if k > array.shape[axis]:
        fail(asked, f"K cannot be larger than the dimension size! K={k}, dimension size={array.shape[axis]}")
    signed = array if array.dtype.kind == "f" else array.astype(np.int64)  # unsigned numbers have no negatives to sort by
    order = np.argsort(-signed if largest else signed, axis, kind="stable")
    chosen = np.take(order, range(k), axis)
    index_type = DataType.UINT16 if array.shape[axis] < 65536 else DataType.UINT32
    into = output_tensor if output_tensor is not None else (None, None)
    values = result(input_tensor, np.take_along_axis(array, chosen, axis), memory_config=memory_config, output=into[0])
    return [values, result(input_tensor, chosen, dtype=index_type, memory_config=memory_config, output=into[1])]


@operation("cumsum")
def cumsum(
    input: Tensor, dim: int, *, dtype: DataType | None = None, reverse_order: bool = False, out: Tensor | None = None, memory_config: Any = None,
    disable_compensated_sum: bool = False,
) -> Tensor:  # fmt: skip
    """Running sums along `dim` of each shard, in `dtype` where one is given."""
    asked, rank = describe("cumsum", (input, dim)), len(input.shard_shape)
    on_mesh("cumsum", input)
    if not -rank <= dim < rank:
        fail(asked, f"The requested accumulation axis is {dim}, while the input tensor has rank {rank}.")
    axis = len(input.grid.shape) + dim % rank
    array = dtypes.convert(input.array, dtype or input.dtype)
    array = np.flip(array, axis) if reverse_order else array
    sums = np.cumsum(array, axis, dtype=array.dtype)
    return result(input, np.flip(sums, axis) if reverse_order else sums, dtype=dtype, memory_config=memory_config, output=out)

"""Matrix products; mesh axes are folded into rows where all chips have the same right operand."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import blocks
from ttkit.sim.arguments import describe
from ttkit.sim.dtypes import FLOATS
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.memory import would_fit
from ttkit.sim.operation import check_sizes, check_tiles, operation, result, together
from ttkit.sim.quirks import of_nothing
from ttkit.sim.tensor import Tensor
from ttkit.sim.unary import activation

PIECES = 8  # of one big product, taken by the threads as they get free
THREADS_PAY_FROM = 1 << 24  # multiply-adds of all products: about 0.3 ms of one thread
# Multiply-adds of one product: from the first number on a loop of 2-D products beats a stacked one;
# up to the second OpenBLAS takes one thread, with some to spare.
LOOP_PAYS_FROM = 1 << 20
BLAS_SPREADS_FROM = 1 << 17


def product(a: Any, b: Any, lead: int) -> np.ndarray:
    """The matrix product over the last two axes; the first `lead` axes run over the chips.

    Example:
        >>> product(np.ones((2, 4, 3, 5)), np.ones((1, 1, 5, 6)), 2).shape
        (2, 4, 3, 6)
    """
    if a.dtype != np.float32 or b.dtype != np.float32:
        a, b = a.astype(np.float32, copy=False), b.astype(np.float32, copy=False)
    rank = max(a.ndim, b.ndim)
    a = a.reshape(a.shape[:lead] + (1,) * (rank - a.ndim) + a.shape[lead:])
    b = b.reshape(b.shape[:lead] + (1,) * (rank - b.ndim) + b.shape[lead:])
    if math.prod(b.shape[:-2]) == 1:  # one matrix for every row of every chip
        right = b.reshape(b.shape[-2:])
        return _one(a.reshape(math.prod(a.shape[:-1]), a.shape[-1]), right).reshape(
            a.shape[:-1] + right.shape[-1:]
        )
    each, batch = (
        a.shape[-2] * a.shape[-1] * b.shape[-1],
        np.broadcast_shapes(a.shape[:-2], b.shape[:-2]),
    )
    if each < BLAS_SPREADS_FROM:
        return np.matmul(a, b)
    out = blocks.empty(batch + (a.shape[-2], b.shape[-1]))
    left, right = np.broadcast_to(a, batch + a.shape[-2:]), np.broadcast_to(b, batch + b.shape[-2:])
    outer = batch if each >= LOOP_PAYS_FROM else batch[:-1]
    jobs = (
        partial(np.matmul, left[index], right[index], out=out[index]) for index in np.ndindex(outer)
    )
    blocks.run(jobs, pays=out.size * a.shape[-1] >= THREADS_PAY_FROM)
    return out


def _one(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b; a big product is cut into pieces of rows or columns."""
    rows, columns = a.shape[0], b.shape[1]
    work = rows * a.shape[1] * columns
    if work < BLAS_SPREADS_FROM:
        return a @ b
    out = blocks.empty((rows, columns))
    step = -(-max(rows, columns) // (PIECES if work >= THREADS_PAY_FROM else 1))
    if rows > columns:
        jobs = (
            partial(np.matmul, a[i : i + step], b, out=out[i : i + step])
            for i in range(0, rows, step)
        )
    else:
        jobs = (
            partial(np.matmul, a, b[:, i : i + step], out=out[:, i : i + step])
            for i in range(0, columns, step)
        )
    blocks.run(jobs, pays=work >= THREADS_PAY_FROM)
    return out


def _check(
    name: str, a: Tensor, b: Tensor, shape_a: tuple[int, ...], shape_b: tuple[int, ...]
) -> None:
    fits = a.layout is b.layout is Layout.TILE and a.dtype in FLOATS and b.dtype in FLOATS
    if fits and shape_a[-1] == shape_b[-2] and math.prod(shape_b[:-2]) == 1:
        return
    asked = describe(name, (a, b))
    if a.layout is not Layout.TILE or b.layout is not Layout.TILE:
        cure = "layout=ttnn.TILE_LAYOUT, or ttnn.to_layout"
        fail(asked, "Inputs to matmul must be tilized", cure)
    for letter, tensor in (("A", a), ("B", b)):
        if tensor.dtype not in FLOATS:
            rule = f"Unsupported data format for input {letter}: DataType::{tensor.dtype.name}"
            fail(asked, rule, "ttnn.typecast to a float type")
    if shape_a[-1] != shape_b[-2]:
        rule = "The width of the first tensor must be equal to the height of the second tensor."
        rule += f" Mismatch: width={shape_a[-1]} height={shape_b[-2]}"
        fail(asked, rule, "transpose_a, transpose_b, or another sharded dimension")
    batch_a, batch_b = shape_a[:-2], shape_b[:-2]
    if math.prod(batch_b) == 1:
        return
    if len(batch_b) > len(batch_a) and any(n != 1 for n in batch_b[: len(batch_b) - len(batch_a)]):
        rule = "When in1 rank greater than in0 rank front dimensions need to be 1, got"
        fail(asked, f"{rule} {list(shape_b)}")
    if len(batch_a) != len(batch_b) and math.prod(batch_a) != 1:
        rule = "Batched (non-bcast) matmul requires inputs of the same rank, got"
        fail(asked, f"{rule} a_shape rank: {len(shape_a)} vs b_shape rank: {len(shape_b)}")
    for i, (x, y) in enumerate(zip(batch_a, batch_b, strict=False)):
        if x != y and math.prod(batch_a) != 1:
            rule = "bmm (non-bcast matmul) expects input tensors of shapes BCMK*BCKN=BCMN or batch"
            rule += f" dimension {i} mismatch: a={x} vs b={y}"
            fail(asked, f"{rule} (dimension mismatch only allowed when all batch dimensions are 1)")


def _check_place(name: str, operands: tuple[Tensor, ...]) -> None:
    mesh = operands[0].mesh
    for i, tensor in enumerate(operands):
        if tensor.mesh is None:
            rules = (
                "Operand to matmul",
                "Device Operations expect device tensors as inputs: operand B",
            )
            bias = "Input tensor B must be on device, got storage type: StorageType::HOST: the bias"
            rule = f"{(*rules, bias)[i]} must be on device"
            fail(describe(name, operands), rule, "ttnn.to_device(tensor, mesh)")
        if tensor._array is None:
            rule = "Operand to matmul must be on device: Input Tensor is not allocated"
            fail(describe(name, operands), rule, "use it before ttnn.deallocate")
        if tensor.mesh is not mesh:
            rule = f"operands lie on different meshes: {mesh!r} and {tensor.mesh!r}"
            fail(describe(name, operands), rule, "move one with from_device and to_device")
    if not mesh.is_open:
        mesh.check_open(name)


def _matmul(
    name: str,
    operands: tuple[Tensor, ...],
    transposed: tuple[bool, bool],
    dtype: DataType | None,
    act: Any,
    output: Tensor | None,
) -> Tensor:
    """The product of the first two operands, plus a third, through an activation."""
    _check_place(name, operands)
    a, b = operands[:2]
    bias = operands[2] if len(operands) > 2 else None
    if all(t.grid is a.grid and t.topology is a.topology for t in operands):
        like, (x, y, *rest), topology = a, [t._array for t in operands], a.topology
    else:
        like, (x, y, *rest), topology = together(name, operands)
    # One dimension is a row on the left and a column on the right.
    shape_a = (1,) * (2 - len(a.shard_shape)) + a.shard_shape
    shape_b = b.shard_shape + (1,) * (2 - len(b.shard_shape))
    lead = len(like.grid.shape)
    x, y = x.reshape(x.shape[:lead] + shape_a), y.reshape(y.shape[:lead] + shape_b)
    if transposed[0]:
        x, shape_a = x.swapaxes(-1, -2), shape_a[:-2] + (shape_a[-1], shape_a[-2])
    if transposed[1]:
        y, shape_b = y.swapaxes(-1, -2), shape_b[:-2] + (shape_b[-1], shape_b[-2])
    _check(name, a, b, shape_a, shape_b)
    one_weight = math.prod(shape_b[:-2]) == 1
    batch = shape_a[:-2]
    if not one_weight or len(shape_a) < len(shape_b):
        batch = np.broadcast_shapes(batch, shape_b[:-2])
    shape = batch + (shape_a[-2], shape_b[-1])
    would_fit(like, shape, dtype or a.dtype)
    values = product(x, y, lead)
    values = values.reshape(values.shape[:lead] + shape)
    if bias is not None:
        _check_bias(describe(name, operands), bias, shape, one_weight)
        values, shape = _plus(values, rest[0], lead, shape, bias.shard_shape)
    if act is not None:
        values = activation(act, describe(name, operands))(values)
    rows, columns = len(a.shard_shape) > 1, len(b.shard_shape) > 1
    if not (rows and columns):
        kept = shape[:-2] + shape[-2:-1] * rows + shape[-1:] * columns
        values = values.reshape(values.shape[:lead] + kept)
    if 0 in shape_a + shape_b:
        topology = of_nothing(a.mesh.grid)
    return result(like, values, dtype=dtype or a.dtype, topology=topology, output=output)


def _plus(
    values: np.ndarray, bias: np.ndarray, lead: int, shape: Any, bias_shape: Any
) -> tuple[np.ndarray, Any]:
    """The sum of products and bias, and the shape of its shards; in place where it fits."""
    shape = (1,) * (len(bias_shape) - len(shape)) + shape
    values = values.reshape(values.shape[:lead] + shape)
    ones = (1,) * (len(shape) - len(bias_shape))
    bias = bias.reshape(bias.shape[:lead] + ones + bias_shape)
    fits = np.broadcast_shapes(values.shape, bias.shape) == values.shape
    return np.add(values, bias, out=values if fits else None), shape


def _check_bias(asked: object, bias: Tensor, shape: tuple[int, ...], one_weight: bool) -> None:
    """A bias of one row of tiles is added within the product; every other one by an addition."""
    width, wanted = bias.padded[-1], -(-shape[-1] // 32) * 32
    row = bias.layout is Layout.TILE and bias.padded[-2:-1] in ((), (32,))
    if not (one_weight and row and width >= wanted):
        check_tiles(shape, bias.shard_shape, asked)
        if bias.dtype not in FLOATS:
            rule = "Mixed dtype is not supported for binary operation BinaryOpType::ADD, dtype B:"
            fail(asked, f"{rule} DataType::{bias.dtype.name}", "ttnn.typecast")
        check_sizes(shape, bias.shard_shape, asked)
        return
    if width != wanted:
        rule = f"Unsupported bias shape: padded last dimension of bias, {width}, not equal to"
        rule += f" second input's padded last dimension, {wanted}."
        fail(asked, rule, "shard the bias like the columns of the weight")
    rows = bias.shard_shape[:-1]
    if any(n != 1 and n != m for n, m in zip(rows[::-1], shape[-2::-1], strict=False)):
        rule = f"bias {list(bias.shard_shape)} against result {list(shape)}"
        fail(asked, f"Broadcast error: Invalid dimension: {rule}", "a bias of one row")


def _flops(given: Any, operands: Any, results: Any, shape: Any) -> int:
    """2 m n k for each product of a batch; a fused bias or activation is not counted."""
    a = shape(given["input_tensor_a"])
    k = a[-2] if given["transpose_a"] and len(a) > 1 else a[-1]
    return 2 * math.prod(shape(results[0])) * k


HINTS = "memory_config program_config compute_kernel_config core_grid output_tile global_cb"
HINTS += " sub_device_id"


@operation("matmul", "product", dtypes=FLOATS, flops=_flops, hints=HINTS)
def matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: DataType | None = None,
    activation: Any = None,
    optional_output_tensor: Tensor | None = None,
) -> Tensor:
    """Return the product of each chip's own shards: [..., m, k] and [..., k, n] give [..., m, n].

    Nothing is sent between chips: contracting over a sharded dimension leaves partial sums, which
    `all_reduce` adds.

    Raises:
        TTKitError: shapes that do not fit, row-major or integer operands, host tensors.
    """
    transposed = (transpose_a, transpose_b)
    operands = (input_tensor_a, input_tensor_b)
    return _matmul("matmul", operands, transposed, dtype, activation, optional_output_tensor)


@operation("linear", "product", dtypes=FLOATS, flops=_flops, hints=HINTS)
def linear(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    bias: Tensor | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: DataType | None = None,
    activation: Any = None,
    optional_output_tensor: Tensor | None = None,
) -> Tensor:
    """Return `matmul` plus a bias of shape [n] or [1, n], through an activation such as "gelu"."""
    transposed = (transpose_a, transpose_b)
    operands = (input_tensor_a, input_tensor_b) + (() if bias is None else (bias,))
    return _matmul("linear", operands, transposed, dtype, activation, optional_output_tensor)

"""Matrix products, with the mesh axes folded into rows where the right operand is the same on every chip."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes, recycle
from ttkit.sim.arguments import describe
from ttkit.sim.binary import check_sizes, check_tiles
from ttkit.sim.dispatch import common_grid, merged, operation, result
from ttkit.sim.distribution import replicate_tensor_to_mesh_mapper
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.memory import would_fit
from ttkit.sim.tensor import Tensor
from ttkit.sim.threads import together
from ttkit.sim.unary import activation

PIECES = 8  # of one big product, taken by the threads as they get free
THREADS_PAY_FROM = 1 << 24  # multiply-adds of all products: about 0.3 ms of one thread
LOOP_PAYS_FROM = 1 << 20  # multiply-adds of one product from which a loop of 2-D products beats a stacked one
BLAS_SPREADS_FROM = 1 << 17  # multiply-adds of one product that OpenBLAS gives to one thread, with some to spare


def product(a: Any, b: Any, lead: int) -> np.ndarray:
    """The matrix product over the last two axes; the first `lead` axes of both run over the chips and repeat where they are 1.

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
        return _one(a.reshape(math.prod(a.shape[:-1]), a.shape[-1]), right).reshape(a.shape[:-1] + right.shape[-1:])
    each, batch = a.shape[-2] * a.shape[-1] * b.shape[-1], np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if each < BLAS_SPREADS_FROM:
        return np.matmul(a, b)
    out = recycle.empty(batch + (a.shape[-2], b.shape[-1]))
    left, right = np.broadcast_to(a, batch + a.shape[-2:]), np.broadcast_to(b, batch + b.shape[-2:])
    outer = batch if each >= LOOP_PAYS_FROM else batch[:-1]
    jobs = (partial(np.matmul, left[index], right[index], out=out[index]) for index in np.ndindex(outer))
    together(jobs, pays=out.size * a.shape[-1] >= THREADS_PAY_FROM)
    return out


def _one(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b; a big product is cut into pieces of rows or columns."""
    rows, columns = a.shape[0], b.shape[1]
    work = rows * a.shape[1] * columns
    if work < BLAS_SPREADS_FROM:
        return a @ b
    out = recycle.empty((rows, columns))
    step = -(-max(rows, columns) // (PIECES if work >= THREADS_PAY_FROM else 1))
    if rows > columns:
        jobs = (partial(np.matmul, a[i : i + step], b, out=out[i : i + step]) for i in range(0, rows, step))
    else:
        jobs = (partial(np.matmul, a, b[:, i : i + step], out=out[:, i : i + step]) for i in range(0, columns, step))
    together(jobs, pays=work >= THREADS_PAY_FROM)
    return out


def _check(name: str, a: Tensor, b: Tensor, shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> None:
    asked = describe(name, (a, b))
    if a.layout is not Layout.TILE or b.layout is not Layout.TILE:
        fail(asked, "Inputs to matmul must be tilized", "layout=ttnn.TILE_LAYOUT, or ttnn.to_layout")
    for letter, tensor in (("A", a), ("B", b)):
        if tensor.dtype not in dtypes.FLOATS:
            fail(asked, f"Unsupported data format for input {letter}: DataType::{tensor.dtype.name}", "ttnn.typecast to a float type")
    if shape_a[-1] != shape_b[-2]:
        rule = f"The width of the first tensor must be equal to the height of the second tensor. Mismatch: width={shape_a[-1]} height={shape_b[-2]}"
        fail(asked, rule, "transpose_a, transpose_b, or another sharded dimension")
    batch_a, batch_b = shape_a[:-2], shape_b[:-2]
    if math.prod(batch_b) == 1:
        return
    if len(batch_b) > len(batch_a) and any(n != 1 for n in batch_b[: len(batch_b) - len(batch_a)]):
        fail(asked, f"When in1 rank greater than in0 rank front dimensions need to be 1, got {list(shape_b)}")
    if len(batch_a) != len(batch_b) and math.prod(batch_a) != 1:
        fail(asked, f"Batched (non-bcast) matmul requires inputs of the same rank, got a_shape rank: {len(shape_a)} vs b_shape rank: {len(shape_b)}")
    for i, (x, y) in enumerate(zip(batch_a, batch_b, strict=False)):
        if x != y and math.prod(batch_a) != 1:
            rule = f"bmm (non-bcast matmul) expects input tensors of shapes BCMK*BCKN=BCMN or batch dimension {i} mismatch: a={x} vs b={y}"
            fail(asked, f"{rule} (dimension mismatch only allowed when all batch dimensions are 1)")


def _matmul(
    name: str, a: Tensor, b: Tensor, bias: Tensor | None, transpose_a: bool, transpose_b: bool, memory_config: Any, dtype: DataType | None, act: Any,
    output: Any,
) -> Tensor:  # fmt: skip
    operands = (a, b) if bias is None else (a, b, bias)
    for tensor in operands:
        if not isinstance(tensor, Tensor):
            fail(
                describe(name, operands),
                f"incompatible function arguments: {type(tensor).__name__} is not a ttnn.Tensor",
                "ttnn.from_torch(...) it first",
                TypeError,
            )
    if a.mesh is None or not a.is_allocated():
        fail(describe(name, operands), "Operand to matmul must be on device", "ttnn.to_device(tensor, mesh)")
    for tensor in operands:
        if tensor.mesh is None and tensor is bias:
            fail(describe(name, operands), "Input tensor B must be on device, got storage type: StorageType::HOST", "ttnn.to_device(bias, mesh)")
        if tensor.mesh is None:
            fail(describe(name, operands), "Device Operations expect device tensors as inputs", "ttnn.to_device(tensor, mesh)")
        if not tensor.is_allocated():
            fail(describe(name, operands), "Input Tensor is not allocated", "use it before ttnn.deallocate")
        if tensor.mesh is not a.mesh:
            fail(describe(name, operands), f"operands lie on different meshes: {a.mesh!r} and {tensor.mesh!r}", "move one with from_device and to_device")
    a.mesh.check_open(name)
    like, arrays = (a, [t.array for t in operands]) if all(t.grid is a.grid for t in operands) else common_grid(operands, lambda: describe(name, operands))
    x, y = arrays[0], arrays[1]
    shape_a = (1,) * (2 - len(a.shard_shape)) + a.shard_shape
    shape_b = b.shard_shape + (1,) * (2 - len(b.shard_shape))  # one dimension is a row on the left and a column on the right
    lead = len(like.grid.shape)
    x, y = x.reshape(x.shape[:lead] + shape_a), y.reshape(y.shape[:lead] + shape_b)
    if transpose_a:
        x, shape_a = x.swapaxes(-1, -2), shape_a[:-2] + (shape_a[-1], shape_a[-2])
    if transpose_b:
        y, shape_b = y.swapaxes(-1, -2), shape_b[:-2] + (shape_b[-1], shape_b[-2])
    _check(name, a, b, shape_a, shape_b)
    batch = shape_a[:-2] if math.prod(shape_b[:-2]) == 1 and len(shape_a) >= len(shape_b) else np.broadcast_shapes(shape_a[:-2], shape_b[:-2])
    shape = batch + (shape_a[-2], shape_b[-1])
    would_fit(like, shape, dtype or a.dtype)
    values = product(x, y, lead)
    values = values.reshape(values.shape[:lead] + shape)
    if bias is not None:
        _check_bias(name, operands, bias, shape, fused=math.prod(shape_b[:-2]) == 1)
        shape = (1,) * (len(bias.shard_shape) - len(shape)) + shape
        values, extra = values.reshape(values.shape[:lead] + shape), arrays[2]
        extra = extra.reshape(extra.shape[:lead] + (1,) * (len(shape) - len(bias.shard_shape)) + bias.shard_shape)
        values = np.add(values, extra, out=values) if np.broadcast_shapes(values.shape, extra.shape) == values.shape else values + extra
    if act is not None:
        values = activation(act, describe(name, operands))(values)
    if 1 in (len(a.shard_shape), len(b.shard_shape)):
        kept = shape[:-2] + shape[-2:-1] * (len(a.shard_shape) > 1) + shape[-1:] * (len(b.shard_shape) > 1)
        values = values.reshape(values.shape[:lead] + kept)
    topology = (
        a.topology if all(t.topology is a.topology for t in operands) and like.grid is a.mesh.grid else merged(a.mesh.grid, *(t.topology for t in operands))
    )
    if 0 in shape_a + shape_b:  # of nothing ttnn makes a new tensor of zeros
        topology = replicate_tensor_to_mesh_mapper(a.mesh).place(np.zeros(()), name)[2]
    return result(like, values, dtype=dtype or a.dtype, topology=topology, memory_config=memory_config, output=output)


def _check_bias(name: str, operands: tuple[Tensor, ...], bias: Tensor, shape: tuple[int, ...], fused: bool) -> None:
    """A bias of one row of tiles is added inside of the product of one weight; every other one by an addition, with its rules."""
    asked = describe(name, operands)
    width, wanted = bias.padded[-1], -(-shape[-1] // 32) * 32
    if not (fused and bias.layout is Layout.TILE and bias.padded[-2:-1] in ((), (32,)) and width >= wanted):
        check_tiles(shape, bias.shard_shape, asked)
        if bias.dtype not in dtypes.FLOATS:
            fail(asked, f"Mixed dtype is not supported for binary operation BinaryOpType::ADD, dtype B: DataType::{bias.dtype.name}", "ttnn.typecast")
        check_sizes(shape, bias.shard_shape, asked)
        return
    if width != wanted:
        fail(
            asked,
            f"Unsupported bias shape: padded last dimension of bias, {width}, not equal to second input's padded last dimension, {wanted}.",
            "shard the bias like the columns of the weight",
        )
    rows = bias.shard_shape[:-1]
    if any(n != 1 and n != m for n, m in zip(rows[::-1], shape[-2::-1], strict=False)):
        fail(asked, f"Broadcast error: Invalid dimension: bias {list(bias.shard_shape)} against result {list(shape)}", "a bias of one row")


@operation("matmul")
def matmul(
    input_tensor_a: Tensor, input_tensor_b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False, memory_config: Any = None,
    dtype: DataType | None = None, program_config: Any = None, activation: Any = None, compute_kernel_config: Any = None, core_grid: Any = None,
    output_tile: Any = None, optional_output_tensor: Tensor | None = None, global_cb: Any = None, sub_device_id: Any = None,
) -> Tensor:  # fmt: skip
    """The matrix product on each chip of its own shards: [..., m, k] times [..., k, n] gives [..., m, n].

    Nothing is sent between chips: contracting over a sharded dimension leaves partial sums, for `all_reduce` to add.

    Raises:
        TTKitError: shapes that do not fit, row-major or integer operands, host tensors.
    """
    return _matmul(
        "matmul", input_tensor_a, input_tensor_b, None, transpose_a, transpose_b, memory_config, dtype, activation, optional_output_tensor
    )  # fmt: skip


@operation("linear")
def linear(
    input_tensor_a: Tensor, input_tensor_b: Tensor, *, bias: Tensor | None = None, transpose_a: bool = False, transpose_b: bool = False,
    memory_config: Any = None, dtype: DataType | None = None, program_config: Any = None, activation: Any = None, compute_kernel_config: Any = None,
    core_grid: Any = None, output_tile: Any = None, optional_output_tensor: Tensor | None = None, global_cb: Any = None, sub_device_id: Any = None,
) -> Tensor:  # fmt: skip
    """`matmul`, plus a bias of shape [n] or [1, n], through an activation such as "gelu"."""
    return _matmul(
        "linear", input_tensor_a, input_tensor_b, bias, transpose_a, transpose_b, memory_config, dtype, activation, optional_output_tensor
    )  # fmt: skip

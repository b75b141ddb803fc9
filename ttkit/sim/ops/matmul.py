"""Compute matrix products.

If all chips have the same right operand, one matmul multiplies all rows.
"""

import math
from functools import partial

import numpy as np

from ttkit.sim import blocks
from ttkit.sim.arguments import refuse
from ttkit.sim.ops import OPERATIONS, Array, Operands, operation, shaped, with_rank
from ttkit.sim.ops.unary import activation as activation_of
from ttkit.sim.tensor import TILE_SIZE, DataType, Layout, Sizes
from ttkit.sim.tensor.dtypes import FLOATS, widened
from ttkit.sim.tensor.tensor import Tensor, check_room

PARTS = 8  # A big matmul has this many parts; a thread takes the next one when it is free.
# From this many multiply-adds on, summed over the matmuls of a call, several threads
# are faster. One thread takes about 0.3 ms for this many.
THREADS_PAY_FROM = 1 << 24
# The next two constants count the multiply-adds of one matmul. From LOOP_PAYS_FROM on,
# a loop of 2-D matmuls is faster than one stacked matmul. Below BLAS_SPREADS_FROM,
# which has a margin, OpenBLAS uses one thread.
LOOP_PAYS_FROM = 1 << 20
BLAS_SPREADS_FROM = 1 << 17


def product(a, b, lead: int) -> Array:
    """Return the matrix product over the last two axes; the first `lead` axes run over the chips.

    Args:
        b: float32 values, or the bytes that `dtypes.narrowed` returns.

    Example:
        >>> product(np.ones((2, 4, 3, 5)), np.ones((1, 1, 5, 6)), 2).shape
        (2, 4, 3, 6)
    """
    rank = max(a.ndim, b.ndim) - lead
    a = with_rank(a, lead, rank)
    b = with_rank(b, lead, rank)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    whole = (*batch, a.shape[-2], b.shape[-1])
    if blocks.idle[0]:
        return blocks.empty(whole)
    # All batches that share a matrix of `b` are joined: their rows are multiplied in one matmul.
    keep = max((i for i, n in enumerate(b.shape[:-2], 1) if n > 1), default=0)
    a = shaped(a, keep, math.prod(a.shape[keep:-1]), a.shape[-1])
    b = shaped(b, keep, *b.shape[-2:])
    each = a.shape[-2] * a.shape[-1] * b.shape[-1]
    if each < BLAS_SPREADS_FROM:
        return np.matmul(a, widened(b)).reshape(whole)
    batch = batch[:keep]
    out = blocks.empty((*batch, a.shape[-2], b.shape[-1]))
    worth_threads = out.size * a.shape[-1] >= THREADS_PAY_FROM
    if keep:
        left = np.broadcast_to(a, batch + a.shape[-2:])
        right = np.broadcast_to(b, batch + b.shape[-2:])
        outer = np.ndindex(batch if each >= LOOP_PAYS_FROM else batch[:-1])
        jobs = [partial(_multiply, left[i], right[i], out[i]) for i in outer]
    else:
        jobs = _parts(a, b, out, PARTS if worth_threads else 1)
    blocks.run(jobs, worth_threads=worth_threads)
    return out.reshape(whole)


def _multiply(a: Array, b: Array, out: Array) -> None:
    np.matmul(a, widened(b), out=out)


def _parts(a: Array, b: Array, out: Array, count: int) -> list[partial]:
    """Return the jobs of one product, cut into `count` parts of its rows or of its columns."""
    rows, columns = out.shape
    step = -(-max(rows, columns) // count)
    parts = [slice(i, i + step) for i in range(0, max(rows, columns), step)]
    if rows > columns:
        return [partial(_multiply, a[part], b, out[part]) for part in parts]
    return [partial(_multiply, a, b[:, part], out[:, part]) for part in parts]


def _check(operands: list[Tensor], a: Sizes, b: Sizes) -> None:
    """Refuse row-major operands, and shapes that do not fit together."""
    if operands[0].layout is not Layout.TILE or operands[1].layout is not Layout.TILE:
        refuse("Inputs to matmul must be tilized", "layout=ttnn.TILE_LAYOUT, or ttnn.to_layout")
    if a[-1] != b[-2]:
        refuse(
            "The width of the first tensor must be equal to the height of the second tensor. "
            f"Mismatch: width={a[-1]} height={b[-2]}",
            "transpose_a, transpose_b, or another sharded dimension",
        )


def _linear(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    bias: Tensor | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: DataType | None = None,
    activation=None,
    program_config=None,
) -> Tensor:
    """Return the product of each chip's own shards: [..., m, k] and [..., k, n] give [..., m, n].

    Nothing is sent between chips: contracting over a sharded dimension leaves partial sums, which
    `all_reduce` adds.

    Args:
        bias: for `linear`, a vector [n] or [1, n] to add. If it has the rows of a whole tile, [32,
            n] or [16, n], its first row is added to all rows, unless the product has as many rows.
        activation: the activation of the sum, such as "gelu"; by default that of `program_config`.

    Raises:
        TTKitError: the shapes do not fit together, or an operand is row-major or on the host.
    """
    if input_tensor_a.mesh is None or input_tensor_b.mesh is None:
        rule = "Operand to matmul must be on device: Device Operations expect device tensors as"
        refuse(f"{rule} inputs", "ttnn.to_device(tensor, mesh)")
    on = Operands(input_tensor_a, input_tensor_b, bias, narrow=True)
    x, y, added = on.arrays
    # An operand of one dimension is a row on the left, and a column on the right.
    lead = on.lead
    row = len(input_tensor_a.shard_shape) == 1
    column = len(input_tensor_b.shard_shape) == 1
    x = with_rank(widened(x), lead, 2)
    y = y[..., None] if column else y
    if transpose_a:
        x = x.swapaxes(-1, -2)
    if transpose_b:
        y = y.swapaxes(-1, -2)
    left = x.shape[lead:]
    right = y.shape[lead:]
    _check(on.tensors, left, right)
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    check_room(on.like, (*batch, left[-2], right[-1]), dtype or input_tensor_a.dtype)
    values = product(x, y, lead)
    if bias is not None:
        rank = max(values.ndim, added.ndim) - lead
        values = with_rank(values, lead, rank)
        added = with_rank(widened(added), lead, rank)
        if values.shape[-2] != added.shape[-2] in (16, TILE_SIZE):
            added = added[..., :1, :]
        fits = np.broadcast_shapes(values.shape, added.shape) == values.shape
        values = np.add(values, added, out=values if fits else None)
    activation = activation or getattr(program_config, "fused_activation", None)
    if activation is not None:
        values = activation_of(activation)(values)
    values = values.squeeze(-2) if row else values
    values = values.squeeze(-1) if column else values
    return on.result(values, dtype, layout=Layout.TILE)


def product_flops(given, operands, results, shape) -> int:
    """Count 2 m n k flops for each matmul of a batch; fused biases and activations do not count."""
    a = shape(given.get("mat1_tensor", given.get("input_tensor_a")))
    k = a[-2] if given.get("transpose_a") and len(a) > 1 else a[-1]
    return 2 * math.prod(shape(results[0])) * k


matmul = operation("matmul", "product", flops=product_flops)(_linear)
linear = operation("linear", "product", flops=product_flops)(_linear)


@operation("addmm", "product", flops=product_flops)
def addmm(
    input_tensor: Tensor,
    mat1_tensor: Tensor,
    mat2_tensor: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    dtype: DataType | None = None,
) -> Tensor:
    """Return beta * input + alpha * (mat1 @ mat2), rounded after each of the operations.

    Args:
        input_tensor: [m, n].
        mat1_tensor, mat2_tensor: [m, k] and [k, n].

    Raises:
        TTKitError: the shapes do not fit together, the elements are whole numbers, or alpha is 0.
    """
    if not alpha:
        refuse("alpha parameter cannot be 0", "ttnn.multiply(input_tensor, beta)")
    if input_tensor.dtype not in FLOATS:
        refuse("only ttnn.bfloat16, ttnn.float32 and ttnn.bfloat8_b types are supported")
    multiply, add = (OPERATIONS[name].call for name in ("multiply", "add"))
    scaled = multiply(matmul(mat1_tensor, mat2_tensor, dtype=dtype), alpha)
    if not beta:
        return scaled
    if input_tensor.shape != scaled.shape:
        refuse("input_tensor must have shape matching one of result of mat1_tensor @ mat2_tensor")
    return add(scaled, multiply(input_tensor, beta))  # type: ignore[no-any-return]

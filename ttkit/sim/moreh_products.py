"""Matrix products of the `moreh_` family and their gradients: bfloat16 in tiles, and gradients written into tensors that the caller gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.dispatch import common_grid, merged, on_mesh, operation, result
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.matmul import product
from ttkit.sim.tensor import Tensor

Array = np.ndarray
Shape = tuple[int, ...]


def _two(shape: Shape) -> Shape:
    return (1,) * (2 - len(shape)) + shape


def _check(name: str, a: Tensor, b: Tensor, shape_a: Shape, shape_b: Shape) -> None:
    """What ttnn demands of a product; the shapes are those after transposing."""
    asked = describe(name, (a, b))
    for what, tensor in (("input", a), ("other", b)):
        if tensor.layout is not Layout.TILE:
            fail(asked, f"moreh_matmul {what} only supports TILE layout.", "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
        if tensor.dtype is not DataType.BFLOAT16:
            fail(asked, f"moreh_matmul {what} only supports specific data types. [BFLOAT16]", "ttnn.typecast(tensor, ttnn.bfloat16)")
    if shape_a[-1] != shape_b[-2]:
        fail(asked, f"k must be the same. input_k {shape_a[-1]}, other_k {shape_b[-2]}", "transpose one, or shard another dimension")
    for i, (m, n) in enumerate(zip(shape_a[-3::-1], shape_b[-3::-1], strict=False), 2):
        if m != n and 1 not in (m, n):
            fail(asked, f"one of dim must be one. {i}th dim input_dim {m}, other_dim {n}")


def _summed(values: Array, lead: int, shape: Shape) -> Array:
    """Added up over the dimensions along which an operand of `shape` repeated."""
    extra = values.ndim - lead - len(shape)
    if extra > 0:
        values = values.sum(tuple(range(lead, lead + extra)))
    repeated = tuple(lead + i for i, n in enumerate(shape) if n == 1 and values.shape[lead + i] != 1)
    return values.sum(repeated, keepdims=True) if repeated else values


def _swapped(array: Array) -> Array:
    return array.swapaxes(-1, -2)


def _multiply(
    name: str, a: Tensor, b: Tensor, bias: Tensor | None, transposed: tuple[bool, bool], memory_config: Any, output: Tensor | None
) -> Tensor:  # fmt: skip
    operands: tuple[Tensor, ...] = (a, b) if bias is None else (a, b, bias)
    on_mesh(name, *operands)
    asked = describe(name, operands)
    like, arrays = common_grid(operands, lambda: asked)
    lead = len(like.grid.shape)
    pairs = zip(arrays[:2], (a, b), transposed, strict=True)
    matrices = [(v.reshape(v.shape[:lead] + _two(t.shard_shape)), swap) for v, t, swap in pairs]
    x, y = (_swapped(v) if swap else v for v, swap in matrices)
    _check(name, a, b, x.shape[lead:], y.shape[lead:])
    width = y.shape[-1]
    if bias is not None:
        if len(bias.shard_shape) != 2:
            fail(asked, f"bias rank {len(bias.shard_shape)} must be 2 (tilized).", f"ttnn.reshape it to [1, {width}]")
        if bias.shard_shape[-1] not in (1, width):
            fail(asked, f"bias_w must be one or the same as other_n. bias_w {bias.shard_shape[-1]}, other_n {width}")
    values = product(x, y, lead)
    if bias is not None:
        row = arrays[-1][..., :1, :]  # of a tile, the first row counts
        values = values + row.reshape(row.shape[:lead] + (1,) * (values.ndim - lead - 2) + row.shape[lead:])
    if output is not None and output.shard_shape[-1] != width:
        fail(asked, f"n must be the same. other_n {width}, output_n {output.shard_shape[-1]}", "an output of the result's shape")
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    return result(like, values, dtype=a.dtype, topology=topology, memory_config=memory_config, output=output)


@operation("moreh_matmul")
def moreh_matmul(
    input: Tensor, other: Tensor, *, transpose_input: bool = False, transpose_other: bool = False, output: Tensor | None = None,
    bias: Tensor | None = None, memory_config: Any = None, compute_kernel_config: Any = None,
) -> Tensor:  # fmt: skip
    """[..., m, k] times [..., k, n] on each chip of its own shards, the batches repeating as NumPy's do, plus a bias [1, n] or [1, 1]."""
    return _multiply("moreh_matmul", input, other, bias, (transpose_input, transpose_other), memory_config, output)


@operation("moreh_linear")
def moreh_linear(
    input: Tensor, weight: Tensor, *, bias: Tensor | None = None, output: Tensor | None = None, memory_config: Any = None,
    compute_kernel_config: Any = None,
) -> Tensor:  # fmt: skip
    """[..., m, k] times the transpose of a weight [n, k], as torch keeps it, plus a bias [1, n] or [1, 1]."""
    return _multiply("moreh_linear", input, weight, bias, (False, True), memory_config, output)


def _into(target: Tensor, like: Tensor, values: Array, sources: tuple[Tensor, ...], asked: object) -> Tensor:
    """Write a gradient into the tensor that was given for it, whose placement becomes that of what it was made from."""
    lead = len(like.grid.shape)
    if target.grid is not like.grid:
        fail(asked, "the tensor for a gradient lies on other chips than the operands", "the same mapper for both")
    values = _summed(values, lead, target.shard_shape)
    if values.shape[lead:] != target.shard_shape:
        fail(asked, f"both tensors should be the same shape, got {list(values.shape[lead:])} and {list(target.shard_shape)}")
    return result(like, values, dtype=target.dtype, topology=merged(like.mesh.grid, *(t.topology for t in sources)), output=target)


@operation("moreh_matmul_backward")
def moreh_matmul_backward(
    output_grad: Tensor, input_a: Tensor, input_b: Tensor, *, are_required_outputs: Any = [True, True], input_a_grad: Tensor | None = None,  # noqa: B006
    input_b_grad: Tensor | None = None, memory_config: Any = None, compute_kernel_config: Any = None,
) -> list[Tensor | None]:  # fmt: skip
    """[gradient of a, gradient of b] of a product, written into the tensors given for them; an operand that repeated gets the sum."""
    name = "moreh_matmul_backward"
    operands = (output_grad, input_a, input_b)
    on_mesh(name, *operands)
    asked = describe(name, operands, {"are_required_outputs": are_required_outputs})
    if len(are_required_outputs) != 2:
        fail(asked, f"are_required_outputs has {len(are_required_outputs)} entries, must have 2")
    for wanted, target, what in zip(are_required_outputs, (input_a_grad, input_b_grad), ("Input", "Other"), strict=True):
        if wanted and target is None:
            fail(asked, f"{what} gradient is marked required but not provided.", "a tensor to write it into, or are_required_outputs")
    like, (g, a, b) = common_grid(operands, lambda: asked)
    lead = len(like.grid.shape)
    made: list[Tensor | None] = [None, None]
    if are_required_outputs[0] and input_a_grad is not None:
        _check(name, output_grad, input_b, output_grad.shard_shape, _swapped(b).shape[lead:])
        made[0] = _into(input_a_grad, like, product(g, _swapped(b), lead), (output_grad, input_b), asked)
    if are_required_outputs[1] and input_b_grad is not None:
        _check(name, input_a, output_grad, _swapped(a).shape[lead:], output_grad.shard_shape)
        made[1] = _into(input_b_grad, like, product(_swapped(a), g, lead), (input_a, output_grad), asked)
    return made


@operation("moreh_linear_backward")
def moreh_linear_backward(
    output_grad: Tensor, input: Tensor, weight: Tensor, *, are_required_outputs: Any = [True, True, True], bias: Tensor | None = None,  # noqa: B006
    input_grad: Tensor | None = None, weight_grad: Tensor | None = None, bias_grad: Tensor | None = None, input_grad_memory_config: Any = None,
    weight_grad_memory_config: Any = None, bias_grad_memory_config: Any = None, compute_kernel_config: Any = None,
) -> list[Tensor | None]:  # fmt: skip
    """[gradient of the input, of the weight, of the bias] of `moreh_linear`, written into the tensors given for them.

    Args:
        are_required_outputs: which to make; None comes back for the others.
        bias_grad: [1, n], or [1, 1] for a bias of one element.
    """
    name = "moreh_linear_backward"
    operands = (output_grad, input, weight)
    on_mesh(name, *operands)
    asked = describe(name, operands, {"are_required_outputs": are_required_outputs})
    if len(are_required_outputs) != 3:
        fail(asked, "are_required_outputs size must be 3", "[input, weight, bias]")
    for wanted, target, what in zip(are_required_outputs, (input_grad, weight_grad, bias_grad), ("input", "weight", "bias"), strict=True):
        if wanted and target is None:
            fail(asked, f"{what}_grad tensor should not be std::nullopt", "a tensor to write it into, or are_required_outputs")
    like, (g, x, w) = common_grid(operands, lambda: asked)
    lead = len(like.grid.shape)
    made: list[Tensor | None] = [None, None, None]
    if are_required_outputs[0] and input_grad is not None:
        _check(name, output_grad, weight, output_grad.shard_shape, weight.shard_shape)
        made[0] = _into(input_grad, like, product(g, w, lead), (output_grad, weight), asked)
    if are_required_outputs[1] and weight_grad is not None:
        _check(name, output_grad, input, _swapped(g).shape[lead:], input.shard_shape)
        made[1] = _into(weight_grad, like, product(_swapped(g), x, lead), (output_grad, input), asked)
    if are_required_outputs[2] and bias_grad is not None:
        made[2] = _into(bias_grad, like, g, (output_grad,), asked)
    return made

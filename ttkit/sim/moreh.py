"""Operations of the `moreh_` family that training needs: softmax and layer norm with its statistics, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.dialect import is_strict
from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.dispatch import common_grid, merged, on_mesh, operation, result
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.nn import softmax_of
from ttkit.sim.tensor import Tensor

F = np.float32
Array = np.ndarray


def _softmax(name: str, tensor: Tensor, dim: int, logarithm: bool, memory_config: Any, output: Tensor | None) -> Tensor:
    on_mesh(name, tensor)
    asked = describe(name, (tensor,), {"dim": dim})
    axis = _axis(asked, tensor, dim)
    if tensor.layout is not Layout.TILE:
        fail(asked, "Inputs to softmax must be tilized", "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    if tensor.dtype not in (DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.FLOAT32):
        fail(asked, f"Inputs must be of bfloat16, bfloat8_b or float32 type. Received: DataType::{tensor.dtype.name}", "ttnn.typecast")
    if not logarithm:
        return result(tensor, softmax_of(tensor.array, axis), memory_config=memory_config, output=output)
    centred = tensor.array - tensor.array.max(axis, keepdims=True)
    centred -= np.log(np.exp(centred).sum(axis, keepdims=True))
    return result(tensor, centred, memory_config=memory_config, output=output)


@operation("moreh_softmax")
def moreh_softmax(
    input_tensor: Tensor, dim: int, *, output_tensor: Tensor | None = None, op: Any = None, strategy: Any = None, memory_config: Any = None,
    compute_kernel_config: Any = None,
) -> Tensor:  # fmt: skip
    """exp(x) over its sum along `dim` of each shard; dim counts from the first."""
    return _softmax("moreh_softmax", input_tensor, dim, False, memory_config, output_tensor)


@operation("moreh_logsoftmax")
def moreh_logsoftmax(
    input_tensor: Tensor, dim: int, *, output_tensor: Tensor | None = None, op: Any = None, strategy: Any = None, memory_config: Any = None,
    compute_kernel_config: Any = None,
) -> Tensor:  # fmt: skip
    """The logarithm of softmax along `dim` of each shard; dim counts from the first."""
    return _softmax("moreh_logsoftmax", input_tensor, dim, True, memory_config, output_tensor)


def _axis(asked: object, tensor: Tensor, dim: int) -> int:
    rank = len(tensor.shard_shape)
    if dim < 0:
        fail(asked, "incompatible function arguments: dim must not be negative", f"dim={dim + rank}", TypeError)
    if dim >= rank:
        fail(asked, f"dim {dim} should be less than output tensor rank {rank}")
    return len(tensor.grid.shape) + dim


def _softmax_slope(name: str, output: Tensor, grad: Tensor, dim: int, logarithm: bool, memory_config: Any, into: Tensor | None) -> Tensor:
    operands = (output, grad)
    on_mesh(name, *operands)
    asked = describe(name, operands, {"dim": dim})
    axis = _axis(asked, output, dim)
    if is_strict():  # a card takes no float32 here
        for what, tensor in (("Output_tensor", output), ("Output_tensor_grad", grad)):
            if tensor.dtype not in (DataType.BFLOAT16, DataType.BFLOAT8_B):
                fail(asked, f"{what} dtype should be bfloat16 or bfloat8_b", "ttnn.typecast(tensor, ttnn.bfloat16)")
    if output.shard_shape != grad.shard_shape:
        fail(asked, "output and gradient must have one shape")
    like, (y, g) = common_grid(operands, lambda: asked)
    values = g - np.exp(y) * g.sum(axis, keepdims=True) if logarithm else y * (g - (g * y).sum(axis, keepdims=True))
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    return result(like, values, dtype=output.dtype, topology=topology, memory_config=memory_config, output=into)


@operation("moreh_softmax_backward")
def moreh_softmax_backward(
    output_tensor: Tensor, output_grad_tensor: Tensor, dim: int, *, input_grad_tensor: Tensor | None = None, op: Any = None, strategy: Any = None,
    memory_config: Any = None, compute_kernel_config: Any = None,
) -> Tensor:  # fmt: skip
    """The gradient of softmax's input from its output y and the gradient g: y * (g - sum(g * y)); dim counts from the first."""
    return _softmax_slope("moreh_softmax_backward", output_tensor, output_grad_tensor, dim, False, memory_config, input_grad_tensor)


@operation("moreh_logsoftmax_backward")
def moreh_logsoftmax_backward(
    output_tensor: Tensor, output_grad_tensor: Tensor, dim: int, *, input_grad_tensor: Tensor | None = None, op: Any = None, strategy: Any = None,
    memory_config: Any = None, compute_kernel_config: Any = None,
) -> Tensor:  # fmt: skip
    """The gradient of log-softmax's input from its output y and the gradient g: g - exp(y) * sum(g); dim counts from the first."""
    return _softmax_slope("moreh_logsoftmax_backward", output_tensor, output_grad_tensor, dim, True, memory_config, input_grad_tensor)


def _over(array: Array, lead: int, shape: tuple[int, ...]) -> Array:
    """A chip's statistic or parameter in another shape, the axes of the grid kept."""
    return array.reshape(array.shape[:lead] + shape)


def _check(name: str, operands: tuple[Tensor, ...], tensor: Tensor, dims: int, asked: object) -> None:
    for other in operands:
        if other.dtype is not DataType.BFLOAT16:
            fail(asked, f"{name} only supports bfloat16. Got: DataType::{other.dtype.name}", "ttnn.typecast")
    rank = len(tensor.shard_shape)
    if dims <= 0:
        fail(asked, f"normalized_dims should > 0. Got {dims}")
    if dims > rank:
        fail(asked, f"normalized_dims should <= input rank ({rank}). Got: {dims}")


def _check_parameter(what: str, tensor: Tensor | None, shape: tuple[int, ...], asked: object) -> None:
    """A tensor of `shape`, maybe with ones before it."""
    rank = len(shape)
    if tensor is not None and (tensor.shard_shape[-rank:] != shape or any(n != 1 for n in tensor.shard_shape[:-rank])):
        fail(asked, f"{what} must have logical shape {list(shape)}. Got {list(tensor.shard_shape)}.")


def _into(target: Tensor | None, like: Tensor, values: Array, lead: int, topology: Any) -> Tensor | None:
    """Write a statistic or gradient into the tensor that was given for it; without one ttnn does not make it."""
    return None if target is None else result(like, _over(values, lead, target.shard_shape), dtype=target.dtype, topology=topology, output=target)


@operation("moreh_layer_norm")
def moreh_layer_norm(
    input: Tensor, normalized_dims: int, eps: float = 9.999999747378752e-06, gamma: Tensor | None = None, beta: Tensor | None = None, *,
    output: Tensor | None = None, mean: Tensor | None = None, rstd: Tensor | None = None, memory_config: Any = None, compute_kernel_config: Any = None,
) -> list[Tensor | None]:  # fmt: skip
    """[output, mean, 1 / deviation] of a layer norm over the last `normalized_dims` dimensions of each shard.

    Args:
        mean, rstd: tensors of the shape of the dimensions that stay; written where given, else None comes back for them.
    """
    name = "moreh_layer_norm"
    operands = tuple(t for t in (input, gamma, beta) if t is not None)
    on_mesh(name, *operands, letters="ABC")
    asked = describe(name, operands, {"normalized_dims": normalized_dims})
    _check(name, operands, input, normalized_dims, asked)
    rank, shape = len(input.shard_shape), input.shard_shape
    kept, inner = shape[: rank - normalized_dims], shape[rank - normalized_dims :]
    for what, statistic in (("mean", mean), ("rstd", rstd)):
        if kept:
            _check_parameter(what, statistic, kept, asked)
    _check_parameter("gamma", gamma, inner, asked)
    _check_parameter("beta", beta, inner, asked)
    like, (x, *parameters) = common_grid(operands, lambda: asked)
    lead = len(like.grid.shape)
    axes = tuple(range(-normalized_dims, 0))
    middle = x.mean(axes, keepdims=True, dtype=F)
    centred = x - middle
    scale = 1 / np.sqrt((centred * centred).mean(axes, keepdims=True, dtype=F) + F(eps))
    values = centred * scale
    rows = [_over(p, lead, (1,) * len(kept) + inner) for p in parameters]
    if gamma is not None:
        values = values * rows.pop(0)
    if beta is not None:
        values = values + rows.pop(0)
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    whole = result(like, values, dtype=input.dtype, topology=topology, memory_config=memory_config, output=output)
    return [whole, _into(mean, like, middle, lead, topology), _into(rstd, like, scale, lead, topology)]


@operation("moreh_layer_norm_backward")
def moreh_layer_norm_backward(
    output_grad: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, normalized_dims: int, *, gamma: Tensor | None = None,
    input_grad: Tensor | None = None, gamma_grad: Tensor | None = None, beta_grad: Tensor | None = None, memory_config: Any = None,
    compute_kernel_config: Any = None,
) -> list[Tensor | None]:  # fmt: skip
    """[gradient of the input, of gamma, of beta] of `moreh_layer_norm`; only those that are given a tensor to write into are made."""
    name = "moreh_layer_norm_backward"
    operands = tuple(t for t in (output_grad, input, mean, rstd, gamma) if t is not None)
    on_mesh(name, *operands, letters="ABCDE")
    asked = describe(name, operands, {"normalized_dims": normalized_dims})
    _check(name, operands, input, normalized_dims, asked)
    if output_grad.shard_shape != input.shard_shape:
        fail(asked, f"gradient and input must have one shape, got {list(output_grad.shard_shape)} and {list(input.shard_shape)}")
    rank, shape = len(input.shard_shape), input.shard_shape
    kept, inner = shape[: rank - normalized_dims], shape[rank - normalized_dims :]
    like, (g, x, *rest) = common_grid(operands, lambda: asked)
    lead = len(like.grid.shape)
    middle, scale = (_over(statistic, lead, kept + (1,) * normalized_dims) for statistic in rest[:2])
    normal = (x - middle) * scale
    weighted = g * _over(rest[2], lead, (1,) * len(kept) + inner) if gamma is not None else g
    axes, rows = tuple(range(-normalized_dims, 0)), tuple(range(lead, lead + len(kept)))
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    made: list[Tensor | None] = []
    if input_grad is not None:
        slope = weighted - weighted.mean(axes, keepdims=True, dtype=F) - normal * (weighted * normal).mean(axes, keepdims=True, dtype=F)
        made.append(_into(input_grad, like, slope * scale, lead, topology))
    else:
        made.append(None)
    made.append(None if gamma_grad is None else _into(gamma_grad, like, (g * normal).sum(rows), lead, topology))
    made.append(None if beta_grad is None else _into(beta_grad, like, g.sum(rows), lead, topology))
    return made

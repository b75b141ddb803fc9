"""Gradients of operations, as ttnn's `*_bw` forms give them: a list with one tensor for each input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim.dispatch import common_grid, describe, merged, on_mesh, operation, result
from ttkit.sim.elementwise import aligned, check_broadcast, erf_of, is_number, sigmoid_of
from ttkit.sim.tensor import Tensor

F = np.float32
Array = np.ndarray
Grads = list[Tensor | None]
ROOT = F(math.sqrt(2 / math.pi))


def _gelu_slope(x: Array) -> Array:
    return F(0.5) * (1 + erf_of(x * F(math.sqrt(0.5)))) + x * np.exp(F(-0.5) * x * x) * F(1 / math.sqrt(2 * math.pi))


def _gelu_tanh_slope(x: Array) -> Array:
    t = np.tanh(ROOT * (x + F(0.044715) * x * x * x))
    return F(0.5) * (1 + t) + F(0.5) * x * (1 - t * t) * ROOT * (1 + F(3 * 0.044715) * x * x)


def _silu_slope(x: Array) -> Array:
    s = sigmoid_of(x)
    return s * (1 + x * (1 - s))


def _square(x: Array) -> Array:
    return x * x


# name -> slope at x, multiplied by the incoming gradient; these take memory_config and input_grad
SLOPES: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: (x > 0).astype(F), "silu": _silu_slope, "sigmoid": lambda x: sigmoid_of(x) * (1 - sigmoid_of(x)), "tanh": lambda x: 1 - _square(np.tanh(x)),
    "exp": np.exp, "log": lambda x: 1 / x, "sqrt": lambda x: F(0.5) / np.sqrt(x), "rsqrt": lambda x: F(-0.5) / (x * np.sqrt(x)), "neg": lambda x: np.full_like(x, -1),
    "abs": np.sign, "square": lambda x: 2 * x, "reciprocal": lambda x: -1 / _square(x), "sin": np.cos, "cos": lambda x: -np.sin(x),
    "erf": lambda x: F(2 / math.sqrt(math.pi)) * np.exp(-_square(x)), "expm1": np.exp, "log1p": lambda x: 1 / (1 + x),
}  # fmt: skip


def _through(name: str, grad: Tensor, tensor: Tensor, slope: Callable[[Array], Array], memory_config: Any, into: Tensor | None) -> list[Any]:
    on_mesh(name, grad, tensor)
    asked = lambda: describe(name, (grad, tensor))  # noqa: E731
    check_broadcast(grad.shard_shape, tensor.shard_shape, asked())
    like, (g, x) = aligned((grad, tensor), asked)
    topology = merged(like.mesh.grid, grad.topology, tensor.topology)
    return [result(like, g * slope(x), dtype=tensor.dtype, topology=topology, memory_config=memory_config, output=into)]


def _enter(name: str, slope: Callable[[Array], Array]) -> Callable[..., Any]:
    def call(grad_tensor: Tensor, input_tensor: Tensor, *, memory_config: Any = None, input_grad: Tensor | None = None) -> list[Any]:
        return _through(f"{name}_bw", grad_tensor, input_tensor, slope, memory_config, input_grad)

    call.__name__ = call.__qualname__ = f"{name}_bw"
    call.__doc__ = f"[gradient of {name}'s input]."
    return operation(f"{name}_bw")(call)


UNARY = {f"{name}_bw": _enter(name, slope) for name, slope in SLOPES.items()}


@operation("gelu_bw")
def gelu_bw(grad_tensor: Tensor, input_tensor: Tensor, *, approximate: str = "none", memory_config: Any = None, input_grad: Tensor | None = None) -> list[Any]:
    """[gradient of GELU's input]; approximate is "none" (error function) or "tanh"."""
    if approximate not in ("none", "tanh"):
        fail(describe("gelu_bw", (grad_tensor, input_tensor)), f"Incorrect approximate mode {approximate!r} (expected 'none' or 'tanh')")
    slope = _gelu_slope if approximate == "none" else _gelu_tanh_slope
    return _through("gelu_bw", grad_tensor, input_tensor, slope, memory_config, input_grad)


@operation("softplus_bw")
def softplus_bw(grad_tensor: Tensor, input_tensor: Tensor, *, beta: float = 1.0, threshold: float = 20.0, memory_config: Any = None) -> list[Any]:
    """[gradient of softplus's input]."""
    slope = lambda x: np.where(x * F(beta) > threshold, F(1), sigmoid_of(x * F(beta)))  # noqa: E731
    return _through("softplus_bw", grad_tensor, input_tensor, slope, memory_config, None)


@operation("leaky_relu_bw")
def leaky_relu_bw(grad_tensor: Tensor, input_tensor: Tensor, *, negative_slope: float = 0.01, memory_config: Any = None) -> list[Any]:
    """[gradient of leaky ReLU's input]."""
    return _through("leaky_relu_bw", grad_tensor, input_tensor, lambda x: np.where(x > 0, F(1), F(negative_slope)), memory_config, None)


@operation("elu_bw")
def elu_bw(grad_tensor: Tensor, input_tensor: Tensor, *, alpha: float = 1.0, memory_config: Any = None) -> list[Any]:
    """[gradient of ELU's input]."""
    return _through("elu_bw", grad_tensor, input_tensor, lambda x: np.where(x > 0, F(1), F(alpha) * np.exp(np.minimum(x, 0))), memory_config, None)


@operation("pow_bw")
def pow_bw(grad_tensor: Tensor, input_tensor: Tensor, exponent: float, *, memory_config: Any = None, input_grad: Tensor | None = None) -> Grads:
    """[gradient of the base of a power]."""
    slope = lambda x: F(exponent) * np.power(x, F(exponent - 1)) if exponent else np.zeros_like(x)  # noqa: E731
    return _through("pow_bw", grad_tensor, input_tensor, slope, memory_config, input_grad)


@operation("clamp_bw")
def clamp_bw(grad_tensor: Tensor, input_tensor: Tensor, min: float | None = None, max: float | None = None, *, memory_config: Any = None) -> list[Any]:
    """[gradient of clamp's input]: passes where the value lies between the limits."""
    low, high = (-np.inf if min is None else min), (np.inf if max is None else max)
    return _through("clamp_bw", grad_tensor, input_tensor, lambda x: ((x >= low) & (x <= high)).astype(F), memory_config, None)


def _pair(
    name: str, grad: Tensor, a: Tensor, b: Any, slopes: tuple[Callable[[Array, Array], Any], Callable[[Array, Array], Any]], wanted: Any, memory_config: Any,
    into: tuple[Tensor | None, Tensor | None],
) -> Grads:  # fmt: skip
    """Gradients of an operation of two tensors, or of a tensor and a number (one gradient then)."""
    if is_number(b):
        return list(_through(name, grad, a, lambda x: np.broadcast_to(slopes[0](x, np.asarray(b, F)), x.shape), memory_config, into[0]))
    operands = (grad, a, b)
    on_mesh(name, *operands)
    asked = lambda: describe(name, operands)  # noqa: E731
    for other in (a, b):
        check_broadcast(grad.shard_shape, other.shard_shape, asked())
    like, (g, x, y) = aligned(operands, asked)
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    made: Grads = []
    for source, slope, asked_for, target in zip((a, b), slopes, wanted, into, strict=True):
        values = _folded(np.asarray(g * slope(x, y)), len(like.grid.shape), source.shard_shape) if asked_for else None
        made.append(None if values is None else result(like, values, dtype=source.dtype, topology=topology, memory_config=memory_config, output=target))
    return made


def _folded(values: Array, lead: int, shape: tuple[int, ...]) -> Array:
    """Sum over the dimensions along which an operand was repeated."""
    extra = values.ndim - lead - len(shape)
    if extra:
        values = values.sum(tuple(range(lead, lead + extra)))
    repeated = tuple(lead + i for i, n in enumerate(shape) if n == 1 and values.shape[lead + i] != 1)
    return values.sum(repeated, keepdims=True) if repeated else values


@operation("add_bw")
def add_bw(
    grad_tensor: Tensor, input_tensor: Tensor, other_tensor: Any, *, are_required_outputs: Any = [True, True], memory_config: Any = None,  # noqa: B006
    input_grad: Tensor | None = None, other_grad: Tensor | None = None,
) -> Grads:  # fmt: skip
    """[gradient of a, gradient of b] of a + b; an operand that was repeated gets the sum."""
    one = lambda x, y: F(1)  # noqa: E731
    return _pair("add_bw", grad_tensor, input_tensor, other_tensor, (one, one), are_required_outputs, memory_config, (input_grad, other_grad))


@operation("sub_bw")
def sub_bw(
    grad_tensor: Tensor, input_tensor: Tensor, other_tensor: Any, *, are_required_outputs: Any = [True, True], memory_config: Any = None,  # noqa: B006
    input_grad: Tensor | None = None, other_grad: Tensor | None = None,
) -> Grads:  # fmt: skip
    """[gradient of a, gradient of b] of a - b."""
    slopes = (lambda x, y: F(1), lambda x, y: F(-1))
    return _pair("sub_bw", grad_tensor, input_tensor, other_tensor, slopes, are_required_outputs, memory_config, (input_grad, other_grad))


@operation("mul_bw")
def mul_bw(
    grad_tensor: Tensor, input_tensor: Tensor, other_tensor: Any, *, are_required_outputs: Any = [True, True], memory_config: Any = None,  # noqa: B006
    input_grad: Tensor | None = None, other_grad: Tensor | None = None,
) -> Grads:  # fmt: skip
    """[gradient of a, gradient of b] of a * b."""
    slopes = (lambda x, y: y, lambda x, y: x)
    return _pair("mul_bw", grad_tensor, input_tensor, other_tensor, slopes, are_required_outputs, memory_config, (input_grad, other_grad))


@operation("div_bw")
def div_bw(
    grad_tensor: Tensor, input_tensor: Tensor, other_tensor: Any, *, rounding_mode: str | None = None, are_required_outputs: Any = [True, True],  # noqa: B006
    memory_config: Any = None, input_grad: Tensor | None = None, other_grad: Tensor | None = None,
) -> Grads:  # fmt: skip
    """[gradient of a, gradient of b] of a / b; a rounded quotient has no slope."""
    slopes = (lambda x, y: 1 / y, lambda x, y: -x / _square(y)) if rounding_mode is None else (lambda x, y: F(0), lambda x, y: F(0))
    return _pair("div_bw", grad_tensor, input_tensor, other_tensor, slopes, are_required_outputs, memory_config, (input_grad, other_grad))


@operation("embedding_bw")
def embedding_bw(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    output_gradient_tensor: Tensor,
    *,
    dtype: Any = None,
    memory_config: Any = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """The gradient of an embedding table, [1, 1, vocabulary, n]: each row of the gradient added to the row of its index."""
    operands = (input_tensor, weight_tensor, output_gradient_tensor)
    on_mesh("embedding_bw", *operands)
    like, (indices, _, grads) = common_grid(operands, lambda: describe("embedding_bw", operands))
    rows, width = weight_tensor.shard_shape[-2:]
    lead = len(like.grid.shape)
    lengths = np.broadcast_shapes(indices.shape[:lead], grads.shape[:lead])
    numbers = np.broadcast_to(indices, lengths + indices.shape[lead:]).astype(np.int64)
    values = np.broadcast_to(grads, lengths + grads.shape[lead:])
    if numbers.size and numbers.max() >= rows:
        fail(describe("embedding_bw", operands), f"index {int(numbers.max())} is outside of a table of {rows} rows")
    table = np.zeros(lengths + (rows, width), F)
    for chip in np.ndindex(lengths):
        np.add.at(table[chip], numbers[chip].reshape(-1), values[chip].reshape(-1, width))
    table = table.reshape(lengths + (1, 1, rows, width))
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    return result(like, table, dtype=dtype or output_gradient_tensor.dtype, topology=topology, memory_config=memory_config, output=output_tensor)


@operation("where_bw")
def where_bw(
    grad_tensor: Tensor, condition_tensor: Tensor, input_tensor: Tensor, other_tensor: Tensor, *, are_required_outputs: Any = [True, True],  # noqa: B006
    memory_config: Any = None, input_grad: Tensor | None = None, other_grad: Tensor | None = None,
) -> Grads:  # fmt: skip
    """[gradient of the value where true, gradient of the value where false]."""
    operands = (grad_tensor, condition_tensor)
    on_mesh("where_bw", *operands)
    like, (g, condition) = aligned(operands, lambda: describe("where_bw", operands))
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    made: Grads = []
    for chosen, asked_for, target in zip((condition != 0, condition == 0), are_required_outputs, (input_grad, other_grad), strict=True):
        made.append(result(like, np.where(chosen, g, F(0)), dtype=grad_tensor.dtype, topology=topology, output=target) if asked_for else None)
    return made


@operation("moreh_softmax_backward")
def moreh_softmax_backward(
    output_tensor: Tensor, output_grad_tensor: Tensor, dim: int, *, input_grad_tensor: Tensor | None = None, op: Any = None, strategy: Any = None,
    memory_config: Any = None, compute_kernel_config: Any = None,
) -> Tensor:  # fmt: skip
    """The gradient of softmax's input from its output y and the gradient g: y * (g - sum(g * y))."""
    operands = (output_tensor, output_grad_tensor)
    on_mesh("moreh_softmax_backward", *operands)
    asked = lambda: describe("moreh_softmax_backward", operands, {"dim": dim})  # noqa: E731
    rank = len(output_tensor.shard_shape)
    if output_tensor.shard_shape != output_grad_tensor.shard_shape or not -rank <= dim < rank:
        fail(asked(), "output and gradient must have one shape, and dim be one of its dimensions")
    like, (y, g) = common_grid(operands, asked)
    axis = len(like.grid.shape) + dim % rank
    values = y * (g - (g * y).sum(axis, keepdims=True))
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    return result(like, values, dtype=output_tensor.dtype, topology=topology, memory_config=memory_config, output=input_grad_tensor)

"""Gradients of operations, as ttnn's `*_bw` forms give them: a list with one tensor for each input."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ttkit.dialect import older_form
from ttkit.errors import fail
from ttkit.sim import blocks
from ttkit.sim.arguments import describe
from ttkit.sim.binary import aligned, check_broadcast, is_number
from ttkit.sim.dispatch import common_grid, merged, on_mesh, operation, result
from ttkit.sim.enums import GeluVariant, Layout
from ttkit.sim.promotion import check_types
from ttkit.sim.tensor import Tensor
from ttkit.sim.unary import erf_of, named, sigmoid_of

F = np.float32
Array = np.ndarray
Grads = list[Tensor | None]
ROOT = F(math.sqrt(2 / math.pi))
BOTH = [True, True]  # ttnn's own default for what is wanted; never written to


def _gelu_slope(x: Array) -> Array:
    """The derivative of GELU."""
    return F(0.5) * (1 + erf_of(x * F(math.sqrt(0.5)))) + x * np.exp(F(-0.5) * x * x) * F(1 / math.sqrt(2 * math.pi))


def _gelu_tanh_slope(x: Array, out: Array, t: Array) -> None:
    """(1 + t)(1 + (1 - t) u') / 2 for t = tanh(u), u = ROOT (x + 0.044715 x^3): the derivative with 1 - t^2 taken apart, in few passes."""
    np.multiply(x, x, out=out)
    np.multiply(out, F(0.044715) * ROOT, out=t)
    t += ROOT
    t *= x
    np.tanh(t, out=t)
    out *= F(3 * 0.044715) * ROOT
    out += ROOT
    out *= x
    out *= F(1) - t
    out += F(1)
    t += F(1)
    out *= t
    out *= F(0.5)


def gelu_tanh_slope(x: Array) -> Array:
    """The derivative of GELU's tanh form."""
    return blocks.elementwise(_gelu_tanh_slope, x)


def _silu_slope(x: Array) -> Array:
    s = sigmoid_of(x)
    return s * (1 + x * (1 - s))


def _square(x: Array) -> Array:
    return x * x


# name -> slope at x, multiplied by the incoming gradient
SLOPES: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: (x > 0).astype(F), "silu": _silu_slope, "sigmoid": lambda x: sigmoid_of(x) * (1 - sigmoid_of(x)), "tanh": lambda x: 1 - _square(np.tanh(x)),
    "exp": np.exp, "log": lambda x: 1 / x, "sqrt": lambda x: F(0.5) / np.sqrt(x), "rsqrt": lambda x: F(-0.5) / (x * np.sqrt(x)), "neg": lambda x: np.full_like(x, -1),
    "abs": np.sign, "square": lambda x: 2 * x, "reciprocal": lambda x: -1 / _square(x), "sin": np.cos, "cos": lambda x: -np.sin(x),
    "erf": lambda x: F(2 / math.sqrt(math.pi)) * np.exp(-_square(x)), "expm1": np.exp, "log1p": lambda x: 1 / (1 + x),
}  # fmt: skip

TAKE_INPUT_GRAD = {"silu", "tanh", "exp", "sqrt", "rsqrt", "neg"}  # ttnn has an input_grad= for these and not for the others

LN2, LN10 = F(math.log(2)), F(math.log(10))


def _between(low: float, high: float, x: Array) -> Array:
    return ((x > F(low)) & (x < F(high))).astype(F)


# the same for those that ttnn makes of other operations: the types of both must go together, and the result has the gradient's
COMPOSED: dict[str, Callable[[Array], Array]] = {
    "acos": lambda x: -1 / np.sqrt(1 - _square(x)), "asin": lambda x: 1 / np.sqrt(1 - _square(x)), "atan": lambda x: 1 / (1 + _square(x)),
    "tan": lambda x: 1 + _square(np.tan(x)), "sinh": np.cosh, "cosh": np.sinh, "exp2": lambda x: np.exp2(x) * LN2,
    "erfc": lambda x: F(-2 / math.sqrt(math.pi)) * np.exp(-_square(x)), "log2": lambda x: 1 / (x * LN2), "log10": lambda x: 1 / (x * LN10),
    "relu6": lambda x: _between(0, 6, x), "hardsigmoid": lambda x: _between(-3, 3, x) / 6, "log_sigmoid": lambda x: sigmoid_of(-x),
    "hardswish": lambda x: np.where(x <= -3, F(0), np.where(x < 3, x / 3 + F(0.5), F(1))),
    "softsign": lambda x: 1 / _square(1 + np.abs(x)), "tanhshrink": lambda x: _square(np.tanh(x)),
}  # fmt: skip

NEED_TILES = {"acos", "asin", "hardswish", "log2", "log10"}  # ttnn chooses between branches with a kernel that takes only tiles


def _through(name: str, grad: Tensor, tensor: Tensor, slope: Callable[[Array], Array], memory_config: Any, into: Tensor | None) -> list[Any]:
    on_mesh(name, grad, tensor)
    asked = lambda: describe(name, (grad, tensor))  # noqa: E731
    check_broadcast(grad.shard_shape, tensor.shard_shape, asked())
    dtype, operand = tensor.dtype, name.removesuffix("_bw")
    if operand in COMPOSED:
        check_types(name, grad, tensor)
        dtype = grad.dtype
    if operand in NEED_TILES and tensor.layout is not Layout.TILE:
        rule = "Ternary operation requires tensor to be in Tile layout when working with non-sharded input tensor"
        fail(asked(), rule, "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    like, (g, x) = aligned((grad, tensor), asked)
    topology = merged(like.mesh.grid, grad.topology, tensor.topology)
    return [result(like, g * slope(x), dtype=dtype, topology=topology, memory_config=memory_config, output=into)]


def _enter(name: str, slope: Callable[[Array], Array]) -> Callable[..., Any]:
    if name in TAKE_INPUT_GRAD:

        def call(grad_tensor: Tensor, input_tensor: Tensor, *, memory_config: Any = None, input_grad: Tensor | None = None) -> list[Any]:
            return _through(f"{name}_bw", grad_tensor, input_tensor, slope, memory_config, input_grad)

    else:

        def call(grad_tensor: Tensor, input_tensor: Tensor, *, memory_config: Any = None) -> list[Any]:  # type: ignore[misc]
            return _through(f"{name}_bw", grad_tensor, input_tensor, slope, memory_config, None)

    return named(f"{name}_bw", call, f"[gradient of {name}'s input].")


TABLE = {f"{name}_bw": _enter(name, slope) for name, slope in (SLOPES | COMPOSED).items()}


@operation("gelu_bw")
def gelu_bw(
    grad_tensor: Tensor, input_tensor: Tensor, *, variant: GeluVariant = GeluVariant.Accurate, memory_config: Any = None, input_grad: Tensor | None = None,
    **older: Any,
) -> list[Any]:  # fmt: skip
    """[gradient of GELU's input]: GeluVariant.Accurate goes by the error function, GeluVariant.Tanh by tanh.

    The older form approximate="none" or "tanh" is taken outside of the strict dialect.
    """
    asked = describe("gelu_bw", (grad_tensor, input_tensor), older or {"variant": variant})
    if set(older) == {"approximate"} and older_form("gelu_bw(approximate=)", "variant=ttnn.GeluVariant.Accurate or Tanh"):
        modes = {"none": GeluVariant.Accurate, "tanh": GeluVariant.Tanh}
        if older["approximate"] not in modes:
            fail(asked, f"Incorrect approximate mode {older['approximate']!r} (expected 'none' or 'tanh')")
        variant = modes[older["approximate"]]
    elif older:
        fail(asked, f"incompatible function arguments: {', '.join(older)}", "variant=ttnn.GeluVariant.Tanh", TypeError)
    if variant is GeluVariant.FastLut:
        fail(asked, "GELU_BW does not support GeluVariant::FAST_LUT because no matching backward kernel is available.", "GeluVariant.Tanh")
    if isinstance(grad_tensor, Tensor) and isinstance(input_tensor, Tensor) and grad_tensor.shard_shape != input_tensor.shard_shape:
        shapes = f"{list(grad_tensor.shard_shape)} and {list(input_tensor.shard_shape)}"
        fail(asked, f"GELU_BW operation requires grad_output and input to have the same logical shape, but got {shapes}")
    slope = _gelu_slope if variant is GeluVariant.Accurate else gelu_tanh_slope
    return _through("gelu_bw", grad_tensor, input_tensor, slope, memory_config, input_grad)


@operation("softplus_bw")
def softplus_bw(grad_tensor: Tensor, input_tensor: Tensor, *, beta: float = 1.0, threshold: float = 20.0, memory_config: Any = None) -> list[Any]:
    """[gradient of softplus's input]."""
    slope = lambda x: np.where(x * F(beta) > threshold, F(1), sigmoid_of(x * F(beta)))  # noqa: E731
    return _through("softplus_bw", grad_tensor, input_tensor, slope, memory_config, None)


@operation("leaky_relu_bw")
def leaky_relu_bw(grad_tensor: Tensor, input_tensor: Tensor, *, negative_slope: float = 0.009999999776482582, memory_config: Any = None) -> list[Any]:
    """[gradient of leaky ReLU's input]."""
    return _through("leaky_relu_bw", grad_tensor, input_tensor, lambda x: np.where(x > 0, F(1), F(negative_slope)), memory_config, None)


@operation("elu_bw")
def elu_bw(grad_tensor: Tensor, input_tensor: Tensor, *, alpha: float = 1.0, memory_config: Any = None) -> list[Any]:
    """[gradient of ELU's input]."""
    return _through("elu_bw", grad_tensor, input_tensor, lambda x: np.where(x > 0, F(1), F(alpha) * np.exp(np.minimum(x, 0))), memory_config, None)


@operation("pow_bw")
def pow_bw(grad_tensor: Tensor, input_tensor: Tensor, exponent: float, *, memory_config: Any = None, input_grad: Tensor | None = None) -> Grads:
    """[gradient of the base of a power]."""
    if exponent < 0:
        rule = f"negative exponents are not supported; use recip(pow(input,abs(exponent))), got {exponent}"
        fail(describe("pow_bw", (grad_tensor, input_tensor, exponent)), rule, "reciprocal_bw and pow_bw, one after the other")
    slope = lambda x: F(exponent) * np.power(x, F(exponent - 1)) if exponent else np.zeros_like(x)  # noqa: E731
    return _through("pow_bw", grad_tensor, input_tensor, slope, memory_config, input_grad)


@operation("clamp_bw")
def clamp_bw(grad_tensor: Tensor, input_tensor: Tensor, min: Any = None, max: Any = None, *, memory_config: Any = None) -> list[Any]:
    """[gradient of clamp's input]: passes where the value lies between the limits, which are two numbers or two tensors."""
    if min is None and max is None:
        fail(describe("clamp_bw", (grad_tensor, input_tensor)), "Only one of 'min' or 'max' can be None. Please provide one value")
    limits = tuple(t for t in (min, max) if isinstance(t, Tensor))
    operands = (grad_tensor, input_tensor, *limits)
    on_mesh("clamp_bw", *operands, letters="ABCD")
    asked = lambda: describe("clamp_bw", operands)  # noqa: E731
    for other in operands[1:]:
        check_broadcast(grad_tensor.shard_shape, other.shard_shape, asked())
    like, (g, x, *more) = aligned(operands, asked)
    low, high = (more.pop(0) if isinstance(t, Tensor) else t for t in (min, max))
    passes = np.ones((1,) * x.ndim, bool)
    if low is not None:
        passes = passes & (x >= low)
    if high is not None:
        passes = passes & (x <= high)
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    return [result(like, np.where(passes, g, F(0)), dtype=input_tensor.dtype, topology=topology, memory_config=memory_config)]


def _pair(
    name: str, grad: Tensor, a: Tensor, b: Any, slopes: Sequence[Callable[[Array, Array], Any]], wanted: Any, memory_config: Any,
    into: tuple[Tensor | None, Tensor | None], folds: bool = False,
) -> Grads:  # fmt: skip
    """Gradients of an operation of two tensors, or of a tensor and a number (one gradient then).

    Each gradient has its operand's shape; only `mul_bw` adds up over dimensions that repeated (`folds`), the others refuse them.
    """
    if is_number(b):
        return list(_through(name, grad, a, lambda x: np.broadcast_to(slopes[0](x, np.asarray(b, F)), x.shape), memory_config, into[0]))
    operands = (grad, a, b)
    on_mesh(name, *operands)
    asked = lambda: describe(name, operands)  # noqa: E731
    for other, asked_for in zip((a, b), wanted, strict=True):
        check_broadcast(grad.shard_shape, other.shard_shape, asked())
        check_types(name, grad, other)
        if other.shard_shape != grad.shard_shape and asked_for and not folds:
            rule = f"Shape of Output tensor {list(other.shard_shape)} provided does not match the broadcasted output shape {list(grad.shard_shape)}"
            fail(asked(), rule, "operands of one shape, or mul_bw; ttnn.sum the gradient yourself")
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


def _enter_pair(name: str, doc: str, *slopes: Callable[[Array, Array], Any], folds: bool = False) -> Callable[..., Grads]:
    def call(
        grad_tensor: Tensor, input_tensor: Tensor, other_tensor: Any, *, are_required_outputs: Any = BOTH, memory_config: Any = None,
        input_grad: Tensor | None = None, other_grad: Tensor | None = None,
    ) -> Grads:  # fmt: skip
        return _pair(name, grad_tensor, input_tensor, other_tensor, slopes, are_required_outputs, memory_config, (input_grad, other_grad), folds)

    return named(name, call, f"[gradient of a, gradient of b] of {doc}")


TABLE |= {
    "add_bw": _enter_pair("add_bw", "a + b; shapes must be equal, as for all of these but mul_bw.", lambda x, y: F(1), lambda x, y: F(1)),
    "sub_bw": _enter_pair("sub_bw", "a - b.", lambda x, y: F(1), lambda x, y: F(-1)),
    "mul_bw": _enter_pair("mul_bw", "a * b; an operand that was repeated gets the sum.", lambda x, y: y, lambda x, y: x, folds=True),
}


@operation("div_bw")
def div_bw(
    grad_tensor: Tensor, input_tensor: Tensor, other_tensor: Any, *, rounding_mode: str | None = None, are_required_outputs: Any = BOTH,
    memory_config: Any = None, input_grad: Tensor | None = None, other_grad: Tensor | None = None,
) -> Grads:  # fmt: skip
    """[gradient of a, gradient of b] of a / b; a rounded quotient has no slope."""
    if rounding_mode not in (None, "trunc", "floor"):
        fail(describe("div_bw", (grad_tensor, input_tensor, other_tensor)), f"Incorrect rounding mode {rounding_mode!r} (expected None, 'trunc', or 'floor')")
    slopes = (lambda x, y: 1 / y, lambda x, y: -x / _square(y)) if rounding_mode is None else (lambda x, y: F(0), lambda x, y: F(0))
    return _pair("div_bw", grad_tensor, input_tensor, other_tensor, slopes, are_required_outputs, memory_config, (input_grad, other_grad))


@operation("concat_bw")
def concat_bw(
    grad_tensor: Tensor, input_tensor_a: Tensor, input_tensor_b: Tensor, dim: int = 0, *, are_required_outputs: Any = BOTH,
    memory_config: Any = None, input_a_grad: Tensor | None = None, input_b_grad: Tensor | None = None,
) -> Grads:  # fmt: skip
    """[gradient of a, gradient of b] of their concatenation along `dim`: the gradient cut in two; all have rank 4."""
    operands = (grad_tensor, input_tensor_a, input_tensor_b)
    on_mesh("concat_bw", *operands)
    asked = describe("concat_bw", operands, {"dim": dim})
    ranks = [len(t.shard_shape) for t in operands]
    if ranks != [4, 4, 4]:
        fail(asked, f"concat_bw expects rank-4 tensors, got grad rank {ranks[0]}, input rank {ranks[1]}, other rank {ranks[2]}", "ttnn.unsqueeze_to_4D")
    if not -4 <= dim < 4:
        fail(asked, f"Dimension out of range (expected to be in range of [-4, 3], but got {dim})")
    axis = dim % 4
    whole, first, second = (t.shard_shape for t in operands)
    if first[:axis] + (first[axis] + second[axis],) + first[axis + 1 :] != whole or first[:axis] + first[axis + 1 :] != second[:axis] + second[axis + 1 :]:
        fail(asked, f"{list(first)} and {list(second)} do not make {list(whole)} along dim {dim}", "the shapes that went into concat")
    like, (g, _, _) = common_grid(operands, lambda: asked)
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    parts = np.split(g, [first[axis]], len(like.grid.shape) + axis)
    return [
        result(like, part, dtype=grad_tensor.dtype, topology=topology, memory_config=memory_config, output=target, owned=False) if asked_for else None
        for part, asked_for, target in zip(parts, are_required_outputs, (input_a_grad, input_b_grad), strict=True)
    ]


@operation("embedding_bw")
def embedding_bw(
    input_tensor: Tensor, weight_tensor: Tensor, output_gradient_tensor: Tensor, *, dtype: Any = None, memory_config: Any = None,
    output_tensor: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of an embedding table, [1, 1, vocabulary, n]: each row of the gradient added to the row of its index."""
    operands = (input_tensor, weight_tensor, output_gradient_tensor)
    on_mesh("embedding_bw", *operands)
    asked = describe("embedding_bw", operands)
    if input_tensor.layout is not Layout.ROW_MAJOR:
        fail(asked, f"Index tensor layout must be ROW_MAJOR but got Layout::{input_tensor.layout.name}", "ttnn.to_layout(indices, ttnn.ROW_MAJOR_LAYOUT)")
    front = output_gradient_tensor.shard_shape[:-2]
    if len(front) != 2 or any(n != 1 for n in front):
        shape = " && ".join(map(str, front)) or "nothing"
        fail(asked, f"First two dimensions for the gradient tensor must be 1, but found {shape}.", "ttnn.reshape it to [1, 1, batch * s, n]")
    if input_tensor.shard_shape[-1] % 32:
        fail(asked, "Number of columns in the index tensor must be divisible by tile width", "a sequence of a multiple of 32")
    if input_tensor.logical_volume() != output_gradient_tensor.shard_shape[-2]:
        fail(asked, f"{input_tensor.logical_volume()} indices and {output_gradient_tensor.shard_shape[-2]} rows of the gradient")
    like, (indices, _, grads) = common_grid(operands, lambda: asked)
    rows, width = weight_tensor.shard_shape[-2:]
    lead = len(like.grid.shape)
    lengths = np.broadcast_shapes(indices.shape[:lead], grads.shape[:lead])
    numbers = np.broadcast_to(indices, lengths + indices.shape[lead:]).astype(np.int64)
    values = np.broadcast_to(grads, lengths + grads.shape[lead:])
    if numbers.size and numbers.max() >= rows:
        fail(asked, f"index {int(numbers.max())} is outside of a table of {rows} rows")
    table = np.zeros(lengths + (rows, width), F)
    for chip in np.ndindex(lengths):
        np.add.at(table[chip], numbers[chip].reshape(-1), values[chip].reshape(-1, width))
    table = table.reshape(lengths + (1, 1, rows, width))
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    return result(
        like, table, dtype=dtype or output_gradient_tensor.dtype, layout=Layout.TILE, topology=topology, memory_config=memory_config, output=output_tensor
    )


@operation("where_bw")
def where_bw(
    grad_tensor: Tensor, input_tensor_a: Tensor, input_tensor_b: Tensor, input_tensor_c: Tensor, *, memory_config: Any = None,
    are_required_outputs: Any = BOTH, input_a_grad: Tensor | None = None, input_b_grad: Tensor | None = None,
) -> Grads:  # fmt: skip
    """[gradient of b, gradient of c] of where(a, b, c); both have the shape of the gradient."""
    operands = (grad_tensor, input_tensor_a, input_tensor_b, input_tensor_c)
    on_mesh("where_bw", *operands, letters="ABCD")
    asked = lambda: describe("where_bw", operands)  # noqa: E731
    for other in operands[1:]:
        check_broadcast(grad_tensor.shard_shape, other.shard_shape, asked())
    like, (g, condition, _, _) = aligned(operands, asked)
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    made: Grads = []
    for chosen, asked_for, target in zip((condition != 0, condition == 0), are_required_outputs, (input_a_grad, input_b_grad), strict=True):
        values = np.where(chosen, g, F(0)) if asked_for else None
        made.append(None if values is None else result(like, values, dtype=grad_tensor.dtype, topology=topology, memory_config=memory_config, output=target))
    return made

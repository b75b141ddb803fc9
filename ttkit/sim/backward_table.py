"""Gradients of the other elementwise operations: one table for one operand, one for several.

A gradient takes the dtype of what comes in, and its placement from the operands that its formula reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.backward import clamp_bw, gelu_slope, gelu_tanh_slope
from ttkit.sim.binary import aligned, check_broadcast, is_number
from ttkit.sim.dispatch import merged, on_mesh, operation, result
from ttkit.sim.enums import GeluVariant, Layout
from ttkit.sim.promotion import check_types
from ttkit.sim.tensor import Tensor
from ttkit.sim.unary import sigmoid_of

F = np.float32
Array = np.ndarray
Rule = tuple[str, Callable[..., Array]]  # which operands the formula reads, by letter, and the formula

LN2, LN10 = F(math.log(2)), F(math.log(10))


def _kept(grad: Array) -> Array:
    return grad.copy()


def _zero(grad: Array) -> Array:
    return np.zeros_like(grad)


def _between(low: float, high: float, inside: Callable[[Array, Array], Array] = lambda g, x: g) -> Callable[[Array, Array], Array]:
    return lambda g, x: np.where((x > F(low)) & (x < F(high)), inside(g, x), F(0))


def _hardswish(g: Array, x: Array) -> Array:
    return np.where(x <= -3, F(0), np.where(x < 3, g * (x / 3 + F(0.5)), g))


def _extreme(wins: Callable[[Array, Array], Array]) -> Callable[[Array, Array, Array], Array]:
    """The gradient goes to the operand that wins; equal ones share it."""
    return lambda g, mine, other: g * np.where(mine == other, F(0.5), wins(mine, other).astype(F))


# name -> the gradient from g, what comes in, and x, the operand; where the operand does not matter it is not read
ONE: dict[str, Rule] = {
    "acos": ("gx", lambda g, x: -g / np.sqrt(1 - x * x)), "asin": ("gx", lambda g, x: g / np.sqrt(1 - x * x)), "atan": ("gx", lambda g, x: g / (1 + x * x)),
    "tan": ("gx", lambda g, x: g * (1 + np.square(np.tan(x)))), "sinh": ("gx", lambda g, x: g * np.cosh(x)), "cosh": ("gx", lambda g, x: g * np.sinh(x)),
    "exp2": ("gx", lambda g, x: g * np.exp2(x) * LN2), "erfc": ("gx", lambda g, x: g * F(-2 / math.sqrt(math.pi)) * np.exp(-x * x)),
    "relu6": ("gx", _between(0, 6)), "hardsigmoid": ("gx", _between(-3, 3, lambda g, x: g / 6)), "hardswish": ("gx", _hardswish),
    "log_sigmoid": ("gx", lambda g, x: g * sigmoid_of(-x)), "softsign": ("gx", lambda g, x: g / np.square(1 + np.abs(x))),
    "tanhshrink": ("gx", lambda g, x: g * np.square(np.tanh(x))), "log2": ("gx", lambda g, x: g / (x * LN2)), "log10": ("gx", lambda g, x: g / (x * LN10)),
    "rad2deg": ("g", lambda g: g * F(180 / math.pi)), "deg2rad": ("g", lambda g: g * F(math.pi / 180)), "frac": ("g", _kept),
    "floor": ("g", _zero), "ceil": ("g", _zero), "trunc": ("g", _zero), "round": ("g", _zero), "sign": ("g", _zero), "fill_zero": ("g", _zero),
}  # fmt: skip

NEED_TILES = {"acos", "asin", "hardswish", "log2", "log10"}  # ttnn chooses between branches with a kernel that takes only tiles

# name -> the gradients of the two operands a and b
TWO: dict[str, tuple[Rule, Rule]] = {
    "max": (("gab", _extreme(np.greater)), ("gba", _extreme(np.greater))),
    "min": (("gab", _extreme(np.less)), ("gba", _extreme(np.less))),
    "atan2": (("gab", lambda g, a, b: g * b / (a * a + b * b)), ("gab", lambda g, a, b: -g * a / (a * a + b * b))),
    "squared_difference": (("gab", lambda g, a, b: 2 * g * (a - b)), ("gab", lambda g, a, b: -2 * g * (a - b))),
    "logaddexp": (("gba", lambda g, b, a: g * sigmoid_of(a - b)), ("gab", lambda g, a, b: g * sigmoid_of(b - a))),
}

# the same where the second operand may be a number, which has no gradient
WITH_NUMBER: dict[str, tuple[Rule, Rule]] = {
    "fmod": (("g", _kept), ("gab", lambda g, a, b: -g * np.trunc(a / b))),
    "remainder": (("g", _kept), ("gab", lambda g, a, b: -g * np.floor(a / b))),
}


def _gradients(name: str, operands: dict[str, Any], rules: Sequence[Rule], memory_config: Any) -> list[Any]:
    """One tensor for each rule; the gradient that comes in is `g`, and operands repeat as NumPy's do."""
    read = {letter for letters, _ in rules for letter in letters}
    tensors = tuple(value for letter, value in operands.items() if letter in read or not is_number(value))
    on_mesh(name, *tensors, letters="ABCD")
    asked = describe(name, tuple(operands.values()))
    made = []
    for letters, formula in rules:
        used = tuple(operands[letter] for letter in letters)
        for other in used[1:]:
            check_broadcast(used[0].shard_shape, other.shard_shape, asked)
            check_types(name, used[0], other)
        like, arrays = aligned(used, lambda: asked)
        topology = merged(like.mesh.grid, *(t.topology for t in used))
        made.append(result(like, formula(*arrays), dtype=used[0].dtype, topology=topology, memory_config=memory_config))
    return made


def _enter(name: str, call: Callable[..., Any], what: str) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = f"{name}_bw"
    call.__doc__ = f"[{what}] of {name}."
    return operation(f"{name}_bw")(call)


def _one(name: str, rule: Rule) -> Callable[..., Any]:
    def call(grad_tensor: Tensor, input_tensor: Tensor, *, memory_config: Any = None) -> list[Any]:
        if name in NEED_TILES and isinstance(input_tensor, Tensor) and input_tensor.layout is not Layout.TILE:
            rule_text = "Ternary operation requires tensor to be in Tile layout when working with non-sharded input tensor"
            fail(describe(f"{name}_bw", (grad_tensor, input_tensor)), rule_text, "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
        return _gradients(f"{name}_bw", {"g": grad_tensor, "x": input_tensor}, [rule], memory_config)

    return _enter(name, call, "gradient of the operand")


def _two(name: str, rules: tuple[Rule, Rule]) -> Callable[..., Any]:
    def call(grad_tensor: Tensor, input_tensor_a: Tensor, input_tensor_b: Tensor, *, memory_config: Any = None) -> list[Any]:
        return _gradients(f"{name}_bw", {"g": grad_tensor, "a": input_tensor_a, "b": input_tensor_b}, rules, memory_config)

    return _enter(name, call, "gradient of a, gradient of b; both in the shape that the operands repeat to,")


def _with_number(name: str, rules: tuple[Rule, Rule]) -> Callable[..., Any]:
    def call(grad_tensor: Tensor, input_tensor_a: Tensor, input_tensor_b: Any, *, memory_config: Any = None) -> list[Any]:
        wanted = rules[:1] if is_number(input_tensor_b) else rules
        return _gradients(f"{name}_bw", {"g": grad_tensor, "a": input_tensor_a, "b": input_tensor_b}, wanted, memory_config)

    return _enter(name, call, "gradient of a, and of b where it is a tensor,")


TABLE = {
    **{f"{name}_bw": _one(name, rule) for name, rule in ONE.items()},
    **{f"{name}_bw": _two(name, rules) for name, rules in TWO.items()},
    **{f"{name}_bw": _with_number(name, rules) for name, rules in WITH_NUMBER.items()},
}


@operation("addcmul_bw")
def addcmul_bw(
    grad_tensor: Tensor, input_tensor_a: Tensor, input_tensor_b: Tensor, input_tensor_c: Tensor, alpha: float, *, memory_config: Any = None
) -> list[Any]:
    """[gradient of a, of b, of c] of a + alpha * b * c."""
    rules: list[Rule] = [("g", _kept), ("gc", lambda g, c: g * c * F(alpha)), ("gb", lambda g, b: g * b * F(alpha))]
    operands = {"g": grad_tensor, "a": input_tensor_a, "b": input_tensor_b, "c": input_tensor_c}
    return _gradients("addcmul_bw", operands, rules, memory_config)


@operation("addcdiv_bw")
def addcdiv_bw(
    grad_tensor: Tensor, input_tensor_a: Tensor, input_tensor_b: Tensor, input_tensor_c: Tensor, alpha: float, *, memory_config: Any = None
) -> list[Any]:
    """[gradient of a, of b, of c] of a + alpha * b / c."""
    rules: list[Rule] = [("g", _kept), ("gc", lambda g, c: g * F(alpha) / c), ("gbc", lambda g, b, c: -g * F(alpha) * b / (c * c))]
    operands = {"g": grad_tensor, "a": input_tensor_a, "b": input_tensor_b, "c": input_tensor_c}
    return _gradients("addcdiv_bw", operands, rules, memory_config)


@operation("hardtanh_bw")
def hardtanh_bw(grad_tensor: Tensor, input_tensor: Tensor, *, min: float = -1.0, max: float = 1.0, memory_config: Any = None) -> list[Any]:
    """[gradient of hardtanh's operand]: passes where the value lies between the limits."""
    return _gradients("hardtanh_bw", {"g": grad_tensor, "x": input_tensor}, [("gx", _between(min, max))], memory_config)


@operation("clip_bw")
def clip_bw(grad_tensor: Tensor, input_tensor: Tensor, min: Any = None, max: Any = None, *, memory_config: Any = None) -> list[Any]:
    """[gradient of clip's operand]: the same as `clamp_bw`."""
    return clamp_bw(grad_tensor, input_tensor, min, max, memory_config=memory_config)


@operation("rdiv_bw")
def rdiv_bw(grad_tensor: Tensor, input_tensor: Tensor, scalar: float, *, rounding_mode: str | None = None, memory_config: Any = None) -> list[Any]:
    """[gradient of x] of scalar / x; a rounded quotient has no slope."""
    if rounding_mode not in (None, "trunc", "floor"):
        fail(describe("rdiv_bw", (grad_tensor, input_tensor, scalar)), f"Incorrect rounding mode {rounding_mode!r} (expected None, 'trunc', or 'floor')")
    rule: Rule = ("gx", lambda g, x: -g * F(scalar) / (x * x)) if rounding_mode is None else ("g", _zero)
    return _gradients("rdiv_bw", {"g": grad_tensor, "x": input_tensor}, [rule], memory_config)


@operation("bias_gelu_bw")
def bias_gelu_bw(
    grad_tensor: Tensor, input_tensor_a: Tensor, input_tensor_b: Any, *, variant: GeluVariant = GeluVariant.Accurate, approximate: str | None = None,
    memory_config: Any = None,
) -> list[Any]:  # fmt: skip
    """[gradient of a, gradient of b] of gelu(a + b), which are the same; one gradient where b is a number.

    Args:
        approximate: the other spelling of the variant, "none" or "tanh", which ttnn still takes here.
    """
    modes = {"none": GeluVariant.Accurate, "tanh": GeluVariant.Tanh, None: variant}
    if approximate not in modes:
        fail(describe("bias_gelu_bw", (grad_tensor, input_tensor_a)), f"Incorrect approximate mode {approximate!r} (expected 'none' or 'tanh')")
    slope = gelu_slope if modes[approximate] is GeluVariant.Accurate else gelu_tanh_slope
    operands = {"g": grad_tensor, "a": input_tensor_a, "b": input_tensor_b}
    if is_number(input_tensor_b):
        return _gradients("bias_gelu_bw", operands, [("ga", lambda g, a: g * slope(a + F(input_tensor_b)))], memory_config)
    return _gradients("bias_gelu_bw", operands, [("gab", lambda g, a, b: g * slope(a + b))] * 2, memory_config)


@operation("assign_bw")
def assign_bw(
    grad_tensor: Tensor, input_tensor: Tensor, input_tensor_b: Tensor | None = None, *, are_required_outputs: Any = [True, True],  # noqa: B006
    memory_config: Any = None, input_a_grad: Tensor | None = None, input_b_grad: Tensor | None = None,
) -> list[Any]:  # fmt: skip
    """[gradient of the operand], or of both: what comes in, in the type of the operand."""
    operands = [input_tensor] if input_tensor_b is None else [input_tensor, input_tensor_b]
    on_mesh("assign_bw", grad_tensor, *operands)
    asked = describe("assign_bw", (grad_tensor, *operands))
    wanted = [True] if input_tensor_b is None else list(are_required_outputs)
    if not any(wanted):
        fail(asked, "At least one gradient is expected to be calculated.", "are_required_outputs=[True, False]")
    made: list[Any] = []
    for source, asked_for, target in zip(operands, wanted, (input_a_grad, input_b_grad)):
        if asked_for and source.shard_shape != grad_tensor.shard_shape:
            fail(asked, f"Input tensor shape {list(grad_tensor.shard_shape)} does not match output tensor shape {list(source.shard_shape)}")
        like, (g, _) = aligned((grad_tensor, source), lambda: asked)
        topology = merged(like.mesh.grid, grad_tensor.topology, source.topology)
        options = {"dtype": source.dtype, "topology": topology, "memory_config": memory_config, "output": target, "owned": False}
        made.append(result(like, g, **options) if asked_for else None)
    return made


@operation("repeat_bw")
def repeat_bw(grad_tensor: Tensor, input_tensor: Tensor, shape: Any, *, memory_config: Any = None) -> list[Any]:
    """[gradient of repeat's operand]: the repetitions added up; along dimension 0 or 1, where ttnn has it, and else an empty list."""
    on_mesh("repeat_bw", grad_tensor, input_tensor)
    times = [int(n) for n in shape]
    asked = describe("repeat_bw", (grad_tensor, input_tensor, times))
    for dim in (0, 1):
        if len(times) > dim and times[dim] > 1:
            if input_tensor.shard_shape[dim] != 1:
                fail(asked, f"Input shape[{dim}] must be 1 but got {input_tensor.shard_shape[dim]}", "ttnn.sum of the reshaped gradient")
            others = [n for n in range(4) if n != dim]
            if len(times) != 4 or any(times[n] != 1 for n in others):
                fail(asked, "repeat" + ", ".join(f"[{n}]" for n in others) + " should be 1", "one dimension at a time")
            axis = len(grad_tensor.grid.shape) + dim
            return [result(grad_tensor, grad_tensor.array.sum(axis, keepdims=True), memory_config=memory_config)]
    return []

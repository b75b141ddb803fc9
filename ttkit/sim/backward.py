"""Gradients of ReLU, SiLU and GELU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ttkit.dialect import older_form
from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.enums import GeluVariant
from ttkit.sim.operation import aligned, check_broadcast, on_mesh, operation, result
from ttkit.sim.tensor import Tensor
from ttkit.sim.unary import (
    SQRT_2_OVER_PI,
    SQRT_HALF,
    Array,
    F,
    Function,
    erf_of,
    in_blocks,
    sigmoid_of,
)


def _gelu_erf_derivative(x: Array) -> Array:
    density = np.exp(F(-0.5) * x * x) * F(1 / math.sqrt(2 * math.pi))
    return F(0.5) * (1 + erf_of(x * SQRT_HALF)) + x * density


def _gelu_tanh_derivative(x: Array, out: Array, t: Array) -> None:
    """(1 + t)(1 + (1 - t) u') / 2, t = tanh(u), u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    np.multiply(x, x, out=out)
    np.multiply(out, F(0.044715) * SQRT_2_OVER_PI, out=t)
    t += SQRT_2_OVER_PI
    t *= x
    np.tanh(t, out=t)
    out *= F(3 * 0.044715) * SQRT_2_OVER_PI
    out += SQRT_2_OVER_PI
    out *= x
    out *= F(1) - t
    out += F(1)
    t += F(1)
    out *= t
    out *= F(0.5)


def _silu_derivative(x: Array) -> Array:
    s = sigmoid_of(x)
    return s * (1 + x * (1 - s))


def _backward(
    name: str, grad: Tensor, tensor: Tensor, derivative: Function, output: Tensor | None = None
) -> list[Tensor]:
    on_mesh(name, grad, tensor)
    asked = describe(name, (grad, tensor))
    check_broadcast(grad.shard_shape, tensor.shard_shape, asked)
    like, (g, x), topology = aligned(name, (grad, tensor))
    values = g * derivative(x)
    return [result(like, values, dtype=tensor.dtype, topology=topology, output=output)]


@operation("relu_bw", hints="memory_config")
def relu_bw(grad_tensor: Tensor, input_tensor: Tensor) -> list[Tensor]:
    """Return [gradient of ReLU's input]."""
    return _backward("relu_bw", grad_tensor, input_tensor, lambda x: (x > 0).astype(F))


@operation("silu_bw", hints="memory_config")
def silu_bw(
    grad_tensor: Tensor, input_tensor: Tensor, *, input_grad: Tensor | None = None
) -> list[Tensor]:
    """Return [gradient of SiLU's input]."""
    return _backward("silu_bw", grad_tensor, input_tensor, _silu_derivative, input_grad)


@operation("gelu_bw", hints="memory_config")
def gelu_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    variant: GeluVariant = GeluVariant.Accurate,
    input_grad: Tensor | None = None,
    **older: Any,
) -> list[Tensor]:
    """Return [gradient of GELU's input]: GeluVariant.Accurate by the error function, Tanh by tanh.

    The older form approximate="none" or "tanh" is taken outside of the strict dialect.
    """
    asked = describe("gelu_bw", (grad_tensor, input_tensor), older or {"variant": variant})
    spelling = "variant=ttnn.GeluVariant.Accurate or Tanh"
    if set(older) == {"approximate"} and older_form("gelu_bw(approximate=)", spelling):
        modes = {"none": GeluVariant.Accurate, "tanh": GeluVariant.Tanh}
        if older["approximate"] not in modes:
            rule = (
                f"Incorrect approximate mode {older['approximate']!r} (expected 'none' or 'tanh')"
            )
            fail(asked, rule)
        variant = modes[older["approximate"]]
    elif older:
        rule = f"incompatible function arguments: {', '.join(older)}"
        fail(asked, rule, "variant=ttnn.GeluVariant.Tanh", TypeError)
    if variant is GeluVariant.FastLut:
        rule = "GELU_BW does not support GeluVariant::FAST_LUT: there is no backward kernel for it"
        fail(asked, rule, "GeluVariant.Tanh")
    if grad_tensor.shard_shape != input_tensor.shard_shape:
        shapes = f"{list(grad_tensor.shard_shape)} and {list(input_tensor.shard_shape)}"
        rule = "GELU_BW operation requires grad_output and input to have the same logical shape"
        fail(asked, f"{rule}, but got {shapes}")
    accurate = variant is GeluVariant.Accurate
    derivative = _gelu_erf_derivative if accurate else in_blocks(_gelu_tanh_derivative)
    return _backward("gelu_bw", grad_tensor, input_tensor, derivative, input_grad)

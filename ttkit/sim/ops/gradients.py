"""Gradients of operations on each element: `NAME_bw` for each NAME in `FORWARD`, by differences.

A new gradient is one word in `NAMES`. `EXACT` has exact derivatives for those that training uses.
"""

import math

import numpy as np

from ttkit.sim import blocks
from ttkit.sim.arguments import keywords_of
from ttkit.sim.ops import Array, operation, values_of
from ttkit.sim.ops.binary import FUNCTIONS, THREE, clamp
from ttkit.sim.ops.unary import (
    SQRT_2_OVER_PI,
    SQRT_HALF,
    UNARY,
    WITH_KEYWORDS,
    erf_of,
    logit,
    sigmoid_of,
)
from ttkit.sim.tensor import GeluVariant
from ttkit.sim.tensor.tensor import Tensor

STEP = 2.0**-23
# Each word is the name of a gradient; `=` adds the name of the operation where the names differ.
# As in ttnn, rpow_bw is the gradient of input ** exponent, although rpow is exponent ** input.
NAMES = """abs acos acosh asin asinh atan atanh ceil celu cos cosh deg2rad elu erf erfc
erfinv exp exp2 expm1 floor frac gelu hardshrink hardsigmoid hardswish hardtanh i0 leaky_relu
log log10 log1p log2 log_sigmoid logit logiteps neg rad2deg reciprocal relu relu6 round
rsqrt selu sigmoid silu sin sinh softplus softshrink softsign sqrt square tan tanh tanhshrink trunc
add atan2 bias_gelu div=divide div_no_nan fmod hypot ldexp logaddexp logaddexp2 max=maximum
min=minimum mul=multiply pow rdiv remainder rpow=pow rsub squared_difference sub=subtract
xlogy addalpha addcdiv addcmul lerp subalpha threshold"""
# The keywords of these gradients are not those of the operation.
KEYWORDS = WITH_KEYWORDS | {
    "hardtanh": lambda x, *, min=-1.0, max=1.0: np.clip(x, min, max),
    "leaky_relu": lambda x, *, negative_slope=0.01: FUNCTIONS["leaky_relu"](x, negative_slope),
    "logiteps": logit,
}
KNOWN = UNARY | FUNCTIONS | THREE | KEYWORDS
FORWARD = {
    name: KNOWN[other or name] for name, _, other in (w.partition("=") for w in NAMES.split())
}
FORWARD |= dict.fromkeys("fill fill_zero sign".split(), np.zeros_like)
FORWARD["assign"] = lambda *copied: sum(copied)
FORWARD["where"] = lambda condition, yes, no: np.where(condition != 0, yes, no)
# For these a central difference over any distance is the exact slope. A distance as large as the
# operand, and at least 1, loses no digits.
QUADRATIC = {
    *"add addalpha addcmul assign lerp mul rsub squared_difference sub subalpha where".split()
}
# These contain a power or a logarithm of the operand, so near 0 the distance must become as small
# as the operand. The exponent of pow is an exception.
SCALED = {*"div log log10 log2 pow rdiv reciprocal rpow rsqrt sqrt xlogy".split()}
# These take the mean of the slopes on both sides. This matters for abs at 0, for max and min where
# the operands are equal, and for the quadratic ones everywhere: over so large a distance their two
# slopes differ.
CENTRAL = QUADRATIC | {"abs", "max", "min"}


# ---------------------------------------------------------------- exact derivatives
def _gelu_derivative(x: Array, *, variant: GeluVariant = GeluVariant.Accurate) -> Array:
    """Return the derivative of GELU, by the error function, or by tanh for other variants."""
    if variant is not GeluVariant.Accurate:
        return blocks.by_blocks(_gelu_tanh_derivative, x)
    density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return 0.5 * (1 + erf_of(x * SQRT_HALF)) + x * density


def _gelu_tanh_derivative(x: Array, out: Array, t: Array) -> None:
    """Write (1 + t)(1 + x (1 - t) u') / 2 into `out`; `t` is scratch.

    Here t = tanh(u) and u = sqrt(2 / pi) (x + 0.044715 x^3).
    """
    np.multiply(x, x, out=out)
    np.multiply(out, 0.044715 * SQRT_2_OVER_PI, out=t)
    t += SQRT_2_OVER_PI
    t *= x
    np.tanh(t, out=t)
    out *= 3 * 0.044715 * SQRT_2_OVER_PI
    out += SQRT_2_OVER_PI
    out *= x
    out *= 1 - t
    out += 1
    t += 1
    out *= t
    out *= 0.5


def _silu_derivative(x: Array) -> Array:
    s = sigmoid_of(x)
    return s * (1 + x * (1 - s))


EXACT = {"gelu": _gelu_derivative, "relu": lambda x: x > 0, "silu": _silu_derivative}


# ---------------------------------------------------------------- differences
def slope(name: str, operands: list, which: int, **how):
    """Return the derivative of an operation with respect to one of its operands.

    The operands are arrays or numbers.

    Where `EXACT` has no derivative, the result is a central difference in float64, whose error is
    hardly visible in float32. At an edge or a jump, for example of relu6 or floor, the slope of the
    flatter side is the result, as in torch. Where the slope is infinite, for example that of sqrt
    at 0, the result is a large number or NaN. If such a place is not 0 (for acosh it is 1) and the
    operand is closer to it than about 1e-6, the result is too small: it is the slope of the flatter
    side.
    """
    if blocks.idle[0]:
        return operands[which]
    if name in EXACT:
        return EXACT[name](*operands, **how)
    given = [np.asarray(each, float) for each in operands]
    x, found = given[which], []
    least = 1e-45 if name in SCALED and (name, which) != ("pow", 1) else 2.0**-4
    size = np.clip(np.abs(x), least, 2.0**99)
    step = np.maximum(size, 1.0) if name in QUADRATIC else STEP * size
    for given[which] in (x - step, x, x + step):
        found.append(FORWARD[name](*given, **how))
    low, middle, high = found
    left = (middle - low) / step
    right = (high - middle) / step
    flatter = np.where(np.abs(left) < np.abs(right), left, right)
    smooth = np.isclose(left, right, 1e-2, 1e-3) | (name in CENTRAL)
    return np.where(smooth, (left + right) / 2, flatter)


def _enter(name: str) -> None:
    def call(grad_tensor: Tensor, a: Tensor, b=None, c=None, d=None, **how) -> list[Tensor]:
        given = [each for each in (a, b, c, d) if each is not None]
        on, (grad, *values) = values_of(grad_tensor, *given)
        return [
            on.result(grad * slope(name, values, which, **how), operand.dtype)
            for which, operand in enumerate(given)
            if isinstance(operand, Tensor) and (name, which) != ("where", 0)
        ]

    if name in KEYWORDS:
        keywords_of(KEYWORDS[name])(call)
    call.__doc__ = f"Return the gradients of the operands of {name} that are tensors."
    operation(f"{name}_bw")(call)


for _name in FORWARD:
    _enter(_name)


@operation("clamp_bw clip_bw")
def clamp_bw(grad_tensor: Tensor, input_tensor: Tensor, min=None, max=None) -> list[Tensor]:
    """Return the gradient of the operand, which is 0 beyond the limits."""
    within = clamp(input_tensor, min, max) == input_tensor
    return [grad_tensor * within]  # type: ignore[list-item,operator]

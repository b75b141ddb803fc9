"""Operations on each element of one tensor: most are a row of a table.

A new operation of one operand is one row in `PLAIN`, or in `FAST_OR_ACCURATE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import blocks, dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.enums import DataType, GeluVariant, SigmoidMode, UnaryOpType, UnaryWithParam
from ttkit.sim.operation import on_mesh, operation, result
from ttkit.sim.tensor import Tensor

Array = np.ndarray
Function = Callable[[Array], Array]
F = np.float32
SQRT_2_OVER_PI = F(math.sqrt(2 / math.pi))
SQRT_HALF = F(math.sqrt(0.5))


# ---------------------------------------------------------------- functions in blocks
def _gelu_tanh(x: Array, out: Array, t: Array) -> None:
    np.multiply(x, x, out=t)
    t *= F(0.044715) * SQRT_2_OVER_PI
    t += SQRT_2_OVER_PI
    t *= x
    np.tanh(t, out=t)
    t += F(1)
    np.multiply(t, x, out=out)
    out *= F(0.5)


# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: |error| < 1.5e-7
ERF_P = F(0.3275911)
ERF_A = [F(a) for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)]


def _erf(x: Array, out: Array, t: Array) -> None:
    np.abs(x, out=t)
    t *= ERF_P
    t += F(1)
    np.reciprocal(t, out=t)
    np.multiply(t, ERF_A[0], out=out)
    for a in ERF_A[1:]:
        out += a
        out *= t
    np.multiply(x, x, out=t)
    np.negative(t, out=t)
    np.exp(t, out=t)
    out *= t
    np.subtract(F(1), out, out=out)
    np.copysign(out, x, out=out)


def _gelu_erf(x: Array, out: Array, t: Array) -> None:
    scaled = x * SQRT_HALF
    _erf(scaled, out, t)
    out += F(1)
    out *= x
    out *= F(0.5)


def _sigmoid(x: Array, out: Array, t: Array) -> None:
    np.negative(x, out=t)
    np.exp(t, out=t)
    t += F(1)
    np.reciprocal(t, out=out)


def _silu(x: Array, out: Array, t: Array) -> None:
    _sigmoid(x, out, t)
    # of the numbers: a NaN elsewhere changes nothing
    lowest = np.fmin.reduce(x, axis=None, initial=0)
    out *= np.where(x == -np.inf, F(0), x) if np.isneginf(lowest) else x


def in_blocks(kernel: Callable[[Array, Array, Array], object]) -> Function:
    return lambda x: blocks.elementwise(kernel, x)


def _ufunc(function: Callable[..., Array]) -> Function:
    return in_blocks(lambda values, out, _: function(values, out=out))


gelu_tanh, gelu_erf, sigmoid_of = map(in_blocks, (_gelu_tanh, _gelu_erf, _sigmoid))
silu_of, erf_of = in_blocks(_silu), in_blocks(_erf)


def _softplus(x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    scaled = x * F(beta)
    small = np.log1p(np.exp(np.minimum(scaled, F(threshold)))) / F(beta)
    return np.where(scaled > threshold, x, small)


def _test(function: Function) -> Function:
    return lambda x: function(x).astype(x.dtype)


# ---------------------------------------------------------------- the tables
# name -> function of the values
PLAIN: dict[str, Function] = {
    "neg": np.negative,
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, 0),
    "silu": silu_of,
    "swish": silu_of,
    "square": lambda x: x * x,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "frac": lambda x: x - np.trunc(x),
    "reciprocal": np.reciprocal,
    "sin": _ufunc(np.sin),
    "cos": _ufunc(np.cos),
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "cbrt": np.cbrt,
    "erfc": lambda x: 1 - erf_of(x),
    "identity": np.copy,
    "relu6": lambda x: np.clip(x, 0, 6),
    "hardsigmoid": lambda x: np.clip(x / 6 + F(0.5), 0, 1),
    "hardswish": lambda x: x * np.clip(x / 6 + F(0.5), 0, 1),
    "log_sigmoid": lambda x: -_softplus(-x),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "isnan": _test(np.isnan),
    "isinf": _test(np.isinf),
    "isfinite": _test(np.isfinite),
    "logical_not": _test(np.logical_not),
    "eqz": _test(lambda x: x == 0),
    "nez": _test(lambda x: x != 0),
    "gtz": _test(lambda x: x > 0),
    "ltz": _test(lambda x: x < 0),
    "gez": _test(lambda x: x >= 0),
    "lez": _test(lambda x: x <= 0),
    "rad2deg": np.rad2deg,
    "deg2rad": np.deg2rad,
}
# the same with a choice between a fast and an accurate form, which differ on a card but not here
FAST_OR_ACCURATE: dict[str, Function] = {
    "exp": _ufunc(np.exp),
    "log": _ufunc(np.log),
    "sqrt": _ufunc(np.sqrt),
    "rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
    "erf": erf_of,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "tanh": _ufunc(np.tanh),
}
INTEGERS = (DataType.INT32, DataType.UINT32, DataType.UINT16)
# The element types of a row are the floats, unless it takes these, too.
TAKES = dict.fromkeys(("abs", "relu", "relu6", "identity"), tuple(DataType))
TAKES |= dict.fromkeys(("square", "eqz", "nez", "logical_not"), dtypes.FLOATS + INTEGERS)
TAKES |= dict.fromkeys(("neg", "gtz", "ltz", "gez", "lez"), dtypes.FLOATS + INTEGERS[:1])

HINTS = "memory_config sub_core_grids"


def _unary(
    name: str, tensor: Tensor, function: Function, takes: Any, output: Tensor | None
) -> Tensor:
    on_mesh(name, tensor)
    if tensor.dtype not in takes:
        kind = f"UnaryOpType::{name.upper()}"
        rule = f"Unary: {kind} does not support integer input dtype DataType::{tensor.dtype.name}"
        fail(describe(name, (tensor,)), rule, f"ttnn.{name}(ttnn.typecast(tensor, ttnn.float32))")
    return result(tensor, function(tensor.array), output=output)


def _enter(name: str, function: Function, hints: str) -> None:
    takes = TAKES.get(name, dtypes.FLOATS)

    def call(input_tensor: Tensor, *, output_tensor: Tensor | None = None) -> Tensor:
        return _unary(name, input_tensor, function, takes, output_tensor)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Return the {name} of each element."
    kind: Any = "arrange" if name == "identity" else "compute"
    operation(name, kind, dtypes=takes, hints=hints)(call)


for _name, _function in PLAIN.items():
    _enter(_name, _function, HINTS)
for _name, _function in FAST_OR_ACCURATE.items():
    _enter(_name, _function, f"{HINTS} fast_and_approximate_mode")
UNARY = {**PLAIN, **FAST_OR_ACCURATE}


@operation("gelu", dtypes=dtypes.FLOATS, hints=HINTS)
def gelu(
    input_tensor: Tensor,
    *,
    fast_and_approximate_mode: bool = False,
    variant: GeluVariant = GeluVariant.Accurate,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return x * Phi(x): by the error function, or by tanh in the fast mode."""
    by_tanh = fast_and_approximate_mode or variant is not GeluVariant.Accurate
    function = gelu_tanh if by_tanh else gelu_erf
    return _unary("gelu", input_tensor, function, dtypes.FLOATS, output_tensor)


@operation("sigmoid", dtypes=dtypes.FLOATS, hints=HINTS)
def sigmoid(
    input_tensor: Tensor,
    *,
    vector_mode: int = 4,
    mode: SigmoidMode = SigmoidMode.Accurate,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return 1 / (1 + exp(-x)) of each element."""
    return _unary("sigmoid", input_tensor, sigmoid_of, dtypes.FLOATS, output_tensor)


@operation("softplus", dtypes=dtypes.FLOATS, hints=HINTS)
def softplus(
    input_tensor: Tensor,
    *,
    beta: float = 1.0,
    threshold: float = 20.0,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""
    function = lambda x: _softplus(x, beta, threshold)  # noqa: E731
    return _unary("softplus", input_tensor, function, dtypes.FLOATS, output_tensor)


@operation("leaky_relu", dtypes=dtypes.FLOATS, hints=HINTS)
def leaky_relu(
    input_tensor: Tensor, negative_slope: float, *, output_tensor: Tensor | None = None
) -> Tensor:
    """Return x where it is positive, negative_slope * x elsewhere."""
    function = lambda x: np.where(x > 0, x, F(negative_slope) * x)  # noqa: E731
    return _unary("leaky_relu", input_tensor, function, dtypes.FLOATS, output_tensor)


@operation("elu", dtypes=dtypes.FLOATS, hints=HINTS)
def elu(input_tensor: Tensor, *, alpha: float = 1.0, output_tensor: Tensor | None = None) -> Tensor:
    """Return x where it is positive, alpha * (exp(x) - 1) elsewhere."""
    function = lambda x: np.where(x > 0, x, F(alpha) * np.expm1(np.minimum(x, 0)))  # noqa: E731
    return _unary("elu", input_tensor, function, dtypes.FLOATS, output_tensor)


@operation("hardtanh", dtypes=dtypes.FLOATS, hints=HINTS)
def hardtanh(
    input_tensor: Tensor,
    *,
    min_val: float = -1.0,
    max_val: float = 1.0,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return each element, or the limit that it is beyond."""
    function = lambda x: np.clip(x, F(min_val), F(max_val))  # noqa: E731
    return _unary("hardtanh", input_tensor, function, dtypes.FLOATS, output_tensor)


@operation("round", dtypes=dtypes.FLOATS, hints=HINTS)
def round_(
    input_tensor: Tensor, *, decimals: int | None = 0, output_tensor: Tensor | None = None
) -> Tensor:
    """Return each element rounded to `decimals` digits, ties to even."""
    function = lambda x: np.round(x, decimals or 0, out=np.empty_like(x))  # noqa: E731
    return _unary("round", input_tensor, function, dtypes.FLOATS, output_tensor)


ACTIVATIONS: dict[str, Function] = {
    "gelu": gelu_erf,
    "gelu_approx": gelu_tanh,
    "sigmoid": sigmoid_of,
    **UNARY,
}


def activation(which: Any, asked: object) -> Function:
    """The function of an activation argument: "relu", a UnaryOpType, or a UnaryWithParam."""
    kind = which.op_type if isinstance(which, UnaryWithParam) else which
    name = kind.name.lower() if isinstance(kind, UnaryOpType) else kind
    if not isinstance(name, str) or name not in ACTIVATIONS:
        fail(asked, f"Unknown unary op: {name}", f"one of {', '.join(sorted(ACTIVATIONS))}")
    return ACTIVATIONS[name]

"""Operations on each element of one tensor: most are an entry in a table of NumPy functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import blocks, dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.dispatch import on_mesh, operation, result
from ttkit.sim.enums import DataType, GeluVariant, SigmoidMode, UnaryOpType, UnaryWithParam
from ttkit.sim.tensor import Tensor

Array = np.ndarray
F = np.float32
SQRT_2_OVER_PI = F(math.sqrt(2 / math.pi))


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
ERF_P, ERF_A = F(0.3275911), [F(a) for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)]


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
    scaled = x * F(math.sqrt(0.5))
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
    lowest = np.fmin.reduce(x, axis=None, initial=0)  # of the numbers: a NaN elsewhere changes nothing
    out *= np.where(x == -np.inf, F(0), x) if np.isneginf(lowest) else x


def _softplus(x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    return np.where(x * F(beta) > threshold, x, np.log1p(np.exp(np.minimum(x * F(beta), F(threshold)))) / F(beta)).astype(x.dtype)


def _kernel(kernel: Callable[[Array, Array, Array], None]) -> Callable[[Array], Array]:
    return lambda x: blocks.elementwise(kernel, x)


def _ufunc(function: Callable[..., Array]) -> Callable[[Array], Array]:
    return lambda x: blocks.elementwise(lambda values, out, _: function(values, out=out), x)


gelu_tanh, gelu_erf, sigmoid_of = _kernel(_gelu_tanh), _kernel(_gelu_erf), _kernel(_sigmoid)
silu_of, erf_of = _kernel(_silu), _kernel(_erf)


def _test(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x).astype(x.dtype)


def _bitwise_not(x: Array) -> Array:
    return ~x if x.dtype.kind != "f" else (~x.view(np.int32)).view(F)


# name -> function of the values; these take only memory_config, output_tensor and sub_core_grids
PLAIN: dict[str, Callable[[Array], Array]] = {
    "neg": lambda x: -x if x.dtype.kind != "u" else np.negative(x),
    "abs": np.abs, "relu": lambda x: np.maximum(x, 0), "silu": silu_of, "swish": silu_of, "square": lambda x: x * x, "sign": np.sign,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "frac": lambda x: x - np.trunc(x), "reciprocal": lambda x: np.reciprocal(x),
    "sin": _ufunc(np.sin), "cos": _ufunc(np.cos), "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "exp2": np.exp2, "expm1": np.expm1, "cbrt": np.cbrt, "erfc": lambda x: 1 - erf_of(x), "identity": lambda x: x.copy(),
    "relu6": lambda x: np.clip(x, 0, 6), "hardsigmoid": lambda x: np.clip(x / 6 + F(0.5), 0, 1), "hardswish": lambda x: x * np.clip(x / 6 + F(0.5), 0, 1),
    "log_sigmoid": lambda x: -_softplus(-x), "softsign": lambda x: x / (1 + np.abs(x)), "tanhshrink": lambda x: x - np.tanh(x),
    "isnan": _test(np.isnan), "isinf": _test(np.isinf), "isfinite": _test(np.isfinite), "logical_not": _test(np.logical_not), "bitwise_not": _bitwise_not,
    "eqz": _test(lambda x: x == 0), "nez": _test(lambda x: x != 0), "gtz": _test(lambda x: x > 0), "ltz": _test(lambda x: x < 0),
    "gez": _test(lambda x: x >= 0), "lez": _test(lambda x: x <= 0), "rad2deg": np.rad2deg, "deg2rad": np.deg2rad,
}  # fmt: skip

# the same with a choice between a fast and an accurate form, which differ on a card but not here
FAST_OR_ACCURATE: dict[str, Callable[[Array], Array]] = {
    "exp": _ufunc(np.exp), "log": _ufunc(np.log), "sqrt": _ufunc(np.sqrt), "rsqrt": lambda x: np.reciprocal(np.sqrt(x)), "erf": erf_of,
    "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "mish": lambda x: x * np.tanh(_softplus(x)), "tanh": _ufunc(np.tanh),
}  # fmt: skip

ANY_TYPE = {"abs", "relu", "relu6", "identity"}
INTEGERS = (DataType.INT32, DataType.UINT32, DataType.UINT16)
# which integer types an operation of one operand takes: all in ANY_TYPE, these here, and none elsewhere
TAKES = dict.fromkeys(("square", "eqz", "nez", "logical_not"), INTEGERS) | {"bitwise_not": INTEGERS[:2], "leaky_relu": (*INTEGERS[1:], DataType.UINT8)}
TAKES |= dict.fromkeys(("neg", "gtz", "ltz", "gez", "lez"), INTEGERS[:1])


def check_unary_dtype(name: str, tensor: Tensor) -> None:
    """An operation of one operand takes floats, and only the integer types of the table above."""
    if tensor.dtype in dtypes.FLOATS or name in ANY_TYPE or tensor.dtype in TAKES.get(name, ()):
        return
    rule = f"Unary: UnaryOpType::{name.upper()} does not support integer input dtype DataType::{tensor.dtype.name}"
    fail(describe(name, (tensor,)), rule, f"ttnn.{name}(ttnn.typecast(tensor, ttnn.float32))")


def unary(name: str, tensor: Tensor, function: Callable[[Array], Array], memory_config: Any, output: Tensor | None) -> Tensor:
    """The body of every operation of one operand."""
    on_mesh(name, tensor)
    if tensor.dtype not in dtypes.FLOATS:
        check_unary_dtype(name, tensor)
    return result(tensor, function(tensor.array), memory_config=memory_config, output=output)


def _enter_plain(name: str, function: Callable[[Array], Array]) -> Callable[..., Tensor]:
    def call(input_tensor: Tensor, *, memory_config: Any = None, output_tensor: Tensor | None = None, sub_core_grids: Any = None) -> Tensor:
        return unary(name, input_tensor, function, memory_config, output_tensor)

    return named(name, call, f"{name} of each element.")


def _enter_fast(name: str, function: Callable[[Array], Array]) -> Callable[..., Tensor]:
    def call(
        input_tensor: Tensor, *, fast_and_approximate_mode: bool = False, memory_config: Any = None, output_tensor: Tensor | None = None,
        sub_core_grids: Any = None,
    ) -> Tensor:  # fmt: skip
        return unary(name, input_tensor, function, memory_config, output_tensor)

    return named(name, call, f"{name} of each element; the fast mode is as accurate as the other here.")


def named(name: str, function: Callable[..., Any], doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return operation(name)(function)


UNARY = {name: _enter_plain(name, f) for name, f in PLAIN.items()} | {name: _enter_fast(name, f) for name, f in FAST_OR_ACCURATE.items()}


@operation("gelu")
def gelu(
    input_tensor: Tensor, *, fast_and_approximate_mode: bool = False, variant: GeluVariant = GeluVariant.Accurate, memory_config: Any = None,
    output_tensor: Tensor | None = None, sub_core_grids: Any = None,
) -> Tensor:  # fmt: skip
    """x * Phi(x): by the error function, or by tanh in the fast mode."""
    function = gelu_tanh if fast_and_approximate_mode or variant is not GeluVariant.Accurate else gelu_erf
    return unary("gelu", input_tensor, function, memory_config, output_tensor)


@operation("sigmoid")
def sigmoid(
    input_tensor: Tensor, *, vector_mode: int = 4, mode: SigmoidMode = SigmoidMode.Accurate, memory_config: Any = None, output_tensor: Tensor | None = None,
    sub_core_grids: Any = None,
) -> Tensor:  # fmt: skip
    """1 / (1 + exp(-x)) of each element."""
    return unary("sigmoid", input_tensor, sigmoid_of, memory_config, output_tensor)


@operation("softplus")
def softplus(
    input_tensor: Tensor, *, beta: float = 1.0, threshold: float = 20.0, memory_config: Any = None, output_tensor: Tensor | None = None,
    sub_core_grids: Any = None,
) -> Tensor:  # fmt: skip
    """log(1 + exp(beta x)) / beta; x itself where beta x passes the threshold."""
    return unary("softplus", input_tensor, lambda x: _softplus(x, beta, threshold), memory_config, output_tensor)


@operation("leaky_relu")
def leaky_relu(
    input_tensor: Tensor, negative_slope: float, *, memory_config: Any = None, output_tensor: Tensor | None = None, sub_core_grids: Any = None
) -> Tensor:
    """x where positive, negative_slope * x elsewhere."""
    return unary("leaky_relu", input_tensor, lambda x: np.where(x > 0, x, F(negative_slope) * x), memory_config, output_tensor)


@operation("elu")
def elu(input_tensor: Tensor, *, alpha: float = 1.0, memory_config: Any = None, output_tensor: Tensor | None = None, sub_core_grids: Any = None) -> Tensor:
    """x where positive, alpha * (exp(x) - 1) elsewhere."""
    return unary("elu", input_tensor, lambda x: np.where(x > 0, x, F(alpha) * np.expm1(np.minimum(x, 0))), memory_config, output_tensor)


@operation("hardtanh")
def hardtanh(
    input_tensor: Tensor, *, min_val: float = -1.0, max_val: float = 1.0, memory_config: Any = None, output_tensor: Tensor | None = None,
    sub_core_grids: Any = None,
) -> Tensor:  # fmt: skip
    """x kept between min_val and max_val."""
    return unary("hardtanh", input_tensor, lambda x: np.clip(x, F(min_val), F(max_val)), memory_config, output_tensor)


@operation("round")
def round_(
    input_tensor: Tensor, *, decimals: int | None = 0, memory_config: Any = None, output_tensor: Tensor | None = None, sub_core_grids: Any = None
) -> Tensor:
    """Each element to `decimals` digits, ties to even."""
    return unary("round", input_tensor, lambda x: np.round(x, decimals or 0), memory_config, output_tensor)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"gelu": gelu_erf, "gelu_approx": gelu_tanh, "sigmoid": sigmoid_of, **PLAIN, **FAST_OR_ACCURATE}


def activation(which: Any, asked: object) -> Callable[[Array], Array]:
    """The function that an activation argument means: a name such as "relu", a UnaryOpType, or a UnaryWithParam."""
    kind = which.op_type if isinstance(which, UnaryWithParam) else which
    name = kind.name.lower() if isinstance(kind, UnaryOpType) else kind
    if not isinstance(name, str) or name not in ACTIVATIONS:
        fail(asked, f"Unknown unary op: {name}", f"one of {', '.join(sorted(ACTIVATIONS))}")
    return ACTIVATIONS[name]

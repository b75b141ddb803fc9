"""Operations on each element of one tensor; most of them are a row of a table.

A new operation of one operand is one row in `UNARY`, and a name in `WHOLE` if it takes whole
numbers. An operation whose keywords all have defaults is a row of `WITH_KEYWORDS`. An operation
with a required parameter is a function of its own, with `@operation`.
"""

import math
import operator
from collections.abc import Callable
from functools import partial

import numpy as np

from ttkit.sim import blocks
from ttkit.sim.arguments import keywords_of, refuse
from ttkit.sim.ops import Array, on_mesh, operation, result
from ttkit.sim.tensor import GeluVariant, UnaryOpType, UnaryWithParam
from ttkit.sim.tensor.dtypes import FLOATS
from ttkit.sim.tensor.tensor import Tensor

Function = Callable[..., Array]
F = np.float32
SQRT_2_OVER_PI = F(math.sqrt(2 / math.pi))
SQRT_HALF = F(math.sqrt(0.5))


# ---------------------------------------------------------------- functions in blocks
def _gelu_tanh(x: Array, out: Array, t: Array) -> None:
    np.multiply(x, x, out=t)
    t *= 0.044715 * SQRT_2_OVER_PI
    t += SQRT_2_OVER_PI
    t *= x
    np.tanh(t, out=t)
    t += 1
    np.multiply(t, x, out=out)
    out *= 0.5


# The error of the approximation with these numbers is below 1.5e-7 (Abramowitz and Stegun, Handbook
# of Mathematical Functions, 7.1.26).
ERF_P = F(0.3275911)
ERF_A = list(map(F, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)))


def _erf(x: Array, out: Array, t: Array) -> None:
    np.abs(x, out=t)
    t *= ERF_P
    t += 1
    np.reciprocal(t, out=t)
    np.multiply(t, ERF_A[0], out=out)
    for a in ERF_A[1:]:
        out += a
        out *= t
    np.multiply(x, x, out=t)
    np.negative(t, out=t)
    np.exp(t, out=t)
    out *= t
    np.subtract(1, out, out=out)
    np.copysign(out, x, out=out)


def _gelu_erf(x: Array, out: Array, t: Array) -> None:
    _erf(x * SQRT_HALF, out, t)
    out += 1
    out *= x
    out *= 0.5


def _sigmoid(x: Array, out: Array, t: Array) -> None:
    np.negative(x, out=t)
    np.exp(t, out=t)
    t += 1
    np.reciprocal(t, out=out)


def _silu(x: Array, out: Array, t: Array) -> None:
    _sigmoid(x, out, t)
    # Where x is -inf, 0 replaces it, because 0 * -inf would be NaN. `fmin` ignores NaN, so a NaN
    # elsewhere cannot hide a -inf.
    lowest = np.fmin.reduce(x, axis=None, initial=0)
    out *= np.where(x == -np.inf, 0, x) if np.isneginf(lowest) else x


def _ufunc(function: Function) -> Function:
    return partial(blocks.by_blocks, lambda values, out, _: function(values, out=out))


gelu_tanh, gelu_erf, sigmoid_of, silu_of, erf_of = (
    partial(blocks.by_blocks, kernel) for kernel in (_gelu_tanh, _gelu_erf, _sigmoid, _silu, _erf)
)


def _softplus(x: Array, *, beta: float = 1.0, threshold: float = 20.0) -> Array:
    scaled = x * beta
    return np.where(scaled > threshold, x, np.log1p(np.exp(np.minimum(scaled, threshold))) / beta)


def _gelu(
    x: Array,
    *,
    fast_and_approximate_mode: bool = False,
    variant: GeluVariant = GeluVariant.Accurate,
) -> Array:
    """Return x * Phi(x), by the error function, or by tanh in the fast mode."""
    by_tanh = fast_and_approximate_mode or variant is not GeluVariant.Accurate
    return gelu_tanh(x) if by_tanh else gelu_erf(x)


def _erfinv(x: Array) -> Array:
    """Return the inverse of the error function by ttnn's formula; it errs by up to 0.2 %."""
    log = np.log1p(-x * x)
    term = 2 / (math.pi * 0.147) + log / 2
    return np.copysign(np.sqrt(np.sqrt(term * term - log / 0.147) - term), x)


def logit(x: Array, *, eps: float | None = None) -> Array:
    """Return log(x / (1 - x)); if `eps` is given, x is clamped to the range `eps` to 1 - `eps`."""
    p = np.clip(x, eps, 1 - eps) if eps else x
    return np.log(p / (1 - p))


def _gated(function: Function) -> Function:
    """Return a function that multiplies the first half of `dim` by a function of the second."""

    def call(x: Array, *, dim=-1):
        values, gates = np.split(x, 2, dim % 4 - 4)
        return values * function(gates)

    return call


def truth(function: Function) -> Function:
    """Return a function that gives 1 where a test is true, else 0, in the first operand's type."""
    return lambda *given: function(*given).astype(given[0].dtype)


# ---------------------------------------------------------------- the table
def of_numpy(names: str) -> dict[str, Callable]:
    """Return the functions that NumPy has under the same names as ttnn."""
    return {name: getattr(np, name) for name in names.split()}


UNARY = of_numpy(
    "abs square sign floor ceil trunc reciprocal tan sinh cosh exp2 expm1 log1p log2 log10 cbrt"
    " rad2deg deg2rad i0"
)
INVERSE = "sin cos tan sinh cosh tanh"  # For sin, NumPy's inverse is `arcsin`, ttnn's is `asin`.
UNARY |= {f"a{name}": getattr(np, f"arc{name}") for name in INVERSE.split()}
# These functions are faster in blocks that stay in the cache.
IN_BLOCKS = of_numpy("exp log sqrt sin cos tanh")
UNARY |= {name: _ufunc(function) for name, function in IN_BLOCKS.items()}
UNARY |= {
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, 0),
    "silu": silu_of,
    "swish": silu_of,
    "sigmoid": sigmoid_of,
    "sigmoid_accurate": sigmoid_of,
    "frac": lambda x: x - np.trunc(x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": erf_of,
    "erfc": lambda x: 1 - erf_of(x),
    "identity": np.copy,
    "relu6": lambda x: np.clip(x, 0, 6),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "log_sigmoid": lambda x: -_softplus(-x),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "bitwise_not": np.invert,
    "erfinv": _erfinv,
    # Each pair (a, b) of neighbours is a complex number a + ib, which is multiplied by i.
    "alt_complex_rotate90": lambda x: np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape),
}
PREDICATES = of_numpy("isnan isinf isfinite isposinf isneginf signbit logical_not")
COMPARISONS = {name: getattr(operator, name) for name in "eq ne lt le gt ge".split()}
WITH_ZERO = {f"{name}z": lambda x, test=test: test(x, 0) for name, test in COMPARISONS.items()}
# A call of these functions may have keywords, such as the number of decimals to round to.
WITH_KEYWORDS: dict[str, Function] = {
    "celu": lambda x, *, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x / alpha)),
    "elu": lambda x, *, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x)),
    "geglu": _gated(gelu_erf),
    "gelu": _gelu,
    "glu": _gated(sigmoid_of),
    "hardshrink": lambda x, *, lambd=0.5: np.where(np.abs(x) <= lambd, 0, x),
    "hardtanh": lambda x, *, min_val=-1.0, max_val=1.0: np.clip(x, min_val, max_val),
    "logit": logit,
    "reglu": _gated(UNARY["relu"]),
    "round": lambda x, *, decimals=0: x.round(decimals or 0),
    "selu": lambda x, *, scale=1.0507, alpha=1.67326: (
        scale * np.where(x > 0, x, alpha * np.expm1(x))
    ),
    "softplus": _softplus,
    "softshrink": lambda x, *, lambd=0.5: x - np.clip(x, -lambd, lambd),
    "swiglu": _gated(silu_of),
}
UNARY |= WITH_KEYWORDS | {name: truth(test) for name, test in (PREDICATES | WITH_ZERO).items()}
# These operations also take whole numbers; all others take floats only.
WHOLE = {*"abs bitwise_not identity logical_not neg relu relu6 square".split(), *WITH_ZERO}


def _register(name: str, function: Function) -> None:
    def call(input_tensor: Tensor, **how) -> Tensor:
        on_mesh(input_tensor)
        kind = input_tensor.dtype
        if kind not in FLOATS and name not in WHOLE:
            rule = f"Unary: UnaryOpType::{name.upper()} does not support integer input dtype"
            cure = f"ttnn.{name}(ttnn.typecast(tensor, ttnn.float32))"
            refuse(f"{rule} DataType::{kind.name}", cure)
        return result(input_tensor, function(input_tensor.array, **how))

    if name in WITH_KEYWORDS:
        keywords_of(function)(call)
    call.__doc__ = f"Return `{name}` of the elements."
    operation(name, "arrange" if name == "identity" else "compute")(call)


for _name, _function in UNARY.items():
    _register(_name, _function)


# ---------------------------------------------------------------- activations of other operations
ACTIVATIONS = UNARY | {"gelu_approx": gelu_tanh}


def activation(which) -> Function:
    """Return the function of an activation: a name, a UnaryOpType, or (UnaryOpType, parameter).

    Only GELU's parameter counts: (UnaryOpType.GELU, True) gives the fast mode of `gelu`.
    """
    if isinstance(which, (tuple, list)):
        which = UnaryWithParam(which)
    kind = getattr(which, "op_type", which)
    fast = any(getattr(which, "params", ()))
    name = kind.name.lower() if isinstance(kind, UnaryOpType) else kind
    name = "gelu_approx" if fast and name == "gelu" else name
    if name not in ACTIVATIONS:
        refuse(f"Unknown unary op: {name}", f"one of {', '.join(sorted(ACTIVATIONS))}")
    return ACTIVATIONS[name]

"""Operations that work on each element: one table for one operand, one for two, and the few with more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import blocks, dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.dispatch import common_grid, merged, on_mesh, operation, result
from ttkit.sim.enums import DataType, GeluVariant, SigmoidMode, UnaryOpType, UnaryWithParam
from ttkit.sim.tensor import Tensor

Array = np.ndarray
F = np.float32
SQRT_2_OVER_PI = F(math.sqrt(2 / math.pi))


# ---------------------------------------------------------------- kernels of one operand: (values, out, scratch)
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
    out *= np.where(x == -np.inf, F(0), x) if np.isneginf(x.min(initial=0)) else x


def _softplus(x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    return np.where(x * F(beta) > threshold, x, np.log1p(np.exp(np.minimum(x * F(beta), F(threshold)))) / F(beta)).astype(x.dtype)


def _kernel(kernel: Callable[[Array, Array, Array], None]) -> Callable[[Array], Array]:
    return lambda x: blocks.elementwise(kernel, x)


def _ufunc(function: Callable[..., Array]) -> Callable[[Array], Array]:
    return lambda x: blocks.elementwise(lambda values, out, _: function(values, out=out), x)


def _elu(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x > 0, x, F(alpha) * np.expm1(np.minimum(x, 0)))


gelu_tanh, gelu_erf, sigmoid_of = _kernel(_gelu_tanh), _kernel(_gelu_erf), _kernel(_sigmoid)
silu_of, erf_of = _kernel(_silu), _kernel(_erf)


def _test(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x).astype(x.dtype)


def _bitwise_not(x: Array) -> Array:
    return ~x if x.dtype.kind != "f" else (~x.view(np.int32)).view(F)


def _mish(x: Array) -> Array:
    return x * np.tanh(_softplus(x))


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
    "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "mish": _mish, "tanh": _ufunc(np.tanh),
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

    return _named(name, call, f"{name} of each element.")


def _enter_fast(name: str, function: Callable[[Array], Array]) -> Callable[..., Tensor]:
    def call(
        input_tensor: Tensor,
        *,
        fast_and_approximate_mode: bool = False,
        memory_config: Any = None,
        output_tensor: Tensor | None = None,
        sub_core_grids: Any = None,
    ) -> Tensor:
        return unary(name, input_tensor, function, memory_config, output_tensor)

    return _named(name, call, f"{name} of each element; the fast mode is as accurate as the other here.")


def _named(name: str, function: Callable[..., Tensor], doc: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return operation(name)(function)


UNARY = {name: _enter_plain(name, f) for name, f in PLAIN.items()} | {name: _enter_fast(name, f) for name, f in FAST_OR_ACCURATE.items()}


@operation("gelu")
def gelu(
    input_tensor: Tensor,
    *,
    fast_and_approximate_mode: bool = False,
    variant: GeluVariant = GeluVariant.Accurate,
    memory_config: Any = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: Any = None,
) -> Tensor:
    """x * Phi(x): by the error function, or by tanh in the fast mode."""
    function = gelu_tanh if fast_and_approximate_mode or variant is not GeluVariant.Accurate else gelu_erf
    return unary("gelu", input_tensor, function, memory_config, output_tensor)


@operation("sigmoid")
def sigmoid(
    input_tensor: Tensor,
    *,
    vector_mode: int = 4,
    mode: SigmoidMode = SigmoidMode.Accurate,
    memory_config: Any = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: Any = None,
) -> Tensor:
    """1 / (1 + exp(-x)) of each element."""
    return unary("sigmoid", input_tensor, sigmoid_of, memory_config, output_tensor)


@operation("softplus")
def softplus(
    input_tensor: Tensor,
    *,
    beta: float = 1.0,
    threshold: float = 20.0,
    memory_config: Any = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: Any = None,
) -> Tensor:
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
    return unary("elu", input_tensor, lambda x: _elu(x, alpha), memory_config, output_tensor)


@operation("hardtanh")
def hardtanh(
    input_tensor: Tensor,
    *,
    min_val: float = -1.0,
    max_val: float = 1.0,
    memory_config: Any = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: Any = None,
) -> Tensor:
    """x kept between min_val and max_val."""
    return unary("hardtanh", input_tensor, lambda x: np.clip(x, F(min_val), F(max_val)), memory_config, output_tensor)


@operation("round")
def round_(
    input_tensor: Tensor, *, decimals: int | None = 0, memory_config: Any = None, output_tensor: Tensor | None = None, sub_core_grids: Any = None
) -> Tensor:
    """Each element to `decimals` digits, ties to even."""
    return unary("round", input_tensor, lambda x: np.round(x, decimals or 0), memory_config, output_tensor)


def _clip(name: str, tensor: Any, low: Any, high: Any, memory_config: Any, output: Tensor | None) -> Tensor:
    if low is None and high is None:
        fail(describe(name, (tensor,)), "Only one of 'min' or 'max' can be None. Please provide one value", "min=0.0, for example")
    limits: tuple[tuple[Any, Callable[[Array, Array], Array]], ...] = ((low, np.maximum), (high, np.minimum))
    for value, function in limits:
        if value is not None:
            tensor = binary(name, tensor, value, function, None, memory_config, None)
    return tensor if output is None else result(tensor, tensor.array, owned=False, output=output)


@operation("clamp")
def clamp(input_tensor: Tensor, min: Any = None, max: Any = None, *, memory_config: Any = None, output_tensor: Tensor | None = None) -> Tensor:
    """Each element kept between `min` and `max`, numbers or tensors; one of them may be left out."""
    return _clip("clamp", input_tensor, min, max, memory_config, output_tensor)


@operation("clip")
def clip(input_tensor: Tensor, min: Any = None, max: Any = None, *, memory_config: Any = None) -> Tensor:
    """Each element kept between `min` and `max`, numbers or tensors; one of them may be left out."""
    return _clip("clip", input_tensor, min, max, memory_config, None)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"gelu": gelu_erf, "gelu_approx": gelu_tanh, "sigmoid": sigmoid_of, **PLAIN, **FAST_OR_ACCURATE}


def activation(which: Any, asked: object) -> Callable[[Array], Array]:
    """The function that an activation argument means: a name such as "relu", a UnaryOpType, or a UnaryWithParam."""
    kind = which.op_type if isinstance(which, UnaryWithParam) else which
    name = kind.name.lower() if isinstance(kind, UnaryOpType) else kind
    if not isinstance(name, str) or name not in ACTIVATIONS:
        fail(asked, f"Unknown unary op: {name}", f"one of {', '.join(sorted(ACTIVATIONS))}")
    return ACTIVATIONS[name]


# ---------------------------------------------------------------- two operands
def _floats(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: function(a if a.dtype.kind == "f" else a.astype(F), b if not isinstance(b, Array) or b.dtype.kind == "f" else b.astype(F))


def _truth(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: function(a, b).astype(np.result_type(a) if isinstance(a, Array) else b.dtype)


def _logaddexp(a: Array, b: Array) -> Array:
    return np.logaddexp(a, b).astype(F)


ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "rsub": lambda a, b: np.subtract(b, a),
}
COMPARISON: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}  # fmt: skip
OTHER: dict[str, Callable[[Array, Array], Array]] = {
    "squared_difference": lambda a, b: np.square(a - b), "logaddexp": _logaddexp, "bias_gelu": lambda a, b: gelu_erf(a + b),
}  # fmt: skip
EXTREMES: dict[str, Callable[[Array, Array], Array]] = {"maximum": np.maximum, "minimum": np.minimum}
BITWISE: dict[str, Callable[[Array, Array], Array]] = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}
OP_TYPES = {"subtract": "SUB", "multiply": "MUL", "divide": "DIV", "pow": "POWER", "logical_xor": "LOGICAL_XOR"}


def check_broadcast(a: tuple[int, ...], b: tuple[int, ...], asked: object) -> None:
    """Two shard shapes must agree in each dimension, counted from the last, or be 1 there."""
    rank = max(len(a), len(b), 2)
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    if a[-2:] != b[-2:] and 1 not in a[-2:] + b[-2:]:
        fail(
            asked,
            f"Invalid subtile broadcast type: the last two dimensions {list(a[-2:])} and {list(b[-2:])} differ and none is 1",
            "equal shapes, or 1 where one repeats",
        )
    for dim in range(-1, -rank - 1, -1):
        if a[dim] != b[dim] and 1 not in (a[dim], b[dim]):
            fail(
                asked,
                f"Broadcasting rule violation at dimension index {dim} (output rank {rank}), dim a: {a[dim]}, dim b: {b[dim]}",
                "equal sizes, or 1 where one repeats",
            )


def aligned(tensors: tuple[Tensor, ...], asked: Callable[[], object]) -> tuple[Tensor, list[Array]]:
    """The operands' arrays, ready for NumPy to broadcast: same grid, same number of shard axes."""
    like, arrays = common_grid(tensors, asked)
    rank = max(len(t.shard_shape) for t in tensors)
    lead = len(like.grid.shape)
    for i, tensor in enumerate(tensors):
        missing = rank - len(tensor.shard_shape)
        if missing:
            shape = arrays[i].shape
            arrays[i] = arrays[i].reshape(shape[:lead] + (1,) * missing + shape[lead:])
    return like, arrays


def is_number(value: Any) -> bool:
    """True for what ttnn takes as a scalar operand."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, np.ndarray)


def binary(
    name: str,
    a: Any,
    b: Any,
    function: Callable[[Array, Array], Array],
    dtype: DataType | None,
    memory_config: Any,
    output: Tensor | None,
    before_a: Any = (),
    before_b: Any = (),
    after: Any = (),
) -> Tensor:
    """The body of every operation of two operands, one of which may be a number."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        on_mesh(name, a, b)
        check_types(name, a, b)
        if a.shard_shape != b.shard_shape:
            check_broadcast(a.shard_shape, b.shard_shape, describe(name, (a, b)))
        if a.grid is b.grid and len(a.shard_shape) == len(b.shard_shape):
            like, (x, y) = a, (a.array, b.array)
        else:
            like, (x, y) = aligned((a, b), lambda: describe(name, (a, b)))
        topology = a.topology if a.topology is b.topology else merged(like.mesh.grid, a.topology, b.topology)
        if x.dtype != y.dtype:
            x, y = x.astype(F, copy=False), y.astype(F, copy=False)
    else:
        like, other = (a, b) if isinstance(a, Tensor) else (b, a)
        if not is_number(other):
            fail(
                describe(name, (a, b)),
                f"incompatible function arguments: {type(other).__name__} is neither a ttnn.Tensor nor a number",
                "ttnn.from_torch(...) it first",
                TypeError,
            )
        on_mesh(name, like)  # type: ignore[arg-type]
        check_types(name, like)  # type: ignore[arg-type]
        scalar = _scalar(name, like, other)  # type: ignore[arg-type]
        x, y = (like.array, scalar) if like is a else (scalar, like.array)  # type: ignore[union-attr]
        topology = like.topology  # type: ignore[union-attr]
    for which in before_a:
        x = activation(which, name)(x)
    for which in before_b:
        y = activation(which, name)(y)
    values = function(x, y)
    for which in after:
        values = activation(which, name)(values)
    return result(like, values, dtype=dtype or like.dtype, topology=topology, memory_config=memory_config, output=output)  # type: ignore[arg-type, union-attr]


def check_types(name: str, a: Tensor, b: Tensor | None = None) -> None:
    """uint8 takes part in no binary operation, and whole numbers do not mix with fractions, as in ttnn's kernels."""
    if a.dtype is (b or a).dtype and a.dtype in dtypes.FLOATS:
        return
    kind = f"BinaryOpType::{OP_TYPES.get(name.rstrip('_'), name.rstrip('_').upper())}"
    for letter, tensor in (("A", a), ("B", b)):
        if tensor is not None and tensor.dtype is DataType.UINT8 and b is not None:
            fail(describe(name, (a, b)), f"Input tensor {letter} dtype DataType::UINT8 is not supported for binary operation {kind}", "ttnn.typecast first")
    if b is not None and (a.dtype in dtypes.FLOATS) != (b.dtype in dtypes.FLOATS):
        rule = f"Mixed dtype is not supported for binary operation {kind}, dtype A: DataType::{a.dtype.name}, dtype B: DataType::{b.dtype.name}"
        fail(describe(name, (a, b)), rule, "ttnn.typecast one of them")


def _scalar(name: str, tensor: Tensor, value: float) -> Any:
    kind = tensor.array.dtype
    if kind.kind == "f":
        return F(value)
    info = np.iinfo(kind)
    if float(value) != int(value) or not info.min <= value <= info.max:
        rule = (
            f"Binary operation BinaryOpType::{OP_TYPES.get(name, name.upper())} with a DataType::{tensor.dtype.name} tensor cannot represent the scalar {value}"
        )
        fail(describe(name, (tensor, value)), f"{rule}: only a finite integer within its range", "ttnn.typecast the tensor to a float type")
    return kind.type(value)


def _enter_binary(name: str, function: Callable[[Array, Array], Array], fast: bool = False) -> Callable[..., Tensor]:
    def call(
        input_tensor_a: Tensor | float,
        input_tensor_b: Tensor | float,
        *,
        fast_and_approximate_mode: bool = fast,
        dtype: DataType | None = None,
        memory_config: Any = None,
        output_tensor: Tensor | None = None,
        activations: Any = [],  # noqa: B006  (ttnn's own default; never written to)
        input_tensor_a_activations: Any = [],  # noqa: B006
        input_tensor_b_activations: Any = [],  # noqa: B006
        sub_core_grids: Any = None,
        sub_device_id: Any = None,
    ) -> Tensor:
        return binary(
            name, input_tensor_a, input_tensor_b, function, dtype, memory_config, output_tensor,
            input_tensor_a_activations, input_tensor_b_activations, activations,
        )  # fmt: skip

    return _named(name, call, f"{name} of two tensors, or of a tensor and a number; sizes of 1 repeat.")


def _enter_small(name: str, function: Callable[[Array, Array], Array]) -> Callable[..., Tensor]:
    def call(
        input_tensor_a: Tensor,
        input_tensor_b: Tensor | float,
        *,
        dtype: DataType | None = None,
        memory_config: Any = None,
        output_tensor: Tensor | None = None,
        activations: Any = [],  # noqa: B006
        input_tensor_a_activations: Any = [],  # noqa: B006
        input_tensor_b_activations: Any = [],  # noqa: B006
    ) -> Tensor:
        return binary(
            name, input_tensor_a, input_tensor_b, function, dtype, memory_config, output_tensor,
            input_tensor_a_activations, input_tensor_b_activations, activations,
        )  # fmt: skip

    return _named(name, call, f"{name} of two tensors, or of a tensor and a number; sizes of 1 repeat.")


BINARY = {name: _enter_binary(name, f, fast=name in ("add", "subtract")) for name, f in ARITHMETIC.items()}
BINARY |= {name: _enter_binary(name, _truth(f)) for name, f in COMPARISON.items()} | {name: _enter_binary(name, f) for name, f in OTHER.items()}
BINARY |= {name: _enter_small(name, f) for name, f in (EXTREMES | BITWISE).items()}


@operation("divide")
def divide(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | float,
    *,
    fast_and_approximate_mode: bool = False,
    rounding_mode: str | None = None,
    dtype: DataType | None = None,
    memory_config: Any = None,
    output_tensor: Tensor | None = None,
    activations: Any = [],  # noqa: B006
    input_tensor_a_activations: Any = [],  # noqa: B006
    input_tensor_b_activations: Any = [],  # noqa: B006
    sub_core_grids: Any = None,
    sub_device_id: Any = None,
) -> Tensor:
    """a / b; rounding_mode "floor" or "trunc" makes it whole. Integers give float32 when no rounding is asked for."""
    if rounding_mode not in (None, "floor", "trunc"):
        fail(describe("divide", (input_tensor_a, input_tensor_b)), f"Incorrect rounding mode {rounding_mode!r} (expected None, 'trunc', or 'floor')")
    rounded: Any = {None: lambda q: q, "floor": np.floor, "trunc": np.trunc}[rounding_mode]
    like = input_tensor_a if isinstance(input_tensor_a, Tensor) else input_tensor_b
    if isinstance(like, Tensor) and like.dtype not in dtypes.FLOATS and rounding_mode is None:
        dtype = dtype or DataType.FLOAT32
    function = _floats(lambda a, b: rounded(np.divide(a, b)))
    return binary(
        "divide", input_tensor_a, input_tensor_b, function, dtype, memory_config, output_tensor,
        input_tensor_a_activations, input_tensor_b_activations, activations,
    )  # fmt: skip


@operation("pow")
def pow_(
    input_tensor: Tensor,
    exponent: Tensor | float,
    *,
    dtype: DataType | None = None,
    memory_config: Any = None,
    output_tensor: Tensor | None = None,
    activations: Any = [],  # noqa: B006
    input_tensor_a_activations: Any = [],  # noqa: B006
    input_tensor_b_activations: Any = [],  # noqa: B006
) -> Tensor:
    """Each element raised to a number or to another tensor's element."""
    if isinstance(exponent, Tensor) or not isinstance(input_tensor, Tensor) or input_tensor.dtype in dtypes.FLOATS:
        return binary("pow", input_tensor, exponent, np.power, dtype, memory_config, output_tensor)
    if is_number(exponent) and float(exponent) != int(exponent):
        fail(describe("pow", (input_tensor, exponent)), f"pow: DataType::{input_tensor.dtype.name} input requires an integral exponent, got {exponent}")
    return binary("pow", input_tensor, exponent, np.power, dtype, memory_config, output_tensor)


@operation("remainder")
def remainder(input_tensor_a: Tensor, input_tensor_b: Tensor | float, *, memory_config: Any = None) -> Tensor:
    """What is left after floor division; it has the sign of the divisor."""
    return binary("remainder", input_tensor_a, input_tensor_b, np.remainder, None, memory_config, None)


@operation("fmod")
def fmod(input_tensor_a: Tensor, input_tensor_b: Tensor | float, *, memory_config: Any = None) -> Tensor:
    """What is left after division towards zero; it has the sign of the dividend."""
    return binary("fmod", input_tensor_a, input_tensor_b, np.fmod, None, memory_config, None)


@operation("floor_div")
def floor_div(input_tensor_a: Tensor, input_tensor_b: Tensor | float, *, memory_config: Any = None) -> Tensor:
    """The quotient rounded down."""
    return binary("floor_div", input_tensor_a, input_tensor_b, np.floor_divide, None, memory_config, None)


@operation("atan2")
def atan2(input_tensor_a: Tensor, input_tensor_b: Tensor, *, memory_config: Any = None) -> Tensor:
    """The angle of the point (b, a)."""
    return binary("atan2", input_tensor_a, input_tensor_b, np.arctan2, None, memory_config, None)


def _enter_in_place(name: str, function: Callable[[Array, Array], Array]) -> Callable[..., Tensor]:
    def call(
        input_tensor_a: Tensor,
        input_tensor_b: Tensor | float,
        *,
        activations: Any = [],  # noqa: B006
        input_tensor_a_activations: Any = [],  # noqa: B006
        input_tensor_b_activations: Any = [],  # noqa: B006
        sub_core_grids: Any = None,
        fast_and_approximate_mode: bool = False,
    ) -> Tensor:
        return binary(
            name, input_tensor_a, input_tensor_b, function, None, None, input_tensor_a, input_tensor_a_activations, input_tensor_b_activations, activations
        )  # fmt: skip

    return _named(name, call, f"{name[:-1]} whose result replaces the first tensor's values.")


IN_PLACE = {f"{name}_": _enter_in_place(f"{name}_", f) for name, f in ARITHMETIC.items()}
IN_PLACE["divide_"] = _enter_in_place("divide_", _floats(np.divide))


# ---------------------------------------------------------------- more operands
@operation("where")
def where(
    predicate: Tensor,
    true_value: Tensor | float,
    false_value: Tensor | float,
    *,
    memory_config: Any = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: Any = None,
) -> Tensor:
    """`true_value` where the predicate is not zero, `false_value` elsewhere; both may be numbers or tensors."""
    asked = lambda: describe("where", (predicate, true_value, false_value))  # noqa: E731
    for value in (true_value, false_value):
        if not isinstance(value, Tensor) and not is_number(value):
            fail(asked(), f"incompatible function arguments: {type(value).__name__} is neither a ttnn.Tensor nor a number", kind=TypeError)
    tensors = tuple(t for t in (predicate, true_value, false_value) if isinstance(t, Tensor))
    on_mesh("where", *tensors)
    for t in tensors[1:]:
        check_broadcast(predicate.shard_shape, t.shard_shape, asked())
    like, arrays = aligned(tensors, asked)
    taken = iter(arrays[1:])
    yes, no = (next(taken) if isinstance(v, Tensor) else v for v in (true_value, false_value))
    dtype = next((v.dtype for v in (true_value, false_value) if isinstance(v, Tensor)), predicate.dtype)
    values: Array = np.where(arrays[0] != 0, yes, no).astype(dtypes.numpy_dtype(dtype), copy=False)
    topology = merged(like.mesh.grid, *(t.topology for t in tensors))
    return result(like, values, dtype=dtype, topology=topology, memory_config=memory_config, output=output_tensor)


def _ternary(name: str, function: Callable[..., Array], tensors: tuple[Tensor, ...], memory_config: Any, output: Tensor | None) -> Tensor:
    asked = lambda: describe(name, tensors)  # noqa: E731
    on_mesh(name, *tensors)
    for other in tensors[1:]:
        check_broadcast(tensors[0].shard_shape, other.shard_shape, asked())
    like, arrays = aligned(tensors, asked)
    topology = merged(like.mesh.grid, *(t.topology for t in tensors))
    return result(like, function(*arrays), dtype=tensors[0].dtype, topology=topology, memory_config=memory_config, output=output)


@operation("addcmul")
def addcmul(input_a: Tensor, input_b: Tensor, input_c: Tensor, *, value: float = 1.0, memory_config: Any = None, output_tensor: Tensor | None = None) -> Tensor:
    """a + value * b * c."""
    return _ternary("addcmul", lambda a, b, c: a + F(value) * b * c, (input_a, input_b, input_c), memory_config, output_tensor)


@operation("addcdiv")
def addcdiv(input_a: Tensor, input_b: Tensor, input_c: Tensor, *, value: float = 1.0, memory_config: Any = None, output_tensor: Tensor | None = None) -> Tensor:
    """a + value * b / c."""
    return _ternary("addcdiv", lambda a, b, c: a + F(value) * b / c, (input_a, input_b, input_c), memory_config, output_tensor)

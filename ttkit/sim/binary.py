"""Operations on the elements of two tensors, or of a tensor and a number: arithmetic, comparison, logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.dispatch import common_grid, merged, on_mesh, operation, result
from ttkit.sim.enums import DataType
from ttkit.sim.tensor import Tensor
from ttkit.sim.unary import activation, gelu_erf, named

Array = np.ndarray
F = np.float32


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

    return named(name, call, f"{name} of two tensors, or of a tensor and a number; sizes of 1 repeat.")


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

    return named(name, call, f"{name} of two tensors, or of a tensor and a number; sizes of 1 repeat.")


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

    return named(name, call, f"{name[:-1]} whose result replaces the first tensor's values.")


IN_PLACE = {f"{name}_": _enter_in_place(f"{name}_", f) for name, f in ARITHMETIC.items()}
IN_PLACE["divide_"] = _enter_in_place("divide_", _floats(np.divide))

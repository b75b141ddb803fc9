"""Operations on the elements of two tensors, or of a tensor and a number; and a few on three.

A new operation of two operands is one row in `FUNCTIONS`, and in `TAKES` where it takes more than
floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.dtypes import FLOATS
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.operation import (
    aligned,
    check_broadcast,
    check_sizes,
    check_tiles,
    moved,
    on_mesh,
    operation,
    result,
)
from ttkit.sim.quirks import merged
from ttkit.sim.shaping import unsqueeze
from ttkit.sim.tensor import Tensor
from ttkit.sim.unary import activation, gelu_erf

Array = np.ndarray
Function = Callable[[Array, Array], Array]
Pairs = dict[tuple[DataType, DataType], DataType]
F = np.float32
NONE: list[Any] = []  # ttnn's own default for activations; never written to
WHOLE = (DataType.INT32, DataType.UINT32, DataType.UINT16)
LEAST = {DataType.INT32: -(2**31)}
MOST = {DataType.INT32: 2**31 - 1, DataType.UINT32: 2**32 - 1, DataType.UINT16: 2**16 - 1}


def _truth(function: Function) -> Function:
    return lambda a, b: function(a, b).astype(a.dtype if isinstance(a, Array) else b.dtype)


# ---------------------------------------------------------------- the tables
FUNCTIONS: dict[str, Function] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "rsub": lambda a, b: np.subtract(b, a),
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmod": np.fmod,
    "remainder": np.remainder,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "logaddexp": np.logaddexp,
    "logaddexp2": np.logaddexp2,
    "ldexp": lambda a, b: a * np.exp2(b),
    "xlogy": lambda a, b: np.where(a == 0, F(0), a * np.log(b)),
    "bias_gelu": lambda a, b: gelu_erf(a + b),
    "squared_difference": lambda a, b: np.square(a - b),
    "eq": _truth(np.equal),
    "ne": _truth(np.not_equal),
    "lt": _truth(np.less),
    "le": _truth(np.less_equal),
    "gt": _truth(np.greater),
    "ge": _truth(np.greater_equal),
    "logical_and": _truth(np.logical_and),
    "logical_or": _truth(np.logical_or),
    "logical_xor": _truth(np.logical_xor),
}
# Which element types two operands may have together, and the type of the result.
SAME_FLOATS: Pairs = {(f, f): f for f in FLOATS}
ANY_FLOATS: Pairs = {(a, b): a for a in FLOATS for b in FLOATS}
ARITHMETIC = ANY_FLOATS | {(w, w): w for w in WHOLE}
TAKES: dict[str, Pairs] = dict.fromkeys(FUNCTIONS, SAME_FLOATS) | {"divide": ANY_FLOATS}
TAKES |= dict.fromkeys(("add", "subtract", "multiply", "rsub", "squared_difference"), ARITHMETIC)
TAKES |= dict.fromkeys(("logical_and", "logical_or", "logical_xor"), ARITHMETIC)
TAKES |= dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), ARITHMETIC)
TAKES |= dict.fromkeys(("maximum", "minimum"), SAME_FLOATS | {(w, w): w for w in WHOLE[:2]})
CLOSE: Pairs = SAME_FLOATS | {(a, b): a for a in FLOATS[:2] for b in FLOATS[:2]}
OUTER = (*FLOATS[1:3], FLOATS[0], *WHOLE[:2])

# ttnn's own names
KERNELS = {"subtract": "SUB", "multiply": "MUL", "divide": "DIV", "pow": "POWER"}
NUMBER_FIRST = ("add", "subtract", "multiply", "divide")
# ttnn has no form in place of these.
NEW_ONLY = ("pow", "maximum", "minimum", "fmod", "remainder", "atan2", "hypot", "xlogy")


# ---------------------------------------------------------------- types
def _kernel(name: str) -> str:
    name = name.removesuffix("_")
    return f"binary operation BinaryOpType::{KERNELS.get(name, name.upper())}"


def _refuse_pair(name: str, asked: object, takes: Pairs, a: Tensor, b: Tensor) -> DataType:
    for letter, tensor, place in (("A", a, 0), ("B", b, 1)):
        if all(tensor.dtype is not pair[place] for pair in takes):
            rule = f"Input tensor {letter} dtype DataType::{tensor.dtype.name} is not supported for"
            fail(asked, f"{rule} {_kernel(name)}", "ttnn.typecast first")
    rule = f"Mixed dtype is not supported for {_kernel(name)}"
    rule += f", dtype A: DataType::{a.dtype.name}, dtype B: DataType::{b.dtype.name}"
    fail(asked, rule, "ttnn.typecast one of them")


def _check_number(name: str, asked: object, takes: Pairs, kind: DataType, value: float) -> None:
    """A tensor of whole numbers takes a whole number within its range, which nothing rounds."""
    if (kind, kind) not in takes:
        rule = f"Input tensor A dtype DataType::{kind.name} is not supported for {_kernel(name)}"
        fail(asked, rule, "ttnn.typecast(tensor, ttnn.float32)")
    if not (float(value).is_integer() and LEAST.get(kind, 0) <= value <= MOST[kind]):
        rule = f"{_kernel(name)} with a DataType::{kind.name} tensor cannot represent the scalar"
        cure = "ttnn.typecast the tensor to a float type"
        fail(asked, f"{rule} {value}: only a whole number within its range stays the same", cure)


def is_number(value: Any) -> bool:
    """True for what ttnn takes as a scalar operand."""
    return isinstance(value, (int, float, np.integer, np.floating))


# ---------------------------------------------------------------- two operands
def _binary(
    name: str,
    a: Any,
    b: Any,
    function: Function,
    takes: Pairs,
    dtype: DataType | None = None,
    output: Tensor | None = None,
    activations: tuple[Any, Any, Any] = ((), (), ()),
) -> Tensor:
    """The body of every operation of two operands.

    `activations` of the first, the second, the result.
    """
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        on_mesh(name, a, b)
        same = a.shard_shape == b.shard_shape
        if not same:
            check_tiles(a.shard_shape, b.shard_shape, describe(name, (a, b)))
        given = takes.get((a.dtype, b.dtype))
        if given is None:
            _refuse_pair(name, describe(name, (a, b)), takes, a, b)
        if not same:
            check_sizes(a.shard_shape, b.shard_shape, describe(name, (a, b)))
        if same and a.grid is b.grid:
            like, x, y = a, a.array, b.array
            one = a.topology is b.topology
            topology = a.topology if one else merged(a.mesh.grid, a.topology, b.topology)
        else:
            like, (x, y), topology = aligned(name, (a, b))
        layout = a.layout if a.layout is b.layout else Layout.TILE
    else:
        like, number = (a, b) if isinstance(a, Tensor) else (b, a)
        if not is_number(number):
            what = f"{type(number).__name__} is neither a ttnn.Tensor nor a number"
            rule = f"incompatible function arguments: {what}"
            fail(describe(name, (a, b)), rule, "ttnn.from_torch(...) it first", TypeError)
        on_mesh(name, like)
        given, layout, topology = like.dtype, like.layout, like.topology
        if given not in FLOATS:
            _check_number(name, describe(name, (a, b)), takes, given, number)
        values = like.array
        number = values.dtype.type(number)
        x, y = (values, number) if like is a else (number, values)
    first, second, after = activations
    for which in first:
        x = activation(which, name)(x)
    for which in second:
        y = activation(which, name)(y)
    values = function(x, y)
    for which in after:
        values = activation(which, name)(values)
    return result(
        like, values, dtype=dtype or given, layout=layout, topology=topology, output=output
    )


HINTS = "memory_config sub_core_grids sub_device_id fast_and_approximate_mode"


def _enter(name: str, function: Function) -> None:
    takes = TAKES[name]

    def call(
        input_tensor_a: Tensor,
        input_tensor_b: Tensor | float,
        *,
        dtype: DataType | None = None,
        output_tensor: Tensor | None = None,
        activations: Any = NONE,
        input_tensor_a_activations: Any = NONE,
        input_tensor_b_activations: Any = NONE,
    ) -> Tensor:
        all_three = (input_tensor_a_activations, input_tensor_b_activations, activations)
        return _binary(
            name, input_tensor_a, input_tensor_b, function, takes, dtype, output_tensor, all_three
        )

    def in_place(
        input_tensor_a: Tensor,
        input_tensor_b: Tensor | float,
        *,
        activations: Any = NONE,
        input_tensor_a_activations: Any = NONE,
        input_tensor_b_activations: Any = NONE,
    ) -> Tensor:
        all_three = (input_tensor_a_activations, input_tensor_b_activations, activations)
        into, called = input_tensor_a, f"{name}_"
        return _binary(called, into, input_tensor_b, function, takes, None, into, all_three)

    if name in NUMBER_FIRST:
        call.__annotations__["input_tensor_a"] = "Tensor | float"
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Return {name} of two tensors, or of a tensor and a number; sizes of 1 repeat."
    operation(name, dtypes=takes, hints=HINTS)(call)
    if name not in NEW_ONLY:
        in_place.__name__ = in_place.__qualname__ = f"{name}_"
        in_place.__doc__ = f"Write {name} of the two into the first tensor, and return it."
        operation(f"{name}_", dtypes=takes, hints="sub_core_grids fast_and_approximate_mode")(
            in_place
        )


for _name, _function in FUNCTIONS.items():
    _enter(_name, _function)


@operation("isclose", hints="memory_config")
def isclose(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """Return 1 where |a - b| <= atol + rtol * |b|, 0 elsewhere."""
    function = _truth(lambda a, b: np.isclose(a, b, rtol, atol, equal_nan))
    return _binary("isclose", input_tensor_a, input_tensor_b, function, CLOSE)


@operation("outer", hints="memory_config")
def outer(input_tensor_a: Tensor, input_tensor_b: Tensor) -> Tensor:
    """Return each element of a's last dimension times each of b's: [..., n, m] of n and m.

    Raises:
        TTKitError: a tensor of rank 0; element types that differ.
    """
    pair = a, b = input_tensor_a, input_tensor_b
    asked = describe("outer", pair)
    if not (a.shard_shape and b.shard_shape):
        rule = "ttnn.outer: inputs must be at least 1D, but got shapes"
        fail(asked, f"{rule} {list(a.shard_shape)} and {list(b.shard_shape)}", "ttnn.reshape")
    names = f"DataType::{a.dtype.name} and DataType::{b.dtype.name}"
    if any(t.dtype not in OUTER for t in pair):
        rule = f"ttnn.outer: unsupported dtype (got {names}); supported:"
        fail(asked, f"{rule} {', '.join(kind.name for kind in OUTER)}", "ttnn.typecast")
    if a.dtype is not b.dtype:
        rule = f"ttnn.outer: inputs must have the same dtype, but got {names}"
        fail(asked, rule, "ttnn.typecast")
    column, row = unsqueeze(a, -1), unsqueeze(b, -2)
    return _binary("multiply", column, row, np.multiply, ARITHMETIC)


# ---------------------------------------------------------------- three operands
@operation("clamp", dtypes=TAKES["maximum"], hints="memory_config")
def clamp(
    input_tensor: Tensor,
    min: Tensor | float | None = None,
    max: Tensor | float | None = None,
    *,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return each element, or the limit that it is beyond; a limit may be left out.

    Args:
        min, max: numbers, or tensors of the same type.
    """
    if min is None and max is None:
        rule = "Only one of 'min' or 'max' can be None. Please provide one value"
        fail(describe("clamp", (input_tensor,)), rule, "min=0.0, for example")
    made, takes = input_tensor, TAKES["maximum"]
    for limit, function in ((min, np.maximum), (max, np.minimum)):
        if limit is not None:
            made = _binary("clamp", made, limit, function, takes)
    return made if output_tensor is None else moved(made, made.array, output=output_tensor)


@operation("where", hints="memory_config sub_core_grids")
def where(
    predicate: Tensor,
    true_value: Tensor | float,
    false_value: Tensor | float,
    *,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return `true_value` where the predicate is not zero, `false_value` elsewhere."""
    asked = describe("where", (predicate, true_value, false_value))
    tensors = [t for t in (predicate, true_value, false_value) if isinstance(t, Tensor)]
    on_mesh("where", *tensors)
    for t in tensors[1:]:
        check_broadcast(predicate.shard_shape, t.shard_shape, asked)
    like, (condition, *arrays), topology = aligned("where", tensors)
    yes, no = (arrays.pop(0) if isinstance(v, Tensor) else v for v in (true_value, false_value))
    dtype = tensors[1].dtype if len(tensors) > 1 else predicate.dtype
    values: Array = np.where(condition != 0, yes, no)
    values = values.astype(dtypes.numpy_dtype(dtype), copy=False)
    return result(like, values, dtype=dtype, topology=topology, output=output_tensor)


def _enter_of_three(name: str, function: Callable[..., Array], what: str) -> None:
    def call(
        input_a: Tensor,
        input_b: Tensor,
        input_c: Tensor,
        *,
        value: float = 1.0,
        output_tensor: Tensor | None = None,
    ) -> Tensor:
        tensors = (input_a, input_b, input_c)
        on_mesh(name, *tensors)
        for other in tensors[1:]:
            check_broadcast(input_a.shard_shape, other.shard_shape, describe(name, tensors))
        like, arrays, topology = aligned(name, tensors)
        values = function(*arrays, F(value))
        return result(like, values, dtype=input_a.dtype, topology=topology, output=output_tensor)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Return a + value * b {what} c."
    operation(name, hints="memory_config")(call)


_enter_of_three("addcmul", lambda a, b, c, value: a + value * b * c, "*")
_enter_of_three("addcdiv", lambda a, b, c, value: a + value * b / c, "/")

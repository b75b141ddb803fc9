"""Which element types an operation of two operands takes together, and the type of its result."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.dtypes import FLOATS
from ttkit.sim.enums import DataType
from ttkit.sim.tensor import Tensor

Pairs = dict[tuple[DataType, DataType], DataType]
FLOAT32, BFLOAT16, INT32, UINT32, UINT16, UINT8 = (getattr(DataType, n) for n in ("FLOAT32", "BFLOAT16", "INT32", "UINT32", "UINT16", "UINT8"))
LONG = (INT32, UINT32)


def _same(*kinds: DataType) -> Pairs:
    return {(k, k): k for k in kinds}


MIXED: Pairs = {(a, b): a for a in FLOATS for b in FLOATS}
BY_WHOLE: Pairs = {(f, w): f for f in FLOATS for w in LONG}
WHOLE_BY: Pairs = {(w, f): FLOAT32 if f is FLOAT32 else BFLOAT16 for f in FLOATS for w in LONG}
ARITHMETIC = MIXED | _same(*LONG, UINT16)
DIVISION = MIXED | BY_WHOLE | WHOLE_BY | {(INT32, INT32): FLOAT32}
COMPARISON = MIXED | _same(*LONG) | {(a, b): UINT16 for a in (UINT16, UINT8) for b in (UINT16, UINT8)}
CLOSE = {(a, b): FLOAT32 if a is INT32 else a for a in (FLOAT32, BFLOAT16, INT32) for b in (FLOAT32, BFLOAT16, INT32)}
COMPARES = ("eq", "ne", "gt", "ge", "lt", "le")
SHIFTS_AND_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "logical_left_shift")

# operation -> the pairs of types that it takes, with the type of the result
TAKES: dict[str, Pairs] = dict.fromkeys(("add", "subtract", "rsub", "squared_difference", "logical_and", "logical_or", "logical_xor"), ARITHMETIC)
TAKES |= dict.fromkeys(COMPARES, COMPARISON) | dict.fromkeys(("divide", "floor_div"), DIVISION)
TAKES |= {"multiply": ARITHMETIC | BY_WHOLE | WHOLE_BY, "fmod": _same(*FLOATS, INT32)}
TAKES |= {"isclose": CLOSE | _same(*FLOATS), "logical_right_shift": _same(*LONG)}
TAKES |= dict.fromkeys(("maximum", "minimum", "remainder"), _same(*FLOATS, *LONG))
TAKES |= dict.fromkeys(("pow", "ldexp", "hypot", "xlogy", "atan2", "logaddexp", "logaddexp2", "bias_gelu"), _same(*FLOATS))
TAKES |= dict.fromkeys(SHIFTS_AND_BITS, _same(*LONG, UINT16))

# ttnn's name of the kernel, where it is not the function's in capitals
KERNELS = {"subtract": "SUB", "multiply": "MUL", "divide": "DIV", "floor_div": "DIV", "pow": "POWER"}
KERNELS |= {"bitwise_left_shift": "LEFT_SHIFT", "logical_left_shift": "LEFT_SHIFT", "bitwise_right_shift": "RIGHT_SHIFT"}
POWER_OF_WHOLE = "is not supported for binary operation POWER: tensor exponents are not for whole numbers"


def kernel(name: str) -> str:
    """What ttnn calls the kernel of an operation, in-place forms included.

    Example:
        >>> kernel("multiply"), kernel("add_")
        ('MUL', 'ADD')
    """
    name = name.rstrip("_")
    return KERNELS.get(name, name.upper())


def type_of_pair(name: str, a: Tensor, b: Tensor) -> DataType:
    """The type of the result of two tensors.

    Raises:
        TTKitError: the operation does not take these two types together.
    """
    takes = TAKES[name.rstrip("_")]
    return takes.get((a.dtype, b.dtype)) or _refuse(name, takes, a, b)


def check_types(name: str, a: Tensor, b: Tensor) -> None:
    """The products that gradients are made of take the types of any arithmetic."""
    if (a.dtype, b.dtype) not in ARITHMETIC:
        _refuse(name, ARITHMETIC, a, b)


def _refuse(name: str, takes: Pairs, a: Tensor, b: Tensor) -> DataType:
    asked, kind = describe(name, (a, b)), f"BinaryOpType::{kernel(name)}"
    if name == "pow" and a.dtype in (*LONG, UINT16):
        fail(asked, f"Input tensor A dtype DataType::{a.dtype.name} {POWER_OF_WHOLE}", "a number as the exponent, or ttnn.typecast")
    for letter, tensor, column in (("A", a, {p[0] for p in takes}), ("B", b, {p[1] for p in takes})):
        if tensor.dtype not in column:
            fail(asked, f"Input tensor {letter} dtype DataType::{tensor.dtype.name} is not supported for binary operation {kind}", "ttnn.typecast first")
    rule = f"Mixed dtype is not supported for binary operation {kind}, dtype A: DataType::{a.dtype.name}, dtype B: DataType::{b.dtype.name}"
    fail(asked, rule, "ttnn.typecast one of them")


# Operations that hand a number to a kernel of one operand: the whole-number types that kernel takes, and its name.
ONE_OPERAND: dict[str, tuple[tuple[DataType, ...], str]] = {"maximum": (LONG, "MAXIMUM"), "minimum": (LONG, "MINIMUM"), "fmod": ((INT32,), "FMOD")}
ONE_OPERAND |= {"remainder": (LONG, "REMAINDER")} | {n: ((*LONG, UINT16), kernel(n)) for n in SHIFTS_AND_BITS}
# Where a fraction beside whole numbers makes the result float32; elsewhere it is refused or cut off.
FRACTION_WIDENS = ("multiply", "divide", "fmod", "remainder")


def type_with_number(name: str, tensor: Tensor, value: float, tensor_first: bool = True) -> DataType:
    """The type of the result of a tensor and a number.

    Raises:
        TTKitError: the operation does not take the tensor's type with a number, or the type cannot hold the number.
    """
    kind, base = tensor.dtype, name.rstrip("_")
    if kind in FLOATS and base not in SHIFTS_AND_BITS and base != "logical_right_shift":
        return kind
    asked = describe(name, (tensor, value) if tensor_first else (value, tensor))
    whole = math.isfinite(value) and float(value).is_integer()
    if base == "pow":
        return _type_of_power(tensor, value, tensor_first, asked)
    if base == "floor_div":
        return _type_of_floor(tensor, value, asked)
    if base in ONE_OPERAND:
        return _type_of_one_operand(base, tensor, value, whole, asked)
    if kind in LONG and base not in FRACTION_WIDENS and not (whole and -(2**31) <= value < (2**31 if kind is INT32 else 2**32)):
        rule = f"Binary operation BinaryOpType::{kernel(name)} with a DataType::{kind.name} tensor cannot represent the scalar {value}"
        cure = "ttnn.typecast the tensor to a float type"
        fail(asked, f"{rule}: only a finite whole number within its range survives being packed as one, and this value would be changed", cure)
    if base == "bias_gelu":
        _refuse_with_number(tensor, asked, "BinaryOpType::ADD" if kind is UINT8 else "UnaryOpType::GELU")
    if base == "divide":
        if kind is INT32 or (kind is UINT32 and not whole):
            return FLOAT32
        _refuse_with_number(tensor, asked, "BinaryOpType::DIV")
    if kind is UINT8 and base in COMPARES:
        return UINT16
    if (kind, kind) not in TAKES[base]:
        _refuse_with_number(tensor, asked, f"BinaryOpType::{kernel(name)}")
    return FLOAT32 if kind in LONG and not whole else kind


def _refuse_with_number(tensor: Tensor, asked: object, kind: str) -> None:
    dtype = f"dtype DataType::{tensor.dtype.name}"
    binary = f"Input tensor A {dtype} is not supported for binary operation {kind}"
    fail(asked, binary if kind.startswith("Binary") else f"Unary: {kind} does not support integer input {dtype}", "ttnn.typecast(tensor, ttnn.float32)")


def _type_of_power(tensor: Tensor, value: float, tensor_first: bool, asked: object) -> DataType:
    kind = tensor.dtype
    whole = float(value).is_integer()
    if not tensor_first and kind is not UINT8:
        fail(asked, f"Input tensor A dtype DataType::{kind.name} {POWER_OF_WHOLE}", "ttnn.typecast(tensor, ttnn.float32)")
    if not tensor_first:
        _refuse_with_number(tensor, asked, "BinaryOpType::POWER")
    if kind is UINT8 and value != 0:
        _refuse_with_number(tensor, asked, "UnaryOpType::POWER_ITERATIVE" if whole and value > 0 else "UnaryOpType::POWER")
    if not whole:
        fail(asked, f"pow: DataType::{kind.name} input requires an integral exponent, got {value}")
    if value < 0:
        fail(asked, f"pow: integers to negative integer powers are not allowed, got {value}", "ttnn.typecast(tensor, ttnn.float32)")
    return kind


def _type_of_floor(tensor: Tensor, value: float, asked: object) -> DataType:
    """Made of a product with the reciprocal, and of tests on zero, whose kernels decide."""
    if tensor.dtype is UINT8:
        _refuse_with_number(tensor, asked, "UnaryOpType::EQZ" if value == 0 else "BinaryOpType::MUL")
    if value == 0 or tensor.dtype is UINT16:
        _refuse_with_number(tensor, asked, "UnaryOpType::SIGN" if value == 0 else "UnaryOpType::FLOOR")
    return FLOAT32


def _type_of_one_operand(name: str, tensor: Tensor, value: float, whole: bool, asked: object) -> DataType:
    kind, (takes, word) = tensor.dtype, ONE_OPERAND[name]
    if kind in FLOATS:
        fail(asked, f"Unsupported input dtype for bitwise/shift op_type UnaryOpType::{word}: expected Int32, UInt32, or UInt16", "ttnn.typecast")
    if kind not in takes:
        _refuse_with_number(tensor, asked, f"UnaryOpType::{word}")
    if name == "remainder" and kind is UINT32:
        if not whole:
            fail(asked, "Expected integer scalar divisor (uint32 or int32)")
        if value <= 0:
            fail(asked, f"Divisor must be positive, got {value}")
    return FLOAT32 if name in FRACTION_WIDENS and not whole else kind


def as_number(kind: Any, value: float) -> Any:
    """A number in the NumPy type that an operation computes in: whole ones wrap around, fractions of whole types are cut off.

    Example:
        >>> int(as_number(np.dtype(np.uint16), -1)), float(as_number(np.dtype(np.float32), 0.5))
        (65535, 0.5)
    """
    return np.float32(value) if kind.kind == "f" else np.array(int(value) % (1 << 64), np.uint64).astype(kind)[()]

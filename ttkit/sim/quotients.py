"""Quotients, powers and the other operations of two operands whose arguments are their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.binary import NONE, F, binary
from ttkit.sim.dispatch import operation
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.filling import full_like, ones_like
from ttkit.sim.shaping import reshape
from ttkit.sim.tensor import Tensor

Array = np.ndarray
ROUNDED: Any = {None: np.divide, "floor": lambda a, b: np.floor(np.divide(a, b)), "trunc": lambda a, b: np.trunc(np.divide(a, b))}


@operation("divide")
def divide(
    input_tensor_a: Tensor | float, input_tensor_b: Tensor | float, *, fast_and_approximate_mode: bool = False, rounding_mode: str | None = None,
    dtype: DataType | None = None, memory_config: Any = None, output_tensor: Tensor | None = None, activations: Any = NONE,
    input_tensor_a_activations: Any = NONE, input_tensor_b_activations: Any = NONE, sub_core_grids: Any = None, sub_device_id: Any = None,
) -> Tensor:  # fmt: skip
    """a / b; rounding_mode "floor" or "trunc" makes it whole. Integers give float32 when no rounding is asked for."""
    if rounding_mode not in ROUNDED:
        fail(describe("divide", (input_tensor_a, input_tensor_b)), f"Incorrect rounding mode {rounding_mode!r} (expected None, 'trunc', or 'floor')")
    whole = isinstance(input_tensor_a, Tensor) and input_tensor_a.dtype is DataType.INT32
    if whole and rounding_mode is None and dtype not in (None, DataType.FLOAT32):
        rule = "Incorrect output_dtype value for Integer Division(rounding_mode=None) ; valid input values are None or ttnn.float32"
        fail(describe("divide", (input_tensor_a, input_tensor_b)), rule)
    if whole and rounding_mode is not None and (not isinstance(input_tensor_b, Tensor) or input_tensor_b.dtype is DataType.INT32):
        dtype = dtype or DataType.INT32
    return binary(
        "divide", input_tensor_a, input_tensor_b, ROUNDED[rounding_mode], dtype, memory_config, output_tensor,
        input_tensor_a_activations, input_tensor_b_activations, activations,
    )  # fmt: skip


@operation("divide_")
def divide_(
    input_tensor_a: Tensor, input_tensor_b: Tensor | float, *, activations: Any = NONE, input_tensor_a_activations: Any = NONE,
    input_tensor_b_activations: Any = NONE, sub_core_grids: Any = None, fast_and_approximate_mode: bool = False,
) -> Tensor:  # fmt: skip
    """`divide` whose result replaces the first tensor's values."""
    if input_tensor_a.dtype is DataType.INT32:
        rule = "For integer division, supported output dtype is FLOAT32, which the first tensor cannot hold"
        fail(describe("divide_", (input_tensor_a, input_tensor_b)), rule, "ttnn.divide")
    return binary(
        "divide_", input_tensor_a, input_tensor_b, np.divide, None, None, input_tensor_a,
        input_tensor_a_activations, input_tensor_b_activations, activations,
    )  # fmt: skip


@operation("floor_div")
def floor_div(input_tensor_a: Tensor, input_tensor_b: Tensor | float, *, memory_config: Any = None) -> Tensor:
    """The quotient rounded down."""
    if isinstance(input_tensor_b, Tensor) and input_tensor_a.layout is input_tensor_b.layout is Layout.ROW_MAJOR:
        rule = "Ternary operation requires tensor to be in Tile layout when working with non-sharded input tensor"
        fail(describe("floor_div", (input_tensor_a, input_tensor_b)), rule, "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    return binary("floor_div", input_tensor_a, input_tensor_b, ROUNDED["floor"], None, memory_config, None)


@operation("fmod")
def fmod(input_tensor_a: Tensor, input_tensor_b: Tensor | float, *, memory_config: Any = None, sub_core_grids: Any = None, sub_device_id: Any = None) -> Tensor:
    """What is left after division towards zero; it has the sign of the dividend."""
    return binary("fmod", input_tensor_a, input_tensor_b, np.fmod, None, memory_config, None)


@operation("pow")
def pow_(
    input_tensor: Tensor | float, exponent: Tensor | float, *, dtype: DataType | None = None, memory_config: Any = None,
    output_tensor: Tensor | None = None, activations: Any = NONE, input_tensor_a_activations: Any = NONE, input_tensor_b_activations: Any = NONE,
) -> Tensor:  # fmt: skip
    """Each element raised to a number or to another tensor's element; or a number raised to each element."""
    if dtype is not None and not isinstance(exponent, Tensor):
        fail(describe("pow", (input_tensor, exponent)), "incompatible function arguments: dtype goes with an exponent that is a tensor", kind=TypeError)
    if not isinstance(exponent, Tensor) and exponent == 0 and isinstance(input_tensor, Tensor):
        return ones_like(input_tensor)
    if not isinstance(input_tensor, Tensor) and isinstance(exponent, Tensor) and exponent.dtype in dtypes.FLOATS:
        input_tensor = full_like(exponent, input_tensor)  # as ttnn does, whose placements show it
    return binary(
        "pow", input_tensor, exponent, np.power, dtype, memory_config, output_tensor, input_tensor_a_activations, input_tensor_b_activations, activations
    )  # fmt: skip


@operation("isclose")
def isclose(
    input_tensor_a: Tensor, input_tensor_b: Tensor, *, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False, memory_config: Any = None
) -> Tensor:
    """1 where |a - b| <= atol + rtol * |b|, 0 elsewhere."""

    def close(a: Array, b: Array) -> Array:
        return np.asarray(np.isclose(a, b, rtol, atol, equal_nan), F)

    return binary("isclose", input_tensor_a, input_tensor_b, close, None, memory_config, None)


@operation("outer")
def outer(input_tensor_a: Tensor, input_tensor_b: Tensor, *, memory_config: Any = None) -> Tensor:
    """Each element of a's last dimension times each of b's: [..., n] and [..., m] give [..., n, m]."""
    asked, pair = describe("outer", (input_tensor_a, input_tensor_b)), (input_tensor_a, input_tensor_b)
    if any(not t.shard_shape for t in pair):
        fail(asked, f"ttnn.outer: inputs must be at least 1D, but got shapes {' and '.join(str(list(t.shard_shape)) for t in pair)}")
    takes = (DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.FLOAT32, DataType.INT32, DataType.UINT32)
    names = " and ".join(f"DataType::{t.dtype.name}" for t in pair)
    if any(t.dtype not in takes for t in pair):
        fail(asked, f"ttnn.outer: unsupported dtype (got {names}); supported: {', '.join(t.name for t in takes)}", "ttnn.typecast")
    if input_tensor_a.dtype is not input_tensor_b.dtype:
        fail(asked, f"ttnn.outer: inputs must have the same dtype, but got {names}", "ttnn.typecast")
    column = reshape(input_tensor_a, (*input_tensor_a.shard_shape, 1))
    row = reshape(input_tensor_b, (*input_tensor_b.shard_shape[:-1], 1, input_tensor_b.shard_shape[-1]))
    return binary("multiply", column, row, np.multiply, None, memory_config, None)

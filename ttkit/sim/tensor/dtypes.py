"""Element types: how values are rounded when they are stored.

A simulated tensor keeps bfloat16, bfloat8_b and bfloat4_b values in float32 arrays whose values are
exactly representable in the narrower type, so that NumPy computes on them at full speed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.sim.blocks import elementwise
from ttkit.sim.tensor import DataType
from ttkit.sim.tensor.absent import Absent, absent

FLOATS = (DataType.FLOAT32, DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.BFLOAT4_B)
# These are the bits of magnitude of an element, the leading one included.
BLOCK_FLOATS = {
    DataType.BFLOAT8_B: 7,
    DataType.BFLOAT4_B: 3,
}
NUMPY = {
    DataType.UINT32: np.uint32,
    DataType.INT32: np.int32,
    DataType.UINT16: np.uint16,
    DataType.UINT8: np.uint8,
    DataType.INT8: np.int8,
}


def numpy_dtype(dtype: DataType) -> type:
    """Return the NumPy type that stores values of `dtype`."""
    return NUMPY.get(dtype, np.float32)


ONE, HALF, SIXTEEN, UPPER = np.uint32(1), np.uint32(0x7FFF), np.uint32(16), np.uint32(0xFFFF_0000)


def _round_block(values: np.ndarray, out: np.ndarray, carry: np.ndarray) -> None:
    np.right_shift(values, SIXTEEN, carry)
    np.bitwise_and(carry, ONE, carry)
    np.add(carry, HALF, carry)
    np.add(values, carry, out)
    np.bitwise_and(out, UPPER, out)


def round_bfloat16(array: np.ndarray, *, in_place: bool = False) -> np.ndarray:
    """Round float32 values to the nearest bfloat16, ties to even.

    Infinities stay. A NaN stays one if its low 16 bits are zero, as those of arithmetic are;
    `convert` sees to the others.

    Args:
        array: float32 values, any shape; a single number gives an array of one.
        in_place: the array may be overwritten.

    Example:
        >>> float(round_bfloat16(np.float32([1.00390625]))[0])
        1.0
    """
    bits = np.ascontiguousarray(array).view(np.uint32)
    return elementwise(_round_block, bits, in_place=in_place).view(np.float32)


def round_block_float(array: np.ndarray, bits: int) -> np.ndarray:
    """Round to a block float type: 16 neighbours of a row share the exponent of the largest.

    Args:
        array: float32, any shape; blocks run along the last dimension.
        bits: magnitude bits of an element, 7 for bfloat8_b and 3 for bfloat4_b.
    """
    array = np.atleast_1d(array)
    if array.size == 0:
        return array
    width = array.shape[-1]
    padded = np.zeros((*array.shape[:-1], -(-width // 16) * 16), np.float32)
    padded[..., :width] = array
    blocks = padded.reshape(*array.shape[:-1], -1, 16)
    raw = blocks.view(np.uint32)
    exponents = ((raw >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int32)
    shared = exponents.max(-1, keepdims=True)
    mantissa = np.where(
        exponents > 0, (raw & np.uint32(0x7FFFFF)) | np.uint32(0x800000), np.uint32(0)
    ).astype(np.int32)
    # Bits that leave on the right here are lost before the rounding.
    mantissa >>= np.minimum(shared - exponents, 31)
    kept = mantissa >> (24 - bits)
    low, half = mantissa & ((1 << (24 - bits)) - 1), 1 << (23 - bits)
    kept += (low > half) | ((low == half) & (kept & 1 == 1))
    kept = np.minimum(kept, (1 << bits) - 1)
    value = np.ldexp(kept.astype(np.float64), shared - 127 - (bits - 1))
    value[value < np.finfo(np.float32).tiny] = 0
    # Such a value has the exponent of infinity and a fraction, which means NaN.
    value[value > 2.0**128] = np.nan
    with np.errstate(over="ignore"):
        rounded = np.copysign(value, blocks).astype(np.float32)
    return rounded.reshape(padded.shape)[..., :width] + np.float32(0)


def _integers(array: np.ndarray, dtype: DataType, target: Any) -> np.ndarray:
    """Truncate floats to integers; out of range, the result is that of the host's instructions.

    Values go through int32, where everything out of range is the least number; small types
    saturate.

    Args:
        target: the NumPy type of `dtype`.
    """
    whole = np.trunc(array)
    wide = np.where(np.abs(whole) < 2.0**63, whole, -(2.0**63)).astype(np.int64)
    narrow = np.where((wide >= -(2**31)) & (wide < 2**31), wide, -(2**31))
    if dtype is DataType.UINT32:
        return np.where((wide >= 2**31) & (wide < 2**32), wide, narrow).astype(target)
    if dtype in (DataType.UINT8, DataType.UINT16):
        return np.clip(narrow, 0, np.iinfo(target).max).astype(target)
    return narrow.astype(target)


def convert(
    array: np.ndarray,
    dtype: DataType,
    *,
    owned: bool = False,
    foreign: bool = True,
) -> np.ndarray:
    """Return values that `dtype` can represent, in the NumPy type that stores them.

    Floats to integers truncate; to block floats round in blocks of 16 along the last dimension.

    Args:
        array: any numeric NumPy array.
        dtype: the element type wanted.
        owned: the array is a temporary that may be overwritten.
        foreign: the values may have a NaN that no arithmetic of ours made.
    """
    target = numpy_dtype(dtype)
    if isinstance(array, Absent):
        return absent(array.shape, target)
    if array.dtype != target:
        if array.dtype.kind == "f" and target is not np.float32:
            return _integers(array, dtype, target)
        array = array.astype(target)
        owned = True
    if dtype is DataType.BFLOAT16:
        rounded = round_bfloat16(array, in_place=owned and not foreign)
        if foreign and array.size and np.isnan(array.min()):
            rounded = np.where(np.isnan(array), np.float32(np.nan), rounded)
        return rounded
    if dtype in BLOCK_FLOATS:
        return round_block_float(array, BLOCK_FLOATS[dtype])
    return array

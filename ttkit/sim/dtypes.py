"""Element types: how many bytes they take on a chip, and how values are rounded when they are stored.

A simulated tensor keeps bfloat16, bfloat8_b and bfloat4_b values in float32 arrays whose values are exactly
representable in the narrower type, so that NumPy computes on them at full speed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ttkit.sim.blocks import BLOCK, in_pieces
from ttkit.sim.enums import DataType

FLOATS = (DataType.FLOAT32, DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.BFLOAT4_B)
BLOCK_FLOATS = {DataType.BFLOAT8_B: 7, DataType.BFLOAT4_B: 3}  # bits of magnitude an element, the leading one included
TILE_BYTES = {DataType.BFLOAT8_B: 1088, DataType.BFLOAT4_B: 576}  # 1024 elements and 64 shared exponents
BYTES = {DataType.FLOAT32: 4, DataType.BFLOAT16: 2, DataType.UINT32: 4, DataType.INT32: 4, DataType.UINT16: 2, DataType.UINT8: 1, DataType.INT8: 1}
NUMPY = {DataType.UINT32: np.uint32, DataType.INT32: np.int32, DataType.UINT16: np.uint16, DataType.UINT8: np.uint8, DataType.INT8: np.int8}


def numpy_dtype(dtype: DataType) -> type:
    """The NumPy type that the simulator keeps values of `dtype` in."""
    return NUMPY.get(dtype, np.float32)


def bytes_of(padded_shape: tuple[int, ...], dtype: DataType) -> int:
    """Bytes that a shard of this padded shape takes on its chip.

    Example:
        >>> bytes_of((64, 32), DataType.BFLOAT16), bytes_of((64, 32), DataType.BFLOAT8_B)
        (4096, 2176)
    """
    elements = math.prod(padded_shape)
    return elements // 1024 * TILE_BYTES[dtype] if dtype in TILE_BYTES else elements * BYTES[dtype]


ONE, HALF, SIXTEEN, UPPER = np.uint32(1), np.uint32(0x7FFF), np.uint32(16), np.uint32(0xFFFF_0000)


def _round_block(values: np.ndarray, out: np.ndarray, carry: np.ndarray) -> None:
    np.right_shift(values, SIXTEEN, carry)
    np.bitwise_and(carry, ONE, carry)
    np.add(carry, HALF, carry)
    np.add(values, carry, out)
    np.bitwise_and(out, UPPER, out)


def round_bfloat16(array: np.ndarray, *, in_place: bool = False) -> np.ndarray:
    """Float32 values rounded to the nearest bfloat16, ties to even.

    Infinities stay. A NaN stays one if its low 16 bits are zero, as those of arithmetic are; `convert` sees to the others.

    Args:
        array: float32 values, any shape.
        in_place: the array may be overwritten.

    Example:
        >>> float(round_bfloat16(np.float32([1.00390625]))[0])
        1.0
    """
    bits = array.view(np.uint32) if array.flags.c_contiguous else np.ascontiguousarray(array).view(np.uint32)
    out = bits if in_place and bits.base is not None and array.flags.writeable else np.empty_like(bits)
    if bits.size <= BLOCK:
        _round_block(bits, out, np.empty_like(bits))
        return out.view(np.float32)
    flat, target = bits.reshape(-1), out.reshape(-1)

    def work(low: int, high: int) -> None:
        carry = np.empty(min(BLOCK, high - low), np.uint32)
        for start in range(low, high, BLOCK):
            end = min(start + BLOCK, high)
            _round_block(flat[start:end], target[start:end], carry[: end - start])

    in_pieces(work, flat.size, BLOCK, flat.size)
    return out.view(np.float32)


def round_block_float(array: np.ndarray, bits: int) -> np.ndarray:
    """Values of a block float type: 16 neighbours of a row share the exponent of the largest.

    Args:
        array: float32, any shape; blocks run along the last dimension.
        bits: magnitude bits of an element, 7 for bfloat8_b and 3 for bfloat4_b.
    """
    if array.ndim == 0 or array.size == 0:
        return round_block_float(array.reshape(1), bits).reshape(array.shape) if array.size else array
    width = array.shape[-1]
    padded = np.zeros((*array.shape[:-1], -(-width // 16) * 16), np.float32)
    padded[..., :width] = array
    blocks = padded.reshape(*array.shape[:-1], -1, 16)
    raw = blocks.view(np.uint32)
    exponents = ((raw >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int32)
    shared = exponents.max(-1, keepdims=True)
    mantissa = np.where(exponents > 0, (raw & np.uint32(0x7FFFFF)) | np.uint32(0x800000), np.uint32(0)).astype(np.int32)
    mantissa >>= np.minimum(shared - exponents, 31)  # what leaves on the right is lost before the rounding
    kept = mantissa >> (24 - bits)
    low, half = mantissa & ((1 << (24 - bits)) - 1), 1 << (23 - bits)
    kept += (low > half) | ((low == half) & (kept & 1 == 1))
    kept = np.minimum(kept, (1 << bits) - 1)
    value = np.ldexp(kept.astype(np.float64), shared - 127 - (bits - 1))
    value[value < np.finfo(np.float32).tiny] = 0
    value[value > 2.0**128] = np.nan  # the exponent of infinity, and a fraction
    with np.errstate(over="ignore"):
        rounded = np.copysign(value, blocks).astype(np.float32)
    return rounded.reshape(padded.shape)[..., :width] + np.float32(0)


LANES = {DataType.UINT8: 8, DataType.UINT16: 4, DataType.UINT32: 8}  # elements that the host converts at a time


def _integers(array: np.ndarray, dtype: DataType, rows: int | None) -> np.ndarray:
    """Floats as integers: truncated, and what does not fit becomes what the host's instructions make of it.

    Through int32, where everything out of range is the least number; small types saturate, uint32 wraps. The rest of a row-major
    shard that does not fill a vector wraps.
    """
    whole = np.trunc(array)
    fits = np.abs(whole) < 2.0**63
    wide = np.where(fits, whole, 0).astype(np.int64)
    narrow = np.where(fits & (wide >= -(2**31)) & (wide < 2**31), wide, -(2**31))
    target: Any = NUMPY[dtype]
    if dtype not in LANES:
        return narrow.astype(target)
    wrapped = (wide if dtype is DataType.UINT32 else narrow).astype(target)
    if array.dtype == np.float16:
        return wide.astype(target)
    if dtype is DataType.UINT32:
        out = np.where((wide >= 2**31) & (wide < 2**32), wide, narrow).astype(target)
    else:
        out = np.clip(narrow, 0, np.iinfo(target).max).astype(target)
    if rows is not None and array.size:
        shards = math.prod(array.shape[:rows])
        tail = array.size // shards % LANES[dtype]
        if tail:
            out.reshape(shards, -1)[:, -tail:] = wrapped.reshape(shards, -1)[:, -tail:]
    return out


def convert(array: np.ndarray, dtype: DataType, *, owned: bool = False, foreign: bool = True, rows: int | None = None) -> np.ndarray:
    """`array` as values that `dtype` can hold, in the NumPy type that the simulator keeps them in.

    Floats to integers truncate; to block floats round in blocks of 16 along the last dimension.

    Args:
        array: any numeric NumPy array.
        dtype: the element type wanted.
        owned: the array is a temporary that may be overwritten.
        foreign: the values may hold a NaN that no arithmetic of ours made.
        rows: for a row-major tensor, how many leading axes count its shards.
    """
    target = numpy_dtype(dtype)
    if array.dtype != target:
        if array.dtype.kind == "f" and target is not np.float32:
            return _integers(array, dtype, rows)
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

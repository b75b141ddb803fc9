"""Element types: how values are rounded when they are stored, and how many bytes they take.

A simulated tensor keeps bfloat16, bfloat8_b and bfloat4_b values in float32 arrays whose values are
exactly representable in the narrower type, so that NumPy computes on them at full speed. For a big
tensor that comes from the host, such as a weight, only the upper two bytes of each value are kept
in memory. The values become float32 again when the tensor is used.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from ttkit.errors import fail
from ttkit.hardware import chips
from ttkit.sim import blocks
from ttkit.sim.tensor import DataType, Layout, Sizes
from ttkit.sim.tensor.absent import Absent, Lengths, absent

Array = np.ndarray
FLOATS = (DataType.FLOAT32, DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.BFLOAT4_B)
NARROW = FLOATS[1:]
# Each number is the count of an element's magnitude bits, including the leading bit.
BLOCK_FLOATS = {DataType.BFLOAT8_B: 7, DataType.BFLOAT4_B: 3}
NUMPY = {
    DataType[name.upper()]: getattr(np, name) for name in "uint32 int32 uint16 uint8 int8".split()
}


def numpy_dtype(dtype: DataType) -> type:
    """Return the NumPy type that stores values of `dtype`."""
    return NUMPY.get(dtype, np.float32)


ONE = np.uint32(1)
HALF = np.uint32(0x7FFF)
SIXTEEN = np.uint32(16)
UPPER = np.uint32(0xFFFF_0000)


def _round_block(values: Array, out: Array, carry: Array) -> None:
    np.right_shift(values, SIXTEEN, carry)
    np.bitwise_and(carry, ONE, carry)
    np.add(carry, HALF, carry)
    np.add(values, carry, out)
    np.bitwise_and(out, UPPER, out)


def round_bfloat16(array: Array, *, in_place: bool = False) -> Array:
    """Round float32 values to the nearest bfloat16, ties to even.

    Infinities do not change. A NaN stays a NaN if its low 16 bits are zero, which is true of the
    NaNs that arithmetic makes. `convert` handles all other NaNs.

    Args:
        array: float32 values, any shape; a single number gives an array of one element.
        in_place: the array may be overwritten.

    Example:
        >>> float(round_bfloat16(np.float32([1.00390625]))[0])
        1.0
    """
    bits = np.ascontiguousarray(array).view(np.uint32)
    return blocks.by_blocks(_round_block, bits, in_place=in_place).view(np.float32)


def round_block_float(array: Array, bits: int) -> Array:
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
    groups = padded.reshape(*array.shape[:-1], -1, 16)
    exponents = groups.view(np.int32) >> 23 & 0xFF
    shared = exponents.max(-1, keepdims=True)
    # The last of the 24 bits of the largest element has the value `last`. The computation is exact,
    # because it is in float64.
    last = np.ldexp(1.0, shared - 150)
    step = 2.0 ** (24 - bits)
    # Smaller elements lose their bits below `last` before the rounding.
    whole = np.trunc(np.where(exponents, np.abs(groups), 0) / last)
    kept = np.minimum(np.rint(whole / step), 2**bits - 1) * step
    with np.errstate(over="ignore"):
        value = np.where(np.isinf(groups), np.inf, kept * last)
        rounded = np.copysign(value, groups).astype(np.float32)
    return rounded.reshape(padded.shape)[..., :width] + np.float32(0)


def convert(array: Array, dtype: DataType, owned: bool = False) -> Array:
    """Return values that `dtype` can represent, in the NumPy type that stores them.

    When floats become integers, they are truncated and saturated. When they become block floats,
    they are rounded in blocks of 16 along the last dimension.

    Args:
        array: any numeric NumPy array.
        dtype: the element type of the result.
        owned: True if the array is a result of the simulator's arithmetic and may be overwritten.
            Other arrays may have NaNs with bits that arithmetic never makes.
    """
    target, array = numpy_dtype(dtype), widened(array)
    if isinstance(array, Absent):
        return absent(array.shape, target)
    if array.dtype != target:
        if array.dtype.kind == "f" and target is not np.float32:
            limits = np.iinfo(target)
            return np.clip(array.astype(np.float64), limits.min, limits.max).astype(target)
        array = array.astype(target)
    if dtype is DataType.BFLOAT16:
        rounded = round_bfloat16(array, in_place=owned)
        if not owned and array.size and np.isnan(array.min()):
            rounded = np.where(np.isnan(array), np.float32(np.nan), rounded)
        return rounded
    if dtype in BLOCK_FLOATS:
        return round_block_float(array, BLOCK_FLOATS[dtype])
    return array


# ---------------------------------------------------------------- big values at rest
BITS = np.dtype("V2")  # NumPy cannot compute with this type, so no caller can forget `widened`.
NARROW_FROM = 1 << 20  # Arrays with at least this many elements are kept as two bytes an element.


def narrowed(array: Array, dtype: DataType) -> Array:
    """Round values to a narrow type and return their upper two bytes; the lower two are zero.

    Args:
        array: [..., rows, columns], numbers, or bfloat16 values as two bytes each.
        dtype: bfloat16 or a block float.
    """
    bits = np.empty(array.shape, np.uint16)
    step = max(1, blocks.BLOCK // array.shape[-1])

    def part(place: tuple) -> None:
        values = convert(array[place], dtype)
        np.right_shift(values.view(np.uint32), SIXTEEN, out=bits[place], casting="unsafe")

    rows = range(0, array.shape[-2], step)
    places = ((*at, slice(low, low + step)) for at in np.ndindex(array.shape[:-2]) for low in rows)
    blocks.run((functools.partial(part, place) for place in places), uses_blas=False)
    return bits.view(BITS)


def widened(array: Array) -> Array:
    """Return the float32 values of an array that `narrowed` made; return other arrays unchanged.

    Example:
        >>> widened(narrowed(np.float32([[1.00390625, -3]]), DataType.BFLOAT16))
        array([[ 1., -3.]], dtype=float32)
    """
    if array.dtype != BITS:
        return array
    values = array.view(np.uint16).astype(np.uint32)
    values <<= SIXTEEN
    return values.view(np.float32)


# ---------------------------------------------------------------- bytes
_tiles = {name: 1024 * nbytes for name, nbytes in chips.ELEMENT_BYTES.items()} | chips.TILE_BYTES
TILE_BYTES = {DataType[name.upper()]: nbytes for name, nbytes in _tiles.items()}


def bytes_of(padded_shape: Lengths, dtype: DataType) -> int:
    """Return the bytes that a shard of this padded shape takes on its chip.

    Example:
        >>> bytes_of((64, 32), DataType.BFLOAT16), bytes_of((64, 32), DataType.BFLOAT8_B)
        (4096, 2176)
    """
    return math.prod(padded_shape) * TILE_BYTES[dtype] // 1024


class Tile(NamedTuple):
    """The shape of a tile.

    Example:
        >>> Tile((16, 32)).get_tile_size(DataType.BFLOAT16)
        1024
    """

    tile_shape: Lengths
    transpose_tile: bool = False

    def get_tile_size(self, dtype: DataType) -> int:
        """Return the bytes of a tile."""
        return bytes_of(self.tile_shape, dtype)


def element_size(dtype: DataType, /) -> int:
    """Return the bytes of an element; refuse block floats, whose elements share an exponent."""
    if dtype in BLOCK_FLOATS:
        fail(f"element_size({dtype!r})", "datum for bfp4, bfp8 is invalid", "Tile.get_tile_size")
    return TILE_BYTES[dtype] // 1024


def padded(shape: Sizes, layout: Layout) -> Sizes:
    """Return the shape that is stored: in tiles, the last two sizes are multiples of 32.

    It has at least one dimension, and in tiles at least two.

    Example:
        >>> padded((5,), Layout.TILE), padded((3, 40, 40), Layout.TILE)
        ((32, 32), (3, 64, 64))
    """
    if layout is not Layout.TILE:
        return shape or (1,)
    shape = (1,) * (2 - len(shape)) + shape
    return (*shape[:-2], -(-shape[-2] // 32) * 32, -(-shape[-1] // 32) * 32)


@functools.cache
def stored(shape: Sizes, layout: Layout, dtype: DataType) -> tuple[Sizes, int]:
    """Return the stored shape of a shard, and its bytes."""
    whole = padded(shape, layout)
    return whole, bytes_of(whole, dtype)


def plane(padded: Sizes) -> tuple[int, int]:
    """Return (rows, columns) of a stored shape as one matrix: leading dimensions count as rows."""
    return math.prod(padded[:-1]), padded[-1]


def shards_of(padded: Sizes, shard: Lengths) -> tuple[int, int]:
    """Return how many shards cover a stored shape, down and across."""
    height, width = plane(padded)
    return -(-height // shard[0]), -(-width // shard[1])

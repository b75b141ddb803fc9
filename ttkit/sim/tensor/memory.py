"""Accounting of each chip's DRAM: a buffer takes bytes until its tensor ends.

Buffers in L1 are not counted.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ttkit.errors import OutOfMemoryError, fail
from ttkit.hardware import chips
from ttkit.sim.tensor.enums import DataType, Layout
from ttkit.sim.tensor.grid import Grid
from ttkit.sim.tensor.types import integers

MeshDevice = Any  # This class is in `sim.mesh`, which imports this module.
Tensor = Any  # This class is in `sim.tensor`, which imports this module.

BYTES = {DataType[name.upper()]: nbytes for name, nbytes in chips.ELEMENT_BYTES.items()}
TILE_BYTES = {DataType[name.upper()]: nbytes for name, nbytes in chips.TILE_BYTES.items()}
_meshes: weakref.WeakSet[MeshDevice] = weakref.WeakSet()
# This counts the bytes of all buffers as if on one chip: while they fit, no chip is full.
_bound = [0]


def bytes_of(padded_shape: tuple[int, ...], dtype: DataType) -> int:
    """Bytes that a shard of this padded shape takes on its chip.

    Example:
        >>> bytes_of((64, 32), DataType.BFLOAT16), bytes_of((64, 32), DataType.BFLOAT8_B)
        (4096, 2176)
    """
    elements = math.prod(padded_shape)
    if dtype in TILE_BYTES:
        return elements // 1024 * TILE_BYTES[dtype]
    return elements * BYTES[dtype]


class Tile:
    """The shape of a tile.

    Example:
        >>> Tile((16, 32)).get_tile_size(DataType.BFLOAT16)
        1024
    """

    def __init__(self, tile_shape: Sequence[int], transpose_tile: bool = False):
        self.tile_shape = list(integers(tile_shape, "Tile", 0))

    def get_tile_size(self, dtype: DataType) -> int:
        """Bytes of a tile."""
        elements = math.prod(self.tile_shape)
        if dtype in TILE_BYTES:
            return TILE_BYTES[dtype] * elements // 1024
        return bytes_of((elements,), dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tile) and self.tile_shape == other.tile_shape

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Tile with shape: {self.tile_shape}"


def element_size(dtype: DataType, /) -> int:
    """Return the bytes of an element; numbers of a block float share an exponent."""
    if dtype in TILE_BYTES:
        fail(f"element_size({dtype!r})", "datum for bfp4, bfp8 is invalid", "Tile.get_tile_size")
    return bytes_of((1,), dtype)


def padded(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """The shape that is stored: at least one dimension, and in tiles two, rounded up to 32.

    Example:
        >>> padded((5,), Layout.TILE), padded((3, 40, 40), Layout.TILE)
        ((32, 32), (3, 64, 64))
    """
    if layout is not Layout.TILE:
        return shape or (1,)
    if len(shape) >= 2 and not (shape[-1] % 32 or shape[-2] % 32):
        return shape  # Most shapes have whole tiles already.
    shape = (1,) * (2 - len(shape)) + shape
    return (*shape[:-2], -(-shape[-2] // 32) * 32, -(-shape[-1] // 32) * 32)


@functools.lru_cache(maxsize=4096)
def stored(shape: tuple[int, ...], layout: Layout, dtype: DataType) -> tuple[tuple[int, ...], int]:
    """Return the stored shape of a shard, and its bytes."""
    whole = padded(shape, layout)
    return whole, bytes_of(whole, dtype)


def plane(padded: tuple[int, ...]) -> tuple[int, int]:
    """Rows of all leading dimensions, and columns, of a stored shape."""
    return math.prod(padded[:-1]), padded[-1]


def shards_of(padded: tuple[int, ...], shard: Sequence[int]) -> tuple[int, int]:
    """How many shards there are down and across a stored shape."""
    height, width = plane(padded)
    return -(-height // shard[0]), -(-width // shard[1])


def register(mesh: MeshDevice) -> None:
    """Let `mesh` take part in the accounting of the chips that it covers."""
    mesh.used = Counter()
    if mesh.has_values:
        _meshes.add(mesh)


class Allocation:
    """A buffer of `nbytes` on each chip of `grid`; `free`, or the end of its tensor, gives it back.

    Raises:
        OutOfMemoryError: a chip has less than `nbytes` free.
    """

    __slots__ = ("__weakref__", "grid", "nbytes", "used")

    def __init__(self, mesh: MeshDevice, grid: Grid, nbytes: int):
        self.nbytes = 0
        if _bound[0] + nbytes > mesh.dram_bytes:
            _check(mesh, grid, nbytes)
        self.grid, self.nbytes, self.used = grid, nbytes, mesh.used
        _bound[0] += nbytes
        self.used[grid] += nbytes

    def free(self) -> None:
        """Give the bytes back; a second call does nothing."""
        if self.nbytes:
            _bound[0] -= self.nbytes
            self.used[self.grid] -= self.nbytes
            self.nbytes = 0

    __del__ = free


def _check(mesh: MeshDevice, grid: Grid, nbytes: int) -> None:
    in_use, total = bytes_in_use(), mesh.dram_bytes
    for coordinate in grid.coords:
        device = mesh.id_at(coordinate, grid.mesh_shape)
        used, free = in_use[device], total - in_use[device]
        if nbytes > free:
            rule = f"Out of Memory: chip {device} was asked for {nbytes:,} bytes of DRAM; "
            rule += f"{used:,} of {total:,} are in use, {free:,} are free"
            cure = "shard the tensor over more chips, deallocate what is no longer needed, or use"
            cure += " a narrower dtype"
            fail(f"allocate on {mesh!r}", rule, cure, OutOfMemoryError)


def would_fit(like: Tensor, shape: tuple[int, ...], dtype: DataType | None = None) -> None:
    """Raise where a shard of this shape beside `like` would not fit, before it is computed."""
    _, nbytes = stored(shape, like.layout, dtype or like.dtype)
    if _bound[0] + nbytes > like.mesh.dram_bytes:
        _check(like.mesh, like.grid, nbytes)


def bytes_in_use() -> Counter[int]:
    """DRAM bytes in use: {device id: bytes}. A closed mesh uses nothing, as on a card."""
    used: Counter[int] = Counter()
    for mesh in _meshes:
        for grid, nbytes in mesh.used.items() if mesh.is_open else ():
            if nbytes:
                used.update(dict.fromkeys(mesh.ids_over(grid), nbytes))
    return used


def most_in_use(mesh: MeshDevice | None = None) -> int:
    """DRAM bytes in use of the chip that holds most.

    Args:
        mesh: without values, whose tensors lie on all of its chips; all other meshes if not given.
    """
    if mesh is not None:
        return sum(mesh.used.values())
    return max(bytes_in_use().values(), default=0)

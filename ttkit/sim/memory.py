"""Each chip's DRAM and L1: a tensor's buffer takes bytes, and gives them back at its end.

L1 is counted as one core's: ttnn gives a buffer the same addresses on all cores, also on those that
hold no shard of it.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from typing import Any

from ttkit.errors import OutOfMemoryError, fail
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.grid import Grid

MeshDevice = Any  # of sim.mesh, which imports this module
Tensor = Any  # of sim.tensor, likewise

BYTES = {
    DataType.FLOAT32: 4,
    DataType.BFLOAT16: 2,
    DataType.UINT32: 4,
    DataType.INT32: 4,
    DataType.UINT16: 2,
    DataType.UINT8: 1,
    DataType.INT8: 1,
}
# Of a tile: 1024 elements and 64 shared exponents.
TILE_BYTES = {DataType.BFLOAT8_B: 1088, DataType.BFLOAT4_B: 576}
_meshes: weakref.WeakSet[MeshDevice] = weakref.WeakSet()
_bound = [0]  # bytes of all buffers, as if on one chip: while they fit, no chip is full
in_l1 = [0]  # the same of a core's L1


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


def padded(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """The shape that is stored: at least one dimension, and in tiles two, rounded up to 32.

    Example:
        >>> padded((5,), Layout.TILE), padded((3, 40, 40), Layout.TILE)
        ((32, 32), (3, 64, 64))
    """
    if layout is not Layout.TILE:
        return shape or (1,)
    if len(shape) >= 2 and not (shape[-1] % 32 or shape[-2] % 32):
        return shape  # whole tiles, as most are
    shape = (1,) * (2 - len(shape)) + shape
    return (*shape[:-2], -(-shape[-2] // 32) * 32, -(-shape[-1] // 32) * 32)


def register(mesh: MeshDevice) -> None:
    """Let `mesh` take part in the accounting of the chips that it covers."""
    mesh.used, mesh.used_l1 = Counter(), Counter()
    _meshes.add(mesh)


class Allocation:
    """A buffer of `nbytes` on each chip of `grid`; `free`, or the end of its tensor, gives it back.

    Args:
        cores: of a buffer in L1, how many cores hold some of it; `nbytes` is the part of one.

    Raises:
        OutOfMemoryError: a chip has less than `nbytes` free.
    """

    __slots__ = ("__weakref__", "bound", "grid", "nbytes", "used")

    def __init__(self, mesh: MeshDevice, grid: Grid, nbytes: int, cores: int = 0):
        self.nbytes = 0
        self.bound, self.used, total = _bound, mesh.used, mesh.dram_bytes
        if cores:
            self.bound, self.used, total = in_l1, mesh.used_l1, mesh.l1_bytes
        if self.bound[0] + nbytes > total:
            _check(mesh, grid, nbytes, cores)
        self.grid, self.nbytes = grid, nbytes
        self.bound[0] += nbytes
        self.used[grid] += nbytes

    def free(self) -> None:
        """Give the bytes back; a second call does nothing."""
        if self.nbytes:
            self.bound[0] -= self.nbytes
            self.used[self.grid] -= self.nbytes
            self.nbytes = 0

    __del__ = free


def _check(mesh: MeshDevice, grid: Grid, nbytes: int, cores: int = 0) -> None:
    total, counted = (mesh.l1_bytes, "used_l1") if cores else (mesh.dram_bytes, "used")
    in_use = bytes_in_use(counted)
    for coordinate in grid.coords:
        device = mesh.id_at(coordinate, grid.mesh_shape)
        used, free = in_use[device], total - in_use[device]
        if nbytes > free:
            rule = f"Out of Memory: chip {device} was asked for {nbytes:,} bytes of DRAM; "
            rule += f"{used:,} of {total:,} are in use, {free:,} are free"
            cure = "shard the tensor over more chips"
            if cores:
                rule = f"Out of Memory: Not enough space to allocate {nbytes * cores} B L1 buffer"
                rule += f" across {cores} banks, where each bank needs to store {nbytes} B, but"
                rule += f" bank size is {total} B (allocated: {used} B, free: {free} B); a bank is"
                rule += f" the L1 of a core of chip {device}"
                cure = "more cores, DRAM"
            cure += ", deallocate what is no longer needed, or use a narrower dtype"
            fail(f"allocate on {mesh!r}", rule, cure, OutOfMemoryError)


def would_fit(like: Tensor, shape: tuple[int, ...], dtype: DataType | None = None) -> None:
    """Raise where a shard of this shape beside `like` would not fit, before it is computed."""
    nbytes = bytes_of(padded(shape, like.layout), dtype or like.dtype)
    if _bound[0] + nbytes > like.mesh.dram_bytes:
        _check(like.mesh, like.grid, nbytes)


def bytes_in_use(counted: str = "used") -> Counter[int]:
    """DRAM bytes in use: {device id: bytes}. A closed mesh uses nothing, as on a card.

    Args:
        counted: "used_l1" for the bytes of L1 in use on each core.
    """
    used: Counter[int] = Counter()
    for mesh in _meshes:
        for grid, nbytes in getattr(mesh, counted).items():
            if nbytes and mesh.is_open:
                for coordinate in grid.coords:
                    used[mesh.id_at(coordinate, grid.mesh_shape)] += nbytes
    return used

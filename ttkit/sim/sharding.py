"""Where in a chip a tensor's bytes lie: shard specifications and memory configurations.

A tensor on a mesh has a shard on each chip; here, *shard* is what one core (or bank) has of that.
"""

from __future__ import annotations

import copy
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ttkit.errors import fail
from ttkit.sim.cores import CoreGrid, CoreRange, CoreRangeSet
from ttkit.sim.enums import BufferType, DataType, TensorMemoryLayout, _Enum
from ttkit.sim.memory import bytes_of
from ttkit.sim.types import Shape, integers

INTERLEAVED, HEIGHT, WIDTH, BLOCK, ND = TensorMemoryLayout


class ShardOrientation(_Enum):
    """The order in which shards go to cores: row by row, or column by column."""

    ROW_MAJOR = 0
    COL_MAJOR = 1


class ShardDistributionStrategy(_Enum):
    """How shards of any number of dimensions go to cores."""

    ROUND_ROBIN_1D = 0
    GRID_2D = 1
    CONTIGUOUS_1D = 2


class ShardStrategy(enum.Enum):
    """What `create_sharded_memory_config` cuts."""

    HEIGHT = 1
    WIDTH = 2
    BLOCK = 3


ROW_MAJOR, COL_MAJOR = ShardOrientation
ROUND_ROBIN = ShardDistributionStrategy.ROUND_ROBIN_1D


def _check(value: Any, wanted: dict[str, Any]) -> None:
    """Check the classes of attributes."""
    for name, kind in wanted.items():
        if not isinstance(getattr(value, name), kind):
            rule = f"incompatible function arguments: {name}={getattr(value, name)!r}"
            what = type(value).__name__
            fail(what, rule, f"{what}({', '.join(wanted)})", TypeError)


class Tile:
    """The shape of a tile: at most 32 x 32, in faces of at most 16 x 16.

    Example:
        >>> Tile((16, 32)).get_tile_size(DataType.BFLOAT16)
        1024
    """

    def __init__(self, tile_shape: Sequence[int], transpose_tile: bool = False):
        self.tile_shape = list(integers(tile_shape, "Tile", 0))
        self.transpose_of_faces = self.transpose_within_face = transpose_tile
        _check(self, {"transpose_of_faces": bool})
        height, width = self.tile_shape
        if width not in (16, 32) or height not in (1, 2, 4, 8, 16, 32):
            rule = f"Tile size is not valid for our hardware: {height} x {width}"
            fail("Tile", rule, "16 or 32 wide; 1, 2, 4, 8, 16 or 32 high")
        self.face_shape = [min(height, 16), 16]
        self.num_faces = height * width // math.prod(self.face_shape)
        self.partial_face, self.narrow_tile = int(height < 32), int(width < 32)

    def get_tile_size(self, dtype: DataType) -> int:
        """Bytes of a tile; 16 numbers of a block float share an exponent of one byte."""
        elements = math.prod(self.tile_shape)
        if dtype in (DataType.BFLOAT8_B, DataType.BFLOAT4_B):
            numbers = elements if dtype is DataType.BFLOAT8_B else elements // 2
            return numbers + -(-elements // 256) * 16  # exponents are aligned to 16 bytes
        return bytes_of((elements,), dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tile) and self.tile_shape == other.tile_shape

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Tile with shape: {self.tile_shape}"


# ---------------------------------------------------------------- shard specifications
def _text(cores: CoreRangeSet, end: str) -> str:
    """Print ranges of cores as ttnn does, which forgets the last brace in a `ShardSpec`."""
    one = '{{"start":{{"x":{0.x},"y":{0.y}}},"end":{{"x":{1.x},"y":{1.y}}}' + end
    return ", ".join(one.format(r.start, r.end) for r in cores.ranges())


class _Spec:
    grid: CoreRangeSet

    def num_cores(self) -> int:
        """How many cores."""
        return self.grid.num_cores()


@dataclass(repr=False)
class ShardSpec(_Spec):
    """Shards of rows (of all leading dimensions) and columns on cores.

    Example:
        >>> cores = CoreRangeSet([CoreRange((0, 0), (7, 0))])
        >>> ShardSpec(cores, [32, 64], ShardOrientation.ROW_MAJOR).num_cores()
        8
    """

    grid: CoreRangeSet
    shape: list[int]
    orientation: ShardOrientation
    __hash__ = object.__hash__

    def __init__(self, grid: Any, shard_shape: Any, shard_orientation: Any):
        self.grid, self.orientation = grid, shard_orientation
        self.shape = list(integers(shard_shape, "ShardSpec", 0))
        _check(self, {"grid": CoreRangeSet, "shape": list, "orientation": ShardOrientation})
        if len(self.shape) != 2:
            rule = f"incompatible function arguments: shard_shape={self.shape}"
            fail("ShardSpec", rule, "[rows, columns]", TypeError)

    def __repr__(self) -> str:
        end = f"], shape={self.shape}, orientation=ShardOrientation::{self.orientation.name}}}"
        return "ShardSpec{grid=[" + _text(self.grid, "") + end


@dataclass(repr=False)
class NdShardSpec(_Spec):
    """Shards of any number of dimensions on cores.

    Example:
        >>> NdShardSpec([1, 32, 32], CoreRangeSet([CoreRange((0, 0), (3, 3))])).num_cores()
        16
    """

    shard_shape: Any
    grid: CoreRangeSet
    orientation: ShardOrientation = ROW_MAJOR
    shard_distribution_strategy: ShardDistributionStrategy = ROUND_ROBIN
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        self.shard_shape = Shape(tuple(self.shard_shape))
        _check(self, {"shard_shape": Shape, "grid": CoreRangeSet, "orientation": ShardOrientation})
        _check(self, {"shard_distribution_strategy": ShardDistributionStrategy})

    def __repr__(self) -> str:
        text = '{{"shard_shape":{},"grid":[{}],"orientation":"ShardOrientation::{}",'
        text += '"shard_distribution_strategy":"ShardDistributionStrategy::{}"}}'
        values = [list(self.shard_shape), _text(self.grid, "}}"), self.orientation.name]
        return text.format(*values, self.shard_distribution_strategy.name)


# ---------------------------------------------------------------- memory configurations
@dataclass(frozen=True, repr=False, eq=False)
class MemoryConfig:
    """Where a buffer goes: interleaved over all banks of DRAM or L1, or one shard to each core.

    Either `MemoryConfig(memory_layout, buffer_type, shard_spec)`, or
    `MemoryConfig(buffer_type, nd_shard_spec)`.

    Example:
        >>> MemoryConfig().buffer_type, MemoryConfig(TensorMemoryLayout.WIDTH_SHARDED).is_sharded()
        (BufferType.DRAM, True)
    """

    memory_layout: Any = INTERLEAVED
    buffer_type: Any = BufferType.DRAM
    shard_spec: ShardSpec | None = None
    nd_shard_spec: NdShardSpec | None = None

    def __post_init__(self) -> None:
        made = self.__dict__
        if isinstance(self.buffer_type, NdShardSpec):
            made.update(buffer_type=self.memory_layout, nd_shard_spec=self.buffer_type)
        # otherwise a tensor derives its specification of this kind from `shard_spec`
        made["made_nd"] = self.nd_shard_spec is not None
        if self.made_nd:
            made["memory_layout"] = ND
        either = {"shard_spec": ShardSpec | None, "nd_shard_spec": NdShardSpec | None}
        _check(self, {"memory_layout": TensorMemoryLayout, "buffer_type": BufferType} | either)

    made_nd = False

    @property
    def interleaved(self) -> bool:
        """True where pages go round robin over all banks."""
        return self.memory_layout is INTERLEAVED

    def is_sharded(self) -> bool:
        """True where each core has one shard."""
        return not self.interleaved

    def with_nd(self, spec: NdShardSpec) -> MemoryConfig:
        """The same as a tensor keeps it, which derives one kind of specification of the other."""
        new = copy.copy(self)
        new.__dict__["nd_shard_spec"] = spec
        return new

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryConfig) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(repr(self._key()))

    def _key(self) -> tuple[Any, ...]:
        nd = self.nd_shard_spec if self.made_nd else None
        return self.memory_layout, self.buffer_type, self.shard_spec, nd

    def __repr__(self) -> str:
        return (
            f"MemoryConfig(memory_layout=TensorMemoryLayout::{self.memory_layout.name},"
            f"buffer_type=BufferType::{self.buffer_type.name},"
            f"shard_spec={self.shard_spec or 'std::nullopt'},"
            f"nd_shard_spec={self.nd_shard_spec or 'std::nullopt'},"
            f"created_with_nd_shard_spec={int(self.made_nd)},"
            "per_core_allocation=0,range_lockstep_allocation=0)"
        )


DRAM_MEMORY_CONFIG = MemoryConfig()
L1_MEMORY_CONFIG = MemoryConfig(buffer_type=BufferType.L1)
L1_HEIGHT_SHARDED_MEMORY_CONFIG = MemoryConfig(HEIGHT, BufferType.L1)
L1_WIDTH_SHARDED_MEMORY_CONFIG = MemoryConfig(WIDTH, BufferType.L1)
L1_BLOCK_SHARDED_MEMORY_CONFIG = MemoryConfig(BLOCK, BufferType.L1)


def create_sharded_memory_config(
    shape: Any,
    core_grid: Any,
    strategy: ShardStrategy,
    orientation: ShardOrientation | None = None,
    use_height_and_width_as_shard_shape: bool = False,
) -> MemoryConfig:
    """Return a configuration in L1 that cuts a shape evenly over cores.

    Args:
        shape: of the tensor, or of a shard with `use_height_and_width_as_shard_shape`.
        core_grid: a `CoreGrid`; for a shard's shape a `CoreRangeSet`, or two grids of which the
            second is one row below the first, too.

    Raises:
        TTKitError: the shape does not divide.

    Example:
        >>> block, grid = ShardStrategy.BLOCK, CoreGrid(x=4, y=2)
        >>> create_sharded_memory_config((1, 1, 64, 128), grid, block).shard_spec.shape
        [32, 32]
    """
    asked = f"create_sharded_memory_config({shape}, {core_grid}, {strategy})"
    given, way, cores = use_height_and_width_as_shard_shape, orientation or ROW_MAJOR, core_grid
    grids = list(core_grid) if isinstance(core_grid, (tuple, list)) else [core_grid]
    of_grids = all(isinstance(g, CoreGrid) for g in grids)

    def check(right: bool, rule: str) -> None:
        if not right:
            fail(asked, rule, "help(ttnn.create_sharded_memory_config)")

    check(isinstance(shape, (list, tuple, Shape)), "Invalid input shape")
    check(len(grids) < 3, "Invalid core_grid")
    check(of_grids or isinstance(cores, CoreRangeSet), "Invalid core_grid type")
    check(isinstance(strategy, ShardStrategy), "Invalid sharding strategy")
    check(isinstance(way, ShardOrientation), "Invalid shard orientation")
    rule = "height and width must be shard shape with CoreRangeSet"
    check(given or isinstance(core_grid, CoreGrid), rule)
    *batch, height, width = shape
    if of_grids:
        top = grids[0].y
        parts = [CoreRange((0, 0), (grids[0].x - 1, top - 1))]
        cores = CoreRangeSet(parts + [CoreRange((0, top), (g.x - 1, top)) for g in grids[1:]])
    order = slice(None, None, 1 if way is ROW_MAJOR else -1)
    cut = (height, width)[order]
    if not given:
        sizes, x, y = (math.prod(batch) * height, width), core_grid.x, core_grid.y
        even = {"HEIGHT": (x * y, 1), "WIDTH": (1, x * y), "BLOCK": (y, x)[order]}[strategy.name]
        cut, rest = zip(*map(divmod, sizes, even), strict=True)
        check(not any(rest), f"Invalid sharding core_grid: {sizes} does not divide into {even}")
    scheme = TensorMemoryLayout[f"{strategy.name}_SHARDED"]
    return MemoryConfig(scheme, BufferType.L1, ShardSpec(cores, cut, way))

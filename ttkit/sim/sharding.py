"""Where in a chip a tensor's bytes lie: shard specifications and memory configurations.

A tensor on a mesh has a shard on each chip; here, *shard* is what one core (or bank) has of that.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ttkit.errors import fail
from ttkit.sim.arguments import check, taken
from ttkit.sim.cores import CoreGrid, CoreRangeSet, corner
from ttkit.sim.enums import BufferType, DataType, TensorMemoryLayout, _Enum
from ttkit.sim.memory import TILE_BYTES, bytes_of
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


def _check(value: Any) -> None:
    """Check that attributes are of the classes that their annotations name."""
    for name, kind in type(value).__annotations__.items():
        taken(type(value).__name__, name, getattr(value, name), kind)


class Tile:
    """The shape of a tile: at most 32 x 32, in faces of at most 16 x 16.

    Example:
        >>> Tile((16, 32)).get_tile_size(DataType.BFLOAT16)
        1024
    """

    def __init__(self, tile_shape: Sequence[int], transpose_tile: bool = False):
        self.tile_shape = list(integers(tile_shape, "Tile", 0))
        self.transpose_of_faces = self.transpose_within_face = transpose_tile
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
        if dtype in TILE_BYTES:
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
    return ", ".join(
        f'{{"start":{{"x":{a.x},"y":{a.y}}},"end":{{"x":{b.x},"y":{b.y}}}{end}'
        for a, b in cores.core_ranges
    )


class _Spec:
    grid: CoreRangeSet

    def num_cores(self) -> int:
        """How many cores."""
        return self.grid.num_cores()


@dataclass(repr=False)
class ShardSpec(_Spec):
    """Shards of rows (of all leading dimensions) and columns on cores.

    Example:
        >>> from ttkit.sim.cores import CoreRange
        >>> cores = CoreRangeSet([CoreRange((0, 0), (7, 0))])
        >>> ShardSpec(cores, [32, 64], ShardOrientation.ROW_MAJOR).num_cores()
        8
    """

    grid: CoreRangeSet
    shape: list  # type: ignore[type-arg]
    orientation: ShardOrientation

    def __init__(self, grid: Any, shard_shape: Any, shard_orientation: Any):
        self.grid, self.orientation = grid, shard_orientation
        self.shape = list(integers(shard_shape, "ShardSpec", 0))
        _check(self)
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
        >>> from ttkit.sim.cores import CoreRange
        >>> NdShardSpec([1, 32, 32], CoreRangeSet([CoreRange((0, 0), (3, 3))])).num_cores()
        16
    """

    shard_shape: Shape
    grid: CoreRangeSet
    orientation: ShardOrientation = ROW_MAJOR
    shard_distribution_strategy: ShardDistributionStrategy = ROUND_ROBIN

    def __post_init__(self) -> None:
        self.shard_shape = Shape(tuple(self.shard_shape))
        _check(self)

    def __repr__(self) -> str:
        cores, sizes = _text(self.grid, "}"), list(self.shard_shape)
        way, kind = self.orientation.name, self.shard_distribution_strategy.name
        return (
            f'{{"shard_shape":{sizes},"grid":[{cores}],"orientation":"ShardOrientation::{way}",'
            f'"shard_distribution_strategy":"ShardDistributionStrategy::{kind}"}}'
        )


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

    memory_layout: TensorMemoryLayout = INTERLEAVED
    buffer_type: BufferType = BufferType.DRAM
    shard_spec: ShardSpec | None = None
    # where `memory_layout` is another than ND_SHARDED, what a tensor derives from `shard_spec`
    nd_shard_spec: NdShardSpec | None = None

    def __post_init__(self) -> None:
        made = self.__dict__
        if isinstance(self.buffer_type, NdShardSpec):
            buffer, spec = self.memory_layout, self.buffer_type
            made.update(memory_layout=INTERLEAVED, buffer_type=buffer, nd_shard_spec=spec)
        if self.interleaved and self.nd_shard_spec:
            made["memory_layout"] = ND
        _check(self)

    @property
    def interleaved(self) -> bool:
        """True where pages go round robin over all banks."""
        return self.memory_layout is INTERLEAVED

    def is_sharded(self) -> bool:
        """True where each core has one shard."""
        return not self.interleaved

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryConfig) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(repr(self._key()))

    def _key(self) -> tuple[Any, ...]:
        own = self.nd_shard_spec if self.memory_layout is ND else self.shard_spec
        return self.memory_layout, self.buffer_type, own

    def __repr__(self) -> str:
        return (
            f"MemoryConfig(memory_layout=TensorMemoryLayout::{self.memory_layout.name},"
            f"buffer_type=BufferType::{self.buffer_type.name},"
            f"shard_spec={self.shard_spec or 'std::nullopt'},"
            f"nd_shard_spec={self.nd_shard_spec or 'std::nullopt'},"
            f"created_with_nd_shard_spec={int(self.memory_layout is ND)},"
            "per_core_allocation=0,range_lockstep_allocation=0)"
        )


DRAM_MEMORY_CONFIG = MemoryConfig()
L1_MEMORY_CONFIG = MemoryConfig(buffer_type=BufferType.L1)
L1_HEIGHT_SHARDED_MEMORY_CONFIG = MemoryConfig(HEIGHT, BufferType.L1)
L1_WIDTH_SHARDED_MEMORY_CONFIG = MemoryConfig(WIDTH, BufferType.L1)
L1_BLOCK_SHARDED_MEMORY_CONFIG = MemoryConfig(BLOCK, BufferType.L1)


def most_shards(
    scheme: TensorMemoryLayout, cores: CoreRangeSet, way: ShardOrientation
) -> tuple[int, int]:
    """How many shards of a scheme cores take, down and across."""
    if scheme is BLOCK:
        box = cores.bounding_box().grid_size()
        return (box.y, box.x) if way is ROW_MAJOR else (box.x, box.y)
    count = cores.num_cores()
    return (count, 1) if scheme is HEIGHT else (1, count)


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
        core_grid: a `CoreGrid`; for a shard's shape a `CoreRangeSet`, too.

    Raises:
        TTKitError: the shape does not divide.

    Example:
        >>> block, grid = ShardStrategy.BLOCK, CoreGrid(x=4, y=2)
        >>> create_sharded_memory_config((1, 1, 64, 128), grid, block).shard_spec.shape
        [32, 32]
    """
    asked = f"create_sharded_memory_config({shape}, {core_grid}, {strategy})"
    given, way, cores = use_height_and_width_as_shard_shape, orientation or ROW_MAJOR, core_grid
    if isinstance(core_grid, CoreGrid):
        cores = corner(core_grid.x, core_grid.y)
    rule = "height and width must be shard shape with CoreRangeSet"
    check(
        asked,
        (not isinstance(cores, CoreRangeSet), "Invalid core_grid type", "ttnn.CoreGrid(x=8, y=8)"),
        (not isinstance(strategy, ShardStrategy), "Invalid sharding strategy"),
        (cores is core_grid and not given, rule, "ttnn.CoreGrid(x=8, y=8)"),
    )
    scheme = TensorMemoryLayout[f"{strategy.name}_SHARDED"]
    *batch, height, width = shape
    if given:
        cut = (height, width) if way is ROW_MAJOR else (width, height)
    else:
        sizes, even = (math.prod(batch) * height, width), most_shards(scheme, cores, way)
        cut, rest = zip(*map(divmod, sizes, even), strict=True)
        rule = f"Invalid sharding core_grid: {sizes} does not divide into {even}"
        check(asked, (any(rest), rule, "a grid whose sides divide the shape"))
    return MemoryConfig(scheme, BufferType.L1, ShardSpec(cores, cut, way))

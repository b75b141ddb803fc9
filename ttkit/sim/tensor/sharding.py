"""Where in a chip a tensor's bytes lie: cores, shard specifications, memory configurations.

A tensor on a mesh has a shard on each chip. In this module, a *shard* is the part of it that one
core (or bank) holds. A configuration does not change values, and memory in L1 is not counted. Each
configuration is checked against its tensor.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partialmethod
from typing import Any, NamedTuple

from ttkit.errors import fail
from ttkit.sim.tensor import (
    BufferType,
    DataType,
    Layout,
    Shape,
    ShardDistributionStrategy,
    ShardOrientation,
    ShardShapeAlignment,
    ShardStrategy,
    Sizes,
    TensorMemoryLayout,
)
from ttkit.sim.tensor.dtypes import Tile, padded, plane, shards_of


# ---------------------------------------------------------------- cores
class CoreCoord(NamedTuple):
    """A core of a chip, as (column, row); a plain pair of numbers is equal to it.

    Example:
        >>> CoreCoord(3, 1), CoreCoord(3, 1) == (3, 1)
        (3-1, True)
    """

    x: int
    y: int

    def __repr__(self) -> str:
        return f"{self.x}-{self.y}"


@dataclass(kw_only=True)
class CoreGrid:
    """Columns and rows of cores, from the corner 0-0.

    Example:
        >>> CoreGrid(x=8, y=4).num_cores
        32
    """

    x: int
    y: int

    @property
    def num_cores(self) -> int:
        """The number of cores."""
        return self.x * self.y


class CoreRange(NamedTuple):
    """The rectangle of cores from `start` to `end`, which is included.

    Example:
        >>> CoreRange(CoreCoord(0, 0), CoreCoord(3, 1)).grid_size()
        4-2
    """

    start: CoreCoord
    end: CoreCoord

    def __repr__(self) -> str:
        return f"[{self.start} - {self.end}]"

    def grid_size(self) -> CoreCoord:
        """Return the number of columns and of rows."""
        (left, top), (right, bottom) = self
        return CoreCoord(right - left + 1, bottom - top + 1)

    def cores(self, row_wise: bool = True) -> list[CoreCoord]:
        """Return all cores, row by row or column by column."""
        (left, top), (right, bottom) = self
        columns = range(left, right + 1)
        rows = range(top, bottom + 1)
        if row_wise:
            return [CoreCoord(x, y) for y in rows for x in columns]
        return [CoreCoord(x, y) for x in columns for y in rows]


@dataclass(frozen=True, repr=False)
class CoreRangeSet:
    """Rectangles of cores, in the order given.

    Example:
        >>> half = CoreRangeSet([CoreRange((0, 0), (7, 2)), CoreRange((0, 3), (3, 3))])
        >>> half.num_cores(), half.bounding_box()
        (28, [0-0 - 7-3])
    """

    core_ranges: Collection[CoreRange]

    def __post_init__(self) -> None:
        given = self.core_ranges
        # A set has another order in every process, so its ranges are sorted.
        ranges = sorted(given) if isinstance(given, set) else given
        object.__setattr__(self, "core_ranges", tuple(ranges))

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self.core_ranges))}}}"

    def cores(self, row_wise: bool = True) -> list[CoreCoord]:
        """Return the cores of one rectangle after the other, row by row or column by column."""
        return [core for each in self.core_ranges for core in each.cores(row_wise)]

    def ranges(self) -> Collection[CoreRange]:
        """Return the rectangles."""
        return self.core_ranges

    def num_cores(self) -> int:
        """Return the number of cores."""
        return len(self.cores())

    def bounding_box(self) -> CoreRange:
        """Return the smallest rectangle that has all cores."""
        xs, ys = zip(*self.cores())
        return CoreRange(CoreCoord(min(xs), min(ys)), CoreCoord(max(xs), max(ys)))

    def subtract(self, other: "CoreRangeSet") -> "CoreRangeSet":
        """Return the cores that the other set does not have, as rectangles from the first row down.

        Example:
            >>> corner(8, 8).subtract(corner(4, 2))
            {[4-0 - 7-1], [0-2 - 7-7]}
        """
        kept = {*self.cores()} - {*other.cores()}
        return _rectangles(sorted(kept, key=lambda core: core[::-1]), True)


def corner(columns: int, rows: int) -> CoreRangeSet:
    """Return the rectangle of this many columns and rows that starts at the core 0-0."""
    return CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(columns - 1, rows - 1))])


def _rectangles(cores: list[CoreCoord], row_wise: bool) -> CoreRangeSet:
    """Return rectangles: join neighbouring cores into rows (or columns), then equal rows."""
    boxes = [[*core, *core] for core in cores]  # Each box is [x, y, last x, last y].
    for along in (0, 1) if row_wise else (1, 0):
        across, last = slice(1 - along, None, 2), along + 2
        joined: list[list[int]] = []
        for box in boxes:
            before = joined[-1] if joined else None
            if before and before[across] == box[across] and before[last] + 1 == box[along]:
                before[last] = box[last]
            else:
                joined.append(box)
        boxes = joined
    return CoreRangeSet([CoreRange(CoreCoord(*box[:2]), CoreCoord(*box[2:])) for box in boxes])


def num_cores_to_corerangeset(
    target_num_cores: int, grid_size, row_wise: bool = False
) -> CoreRangeSet:
    """Return the first `target_num_cores` cores of a grid, by columns or by rows.

    Example:
        >>> num_cores_to_corerangeset(20, CoreCoord(8, 8), row_wise=True)
        {[0-0 - 7-1], [0-2 - 3-2]}
    """
    cores = corner(*grid_size)
    return num_cores_to_corerangeset_in_subcoregrids((0, 0), target_num_cores, cores, row_wise)


def num_cores_to_corerangeset_in_subcoregrids(
    start_core, target_num_cores: int, sub_core_grids: CoreRangeSet, row_wise: bool = False
) -> CoreRangeSet:
    """Return `target_num_cores` cores of a set of rectangles, from `start_core` on."""
    cores = sub_core_grids.cores(row_wise)
    first = cores.index(start_core)
    return _rectangles(cores[first : first + target_num_cores], row_wise)


INTERLEAVED, HEIGHT, WIDTH, BLOCK, ND = TensorMemoryLayout
ROW_MAJOR, COL_MAJOR = ShardOrientation


# ---------------------------------------------------------------- shard specifications
@dataclass(repr=False)
class ShardSpec:
    """Shards with two dimensions on cores: rows (leading dimensions count as rows) and columns.

    Example:
        >>> cores = CoreRangeSet([CoreRange((0, 0), (7, 0))])
        >>> ShardSpec(cores, [32, 64], ShardOrientation.ROW_MAJOR).num_cores()
        8
    """

    grid: CoreRangeSet
    shape: list[int]
    orientation: ShardOrientation

    def __init__(self, grid, shard_shape, shard_orientation):
        self.grid = grid
        self.shape = list(shard_shape)
        self.orientation = shard_orientation

    def num_cores(self) -> int:
        """Return the number of cores."""
        return self.grid.num_cores()

    def __repr__(self) -> str:
        grid = ", ".join(  # As in ttnn, the last brace of each range is missing.
            f'{{"start":{{"x":{left},"y":{top}}},"end":{{"x":{right},"y":{bottom}}}'
            for (left, top), (right, bottom) in self.grid.core_ranges
        )
        way = f"ShardOrientation::{self.orientation.name}"
        return f"ShardSpec{{grid=[{grid}], shape={self.shape}, orientation={way}}}"


@dataclass
class NdShardSpec:
    """Shards of any number of dimensions on cores."""

    shard_shape: Sequence[int]
    grid: CoreRangeSet
    orientation: ShardOrientation = ROW_MAJOR
    shard_distribution_strategy: ShardDistributionStrategy = (
        ShardDistributionStrategy.ROUND_ROBIN_1D
    )


# ---------------------------------------------------------------- memory configurations
@dataclass(frozen=True, repr=False)
class MemoryConfig:
    """Where a buffer is stored: interleaved over all banks of DRAM or L1, or in shards on cores.

    Make one with `MemoryConfig(memory_layout, buffer_type, shard_spec)` or with
    `MemoryConfig(buffer_type, nd_shard_spec)`.

    Example:
        >>> MemoryConfig().buffer_type, MemoryConfig(TensorMemoryLayout.WIDTH_SHARDED).is_sharded()
        (BufferType.DRAM, True)
    """

    memory_layout: TensorMemoryLayout = INTERLEAVED
    buffer_type: BufferType = BufferType.DRAM
    shard_spec: ShardSpec | None = None
    nd_shard_spec: NdShardSpec | None = None

    def __post_init__(self) -> None:
        made = self.__dict__
        if isinstance(self.buffer_type, NdShardSpec):
            made.update(buffer_type=self.memory_layout, nd_shard_spec=self.buffer_type)
        if self.nd_shard_spec:
            made["memory_layout"] = ND

    @property
    def interleaved(self) -> bool:
        """Whether the pages go round robin over all banks."""
        return self.memory_layout is INTERLEAVED

    def is_sharded(self) -> bool:
        """Return whether the buffer is stored in shards."""
        return not self.interleaved

    def __hash__(self) -> int:
        return hash(repr(self))

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


def _most_shards(
    scheme: TensorMemoryLayout, cores: CoreRangeSet, way: ShardOrientation
) -> tuple[int, int]:
    """Return the most shards that these cores can take, down and across."""
    if scheme is BLOCK:
        box = cores.bounding_box().grid_size()
        return (box.y, box.x) if way is ROW_MAJOR else (box.x, box.y)
    count = cores.num_cores()
    return (count, 1) if scheme is HEIGHT else (1, count)


def create_sharded_memory_config(
    shape,
    core_grid,
    strategy: ShardStrategy,
    orientation: ShardOrientation | None = None,
    use_height_and_width_as_shard_shape: bool = False,
) -> MemoryConfig:
    """Return a configuration in L1 that cuts a shape evenly over cores.

    Args:
        shape: the tensor's shape, or a shard's with `use_height_and_width_as_shard_shape`.
        core_grid: a `CoreGrid` or a `CoreRangeSet`.

    Raises:
        TTKitError: the cores do not divide the shape evenly.

    Example:
        >>> block, grid = ShardStrategy.BLOCK, CoreGrid(x=4, y=2)
        >>> create_sharded_memory_config((1, 1, 64, 128), grid, block).shard_spec.shape
        [32, 32]
    """
    way = orientation or ROW_MAJOR
    cores = corner(core_grid.x, core_grid.y) if isinstance(core_grid, CoreGrid) else core_grid
    scheme = TensorMemoryLayout[f"{strategy.name}_SHARDED"]
    *batch, height, width = shape
    if use_height_and_width_as_shard_shape:
        cut = (height, width) if way is ROW_MAJOR else (width, height)
    else:
        sizes = (math.prod(batch) * height, width)
        even = _most_shards(scheme, cores, way)
        cut, rest = zip(*map(divmod, sizes, even))
        if any(rest):
            rule = f"Invalid sharding core_grid: {sizes} does not divide into {even}"
            asked = f"create_sharded_memory_config({shape}, {core_grid}, {strategy})"
            fail(asked, rule, "a grid whose sides divide the shape")
    return MemoryConfig(scheme, BufferType.L1, ShardSpec(cores, cut, way))


# ---------------------------------------------------------------- a tensor without values
class _Fields(NamedTuple):
    shape: Shape
    dtype: DataType
    layout: Layout
    memory_config: MemoryConfig


class TensorSpec(_Fields):
    """Shape, type, layout and place of a tensor, without values.

    The fourth argument is a memory layout (with a shard specification after it), a buffer type, or
    an `NdShardSpec`.

    Example:
        >>> spec = TensorSpec((2, 3, 40, 50), DataType.FLOAT32, Layout.TILE, BufferType.L1)
        >>> spec.height_sharded(corner(8, 8)).memory_config.shard_spec.shape
        [32, 64]
        >>> spec.sharded_across_dims([-1], corner(8, 8)).memory_config.nd_shard_spec.shard_shape
        (2, 3, 64, 32)
    """

    tile = Tile((32, 32))

    def __new__(
        cls,
        shape,
        dtype,
        layout,
        memory_layout=INTERLEAVED,
        shard_spec=None,
        buffer_type=BufferType.DRAM,
        tile=None,
    ):
        """Make a specification; `tile` is a hint, which is ignored."""
        place: Any = memory_layout, buffer_type, shard_spec
        if isinstance(memory_layout, BufferType):
            place = INTERLEAVED, memory_layout
        elif isinstance(memory_layout, NdShardSpec):
            place = buffer_type, memory_layout
        return cls._make((Shape(shape), dtype, layout, MemoryConfig(*place)))

    def sharded(
        self, shard_shape, grid, shard_alignment=ShardShapeAlignment.REQUIRED, orientation=ROW_MAJOR
    ):
        """Return the specification with shards of any number of dimensions.

        In tile layout the shards grow to whole tiles unless `shard_alignment` is NONE.
        """
        layout = self.layout if shard_alignment.value else Layout.ROW_MAJOR
        spec = NdShardSpec(padded(tuple(shard_shape), layout), grid, orientation)
        return TensorSpec(*self[:3], spec, buffer_type=self.memory_config.buffer_type)

    def _across(self, cut: bool, dims, grid, orientation=ROW_MAJOR):
        """Return the specification with shards of size 1 along `dims` and of full size elsewhere.

        If `cut` is False, it is the other way round. In tile layout the sizes grow to whole tiles.
        """
        named = {dim % len(self.shape) for dim in dims}
        shape = [1 if (i in named) is cut else n for i, n in enumerate(self.shape)]
        return self.sharded(shape, grid, orientation=orientation)

    def _even(self, scheme, grid, orientation=ROW_MAJOR):
        """Return the specification with its rows, columns or both divided over all cores."""
        sizes = plane(padded(tuple(self.shape), self.layout))
        cut = (-(-n // most) for n, most in zip(sizes, _most_shards(scheme, grid, orientation)))
        spec = ShardSpec(grid, padded(tuple(cut), self.layout), orientation)
        return TensorSpec(*self[:3], scheme, spec, self.memory_config.buffer_type)

    sharded_across_dims = partialmethod(_across, True)
    sharded_across_dims_except = partialmethod(_across, False)
    height_sharded = partialmethod(_even, HEIGHT)
    width_sharded = partialmethod(_even, WIDTH)
    block_sharded = partialmethod(_even, BLOCK)


def check_fits(config: MemoryConfig, padded: Sizes, layout: Layout) -> None:
    """Check that a configuration fits a tensor of this stored shape.

    Raises:
        TTKitError: there is no shard specification, the shards do not cover the tensor, or there
            are more shards than cores.
    """
    scheme, spec = config.memory_layout, config.shard_spec
    if config.interleaved or config.nd_shard_spec:
        return
    asked = f"place {list(padded)} {layout.name} as {scheme.name}"
    cure = "ttnn.create_sharded_memory_config(...), or other cores"
    if spec is None:
        fail(asked, "Shard spec must not be None for sharded tensors (bad optional access)", cure)
    counts = shards_of(padded, spec.shape)
    most = _most_shards(scheme, spec.grid, spec.orientation)
    for i, side in enumerate(("height", "width")):
        rule = f"Number of shards along {side} {counts[i]} must not exceed number of cores"
        rule += f" {most[i]}"
        if scheme is (WIDTH, HEIGHT)[i]:
            rule = f"Shard {side} {spec.shape[i]} must match physical {side} {plane(padded)[i]} for"
            rule += f" {scheme.name.lower().replace('_', ' ')}"
        if counts[i] > most[i]:
            fail(asked, rule, cure)

"""Where in a chip a tensor's bytes lie: cores, shard specifications, memory configurations.

A tensor on a mesh has a shard on each chip; here, *shard* is what one core (or bank) has of that.
Values do not depend on it, and L1 is not counted; a configuration is checked against its tensor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ttkit.errors import fail
from ttkit.sim.tensor import (
    BufferType,
    Layout,
    Shape,
    ShardDistributionStrategy,
    ShardOrientation,
    ShardStrategy,
    TensorMemoryLayout,
    integer,
    integers,
)
from ttkit.sim.tensor.dtypes import plane, shards_of


# ---------------------------------------------------------------- cores
class CoreCoord(NamedTuple("CoreCoord", [("x", int), ("y", int)])):
    """A core of a chip: column and row; a pair may stand for it.

    Example:
        >>> CoreCoord(3, 1), CoreCoord((3, 1)) == CoreCoord(3, 1)
        (3-1, True)
    """

    __slots__ = ()
    __iter__: Any = None  # As in ttnn, a `CoreCoord` does not unpack.

    def __new__(cls, *xy) -> CoreCoord:
        pair = xy[0] if len(xy) == 1 else xy
        if isinstance(pair, CoreCoord):
            return pair
        pair = integers(pair, "CoreCoord", 0)
        if len(pair) != 2:
            rule = f"incompatible function arguments: {len(pair)} numbers"
            fail("CoreCoord", rule, "CoreCoord(x, y)", TypeError)
        return tuple.__new__(cls, pair)

    def __repr__(self) -> str:
        return f"{self.x}-{self.y}"


class CoreGrid:
    """So many columns and rows of cores, from the corner 0-0; equal to itself alone, as in ttnn.

    Example:
        >>> CoreGrid(x=8, y=4).num_cores
        32
    """

    def __init__(self, *, x: int, y: int):
        self.x, self.y = integer(x, "CoreGrid", 0), integer(y, "CoreGrid", 0)
        self.num_cores = self.x * self.y

    def __repr__(self) -> str:
        return f"ttnn.CoreGrid(x={self.x}, y={self.y})"


class CoreRange(NamedTuple("CoreRange", [("start", CoreCoord), ("end", CoreCoord)])):
    """The rectangle of cores from `start` to `end`, which is included.

    Example:
        >>> CoreRange(CoreCoord(0, 0), CoreCoord(3, 1)).grid_size()
        4-2
    """

    __slots__ = ()

    def __new__(cls, start, end) -> CoreRange:
        start, end = CoreCoord(start), CoreCoord(end)
        if start.x > end.x or start.y > end.y:
            rule = f"Invalid core range for start_coord: {start}, end_coord: {end}"
            fail("CoreRange", rule, "the corner with the smaller x and y first")
        return tuple.__new__(cls, (start, end))

    def __repr__(self) -> str:
        return f"[{self.start} - {self.end}]"

    def grid_size(self) -> CoreCoord:
        """How many columns and rows."""
        return CoreCoord(self.end.x - self.start.x + 1, self.end.y - self.start.y + 1)

    def contains(self, core) -> bool:
        """True where it has the core, or all cores of a range or of a set."""
        return set(cores_of(core)) <= set(cores_of(self))


@dataclass(frozen=True, repr=False)
class CoreRangeSet:
    """Rectangles of cores, in the order given, of which no two overlap.

    Example:
        >>> half = CoreRangeSet([CoreRange((0, 0), (7, 3))])
        >>> half.num_cores(), half.merge(CoreRangeSet([CoreRange((0, 4), (7, 4))]))
        (32, {[0-0 - 7-4]})
    """

    core_ranges: Collection[CoreRange]

    def __post_init__(self) -> None:
        given = self.core_ranges
        if not all(isinstance(each, CoreRange) for each in given):
            rule = f"incompatible function arguments: {given!r}"
            fail("CoreRangeSet", rule, "[CoreRange(...), ...]", TypeError)
        # A set has another order in every process, so its ranges are sorted.
        ranges = sorted(given) if isinstance(given, set) else given
        object.__setattr__(self, "core_ranges", tuple(ranges))
        for a, b in itertools.combinations(ranges, 2):
            if not set(cores_of(a)).isdisjoint(cores_of(b)):
                rule = "Cannot create CoreRangeSet with specified core ranges because core ranges"
                fail("CoreRangeSet", f"{rule} {a} and {b} overlap!", "merge() of two sets")

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self.core_ranges))}}}"

    def ranges(self) -> list[CoreRange]:
        """The rectangles."""
        return list(self.core_ranges)

    def size(self) -> int:
        """How many rectangles."""
        return len(self.core_ranges)

    def empty(self) -> bool:
        """True without any core."""
        return not self.core_ranges

    def num_cores(self) -> int:
        """How many cores."""
        return len(cores_of(self))

    def bounding_box(self) -> CoreRange:
        """The smallest rectangle that has all cores."""
        xs, ys = zip(*cores_of(self), strict=True)
        return CoreRange((min(xs), min(ys)), (max(xs), max(ys)))

    contains = CoreRange.contains

    def merge(self, other: CoreRangeSet) -> CoreRangeSet:
        """The cores of both, in few rectangles."""
        return _rectangles(sorted({*cores_of(self), *cores_of(other)}))

    def subtract(self, other: CoreRangeSet) -> CoreRangeSet:
        """The cores that `other` does not have, in few rectangles."""
        return _rectangles(sorted({*cores_of(self)} - {*cores_of(other)}))


def cores_of(value, row_wise: bool = True) -> list[tuple[int, int]]:
    """The cores (x, y) of a set, a range or a coordinate, by rows or by columns of each range."""
    if isinstance(value, CoreRangeSet):
        return [core for r in value.core_ranges for core in cores_of(r, row_wise)]
    if not isinstance(value, CoreRange):
        value = CoreRange(value, value)
    xs, ys = range(value.start.x, value.end.x + 1), range(value.start.y, value.end.y + 1)
    return [(x, y) for y in ys for x in xs] if row_wise else list(itertools.product(xs, ys))


def corner(columns: int, rows: int) -> CoreRangeSet:
    """So many columns and rows from the core 0-0."""
    return CoreRangeSet([CoreRange((0, 0), (columns - 1, rows - 1))])


def _rectangles(cores: Iterable[tuple[int, int]], row_wise: bool = True) -> CoreRangeSet:
    """Join cores that follow each other in rows (or columns), and then rows of equal length."""
    boxes = [[*core, *core] for core in cores]  # Each box is [x, y, last x, last y].
    for along in (0, 1) if row_wise else (1, 0):
        across, last = slice(1 - along, None, 2), along + 2
        joined: list[list[int]] = []
        for box in boxes:
            for old in joined:
                if old[across] == box[across] and old[last] + 1 == box[along]:
                    old[last] = box[last]
                    break
            else:
                joined.append(box)
        boxes = joined
    return CoreRangeSet([CoreRange(box[:2], box[2:]) for box in boxes])


def num_cores_to_corerangeset(
    target_num_cores: int, grid_size, row_wise: bool = False
) -> CoreRangeSet:
    """Return the first so many cores of a grid, by columns or by rows.

    Example:
        >>> num_cores_to_corerangeset(20, CoreCoord(8, 8), row_wise=True)
        {[0-0 - 7-1], [0-2 - 3-2]}
    """
    grid = CoreCoord(grid_size)
    cores = corner(grid.x, grid.y)
    return num_cores_to_corerangeset_in_subcoregrids((0, 0), target_num_cores, cores, row_wise)


def num_cores_to_corerangeset_in_subcoregrids(
    start_core, target_num_cores: int, sub_core_grids: CoreRangeSet, row_wise: bool = False
) -> CoreRangeSet:
    """Return so many cores of a set of rectangles, from `start_core` on."""
    asked, cores = "num_cores_to_corerangeset", cores_of(sub_core_grids, row_wise)
    count, total = integer(target_num_cores, asked, 0), len(cores)
    first = cores.index(CoreCoord(start_core))
    if first + count > total:
        rule = f"Target number of cores {count} is greater than total number of available cores"
        fail(asked, f"{rule} {total} from {CoreCoord(start_core)} on", "a larger grid")
    return _rectangles(cores[first : first + count], row_wise)


INTERLEAVED, HEIGHT, WIDTH, BLOCK, ND = TensorMemoryLayout
ROW_MAJOR, COL_MAJOR = ShardOrientation


# ---------------------------------------------------------------- shard specifications
def _text(cores: CoreRangeSet, end: str) -> str:
    """Print ranges of cores as ttnn does, which forgets the last brace in a `ShardSpec`."""
    return ", ".join(
        f'{{"start":{{"x":{a.x},"y":{a.y}}},"end":{{"x":{b.x},"y":{b.y}}}{end}'
        for a, b in cores.core_ranges
    )


@dataclass(repr=False)
class ShardSpec:
    """Shards of rows (of all leading dimensions) and columns on cores.

    Example:
        >>> cores = CoreRangeSet([CoreRange((0, 0), (7, 0))])
        >>> ShardSpec(cores, [32, 64], ShardOrientation.ROW_MAJOR).num_cores()
        8
    """

    grid: CoreRangeSet
    shape: list[int]
    orientation: ShardOrientation

    def __init__(self, grid, shard_shape, shard_orientation):
        self.grid, self.orientation = grid, shard_orientation
        self.shape = list(integers(shard_shape, "ShardSpec", 0))
        if len(self.shape) != 2 or not isinstance(grid, CoreRangeSet):
            rule = f"incompatible function arguments: shard_shape={self.shape}, grid={grid}"
            fail("ShardSpec", rule, "[rows, columns] on a CoreRangeSet", TypeError)

    def num_cores(self) -> int:
        """How many cores."""
        return self.grid.num_cores()

    def __repr__(self) -> str:
        end = f"], shape={self.shape}, orientation=ShardOrientation::{self.orientation.name}}}"
        return "ShardSpec{grid=[" + _text(self.grid, "") + end


@dataclass(repr=False)
class NdShardSpec:
    """Shards of any number of dimensions on cores.

    Example:
        >>> NdShardSpec([1, 32, 32], CoreRangeSet([CoreRange((0, 0), (3, 3))])).num_cores()
        16
    """

    shard_shape: Shape
    grid: CoreRangeSet
    orientation: ShardOrientation = ROW_MAJOR
    shard_distribution_strategy: ShardDistributionStrategy = (
        ShardDistributionStrategy.ROUND_ROBIN_1D
    )

    def __post_init__(self) -> None:
        self.shard_shape = Shape(tuple(self.shard_shape))

    def num_cores(self) -> int:
        """How many cores."""
        return self.grid.num_cores()

    def __repr__(self) -> str:
        cores, sizes = _text(self.grid, "}"), list(self.shard_shape)
        way, kind = self.orientation.name, self.shard_distribution_strategy.name
        return (
            f'{{"shard_shape":{sizes},"grid":[{cores}],"orientation":"ShardOrientation::{way}",'
            f'"shard_distribution_strategy":"ShardDistributionStrategy::{kind}"}}'
        )


# ---------------------------------------------------------------- memory configurations
@dataclass(frozen=True, repr=False)
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
    nd_shard_spec: NdShardSpec | None = None

    def __post_init__(self) -> None:
        made = self.__dict__
        if isinstance(self.buffer_type, NdShardSpec):
            buffer, spec = self.memory_layout, self.buffer_type
            made.update(memory_layout=ND, buffer_type=buffer, nd_shard_spec=spec)
        if self.nd_shard_spec:
            made["memory_layout"] = ND

    @property
    def interleaved(self) -> bool:
        """True where pages go round robin over all banks."""
        return self.memory_layout is INTERLEAVED

    def is_sharded(self) -> bool:
        """True where each core has one shard."""
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
    """How many shards of a scheme cores take, down and across."""
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
        shape: of the tensor, or of a shard with `use_height_and_width_as_shard_shape`.
        core_grid: a `CoreGrid`; for a shard's shape a `CoreRangeSet`, too.

    Raises:
        TTKitError: the shape does not divide.

    Example:
        >>> block, grid = ShardStrategy.BLOCK, CoreGrid(x=4, y=2)
        >>> create_sharded_memory_config((1, 1, 64, 128), grid, block).shard_spec.shape
        [32, 32]
    """
    given, way, cores = use_height_and_width_as_shard_shape, orientation or ROW_MAJOR, core_grid
    if isinstance(core_grid, CoreGrid):
        cores = corner(core_grid.x, core_grid.y)
    asked = f"create_sharded_memory_config({shape}, {core_grid}, {strategy})"
    if not isinstance(cores, CoreRangeSet):
        fail(asked, "Invalid core_grid type", "ttnn.CoreGrid(x=8, y=8)")
    scheme = TensorMemoryLayout[f"{strategy.name}_SHARDED"]
    *batch, height, width = shape
    if given:
        cut = (height, width) if way is ROW_MAJOR else (width, height)
    else:
        sizes, even = (math.prod(batch) * height, width), _most_shards(scheme, cores, way)
        cut, rest = zip(*map(divmod, sizes, even), strict=True)
        if any(rest):
            rule = f"Invalid sharding core_grid: {sizes} does not divide into {even}"
            fail(asked, rule, "a grid whose sides divide the shape")
    return MemoryConfig(scheme, BufferType.L1, ShardSpec(cores, cut, way))


# ---------------------------------------------------------------- beside its tensor
def check_fits(config: MemoryConfig, padded: tuple[int, ...], layout: Layout, mesh) -> None:
    """Check that a configuration is one for a tensor of this stored shape.

    Raises:
        TTKitError: the shards do not cover the tensor, are not whole tiles, are more than the
            cores, or lie on cores that the chip does not have.
    """
    if config.interleaved:
        return
    scheme, spec = config.memory_layout, config.shard_spec
    asked = f"place {list(padded)} {layout.name} as {scheme.name}"

    def check(right: object, rule: str) -> None:
        if not right:
            fail(asked, rule, "ttnn.create_sharded_memory_config(...), or other cores")

    on: Any = config.nd_shard_spec or spec
    check(on, "Shard spec must not be None for sharded tensors (bad optional access)")
    sizes = tuple(on.shard_shape if config.nd_shard_spec else on.shape)
    whole = len(sizes) > 1 and all(n and n % 32 == 0 for n in sizes[-2:])
    rule = f"Physical shard shape {sizes} must be tile {{32, 32}} sized!"
    check(whole or layout is not Layout.TILE, rule)
    if spec:
        need, count = list(plane(padded)), shards_of(padded, spec.shape)
        if layout is not Layout.TILE:
            need[1] = count[1] * sizes[1]  # Stored rows are as wide as whole shards.
        most = _most_shards(scheme, spec.grid, spec.orientation)
        lines, way = ("row", "column"), spec.orientation.value
        for i, side in enumerate(("height", "width")):
            if scheme is (WIDTH, HEIGHT)[i]:
                rule = f"Shard {side} {sizes[i]} must match physical {side} {need[i]} for"
                name = scheme.name.lower().replace("_", " ")
                check(sizes[i] == need[i], f"{rule} {name}")
            limit = f"cores {most[i]}"
            if scheme is BLOCK:
                limit = f"{lines[i ^ way]}s {most[i]} for {lines[way]} major orientation!"
            rule = f"Number of shards along {side} {count[i]} must not exceed number of {limit}"
            check(count[i] <= most[i], rule)
    if mesh is not None:
        dram = config.buffer_type is BufferType.DRAM
        size = mesh.dram_grid_size() if dram else mesh.compute_with_storage_grid_size()
        for x, y in cores_of(on.grid):
            rule = (
                f"Invalid shard grid: shard core ({x}, {y}) has no {config.buffer_type.name} bank"
            )
            rule += f" on this device, which has {size.x * size.y} of them, {size.x} x {size.y}"
            check(x < size.x and y < size.y, rule)

"""Cores of a chip: one core, a rectangle of cores, a set of rectangles."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ttkit.errors import fail
from ttkit.sim.tensor.types import integer, integers


class CoreCoord(NamedTuple("CoreCoord", [("x", int), ("y", int)])):
    """A core of a chip: column and row; a pair may stand for it.

    Example:
        >>> CoreCoord(3, 1), CoreCoord((3, 1)) == CoreCoord(3, 1)
        (3-1, True)
    """

    __slots__ = ()
    __iter__: Any = None  # As in ttnn, a `CoreCoord` does not unpack.

    def __new__(cls, *xy: Any) -> CoreCoord:
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

    def __new__(cls, start: Any, end: Any) -> CoreRange:
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

    def contains(self, core: Any) -> bool:
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


def cores_of(value: Any, row_wise: bool = True) -> list[tuple[int, int]]:
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
    target_num_cores: int, grid_size: Any, row_wise: bool = False
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
    start_core: Any, target_num_cores: int, sub_core_grids: CoreRangeSet, row_wise: bool = False
) -> CoreRangeSet:
    """Return so many cores of a set of rectangles, from `start_core` on."""
    asked, cores = "num_cores_to_corerangeset", cores_of(sub_core_grids, row_wise)
    count, total = integer(target_num_cores, asked, 0), len(cores)
    first = cores.index(CoreCoord(start_core))
    if first + count > total:
        rule = f"Target number of cores {count} is greater than total number of available cores"
        fail(asked, f"{rule} {total} from {CoreCoord(start_core)} on", "a larger grid")
    return _rectangles(cores[first : first + count], row_wise)

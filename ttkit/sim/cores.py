"""Cores of a chip: one core, a rectangle of cores, a set of rectangles."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ttkit.errors import fail
from ttkit.sim.types import integer, integers


class CoreCoord(NamedTuple("CoreCoord", [("x", int), ("y", int)])):
    """A core of a chip: column and row; a pair may stand for it.

    Example:
        >>> CoreCoord(3, 1), CoreCoord((3, 1)) == CoreCoord(3, 1)
        (3-1, True)
    """

    __slots__ = ()
    __iter__: Any = None  # as in ttnn, it does not unpack

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
        if not all(isinstance(r, CoreRange) for r in given):
            rule = f"incompatible function arguments: {given!r}"
            fail("CoreRangeSet", rule, "CoreRangeSet([CoreRange(start, end)])", TypeError)
        if isinstance(given, set):
            given = sorted(given)  # an order that is always the same
        object.__setattr__(self, "core_ranges", tuple(given))
        for a, b in itertools.combinations(self.core_ranges, 2):
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
        if self.empty():
            fail("bounding_box", "Cannot get bounding_box of an empty CoreRangeSet!")
        xs, ys = zip(*cores_of(self), strict=True)
        return CoreRange((min(xs), min(ys)), (max(xs), max(ys)))

    contains = CoreRange.contains

    def merge(self, other: CoreRangeSet) -> CoreRangeSet:
        """The cores of both, in few rectangles."""
        return _joined({*cores_of(self), *cores_of(other)})

    def subtract(self, other: CoreRangeSet) -> CoreRangeSet:
        """The cores that `other` has not, in few rectangles."""
        return _joined({*cores_of(self)} - {*cores_of(other)})


def cores_of(value: Any, row_wise: bool = True) -> list[tuple[int, int]]:
    """The cores (x, y) of a set, a range or a coordinate, by rows or by columns of each range."""
    if isinstance(value, CoreRangeSet):
        return [core for r in value.core_ranges for core in cores_of(r, row_wise)]
    if not isinstance(value, CoreRange):
        value = CoreRange(value, value)
    xs, ys = range(value.start.x, value.end.x + 1), range(value.start.y, value.end.y + 1)
    return [(x, y) for y in ys for x in xs] if row_wise else list(itertools.product(xs, ys))


def _joined(cores: Iterable[Any], row_wise: bool = True) -> CoreRangeSet:
    """Join cores that follow each other in rows (or columns), and then rows of equal length.

    A set of cores is sorted by rows first.
    """
    boxes: list[list[int]] = []  # first and last along the run, first and last run
    turn = slice(None, None, 1 if row_wise else -1)
    for core in sorted(cores, key=lambda c: c[::-1]) if isinstance(cores, set) else cores:
        along, across = core[turn]
        if boxes and boxes[-1][1:] == [along - 1, across, across]:
            boxes[-1][1] = along
        else:
            boxes.append([along, along, across, across])
    for run in list(boxes):
        above = next((b for b in boxes if b[:2] == run[:2] and b[3] + 1 == run[2]), None)
        if above:
            above[3] = run[3]
            boxes.remove(run)
    ranges = [CoreRange((a, c)[turn], (b, d)[turn]) for a, b, c, d in boxes]
    return CoreRangeSet(set(ranges) if isinstance(cores, set) else ranges)


def num_cores_to_corerangeset(
    target_num_cores: int, grid_size: Any, row_wise: bool = False
) -> CoreRangeSet:
    """Return the first so many cores of a grid, by columns or by rows.

    Example:
        >>> num_cores_to_corerangeset(20, CoreCoord(8, 8), row_wise=True)
        {[0-0 - 7-1], [0-2 - 3-2]}
    """
    asked, grid = "num_cores_to_corerangeset", CoreCoord(grid_size)
    count = integer(target_num_cores, asked, 0)
    if count > grid.x * grid.y:
        rule = f"Target number of cores {count} is greater than total number of available cores"
        fail(asked, f"{rule} {grid.x * grid.y}", "fewer cores, or a larger grid")
    cores = cores_of(CoreRange((0, 0), (grid.x - 1, grid.y - 1)), row_wise) if count else []
    return _joined(cores[:count], row_wise)


def num_cores_to_corerangeset_in_subcoregrids(
    start_core: Any, target_num_cores: int, sub_core_grids: CoreRangeSet, row_wise: bool = False
) -> CoreRangeSet:
    """Return so many cores of a set of rectangles, from `start_core` on."""
    asked, start = "num_cores_to_corerangeset_in_subcoregrids", CoreCoord(start_core)
    count, cores = integer(target_num_cores, asked, 0), cores_of(sub_core_grids, row_wise)
    place = cores.index(start) if start in cores else 0
    for wrong, rule in (
        (not count, "Target number of cores must be greater than 0"),
        (count > len(cores), "Target number of cores {} is greater than total available cores {}"),
        (start not in cores, "Start core must be inside sub_core_grids"),
        (place + count > len(cores), "Failed to assign all {} requested cores, of {} in all"),
    ):
        if wrong:
            fail(f"{asked}({start}, ...)", rule.format(count, len(cores)), "fewer cores, or others")
    return _joined(cores[place : place + count], row_wise)

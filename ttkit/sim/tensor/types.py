"""The small values of ttnn: shapes, coordinates, placements, configurations."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ttkit.errors import fail, older_form


# ---------------------------------------------------------------- shapes and coordinates
def integer(value: Any, what: object = None, least: int = -(2**63)) -> int:
    """Return `value` as an int; a TypeError for anything else, as in ttnn's bindings."""
    return integers([value], what, least)[0]


def integers(values: Any, what: object = None, least: int = -(2**63)) -> tuple[int, ...]:
    """Return a sequence of integers as a tuple; a TypeError for anything else."""
    try:
        numbers = tuple(map(operator.index, values))
        right = all(least <= number < 2**63 for number in numbers)
    except TypeError:
        right = False
    if not right:
        rule = f"incompatible function arguments: each of {values!r} must be an integer"
        rule += f" of at least {least}" if least > -(2**63) else ""
        fail(what, rule, kind=TypeError)
    return numbers


class _Integers:
    """A few integers that compare, hash and print."""

    __slots__ = ("_values",)
    _out_of_range = "index out of range"

    def __init__(self, *values: Any):
        name = type(self).__name__
        if not 1 <= len(values) <= 3:
            rule = f"incompatible function arguments: {len(values)} numbers"
            fail(name, rule, f"{name}(a, b), {name}(a, b, c) or {name}([...])", TypeError)
        self._values = integers(values[0] if len(values) == 1 else values, name, 0)

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __getitem__(self, index: int) -> int:
        index = integer(index, f"{self!r}[index]")
        if not -len(self._values) <= index < len(self._values):
            rule = f"{self._out_of_range}: there are {len(self._values)} dimensions"
            fail(f"{self!r}[{index}]", rule)
        return self._values[index]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            rule = f"incompatible function arguments: compare with a {type(self).__name__}"
            fail(f"{self!r} == {other!r}", rule, "tuple(...) of it", TypeError)
        return self._values == other._values  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._values)})"

    def dims(self) -> int:
        """The number of dimensions."""
        return len(self._values)


class MeshShape(_Integers):
    """The shape of a mesh of devices.

    Example:
        >>> MeshShape(2, 4).mesh_size(), MeshShape([2, 4]) == MeshShape(2, 4)
        (8, True)
    """

    __slots__ = ()

    def __init__(self, *values: Any, **older: Any):
        if older:
            known = set(older) == {"y", "x"} and not values
            if not (known and older_form("MeshShape(y=, x=)", "MeshShape(rows, columns)")):
                rule = f"incompatible function arguments: {', '.join(older)}"
                fail("MeshShape", rule, "MeshShape(rows, columns)", TypeError)
            values = (older["y"], older["x"])
        super().__init__(*values)
        if not self._values:
            fail("MeshShape([])", "MeshShape cannot have 0 dimensions", "MeshShape(rows, columns)")

    def mesh_size(self) -> int:
        """The number of devices."""
        return math.prod(self._values)


class MeshCoordinate(_Integers):
    """The place of one device in a mesh.

    Example:
        >>> row, column = MeshCoordinate(1, 3); row, column
        (1, 3)
    """

    __slots__ = ()
    _out_of_range = "Index out of bounds"


class MeshCoordinateRange:
    """All coordinates from `start` to `end` (included), row-major; or all of a `MeshShape`.

    Example:
        >>> [tuple(c) for c in MeshCoordinateRange(MeshShape(1, 2))]
        [(0, 0), (0, 1)]
    """

    __slots__ = ("end", "start")

    def __init__(self, start: MeshShape | MeshCoordinate, end: MeshCoordinate | None = None):
        what = "MeshCoordinateRange"
        if end is None:
            end = MeshCoordinate([max(n - 1, 0) for n in start])
            start = MeshCoordinate([0] * start.dims())
        if start.dims() != end.dims():
            rule = "Start and end dimensions of a coordinate range do not match:"
            rule += f" {start.dims()} and {end.dims()}"
            fail(what, rule)
        if any(a > b for a, b in zip(start, end, strict=True)):
            rule = f"Start coordinate is greater than end coordinate: {start!r} and {end!r}"
            fail(what, rule, "swap them")
        self.start, self.end = start, end

    def __iter__(self) -> Iterator[MeshCoordinate]:
        ranges = (range(a, b + 1) for a, b in zip(self.start, self.end, strict=True))
        return (MeshCoordinate(c) for c in itertools.product(*ranges))

    def __repr__(self) -> str:
        return f"MeshCoordinateRange(start={self.start!r}, end={self.end!r})"


class Shape(_Integers):
    """The shape of a tensor; compares with lists and tuples.

    Example:
        >>> Shape([1, 2, 3]), Shape([2, 3]).to_rank(4), Shape([1, 2]) == [1, 2]
        (Shape([1, 2, 3]), Shape([1, 1, 2, 3]), True)
    """

    __slots__ = ()

    def __init__(self, shape: Sequence[int]):
        self._values = integers(shape, "Shape", 0)

    @classmethod
    def _of(cls, values: tuple[int, ...]) -> Shape:
        new = object.__new__(cls)
        new._values = values
        return new

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> int:
        rank = len(self._values)
        index = integer(index, "Shape[index]")
        least = -max(rank, 4)  # A shape in ttnn keeps at least four numbers, with ones in front.
        if not least <= index < rank:
            rule = f"ShapeBase[] index out of range. {index} not in [{least}, {rank})"
            fail(f"{self!r}[{index}]", rule)
        return self._values[index] if index >= -rank else 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Shape, list, tuple)) and self._values == tuple(other)

    __hash__ = _Integers.__hash__

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self._values)

    def to_rank(self, rank: int) -> Shape:
        """The same shape with `rank` dimensions: ones are added, or taken away, in front."""
        extra = integer(rank, "Shape.to_rank") - len(self._values)
        if extra < 0 and any(n != 1 for n in self._values[:-extra]):
            rule = "Can't convert shape to a smaller rank: a dimension to drop is not 1"
            fail(f"{self!r}.to_rank({rank})", rule)
        return Shape._of((1,) * extra + self._values[max(-extra, 0) :])


@dataclass(frozen=True)
class PlacementReplicate:
    """Every device along this mesh axis has the same data."""


@dataclass(frozen=True)
class PlacementShard:
    """The devices along this mesh axis have consecutive shards along tensor dimension `dim`."""

    dim: int

    def __post_init__(self) -> None:
        integer(self.dim, "PlacementShard")

    def __repr__(self) -> str:
        return f"PlacementShard({self.dim})"


Placement = PlacementReplicate | PlacementShard


class _Config:
    """A list of entries, or one each for rows and columns; and overrides of shape and corner."""

    _list = ""

    def __init__(self, *args: Any, **given: Any):
        what, names = type(self).__name__, ["mesh_shape_override", "mesh_offset_override"]
        listed = self._list in given or (args and isinstance(args[0], (list, tuple)))
        names = [self._list, *names] if listed else ["row_dim", "col_dim", *names]
        given |= dict(zip(names, args, strict=False))
        if len(args) > len(names) or set(given) - set(names):
            form = f"{what}({self._list}, mesh_shape_override, mesh_offset_override)"
            fail(what, "incompatible function arguments", form, TypeError)
        *entries, self._shape, self._offset = map(given.get, names)
        for value, kind in ((self._shape, MeshShape), (self._offset, MeshCoordinate)):
            if value is not None and not isinstance(value, kind):
                rule = f"incompatible function arguments: {value!r} is not a {kind.__name__}"
                fail(what, rule, f"{kind.__name__}(...)", TypeError)
        self._entries: list[Any] = self._checked(entries[0] if listed else tuple(entries))

    def _checked(self, entries: Any) -> list[Any]:
        return list(integers(entries, type(self).__name__))

    def __repr__(self) -> str:
        override = f", mesh_shape_override={self._shape!r}" if self._shape is not None else ""
        if self._offset is not None and any(self._offset):
            override += f", mesh_offset_override={self._offset!r}"
        return f"{type(self).__name__}({self._list}: {self._entries}{override})"


class MeshMapperConfig(_Config):
    """How a mapper places a tensor: one placement for each axis of the mesh, or of an override.

    Example:
        >>> MeshMapperConfig([PlacementReplicate(), PlacementShard(1)])
        MeshMapperConfig(placements: [PlacementReplicate(), PlacementShard(1)])
    """

    _list = "placements"

    def _checked(self, entries: Any) -> list[Any]:
        if isinstance(entries, tuple) and not any(isinstance(e, Placement) for e in entries):
            entries = [PlacementReplicate() if d is None else PlacementShard(d) for d in entries]
        if not all(isinstance(p, Placement) for p in entries):
            rule = "incompatible function arguments: entries must be PlacementReplicate or"
            fail("MeshMapperConfig", f"{rule} PlacementShard", "[PlacementShard(0)]", TypeError)
        return list(entries)

    @property
    def placements(self) -> list[Placement]:
        """The placements."""
        return self._entries


class MeshComposerConfig(_Config):
    """How a composer joins shards: the tensor dimension along which each axis is concatenated.

    Example:
        >>> MeshComposerConfig(0, 1)
        MeshComposerConfig(dims: [0, 1])
    """

    _list = "dims"


# ---------------------------------------------------------------- numbers
class Number(int):
    """A number of something, which `repr` names."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    __str__ = int.__repr__


class Rank(Number):
    """The number of a rank.

    Example:
        >>> Rank(1), int(Rank(1)), f"rank {Rank(1)}"
        (Rank(1), 1, 'rank 1')
    """


class Size(Number):
    """A number of ranks."""

"""Small types of ttnn: shapes, coordinates, placements, and enumerations with ttnn's numbers."""

from __future__ import annotations

import enum
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

from ttkit.errors import fail, older_form

# ---------------------------------------------------------------- shapes and coordinates
Sizes = tuple[int, ...]  # These are the lengths of dimensions or of mesh axes.


def integers(values, what: object = None, least: int = -(2**63)) -> tuple[int, ...]:
    """Return a sequence of integers as a tuple; raise a TypeError for anything else."""
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
    """A sequence of integers that can be compared, hashed and printed."""

    _out_of_range = "index out of range"

    def __init__(self, *values):
        name = type(self).__name__
        if not 1 <= len(values) <= 3:
            rule = f"incompatible function arguments: {len(values)} numbers"
            fail(name, rule, f"{name}(a, b), {name}(a, b, c) or {name}([...])", TypeError)
        self._values = integers(values[0] if len(values) == 1 else values, name, 0)

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __getitem__(self, index: int) -> int:
        (index,) = integers([index], f"{self!r}[index]")
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
        """Return the number of dimensions."""
        return len(self._values)


class MeshShape(_Integers):
    """The shape of a mesh of devices.

    Example:
        >>> MeshShape(2, 4).mesh_size(), MeshShape([2, 4]) == MeshShape(2, 4)
        (8, True)
    """

    def __init__(self, *values, **older):
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
        """Return the number of devices."""
        return math.prod(self._values)


class MeshCoordinate(_Integers):
    """The place of one device in a mesh.

    Example:
        >>> row, column = MeshCoordinate(1, 3); row, column
        (1, 3)
    """

    _out_of_range = "Index out of bounds"


class MeshCoordinateRange:
    """The coordinates from `start` to `end` (included) or of a `MeshShape`, in row-major order.

    Example:
        >>> [tuple(c) for c in MeshCoordinateRange(MeshShape(1, 2))]
        [(0, 0), (0, 1)]
    """

    def __init__(self, start: MeshShape | MeshCoordinate, end: MeshCoordinate | None = None):
        if end is None:
            end = MeshCoordinate([max(n - 1, 0) for n in start])
            start = MeshCoordinate([0] * start.dims())
        if start.dims() != end.dims():
            fail(
                "MeshCoordinateRange",
                "Start and end dimensions of a coordinate range do not match: "
                f"{start.dims()} and {end.dims()}",
            )
        if any(a > b for a, b in zip(start, end)):
            rule = f"Start coordinate is greater than end coordinate: {start!r} and {end!r}"
            fail("MeshCoordinateRange", rule, "swap them")
        self.start, self.end = start, end

    def __iter__(self) -> Iterator[MeshCoordinate]:
        ranges = (range(a, b + 1) for a, b in zip(self.start, self.end))
        return map(MeshCoordinate, itertools.product(*ranges))

    def __repr__(self) -> str:
        return f"MeshCoordinateRange(start={self.start!r}, end={self.end!r})"


class Shape(_Integers):
    """The shape of a tensor; it can be compared with lists and tuples.

    Example:
        >>> Shape([1, 2, 3]), Shape([2, 3]).to_rank(4), Shape([1, 2]) == [1, 2]
        (Shape([1, 2, 3]), Shape([1, 1, 2, 3]), True)
    """

    def __init__(self, shape: Sequence[int]):
        self._values = integers(shape, "Shape", 0)

    @classmethod
    def _of(cls, values: Sizes) -> Shape:
        new = object.__new__(cls)
        new._values = values
        return new

    __len__ = _Integers.dims

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Shape, list, tuple)) and self._values == tuple(other)

    __hash__ = _Integers.__hash__

    rank = property(_Integers.dims)

    def to_rank(self, rank: int) -> Shape:
        """Return the shape with `rank` dimensions: add ones in front, or drop the first ones."""
        extra = rank - len(self._values)
        return Shape._of((1,) * extra + self._values[max(-extra, 0) :])


@dataclass(frozen=True)
class PlacementReplicate:
    """Every device along this mesh axis has the same data."""


@dataclass(frozen=True)
class PlacementShard:
    """The devices along this mesh axis have consecutive shards along tensor dimension `dim`."""

    dim: int

    def __repr__(self) -> str:
        return f"PlacementShard({self.dim})"


Placement = PlacementReplicate | PlacementShard


class TensorTopology:
    """The label of a tensor's shards: placements, distribution shape, coordinates."""

    _shape: Sizes
    _placements: tuple[Placement, ...]
    _coords: tuple[tuple[int, ...], ...]

    def __new__(
        cls,
        distribution_shape: Iterable[int],
        placements: Sequence[Placement],
        mesh_coords: Sequence[Iterable[int]],
    ) -> TensorTopology:
        """Return the one topology with these arguments: equal topologies are the same object."""
        shape = tuple(distribution_shape)
        coords = tuple(map(tuple, mesh_coords))
        key = shape, tuple(placements), coords
        found = _topologies.get(key)
        if found is None:
            found = _topologies[key] = object.__new__(cls)
            found._shape, found._placements, found._coords = key
        return found

    def distribution_shape(self) -> MeshShape:
        """Return the shape over which the placements run.

        It is the mesh's shape or the one that overrides it, or [n] for a distribution over n chips.
        """
        return MeshShape(self._shape)

    def placements(self) -> list[Placement]:
        """Return one placement for each axis of the distribution shape."""
        return list(self._placements)

    def mesh_coords(self) -> list[MeshCoordinate]:
        """Return the devices that have a shard, in the order of the distribution."""
        return list(map(MeshCoordinate, self._coords))

    def __repr__(self) -> str:
        return (
            f"TensorTopology(distribution_shape={self.distribution_shape()!r}, "
            f"placements=SmallVector([{', '.join(map(repr, self._placements))}]), "
            f"mesh_coords={', '.join(map(repr, self.mesh_coords()))})"
        )


_topologies: WeakValueDictionary[Any, TensorTopology] = WeakValueDictionary()


# ---------------------------------------------------------------- enumerations
class _Enum(enum.Enum):
    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __str__ = __repr__
    __hash__ = object.__hash__


class DataType(_Enum):
    """The element types; the numbers are those of ttnn."""

    BFLOAT16 = 0
    FLOAT32 = 1
    UINT32 = 2
    BFLOAT8_B = 3
    BFLOAT4_B = 4
    UINT8 = 5
    UINT16 = 6
    INT32 = 7
    INT8 = 9
    INVALID = 10


class Layout(_Enum):
    """How elements are stored: row by row, or in 32 x 32 tiles."""

    ROW_MAJOR = 0
    TILE = 1


class StorageType(_Enum):
    """Where a tensor is stored."""

    HOST = 0
    DEVICE = 1


class BufferType(_Enum):
    """The memory of a chip that holds a buffer."""

    DRAM = 0
    L1 = 1
    L1_SMALL = 3
    TRACE = 4


class TensorMemoryLayout(_Enum):
    """How a buffer is spread over a chip's banks or cores."""

    INTERLEAVED = 0
    HEIGHT_SHARDED = 2
    WIDTH_SHARDED = 3
    BLOCK_SHARDED = 4
    ND_SHARDED = 5


class ShardOrientation(_Enum):
    """The order in which shards go to cores: row by row, or column by column."""

    ROW_MAJOR, COL_MAJOR = range(2)


class ShardDistributionStrategy(_Enum):
    """How shards of any number of dimensions go to cores."""

    ROUND_ROBIN_1D, GRID_2D, CONTIGUOUS_1D = range(3)


class ShardStrategy(enum.Enum):
    """The dimensions that `create_sharded_memory_config` cuts: rows, columns or both."""

    HEIGHT = 1
    WIDTH = 2
    BLOCK = 3


class Topology(_Enum):
    """The shape of a collective's path."""

    Linear = 1
    Ring = 2
    Mesh = 3
    Torus = 4


class Arch(_Enum):
    """Chip generations."""

    WORMHOLE_B0 = 2
    BLACKHOLE = 3


class FabricConfig(_Enum):
    """How ethernet links forward data; for collectives, choose a fabric before opening a mesh."""

    DISABLED = 0
    FABRIC_1D_NEIGHBOR_EXCHANGE = 1
    FABRIC_1D = 2
    FABRIC_1D_RING = 3
    FABRIC_2D = 4
    FABRIC_2D_TORUS_X = 5
    FABRIC_2D_TORUS_Y = 6
    FABRIC_2D_TORUS_XY = 7
    CUSTOM = 8


class MathFidelity(_Enum):
    """The number of passes of the matrix engine; more passes use more mantissa bits."""

    LoFi = 0
    HiFi2 = 2
    HiFi3 = 3
    HiFi4 = 4
    Invalid = 255


class GeluVariant(_Enum):
    """How GELU is computed."""

    Accurate = 0
    FastLut = 1
    Tanh = 2


class BcastOpMath(_Enum):
    """The arithmetic operation of `bcast`."""

    ADD = 0
    SUB = 1
    MUL = 2


class BcastOpDim(_Enum):
    """The dimensions along which `bcast` repeats its second tensor: rows, columns or both."""

    H = 0
    W = 1
    HW = 2


class UnaryOpType(_Enum):
    """Activations that other operations can apply."""

    EXP = 0
    GELU = 2
    RELU = 4
    SQRT = 5
    SIGMOID = 6
    LOG = 7
    TANH = 9
    SQUARE = 18
    RELU6 = 40
    SILU = 58
    NEG = 61


class UnaryWithParam(SimpleNamespace):
    """An activation with its parameters.

    Example:
        >>> UnaryWithParam((UnaryOpType.GELU, True))
        UnaryWithParam(op_type=UnaryOpType.GELU, params=[1.0])
    """

    def __init__(self, op_type, *params: float):
        if isinstance(op_type, (tuple, list)):
            op_type, params = op_type[0], op_type[1:]
        super().__init__(op_type=op_type, params=list(map(float, params)))


def enumeration(name: str, members: str):
    """Return an enumeration whose members, separated by spaces, count from 0."""
    return _Enum(name, members, start=0, module=__name__)  # type: ignore[call-arg]


# These configure links, the cores that start kernels, and throttling. They change no value here.
FabricReliabilityMode = enumeration(
    "FabricReliabilityMode", "STRICT_INIT RELAXED_INIT DYNAMIC_RECONFIG"
)
FabricTensixConfig = enumeration("FabricTensixConfig", "DISABLED MUX")
FabricUDMMode = enumeration("FabricUDMMode", "DISABLED ENABLED")
FabricManagerMode = enumeration("FabricManagerMode", "ENABLED INIT_FABRIC TERMINATE_FABRIC DEFAULT")
DispatchCoreAxis = enumeration("DispatchCoreAxis", "ROW COL")
DispatchCoreType = enumeration("DispatchCoreType", "WORKER ETH")
ThrottleLevel = enumeration("ThrottleLevel", "NO_THROTTLE LEVEL_1 LEVEL_2 LEVEL_3 LEVEL_4 LEVEL_5")
# Whether the shape of a shard grows to whole tiles.
ShardShapeAlignment = enumeration("ShardShapeAlignment", "NONE REQUIRED RECOMMENDED")
# This is the `math_op` of `all_reduce_async`, which here takes only Sum.
ReduceType = enumeration("ReduceType", "Sum Mean Max Min Std Var Prod")

TILE_SIZE = 32
ROW_MAJOR_LAYOUT, TILE_LAYOUT = Layout
bfloat16, float32, uint32, bfloat8_b, bfloat4_b, uint8, uint16, int32, int8, _ = DataType

"""The enumerations of ttnn, with its names and numbers."""

from __future__ import annotations

import enum
from typing import Any

from ttkit.errors import fail


class _Enum(enum.Enum):
    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __str__ = __repr__
    __hash__ = object.__hash__


class DataType(_Enum):
    """The element types; numbers are ttnn's."""

    BFLOAT16 = 0
    FLOAT32 = 1
    UINT32 = 2
    BFLOAT8_B = 3
    BFLOAT4_B = 4
    UINT8 = 5
    UINT16 = 6
    INT32 = 7
    FP8_E4M3 = 8
    INT8 = 9
    INVALID = 10


class Layout(_Enum):
    """Row by row, or in 32 x 32 tiles."""

    ROW_MAJOR = 0
    TILE = 1


class StorageType(_Enum):
    """Where a tensor lives."""

    HOST = 0
    DEVICE = 1


class BufferType(_Enum):
    """Which memory of a chip."""

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
    """How ethernet links forward data; collectives need one, chosen before a mesh is opened."""

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
    """Passes of the matrix engine: more passes, more mantissa bits."""

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
    """What `bcast` does."""

    ADD = 0
    SUB = 1
    MUL = 2


class BcastOpDim(_Enum):
    """Along which of the last two dimensions `bcast` repeats its second tensor."""

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


class UnaryWithParam:
    """An activation with its parameters.

    Example:
        >>> UnaryWithParam((UnaryOpType.GELU, True))
        UnaryWithParam(op_type=UnaryOpType::GELU, params=[1])
    """

    def __init__(self, op_type: Any, *params: float):
        if isinstance(op_type, (tuple, list)):
            op_type, params = op_type[0], op_type[1:]
        if not isinstance(op_type, UnaryOpType):
            rule = f"incompatible function arguments: {op_type!r} is not a UnaryOpType"
            fail("UnaryWithParam", rule, "UnaryWithParam(ttnn.UnaryOpType.GELU)", TypeError)
        self.op_type, self.params = op_type, [float(p) for p in params]

    def __repr__(self) -> str:
        params = f", params=[{', '.join(f'{p:g}' for p in self.params)}]" if self.params else ""
        return f"UnaryWithParam(op_type=UnaryOpType::{self.op_type.name}{params})"


def enumeration(name: str, *members: str, start: int = 0) -> Any:
    """Return an enumeration whose members count from `start`."""
    return _Enum(name, members, start=start, module=__name__)  # type: ignore[call-arg]


# These say how the links between chips work, and how chips start kernels; they change nothing here.
FabricReliabilityMode = enumeration(
    "FabricReliabilityMode", "STRICT_INIT", "RELAXED_INIT", "DYNAMIC_RECONFIG"
)
FabricTensixConfig = enumeration("FabricTensixConfig", "DISABLED", "MUX")
FabricUDMMode = enumeration("FabricUDMMode", "DISABLED", "ENABLED")
FabricManagerMode = enumeration(
    "FabricManagerMode", "ENABLED", "INIT_FABRIC", "TERMINATE_FABRIC", "DEFAULT"
)
DispatchCoreAxis = enumeration("DispatchCoreAxis", "ROW", "COL")
DispatchCoreType = enumeration("DispatchCoreType", "WORKER", "ETH")
ReduceType = enumeration("ReduceType", "Sum", "Mean", "Max", "Min", "Std", "Var", "Prod")
ThrottleLevel = enumeration("ThrottleLevel", "NO_THROTTLE", *(f"LEVEL_{i}" for i in range(1, 6)))

TILE_SIZE = 32
ROW_MAJOR_LAYOUT, TILE_LAYOUT = Layout
bfloat16, float32, uint32, bfloat8_b, bfloat4_b, uint8, uint16, int32, *_rest = DataType
fp8_e4m3, int8, _ = _rest

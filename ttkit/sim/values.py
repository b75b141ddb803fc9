"""Values that programs hand to operations as hints: classes and enumerations from two tables.

Fields are given by keyword, checked by class, read back and written; no two values are equal, as in
ttnn. What a program configuration must fulfil stands in `sim/hints.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ttkit.errors import fail
from ttkit.sim.arguments import by_word, taken
from ttkit.sim.cores import CoreCoord, CoreRangeSet
from ttkit.sim.enums import MathFidelity, UnaryOpType, UnaryWithParam, _Enum
from ttkit.sim.ranks import visible

# name: members, which count from 0
ENUMERATIONS = {
    "DispatchCoreAxis": "ROW COL",
    "DispatchCoreType": "WORKER ETH",
    "ReduceType": "Sum Mean Max Min Std Var Prod",
    "ThrottleLevel": "NO_THROTTLE LEVEL_1 LEVEL_2 LEVEL_3 LEVEL_4 LEVEL_5",
}
# name: fields, with their defaults
ROWS = {
    "WormholeComputeKernelConfig": """math_fidelity=Invalid math_approx_mode=True
        fp32_dest_acc_en=False packer_l1_acc=False dst_full_sync_en=False
        throttle_level=NO_THROTTLE""",
    "MatmulMultiCoreReuseProgramConfig": """compute_with_storage_grid_size in0_block_w
        out_subblock_h out_subblock_w per_core_M per_core_N allowed_worker_cores=None""",
    "MatmulMultiCoreReuseMultiCastProgramConfig": """compute_with_storage_grid_size in0_block_w
        out_subblock_h out_subblock_w out_block_h=None out_block_w=None per_core_M per_core_N
        transpose_mcast fused_activation=None fuse_batch=True allowed_worker_cores=None""",
    "MatmulMultiCoreReuseMultiCast1DProgramConfig": """compute_with_storage_grid_size in0_block_w
        out_subblock_h out_subblock_w out_block_h=None out_block_w=None per_core_M per_core_N
        fuse_batch fused_activation=None mcast_in0 gather_in0=False hop_cores={}
        num_global_cb_receivers=1 untilize_out=False allowed_worker_cores=None
        stream_in1=False""",
    "MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig": """in0_block_w per_core_M per_core_N
        fused_activation=None num_workers_per_dram_bank=1""",
    "LayerNormDefaultProgramConfig": """legacy_reduction=False legacy_rsqrt=False
        use_welford=False""",
    "LayerNormShardedMultiCoreProgramConfig": """compute_with_storage_grid_size subblock_w block_h
        block_w inplace legacy_reduction=False legacy_rsqrt=False use_welford=False""",
    "SoftmaxDefaultProgramConfig": "",
    "SoftmaxShardedMultiCoreProgramConfig": """compute_with_storage_grid_size subblock_w block_h
        block_w""",
    "SDPAProgramConfig": """compute_with_storage_grid_size sub_core_grids=None q_chunk_size
        k_chunk_size exp_approx_mode=None max_cores_per_head_batch=16 max_k_splits=1
        matmul_math_fidelity=None segmented_accumulation=False""",
    "MinimalMatmulConfig": """M_block_size=1 K_block_size=1 N_block_size=1 subblock_h=1
        subblock_w=1 compute_with_storage_grid_size=(1,1)""",
}
# Classes of fields; those with a default of True or False are bool, all others int.
FIELDS = """
CoreCoord: compute_with_storage_grid_size
MathFidelity: math_fidelity
MathFidelity | None: matmul_math_fidelity
ThrottleLevel: throttle_level
CoreRangeSet: hop_cores
CoreRangeSet | None: allowed_worker_cores sub_core_grids
UnaryWithParam | None: fused_activation
int | None: out_block_h out_block_w
bool | None: exp_approx_mode
bool: transpose_mcast fuse_batch mcast_in0 inplace
"""
WANTED = by_word(FIELDS)
SPACED = ("SoftmaxShardedMultiCoreProgramConfig", "SDPAProgramConfig")
CLASSES: dict[str, Any] = {
    name: _Enum(name, members.split(), start=0, module=__name__)  # type: ignore[call-arg]
    for name, members in ENUMERATIONS.items()
}
# Defaults that are no numbers; ... where there is none.
NAMED = {
    "": ...,
    "None": None,
    "True": True,
    "False": False,
    "(1,1)": (1, 1),
    "{}": CoreRangeSet([]),
    "Invalid": MathFidelity.Invalid,
    "NO_THROTTLE": CLASSES["ThrottleLevel"].NO_THROTTLE,
}


class Value:
    """Fields of a row of `ROWS`, which are checked when they are set."""

    __slots__ = ()
    fields: ClassVar[dict[str, Any]] = {}  # their defaults; ... where there is none

    def __init__(self, *args: Any, **given: Any):
        name, fields = type(self).__name__, self.fields
        if name == "MinimalMatmulConfig" and not given:  # as in ttnn
            given = dict.fromkeys(fields, 0) | {"compute_with_storage_grid_size": (0, 0)}
        values = fields | given
        if args or len(values) > len(fields) or any(v is ... for v in values.values()):
            rule = f"incompatible function arguments: {', '.join(given)}, {len(args)} by place"
            fail(name, rule, f"by name: {', '.join(fields)}", TypeError)
        for field, value in values.items():
            setattr(self, field, value)
        for block, whole in (("out_block_h", "per_core_M"), ("out_block_w", "per_core_N")):
            if values.get(block, 0) is None:
                setattr(self, block, values[whole])

    def __setattr__(self, field: str, value: Any) -> None:
        is_bool = isinstance(self.fields.get(field), bool)
        wanted = WANTED.get(field, "bool" if is_bool else "int")
        if wanted == "CoreCoord" and type(value) in (tuple, list) and len(value) == 2:
            value = CoreCoord(*value)
        if "Unary" in wanted and isinstance(value, (tuple, UnaryOpType)):
            value = UnaryWithParam(value)
        taken(type(self).__name__, field, value, wanted)
        object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        name = type(self).__name__
        shown = [f"{f}={self._shown(f)}" for f in self.fields if f != "legacy_rsqrt"]
        return f"{name}({(', ' if name in SPACED else ',').join(shown)})"

    def _shown(self, field: str) -> str:
        """A field as C++ prints it."""
        value = getattr(self, field)
        if isinstance(value, bool):
            return str(value).lower() if type(self).__name__ in SPACED else str(int(value))
        if isinstance(value, CoreCoord):
            return f"{value.x}-{value.y}"
        return "std::nullopt" if value is None else str(value).replace(".", "::")


def _row(name: str, text: str) -> Any:
    """A class with these fields."""
    words = (word.partition("=") for word in text.split())
    fields = {field: NAMED[d] if d in NAMED else int(d) for field, _, d in words}
    return type(name, (Value,), {"__slots__": tuple(fields), "fields": fields})


CLASSES |= {name: _row(name, text) for name, text in ROWS.items()}


class _Number(int):
    """A number of something."""

    def __new__(cls, id: int) -> _Number:
        taken(cls.__name__, "id", id, "int")
        return super().__new__(cls, id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"


CLASSES |= {name: type(name, (_Number,), {}) for name in ("SubDeviceId", "QueueId")}
TYPES, AXES = CLASSES["DispatchCoreType"], CLASSES["DispatchCoreAxis"]


class DispatchCoreConfig:
    """Which cores start kernels; by default ethernet cores on machines of two-chip cards."""

    def __init__(self, type: Any = None, axis: Any = None, fabric_tensix_config: Any = None):
        name = "DispatchCoreConfig"
        taken(name, "type", type, "DispatchCoreType | None")
        taken(name, "axis", axis, "DispatchCoreAxis | None")
        pairs = get_arch_name() == "wormhole_b0" and all(len(c) == 2 for c in visible().cards)
        self.type = type or (TYPES.ETH if pairs and axis is not AXES.COL else TYPES.WORKER)
        self.axis = axis or AXES.ROW
        if self.type is TYPES.ETH and axis is AXES.COL:
            fail(name, "COL axis is not supported for ETH dispatch core type", "type=WORKER")


def get_arch_name() -> str:
    """Return the generation of the machine's chips, as "wormhole_b0"."""
    return visible().chip.arch.lower()


def init_device_compute_kernel_config(
    arch: Any, device_kernel_config: Any = None, **fields: Any
) -> Any:
    """Return the WormholeComputeKernelConfig that is given, else one of these fields."""
    fields = {"math_fidelity": MathFidelity.LoFi} | fields
    return device_kernel_config or CLASSES["WormholeComputeKernelConfig"](**fields)

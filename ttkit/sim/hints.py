"""Hints: values that say how the hardware works, and that change no result.

They are records: built by keyword with ttnn's defaults, printed, passed on. Nothing checks that a
chip could work as they ask: blocks of a product, chunks of an attention, cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.ranks import visible
from ttkit.sim.tensor import (
    BufferType,
    DispatchCoreAxis,
    DispatchCoreType,
    MathFidelity,
    Number,
    ThrottleLevel,
)
from ttkit.sim.tensor.sharding import CoreCoord, CoreRangeSet, MemoryConfig

# ---------------------------------------------------------------- in a call
# Every operation takes these keywords; ttnn's own takes those that it can use.
EVERY = frozenset(
    """
    barrier_semaphore chunks_per_sync col_tilize compute_kernel_config config core_grid cq_id
    embeddings_type enable_bfloat_opt fast_and_approximate_mode fp32_dest_acc global_cb
    global_semaphore indices_tensor intermediate_memory_config
    is_causal_mask
    keep_l1_aligned kv_tied memory_config memory_config_ag memory_config_mm
    mm_block_ht mm_block_wt mm_cores_y mode num_buffers_per_channel num_devices
    num_workers_per_link numeric_stable output_memory_config output_tile
    overlap_qk_coregrid pad_value preserve_nan_values program_config queue_id
    read_local_slice_from_input recip_tensor reshape_tile_mode skip_padding_fill sorted
    sub_core_grids sub_device_id subdevice_id tile tiles_per_chunk use_2d_core_grid use_broadcast
    use_falcon7b_backend use_l1_small_for_semaphores use_legacy use_low_perf use_multicore
    use_noc1_only use_optimal_ccl_for_llama use_pack_untilize vector_mode
    """.split()
)
# `help` shows only these hints.
OF_ALL = frozenset({"memory_config"})
OF_PRODUCTS = OF_ALL | {"program_config", "compute_kernel_config", "core_grid"}


def place_of(asked: describe, hints: Mapping[str, Any]) -> MemoryConfig | None:
    """Return the memory configuration among the hints of a call."""
    config = hints.get("memory_config")
    if not isinstance(config, MemoryConfig | None):
        rule = f"incompatible function arguments: {config!r} is not a MemoryConfig"
        fail(asked, rule, "ttnn.DRAM_MEMORY_CONFIG", TypeError)
    return config


def fused_activation(hints: Mapping[str, Any]) -> dict[str, Any]:
    """Return the activation that a program configuration has, as a keyword of the product."""
    fused = getattr(hints.get("program_config"), "fused_activation", None)
    return {} if fused is None else {"activation": fused}


# ---------------------------------------------------------------- records with ttnn's fields
NEEDED: Any = ...  # A field with this default must be given.
_GRID = {"compute_with_storage_grid_size": NEEDED}
_BLOCKS = _GRID | {"in0_block_w": NEEDED, "out_subblock_h": NEEDED, "out_subblock_w": NEEDED}
_CORES = {"per_core_M": NEEDED, "per_core_N": NEEDED}
_OUT = {"out_block_h": None, "out_block_w": None}
_ALLOWED = {"allowed_worker_cores": None}
_ROWS = {"subblock_w": NEEDED, "block_h": NEEDED, "block_w": NEEDED}
FIELDS: dict[str, dict[str, Any]] = {
    "WormholeComputeKernelConfig": {
        "math_fidelity": MathFidelity.Invalid,
        "math_approx_mode": True,
        "fp32_dest_acc_en": False,
        "packer_l1_acc": False,
        "dst_full_sync_en": False,
        "throttle_level": ThrottleLevel.NO_THROTTLE,
    },
    "MatmulMultiCoreReuseProgramConfig": {**_BLOCKS, **_CORES, **_ALLOWED},
    "MatmulMultiCoreReuseMultiCastProgramConfig": {
        **_BLOCKS,
        **_OUT,
        **_CORES,
        "transpose_mcast": NEEDED,
        "fused_activation": None,
        "fuse_batch": True,
        **_ALLOWED,
    },
    "MatmulMultiCoreReuseMultiCast1DProgramConfig": {
        **_BLOCKS,
        **_OUT,
        **_CORES,
        "fuse_batch": NEEDED,
        "fused_activation": None,
        "mcast_in0": NEEDED,
        "gather_in0": False,
        "hop_cores": CoreRangeSet([]),
        "num_global_cb_receivers": 1,
        "untilize_out": False,
        **_ALLOWED,
        "stream_in1": False,
    },
    "MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig": {
        "in0_block_w": NEEDED,
        **_CORES,
        "fused_activation": None,
        "num_workers_per_dram_bank": 1,
    },
    "MinimalMatmulConfig": {
        "M_block_size": 1,
        "K_block_size": 1,
        "N_block_size": 1,
        "subblock_h": 1,
        "subblock_w": 1,
        "compute_with_storage_grid_size": CoreCoord(1, 1),
    },
    "LayerNormShardedMultiCoreProgramConfig": {
        **_GRID,
        **_ROWS,
        "inplace": NEEDED,
        "legacy_reduction": False,
        "legacy_rsqrt": False,
        "use_welford": False,
    },
    "SoftmaxDefaultProgramConfig": {},
    "SoftmaxShardedMultiCoreProgramConfig": _GRID | _ROWS,
    "SDPAProgramConfig": {
        **_GRID,
        "sub_core_grids": None,
        "q_chunk_size": NEEDED,
        "k_chunk_size": NEEDED,
        "exp_approx_mode": None,
        "max_cores_per_head_batch": 16,
        "max_k_splits": 1,
        "matmul_math_fidelity": None,
        "segmented_accumulation": False,
    },
}


class Record(SimpleNamespace):
    """A hint: it has the fields of its row of `FIELDS`."""

    fields: ClassVar[dict[str, Any]] = {}

    def __init__(self, **given):
        name, values = type(self).__name__, self.fields | given
        if len(values) > len(self.fields) or NEEDED in values.values():
            rule = f"incompatible function arguments: {', '.join(given)}"
            fail(name, rule, f"by name: {', '.join(self.fields)}", TypeError)
        super().__init__(**values)


RECORDS: dict[str, Any] = {name: type(name, (Record,), {"fields": f}) for name, f in FIELDS.items()}


def init_device_compute_kernel_config(arch, device_kernel_config=None, **fields):
    """Return the WormholeComputeKernelConfig that is given, else one of these fields."""
    fields = {"math_fidelity": MathFidelity.LoFi} | fields
    return device_kernel_config or RECORDS["WormholeComputeKernelConfig"](**fields)


@dataclass
class DispatchCoreConfig:
    """Which cores start kernels."""

    type: Any = DispatchCoreType["WORKER"]
    axis: Any = DispatchCoreAxis["ROW"]
    fabric_tensix_config: Any = None


def get_arch_name() -> str:
    """Return the generation of the machine's chips, as "wormhole_b0"."""
    return visible().chip.arch.lower()


# ---------------------------------------------------------------- what works beside what
class SubDeviceId(Number):
    """The number of a sub-device."""


class SubDevice(NamedTuple):
    """Cores that take part together: a set of ranges for each type of core."""

    cores: Sequence


@dataclass(eq=False)
class global_semaphore:
    """A counter in the L1 of cores, at one address on every chip."""

    cores: Any
    value: int


def create_global_semaphore(
    mesh_device, cores, initial_value: int, buffer_type: BufferType = BufferType.L1
) -> global_semaphore:
    """Return a semaphore for the async collectives."""
    return global_semaphore(cores, initial_value)


def reset_global_semaphore_value(global_semaphore: global_semaphore, reset_value: int) -> None:
    """Set the counter."""
    global_semaphore.value = reset_value


def _nothing(*args, **kwargs) -> None:
    """Do nothing: every operation has ended when it returns; `ttkit.profile` has their times."""


record_event = event_synchronize = wait_for_event = _nothing
apply_device_delay = ReadDeviceProfiler = _nothing

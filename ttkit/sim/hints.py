"""Keywords that tell the hardware how to work and change no value: one rule for all operations.

A call that gives one comes here; others do not. In the strict dialect an operation takes the hints
that ttnn 0.81.1 has in its signature, which its `@operation` names, and a queue; in the default
dialect also those that releases before it had. Each is checked: its class, and a program
configuration against the shapes and the chip's grid of cores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ttkit.dialect import older_form
from ttkit.errors import fail
from ttkit.sim.arguments import by_word, describe, taken

# class: hints of that class, or None
TABLE = """
MemoryConfig: memory_config intermediate_memory_config
WormholeComputeKernelConfig: compute_kernel_config
CoreGrid: core_grid
CoreRangeSet: sub_core_grids
SubDeviceId: sub_device_id subdevice_id
int | QueueId: queue_id cq_id
global_semaphore: barrier_semaphore
bool: use_multicore use_low_perf use_noc1_only use_optimal_ccl_for_llama use_broadcast use_legacy
bool: use_pack_untilize
int: chunks_per_sync num_workers_per_link num_buffers_per_channel mm_cores_y mm_block_ht mm_block_wt
int: num_devices tiles_per_chunk
MeshDevice: mesh_device
"""
CLASSES = by_word(TABLE)
EVERY = frozenset(
    {*CLASSES, "program_config"} - {"barrier_semaphore", "mesh_device", "num_devices"}
)
# classes of program configurations: words in the names of operations; others take SDPA's
PROGRAMS = by_word(
    "MatmulMultiCoreReuseProgramConfig | MatmulMultiCoreReuseMultiCastProgramConfig | "
    "MatmulMultiCoreReuseMultiCast1DProgramConfig | "
    "MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig: matmul linear\n"
    "LayerNormDefaultProgramConfig | LayerNormShardedMultiCoreProgramConfig: norm\n"
    "SoftmaxDefaultProgramConfig | SoftmaxShardedMultiCoreProgramConfig: softmax\n"
)
# these would change values: only their defaults are taken
NOT_HERE = {"output_tensors": None, "groups": 1, "causal_mask": False}
# each size a multiple of the next
CHAINS = (
    "in0_block_w",
    "K_block_size",
    "per_core_N out_block_w out_subblock_w",
    "per_core_M out_block_h out_subblock_h",
    "N_block_size subblock_w",
    "M_block_size subblock_h",
)
Rules = Iterable[tuple[object, str]]  # whether a rule is broken, and the rule


def check(
    name: str, own: frozenset[str], asked: describe, given: Mapping[str, Any], operands: Any
) -> dict[str, Any]:
    """Check the hints of a call; return keywords of the operation that follow from them.

    Args:
        own: those of the operation.
        given: the hints.
        operands: the call's arguments by name.
    """
    for hint, value in given.items():
        if hint not in own and not hint.endswith(("queue_id", "cq_id")):
            if not older_form(f"{name}({hint}=)", "the call without it"):
                rule = f"incompatible function arguments: {hint}={describe.show(value)}"
                fail(asked, rule, f"help(ttnn.{name})", TypeError)
        if value is not NOT_HERE.get(hint, value):
            fail(asked, f"the simulator's {name} has no {hint}", "the call without it")
        classes = CLASSES.get(hint)
        if hint == "program_config":
            fitting = (c for word, c in PROGRAMS.items() if word in name)
            classes = next(fitting, "SDPAProgramConfig")
        if classes:
            taken(asked, hint, value, f"{classes} | None")
    queue(asked, given.get("queue_id") or given.get("cq_id"))
    mesh = next((o.mesh for o in operands.values() if getattr(o, "mesh", None)), None)
    config = given.get("program_config")
    if mesh is not None:
        within(asked, mesh, given.get("subdevice_id") or given.get("sub_device_id"))
        if hasattr(config, "q_chunk_size"):
            refuse(asked, _attention(config, mesh, operands))
        elif config is not None and name in ("matmul", "linear"):
            refuse(asked, _product(config, given, mesh, operands), f"{type(config).__name__}: ")
    fused = getattr(config, "fused_activation", None)
    return {} if fused is None or operands.get("activation") else {"activation": fused}


def refuse(asked: object, rules: Rules, about: str = "") -> None:
    """Raise the first of the rules that is broken; say what it is about."""
    for broken, rule in rules:
        if broken:
            fail(asked, about + rule, "other arguments, or no program configuration")


def queue(asked: object, given: Any) -> int:
    """Return the number of a command queue, 0 for None."""
    if int(given or 0) > 1:
        fail(asked, f"cq_id {given} is out of range", "0, or 1 of two command queues")
    return int(given or 0)


def within(asked: object, mesh: Any, *ids: Any) -> None:
    """Check that sub-devices are among those of the mesh."""
    have = len(mesh.sub_devices)
    for each in ids:
        if int(each or 0) >= have:
            rule = f"SubDevice index {int(each)} out of bounds {have}"
            fail(asked, rule, "mesh.load_sub_device_manager first")


def _attention(config: Any, mesh: Any, operands: Any) -> Rules:
    """What chunks and cores of an attention must fulfil."""
    grid, most = config.compute_with_storage_grid_size, math.prod(mesh.system.chip.core_grid)
    # decoding chooses its own chunks
    decode = any(name.startswith("cur_pos") for name in operands)
    for field in () if decode else ("q_chunk_size", "k_chunk_size"):
        size = getattr(config, field)
        rule = (
            f"{field} must be a positive multiple of TILE_SIZE. Got {field}: {size}, TILE_SIZE: 32"
        )
        yield size % 32 or size == 0, rule
    cores = grid.x * grid.y
    yield cores == 0, "SDPA requires a non-empty core grid; got num_cores=0"
    rule = f"Provided grid must not contain more cores than the device. Got {cores} cores"
    yield cores > most, f"{rule}, expected at most {most} cores"


def blocks(c: Any, mesh: Any, most: int = 8) -> Rules:
    """What the grid and the blocks of a product must fulfil, whatever its shapes are."""
    least: dict[str, int] = {}
    for chain in CHAINS:
        sizes = [(field, getattr(c, field)) for field in chain.split() if hasattr(c, field)]
        for field, size in sizes:
            yield size == 0, f"{field} is 0, which is not valid: Block sizes must be > 0"
        for (what, size), (by, part) in itertools.pairwise(sizes):
            yield size % part, f"{what} ({size}) must be divisible by {by} ({part})"
        least |= dict(sizes[1:][-1:])
    rule = " times ".join(f"{field} {size}" for field, size in least.items())
    rule += f" needs to be at most {most} to fit in hardware"
    rule += ": subblock_h * subblock_w must be <= max_dest_volume"
    yield math.prod(least.values()) > most, rule
    grid, have = c.compute_with_storage_grid_size, mesh.system.chip.core_grid
    what, size = "compute_with_storage_grid_size", f"({grid.x}, {grid.y})"
    yield not grid.x * grid.y, f"{what} must be non-zero, got {size}"
    rule = f"{what} {size} must fit within device grid {have}: {what} must be <= device grid size"
    yield grid.x > have[0] or grid.y > have[1], rule


def _product(c: Any, given: Any, mesh: Any, operands: Any) -> Rules:
    """What the blocks of a product must fulfil, in ttnn's order; sizes in tiles."""
    rule = "Cannot use both user core grid/coordinates and a program config"
    yield given.get("core_grid") is not None, rule
    shapes = []
    for letter in "ab":
        shape = (1, 1, *operands[f"input_tensor_{letter}"].shard_shape)
        sides = [-(-side // 32) for side in shape[-2:]]
        turned = operands.get(f"transpose_{letter}")
        shapes.append((math.prod(shape[:-2]), *(sides[::-1] if turned else sides)))
    (batch, rows, inner), (batches, _, columns) = shapes
    if not hasattr(c, "out_subblock_h") or getattr(c, "gather_in0", False):
        return  # the shards of the operands set the blocks
    precise = getattr(given.get("compute_kernel_config"), "fp32_dest_acc_en", False)
    yield from blocks(c, mesh, 4 if precise else 8)
    m, n, w = c.per_core_M, c.per_core_N, c.in0_block_w
    yield inner % w, f"Kt ({inner}) must be divisible by in0_block_w ({w})"
    if not hasattr(c, "fuse_batch"):
        rule = "Batch broadcasting is not supported for the chosen program config"
        yield batch > batches == 1, rule
        yield columns != n, f"N ({columns}) must equal per_core_N ({n})"
        total = rows * batch
        rule = f"divisible by per_core_M, {m}! per_core_M, {m}, must be a multiple of M, {rows} if"
        yield total % m, f"input a total height, {total}, must be {rule} per_core_M > M!"
        return
    rows *= batch if c.fuse_batch else 1
    down, across = -(-rows // m), -(-columns // n)
    line = hasattr(c, "mcast_in0")
    shared = line and c.mcast_in0
    rule = f"mcast_in0 requires M ({rows}) to fit within a single per_core_M block ({m})"
    yield shared and down > 1, f"{rule}, got num_blocks_y={down}"
    rule = f"per_core_M ({m}) exceeds Mt ({rows}). Reduce per_core_M to at most Mt"
    yield m > rows and not shared, rule
    rule = f"mcast_in1 requires N ({columns}) to fit within a single per_core_N block ({n})"
    yield line and not shared and across > 1, f"{rule}, got num_blocks_x={across}"
    rule = "Matmul with fused batch requires input tensors of shapes BCMK*11KN=BCMN or equivalent"
    yield c.fuse_batch and batches > 1, rule
    grid, used = c.compute_with_storage_grid_size, down * across
    rule = f"Number of blocks exceeds number of cores: {used} blocks > {grid.x * grid.y} cores"
    yield line and used > grid.x * grid.y, rule
    if not line:
        across, down = (down, across) if c.transpose_mcast else (across, down)
        for side, many, of, most in (("x", across, "columns", grid.x), ("y", down, "rows", grid.y)):
            rule = f"Num output blocks along {side} ({many}) must be smaller than or equal to"
            yield many > most, f"{rule} the number of {of} in compute grid ({most})!"

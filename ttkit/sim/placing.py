"""Check that a memory configuration fits a tensor, and take the memory that it names."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ttkit.errors import TTKitError, fail
from ttkit.sim.cores import CoreRange, CoreRangeSet, cores_of, num_cores_to_corerangeset
from ttkit.sim.enums import BufferType, Layout
from ttkit.sim.memory import Allocation, bytes_of
from ttkit.sim.sharding import (
    BLOCK,
    DRAM_MEMORY_CONFIG,
    HEIGHT,
    L1_MEMORY_CONFIG,
    ROW_MAJOR,
    WIDTH,
    MemoryConfig,
    NdShardSpec,
    ShardDistributionStrategy,
    ShardSpec,
)

Tensor = Any  # of sim.tensor, which imports this module
BYTES_APART = 16  # rows in L1 begin at multiples of these


def place(tensor: Tensor, config: MemoryConfig) -> None:
    """Give `tensor` a memory configuration: check that it fits, and take the memory.

    Raises:
        TTKitError: the shards do not cover the tensor, are not whole tiles, are more than the
            cores, or lie on cores that the chip has not.
        OutOfMemoryError: the memory is full.
    """
    config = fitted(config, tensor)
    if tensor.mesh is not None:
        new = _allocated(config, tensor)
        if tensor._allocation is not None:
            tensor._allocation.free()
        tensor._allocation = new
    tensor.plain_memory_config = config


# ---------------------------------------------------------------- do the shards cover the tensor
def fitted(config: MemoryConfig, tensor: Tensor) -> MemoryConfig:
    """Return the configuration as the tensor keeps it: with both kinds of shard specification."""
    if config.interleaved:
        return config
    scheme, nd, tiles = config.memory_layout, config.made_nd, tensor.layout is Layout.TILE
    asked = f"place {list(tensor.shard_shape)} {tensor.layout.name} as {scheme.name}"

    def check(right: object, rule: str) -> None:
        if not right:
            fail(asked, rule, "ttnn.create_sharded_memory_config(...), or more cores")

    spec: Any = config.shard_spec or config.nd_shard_spec
    check(spec, "Shard spec must not be None for sharded tensors (bad optional access)")
    shape, rank = spec.shard_shape if nd else tuple(spec.shape), len(tensor.padded)
    sizes = list(shape)
    check(0 not in sizes, f"Shard shape must be greater than 0 in each sharded dim, got {sizes}")
    whole = len(sizes) > 1 and not (sizes[-1] % 32 or sizes[-2] % 32)
    check(whole or not tiles, f"Physical shard shape {shape} must be tile {{32, 32}} sized!")
    if nd:
        rule = f"Tensor shape rank ({rank}) can't be less than shard shape rank ({len(sizes)})!"
        check(rank >= len(sizes), rule)
        return config
    height, width = plane(tensor)
    if not tiles:  # rows are stored as wide as shards are
        width = -(-width // sizes[1]) * sizes[1]
    cores, by_row = (spec.num_cores(), "cores {}"), spec.orientation is ROW_MAJOR
    limits: Any = {HEIGHT: (cores, None), WIDTH: (None, cores)}.get(scheme, (cores, cores))
    if scheme is BLOCK:
        rule = "Shard grid must be one full rectangular grid for block sharded!"
        check(spec.grid.size() == 1, rule)
        box, way = spec.grid.bounding_box().grid_size(), "row" if by_row else "column"
        words = f"{{}} {{{{}}}} for {way} major orientation!".format
        limits = [(box.y, words("rows")), (box.x, words("columns"))][:: 1 if by_row else -1]
    rows = zip(("height", "width"), sizes, (height, width), limits, strict=True)
    for side, have, need, limit in sorted(rows, key=lambda row: row[3] is not None):
        if limit is None:
            rule = f"Shard {side} {have} must match physical {side} {need} for "
            check(have == need, rule + scheme.name.lower().replace("_", " "))
        else:
            count = -(-need // have)
            rule = f"Number of shards along {side} {count} must not exceed number of "
            check(count <= limit[0], rule + limit[1].format(limit[0]))
    strategy = ShardDistributionStrategy(int(scheme is BLOCK))
    return config.with_nd(NdShardSpec(sizes, spec.grid, spec.orientation, strategy))


def plane(tensor: Tensor, dims: int = 2) -> tuple[int, ...]:
    """The stored shape in so many dimensions: rows of all leading dimensions, and columns."""
    start = len(tensor.padded) - dims + 1
    return math.prod(tensor.padded[:start]), *tensor.padded[start:]


def counts(sizes: Iterable[int], shard: Iterable[int]) -> list[int]:
    """How many shards along each dimension."""
    return [-(-n // s) for n, s in zip(sizes, shard, strict=True)]


# ---------------------------------------------------------------- banks
def _allocated(config: MemoryConfig, tensor: Tensor) -> Allocation:
    mesh, dram = tensor.mesh, config.buffer_type is BufferType.DRAM
    nd: Any = config.nd_shard_spec if config.is_sharded() else None
    size = mesh.dram_grid_size() if dram else mesh.compute_with_storage_grid_size()
    banks = size.x * size.y
    asked = f"place {list(tensor.shard_shape)} in {config.buffer_type.name}"
    used, by_row = [], nd and nd.orientation is ROW_MAJOR
    if nd:
        used = cores_of(nd.grid, by_row)
    if config.memory_layout is BLOCK:  # cores of the rectangle beyond the last shards are idle
        down, across = counts(plane(tensor), nd.shard_shape)[:: 1 if by_row else -1]
        used = [(x, y) for x, y in used if x - used[0][0] < across and y - used[0][1] < down]
    for x, y in used:
        if x >= size.x or y >= size.y:
            kind = "DRAM" if dram else "L1"
            rule = f"Invalid shard grid: shard core ({x}, {y}) has no {kind} bank on this device,"
            if dram and y:
                rule = f"Invalid DRAM shard grid: shard core ({x}, {y}) is not on row 0"
            cure = "mesh.dram_grid_size()" if dram else "mesh.compute_with_storage_grid_size()"
            fail(asked, f"{rule} which has {banks} of them, {size.x} x {size.y}", cure)
    if nd is None and config.buffer_type is BufferType.L1_SMALL:
        rule = "L1_SMALL only supports sharded allocations, see validate_num_banks"
        fail(asked, rule, "BufferType.L1")
    if dram:
        return Allocation(mesh, tensor.grid, bytes_of(tensor.padded, tensor.dtype))
    shape = tuple(nd.shard_shape) if nd else tensor.padded
    pages, page = math.prod(shape) // 1024, (32, 32)
    if tensor.layout is Layout.ROW_MAJOR:
        pages, page = math.prod(shape[:-1]), shape[-1:]
    each = -(-pages // banks)
    if nd:
        banks = nd.num_cores()
        each = pages * -(-math.prod(counts(plane(tensor, len(shape)), shape)) // banks)
    nbytes = -(-bytes_of(page, tensor.dtype) // BYTES_APART) * BYTES_APART
    return Allocation(mesh, tensor.grid, each * nbytes, banks)


# ---------------------------------------------------------------- results of operations
def settle(result: Any, hint: Any, operands: Iterable[Any]) -> None:
    """Place results as the hint says; without one where operands in L1 lie.

    Where the hint has no shard specification, that of a sharded operand is taken, or one made.
    """
    if not isinstance(hint, MemoryConfig | None):
        rule = f"incompatible function arguments: memory_config={hint!r}"
        fail("memory_config", rule, "ttnn.L1_MEMORY_CONFIG", TypeError)
    given = [t for t in operands if hasattr(t, "plain_memory_config")]
    found = [t.plain_memory_config for t in given]
    in_l1 = [c for c in found if c.buffer_type is BufferType.L1]
    sharded = next((c for c in in_l1 if c.is_sharded()), None)
    like = in_l1[0] if in_l1 and in_l1[0] is found[0] else sharded
    for tensor in result if isinstance(result, (list, tuple)) else [result]:
        own = getattr(tensor, "plain_memory_config", None)
        if own is None or tensor.mesh is None:
            continue
        if hint is None:  # but where the operation has placed it itself, or works in place
            if like and own is DRAM_MEMORY_CONFIG and all(tensor is not t for t in given):
                place(tensor, _adapted(like, tensor))
        elif hint is not own:
            whole = hint.interleaved or hint.shard_spec or hint.nd_shard_spec
            place(tensor, hint if whole else _adapted(sharded or hint, tensor))


def _adapted(config: MemoryConfig, tensor: Tensor) -> MemoryConfig:
    """An operand's configuration for a result of perhaps another shape, or equal shards."""
    unit, scheme = 32 if tensor.layout is Layout.TILE else 1, config.memory_layout
    try:
        return fitted(config, tensor)
    except TTKitError:
        if scheme not in (HEIGHT, WIDTH, BLOCK):
            return L1_MEMORY_CONFIG
    size, cores, way = tensor.mesh.compute_with_storage_grid_size(), None, ROW_MAJOR
    if config.shard_spec is not None:
        cores, way = config.shard_spec.grid, config.shard_spec.orientation
        size = cores.bounding_box().grid_size()
    count = cores.num_cores() if cores else size.x * size.y
    over = {HEIGHT: (count, 1), WIDTH: (1, count)}.get(scheme)
    over = over or ((size.y, size.x) if way is ROW_MAJOR else (size.x, size.y))
    shard = [-(-n // unit // k) * unit for n, k in zip(plane(tensor), over, strict=True)]
    down, across = counts(plane(tensor), shard)
    if cores is None:
        cores = num_cores_to_corerangeset(down * across, size, True)
        if scheme is BLOCK:
            cores = CoreRangeSet([CoreRange((0, 0), (across - 1, down - 1))])
    return MemoryConfig(scheme, config.buffer_type, ShardSpec(cores, shard, way))

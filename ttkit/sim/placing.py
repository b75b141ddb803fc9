"""Check that a memory configuration fits a tensor, and take the memory that it names."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ttkit.errors import TTKitError, fail
from ttkit.sim.cores import cores_of, corner, num_cores_to_corerangeset
from ttkit.sim.enums import BufferType, Layout
from ttkit.sim.memory import Allocation, bytes_of
from ttkit.sim.sharding import (
    BLOCK,
    DRAM_MEMORY_CONFIG,
    HEIGHT,
    L1_MEMORY_CONFIG,
    ND,
    ROW_MAJOR,
    WIDTH,
    MemoryConfig,
    NdShardSpec,
    ShardDistributionStrategy,
    ShardSpec,
    most_shards,
)
from ttkit.sim.types import Shape

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
        tensor._allocation = _allocated(config, tensor)
    tensor.plain_memory_config = config


# ---------------------------------------------------------------- do the shards cover the tensor
def fitted(config: MemoryConfig, tensor: Tensor) -> MemoryConfig:
    """Return the configuration as the tensor keeps it: with both kinds of shard specification."""
    if config.interleaved:
        return config
    scheme, tiles = config.memory_layout, tensor.layout is Layout.TILE
    asked = f"place {list(tensor.shard_shape)} {tensor.layout.name} as {scheme.name}"

    def check(right: object, rule: str) -> None:
        if not right:
            fail(asked, rule, "ttnn.create_sharded_memory_config(...), or more cores")

    spec = config.shard_spec
    if spec:
        kind = ShardDistributionStrategy(int(scheme is BLOCK))
        derived = NdShardSpec(Shape(spec.shape), spec.grid, spec.orientation, kind)
        config = replace(config, nd_shard_spec=derived)
    nd: Any = config.nd_shard_spec
    check(nd, "Shard spec must not be None for sharded tensors (bad optional access)")
    sizes, rank = list(nd.shard_shape), len(tensor.padded)
    check(0 not in sizes, f"Shard shape must be greater than 0 in each sharded dim, got {sizes}")
    whole = len(sizes) > 1 and not (sizes[-1] % 32 or sizes[-2] % 32)
    rule = f"Physical shard shape {tuple(sizes)} must be tile {{32, 32}} sized!"
    check(whole or not tiles, rule)
    if scheme is ND:
        rule = f"Tensor shape rank ({rank}) can't be less than shard shape rank ({len(sizes)})!"
        check(rank >= len(sizes), rule)
        return config
    height, width = plane(tensor)
    if not tiles:  # rows are stored as wide as shards are
        width = -(-width // sizes[1]) * sizes[1]
    rule = "Shard grid must be one full rectangular grid for block sharded!"
    check(scheme is not BLOCK or nd.grid.size() == 1, rule)
    most, need = most_shards(scheme, nd.grid, nd.orientation), (height, width)
    lines, way = ("row", "column"), nd.orientation.value
    for i, side in enumerate(("height", "width")):
        if scheme is (WIDTH, HEIGHT)[i]:
            rule = f"Shard {side} {sizes[i]} must match physical {side} {need[i]} for "
            check(sizes[i] == need[i], rule + scheme.name.lower().replace("_", " "))
            continue
        count, limit = -(-need[i] // sizes[i]), f"cores {most[i]}"
        if scheme is BLOCK:
            limit = f"{lines[i ^ way]}s {most[i]} for {lines[way]} major orientation!"
        rule = f"Number of shards along {side} {count} must not exceed number of {limit}"
        check(count <= most[i], rule)
    return config


def plane(tensor: Tensor, dims: int = 2) -> tuple[int, ...]:
    """The stored shape in so many dimensions: rows of all leading dimensions, and columns."""
    start = len(tensor.padded) - dims + 1
    return math.prod(tensor.padded[:start]), *tensor.padded[start:]


def counts(sizes: Iterable[int], shard: Iterable[int]) -> list[int]:
    """How many shards along each dimension."""
    return [-(-n // s) for n, s in zip(sizes, shard, strict=False)]


# ---------------------------------------------------------------- banks
def _allocated(config: MemoryConfig, tensor: Tensor) -> Allocation:
    mesh, dram = tensor.mesh, config.buffer_type is BufferType.DRAM
    size = mesh.dram_grid_size() if dram else mesh.compute_with_storage_grid_size()
    banks, nd = size.x * size.y, None if config.interleaved else config.nd_shard_spec
    for x, y in cores_of(nd.grid, nd.orientation is ROW_MAJOR) if nd else ():
        if x >= size.x or y >= size.y:
            rule = f"Invalid shard grid: shard core ({x}, {y}) has no {'DRAM' if dram else 'L1'} "
            rule += f"bank on this device, which has {banks} of them, {size.x} x {size.y}"
            cure = "mesh.dram_grid_size()" if dram else "mesh.compute_with_storage_grid_size()"
            fail(f"place {list(tensor.shard_shape)} in {config.buffer_type.name}", rule, cure)
    if dram:
        return Allocation(mesh, tensor.grid, bytes_of(tensor.padded, tensor.dtype))
    # interleaved, each page is a shard, and all banks take part
    shape = tuple(nd.shard_shape) if nd else tensor.padded
    page = (32, 32) if tensor.layout is Layout.TILE else shape[-1:]
    shard, banks = (shape, nd.num_cores()) if nd else (page, banks)
    shards = -(-math.prod(counts(plane(tensor, len(shard)), shard)) // banks)
    pages = shards * math.prod(shard) // math.prod(page)
    nbytes = -(-bytes_of(page, tensor.dtype) // BYTES_APART) * BYTES_APART
    return Allocation(mesh, tensor.grid, pages * nbytes, banks)


# ---------------------------------------------------------------- results of operations
def settle(result: Any, hint: Any, operands: Iterable[Any]) -> None:
    """Place results as the hint says; without one where operands in L1 lie.

    Where the hint has no shard specification, that of a sharded operand is taken, or one made.
    """
    given = [t for t in operands if hasattr(t, "plain_memory_config")]
    # the first operand counts wherever it lies, others where they have shards
    counted = [t.plain_memory_config for t in given if t is given[0] or t.is_sharded()]
    near = [c for c in counted if c.buffer_type is BufferType.L1]
    sharded = [c for c in near if c.is_sharded()]
    for tensor in result if isinstance(result, (list, tuple)) else [result]:
        own = getattr(tensor, "plain_memory_config", None)
        if own is None or tensor.mesh is None or hint is own:
            continue
        if hint is None:  # but where the operation has placed it itself, or works in place
            if near and own is DRAM_MEMORY_CONFIG and all(tensor is not t for t in given):
                place(tensor, _adapted(near[0], tensor))
        elif hint.interleaved or hint.shard_spec or hint.nd_shard_spec:
            place(tensor, hint)
        else:
            place(tensor, _adapted((sharded or [hint])[0], tensor))


def _adapted(config: MemoryConfig, tensor: Tensor) -> MemoryConfig:
    """An operand's configuration for a result of perhaps another shape, or equal shards."""
    scheme, spec = config.memory_layout, config.shard_spec
    try:
        return fitted(config, tensor)
    except TTKitError:
        if scheme is ND:
            return L1_MEMORY_CONFIG
    unit, grid = 32 if tensor.layout is Layout.TILE else 1, tensor.mesh.core_grid
    spec = spec or ShardSpec(corner(grid.x, grid.y), (0, 0), ROW_MAJOR)
    most = most_shards(scheme, spec.grid, spec.orientation)
    shard = [-(-n // unit // k) * unit for n, k in zip(plane(tensor), most, strict=True)]
    down, across = counts(plane(tensor), shard)
    cores = spec.grid
    if config.shard_spec is None:
        cores = num_cores_to_corerangeset(down * across, (grid.x, grid.y), True)
        if scheme is BLOCK:
            cores = corner(across, down)
    return MemoryConfig(scheme, config.buffer_type, ShardSpec(cores, shard, spec.orientation))

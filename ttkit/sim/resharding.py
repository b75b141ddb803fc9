"""Tensors moved to other places in their chips: the values stay, `memory_config()` changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.cores import CoreCoord, CoreRangeSet, num_cores_to_corerangeset
from ttkit.sim.enums import BufferType, DataType, Layout, TensorMemoryLayout
from ttkit.sim.filling import full
from ttkit.sim.grid import TensorTopology
from ttkit.sim.memory import TILE_BYTES
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.operation import checked, on_mesh, operation, result
from ttkit.sim.placing import place, plane
from ttkit.sim.sharding import (
    DRAM_MEMORY_CONFIG,
    ROW_MAJOR,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
)
from ttkit.sim.tensor import Tensor
from ttkit.sim.types import PlacementReplicate


def _copied(
    name: str,
    tensor: Tensor,
    config: MemoryConfig | None,
    dtype: DataType | None = None,
    output: Tensor | None = None,
) -> Tensor:
    """Return the values in memory of `config`, or in `output`."""
    on_mesh(name, tensor)
    if dtype not in (None, tensor.dtype) and tensor.layout is Layout.ROW_MAJOR:
        rule = "Input tensor layout must be TILE when dtype conversion is needed"
        fail(describe(name, (tensor,)), rule, "ttnn.to_layout first")
    made = result(tensor, tensor.array, dtype=dtype, output=output, owned=False)
    if output is None:
        place(made, config or tensor.plain_memory_config)
    return made


@operation("to_memory_config", "store")
def to_memory_config(
    tensor: Tensor,
    memory_config: MemoryConfig,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return the tensor with another memory configuration; itself where it has that already."""
    on_mesh("to_memory_config", tensor)
    if memory_config == tensor.plain_memory_config and output_tensor is None:
        return tensor
    return _copied("to_memory_config", tensor, memory_config, dtype, output_tensor)


def _moved(name: str, tensor: Tensor, memory_config: MemoryConfig | None) -> Tensor:
    made = _copied(name, tensor, memory_config)
    tensor.deallocate()
    return made


@operation("reallocate", "store")
def reallocate(tensor: Tensor, memory_config: MemoryConfig | None = None) -> Tensor:
    """Return the same values in a buffer of its own, and free the old one."""
    return _moved("reallocate", tensor, memory_config)


@operation("move", "store")
def move(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Return the same values in a buffer of its own, and free the old one."""
    return _moved("move", input_tensor, memory_config)


# ---------------------------------------------------------------- interleaved and sharded
def _over(sizes: Any, grid: Any, shard: Any, scheme: TensorMemoryLayout, way: Any) -> MemoryConfig:
    """Return the configuration of a shard's shape over a set of cores, or a grid's first ones."""
    if scheme is TensorMemoryLayout.INTERLEAVED:
        fail("interleaved_to_sharded", "Unsupported sharding scheme", "HEIGHT_SHARDED")
    if not isinstance(grid, CoreRangeSet):
        count = math.prod(-(-n // s) for n, s in zip(sizes, shard, strict=True))
        grid = num_cores_to_corerangeset(count, grid, way is ROW_MAJOR)
    return MemoryConfig(scheme, BufferType.L1, ShardSpec(grid, shard, way))


@operation("interleaved_to_sharded", "store")
def interleaved_to_sharded(
    input_tensor: Tensor,
    grid: CoreCoord | CoreRangeSet | MemoryConfig | None = None,
    shard_shape: Sequence[int] | DataType | None = None,
    shard_scheme: TensorMemoryLayout | None = None,
    shard_orientation: ShardOrientation | None = None,
    output_dtype: DataType | None = None,
    *,
    sharded_memory_config: MemoryConfig | None = None,
    keep_l1_aligned: bool | None = False,
    preallocated_output: Tensor | None = None,
) -> Tensor:
    """Return an interleaved tensor with one shard to each core.

    Either `(tensor, grid, shard_shape, shard_scheme, shard_orientation, output_dtype)`, or
    `(tensor, sharded_memory_config, output_dtype)`.
    """
    name, config = "interleaved_to_sharded", sharded_memory_config or grid
    on_mesh(name, input_tensor)
    asked = describe(name, (input_tensor, config))
    if isinstance(shard_shape, DataType):
        output_dtype = shard_shape
    if input_tensor.is_sharded():
        rule = "Input tensor memory layout must be INTERLEAVED, but got TensorMemoryLayout::"
        fail(asked, rule + input_tensor.plain_memory_config.memory_layout.name, "ttnn.reshard")
    if not isinstance(config, MemoryConfig):
        if None in (grid, shard_shape, shard_scheme, shard_orientation):
            rule = "incompatible function arguments: grid, shape, scheme and orientation are needed"
            fail(asked, rule, "or a memory configuration", TypeError)
        sizes = plane(input_tensor)
        config = _over(sizes, grid, shard_shape, shard_scheme, shard_orientation)  # type: ignore[arg-type]
    if not config.is_sharded():
        fail(asked, "Output memory config must be sharded", "ttnn.to_memory_config")
    return _copied(name, input_tensor, config, output_dtype, preallocated_output)


@operation("sharded_to_interleaved", "store")
def sharded_to_interleaved(
    input_tensor: Tensor,
    memory_config: MemoryConfig | None = None,
    output_dtype: DataType | None = None,
) -> Tensor:
    """Return a sharded tensor interleaved over all banks, of DRAM when left out."""
    name = "sharded_to_interleaved"
    on_mesh(name, input_tensor)
    config = memory_config or DRAM_MEMORY_CONFIG
    if config.is_sharded():
        rule = "Output memory config must be Interleaved"
        fail(describe(name, (input_tensor, config)), rule, "ttnn.reshard")
    if not input_tensor.is_sharded():
        return input_tensor  # whatever else is asked for, as in ttnn
    return _copied(name, input_tensor, config, output_dtype)


@operation("reshard", "store")
def reshard(
    input_tensor: Tensor, output_memory_config: MemoryConfig, output_tensor: Tensor | None = None
) -> Tensor:
    """Return a sharded tensor with other shards, or on other cores."""
    on_mesh("reshard", input_tensor)
    pairs = (("input", input_tensor.plain_memory_config), ("output", output_memory_config))
    for word, config in pairs:
        if not config.is_sharded():
            asked = describe("reshard", (input_tensor, output_memory_config))
            fail(asked, f"{word} must be sharded", "ttnn.to_memory_config")
    return _copied("reshard", input_tensor, output_memory_config, output=output_tensor)


def _slice_rows(tensor: Tensor, num_slices: int, slice_index: int, asked: object) -> slice:
    """The rows, of all leading dimensions, that slice `slice_index` of `num_slices` has."""
    if not 0 <= slice_index < num_slices:
        rule = "Slice index and num_slices don't match! Index ="
        fail(asked, f"{rule} {slice_index} num_slices = {num_slices}")
    height = math.prod(tensor.padded[:-1])
    rows, odd = divmod(height, num_slices)
    if odd or tensor.padded != tensor.shard_shape:
        rule = "Total height of a tensor must be divisible by num_slices!"
        fail(asked, f"{rule} {height} rows in whole tiles, {num_slices} slices")
    return slice(slice_index * rows, (slice_index + 1) * rows)


@operation("interleaved_to_sharded_partial", "store", moves="part")
def interleaved_to_sharded_partial(
    input_tensor: Tensor,
    grid: CoreCoord | CoreRangeSet,
    shard_shape: Sequence[int],
    num_slices: int,
    slice_index: int,
    shard_scheme: TensorMemoryLayout,
    shard_orientation: ShardOrientation,
    *,
    output_dtype: DataType | None = None,
) -> Tensor:
    """Return one of several slices of the rows, [1, 1, rows, columns], one shard to each core."""
    on_mesh("interleaved_to_sharded_partial", input_tensor)
    asked = describe("interleaved_to_sharded_partial", (input_tensor, num_slices, slice_index))
    rows = _slice_rows(input_tensor, num_slices, slice_index, asked)
    lead, width, array = len(input_tensor.grid.shape), input_tensor.padded[-1], input_tensor.array
    array = array.reshape(*array.shape[:lead], 1, 1, -1, width)[..., rows, :]
    sizes = (rows.stop - rows.start, width)
    config = _over(sizes, grid, shard_shape, shard_scheme, shard_orientation)
    made = result(input_tensor, array, dtype=output_dtype, owned=False)
    place(made, config)
    return made


@operation("sharded_to_interleaved_partial", "store", moves="part")
def sharded_to_interleaved_partial(
    input_tensor: Tensor,
    cache_tensor: Tensor,
    num_slices: int,
    slice_index: int,
    *,
    memory_config: MemoryConfig | None = None,
    output_dtype: DataType | None = None,
) -> Tensor:
    """Write a sharded tensor into one of several slices of the rows of `cache_tensor`."""
    on_mesh("sharded_to_interleaved_partial", input_tensor, cache_tensor)
    asked = describe("sharded_to_interleaved_partial", (input_tensor, cache_tensor, num_slices))
    if not input_tensor.is_sharded():
        fail(asked, "Input tensor must have a shard spec", "ttnn.interleaved_to_sharded_partial")
    rows = _slice_rows(cache_tensor, num_slices, slice_index, asked)
    sizes, slot = plane(input_tensor), (rows.stop - rows.start, cache_tensor.padded[-1])
    if sizes != slot:
        rule = f"a slice has {slot[0]} rows of {slot[1]}, the input {sizes[0]} of {sizes[1]}"
        fail(asked, rule, "the num_slices that the input was made with")
    lead, given, whole = len(cache_tensor.grid.shape), input_tensor.array, cache_tensor.array
    ends = np.broadcast_shapes(given.shape[:lead], whole.shape[:lead])
    whole = np.array(np.broadcast_to(whole, ends + cache_tensor.shard_shape))
    whole.reshape(*ends, -1, slot[1])[..., rows, :] = given.reshape(*given.shape[:lead], *sizes)
    return result(cache_tensor, whole, output=cache_tensor)


@checked("allocate_tensor_on_device")
def allocate_tensor_on_device(
    shape: Any,
    dtype: DataType,
    layout: Layout,
    mesh_device: MeshDevice,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Return a tensor on every chip; its values are zeros here, and anything on a card."""
    if layout is not Layout.TILE and dtype in TILE_BYTES:
        rule = f"Only TILE layout is supported for {dtype.name} dtype!"
        fail("allocate_tensor_on_device", rule, "ttnn.TILE_LAYOUT")
    made = full(shape, 0, dtype, layout, mesh_device, memory_config)
    over, coords = mesh_device.shape, mesh_device.grid.covers
    made.topology = TensorTopology(over, [PlacementReplicate()] * over.dims(), coords)
    return made

"""Tensors moved to other places in their chips: the values stay, `memory_config()` changes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.cores import CoreRangeSet, num_cores_to_corerangeset
from ttkit.sim.enums import BufferType, DataType, Layout, TensorMemoryLayout
from ttkit.sim.filling import full
from ttkit.sim.grid import TensorTopology
from ttkit.sim.memory import TILE_BYTES
from ttkit.sim.operation import checked, on_mesh, operation, result
from ttkit.sim.placing import counts, place, plane
from ttkit.sim.shaping import reshape
from ttkit.sim.sharding import (
    DRAM_MEMORY_CONFIG,
    ROW_MAJOR,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
)
from ttkit.sim.tensor import Tensor, TensorSpec
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


@operation("reallocate", "store")
def reallocate(tensor: Tensor, memory_config: MemoryConfig | None = None) -> Tensor:
    """Return the same values in a buffer of its own, and free the old one."""
    made = _copied("reallocate", tensor, memory_config)
    tensor.deallocate()
    return made


@operation("move", "store")
def move(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Return the same values in a buffer of its own, and free the old one."""
    return reallocate(input_tensor, memory_config)


# ---------------------------------------------------------------- interleaved and sharded
@operation("interleaved_to_sharded", "store")
def interleaved_to_sharded(
    input_tensor: Tensor,
    grid: Any = None,
    shard_shape: Any = None,
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

    Args:
        grid: a `CoreRangeSet`; or a size, of which the first cores are taken.
    """
    name, config = "interleaved_to_sharded", sharded_memory_config or grid
    on_mesh(name, input_tensor)
    asked, own = describe(name, (input_tensor, config)), input_tensor.plain_memory_config
    if isinstance(shard_shape, DataType):
        output_dtype = shard_shape
    if own.is_sharded():
        rule = "Input tensor memory layout must be INTERLEAVED, but got TensorMemoryLayout::"
        fail(asked, rule + own.memory_layout.name, "ttnn.reshard")
    if not isinstance(config, MemoryConfig):
        if shard_scheme is TensorMemoryLayout.INTERLEAVED:
            fail(asked, "Unsupported sharding scheme", "HEIGHT_SHARDED")
        spec = ShardSpec(CoreRangeSet([]), shard_shape, shard_orientation)
        if not isinstance(config, CoreRangeSet):
            cores = math.prod(counts(plane(input_tensor), spec.shape))
            config = num_cores_to_corerangeset(cores, config, shard_orientation is ROW_MAJOR)
        spec.grid = config
        config = MemoryConfig(shard_scheme, BufferType.L1, spec)
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


def _rows(tensor: Tensor, num_slices: int, slice_index: int) -> slice:
    """The rows, of all leading dimensions, that one of several slices has."""
    asked, height = f"slice {slice_index} of {num_slices} of {tensor.shape}", plane(tensor)[0]
    if not 0 <= slice_index < num_slices:
        rule = "Slice index and num_slices don't match! Index ="
        fail(asked, f"{rule} {slice_index} num_slices = {num_slices}")
    rows, odd = divmod(height, num_slices)
    if odd or tensor.padded != tensor.shard_shape:
        rule = "Total height of a tensor must be divisible by num_slices!"
        fail(asked, f"{rule} {height} rows in whole tiles")
    return slice(slice_index * rows, (slice_index + 1) * rows)


@operation("interleaved_to_sharded_partial", "store", moves="part")
def interleaved_to_sharded_partial(
    input_tensor: Tensor,
    grid: Any,
    shard_shape: Any,
    num_slices: int,
    slice_index: int,
    shard_scheme: TensorMemoryLayout,
    shard_orientation: ShardOrientation,
    *,
    output_dtype: DataType | None = None,
) -> Tensor:
    """Return one of several slices of the rows, [1, 1, rows, columns], one shard to each core."""
    on_mesh("interleaved_to_sharded_partial", input_tensor)
    rows = _rows(input_tensor, num_slices, slice_index)
    whole = reshape(input_tensor, [1, 1, *plane(input_tensor)])
    how = (grid, shard_shape, shard_scheme, shard_orientation, output_dtype)
    return interleaved_to_sharded(whole[:, :, rows], *how)


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
    rows, sizes = _rows(cache_tensor, num_slices, slice_index), plane(input_tensor)
    slot = (rows.stop - rows.start, plane(cache_tensor)[1])
    if sizes != slot:
        rule = f"a slice has {slot[0]} rows of {slot[1]}, the input {sizes[0]} of {sizes[1]}"
        fail(asked, rule, "the num_slices that the input was made with")
    whole, given = np.array(cache_tensor.full_array()), input_tensor.full_array()
    ends = cache_tensor.grid.shape
    whole.reshape(*ends, -1, slot[1])[..., rows, :] = given.reshape(*ends, *sizes)
    return result(cache_tensor, whole, output=cache_tensor)


@checked("allocate_tensor_on_device")
def allocate_tensor_on_device(
    shape: Any,
    dtype: Any = None,
    layout: Layout | None = None,
    mesh_device: Any = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Return a tensor on every chip; its values are zeros here, and anything on a card.

    Args:
        shape: or a tensor's `spec`, and then the mesh.
    """
    if isinstance(shape, TensorSpec):
        mesh_device = mesh_device or dtype
        shape, dtype, layout, memory_config, _ = shape
    if layout is not Layout.TILE and dtype in TILE_BYTES:
        rule = f"Only TILE layout is supported for {dtype.name} dtype!"
        fail("allocate_tensor_on_device", rule, "ttnn.TILE_LAYOUT")
    made = full(shape, 0, dtype, layout, mesh_device, memory_config)
    over, coords = mesh_device.shape, mesh_device.grid.covers
    made.topology = TensorTopology(over, [PlacementReplicate()] * over.dims(), coords)
    return made

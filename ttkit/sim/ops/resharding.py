"""Tensors moved to other places in their chips: the values stay, `memory_config()` changes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ttkit.sim.arguments import check
from ttkit.sim.ops.filling import full
from ttkit.sim.ops.operation import checked, on_mesh, operation, result
from ttkit.sim.ops.shaping import reshape
from ttkit.sim.tensor.enums import (
    BufferType,
    DataType,
    Layout,
    ShardOrientation,
    TensorMemoryLayout,
)
from ttkit.sim.tensor.grid import TensorTopology
from ttkit.sim.tensor.memory import plane, shards_of
from ttkit.sim.tensor.sharding import (
    DRAM_MEMORY_CONFIG,
    ROW_MAJOR,
    CoreRangeSet,
    MemoryConfig,
    ShardSpec,
    num_cores_to_corerangeset,
)
from ttkit.sim.tensor.tensor import Tensor, TensorSpec, keep_in
from ttkit.sim.tensor.types import PlacementReplicate


def _copied(
    tensor: Tensor,
    config: MemoryConfig | None,
    *rules: tuple[object, str, str],
    dtype: DataType | None = None,
    output: Tensor | None = None,
) -> Tensor:
    """Return the values in memory of `config`, or in `output`, where no rule is broken."""
    on_mesh(tensor)
    check(*rules)
    made = result(tensor, tensor.array, dtype=dtype, output=output, owned=False)
    if output is None:
        keep_in(made, config or tensor.plain_memory_config)
    return made


@operation("to_memory_config", "store")
def to_memory_config(
    tensor: Tensor,
    memory_config: MemoryConfig,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return the tensor with another memory configuration; itself where it has that already."""
    on_mesh(tensor)
    if memory_config == tensor.plain_memory_config and output_tensor is None:
        return tensor
    return _copied(tensor, memory_config, dtype=dtype, output=output_tensor)


@operation("reallocate", "store")
def reallocate(tensor: Tensor, memory_config: MemoryConfig | None = None) -> Tensor:
    """Return the same values in a buffer of its own, and free the old one."""
    made = _copied(tensor, memory_config)
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
) -> Tensor:
    """Return an interleaved tensor with one shard to each core.

    Either `(tensor, grid, shard_shape, shard_scheme, shard_orientation, output_dtype)`, or
    `(tensor, sharded_memory_config, output_dtype)`.

    Args:
        grid: a `CoreRangeSet`; or a size, of which the first cores are taken.
    """
    config, own = sharded_memory_config or grid, input_tensor.plain_memory_config
    if isinstance(shard_shape, DataType):
        output_dtype = shard_shape
    if not isinstance(config, MemoryConfig):
        if not isinstance(grid, CoreRangeSet):
            cores = math.prod(shards_of(input_tensor.padded, shard_shape))
            grid = num_cores_to_corerangeset(cores, grid, shard_orientation is ROW_MAJOR)
        spec = ShardSpec(grid, shard_shape, shard_orientation)
        config = MemoryConfig(shard_scheme, BufferType.L1, spec)  # type: ignore[arg-type]
    rule = "Input tensor memory layout must be INTERLEAVED, but got TensorMemoryLayout::"
    return _copied(
        input_tensor,
        config,
        (input_tensor.is_sharded(), rule + own.memory_layout.name, "ttnn.reshard"),
        (not config.is_sharded(), "Output memory config must be sharded", "ttnn.to_memory_config"),
        dtype=output_dtype,
    )


@operation("sharded_to_interleaved", "store")
def sharded_to_interleaved(
    input_tensor: Tensor,
    memory_config: MemoryConfig | None = None,
    output_dtype: DataType | None = None,
) -> Tensor:
    """Return a sharded tensor interleaved over all banks, of DRAM when left out."""
    on_mesh(input_tensor)
    config = memory_config or DRAM_MEMORY_CONFIG
    rule = (config.is_sharded(), "Output memory config must be Interleaved", "ttnn.reshard")
    if not input_tensor.is_sharded():
        # As in ttnn, an interleaved input comes back whatever else is asked for.
        return input_tensor
    return _copied(input_tensor, config, rule, dtype=output_dtype)


@operation("reshard", "store")
def reshard(
    input_tensor: Tensor, output_memory_config: MemoryConfig, output_tensor: Tensor | None = None
) -> Tensor:
    """Return a sharded tensor with other shards, or on other cores."""
    return _copied(input_tensor, output_memory_config, output=output_tensor)


def _rows(tensor: Tensor, num_slices: int, slice_index: int) -> slice:
    """The rows, of all leading dimensions, that one of several slices has."""
    height, uneven = plane(tensor.padded)[0], tensor.padded != tensor.shard_shape
    check(
        (height % num_slices or uneven, f"num_slices must divide {height} rows in whole tiles"),
    )
    rows = height // num_slices
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
    rows = _rows(input_tensor, num_slices, slice_index)
    part = reshape(input_tensor, [1, 1, *plane(input_tensor.padded)])[:, :, rows]
    return interleaved_to_sharded(
        part, grid, shard_shape, shard_scheme, shard_orientation, output_dtype
    )


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
    on_mesh(input_tensor, cache_tensor)
    rows, ends = _rows(cache_tensor, num_slices, slice_index), cache_tensor.grid.shape
    whole, (*front, width) = np.array(cache_tensor.full_array()), cache_tensor.shard_shape
    part = whole.reshape(*ends, math.prod(front), width)[..., rows, :]
    part[:] = input_tensor.full_array().reshape(part.shape)
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
        shape, dtype, layout, memory_config = shape
    made = full(shape, 0, dtype, layout, mesh_device, memory_config)
    over, coords = mesh_device.shape, mesh_device.grid.covers
    made.topology = TensorTopology(over, [PlacementReplicate()] * over.dims(), coords)
    return made

"""Tensors moved between host and mesh, kept in another layout or type, copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.creation import moved_over, on_device
from ttkit.sim.dispatch import on_mesh, operation, result
from ttkit.sim.distribution import replicate_tensor_to_mesh_mapper
from ttkit.sim.enums import DataType, Layout, MemoryConfig
from ttkit.sim.mesh import Grid, MeshDevice
from ttkit.sim.tensor import LONE, Tensor, new_tensor
from ttkit.sim.types import TensorTopology


@operation("to_device")
def to_device(tensor: Tensor, device: MeshDevice, memory_config: MemoryConfig | None = None, *, queue_id: Any = None) -> Tensor:
    """The tensor on a mesh; a host tensor that was not distributed goes to every chip."""
    asked = describe("to_device", (tensor, device))
    if not isinstance(tensor, Tensor) or not isinstance(device, MeshDevice):
        fail(asked, "incompatible function arguments", "to_device(tensor, mesh)", TypeError)
    device.check_open(asked)
    if tensor.mesh is device:
        return tensor
    if tensor.mesh is not None:
        fail(asked, f"the tensor already lies on {tensor.mesh!r}", "ttnn.from_device(tensor) first")
    array, grid, topology = _placed(tensor, device, asked)
    return new_tensor(array, tensor.dtype, tensor.layout, grid, topology, device, memory_config)


def _placed(tensor: Tensor, device: MeshDevice, asked: object) -> tuple[np.ndarray, Grid, TensorTopology]:
    """Where a host tensor's values go on a mesh; no memory of the chips is taken."""
    if tensor.topology is LONE:
        return replicate_tensor_to_mesh_mapper(device).place(tensor.array.reshape(tensor.shard_shape), asked)
    grid = on_device(device, tensor.grid, asked)
    return moved_over(tensor.array, tensor.grid, grid, asked), grid, tensor.topology


@operation("from_device")
def from_device(tensor: Tensor, blocking: bool = True, *, queue_id: Any = None) -> Tensor:
    """The tensor on the host, its shards kept apart."""
    if tensor.mesh is None:
        return tensor
    on_mesh("from_device", tensor)
    return new_tensor(tensor.array, tensor.dtype, tensor.layout, tensor.grid, tensor.topology)


@operation("deallocate")
def deallocate(tensor: Tensor, force: bool = True) -> None:
    """Give the chips' memory back; the tensor cannot be used any more."""
    tensor.deallocate(force)


@operation("reallocate")
def reallocate(tensor: Tensor, memory_config: MemoryConfig | None = None) -> Tensor:
    """A tensor with the same values in a buffer of its own; the old one is given back."""
    on_mesh("reallocate", tensor)
    moved = result(tensor, tensor.array, owned=False, memory_config=memory_config)
    tensor.deallocate()
    return moved


@operation("to_layout")
def to_layout(
    tensor: Tensor, layout: Layout, dtype: DataType | None = None, memory_config: MemoryConfig | None = None, sub_core_grids: Any = None, pad_value: float = 0.0
) -> Tensor:
    """The tensor in another layout (and type): only the padding changes, never the values."""
    if not isinstance(layout, Layout):
        fail(describe("to_layout", (tensor, layout)), "incompatible function arguments", "ttnn.TILE_LAYOUT or ttnn.ROW_MAJOR_LAYOUT", TypeError)
    if layout is tensor.layout and (dtype in (None, tensor.dtype) or tensor.mesh is not None):
        return tensor  # on a device a type is looked at only when the layout changes
    if tensor.mesh is not None and layout is Layout.ROW_MAJOR and dtype not in (None, tensor.dtype) and tensor.dtype not in dtypes.BLOCK_FLOATS:
        rule = "dtype cannot be different from tensor dtype when converting to ROW_MAJOR_LAYOUT on device"
        fail(describe("to_layout", (tensor, layout, dtype)), rule, "ttnn.typecast(tensor, dtype) first")
    if tensor.dtype in dtypes.BLOCK_FLOATS and layout is Layout.ROW_MAJOR and dtype in (None, *dtypes.BLOCK_FLOATS):
        dtype = DataType.BFLOAT16  # block floats exist in tiles only; untilizing widens them
    return _same_place(tensor, dtype or tensor.dtype, layout, memory_config)


def _same_place(tensor: Tensor, dtype: DataType, layout: Layout, memory_config: MemoryConfig | None = None) -> Tensor:
    if tensor.mesh is not None:
        on_mesh("to_layout", tensor)
    return new_tensor(dtypes.convert(tensor.array, dtype), dtype, layout, tensor.grid, tensor.topology, tensor.mesh, memory_config)


@operation("typecast")
def typecast(
    input_tensor: Tensor, dtype: DataType, output_dtype: DataType | None = None, *, memory_config: Any = None, output_tensor: Tensor | None = None,
    sub_core_grids: Any = None,
) -> Tensor:  # fmt: skip
    """The same values in another element type."""
    wanted = output_dtype or dtype
    if not isinstance(wanted, DataType):
        fail(describe("typecast", (input_tensor, dtype)), "incompatible function arguments", "a ttnn.DataType such as ttnn.bfloat16", TypeError)
    cast = _same_place(input_tensor, wanted, Layout.TILE if wanted in dtypes.BLOCK_FLOATS else input_tensor.layout, memory_config)
    if output_tensor is None:
        return cast
    return result(input_tensor, cast.array, dtype=wanted, owned=False, output=output_tensor)


@operation("to_dtype")
def to_dtype(tensor: Tensor, dtype: DataType) -> Tensor:
    """A host tensor in another element type."""
    if tensor.mesh is not None:
        fail(describe("to_dtype", (tensor, dtype)), "Expected Tensor with HostStorage, got StorageType::DEVICE", "ttnn.typecast")
    return _same_place(tensor, dtype, Layout.TILE if dtype in dtypes.BLOCK_FLOATS else tensor.layout)


@operation("copy_host_to_device_tensor")
def copy_host_to_device_tensor(host_tensor: Tensor, device_tensor: Tensor, cq_id: Any = None) -> None:
    """Write a host tensor's values into a tensor on a mesh, which keeps its place: how the inputs of a trace are refreshed."""
    asked = describe("copy_host_to_device_tensor", (host_tensor, device_tensor))
    if host_tensor.mesh is not None or device_tensor.mesh is None:
        fail(asked, "the first tensor must be on the host and the second on a device")
    mesh = on_mesh("copy_host_to_device_tensor", device_tensor)
    _check_alike(host_tensor, device_tensor, asked)
    array, grid, _ = _placed(host_tensor, mesh, asked)
    if grid is not device_tensor.grid:
        fail(asked, "the tensors cover different chips", "the same mapper as the device tensor was made with")
    device_tensor.rebind(array)


def _check_alike(host: Tensor, device: Tensor, asked: object) -> None:
    if (host.shard_shape, host.dtype, host.layout) != (device.shard_shape, device.dtype, device.layout):
        rule = "Host tensor has different shape, dtype or layout than the device tensor"
        fail(asked, rule, "the same mapper, dtype and layout as the device tensor was made with")


@operation("copy_device_to_host_tensor")
def copy_device_to_host_tensor(device_tensor: Tensor, host_tensor: Tensor, blocking: bool = True, cq_id: Any = None) -> None:
    """Write the values of a tensor on a mesh into a host tensor of the same shape and distribution."""
    asked = describe("copy_device_to_host_tensor", (device_tensor, host_tensor))
    on_mesh("copy_device_to_host_tensor", device_tensor)
    _check_alike(host_tensor, device_tensor, asked)
    if host_tensor.mesh is not None or host_tensor.grid.covers != device_tensor.grid.covers:
        fail(asked, "Host tensor has different distribution than the device tensor", "tensor.cpu()")
    host_tensor.rebind(moved_over(device_tensor.array, device_tensor.grid, host_tensor.grid, asked))


@operation("clone")
def clone(input: Tensor, *, dtype: DataType | None = None, memory_config: Any = None, compute_kernel_config: Any = None) -> Tensor:
    """A copy in a buffer of its own."""
    on_mesh("clone", input)
    return result(input, input.array, dtype=dtype, owned=False, memory_config=memory_config)


@operation("copy")
def copy(input_a: Tensor, input_b: Tensor) -> Tensor:
    """The values of `input_a` written into `input_b`, which is returned."""
    on_mesh("copy", input_a, input_b)
    return result(input_a, input_a.array, owned=False, output=input_b)


@operation("assign")
def assign(input_tensor: Tensor, *target: Tensor, memory_config: Any = None, dtype: DataType | None = None, output_tensor: Tensor | None = None) -> Tensor:
    """A copy with another memory configuration or dtype; given a second tensor, its values are replaced."""
    on_mesh("assign", input_tensor)
    return result(input_tensor, input_tensor.array, dtype=dtype, owned=False, memory_config=memory_config, output=target[0] if target else output_tensor)


@operation("to_memory_config")
def to_memory_config(tensor: Tensor, memory_config: Any, dtype: DataType | None = None, output_tensor: Tensor | None = None) -> Tensor:
    """The tensor with another memory configuration."""
    on_mesh("to_memory_config", tensor)
    return result(tensor, tensor.array, dtype=dtype, owned=False, memory_config=memory_config, output=output_tensor)


@operation("tilize")
def tilize(
    input_tensor: Tensor, *, memory_config: Any = None, dtype: DataType | None = None, use_multicore: bool = True, use_low_perf: bool = False,
    sub_core_grids: Any = None,
) -> Tensor:  # fmt: skip
    """A row-major tensor in tiles; its last two sizes must be multiples of 32."""
    on_mesh("tilize", input_tensor)
    asked = describe("tilize", (input_tensor,))
    if input_tensor.layout is not Layout.ROW_MAJOR:
        fail(asked, "Can only tilize row major data")
    for what, size in zip(("width", "height"), input_tensor.shard_shape[::-1], strict=False):
        if size % 32:
            fail(asked, f"Input tensor {what} ({size}) must be divisible by tile {what} (32)", "ttnn.to_layout, which pads")
    return to_layout(input_tensor, Layout.TILE, dtype)


@operation("untilize")
def untilize(input_tensor: Tensor, *, memory_config: Any = None, use_multicore: bool = True, sub_core_grids: Any = None) -> Tensor:
    """A tensor in tiles, row by row."""
    on_mesh("untilize", input_tensor)
    if input_tensor.layout is not Layout.TILE:
        fail(describe("untilize", (input_tensor,)), "Can only untilize tile major data")
    return to_layout(input_tensor, Layout.ROW_MAJOR)

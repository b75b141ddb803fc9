"""Tensors from and to NumPy and torch, between host and mesh, between layouts and types; and tensors made of a rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.dialect import older_form
from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import checked, describe
from ttkit.sim.dispatch import on_mesh, operation, result
from ttkit.sim.distribution import CppTensorToMesh, as_composer, as_mapper, create_mesh_mapper, replicate_tensor_to_mesh_mapper
from ttkit.sim.enums import DRAM_MEMORY_CONFIG, DataType, Layout, MemoryConfig
from ttkit.sim.mesh import MeshDevice, grid_over
from ttkit.sim.tensor import LONE, Tensor, new_tensor
from ttkit.sim.types import (
    MeshCoordinate,
    MeshCoordinateRange,
    MeshMapperConfig,
    MeshShape,
    PlacementReplicate,
    TensorTopology,
    integer,
    integers,
)

# What ttnn makes of a host type when no dtype is given.
FROM_HOST = {
    "float32": DataType.FLOAT32, "float16": DataType.BFLOAT16, "bfloat16": DataType.BFLOAT16, "int64": DataType.UINT32, "int32": DataType.INT32,
    "int16": DataType.UINT16, "int8": DataType.INT8, "uint8": DataType.UINT8, "uint16": DataType.UINT16, "uint32": DataType.UINT32, "bool": DataType.UINT8,
}  # fmt: skip


def _host_array(data: Any, asked: object) -> tuple[np.ndarray, str]:
    """A NumPy view of a torch tensor or array, and the name of its type."""
    if type(data).__module__.partition(".")[0] == "torch" and hasattr(data, "detach"):
        name = str(data.dtype).removeprefix("torch.")
        data = data.detach().cpu()
        array = data.float().numpy() if name == "bfloat16" else data.numpy()
    elif isinstance(data, np.ndarray):
        name, array = data.dtype.name, data
        if name == "bfloat16":
            array = data.astype(np.float32)
    else:
        fail(
            asked,
            f"incompatible function arguments: {type(data).__name__} is neither a torch tensor nor a NumPy array",
            "torch.tensor(...) or np.array(...)",
            TypeError,
        )
    if name not in FROM_HOST:
        fail(asked, f"unsupported host type {name}; known: {', '.join(FROM_HOST)}", "x.float() or x.astype(np.float32) first")
    return array, name


def tensor_from(
    data: Any,
    dtype: DataType | None = None,
    *,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    mesh_mapper: Any = None,
    asked: object = "from_torch",
) -> Tensor:
    """The road of every host array into a tensor: choose the type, cut it over the mesh, round it, put it on the device."""
    array, name = _host_array(data, asked)
    for value, kind, what in (
        (dtype, DataType, "dtype"),
        (layout, Layout, "layout"),
        (device, MeshDevice, "device"),
        (memory_config, MemoryConfig, "memory_config"),
    ):
        if value is not None and not isinstance(value, kind):
            fail(asked, f"incompatible function arguments: {what}={value!r} is not a {kind.__name__}", f"a ttnn.{kind.__name__}", TypeError)
    dtype = dtype or FROM_HOST[name]
    if dtype in dtypes.BLOCK_FLOATS:
        if layout is Layout.ROW_MAJOR:
            fail(asked, "Layout must be Layout::TILE for bfloat8_b or bfloat4_b!", "layout=ttnn.TILE_LAYOUT")
        layout = Layout.TILE
    layout = layout or Layout.ROW_MAJOR
    asked = f"{asked}({list(array.shape)} {name})"
    mapper = as_mapper(mesh_mapper, asked)
    if device is not None:
        device.check_open(asked)
        if mapper is None:
            mapper = replicate_tensor_to_mesh_mapper(device)
    cut, grid, topology = (array[None, None], grid_over((1, 1)), LONE) if mapper is None else mapper.place(array, asked)
    if device is not None:
        grid = _on(device, grid, asked)
        if not grid.whole and _converted_on_device(name, dtype, layout):
            topology = TensorTopology(topology.distribution_shape(), topology.placements(), list(MeshCoordinateRange(device.shape)))

    def values() -> np.ndarray:
        converted = dtypes.convert(cut, dtype, rows=len(grid.shape) if layout is Layout.ROW_MAJOR else None)
        return np.array(converted, order="C") if np.may_share_memory(converted, array) else converted

    return new_tensor(None, dtype, layout, grid, topology, device, memory_config, shape=cut.shape[len(grid.shape) :], make=values)


def _converted_on_device(source: str, dtype: DataType, layout: Layout) -> bool:
    """True where ttnn uploads first and converts there: like any operation, that leaves a topology that names every device."""
    if dtype not in (DataType.BFLOAT16, DataType.FLOAT32):
        return False
    if source in ("float32", "bfloat16"):
        return layout is Layout.TILE or FROM_HOST[source] is not dtype
    return layout is Layout.TILE and source in ("float16", "int64")


def _on(device: MeshDevice, grid: Any, asked: object) -> Any:
    """The same chips as part of `device`, which must have them all."""
    shape = tuple(device.shape)
    if grid.mesh_shape == shape:
        return grid
    for coordinate in grid.coords:
        if len(coordinate) != len(shape) or any(c >= n for c, n in zip(coordinate, shape, strict=True)):
            fail(asked, f"Coordinate {MeshCoordinate(coordinate)!r} not found in mesh {device!r}", "a mapper made for this mesh")
    return grid_over(shape, grid.coords)


@operation("from_torch")
def from_torch(
    tensor: Any,
    dtype: DataType | None = None,
    *,
    spec: Any = None,
    tile: Any = None,
    pad_value: float | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    mesh_mapper: Any = None,
    cq_id: int | None = None,
    preserve_nan_values: bool = False,
    col_tilize: bool = False,
    enable_bfloat_opt: bool = False,
) -> Tensor | None:
    """A tensor with a copy of the values of a torch tensor (or of a NumPy array); None gives None.

    Args:
        tensor: [any shape]; float64 is refused.
        mesh_mapper: how to cut it over the mesh; without one every device gets all of it.

    Raises:
        TTKitError: the shape cannot be cut like that, or the chips' memory is full.
    """
    if tensor is None:
        return None
    return tensor_from(tensor, dtype, layout=layout, device=device, memory_config=memory_config, mesh_mapper=mesh_mapper)


def from_numpy(array: np.ndarray, **options: Any) -> Tensor:
    """`from_torch` for a NumPy array; what `ttkit.from_numpy` uses on the simulator."""
    return from_torch(array, **options)  # type: ignore[return-value]


@operation("to_numpy")
def to_numpy(tensor: Tensor, *, mesh_composer: Any = None) -> np.ndarray:
    """A NumPy array with a copy of the values; bfloat16 and block floats come as float32."""
    asked = describe("to_torch", (tensor,))
    composer = as_composer(mesh_composer, asked)
    if tensor.mesh is not None:
        tensor.mesh.check_open(asked)
    array = tensor.array
    if composer is not None:
        joined = composer.join(tensor, asked)
        return np.array(joined, order="C") if np.may_share_memory(joined, array) else joined
    if tensor.grid.size > 1:
        rule = f"Can't convert a tensor distributed on {MeshShape(tensor.grid.mesh_shape)!r} mesh to row-major logical tensor."
        rule += " Supply a mesh composer to concatenate multi-device shards."
        fail(asked, rule, "mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0)")
    return np.array(array.reshape(tensor.shard_shape), order="C")


def to_torch(
    tensor: Tensor,
    dtype: Any = None,
    *,
    torch_rank: int | None = None,
    mesh_composer: Any = None,
    device: MeshDevice | None = None,
    cq_id: int | None = None,
) -> Any:
    """A torch tensor with a copy of the values; a NumPy array where torch is not installed.

    Args:
        dtype: the torch type wanted.
        torch_rank: leading dimensions of one are dropped down to this rank.
        mesh_composer: how to join several shards.
    """
    array = to_numpy(tensor, mesh_composer=mesh_composer)
    while torch_rank is not None and array.ndim > torch_rank:
        if array.shape[0] != 1:
            fail(describe("to_torch", (tensor,)), "Unable to squeeze to desired rank!", f"torch_rank of at least {array.ndim}")
        array = array[0]
    try:
        import torch
    except ImportError:
        return array if dtype is None else array.astype(dtype)
    values = torch.from_numpy(np.atleast_1d(array)).reshape(array.shape)
    if tensor.dtype is DataType.BFLOAT16:
        values = values.to(torch.bfloat16)
    return values if dtype is None else values.to(dtype)


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
    if tensor.topology is LONE:
        array, grid, topology = replicate_tensor_to_mesh_mapper(device).place(tensor.array.reshape(tensor.shard_shape), asked)
    else:
        array, grid, topology = tensor.array, _on(device, tensor.grid, asked), tensor.topology
        if len(grid.shape) != len(tensor.grid.shape):
            array = tensor.full_array().reshape(grid.shape + tensor.shard_shape)
    return new_tensor(array, tensor.dtype, tensor.layout, grid, topology, device, memory_config)


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
    input_tensor: Tensor,
    dtype: DataType,
    output_dtype: DataType | None = None,
    *,
    memory_config: Any = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: Any = None,
) -> Tensor:
    """The same values in another element type."""
    wanted = output_dtype or dtype
    if not isinstance(wanted, DataType):
        fail(describe("typecast", (input_tensor, dtype)), "incompatible function arguments", "a ttnn.DataType such as ttnn.bfloat16", TypeError)
    cast = _same_place(input_tensor, wanted, Layout.TILE if wanted in dtypes.BLOCK_FLOATS else input_tensor.layout, memory_config)
    if output_tensor is None:
        return cast
    output_tensor.rebind(cast.array)
    return output_tensor


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
    if host_tensor.shard_shape != device_tensor.shard_shape or host_tensor.dtype is not device_tensor.dtype or host_tensor.layout is not device_tensor.layout:
        fail(
            asked,
            "Host tensor has different shape, dtype or layout than the device tensor",
            "the same mapper, dtype and layout as the device tensor was made with",
        )
    placed = to_device(host_tensor, device_tensor.mesh)
    if placed.grid is not device_tensor.grid:
        fail(asked, "the tensors cover different chips", "the same mapper as the device tensor was made with")
    device_tensor.rebind(placed.array)


@operation("copy_device_to_host_tensor")
def copy_device_to_host_tensor(device_tensor: Tensor, host_tensor: Tensor, blocking: bool = True, cq_id: Any = None) -> None:
    """Write the values of a tensor on a mesh into a host tensor of the same shape and distribution."""
    asked = describe("copy_device_to_host_tensor", (device_tensor, host_tensor))
    on_mesh("copy_device_to_host_tensor", device_tensor)
    if host_tensor.mesh is not None or host_tensor.shard_shape != device_tensor.shard_shape or host_tensor.grid.size != device_tensor.grid.size:
        fail(asked, "Host tensor has different shape or distribution than the device tensor", "tensor.cpu()")
    host_tensor.rebind(device_tensor.full_array().reshape(host_tensor.grid.shape + host_tensor.shard_shape))


def _full(shape: tuple[int, ...], one: np.ndarray) -> np.ndarray:
    zero = one.tobytes() == bytes(one.nbytes)  # not so for -0.0
    return np.zeros(shape, one.dtype) if zero else np.full(shape, one, one.dtype)  # zeros take host memory when they are touched


def _filled(shape: Sequence[int], value: float, dtype: Any, layout: Any, device: Any, memory_config: Any, asked: object) -> Tensor:
    shape = integers(shape, asked, 0)
    dtype, layout = dtype or DataType.BFLOAT16, layout or Layout.ROW_MAJOR
    if dtype in dtypes.BLOCK_FLOATS:
        layout = Layout.TILE
    for given, kind in ((dtype, DataType), (layout, Layout)):
        if not isinstance(given, kind):
            fail(asked, f"incompatible function arguments: {given!r} is not a {kind.__name__}", kind=TypeError)
    grid, topology = grid_over((1, 1)), LONE
    if device is not None:
        device.check_open(asked)
        _, grid, topology = replicate_tensor_to_mesh_mapper(device).place(np.zeros(()), asked)
    lead = (1,) * len(grid.shape)
    one = dtypes.convert(
        np.full((), value, np.float64 if isinstance(value, float) else np.int64).astype(np.float32 if dtype in dtypes.FLOATS else np.int64), dtype
    )
    return new_tensor(None, dtype, layout, grid, topology, device, memory_config, shape=shape, make=lambda: _full(lead + shape, one))


@operation("zeros")
def zeros(shape: Sequence[int], dtype: Any = None, layout: Any = None, device: Any = None, memory_config: Any = None) -> Tensor:
    """Zeros, the same on every device; bfloat16 and row-major unless said otherwise."""
    return _filled(shape, 0.0, dtype, layout, device, memory_config, f"zeros({shape})")


@operation("ones")
def ones(shape: Sequence[int], dtype: Any = None, layout: Any = None, device: Any = None, memory_config: Any = None) -> Tensor:
    """Ones, the same on every device; bfloat16 and row-major unless said otherwise."""
    return _filled(shape, 1.0, dtype, layout, device, memory_config, f"ones({shape})")


@operation("full")
def full(
    shape: Sequence[int], fill_value: float, dtype: Any = None, layout: Any = None, device: Any = None, memory_config: Any = None, optional_tensor: Any = None
) -> Tensor:
    """One value everywhere, the same on every device."""
    if isinstance(fill_value, bool) or not isinstance(fill_value, (int, float, np.number)):
        fail(f"full({shape}, {fill_value!r})", "incompatible function arguments: fill_value must be a number", kind=TypeError)
    made = _filled(shape, fill_value, dtype, layout, device, memory_config, f"full({shape})")
    return made if optional_tensor is None else _into(optional_tensor, made)


def _into(target: Tensor, made: Tensor) -> Tensor:
    target.rebind(dtypes.convert(made.array, target.dtype).reshape((1,) * len(target.grid.shape) + target.shard_shape))
    return target


@operation("empty")
def empty(
    shape: Sequence[int],
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.ROW_MAJOR,
    device: Any = None,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
) -> Tensor:
    """A tensor whose values mean nothing; the simulator gives zeros."""
    asked = f"empty({shape})"
    if not isinstance(device, MeshDevice):
        fail(asked, f"incompatible function arguments: device={device!r} is not a MeshDevice", "empty(shape, device=mesh)", TypeError)
    if dtype in dtypes.BLOCK_FLOATS and layout is Layout.ROW_MAJOR:
        fail(asked, f"Only TILE layout is supported for {dtype.name} dtype!", "layout=ttnn.TILE_LAYOUT")
    made = _filled(shape, 0.0, dtype, layout, device, memory_config, asked)
    axes = len(tuple(device.shape))  # unlike zeros, it speaks of each axis of the mesh
    made.topology = TensorTopology(device.shape, [PlacementReplicate()] * axes, device.grid.coords)  # type: ignore[arg-type]
    return made


def _like(tensor: Tensor, value: float | None, dtype: Any, layout: Any, memory_config: Any, name: str) -> Tensor:
    if tensor.mesh is not None:
        on_mesh(name, tensor)
    dtype, layout = dtype or tensor.dtype, layout or tensor.layout
    lead = (1,) * len(tensor.grid.shape)
    one = dtypes.convert(np.array([value or 0], np.float32), dtype)[0]
    shape = tensor.shard_shape
    return new_tensor(None, dtype, layout, tensor.grid, tensor.topology, tensor.mesh, memory_config, shape=shape, make=lambda: _full(lead + shape, one))


@operation("zeros_like")
def zeros_like(tensor: Tensor, dtype: Any = None, layout: Any = None, device: Any = None, memory_config: Any = None, optional_tensor: Any = None) -> Tensor:
    """Zeros in the shape, type and place of `tensor`."""
    return _like(tensor, 0.0, dtype, layout, memory_config, "zeros_like")


@operation("ones_like")
def ones_like(tensor: Tensor, dtype: Any = None, layout: Any = None, device: Any = None, memory_config: Any = None, optional_tensor: Any = None) -> Tensor:
    """Ones in the shape, type and place of `tensor`."""
    return _like(tensor, 1.0, dtype, layout, memory_config, "ones_like")


@operation("full_like")
def full_like(
    tensor: Tensor, fill_value: float, dtype: Any = None, layout: Any = None, device: Any = None, memory_config: Any = None, optional_tensor: Any = None
) -> Tensor:
    """One value in the shape, type and place of `tensor`."""
    return _like(tensor, fill_value, dtype, layout, memory_config, "full_like")


@operation("empty_like")
def empty_like(tensor: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, memory_config: Any = None) -> Tensor:
    """A tensor like `tensor` whose values mean nothing; the simulator gives zeros."""
    return _like(tensor, 0.0, dtype, layout, memory_config, "empty_like")


_streams = np.random.SeedSequence(0)


def _random(shape: Any, device: Any, dtype: DataType, layout: Layout, memory_config: Any, seed: int | None, mapper: Any, draw: Any, asked: object) -> Tensor:
    global _streams
    shape = integers(shape, asked, 0)
    if not isinstance(device, MeshDevice):
        fail(asked, f"incompatible function arguments: {device!r} is not a MeshDevice", f"{str(asked).partition('(')[0]}(shape, mesh)", TypeError)
    if mapper is not None and not isinstance(mapper, CppTensorToMesh):
        mapper = create_mesh_mapper(device, mapper) if isinstance(mapper, MeshMapperConfig) else as_mapper(mapper, asked)
    if seed:
        generator = np.random.default_rng(seed)
    else:  # ttnn draws anew at each call when no seed is given
        (child,) = _streams.spawn(1)
        generator = np.random.default_rng(child)
    values = draw(generator, shape)
    return tensor_from(
        values.astype(np.float32),
        dtype,
        layout=layout,
        device=device,
        memory_config=memory_config,
        mesh_mapper=mapper or replicate_tensor_to_mesh_mapper(device),
        asked=asked,
    )


@operation("rand")
def rand(
    shape: Sequence[int],
    device: MeshDevice,
    *,
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.TILE,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
    low: float = 0.0,
    high: float = 1.0,
    seed: int = 0,
    mesh_mapper: Any = None,
) -> Tensor:
    """Uniform random numbers from `low` to `high`, the same on every device unless a mapper cuts them; seed 0 draws anew."""
    return _random(shape, device, dtype, layout, memory_config, seed, mesh_mapper, lambda g, s: g.uniform(low, high, s), f"rand({shape})")


@operation("randn")
def randn(
    shape: Sequence[int],
    device: MeshDevice,
    *,
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.TILE,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
    compute_kernel_config: Any = None,
    seed: int | None = None,
) -> Tensor:
    """Normal random numbers, the same on every device; no seed draws anew."""
    return _random(shape, device, dtype, layout, memory_config, seed, None, lambda g, s: g.standard_normal(s), f"randn({shape})")


@operation("arange")
def arange(
    start: int,
    end: int | None = None,
    step: int = 1,
    *,
    dtype: DataType = DataType.BFLOAT16,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
    layout: Layout = Layout.ROW_MAJOR,
) -> Tensor:
    """Whole numbers from `start` up to `end`, in steps; one argument counts from 0.

    Example:
        >>> arange(3).to_list()
        [0.0, 1.0, 2.0]
    """
    if end is None:
        start, end = 0, start
    first, last, by = (integer(v, "arange") for v in (start, end, step))
    if by == 0 or math.copysign(1, by) * (last - first) <= 0:
        fail(f"arange({first}, {last}, {by})", "Step must be nonzero and lead from start to end", "for example arange(0, 10, 2)")
    return tensor_from(np.arange(first, last, by, dtype=np.int32), dtype, layout=layout, device=device, memory_config=memory_config, asked="arange")


@checked("as_tensor")
def as_tensor(
    tensor: Any,
    dtype: DataType | None = None,
    *,
    layout: Layout | None = Layout.ROW_MAJOR,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    cache_file_name: Any = None,
    preprocess: Any = None,
    mesh_mapper: Any = None,
) -> Tensor | None:
    """`from_torch` after an optional `preprocess`; cache files are not kept by the simulator."""
    if cache_file_name is not None:
        fail("as_tensor", "the simulator keeps no cache files", "leave cache_file_name out")
    if dtype in dtypes.BLOCK_FLOATS:
        layout = Layout.TILE
    return from_torch(preprocess(tensor) if preprocess else tensor, dtype, layout=layout, device=device, memory_config=memory_config, mesh_mapper=mesh_mapper)


@checked("is_tensor_storage_on_device")
def is_tensor_storage_on_device(tensor: Tensor) -> bool:
    """True where the tensor lies on a mesh and has its memory."""
    return tensor.mesh is not None and tensor.is_allocated()


__all__ = ["TensorTopology", "older_form"]

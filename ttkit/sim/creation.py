"""Tensors from and to NumPy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import checked, describe
from ttkit.sim.dispatch import operation
from ttkit.sim.distribution import as_composer, as_mapper, replicate_tensor_to_mesh_mapper
from ttkit.sim.enums import DataType, Layout, MemoryConfig
from ttkit.sim.mesh import Grid, MeshDevice, grid_over, restricted
from ttkit.sim.tensor import LONE, Tensor, new_tensor
from ttkit.sim.types import (
    MeshCoordinate,
    MeshCoordinateRange,
    MeshShape,
    TensorTopology,
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
    data: Any, dtype: DataType | None = None, *, layout: Layout | None = None, device: MeshDevice | None = None, memory_config: MemoryConfig | None = None,
    mesh_mapper: Any = None, asked: object = "from_torch",
) -> Tensor:  # fmt: skip
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
        there = on_device(device, grid, asked)
        cut, grid = moved_over(cut, grid, there, asked), there
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


def on_device(device: MeshDevice, grid: Any, asked: object) -> Any:
    """The same chips as part of `device`, which must have them all."""
    shape = tuple(device.shape)
    for coordinate in grid.covers if grid.mesh_shape != shape else ():
        if len(coordinate) != len(shape) or any(c >= n for c, n in zip(coordinate, shape, strict=True)):
            fail(asked, f"Coordinate {MeshCoordinate(coordinate)!r} not found in mesh {device!r}", "a mapper made for this mesh")
    return grid_over(shape, grid.covers, device.owners)


def moved_over(array: np.ndarray, have: Grid, want: Grid, asked: object) -> np.ndarray:
    """An array over the chips of one grid as one over the same chips of a device; the values of all that are ours must be there."""
    if have is want:
        return array
    missing = set(want.coords) - set(have.coords)
    if missing:
        fail(asked, f"the values for the chips at {sorted(missing)} are on another rank", "a mapper made for this mesh")
    if len(have.shape) != len(want.shape) and have.coords == want.coords:
        return np.broadcast_to(array, have.shape + array.shape[len(have.shape) :]).reshape(want.shape + array.shape[len(have.shape) :])
    return restricted(array, have, want)


@operation("from_torch")
def from_torch(
    tensor: Any, dtype: DataType | None = None, *, spec: Any = None, tile: Any = None, pad_value: float | None = None, layout: Layout | None = None,
    device: MeshDevice | None = None, memory_config: MemoryConfig | None = None, mesh_mapper: Any = None, cq_id: int | None = None,
    preserve_nan_values: bool = False, col_tilize: bool = False, enable_bfloat_opt: bool = False,
) -> Tensor | None:  # fmt: skip
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
        return np.array(joined, order="C") if np.may_share_memory(joined, array) or not joined.flags.writeable else joined
    if tensor.grid.size != 1:
        rule = f"Can't convert a tensor distributed on {MeshShape(tensor.grid.mesh_shape)!r} mesh to row-major logical tensor."
        rule += " Supply a mesh composer to concatenate multi-device shards."
        far = tensor.grid.owner_of(tensor.grid.covers[0]) if not tensor.grid.size else None
        fail(asked, rule, "mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0)" if far is None else f"host rank {far} has these values: read them there")
    return np.array(array.reshape(tensor.shard_shape), order="C")


def to_torch(
    tensor: Tensor, dtype: Any = None, *, torch_rank: int | None = None, mesh_composer: Any = None, device: MeshDevice | None = None,
    cq_id: int | None = None,
) -> Any:  # fmt: skip
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


@checked("as_tensor")
def as_tensor(
    tensor: Any, dtype: DataType | None = None, *, layout: Layout | None = Layout.ROW_MAJOR, device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None, cache_file_name: Any = None, preprocess: Any = None, mesh_mapper: Any = None,
) -> Tensor | None:  # fmt: skip
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

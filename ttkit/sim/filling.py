"""Tensors made of a rule: one value everywhere, random ones, ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.creation import tensor_from
from ttkit.sim.dispatch import on_mesh, operation
from ttkit.sim.distribution import CppTensorToMesh, as_mapper, create_mesh_mapper, replicate_tensor_to_mesh_mapper
from ttkit.sim.enums import DRAM_MEMORY_CONFIG, DataType, Layout, MemoryConfig
from ttkit.sim.mesh import MeshDevice, grid_over
from ttkit.sim.tensor import LONE, Tensor, new_tensor
from ttkit.sim.types import (
    MeshMapperConfig,
    PlacementReplicate,
    TensorTopology,
    integer,
    integers,
)


def _full(shape: tuple[int, ...], one: np.ndarray) -> np.ndarray:
    zero = one.tobytes() == bytes(one.nbytes)  # not so for -0.0
    return np.zeros(shape, one.dtype) if zero else np.full(shape, one, one.dtype)  # zeros take host memory when they are touched


def _one(value: float, dtype: DataType) -> np.ndarray:
    """One number as `dtype` keeps it; whole numbers do not go through float32, which would round the large ones."""
    whole = isinstance(value, (int, np.integer))
    return dtypes.convert(np.full((), value, np.int64 if whole else np.float64).astype(np.float32 if dtype in dtypes.FLOATS else np.int64), dtype)


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
    one = _one(value, dtype)
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
    """One value everywhere, the same on every device; an `optional_tensor` is filled as it is."""
    if isinstance(fill_value, bool) or not isinstance(fill_value, (int, float, np.number)):
        fail(f"full({shape}, {fill_value!r})", "incompatible function arguments: fill_value must be a number", kind=TypeError)
    if optional_tensor is not None:
        return _into(optional_tensor, fill_value, "full")
    return _filled(shape, fill_value, dtype, layout, device, memory_config, f"full({shape})")


def _into(target: Tensor, value: float, name: str) -> Tensor:
    """One value everywhere in a tensor that is there already, which keeps its shape and type, whatever else was asked."""
    on_mesh(name, target)
    target.rebind(_full((1,) * len(target.grid.shape) + target.shard_shape, _one(value, target.dtype)))
    return target


@operation("empty")
def empty(
    shape: Sequence[int], dtype: DataType = DataType.BFLOAT16, layout: Layout = Layout.ROW_MAJOR, device: Any = None,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
) -> Tensor:  # fmt: skip
    """A tensor whose values mean nothing; the simulator gives zeros."""
    asked = f"empty({shape})"
    if not isinstance(device, MeshDevice):
        fail(asked, f"incompatible function arguments: device={device!r} is not a MeshDevice", "empty(shape, device=mesh)", TypeError)
    if dtype in dtypes.BLOCK_FLOATS and layout is Layout.ROW_MAJOR:
        fail(asked, f"Only TILE layout is supported for {dtype.name} dtype!", "layout=ttnn.TILE_LAYOUT")
    made = _filled(shape, 0.0, dtype, layout, device, memory_config, asked)
    axes = len(tuple(device.shape))  # unlike zeros, it speaks of each axis of the mesh
    made.topology = TensorTopology(device.shape, [PlacementReplicate()] * axes, device.grid.covers)  # type: ignore[arg-type]
    return made


def _like(tensor: Tensor, value: float, dtype: Any, layout: Any, device: Any, memory_config: Any, name: str, target: Tensor | None = None) -> Tensor:
    if target is not None:
        return _into(target, value, name)
    if tensor.mesh is not None:
        on_mesh(name, tensor)
    dtype, layout, shape = dtype or tensor.dtype, layout or tensor.layout, tensor.shard_shape
    if device is not None and device is not tensor.mesh:
        return _filled(shape, value, dtype, layout, device, memory_config, describe(name, (tensor, device)))
    lead, one = (1,) * len(tensor.grid.shape), _one(value, dtype)
    return new_tensor(None, dtype, layout, tensor.grid, tensor.topology, tensor.mesh, memory_config, shape=shape, make=lambda: _full(lead + shape, one))


@operation("zeros_like")
def zeros_like(tensor: Tensor, dtype: Any = None, layout: Any = None, device: Any = None, memory_config: Any = None, optional_tensor: Any = None) -> Tensor:
    """Zeros in the shape, type and place of `tensor`."""
    return _like(tensor, 0.0, dtype, layout, device, memory_config, "zeros_like", optional_tensor)


@operation("ones_like")
def ones_like(tensor: Tensor, dtype: Any = None, layout: Any = None, device: Any = None, memory_config: Any = None, optional_tensor: Any = None) -> Tensor:
    """Ones in the shape, type and place of `tensor`."""
    return _like(tensor, 1.0, dtype, layout, device, memory_config, "ones_like", optional_tensor)


@operation("full_like")
def full_like(
    tensor: Tensor, fill_value: float, dtype: Any = None, layout: Any = None, device: Any = None, memory_config: Any = None, optional_tensor: Any = None
) -> Tensor:
    """One value in the shape, type and place of `tensor`."""
    return _like(tensor, fill_value, dtype, layout, device, memory_config, "full_like", optional_tensor)


@operation("empty_like")
def empty_like(tensor: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, memory_config: Any = None) -> Tensor:
    """A tensor like `tensor` whose values mean nothing; the simulator gives zeros."""
    return _like(tensor, 0.0, dtype, layout, device, memory_config, "empty_like")


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
    shape: Sequence[int], device: MeshDevice, *, dtype: DataType = DataType.BFLOAT16, layout: Layout = Layout.TILE,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG, low: float = 0.0, high: float = 1.0, seed: int = 0, mesh_mapper: Any = None,
) -> Tensor:  # fmt: skip
    """Uniform random numbers from `low` to `high`, the same on every device unless a mapper cuts them; seed 0 draws anew."""
    return _random(shape, device, dtype, layout, memory_config, seed, mesh_mapper, lambda g, s: g.uniform(low, high, s), f"rand({shape})")


@operation("randn")
def randn(
    shape: Sequence[int], device: MeshDevice, *, dtype: DataType = DataType.BFLOAT16, layout: Layout = Layout.TILE,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG, compute_kernel_config: Any = None, seed: int | None = None,
) -> Tensor:  # fmt: skip
    """Normal random numbers, the same on every device; no seed draws anew."""
    return _random(shape, device, dtype, layout, memory_config, seed, None, lambda g, s: g.standard_normal(s), f"randn({shape})")


@operation("arange")
def arange(
    start: int, end: int | None = None, step: int = 1, *, dtype: DataType = DataType.BFLOAT16, device: MeshDevice | None = None,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG, layout: Layout = Layout.ROW_MAJOR,
) -> Tensor:  # fmt: skip
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

"""Tensors made of a rule: one value everywhere, or random ones; and elements dropped at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.creation import tensor_from
from ttkit.sim.distribution import (
    CppTensorToMesh,
    as_mapper,
    create_mesh_mapper,
    replicate_tensor_to_mesh_mapper,
)
from ttkit.sim.enums import DRAM_MEMORY_CONFIG, DataType, Layout, MemoryConfig
from ttkit.sim.grid import SINGLE, TensorTopology
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.operation import on_mesh, operation, result
from ttkit.sim.tensor import LONE, Tensor, new_tensor
from ttkit.sim.types import MeshMapperConfig, PlacementReplicate, integer, integers

Shape = Sequence[int]


def _full(shape: tuple[int, ...], one: np.ndarray) -> np.ndarray:
    zero = one.tobytes() == bytes(one.nbytes)  # not so for -0.0
    # Zeros take host memory when they are touched.
    return np.zeros(shape, one.dtype) if zero else np.full(shape, one, one.dtype)


def _one(value: float, dtype: DataType) -> np.ndarray:
    """One number as `dtype` keeps it; large whole numbers do not go through float32."""
    given = np.full((), value, np.int64 if isinstance(value, (int, np.integer)) else np.float64)
    return dtypes.convert(given.astype(np.float32 if dtype in dtypes.FLOATS else np.int64), dtype)


def _filled(
    name: str,
    shape: Shape,
    value: float,
    dtype: DataType | None,
    layout: Layout | None,
    device: MeshDevice | None,
    memory_config: Any,
) -> Tensor:
    asked = describe(name, (shape,))
    shape = integers(shape, asked, 0)
    dtype, layout = dtype or DataType.BFLOAT16, layout or Layout.ROW_MAJOR
    if dtype in dtypes.BLOCK_FLOATS:
        layout = Layout.TILE
    grid, topology = SINGLE, LONE
    if device is not None:
        device.check_open(asked)
        _, grid, topology = replicate_tensor_to_mesh_mapper(device).place(np.zeros(()), asked)
    lead, one = (1,) * len(grid.shape), _one(value, dtype)
    make = lambda: _full(lead + shape, one)  # noqa: E731
    return new_tensor(
        None, dtype, layout, grid, topology, device, memory_config, shape=shape, make=make
    )


def _like(
    name: str,
    tensor: Tensor,
    value: float,
    dtype: DataType | None,
    layout: Layout | None,
    device: MeshDevice | None,
    memory_config: Any,
) -> Tensor:
    if tensor.mesh is not None:
        on_mesh(name, tensor)
    dtype, layout, shape = dtype or tensor.dtype, layout or tensor.layout, tensor.shard_shape
    if device is not None and device is not tensor.mesh:
        return _filled(name, shape, value, dtype, layout, device, memory_config)
    grid, topology, mesh = tensor.grid, tensor.topology, tensor.mesh
    lead, one = (1,) * len(grid.shape), _one(value, dtype)
    make = lambda: _full(lead + shape, one)  # noqa: E731
    return new_tensor(
        None, dtype, layout, grid, topology, mesh, memory_config, shape=shape, make=make
    )


def _into(name: str, target: Tensor, value: float) -> Tensor:
    """One value everywhere in a tensor that is there, which keeps its shape and type."""
    on_mesh(name, target)
    shape = (1,) * len(target.grid.shape) + target.shard_shape
    target.rebind(_full(shape, _one(value, target.dtype)))
    return target


def _enter(name: str, value: float) -> None:
    """Two operations: one that takes a shape, and one that takes a tensor like it."""

    def call(
        shape: Shape,
        dtype: DataType | None = None,
        layout: Layout | None = None,
        device: MeshDevice | None = None,
        memory_config: MemoryConfig | None = None,
    ) -> Tensor:
        return _filled(name, shape, value, dtype, layout, device, memory_config)

    def like(
        tensor: Tensor,
        dtype: DataType | None = None,
        layout: Layout | None = None,
        device: MeshDevice | None = None,
        memory_config: MemoryConfig | None = None,
        optional_tensor: Tensor | None = None,
    ) -> Tensor:
        if optional_tensor is not None:
            return _into(f"{name}_like", optional_tensor, value)
        return _like(f"{name}_like", tensor, value, dtype, layout, device, memory_config)

    call.__name__, call.__doc__ = name, f"Return {name}, the same on every device."
    like.__name__ = f"{name}_like"
    like.__doc__ = f"Return {name} in the shape, type and place of `tensor`."
    operation(name, "write")(call)
    operation(f"{name}_like", "arrange")(like)


_enter("zeros", 0.0)
_enter("ones", 1.0)


@operation("full", "write")
def full(
    shape: Shape,
    fill_value: float,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    optional_tensor: Tensor | None = None,
) -> Tensor:
    """Return one value everywhere, the same on every device.

    An `optional_tensor` is filled as it is.
    """
    if isinstance(fill_value, bool):
        rule = "incompatible function arguments: fill_value must be a number"
        fail(f"full({shape}, {fill_value!r})", rule, "1.0", TypeError)
    if optional_tensor is not None:
        return _into("full", optional_tensor, fill_value)
    return _filled("full", shape, fill_value, dtype, layout, device, memory_config)


@operation("full_like", "arrange")
def full_like(
    tensor: Tensor,
    fill_value: float,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    optional_tensor: Tensor | None = None,
) -> Tensor:
    """Return one value in the shape, type and place of `tensor`."""
    if optional_tensor is not None:
        return _into("full_like", optional_tensor, fill_value)
    return _like("full_like", tensor, fill_value, dtype, layout, device, memory_config)


@operation("empty_like", "arrange", moves="none", hints="memory_config")
def empty_like(
    tensor: Tensor,
    *,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
) -> Tensor:
    """Return a tensor like `tensor` whose values mean nothing; the simulator gives zeros."""
    return _like("empty_like", tensor, 0.0, dtype, layout, device, None)


@operation("empty", "arrange", moves="none")
def empty(
    shape: Shape,
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.ROW_MAJOR,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
) -> Tensor:
    """Return a tensor whose values mean nothing; the simulator gives zeros."""
    asked = describe("empty", (shape,))
    if device is None:
        rule = "incompatible function arguments: device=None is not a MeshDevice"
        fail(asked, rule, "empty(shape, device=mesh)", TypeError)
    if dtype in dtypes.BLOCK_FLOATS and layout is Layout.ROW_MAJOR:
        rule = f"Only TILE layout is supported for {dtype.name} dtype!"
        fail(asked, rule, "layout=ttnn.TILE_LAYOUT")
    made = _filled("empty", shape, 0.0, dtype, layout, device, memory_config)
    copies = [PlacementReplicate()] * device.shape.dims()
    # Unlike zeros, ttnn names each axis of the mesh.
    made.topology = TensorTopology(device.shape, copies, device.grid.covers)
    return made


@operation("arange", "write")
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
    """Return the whole numbers from `start` up to `end`, in steps; one argument counts from 0.

    Example:
        >>> arange(3).to_list()
        [0.0, 1.0, 2.0]
    """
    if end is None:
        start, end = 0, start
    first, last, by = (integer(number, "arange") for number in (start, end, step))
    if by == 0 or (last - first) * by <= 0:
        rule = "Step must be nonzero and lead from start to end"
        fail(f"arange({first}, {last}, {by})", rule, "for example arange(0, 10, 2)")
    how: Any = {"layout": layout, "device": device, "memory_config": memory_config}
    return tensor_from(np.arange(first, last, by, dtype=np.int32), dtype, asked="arange", **how)


_streams = np.random.SeedSequence(0)


def _random(
    name: str, shape: Shape, seed: int | None, draw: Any, mapper: Any, **how: Any
) -> Tensor:
    global _streams
    asked = describe(name, (shape,))
    size, device = integers(shape, asked, 0), how["device"]
    if isinstance(mapper, MeshMapperConfig):
        mapper = create_mesh_mapper(device, mapper)
    elif mapper is not None and not isinstance(mapper, CppTensorToMesh):
        mapper = as_mapper(mapper, asked)
    if seed:
        generator = np.random.default_rng(seed)
    else:  # ttnn draws anew at each call when no seed is given
        (child,) = _streams.spawn(1)
        generator = np.random.default_rng(child)
    values = draw(generator, size).astype(np.float32)
    mapper = mapper or replicate_tensor_to_mesh_mapper(device)
    return tensor_from(values, mesh_mapper=mapper, asked=asked, **how)


@operation("rand", "arrange")
def rand(
    shape: Shape,
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
    """Return uniform random numbers from `low` to `high`; seed 0 draws anew.

    They are the same on every device unless a mapper cuts them.
    """
    draw = lambda generator, size: generator.uniform(low, high, size)  # noqa: E731
    how = {"dtype": dtype, "layout": layout, "device": device, "memory_config": memory_config}
    return _random("rand", shape, seed, draw, mesh_mapper, **how)


@operation("randn", "arrange", hints="compute_kernel_config")
def randn(
    shape: Shape,
    device: MeshDevice,
    *,
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.TILE,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
    seed: int | None = None,
) -> Tensor:
    """Return normal random numbers, the same on every device; no seed draws anew."""
    draw = lambda generator, size: generator.standard_normal(size)  # noqa: E731
    how = {"dtype": dtype, "layout": layout, "device": device, "memory_config": memory_config}
    return _random("randn", shape, seed, draw, None, **how)


@operation("experimental.dropout", hints="memory_config")
def dropout(
    input_tensor: Tensor,
    probability: float,
    scale: float,
    seed: int,
    *,
    use_per_device_seed: bool = True,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return zeros with the given probability, the other elements times `scale`.

    One seed always drops the same places.

    Args:
        use_per_device_seed: each chip drops other places; without it all chips drop the same.
    """
    on_mesh("dropout", input_tensor)
    asked = describe("dropout", (input_tensor, probability, scale, seed))
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        rule = f"incompatible function arguments: seed {seed!r} is not a whole number from 0 on"
        fail(asked, rule, kind=TypeError)
    if input_tensor.dtype is not DataType.BFLOAT16:
        rule = "Dropout operation requires input and output data types to match. Input data"
        rule += f" type: {input_tensor.dtype.name}, output data type: BFLOAT16"
        fail(asked, rule, "ttnn.typecast(tensor, ttnn.bfloat16)")
    if input_tensor.layout is not Layout.TILE:
        rule = "Dropout operation requires tensor to be in Tile layout when working with"
        rule += " non-sharded input tensor"
        fail(asked, rule, "ttnn.to_layout")
    grid, shape = input_tensor.grid, input_tensor.shard_shape
    chips = [grid.covers.index(c) for c in grid.coords] if use_per_device_seed else [0]
    kept = np.array(
        [
            np.random.default_rng([int(seed), chip]).random(shape, np.float32)
            >= np.float32(probability)
            for chip in chips
        ],
        bool,
    )
    kept = kept.reshape((grid.shape if use_per_device_seed else (1,) * len(grid.shape)) + shape)
    return result(
        input_tensor,
        np.where(kept, input_tensor.array * np.float32(scale), np.float32(0)),
        output=output_tensor,
    )

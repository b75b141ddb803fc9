"""Make tensors by a rule: one value everywhere, whole numbers in order, random values.

This module also has `dropout`.
"""

import math
from functools import partial

import numpy as np

from ttkit.sim.mesh import MeshDevice
from ttkit.sim.ops import checked, on_mesh, operation, result
from ttkit.sim.tensor import DataType, Layout, PlacementReplicate, TensorTopology, dtypes, integers
from ttkit.sim.tensor.absent import Lengths, absent
from ttkit.sim.tensor.creation import from_torch
from ttkit.sim.tensor.distribution import replicate_tensor_to_mesh_mapper
from ttkit.sim.tensor.grid import SINGLE
from ttkit.sim.tensor.sharding import MemoryConfig, TensorSpec
from ttkit.sim.tensor.tensor import LONE, Tensor, new_tensor


def _filled(
    shape: Lengths,
    fill_value: float,
    *,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
) -> Tensor:
    """Return a tensor with one value everywhere, the same on every device."""
    grid, topology = SINGLE, LONE
    if device is not None:
        device.check_open()
        _, grid, topology = replicate_tensor_to_mesh_mapper(device).place(np.zeros(()))
    dtype = dtype or DataType.BFLOAT16
    layout = layout or Layout.ROW_MAJOR
    return _made(integers(shape, None, 0), fill_value, dtype, layout, grid, topology, device)


def _filled_like(
    tensor: Tensor,
    fill_value: float,
    *,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
) -> Tensor:
    """Return a tensor with one value everywhere, in the shape, type and place of `tensor`."""
    if tensor.mesh is not None:
        on_mesh(tensor)
    dtype = dtype or tensor.dtype
    layout = layout or tensor.layout
    shape = tensor.shard_shape
    if device is not None and device is not tensor.mesh:
        return _filled(shape, fill_value, dtype=dtype, layout=layout, device=device)
    return _made(shape, fill_value, dtype, layout, tensor.grid, tensor.topology, tensor.mesh)


def _made(shape, value: float, dtype: DataType, layout: Layout, grid, topology, mesh) -> Tensor:
    """Return a tensor with one value everywhere; whole numbers are not converted to float32."""
    if dtype in dtypes.BLOCK_FLOATS:
        layout = Layout.TILE
    made = new_tensor(None, dtype, layout, grid, topology, mesh, shape=shape)
    shape = (1,) * grid.lead + shape
    if mesh is not None and not mesh.has_values:
        made.rebind(absent(shape, dtypes.numpy_dtype(dtype)))
        return made
    given = np.asarray(value).astype(np.float32 if dtype in dtypes.FLOATS else np.int64)
    one = dtypes.convert(given, dtype)
    zero = one.tobytes() == bytes(one.nbytes)  # This is False for -0.0, whose sign bit is set.
    # The pages of `np.zeros` take host memory only when they are first used.
    made.rebind(np.zeros(shape, one.dtype) if zero else np.full(shape, one, one.dtype))
    return made


def _register(name: str, value: float, what: str, moves="all") -> None:
    """Enter two operations: `name` takes a shape, and `name_like` takes a tensor, for its shape."""

    make, like = (partial(function, fill_value=value) for function in (_filled, _filled_like))
    make.__doc__ = f"Return {what}, the same on every device."
    like.__doc__ = f"Return {what}, in the shape, type and place of `tensor`."
    operation(name, "write" if moves == "all" else "arrange", moves=moves)(make)
    operation(f"{name}_like", "arrange", moves=moves)(like)


_register("zeros", 0.0, "zeros")
_register("ones", 1.0, "ones")
_register("empty", 0.0, "a tensor of arbitrary values; the simulator gives zeros", "none")
full = operation("full", "write")(_filled)
full_like = operation("full_like", "arrange")(_filled_like)


@checked
def allocate_tensor_on_device(
    shape,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    *,
    mesh_device: MeshDevice,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Return a tensor on every chip; its values are zeros here, and arbitrary on a card.

    Args:
        shape: the shape of a shard; or a tensor's `spec`, which gives type, layout and memory, too.
    """
    if isinstance(shape, TensorSpec):
        shape, dtype, layout, memory_config = shape
    made = full(  # type: ignore[call-arg]
        shape, 0, dtype=dtype, layout=layout, device=mesh_device, memory_config=memory_config
    )
    over = mesh_device.shape
    made.topology = TensorTopology(
        over, [PlacementReplicate()] * over.dims(), mesh_device.grid.covers
    )
    return made


@operation("arange", "write")
def arange(
    start: int = 0,
    end: int = 0,
    step: int = 1,
    *,
    dtype: DataType = DataType.BFLOAT16,
    device: MeshDevice | None = None,
    layout: Layout = Layout.ROW_MAJOR,
) -> Tensor:
    """Return whole numbers from `start` to before `end`, in steps; a single argument is `end`.

    Example:
        >>> arange(3).to_list()
        [0.0, 1.0, 2.0]
    """
    values = np.arange(start, end, step, dtype=np.int32)
    return from_torch(values, dtype, layout=layout, device=device)  # type: ignore[no-any-return]


_streams = np.random.SeedSequence(0)


@operation("rand", "arrange")
def rand(
    shape: Lengths,
    device: MeshDevice,
    *,
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.TILE,
    low: float = 0.0,
    high: float = 1.0,
    seed: int = 0,
    mesh_mapper=None,
) -> Tensor:
    """Return uniform random numbers from `low` to `high`; with seed 0 each call draws new numbers.

    The numbers are the same on every device unless a mapper shards them.
    """
    generator = np.random.default_rng(seed or _streams.spawn(1)[0])
    values = generator.uniform(low, high, tuple(shape)).astype(np.float32)
    mapper = mesh_mapper or replicate_tensor_to_mesh_mapper(device)
    made = from_torch(values, dtype, layout=layout, device=device, mesh_mapper=mapper)
    return made  # type: ignore[no-any-return]


@operation("experimental.dropout")
def dropout(
    input_tensor: Tensor,
    probability: float,
    scale: float,
    seed: int,
    *,
    use_per_device_seed: bool = True,
) -> Tensor:
    """Set each element to zero with the given probability, and multiply the others by `scale`.

    The same seed always drops the same places.

    Args:
        use_per_device_seed: whether each chip drops different places; if not, all drop the same.
    """
    on_mesh(input_tensor)
    if not input_tensor.mesh.has_values:
        return result(input_tensor, input_tensor.array)
    grid = input_tensor.grid
    shape = input_tensor.shard_shape
    lead = grid.shape if use_per_device_seed else (1,) * grid.lead
    kept = np.empty((math.prod(lead), *shape), bool)
    for i, chip in enumerate(grid.coords[: len(kept)]):
        drawn = np.random.default_rng([seed, grid.covers.index(chip) * use_per_device_seed])
        kept[i] = drawn.random(shape, np.float32) >= np.float32(probability)
    scaled = input_tensor.array * np.float32(scale)
    return result(input_tensor, np.where(kept.reshape(lead + shape), scaled, np.float32(0)))

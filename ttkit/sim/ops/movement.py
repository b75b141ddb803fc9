"""Move tensors between host and mesh, change layout, type or memory, handle single shards."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.sim.arguments import refuse
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.ops import checked, in_whole_tiles, moved, on_mesh, operation, result, written
from ttkit.sim.ops.shaping import reshape, shards
from ttkit.sim.ranks import mpi
from ttkit.sim.tensor import (
    BufferType,
    DataType,
    Layout,
    MeshShape,
    PlacementShard,
    ShardOrientation,
    TensorMemoryLayout,
    TensorTopology,
    dtypes,
)
from ttkit.sim.tensor.creation import onto_device
from ttkit.sim.tensor.distribution import (
    CppMeshToTensor,
    CppTensorToMesh,
    replicate_tensor_to_mesh_mapper,
)
from ttkit.sim.tensor.dtypes import plane, shards_of
from ttkit.sim.tensor.grid import Grid, grid_over, restricted
from ttkit.sim.tensor.sharding import (
    DRAM_MEMORY_CONFIG,
    ROW_MAJOR,
    CoreRangeSet,
    MemoryConfig,
    ShardSpec,
    num_cores_to_corerangeset,
)
from ttkit.sim.tensor.tensor import LONE, Tensor, keep_in, new_tensor


# ---------------------------------------------------------------- host and mesh
@operation("to_device", "write")
def to_device(
    tensor: Tensor, device: MeshDevice, memory_config: MemoryConfig | None = None
) -> Tensor:
    """Return the tensor on a mesh; a host tensor that was not distributed goes to every chip."""
    device.check_open()
    if tensor.mesh is device:
        return tensor
    if tensor.mesh is not None:
        refuse(f"the tensor already lies on {tensor.mesh!r}", "ttnn.from_device(tensor) first")
    array, grid, topology = _placed(tensor, device)
    return new_tensor(array, tensor.dtype, tensor.layout, grid, topology, device, memory_config)


def _placed(tensor: Tensor, device: MeshDevice) -> tuple[Any, Grid, TensorTopology]:
    """Return a host tensor's array, grid and topology on a mesh, without memory on the chips."""
    if tensor.topology is LONE:
        everywhere = replicate_tensor_to_mesh_mapper(device)
        return everywhere.place(tensor._array.reshape(tensor.shard_shape))
    return *onto_device(device, tensor._array, tensor.grid), tensor.topology


@operation("from_device", "read")
def from_device(tensor: Tensor) -> Tensor:
    """Return the tensor on the host; its shards stay separate."""
    if tensor.mesh is None:
        return tensor
    on_mesh(tensor)
    made = new_tensor(tensor._array, tensor.dtype, tensor.layout, tensor.grid, tensor.topology)
    made.plain_memory_config = tensor.plain_memory_config
    return made


@operation("deallocate", "store", moves="none")
def deallocate(tensor: Tensor) -> None:
    """Give the chips' memory back; the tensor cannot be used any more."""
    tensor.deallocate()


@operation("copy_host_to_device_tensor", "write")
def copy_host_to_device_tensor(host_tensor: Tensor, device_tensor: Tensor) -> None:
    """Write a host tensor's values into a tensor on a mesh, such as a trace's input."""
    array, grid, topology = _placed(host_tensor, on_mesh(device_tensor))
    if host_tensor.spec[:3] != device_tensor.spec[:3] or grid is not device_tensor.grid:
        rule = "Host tensor has different shape, dtype, layout or chips than the device tensor"
        refuse(rule, "the same mapper, dtype and layout as the device tensor was made with")
    device_tensor.rebind(array)
    device_tensor.topology = topology


# ---------------------------------------------------------------- layout and type
def _stored(
    tensor: Tensor,
    dtype: DataType | None = None,
    config: MemoryConfig | None = None,
    *,
    layout: Layout | None = None,
    host: bool = False,
) -> Tensor:
    """Return the same values in another type, layout or memory.

    Args:
        host: the tensor may be on the host.
    """
    array, _ = shards(tensor, host)
    exact = dtype in (None, tensor.dtype)
    made = result(tensor, array, dtype=dtype, layout=layout, owned=False, exact=exact)
    if config:
        keep_in(made, config)
    return made


@operation("to_layout", "store")
def to_layout(tensor: Tensor, layout: Layout, dtype: DataType | None = None) -> Tensor:
    """Return the tensor in another layout, and in another type where one is given."""
    same_type = dtype in (None, tensor.dtype)
    if layout is tensor.layout and (same_type or tensor.mesh is not None):
        return tensor  # On a device, ttnn looks at `dtype` only when the layout changes.
    narrow = tensor.dtype in dtypes.BLOCK_FLOATS
    rows = layout is Layout.ROW_MAJOR
    if tensor.mesh is not None and rows and not same_type and not narrow:
        rule = "dtype cannot be different from tensor dtype when converting to ROW_MAJOR_LAYOUT on"
        refuse(f"{rule} device", "ttnn.typecast(tensor, dtype) first")
    if rows and (dtype or tensor.dtype) in dtypes.BLOCK_FLOATS:
        dtype = DataType.BFLOAT16  # Block floats exist only in tiles, so untilizing widens them.
    return _stored(tensor, dtype, layout=layout, host=True)


@operation("typecast experimental.typecast to_dtype", "store")
def typecast(input_tensor: Tensor, dtype: DataType) -> Tensor:
    """Return the same values in another element type."""
    layout = Layout.TILE if dtype in dtypes.BLOCK_FLOATS else None
    return _stored(input_tensor, dtype, layout=layout, host=True)


@operation("tilize tilize_with_zero_padding tilize_with_val_padding", "store")
def tilize(
    input_tensor: Tensor,
    output_tensor_shape: Sequence[int] = (),
    pad_value: float = 0.0,
    *,
    dtype: DataType | None = None,
    output_dtype: DataType | None = None,
) -> Tensor:
    """Return a row-major tensor in tiles; each of the three names takes ttnn's parameters.

    Args:
        output_tensor_shape, pad_value: accepted without effect, because padding has no values here.
        output_dtype: the name that tilize_with_zero_padding has for `dtype`.
    """
    return to_layout(input_tensor, Layout.TILE, dtype or output_dtype)


@operation("untilize", "store")
def untilize(input_tensor: Tensor) -> Tensor:
    """Return a tiled tensor in row-major layout."""
    return to_layout(input_tensor, Layout.ROW_MAJOR)


@operation("untilize_with_unpadding", "store", moves="part")
def untilize_with_unpadding(input_tensor: Tensor, output_tensor_end) -> Tensor:
    """Return the corner up to and including `output_tensor_end`, in row-major layout.

    Padding inside the corner is zero.
    """
    rows = untilize(input_tensor)
    kept: Any = (..., *(slice(end + 1) for end in output_tensor_end))
    return moved(rows, in_whole_tiles(rows.array)[kept])


# ---------------------------------------------------------------- copies and memory configurations
@operation("assign clone copy", "store")
def copied(
    input_tensor: Tensor, input_b: Tensor | None = None, *, dtype: DataType | None = None
) -> Tensor:
    """Return a copy in a buffer of its own, in another type where one is given.

    Args:
        input_b: a tensor that gets the values and is returned.
    """
    made = _stored(input_tensor, dtype)
    return made if input_b is None else written(made, input_b)


@operation("to_memory_config reshard", "store")
def to_memory_config(
    tensor: Tensor, memory_config: MemoryConfig, dtype: DataType | None = None
) -> Tensor:
    """Return the tensor in a memory configuration; a tensor that has it is returned unchanged."""
    if memory_config == tensor.plain_memory_config:
        return tensor
    return _stored(tensor, dtype, memory_config)


@operation("reallocate move", "store")
def reallocate(tensor: Tensor) -> Tensor:
    """Return the same values in a new buffer, and free the old buffer."""
    made = _stored(tensor)
    tensor.deallocate()
    return made


@operation("interleaved_to_sharded", "store")
def interleaved_to_sharded(
    input_tensor: Tensor,
    grid=None,
    shard_shape=None,
    shard_scheme: TensorMemoryLayout | None = None,
    shard_orientation: ShardOrientation | None = None,
    output_dtype: DataType | None = None,
    *,
    sharded_memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Shard an interleaved tensor over cores, one shard on each core.

    The arguments are `(tensor, grid, shard_shape, shard_scheme, shard_orientation, output_dtype)`,
    or `(tensor, sharded_memory_config, output_dtype)`.

    Args:
        grid: a `CoreRangeSet`; or the size of a grid, whose first cores are used.
    """
    config = sharded_memory_config
    if config is None:
        if not isinstance(grid, CoreRangeSet):
            cores = math.prod(shards_of(input_tensor.padded, shard_shape))
            grid = num_cores_to_corerangeset(cores, grid, shard_orientation is ROW_MAJOR)
        spec = ShardSpec(grid, shard_shape, shard_orientation)
        config = MemoryConfig(shard_scheme, BufferType.L1, spec)  # type: ignore[arg-type]
    return _stored(input_tensor, output_dtype, config)


@operation("sharded_to_interleaved", "store")
def sharded_to_interleaved(
    input_tensor: Tensor,
    memory_config: MemoryConfig | None = None,
    output_dtype: DataType | None = None,
) -> Tensor:
    """Return a sharded tensor interleaved over all banks, by default over those of DRAM."""
    if not input_tensor.is_sharded():
        # As in ttnn, an interleaved input is returned unchanged, whatever the other arguments are.
        return input_tensor
    return _stored(input_tensor, output_dtype, memory_config or DRAM_MEMORY_CONFIG)


def _rows(tensor: Tensor, num_slices: int, slice_index: int) -> slice:
    """Return the rows of one slice; rows are counted over all leading dimensions."""
    rows, rest = divmod(plane(tensor.padded)[0], num_slices)
    if rest:
        refuse(f"num_slices must divide the rows: {num_slices}")
    return slice(slice_index * rows, (slice_index + 1) * rows)


@operation("interleaved_to_sharded_partial", "store", moves="part")
def interleaved_to_sharded_partial(
    input_tensor: Tensor,
    grid,
    shard_shape,
    num_slices: int,
    slice_index: int,
    shard_scheme: TensorMemoryLayout,
    shard_orientation: ShardOrientation,
    *,
    output_dtype: DataType | None = None,
) -> Tensor:
    """Return one of several slices of the rows, [1, 1, rows, columns]; each core has one shard."""
    rows = _rows(input_tensor, num_slices, slice_index)
    part = reshape(input_tensor, [1, 1, *plane(input_tensor.padded)])[:, :, rows]
    return interleaved_to_sharded(
        part, grid, shard_shape, shard_scheme, shard_orientation, output_dtype
    )


@operation("sharded_to_interleaved_partial", "store", moves="part")
def sharded_to_interleaved_partial(
    input_tensor: Tensor, cache_tensor: Tensor, num_slices: int, slice_index: int
) -> Tensor:
    """Write a sharded tensor into one of several slices of the rows of `cache_tensor`."""
    rows = _rows(cache_tensor, num_slices, slice_index)
    whole = np.array(cache_tensor.full_array())
    *front, width = cache_tensor.shard_shape
    part = whole.reshape(*cache_tensor.grid.shape, math.prod(front), width)[..., rows, :]
    part[:] = input_tensor.full_array().reshape(part.shape)
    return written(result(cache_tensor, whole), cache_tensor)


# ---------------------------------------------------------------- the shards of single devices
@checked
def get_device_tensors(tensor: Tensor) -> list[Tensor]:
    """Return each device's shard as a tensor, in row-major order.

    Shards on devices share the memory of the tensor. Where ranks share the mesh, a host
    tensor's shards are gathered from all ranks, so every rank must call this function.
    Shards on devices are not sent: a shard of another rank has a shape here, but no
    values.
    """
    kind = tensor.dtype, tensor.layout
    if tensor.mesh is None:
        values, grid = mpi.everywhere(tensor, "get_device_tensors")
        whole = np.broadcast_to(values, grid.shape + tensor.shard_shape)
        return [new_tensor(whole[at][None, None], *kind) for at in np.ndindex(grid.shape)]
    result = []
    on_mesh(tensor)
    for coordinate in tensor.grid.covers:
        one = grid_over(tensor.grid.mesh_shape, (coordinate,), tensor.mesh.owners)
        part = new_tensor(restricted(tensor._array, tensor.grid, one), *kind, one, tensor.topology)
        part.mesh = tensor.mesh
        part._allocation = tensor._allocation
        part.plain_memory_config = tensor.plain_memory_config
        result.append(part)
    return result


@checked
def from_host_shards(tensors: Sequence[Tensor], mesh_shape: MeshShape) -> Tensor:
    """Distribute one host tensor for each device over `mesh_shape`, in row-major order."""
    have = len(tensors)
    size = mesh_shape.mesh_size()
    if have != size:
        rule = f"Number of tensor shards must match mesh size: {have} and {size}"
        refuse(rule, f"{size} tensors")
    return _combine(tensors, grid_over(tuple(mesh_shape)), None)


@checked
def combine_device_tensors(*, tensors: Sequence[Tensor]) -> Tensor:
    """Make one tensor out of tensors that each lie on one device of the same mesh."""
    mesh = on_mesh(*tensors)
    by_place = sorted(tensors, key=lambda t: t.grid.covers[0])
    coords = tuple(c for t in by_place for c in t.grid.covers)
    return _combine(by_place, grid_over(tuple(mesh.shape), coords, mesh.owners), mesh)


def _combine(tensors: Sequence[Tensor], grid: Grid, mesh: MeshDevice | None) -> Tensor:
    first = tensors[0]
    specs = [tensor.spec[:3] for tensor in tensors]
    if any(spec != specs[0] for spec in specs):
        rule = f"All tensor shards must have the same tensor spec, got {specs}"
        refuse(rule, "tensors of one shape, dtype and layout")
    shards = [t._lone() for t in tensors if t.grid.size]
    array = np.array(shards, first.array.dtype).reshape(grid.shape + first.shard_shape)
    # For shards on devices, ttnn's topology names one row of chips, wherever the shards are.
    places = grid.covers if mesh is None else [(0, i) for i in range(len(tensors))]
    topology = TensorTopology(MeshShape([len(places)]), [PlacementShard(0)], places)
    return new_tensor(array, first.dtype, first.layout, grid, topology, mesh)


@checked
def distribute_tensor(
    tensor: Tensor, mapper: CppTensorToMesh, mesh_device: MeshDevice | None = None
) -> Tensor:
    """Distribute a host tensor as `mapper` says, and put it on `mesh_device` where one is given."""
    if tensor.mesh is not None:
        rule = "TensorToMesh only supports host tensors; got storage type StorageType::DEVICE"
        refuse(rule, "tensor.cpu() first")
    array, grid, topology = mapper.place(np.ascontiguousarray(tensor._lone()))
    placed = new_tensor(array, tensor.dtype, tensor.layout, grid, topology)
    return placed if mesh_device is None else to_device(placed, mesh_device)


@checked
def aggregate_tensor(tensor: Tensor, composer: CppMeshToTensor) -> Tensor:
    """Join the shards of a tensor into one host tensor."""
    return new_tensor(composer.join(tensor)[None, None], tensor.dtype, tensor.layout)


# ---------------------------------------------------------------- methods of a tensor
def _to(
    tensor: Tensor, device: MeshDevice | Layout, mem_config: MemoryConfig | None = None, cq_id=None
) -> Tensor:
    """Return the tensor on a mesh, or in another layout."""
    if isinstance(device, Layout):
        return to_layout(tensor, device)
    return to_device(tensor, device, mem_config)


Tensor.to, Tensor.cpu = _to, from_device


@operation("dram_prefetcher", "arrange", moves="none")
def dram_prefetcher(tensors: list[Tensor], num_layers, global_cb=None) -> Tensor:
    """Return the last tensor. Nothing is fetched, because a matmul here reads its own weights."""
    return tensors[-1]

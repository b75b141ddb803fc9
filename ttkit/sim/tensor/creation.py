"""Tensors from and to NumPy and torch."""

import io
import math
import zlib
from ast import literal_eval
from pathlib import Path

import numpy as np

from ttkit.errors import fail, warn
from ttkit.files import write_whole
from ttkit.sim.arguments import describe, refuse
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.ops import Array, checked, operation
from ttkit.sim.ranks import mpi
from ttkit.sim.tensor import DataType, Layout, MeshCoordinate, MeshShape, TensorTopology, dtypes
from ttkit.sim.tensor.absent import absent
from ttkit.sim.tensor.distribution import (
    CppMeshToTensor,
    CppTensorToMesh,
    MeshMapperConfig,
    ReplicateTensorToMesh,
    chosen,
    replicate_tensor_to_mesh_mapper,
)
from ttkit.sim.tensor.grid import SINGLE, Grid, grid_over, is_inside, restricted
from ttkit.sim.tensor.sharding import MemoryConfig, TensorSpec
from ttkit.sim.tensor.tensor import LONE, Tensor, new_tensor

# If a call gives no dtype, ttnn chooses one by the host type, as `FROM_HOST` says. The host types
# in `ALIKE` have the same name in ttnn.
ALIKE = "float32 bfloat16 int32 int8 uint8 uint16 uint32"
FROM_HOST = {name: DataType[name.upper()] for name in ALIKE.split()} | {
    "float16": DataType.BFLOAT16,
    "int64": DataType.UINT32,
    "int16": DataType.UINT16,
    "bool": DataType.UINT8,
}


# ---------------------------------------------------------------- from the host
def _host_array(data) -> tuple[Array, str]:
    """Return a torch tensor or NumPy array as a NumPy array, and the name of its type."""
    if isinstance(data, np.ndarray):
        name, array = data.dtype.name, data
    elif type(data).__module__.partition(".")[0] == "torch" and hasattr(data, "detach"):
        name = str(data.dtype).removeprefix("torch.")
        data = data.detach().cpu()
        # NumPy has no bfloat16, so the array has two bytes for each value, as `dtypes.narrowed`
        # makes them.
        if name == "bfloat16":
            import torch

            array = data.view(torch.int16).numpy().view(dtypes.BITS)
        else:
            array = data.numpy()
    else:
        what = f"{type(data).__name__} is neither a torch tensor nor a NumPy array"
        rule = f"incompatible function arguments: {what}"
        refuse(rule, "torch.tensor(...) or np.array(...)", TypeError)
    if name not in FROM_HOST:
        rule = f"unsupported host type {name}; known: {', '.join(FROM_HOST)}"
        refuse(rule, "x.float() or x.astype(np.float32) first")
    return array, name


def onto_device(device: MeshDevice, array: Array, grid: Grid) -> tuple[Array, Grid]:
    """Return the values of the chips that this process drives on `device`, and their grid.

    The array is refused if it has values for a chip that `device` does not have.
    """
    shape = device._shape
    for coordinate in grid.covers if grid.mesh_shape != shape else ():
        if not is_inside(coordinate, shape):
            rule = f"Coordinate {MeshCoordinate(coordinate)!r} not found in mesh {device.shape!r}"
            refuse(rule, "a mapper made for this mesh")
    there = grid_over(shape, grid.covers, device.owners)
    return restricted(array, grid, there), there


@operation("from_torch", "write")
def from_torch(
    tensor,
    dtype: DataType | None = None,
    *,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    mesh_mapper=None,
    spec: TensorSpec | None = None,
):
    """Return a tensor with a copy of the values of a torch tensor or NumPy array; None gives None.

    Args:
        tensor: [any shape]; float64 is refused.
        mesh_mapper: how to cut the tensor over the mesh. Without a mapper, that of the `distribute`
            block is used; without such a block, every device gets the whole tensor.
        spec: a `TensorSpec`, which replaces dtype, layout and memory_config.

    Raises:
        TTKitError: the mapper cannot cut the shape, or the chips' memory is full.
    """
    if tensor is None:
        return None
    if spec is not None:
        dtype, layout, memory_config = spec[1:4]
    array, name = _host_array(tensor)
    dtype = dtype or FROM_HOST[name]
    if dtype in dtypes.BLOCK_FLOATS:
        if layout is Layout.ROW_MAJOR:
            rule = "Layout must be Layout::TILE for bfloat8_b or bfloat4_b!"
            refuse(rule, "layout=ttnn.TILE_LAYOUT")
        layout = Layout.TILE
    mapper = chosen(mesh_mapper, CppTensorToMesh)
    if device is not None:
        if not device.is_open:
            device.check_open()
        mapper = mapper or replicate_tensor_to_mesh_mapper(device)
    cut, grid, topology = mapper.place(array) if mapper else (array[None, None], SINGLE, LONE)
    if device is not None and grid is not device.grid:
        cut, grid = onto_device(device, cut, grid)
    place = grid, topology, device, memory_config
    made = new_tensor(None, dtype, layout or Layout.ROW_MAJOR, *place, shape=cut.shape[grid.lead :])
    if device is not None and not device.has_values:
        cut = absent(cut.shape, dtypes.numpy_dtype(dtype))
    elif dtype in dtypes.NARROW and cut.size >= dtypes.NARROW_FROM:
        cut = dtypes.narrowed(cut, dtype)
    else:
        cut = dtypes.convert(cut, dtype)
    made._array = np.array(cut, order="C") if np.may_share_memory(cut, array) else cut
    return made


# ---------------------------------------------------------------- to the host
@operation("to_numpy", "read")
def to_numpy(tensor: Tensor, mesh_composer=None) -> Array:
    """Return a NumPy array with a copy of the values; bfloat16 and block floats become float32."""
    composer = chosen(mesh_composer, CppMeshToTensor)
    if tensor.mesh is not None:
        tensor.mesh.check_open()
    array, grid = tensor.array, tensor.grid
    if composer is not None:
        joined = composer.join(tensor)
        shared = np.may_share_memory(joined, array) or not joined.flags.writeable
        return np.array(joined, order="C") if shared else joined
    if grid.size != 1:
        rule = (
            f"Can't convert a tensor distributed on {MeshShape(grid.mesh_shape)!r} mesh to "
            "row-major logical tensor. Supply a mesh composer to concatenate multi-device shards."
        )
        cure = "mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0)"
        if not grid.size:
            cure = f"host rank {grid.owner_of(grid.covers[0])} has these values: read them there"
        fail(describe("to_torch", (tensor,)), rule, cure)
    return np.array(array.reshape(tensor.shard_shape), order="C")


@checked
def to_torch(tensor: Tensor, dtype=None, *, torch_rank: int | None = None, mesh_composer=None):
    """Return a torch tensor with a copy of the values, or a NumPy array if torch is missing.

    Args:
        dtype: the torch type of the result.
        torch_rank: leading dimensions of 1 are dropped until this many dimensions are left.
        mesh_composer: how to join several shards.

    Raises:
        TTKitError: a leading dimension that is not 1 would have to be dropped.
    """
    array = to_numpy(tensor, mesh_composer=mesh_composer)
    while torch_rank is not None and array.ndim > torch_rank:
        if len(array) != 1:
            refuse("Unable to squeeze to desired rank!", "ttnn.reshape")
        array = array[0]
    try:
        import torch
    except ImportError:
        return array if dtype is None else array.astype(dtype)
    values = torch.from_numpy(np.atleast_1d(array)).reshape(array.shape)
    if tensor.dtype is DataType.BFLOAT16:
        values = values.to(torch.bfloat16)
    return values if dtype is None else values.to(dtype)


def _of_list(
    data,
    shape,
    data_type: DataType,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Return a tensor of values that are listed row by row.

    Every device gets all values, except in a `distribute` block, whose mapper is used.
    """
    values = np.asarray(data)
    if values.size != math.prod(shape):
        refuse(f"{values.size} values for the shape {list(shape)}")
    values = values.reshape(tuple(shape))
    values = values.astype(dtypes.numpy_dtype(data_type))
    return from_torch(  # type: ignore[no-any-return]
        values, data_type, layout=layout, device=device, memory_config=memory_config
    )


_listed = checked(_of_list, "Tensor")
operation("from_buffer", "write")(_of_list)


# ---------------------------------------------------------------- in files
@checked
def dump_tensor(file_name, tensor: Tensor) -> None:
    """Write a tensor with all of its shards; a failed write leaves no partial file.

    The format is NumPy's npz, not ttnn's format. All ranks that share a mesh must call this, and
    each rank writes the file.
    """
    path = Path(file_name)
    if not path.parent.is_dir():  # ttnn does not create the folder, so this does not either.
        refuse("the file cannot be written: there is no such folder", f"mkdir -p {path.parent}")
    _write(path, tensor)


def _write(path: Path, tensor: Tensor, source: tuple = ()) -> None:
    host, buffer = tensor.cpu(), io.BytesIO()
    values, grid = mpi.everywhere(host, "dump_tensor")
    label = host.topology
    there = (grid.mesh_shape, grid.covers)
    dims = [getattr(placement, "dim", None) for placement in label._placements]
    kind = host.dtype.name, host.layout.name
    about = repr((kind, there, label._shape, dims, label._coords, source))
    np.savez(buffer, values=values, about=about)
    write_whole(path, buffer.getvalue(), f"dump_tensor({str(path)!r})")


@checked
def load_tensor(file_name, *, device: MeshDevice | None = None) -> Tensor:
    """Return the tensor of a file that `dump_tensor` wrote, on the host or on a mesh.

    Raises:
        TTKitError: the file does not exist, ttkit did not write it, or `device` does not have the
            chips of its shards.
    """
    tensor, _ = _read(file_name)
    return tensor if device is None else tensor.to(device)


def _read(file_name) -> tuple[Tensor, tuple]:
    """Return the tensor of a file, and the `_source` that the file records."""
    try:
        with open(file_name, "rb") as raw, np.load(raw) as file:
            values = file["values"]
            about = literal_eval(str(file["about"]))
        (dtype, layout), there, shape, dims, coords, source = about
        label = TensorTopology(shape, MeshMapperConfig(tuple(dims)).placements, coords)
        kind = DataType[dtype], Layout[layout]
        return new_tensor(values, *kind, grid_over(*there), label), source
    except Exception as error:  # A damaged or foreign file raises exceptions of many types.
        cure = "a file that ttkit's ttnn.dump_tensor wrote, or another cache_file_name"
        refuse(f"Unable to load the tensor from {file_name}: {error}", cure)


@checked
def as_tensor(
    tensor,
    dtype: DataType | None = None,
    *,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    cache_file_name=None,
    preprocess=None,
    mesh_mapper=None,
):
    """Return `from_torch(preprocess(tensor))`, or the tensor in a file; `preprocess` is optional.

    Args:
        tensor: the same as for `from_torch`; with None the tensor in the file is returned.
        cache_file_name: the start of the file's name. ttnn adds the type and the layout, such as
            "_dtype_BFLOAT16_layout_TILE.tensorbin". If the file exists, it is read; otherwise it is
            written. If the mapper or the tensor's shape, type or checksum differs from those that
            made the file, a warning names the file, and it is written again. The checksum is over
            some values only, before `preprocess`. The format is that of `dump_tensor`. No file is
            used for a mesh without values or a mesh that several ranks share.

    Raises:
        TTKitError: `from_torch` refuses the tensor, or ttkit did not write the file.
    """

    def made(mapper, **where):
        given = preprocess(tensor) if preprocess else tensor
        return from_torch(given, dtype, layout=layout, mesh_mapper=mapper, **where)

    here = device is None or (device.has_values and device.grid.local)
    if cache_file_name is None or not here:
        return made(mesh_mapper, device=device, memory_config=memory_config)
    kind = dtype and dtype.name, (layout or Layout.ROW_MAJOR).name
    path = Path("{}_dtype_{}_layout_{}.tensorbin".format(cache_file_name, *kind))
    # As in ttnn, a replicated tensor is stored once, so its file can be used for every mesh.
    replicated = isinstance(mesh_mapper, ReplicateTensorToMesh)
    mapper = None if replicated else chosen(mesh_mapper, CppTensorToMesh)
    source = () if tensor is None else _source(tensor, mapper)
    host, known = _read(path) if path.is_file() else (None, source)
    if source and known != source:
        host = None
        warn(f"{path} was made of another tensor or for another mesh: it is written again")
    if host is None:
        host = made(mapper)
        if host is not None:
            _write(path, host, source)
    return host if device is None or host is None else host.to(device, memory_config)


def _source(tensor, mapper: CppTensorToMesh | None) -> tuple:
    """Return a fingerprint of a tensor's source: shape, type, a checksum of some values, mapper."""
    array, name = _host_array(tensor)
    some = array[tuple(slice(None, None, max(1, n // 16)) for n in array.shape)]
    cut = mapper and (mapper._mesh_shape, repr(mapper.config()))
    return array.shape, name, zlib.crc32(some.tobytes()), cut


# ---------------------------------------------------------------- methods of a tensor
def _new(cls: type[Tensor], data, *args, **kwargs) -> Tensor:
    """Make a tensor from an array, or from a list of values."""
    if isinstance(data, (list, tuple)):
        return _listed(data, *args, **kwargs)
    named = zip("dtype device layout memory_config tile".split(), args)
    return from_torch(data, **dict(named), **kwargs)  # type: ignore[no-any-return]


Tensor.__new__ = _new  # type: ignore[assignment]
Tensor.to_numpy = to_numpy
Tensor.to_torch = to_torch

"""How a tensor is cut over a mesh and joined again: mappers, composers, `distribute`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import across
from ttkit.sim.arguments import checked
from ttkit.sim.enums import StorageType
from ttkit.sim.mesh import Grid, MeshDevice, grid_over, restricted
from ttkit.sim.tensor import Tensor, new_tensor
from ttkit.sim.types import (
    MeshComposerConfig,
    MeshCoordinate,
    MeshMapperConfig,
    MeshShape,
    PlacementReplicate,
    PlacementShard,
    TensorTopology,
    integer,
)

Coordinate = tuple[int, ...]


@checked("compute_distribution_to_mesh_mapping")
def compute_distribution_to_mesh_mapping(distribution_shape: MeshShape, mesh_shape: MeshShape) -> list[MeshCoordinate]:
    """Which device each part of a distribution goes to.

    A distribution that fits the mesh in every dimension takes the corner; any other goes over the devices in row-major order.
    """
    return [MeshCoordinate(c) for c in _devices(tuple(distribution_shape), tuple(mesh_shape), None)]


def _devices(distribution: Coordinate, mesh: Coordinate, offset: Coordinate | None) -> tuple[Coordinate, ...]:
    if len(distribution) == len(mesh) and all(d <= m for d, m in zip(distribution, mesh, strict=True)):
        start = offset or (0,) * len(mesh)
        return tuple(tuple(o + i for o, i in zip(start, c, strict=True)) for c in np.ndindex(*distribution))
    return tuple(itertools.islice(np.ndindex(*mesh), math.prod(distribution)))


def _mesh_shape(mesh: MeshDevice | MeshShape, asked: object) -> Coordinate:
    if not isinstance(mesh, (MeshDevice, MeshShape)):
        fail(asked, f"incompatible function arguments: {mesh!r} is neither a MeshDevice nor a MeshShape", kind=TypeError)
    return tuple(mesh.shape if isinstance(mesh, MeshDevice) else mesh)


def _check_dims(dims: Sequence[int], rank: int, asked: object) -> list[int]:
    """`dims` as numbers from 0; each must be a dimension of a tensor of this rank, and none may come twice."""
    if any(not -rank <= d < rank for d in dims):
        fail(asked, f"Invalid dimension index; got dims: {{{', '.join(map(str, dims))}}}, tensor dimension: {rank}", f"dims from {-rank} to {rank - 1}")
    plain = [d % rank for d in dims]
    if len(set(plain)) != len(plain):
        fail(asked, f"dims must be unique, got {{{', '.join(map(str, dims))}}} for a tensor of rank {rank}", "a dimension of its own for each mesh axis")
    return plain


def _check_size(over: Coordinate, shape: Coordinate, asked: object) -> None:
    if math.prod(over) > math.prod(shape):
        rule = f"The size of the supplied mesh shape {MeshShape(over)!r} does not match the device shape size {MeshShape(shape)!r}"
        fail(asked, rule, "a mesh_shape_override of at most that many devices")


def _check_offset(offset: MeshCoordinate | None, over: Coordinate, shape: Coordinate, asked: object) -> Coordinate | None:
    """The offset as a tuple; None where it is the corner."""
    if offset is None or not any(offset):
        return None
    given = f"mesh_offset_override {offset!r}"
    if offset.dims() != len(shape):
        fail(asked, f"{given} must have the same dimensionality as the mesh device shape {MeshShape(shape)!r}")
    if len(over) != len(shape) or any(n > m for n, m in zip(over, shape, strict=True)):
        fail(asked, f"mesh_offset_override is only supported when the distribution fits the mesh: {MeshShape(over)!r} and {MeshShape(shape)!r}")
    if any(o + n > m for o, n, m in zip(offset, over, shape, strict=True)):
        fail(asked, f"mesh_shape_override {MeshShape(over)!r} at offset {offset!r} does not fit within the mesh device shape {MeshShape(shape)!r}")
    return tuple(offset)


class CppTensorToMesh:
    """A mapper: cuts a host tensor into one shard for each device. Made by `create_mesh_mapper` and its relatives."""

    def __init__(self, mesh: MeshDevice | MeshShape, config: MeshMapperConfig, asked: object):
        self._config = config
        self._mesh = mesh if isinstance(mesh, MeshDevice) else None
        self._owners = mesh.owners if isinstance(mesh, MeshDevice) else None
        self._mesh_shape = shape = _mesh_shape(mesh, asked)
        self._distribution = over = tuple(config._shape) if config._shape is not None else shape
        if len(over) != len(config.placements):
            rule = f"The number of dimensions in the mesh shape {MeshShape(over)!r} does not match the number of placements in the config {config!r}"
            fail(asked, rule, f"{len(over)} placements, one for each axis")
        _check_size(over, shape, asked)
        self._offset = _check_offset(config._offset, over, shape, asked)

    def config(self) -> MeshMapperConfig:
        """The configuration that the mapper was made from."""
        return self._config

    def place(self, array: np.ndarray, asked: object) -> tuple[np.ndarray, Grid, TensorTopology]:
        """Cut `array`: the leading axes over the grid, 1 where replicated, then the shard's axes (a view where it can be)."""
        placements, over = self._config.placements, list(self._distribution)
        shards = {axis: p.dim for axis, p in enumerate(placements) if isinstance(p, PlacementShard)}
        dims = dict(zip(shards, _check_dims(list(shards.values()), array.ndim, asked), strict=True))
        for axis, dim in dims.items():
            size, parts = array.shape[dim], over[axis]
            piece = -(-size // parts)
            chunks = -(-size // piece) if piece else 1
            if chunks != parts:
                if len(over) > 1:
                    rule = f"ND sharding requires the number of chunks {chunks} to match the mesh dimension size {parts}"
                    fail(asked, f"{rule}: dimension {dim} has {size} elements, in pieces of {piece}", f"a size that {parts} divides")
                over[axis] = chunks
        for axis, dim in dims.items():
            size, parts = array.shape[dim], over[axis]
            if size % parts:
                piece = -(-size // parts)
                rule = f"Shard shape mismatch: expected {piece} elements of dimension {dim} on each of {parts} devices"
                rule += f", got {size - piece * (parts - 1)} on the last one"
                # Not `parts`: of a size that five divides, say 15, eight devices would again get unequal pieces.
                fail(asked, rule, f"a multiple of {self._distribution[axis]}, so that every device gets as much")
        split: list[int] = []
        order: list[int] = []
        home: dict[int, int] = {}
        axis_of = {dim: axis for axis, dim in dims.items()}
        for dim, size in enumerate(array.shape):
            if dim in axis_of:
                home[axis_of[dim]] = len(split)
                split += [over[axis_of[dim]], size // over[axis_of[dim]]]
            else:
                split.append(size)
            order.append(len(split) - 1)
        lead = [over[axis] if axis in dims else 1 for axis in range(len(over))]
        cut = array.reshape(split).transpose([home[axis] for axis in sorted(home)] + order)
        cut = cut.reshape(lead + [split[i] for i in order])
        coords = _devices(tuple(over), self._mesh_shape, self._offset)
        whole, grid = grid_over(self._mesh_shape, coords), grid_over(self._mesh_shape, coords, self._owners)
        topology = TensorTopology(MeshShape(over), placements, [MeshCoordinate(c) for c in coords])
        return restricted(onto_grid(cut, tuple(over), whole), whole, grid), grid, topology


def onto_grid(cut: np.ndarray, distribution: Coordinate, grid: Grid) -> np.ndarray:
    """Leading axes over a distribution turned into leading axes over the grid that the distribution fills in row-major order."""
    rank = len(distribution)
    lead, shard = cut.shape[:rank], cut.shape[rank:]
    if distribution == grid.shape:
        return cut
    if all(n == 1 for n in lead):
        return cut.reshape((1,) * len(grid.shape) + shard)
    # Axes of one device do not matter; where the others are the grid's own, replicas can stay one copy.
    real = [(n, have) for n, have in zip(distribution, lead, strict=True) if n > 1]
    if [n for n, _ in real] == [n for n in grid.shape if n > 1]:
        lengths = iter(have for _, have in real)
        return cut.reshape(tuple(next(lengths) if n > 1 else 1 for n in grid.shape) + shard)
    return np.broadcast_to(cut, distribution + shard).reshape(grid.shape + shard)


class CppMeshToTensor:
    """A composer: joins the shards of a tensor. Made by `create_mesh_composer` and its relatives."""

    def __init__(self, mesh: MeshDevice | MeshShape, config: MeshComposerConfig, asked: object, *, line: bool = False):
        self._config = config
        shape = _mesh_shape(mesh, asked)
        over = (math.prod(shape),) if line else tuple(config._shape) if config._shape is not None else shape
        if len(over) != len(config._dims):
            rule = f"The number of dimensions in the mesh shape {MeshShape(over)!r} does not match the number of dimensions in the config {config!r}"
            fail(asked, rule, "as many dims as the mesh has axes, or mesh_shape_override")
        _check_size(over, shape, asked)
        self._mesh_shape, self._over = shape, over
        self._coords = _devices(over, shape, _check_offset(config._offset, over, shape, asked))

    def join(self, tensor: Tensor, asked: object) -> np.ndarray:
        """One array out of the composer's shards: concatenated along dims[i] for mesh axis i.

        As in ttnn, ranks that share the mesh get all of its shards: each of them must call.
        """
        values, grid = across.everywhere(tensor, "compose")
        over = self._over
        have = {c: i for i, c in enumerate(grid.coords)}
        for coordinate in self._coords:
            if len(coordinate) != len(grid.mesh_shape) or any(c >= n for c, n in zip(coordinate, grid.mesh_shape, strict=True)):
                fail(
                    asked,
                    f"Coordinate {MeshCoordinate(coordinate)!r} is out of bounds for shape {MeshShape(grid.mesh_shape)!r}",
                    "a composer of the tensor's own mesh",
                )
        places = [have[c] for c in self._coords if c in have]
        if len(over) == 1:
            over = (len(places),)
        elif math.prod(over) != len(places):
            rule = f"ND composition requires the number of tensors {len(places)} to match the mesh shape {MeshShape(over)!r}"
            fail(asked, rule, "mesh_shape_override and mesh_offset_override as the tensor was distributed")
        dims = _check_dims(self._config._dims, len(tensor.shard_shape), asked)
        whole = np.broadcast_to(values, grid.shape + tensor.shard_shape)
        if places != list(range(grid.size)):
            whole = whole.reshape((grid.size,) + tensor.shard_shape)[places]
        whole = whole.reshape(over + tensor.shard_shape)
        order: list[int] = []
        for dim in range(len(tensor.shard_shape)):
            order += [axis for axis, d in enumerate(dims) if d == dim] + [len(over) + dim]
        sizes = [n * math.prod(over[a] for a, d in enumerate(dims) if d == dim) for dim, n in enumerate(tensor.shard_shape)]
        return whole.transpose(order).reshape(sizes)


TensorToMesh, MeshToTensor = CppTensorToMesh, CppMeshToTensor


class ReplicateTensorToMeshWrapper:
    """What `ReplicateTensorToMesh` gives: a mapper that copies the tensor to every device."""

    def __init__(self, mesh: MeshDevice):
        self._mapper = replicate_tensor_to_mesh_mapper(mesh)

    def unwrap(self) -> CppTensorToMesh:
        """The mapper itself."""
        return self._mapper


@checked("create_mesh_mapper")
def create_mesh_mapper(mesh_device: MeshDevice | MeshShape, config: MeshMapperConfig) -> CppTensorToMesh:
    """A mapper for a mesh (or just its shape) from one placement for each axis.

    Example:
        >>> create_mesh_mapper(MeshShape(2, 4), MeshMapperConfig([PlacementReplicate(), PlacementShard(1)])).config()
        MeshMapperConfig(placements: [PlacementReplicate(), PlacementShard(1)])
    """
    asked = f"create_mesh_mapper({config!r})"
    if not isinstance(config, MeshMapperConfig):
        fail(asked, "incompatible function arguments", "create_mesh_mapper(mesh, ttnn.MeshMapperConfig([...]))", TypeError)
    return CppTensorToMesh(mesh_device, config, asked)


@checked("create_mesh_composer")
def create_mesh_composer(mesh_device: MeshDevice, config: MeshComposerConfig) -> CppMeshToTensor:
    """A composer for a mesh from the tensor dimension that each axis is joined along."""
    asked = f"create_mesh_composer({config!r})"
    if not isinstance(config, MeshComposerConfig):
        fail(asked, "incompatible function arguments", "create_mesh_composer(mesh, ttnn.MeshComposerConfig([...]))", TypeError)
    return CppMeshToTensor(mesh_device, config, asked)


def _line(mesh: MeshDevice, placement: Any, asked: object) -> CppTensorToMesh:
    size = math.prod(_mesh_shape(mesh, asked))
    return CppTensorToMesh(mesh, MeshMapperConfig([placement], MeshShape([size])), asked)


@checked("shard_tensor_to_mesh_mapper")
def shard_tensor_to_mesh_mapper(mesh_device: MeshDevice, dim: int) -> CppTensorToMesh:
    """A mapper that cuts dimension `dim` over all devices in row-major order."""
    return _line(mesh_device, PlacementShard(dim), f"shard_tensor_to_mesh_mapper(dim={dim})")


@checked("replicate_tensor_to_mesh_mapper")
def replicate_tensor_to_mesh_mapper(mesh_device: MeshDevice) -> CppTensorToMesh:
    """A mapper that copies the tensor to every device."""
    return _line(mesh_device, PlacementReplicate(), "replicate_tensor_to_mesh_mapper")


@checked("concat_mesh_to_tensor_composer")
def concat_mesh_to_tensor_composer(mesh_device: MeshDevice, dim: int) -> CppMeshToTensor:
    """A composer that joins all shards along `dim`, in row-major order of the devices, replicas included."""
    asked = f"concat_mesh_to_tensor_composer(dim={dim!r})"
    return CppMeshToTensor(mesh_device, MeshComposerConfig([integer(dim, asked)]), asked, line=True)


@checked("ShardTensorToMesh")
def ShardTensorToMesh(mesh_device: MeshDevice, dim: int) -> CppTensorToMesh:
    """A mapper that cuts dimension `dim` over all devices in row-major order."""
    return shard_tensor_to_mesh_mapper(mesh_device, dim)


@checked("ReplicateTensorToMesh")
def ReplicateTensorToMesh(mesh_device: MeshDevice) -> ReplicateTensorToMeshWrapper:
    """A mapper that copies the tensor to every device."""
    return ReplicateTensorToMeshWrapper(mesh_device)


def _check_pair(dims: Sequence[int | None], asked: object) -> None:
    if isinstance(dims, Sequence) and len(dims) < 2:
        fail(asked, f"tuple index out of range: {len(dims)} dims of 2", "one for the rows of the mesh and one for its columns", IndexError)


@checked("ShardTensor2dMesh")
def ShardTensor2dMesh(mesh_device: MeshDevice, mesh_shape: tuple[int, int], dims: tuple[int | None, int | None]) -> CppTensorToMesh:
    """A mapper that cuts dims[0] over rows and dims[1] over columns; None replicates."""
    asked = f"ShardTensor2dMesh(mesh_shape={mesh_shape!r}, dims={dims!r})"
    _check_pair(dims, asked)
    return CppTensorToMesh(mesh_device, MeshMapperConfig(dims[0], dims[1], MeshShape(mesh_shape)), asked)


@checked("ConcatMeshToTensor")
def ConcatMeshToTensor(mesh_device: MeshDevice, dim: int) -> CppMeshToTensor:
    """A composer that joins all shards along `dim`, in row-major order of the devices, replicas included."""
    return concat_mesh_to_tensor_composer(mesh_device, dim)


@checked("ConcatMesh2dToTensor")
def ConcatMesh2dToTensor(mesh_device: MeshDevice, mesh_shape: tuple[int, int], dims: tuple[int, int]) -> CppMeshToTensor:
    """A composer that joins rows of devices along dims[0] and columns along dims[1]."""
    asked = f"ConcatMesh2dToTensor(mesh_shape={mesh_shape!r}, dims={dims!r})"
    _check_pair(dims, asked)
    return CppMeshToTensor(mesh_device, MeshComposerConfig(dims[0], dims[1], MeshShape(mesh_shape)), asked)


def as_mapper(mapper: Any, asked: object) -> CppTensorToMesh | None:
    """The mapper to use: the given one, else that of the `distribute` block around us."""
    mapper = mapper if mapper is not None else _default_mapper.get()
    if isinstance(mapper, ReplicateTensorToMeshWrapper):
        return mapper.unwrap()
    if mapper is not None and not isinstance(mapper, CppTensorToMesh):
        fail(asked, f"incompatible function arguments: mesh_mapper={mapper!r}", "a mapper such as ttnn.ShardTensorToMesh(mesh, dim=0)", TypeError)
    return mapper


def as_composer(composer: Any, asked: object) -> CppMeshToTensor | None:
    """The composer to use: the given one, else that of the `distribute` block around us."""
    composer = composer if composer is not None else _default_composer.get()
    if composer is not None and not isinstance(composer, CppMeshToTensor):
        fail(asked, f"incompatible function arguments: mesh_composer={composer!r}", "a composer such as ttnn.ConcatMeshToTensor(mesh, dim=0)", TypeError)
    return composer


_default_mapper: ContextVar[Any] = ContextVar("mapper", default=None)
_default_composer: ContextVar[Any] = ContextVar("composer", default=None)


@contextmanager
def distribute(default: Any) -> Iterator[None]:
    """Inside the block, `from_torch` uses this mapper and `to_torch` this composer where none is given."""
    if isinstance(default, (CppTensorToMesh, ReplicateTensorToMeshWrapper)):
        variable = _default_mapper
    elif isinstance(default, CppMeshToTensor):
        variable = _default_composer
    else:
        fail(f"distribute({default!r})", "Argument must be an instance of either TensorToMesh or MeshToTensor.", kind=ValueError)
    token = variable.set(default)
    try:
        yield
    finally:
        variable.reset(token)


@checked("distribute_tensor")
def distribute_tensor(tensor: Tensor, mapper: CppTensorToMesh, mesh_device: MeshDevice | None = None) -> Tensor:
    """Cut a host tensor over a mesh, and put it on `mesh_device` where one is given."""
    from ttkit.sim.movement import to_device

    asked = "distribute_tensor"
    if tensor.storage_type() is StorageType.DEVICE:
        fail(asked, "TensorToMesh only supports host tensors; got storage type StorageType::DEVICE", "tensor.cpu() first")
    chosen = as_mapper(mapper, asked)
    if chosen is None:
        fail(asked, "incompatible function arguments: no mapper", "ttnn.shard_tensor_to_mesh_mapper(mesh, dim)", TypeError)
    array, grid, topology = chosen.place(np.ascontiguousarray(tensor._lone()), asked)
    placed = new_tensor(array, tensor.dtype, tensor.layout, grid, topology)
    return placed if mesh_device is None else to_device(placed, mesh_device)


@checked("aggregate_tensor")
def aggregate_tensor(tensor: Tensor, composer: CppMeshToTensor) -> Tensor:
    """Join the shards of a tensor into one host tensor."""
    joined = composer.join(tensor, "aggregate_tensor")
    return new_tensor(joined[None, None], tensor.dtype, tensor.layout)

"""How a tensor is cut over a mesh and joined again: mappers, composers, `distribute`."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import numpy as np

from ttkit.errors import fail
from ttkit.sim.arguments import refuse
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.ops import checked
from ttkit.sim.ranks import mpi
from ttkit.sim.tensor import (
    MeshCoordinate,
    MeshShape,
    Placement,
    PlacementReplicate,
    PlacementShard,
    TensorTopology,
    integers,
)
from ttkit.sim.tensor.grid import (
    Coordinate,
    Coordinates,
    Grid,
    devices_of,
    grid_over,
    is_inside,
    onto_grid,
    restricted,
)
from ttkit.sim.tensor.tensor import Array, Tensor


# ---------------------------------------------------------------- configurations
class _Config:
    """The base of both configurations: entries, and overrides of the mesh shape and the corner.

    The entries are a list, or one entry for the rows and one for the columns.
    """

    _list = ""

    def __init__(self, *args, **given):
        what = type(self).__name__
        names = ["mesh_shape_override", "mesh_offset_override"]
        listed = self._list in given or (args and isinstance(args[0], (list, tuple)))
        names = [self._list, *names] if listed else ["row_dim", "col_dim", *names]
        given |= dict(zip(names, args))
        if len(args) > len(names) or set(given) - set(names):
            form = f"{what}({self._list}, mesh_shape_override, mesh_offset_override)"
            fail(what, "incompatible function arguments", form, TypeError)
        *entries, self._shape, self._offset = map(given.get, names)
        for value, kind in ((self._shape, MeshShape), (self._offset, MeshCoordinate)):
            if value is not None and not isinstance(value, kind):
                rule = f"incompatible function arguments: {value!r} is not a {kind.__name__}"
                fail(what, rule, f"{kind.__name__}(...)", TypeError)
        self._entries = self._checked(entries[0] if listed else tuple(entries))

    def _checked(self, entries) -> list:
        return list(integers(entries, type(self).__name__))

    def __repr__(self) -> str:
        override = f", mesh_shape_override={self._shape!r}" if self._shape is not None else ""
        if self._offset is not None and any(self._offset):
            override += f", mesh_offset_override={self._offset!r}"
        return f"{type(self).__name__}({self._list}: {self._entries}{override})"


class MeshMapperConfig(_Config):
    """How a mapper places a tensor: one placement for each axis of the mesh or overriding shape.

    Example:
        >>> MeshMapperConfig([PlacementReplicate(), PlacementShard(1)])
        MeshMapperConfig(placements: [PlacementReplicate(), PlacementShard(1)])
    """

    _list = "placements"

    def _checked(self, entries) -> list:
        if isinstance(entries, tuple) and not any(isinstance(e, Placement) for e in entries):
            entries = [PlacementReplicate() if d is None else PlacementShard(d) for d in entries]
        if not all(isinstance(p, Placement) for p in entries):
            rule = "incompatible function arguments: entries must be PlacementReplicate or"
            fail("MeshMapperConfig", f"{rule} PlacementShard", "[PlacementShard(0)]", TypeError)
        return list(entries)

    @property
    def placements(self) -> list[Placement]:
        """One placement for each axis."""
        return self._entries


class MeshComposerConfig(_Config):
    """How a composer joins shards: the tensor dimension along which each axis is concatenated.

    Example:
        >>> MeshComposerConfig(0, 1)
        MeshComposerConfig(dims: [0, 1])
    """

    _list = "dims"


# ---------------------------------------------------------------- the base of both
class _Distribution:
    """The base of mappers and composers: a configuration that is checked against a mesh."""

    def __init__(self, mesh: MeshDevice | MeshShape, config):
        self._config = config
        self._owners = mesh.owners if isinstance(mesh, MeshDevice) else None
        self._mesh_shape = shape = mesh._shape if isinstance(mesh, MeshDevice) else mesh._values
        self._over = over = shape if config._shape is None else config._shape._values
        if len(config._entries) != len(over):
            what = "placements" if isinstance(config, MeshMapperConfig) else "dimensions"
            refuse(
                f"The number of dimensions in the mesh shape {MeshShape(over)!r} does not match "
                f"the number of {what} in the config {config!r}",
                f"{len(over)} {what}, one for each axis",
            )
        if math.prod(over) > math.prod(shape):
            refuse(
                f"The size of the supplied mesh shape {MeshShape(over)!r} does not match the "
                f"device shape size {MeshShape(shape)!r}",
                "a mesh_shape_override of at most that many devices",
            )
        self._offset = _check_offset(config._offset, over, shape)

    def config(self):
        """Return the configuration that this was made from."""
        return self._config


def _check_dims(dims: Sequence[int], rank: int) -> list[int]:
    """Return `dims` counted from 0; refuse dimensions out of range and dimensions named twice."""
    plain = [d % rank if -rank <= d < rank else -1 for d in dims]
    listed = f"{{{', '.join(map(str, dims))}}}"
    if -1 in plain:
        rule = f"Invalid dimension index; got dims: {listed}, tensor dimension: {rank}"
        refuse(rule, f"dims from {-rank} to {rank - 1}")
    if len(set(plain)) != len(plain):
        rule = f"dims must be unique, got {listed} for a tensor of rank {rank}"
        refuse(rule, "a dimension of its own for each mesh axis")
    return plain


def _check_offset(
    offset: MeshCoordinate | None, over: Coordinate, shape: Coordinate
) -> Coordinate | None:
    """Return the offset as a tuple, or None if it is zero; refuse one that does not fit."""
    if offset is None or not any(offset):
        return None
    whole = repr(MeshShape(shape))
    part = repr(MeshShape(over))
    if offset.dims() != len(shape):
        rule = "must have the same dimensionality as the mesh device shape"
        refuse(f"mesh_offset_override {offset!r} {rule} {whole}")
    if len(over) != len(shape) or any(n > m for n, m in zip(over, shape)):
        rule = "mesh_offset_override is only supported when the distribution fits the mesh"
        refuse(f"{rule}: {part} and {whole}")
    if any(o + n > m for o, n, m in zip(offset, over, shape)):
        rule = f"mesh_shape_override {part} at offset {offset!r} does not fit within the mesh"
        refuse(f"{rule} device shape {whole}")
    return tuple(offset)


# ---------------------------------------------------------------- mappers
class CppTensorToMesh(_Distribution):
    """A mapper: it cuts a host tensor into a shard for each device, by a placement for each axis.

    Example:
        >>> config = MeshMapperConfig([PlacementReplicate(), PlacementShard(1)])
        >>> create_mesh_mapper(MeshShape(2, 4), config).config()
        MeshMapperConfig(placements: [PlacementReplicate(), PlacementShard(1)])
    """

    def place(self, array: Array) -> tuple[Array, Grid, TensorTopology]:
        """Cut `array` over the mesh.

        Returns:
            The array (a view if possible), its grid and its topology. The array's leading axes run
            over the grid and have length 1 where the tensor is replicated; the shard's axes follow.
        """
        placements = self._config._entries
        over = list(self._over)
        axes = [axis for axis, p in enumerate(placements) if isinstance(p, PlacementShard)]
        dims = _check_dims([placements[axis].dim for axis in axes], array.ndim)
        # As in ttnn, the number of shards along every axis is checked before any shard's size.
        counts = [self._parts(a, d, array.shape[d]) for a, d in zip(axes, dims)]
        cut = array[(None,) * len(over)]
        for axis, dim, parts in zip(axes, dims, counts):
            size = array.shape[dim]
            if size % parts:
                each = -(-size // parts)
                refuse(
                    f"Shard shape mismatch: expected {each} elements of dimension {dim} on each "
                    f"of {parts} devices, got {size - each * (parts - 1)} on the last one",
                    f"a multiple of {self._over[axis]}, so that every device gets as much",
                )
            over[axis] = parts
            at = len(over) + dim
            shape = list(cut.shape)
            cut = cut.reshape([*shape[:at], parts, size // parts, *shape[at + 1 :]])
            cut = np.moveaxis(cut, at, axis).squeeze(axis + 1)
        distribution = tuple(over)
        coords = devices_of(distribution, self._mesh_shape, self._offset)
        whole = grid = grid_over(self._mesh_shape, coords)
        topology = TensorTopology(distribution, placements, coords)
        if self._owners is not None:
            grid = grid_over(self._mesh_shape, coords, self._owners)
        if distribution != whole.shape:
            cut = onto_grid(cut, distribution, whole)
        return cut if grid is whole else restricted(cut, whole, grid), grid, topology

    def _parts(self, axis: int, dim: int, size: int) -> int:
        """Return how many devices of an axis get a part of a dimension."""
        parts = self._over[axis]
        each = -(-size // parts)
        chunks = -(-size // each) if each else 1
        if chunks != parts and len(self._over) > 1:
            refuse(
                f"ND sharding requires the number of chunks {chunks} to match the mesh dimension "
                f"size {parts}: dimension {dim} has {size} elements, in chunks of {each}",
                f"a size that {parts} divides",
            )
        return chunks


# ---------------------------------------------------------------- composers
class CppMeshToTensor(_Distribution):
    """A composer: it joins the shards of a tensor along one tensor dimension for each mesh axis."""

    def __init__(self, mesh: MeshDevice | MeshShape, config: MeshComposerConfig):
        super().__init__(mesh, config)
        self._coords = devices_of(self._over, self._mesh_shape, self._offset)

    def join(self, tensor: Tensor) -> Array:
        """Return the composer's shards as one array, joined along dims[i] for mesh axis i.

        As in ttnn, each rank that shares the mesh gets the shards of all ranks, so all must call.
        """
        values, grid = tensor.array, tensor.grid
        if grid.owners is not None:
            values, grid = mpi.everywhere(tensor, "compose")
        over, coords = self._over, self._coords
        if coords != grid.coords:
            coords = self._known(grid)
        if len(over) == 1:
            over = (len(coords),)
        elif math.prod(over) != len(coords):
            refuse(
                f"ND composition requires the number of tensors {len(coords)} to match the mesh "
                f"shape {MeshShape(over)!r}",
                "mesh_shape_override and mesh_offset_override as the tensor was distributed",
            )
        dims = _check_dims(self._config._entries, len(tensor.shard_shape))
        if coords != grid.coords:
            part = grid_over(grid.mesh_shape, coords)
            values, grid = restricted(values, grid, part), part
        whole = np.broadcast_to(values, grid.shape + tensor.shard_shape)
        whole = whole.reshape(over + tensor.shard_shape)
        # Each mesh axis moves directly before the tensor dimension that it is joined along.
        order = np.argsort([*(dim - 0.5 for dim in dims), *range(len(tensor.shard_shape))])
        sizes = list(tensor.shard_shape)
        for dim, count in zip(dims, over):
            sizes[dim] *= count
        return whole.transpose(order).reshape(sizes)

    def _known(self, grid: Grid) -> Coordinates:
        """Return the composer's devices that have a shard; refuse one outside the tensor's mesh."""
        mesh = grid.mesh_shape
        for coordinate in self._coords:
            if not is_inside(coordinate, mesh):
                rule = f"Coordinate {MeshCoordinate(coordinate)!r} is out of bounds for shape"
                refuse(f"{rule} {MeshShape(mesh)!r}", "a composer of the tensor's own mesh")
        have = set(grid.coords)
        return tuple(c for c in self._coords if c in have)


TensorToMesh = CppTensorToMesh
MeshToTensor = CppMeshToTensor
# Both functions take a mesh, or only its shape, and a configuration.
create_mesh_mapper = checked(CppTensorToMesh, "create_mesh_mapper")
create_mesh_composer = checked(CppMeshToTensor, "create_mesh_composer")


def _line(mesh: MeshDevice, placement: Placement) -> CppTensorToMesh:
    return CppTensorToMesh(mesh, MeshMapperConfig([placement], MeshShape([len(mesh.chips)])))


@checked
def shard_tensor_to_mesh_mapper(mesh_device: MeshDevice, dim: int) -> CppTensorToMesh:
    """Return a mapper that cuts dimension `dim` over all devices in row-major order."""
    return _line(mesh_device, PlacementShard(dim))


@checked
def replicate_tensor_to_mesh_mapper(mesh_device: MeshDevice) -> CppTensorToMesh:
    """Return a mapper that copies the tensor to every device."""
    return _line(mesh_device, PlacementReplicate())


@checked
def concat_mesh_to_tensor_composer(mesh_device: MeshDevice, dim: int) -> CppMeshToTensor:
    """Return a composer that joins all shards, also replicas, along `dim` in row-major order."""
    line = MeshShape([len(mesh_device.chips)])
    return CppMeshToTensor(mesh_device, MeshComposerConfig([dim], line))


ShardTensorToMesh = shard_tensor_to_mesh_mapper
ConcatMeshToTensor = concat_mesh_to_tensor_composer


class ReplicateTensorToMeshWrapper:
    """The object that ttnn's `ReplicateTensorToMesh` returns; it holds a mapper and is not one."""

    def __init__(self, mesh_device: MeshDevice):
        self._mapper = replicate_tensor_to_mesh_mapper(mesh_device)

    def unwrap(self) -> CppTensorToMesh:
        """Return the mapper."""
        return self._mapper


ReplicateTensorToMesh = ReplicateTensorToMeshWrapper


@checked
def ShardTensor2dMesh(
    mesh_device: MeshDevice, mesh_shape: tuple[int, int], dims: tuple[int | None, int | None]
) -> CppTensorToMesh:
    """Return a mapper that cuts dims[0] over rows and dims[1] over columns; None replicates."""
    return CppTensorToMesh(mesh_device, MeshMapperConfig(dims[0], dims[1], MeshShape(mesh_shape)))


@checked
def ConcatMesh2dToTensor(
    mesh_device: MeshDevice, mesh_shape: tuple[int, int], dims: tuple[int, int]
) -> CppMeshToTensor:
    """Return a composer that joins rows of devices along dims[0] and columns along dims[1]."""
    return CppMeshToTensor(mesh_device, MeshComposerConfig(dims[0], dims[1], MeshShape(mesh_shape)))


# ---------------------------------------------------------------- the default mapper or composer
Mapper = TypeVar("Mapper", CppTensorToMesh, CppMeshToTensor)
# This tuple has the mappers and composers of the open `distribute` blocks, the innermost first.
_defaults: ContextVar[tuple] = ContextVar("distribute", default=())


def _unwrapped(given):
    return given.unwrap() if isinstance(given, ReplicateTensorToMeshWrapper) else given


def chosen(given, kind: type[Mapper]) -> Mapper | None:
    """Return the mapper or composer to use: `given`, or that of a `distribute` block, or None."""
    if given is None:
        return next((each for each in _defaults.get() if isinstance(each, kind)), None)
    return _unwrapped(given)  # type: ignore[no-any-return]


@contextmanager
def distribute(default) -> Iterator[None]:
    """Inside the block, `from_torch` uses this mapper, or `to_torch` this composer, by default."""
    default = _unwrapped(default)
    if not isinstance(default, (CppTensorToMesh, CppMeshToTensor)):
        rule = "Argument must be an instance of either TensorToMesh or MeshToTensor."
        fail(f"distribute({default!r})", rule, kind=ValueError)
    token = _defaults.set((default, *_defaults.get()))
    try:
        yield
    finally:
        _defaults.reset(token)

"""A tensor taken apart into the shards of its devices, and shards made one tensor again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ttkit.errors import fail
from ttkit.sim import across
from ttkit.sim.arguments import checked
from ttkit.sim.mesh import Grid, MeshDevice, grid_over
from ttkit.sim.tensor import Tensor, new_tensor
from ttkit.sim.types import (
    MeshCoordinate,
    MeshShape,
    PlacementShard,
    TensorTopology,
)

Coordinate = tuple[int, ...]


@checked("get_device_tensors")
def get_device_tensors(tensor: Tensor) -> list[Tensor]:
    """The shards as tensors of one device each, in row-major order; they share the memory of `tensor`.

    Where ranks share the mesh, a host tensor's shards are gathered from all of them, so each must call; shards of a
    tensor on devices stay where they are: those of other ranks have a shape here, but no values.
    """
    if tensor.mesh is None:
        values, grid = across.everywhere(tensor, "get_device_tensors")
        whole = np.broadcast_to(values, grid.shape + tensor.shard_shape)
        return [new_tensor(whole[index][None, None], tensor.dtype, tensor.layout) for index in np.ndindex(grid.shape)]
    result = []
    local = dict(zip(tensor.grid.coords, tensor.shards(), strict=True))
    for coordinate in tensor.grid.covers:
        one = grid_over(tensor.grid.mesh_shape, (coordinate,), tensor.mesh.owners)
        shard = local[coordinate][(None,) * len(one.shape)] if one.size else np.empty((0,) + tensor.shard_shape, tensor.array.dtype)
        part = new_tensor(shard, tensor.dtype, tensor.layout, one, tensor.topology)
        part.mesh, part._allocation = tensor.mesh, tensor._allocation
        result.append(part)
    return result


@checked("from_host_shards")
def from_host_shards(tensors: Sequence[Tensor], mesh_shape: MeshShape) -> Tensor:
    """A tensor distributed over `mesh_shape` out of one host tensor for each device, in row-major order."""
    asked = f"from_host_shards({len(tensors)} tensors, {mesh_shape!r})"
    if len(tensors) != mesh_shape.mesh_size():
        fail(asked, f"Number of tensor shards must match mesh size: {len(tensors)} and {mesh_shape.mesh_size()}")
    for tensor in tensors:
        if tensor.mesh is not None:
            fail(asked, "All tensor shards must be on host", "tensor.cpu()")
    grid = grid_over(tuple(mesh_shape))
    return _combine(tensors, grid, None, asked)


def _combine(tensors: Sequence[Tensor], grid: Grid, mesh: MeshDevice | None, asked: object) -> Tensor:
    first = tensors[0]
    if any((t.shard_shape, t.dtype, t.layout) != (first.shard_shape, first.dtype, first.layout) for t in tensors):
        fail(asked, f"All tensor shards must have the same tensor spec, got {[(list(t.shard_shape), t.dtype, t.layout) for t in tensors]}")
    array = np.array([t._lone() for t in tensors if t.grid.size], first.array.dtype).reshape(grid.shape + first.shard_shape)
    topology = TensorTopology(MeshShape([len(grid.covers)]), [PlacementShard(0)], [MeshCoordinate(c) for c in grid.covers])
    return new_tensor(array, first.dtype, first.layout, grid, topology, mesh)


@checked("combine_device_tensors")
def combine_device_tensors(*, tensors: Sequence[Tensor]) -> Tensor:
    """One tensor out of tensors that each lie on one device of the same mesh."""
    asked = f"combine_device_tensors({len(tensors)} tensors)"
    if not tensors:
        fail(asked, "At least one tensor shard must be provided")
    mesh = tensors[0].mesh
    if mesh is None or any(t.mesh is not mesh for t in tensors):
        fail(asked, "All tensor shards must be on device and on the same mesh", "ttnn.get_device_tensors gives such tensors")
    coords = [c for t in tensors for c in t.grid.covers]
    if len(set(coords)) != len(coords):
        fail(asked, f"Found a tensor shard at duplicate coordinate: {coords}")
    by_place = sorted(tensors, key=lambda t: t.grid.covers[0])
    return _combine(by_place, grid_over(tuple(mesh.shape), tuple(sorted(coords)), mesh.owners), mesh, asked)

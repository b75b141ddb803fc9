"""Tensors of other whole numbers on every chip, beside the naive simulator's; semaphores."""

import numpy as np
from naive import Naive

import ttkit
from ttkit import ttnn

ASYNC = ttnn.experimental


def semaphores(mesh, count):
    size = mesh.compute_with_storage_grid_size()
    last = ttnn.CoreCoord(size.x - 1, size.y - 1)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), last)])
    return [ttnn.create_global_semaphore(mesh, cores, 0) for _ in range(count)]


def put(mesh, shape, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, seed=0):
    """Other whole numbers on every chip: a tensor, and the same as arrays."""
    rows, columns = mesh.shape
    values = np.random.default_rng(seed).integers(-8, 8, (rows * columns, *shape))
    tensor = ttkit.from_numpy(
        values.reshape(-1, *shape[1:]).astype(np.float32),
        dtype=dtype,
        layout=layout,
        device=mesh,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0),
    )
    shards = dict(zip(np.ndindex(rows, columns), values.astype(np.float64)))
    return tensor, Naive((rows, columns), shards)


def same(tensor, naive):
    shards = [ttkit.to_numpy(t) for t in ttnn.get_device_tensors(tensor)]
    for (chip, want), got in zip(naive.parts.items(), shards, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=f"chip {chip}")

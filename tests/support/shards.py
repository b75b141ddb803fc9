"""Tensors of other whole numbers on every chip, beside the naive simulator's; semaphores."""

import numpy as np
from naive import Naive
from places import parts

import ttkit
from ttkit import ttnn
from ttkit.sim.hints import RECORDS

ASYNC = ttnn.experimental


def hint(name, **fields):
    """A record of ttnn's hints; what it needs beside these fields is 2, a grid or False."""
    needed = {"compute_with_storage_grid_size": (8, 4)}
    needed |= dict.fromkeys(("transpose_mcast", "fuse_batch", "mcast_in0", "inplace"), False)
    takes = RECORDS[name].takes.parameters.values()
    wanted = [each.name for each in takes if each.default is each.empty]
    return RECORDS[name](**{each: needed.get(each, 2) for each in wanted} | fields)


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


def spread(mesh, shape, **how):
    """Other random values on each chip, in tiles of bfloat16; dim 0 is cut over all of them."""
    whole = (mesh.get_num_devices() * shape[0], *shape[1:])
    values = np.random.default_rng(3).standard_normal(whole).astype(np.float32)
    how = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT} | how
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    return ttkit.from_numpy(values, device=mesh, mesh_mapper=mapper, **how)


def back(mesh, tensor):
    """The values of all chips, joined along dim 0."""
    return ttkit.to_numpy(tensor, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))


def same(tensor, naive, near=0):
    """Each chip of the tensor holds what the naive one holds, and no other chip holds any."""
    have = parts(tensor)
    assert list(have) == sorted(naive.parts)
    for at, values in have.items():
        wanted = naive.parts[at]
        np.testing.assert_allclose(values, wanted, near, near, err_msg=f"at {at}")

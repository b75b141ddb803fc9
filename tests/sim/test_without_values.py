"""A mesh without values gives for every call what a mesh with values gives, but the values."""

import numpy as np
import pytest

import ttkit
from ttkit import ttnn
from ttkit.sim.mesh.opening import without_values
from ttkit.sim.tape import tape
from ttkit.sim.tensor.absent import Absent, absent
from ttkit.sim.tensor.tensor import bytes_in_use

FLOAT = {"dtype": ttnn.float32, "layout": ttnn.TILE_LAYOUT}


def program(mesh):
    """A call of each operation that training makes; all results."""
    how = {"device": mesh, "mesh_mapper": ttnn.ShardTensor2dMesh(mesh, (2, 4), (0, 3))} | FLOAT
    x = ttkit.from_numpy(np.ones((2, 1, 64, 128), np.float32), **how)
    row = ttnn.zeros([1, 1, 1, 32], device=mesh, **FLOAT)
    narrow = ttnn.typecast(x, ttnn.bfloat16)
    ids = ttnn.zeros([1, 1, 1, 64], dtype=ttnn.uint32, device=mesh)
    wide = ttnn.all_gather(x, 3, cluster_axis=1)
    values, places = ttnn.topk(wide, 2, dim=-1)
    return [
        *(x, row, narrow, ids, wide, values, places),
        ttnn.add(x, row),
        ttnn.multiply(narrow, 0.5),
        ttnn.linear(x, ttnn.concat([x, x], dim=2), bias=None, transpose_b=True),
        ttnn.matmul(narrow, narrow, transpose_a=True),
        ttnn.softmax(x, dim=-1),
        ttnn.layer_norm(x, weight=row, bias=row, epsilon=1e-5),
        ttnn.rms_norm(narrow, epsilon=1e-5),
        ttnn.max(x, dim=-1, keepdim=True),
        ttnn.sum(x, dim=[0, 1, 2, 3], keepdim=True),
        ttnn.mean(narrow, dim=-1, keepdim=True),
        ttnn.cumsum(x, 2),
        ttnn.where(ttnn.ge(row, 1.0), x, x),
        ttnn.addcdiv(x, x, x, value=0.5),
        ttnn.gelu(x, variant=ttnn.GeluVariant.Tanh),
        *ttnn.gelu_bw(x, x, variant=ttnn.GeluVariant.Tanh),
        *ttnn.silu_bw(narrow, narrow),
        ttnn.reshape(x, (1, 64, 1, 32)),
        ttnn.transpose(x, 1, 2),
        ttnn.slice(x, [0, 0, 0, 0], [1, 1, 32, 32]),
        ttnn.to_layout(ttnn.reshape(ids, (1, 1, 64, 1)), ttnn.TILE_LAYOUT),
        ttnn.ones_like(x),
        ttnn.experimental.dropout(narrow, 0.5, 1.0, 3, use_per_device_seed=False),
        *ttnn.experimental.nlp_create_qkv_heads(ttnn.concat([x] * 3, dim=3), num_heads=1),
        ttnn.all_reduce(x, cluster_axis=0),
        ttnn.reduce_scatter(wide, 3, cluster_axis=1),
        ttnn.mesh_partition(wide, 3, 1),
        ttnn.experimental.all_to_all_async_generic(wide, in_dim=2, out_dim=3, cluster_axis=1),
    ]


def described(tensors):
    return [
        (t.shard_shape, t.padded, t.dtype, t.layout, t.topology, t.array.shape) for t in tensors
    ]


def test_every_call_gives_the_same_shape_type_place_bytes_and_transfers():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        with tape() as real:
            expected = program(mesh)
        used = max(bytes_in_use().values())
        for _ in range(2):  # computed once, then known
            with without_values((2, 4)) as (empty, calls):
                found = program(empty)
            assert described(found) == described(expected)
            assert all(type(tensor.array) is Absent for tensor in found)
            assert sum(empty.used.values()) == used == max(bytes_in_use().values())
            for one, other in zip(real.events, calls.events, strict=True):
                assert (one.name, one.returned, one.in_use) == (other.name, True, other.in_use)
                sent = [
                    [(e.collective, e.axis, e.shard_bytes) for e in c.sent] for c in (one, other)
                ]
                assert sent[0] == sent[1]


def test_a_refused_call_is_refused():
    with without_values((2, 4)) as (mesh, _):
        x = ttnn.zeros([32, 64], device=mesh, **FLOAT)
        for _ in range(2):
            with pytest.raises(ttkit.TTKitError, match="matmul"):
                ttnn.matmul(x, x)


def test_no_memory_is_taken():
    huge = absent((1 << 20, 1 << 20), np.float32)
    assert (huge @ huge).shape == (huge * 2).T.shape == huge.shape
    assert huge.nbytes == 1 << 42 and huge.sum((0,)).shape == (1 << 20,)

"""Random programs on the simulator and on the naive one: every device must hold the same at the
end.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from machine import mapper_over
from naive import Naive
from places import many
from shards import same

import ttkit
from ttkit import ttnn

MESHES = [(1, 1), (1, 2), (2, 2), (2, 3), (2, 4), (4, 2), (1, 8), (8, 1)]
SIZE = 24  # divides by every mesh axis above, by 8 and by 3


def numbers(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32) / 4


def place(mesh, kind, seed):
    """A [24, 24] tensor on both, by a kind of distribution."""
    shape, values = tuple(mesh.shape), numbers(seed, SIZE, SIZE)
    if kind == "everywhere":
        mapper, naive = ttnn.ReplicateTensorToMesh(mesh), Naive.everywhere(shape, values)
    elif kind in ("line0", "line1"):
        dim = int(kind[-1])
        mapper, naive = ttnn.ShardTensorToMesh(mesh, dim), Naive.line(shape, values, dim)
    else:
        dims = {"r": None, "0": 0, "1": 1}
        placements = [dims[k] for k in kind]
        mapper, naive = mapper_over(mesh, placements), Naive.placed(shape, values, placements)
    return ttkit.from_numpy(values, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper), naive


def shape_of(naive):
    return next(iter(naive.parts.values())).shape


STEPS = "add multiply add_ gather reduce scatter partition transpose matmul relu sum concat".split()
STEPS += ["send", "scalar"]
KINDS = ["everywhere", "line0", "line1", "rr", "r0", "r1", "0r", "1r", "01", "10"]


@many(120)
@given(
    st.sampled_from(MESHES),
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 99)), min_size=2, max_size=3),
    st.lists(
        st.tuples(st.sampled_from(STEPS), *[st.integers(0, 5)] * 2, *[st.integers(0, 1)] * 2),
        min_size=3,
        max_size=12,
    ),
    st.booleans(),
)
def test_random_programs(shape, starts, steps, submesh):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    system = ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    mesh = system.create_submesh(ttnn.MeshShape(*shape)) if submesh else system
    try:
        pool = [place(mesh, kind, seed) for kind, seed in starts]
        for step, i, j, dim, axis in steps:
            a, b = pool[i % len(pool)], pool[j % len(pool)]
            made = apply(mesh, step, a, b, dim, axis)
            if made is not None:
                pool.append(made)
        for tensor, naive in pool:
            same(tensor, naive, 1e-4)
    finally:
        system.close()


def apply(mesh, step, a, b, dim, axis):
    """One step on both simulators; None where it does not apply to these operands."""
    (t, n), (u, o) = a, b
    along = tuple(mesh.shape)[axis]
    equal = shape_of(n) == shape_of(o) and set(n.parts) == set(o.parts)
    if step == "add" and equal:
        return ttnn.add(t, u), n.each(np.add, o)
    if step == "multiply" and equal:
        return ttnn.multiply(t, u), n.each(np.multiply, o)
    if step == "add_" and equal and t is not u:
        ttnn.add_(t, u)
        n.parts = n.each(np.add, o).parts
        return None
    if step == "concat" and equal:
        return ttnn.concat([t, u], dim), n.each(lambda x, y: np.concatenate([x, y], dim), o)
    if step == "matmul" and shape_of(n)[1] == shape_of(o)[0] and set(n.parts) == set(o.parts):
        return ttnn.matmul(t, u), n.each(np.matmul, o)
    if step == "relu":
        return ttnn.relu(t), n.each(lambda x: np.maximum(x, 0))
    if step == "scalar":
        return ttnn.subtract(ttnn.multiply(t, 0.5), 1.0), n.each(lambda x: x * 0.5 - 1)
    if step == "sum":
        return ttnn.sum(t, dim, keepdim=True), n.each(lambda x: x.sum(dim, keepdims=True))
    if step == "transpose":
        return ttnn.transpose(t, 0, 1), n.each(np.transpose)
    if along == 1 or len(n.parts) < mesh.get_num_devices():
        return None
    if step == "gather" and shape_of(n)[dim] < 200:
        return ttnn.all_gather(t, dim, cluster_axis=axis), n.all_gather(dim, axis)
    if step == "reduce":
        quarter = n.all_reduce(axis).each(lambda x: x * 0.25)
        return ttnn.multiply(ttnn.all_reduce(t, cluster_axis=axis), 0.25), quarter
    if step == "scatter" and shape_of(n)[dim] % along == 0:
        return ttnn.reduce_scatter(t, dim, cluster_axis=axis), n.reduce_scatter(dim, axis)
    if step == "partition" and shape_of(n)[dim] % along == 0:
        part = ttnn.mesh_partition(ttnn.to_layout(t, ttnn.ROW_MAJOR_LAYOUT), dim, axis)
        return ttnn.to_layout(part, ttnn.TILE_LAYOUT), n.partition(dim, axis)
    if step == "send":
        sender = [0] * len(mesh._shape)
        receiver = list(sender)
        receiver[axis] = along - 1
        ends = ttnn.MeshCoordinate(sender), ttnn.MeshCoordinate(receiver)
        return ttnn.point_to_point(t, *ends), n.send(tuple(sender), tuple(receiver))
    return None

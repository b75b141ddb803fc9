"""Collectives against loops over the chips: meshes, submeshes, ranks 1 to 8, element types."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from machine import mapper_over
from naive import Naive
from places import ROWS, T3000, TILE, Place, laid, many, opened, parts, places, put, refused
from shards import same

from ttkit import ttnn

WHOLE = ["same", "each", "rows", "columns", "both"]
SUMMED = [ttnn.float32, ttnn.bfloat16, ttnn.int32]


@many(40)
@given(
    places(least=1, kinds=WHOLE, layouts=[ROWS]), st.integers(0, 1), st.integers(-8, 7), st.data()
)
def test_gathers_and_sums(place, axis, dim, data):
    with laid(place) as (mesh, t):
        along, rank = mesh.shape[axis], len(place.shape)
        assume(along > 1)
        dim = dim % rank - data.draw(st.sampled_from([0, rank]))
        naive = Naive(tuple(mesh.shape), parts(t))
        gathered = ttnn.all_gather(t, dim, cluster_axis=axis)
        same(gathered, naive.all_gather(dim, axis))
        for tensor, at in zip(ttnn.all_broadcast(t, cluster_axis=axis), range(along)):
            picked = {c: naive.parts[naive.group(c, axis)[at]] for c in naive.parts}
            same(tensor, Naive(naive.mesh, picked))
        for tensor, at in zip(ttnn.all_broadcast(t), naive.parts, strict=True):
            picked = dict.fromkeys(naive.parts, naive.parts[at])
            same(tensor, Naive(naive.mesh, picked))
        sender = data.draw(st.sampled_from(list(naive.parts)))
        picked = {c: naive.parts[naive.group(c, axis)[sender[axis]]] for c in naive.parts}
        made = ttnn.broadcast(t, ttnn.MeshCoordinate(sender), cluster_axis=axis)
        same(made, Naive(naive.mesh, picked))
        receiver = data.draw(st.sampled_from(naive.group(sender, axis)))
        ends = ttnn.MeshCoordinate(sender), ttnn.MeshCoordinate(receiver)
        same(ttnn.point_to_point(t, *ends), naive.send(sender, receiver))
        if place.dtype in SUMMED:
            near = 0.02 if place.dtype is ttnn.bfloat16 else 0
            total = ttnn.all_reduce(t, cluster_axis=axis)
            same(total, naive.all_reduce(axis), near)
            same(ttnn.all_reduce(t), naive.all_reduce(None), near)
            if min(mesh.shape) == 1:  # a line needs no axis
                same(ttnn.all_gather(t, dim), naive.all_gather(dim, None))
            if rank > 1:
                wide = Naive(naive.mesh, parts(gathered))
                part = ttnn.reduce_scatter(gathered, dim, cluster_axis=axis)
                same(part, wide.reduce_scatter(dim, axis), near)
        if gathered.layout is ROWS:
            wide = Naive(naive.mesh, parts(gathered))
            same(ttnn.mesh_partition(gathered, dim, axis), wide.partition(dim, axis))
            line = ttnn.repeat(t, [mesh.get_num_devices()] + [1] * (rank - 1))
            wanted = Naive(naive.mesh, parts(line)).partition(0, None)
            same(ttnn.mesh_partition(line, 0), wanted)


def test_given_outputs_are_written():
    with opened(T3000) as mesh:
        place = Place(None, "each", [2, 4], ttnn.float32, ROWS, 0)
        t, out = put(mesh, place), put(mesh, place, seed=50)
        kept, sent = parts(out), parts(t)
        ends = ttnn.MeshCoordinate(0, 1), ttnn.MeshCoordinate(0, 3)
        assert ttnn.point_to_point(t, *ends, output_tensor=out) is out
        for at, values in parts(out).items():
            np.testing.assert_array_equal(values, sent[0, 1] if at == (0, 3) else kept[at])
        wide = ttnn.zeros([2, 16], ttnn.float32, ROWS, mesh)
        assert ttnn.all_gather(t, 1, cluster_axis=1, output_tensor=wide) is wide
        same(wide, Naive((2, 4), sent).all_gather(1, 1))


def test_among_the_chips_that_a_tensor_covers():
    values = np.arange(4 * 8, dtype=np.float32).reshape(4, 8)
    with opened(T3000) as mesh:
        at = ttnn.MeshCoordinate(1, 2)
        mapper = mapper_over(mesh, (None, 0), ttnn.MeshShape(1, 2), at)
        t = ttnn.from_torch(values, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh, mesh_mapper=mapper)
        first, second = values[:2], values[2:]

        def shards(tensor):
            return list(parts(tensor).values())

        total = shards(ttnn.all_reduce(t, cluster_axis=1))
        np.testing.assert_array_equal(total, [first + second] * 2)
        sent = shards(ttnn.broadcast(t, ttnn.MeshCoordinate(1, 3), cluster_axis=1))
        np.testing.assert_array_equal(sent, [second] * 2)
        sent = shards(ttnn.broadcast(t, ttnn.MeshCoordinate(1, 3)))  # The two chips are a line.
        np.testing.assert_array_equal(sent, [second] * 2)
        each = [shards(one) for one in ttnn.all_broadcast(t, cluster_axis=1)]
        np.testing.assert_array_equal(each, [[first] * 2, [second] * 2])


@pytest.mark.filterwarnings("error")
def test_a_line_over_all_chips_stays_one():
    """As ttnn 0.81.1 has it on a mock cluster; with a 2-D fabric no axis is needed."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        mapper = ttnn.ShardTensorToMesh(mesh, dim=1)
        t = ttnn.from_torch(np.ones((2, 16), np.float32), device=mesh, mesh_mapper=mapper)
        for dim in (0, 1):
            topology = ttnn.all_gather(t, dim).tensor_topology()
            assert list(topology.distribution_shape()) == [8]
            assert topology.placements() == [ttnn.PlacementReplicate()]
        assert list(ttnn.all_reduce(t).tensor_topology().distribution_shape()) == [2, 4]


def test_refused():
    with opened(T3000) as mesh:
        t = put(mesh, Place(None, "each", [3, 4], ttnn.float32, TILE, 0))
        part = put(mesh, Place(None, "corner", [3, 4], ttnn.float32, TILE, 0))
        needs_all = "every chip of the mesh takes part"
        refused(lambda: ttnn.all_gather(part, 0, cluster_axis=1), needs_all)
        into, flat = {"cluster_axis": 1, "output_tensor": t}, ttnn.reshape(t, [12])
        refused(lambda: ttnn.all_gather(t, 0, **into), "the result has shape [12, 4]")
        least = "rank 2 tensors at minimum"
        refused(lambda: ttnn.reduce_scatter(flat, 0, cluster_axis=0), least)
        refused(lambda: ttnn.mesh_partition(t, 1, 1), "aligned to tiles: parts of 1")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=str)
def test_sums_that_overflow_say_nothing(dtype):
    with opened(T3000) as mesh:
        t = ttnn.full([32, 32], 3e38, dtype=dtype, layout=TILE, device=mesh)
        for tensor in (
            ttnn.all_reduce(t, cluster_axis=0),
            ttnn.all_reduce(t),
            ttnn.reduce_scatter(t, 0, cluster_axis=1),
        ):
            assert np.isinf(parts(tensor)[0, 0]).all()

"""Mappers cut, composers join: against plain loops over the chips."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from machine import mapper_over
from places import WORLDS, coordinates, laid, many, numbers, opened, parts, places, refused

import ttkit
from ttkit import ttnn

dims = st.one_of(st.none(), st.integers(0, 2))


def cut(values, over, placements):
    """The pieces in the order of the distribution."""
    found = []
    for at in coordinates(over):
        piece = values
        for axis, dim in enumerate(placements):
            if dim is not None:
                piece = np.split(piece, over[axis], dim)[at[axis]]
        found.append(piece)
    return found


@many(150)
@given(st.sampled_from(WORLDS), dims, dims, st.data())
def test_pieces_go_to_their_chips(world, first, second, data):
    """Any distribution: the mesh's own shape, one that fits at an offset, or one that runs over
    the chips in row-major order.
    """
    second = None if second == first else second
    with opened(world) as mesh:
        shape = tuple(mesh.shape)
        size = math.prod(shape)
        rows = data.draw(st.integers(1, size))
        over = rows, data.draw(st.integers(1, size // rows))
        fits, corner = all(n <= m for n, m in zip(over, shape)), (0, 0)
        if fits:
            corner = tuple(data.draw(st.integers(0, m - n)) for n, m in zip(over, shape))
        pieces = {d: n for d, n in zip((first, second), over) if d is not None}
        values = numbers([2 * pieces.get(d, 1) for d in range(3)], seed=1)
        where = ttnn.MeshShape(over), ttnn.MeshCoordinate(corner)
        cutter = mapper_over(mesh, (first, second), *where)
        tensor = ttkit.from_numpy(values, device=mesh, mesh_mapper=cutter)
        chips = (
            [tuple(o + i for o, i in zip(corner, c)) for c in coordinates(over)]
            if fits
            else coordinates(shape)[: math.prod(over)]
        )
        have = parts(tensor)
        assert list(have) == chips
        for values_here, wanted in zip(have.values(), cut(values, over, (first, second))):
            np.testing.assert_array_equal(values_here, wanted)
        if fits or chips == coordinates(shape):  # composed with other dims than it was cut along
            joined = ttnn.MeshComposerConfig([1, 2], *where)
            rows = [
                np.concatenate(list(have.values())[r * over[1] : (r + 1) * over[1]], 2)
                for r in range(over[0])
            ]
            whole = ttkit.to_numpy(tensor, mesh_composer=ttnn.create_mesh_composer(mesh, joined))
            np.testing.assert_array_equal(whole, np.concatenate(rows, 1))


@many(80)
@given(places(least=1), st.integers(0, 7))
def test_a_line_of_shards_is_joined_in_order(place, dim):
    with laid(place) as (mesh, tensor):
        dim %= len(place.shape)
        joined = ttkit.to_numpy(tensor, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=dim))
        np.testing.assert_array_equal(joined, np.concatenate(list(parts(tensor).values()), dim))
        host = ttnn.aggregate_tensor(tensor, ttnn.concat_mesh_to_tensor_composer(mesh, dim))
        assert host.storage_type() is ttnn.StorageType.HOST
        np.testing.assert_array_equal(ttkit.to_numpy(host), joined)


def test_a_wrapper_replicates_and_is_no_mapper():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        wrapper = ttnn.ReplicateTensorToMesh(mesh)
        assert type(wrapper).__name__ == "ReplicateTensorToMeshWrapper"
        assert not isinstance(wrapper, ttnn.TensorToMesh)
        assert isinstance(wrapper.unwrap(), ttnn.TensorToMesh)
        assert isinstance(ttnn.ShardTensorToMesh(mesh, 0), ttnn.TensorToMesh)
        values = numbers((2, 3))
        named = ttkit.from_numpy(values, device=mesh, mesh_mapper=wrapper)
        with ttnn.distribute(wrapper):
            default = ttkit.from_numpy(values)
        for tensor in (named, default):
            assert len(parts(tensor)) == 8
            for shard in parts(tensor).values():
                np.testing.assert_array_equal(shard, values)


def test_refused():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        chunks = "ND sharding requires the number of chunks 3 to match the mesh dimension size 4"
        # numbers of chunks come before their sizes: 3 rows do not divide, either
        for size, rule in (
            ((4, 3), chunks),
            ((3, 9), chunks),
            ((3, 8), "Shard shape mismatch: expected 2 elements"),
        ):
            how = {"device": mesh, "mesh_mapper": mapper_over(mesh, (0, 1))}
            refused(lambda size=size, how=how: ttkit.from_numpy(numbers(size), **how), rule)
        refused(lambda: ttnn.ShardTensor2dMesh(mesh, (2, 4), (0,)), "tuple index out of range")

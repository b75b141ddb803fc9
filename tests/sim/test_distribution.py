"""Mappers cut, composers join: against plain loops over the chips."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
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


def config(placements, *more):
    return ttnn.MeshMapperConfig([ttnn.PlacementReplicate() if d is None else ttnn.PlacementShard(d) for d in placements], *more)


@many(150)
@given(st.sampled_from(WORLDS), dims, dims, st.data())
def test_pieces_go_to_their_chips(world, first, second, data):
    """Any distribution: the mesh's own shape, one that fits at an offset, or one that runs over the chips in row-major order."""
    second = None if second == first else second
    with opened(world) as mesh:
        shape = tuple(mesh.shape)
        size = math.prod(shape)
        over = data.draw(st.tuples(st.integers(1, size), st.integers(1, size)).filter(lambda s: s[0] * s[1] <= size))
        fits = all(n <= m for n, m in zip(over, shape))
        corner = data.draw(st.tuples(*(st.integers(0, m - n) for n, m in zip(over, shape)))) if fits else (0, 0)
        pieces = {d: n for d, n in zip((first, second), over) if d is not None}
        values = numbers([2 * pieces.get(d, 1) for d in range(3)], seed=1)
        cutter = ttnn.create_mesh_mapper(mesh, config([first, second], ttnn.MeshShape(over), ttnn.MeshCoordinate(corner)))
        tensor = ttkit.from_numpy(values, device=mesh, mesh_mapper=cutter)
        chips = [tuple(o + i for o, i in zip(corner, c)) for c in coordinates(over)] if fits else coordinates(shape)[: math.prod(over)]
        have = parts(tensor)
        assert list(have) == chips
        for values_here, wanted in zip(have.values(), cut(values, over, (first, second))):
            np.testing.assert_array_equal(values_here, wanted)
        if fits or chips == coordinates(shape):  # composed with other dims than it was cut along
            joined = ttnn.MeshComposerConfig([1, 2], ttnn.MeshShape(over), ttnn.MeshCoordinate(corner))
            rows = [np.concatenate(list(have.values())[r * over[1] : (r + 1) * over[1]], 2) for r in range(over[0])]
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


@pytest.mark.parametrize(("size", "pieces"), [(8, 8), (16, 8), (5, 5), (1, 1), (6, 6)])
def test_one_dimension_over_the_chips(size, pieces):
    """By pieces as large as the first; where there are too few, the last chips hold nothing."""
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        values = numbers((size, 3))
        have = parts(ttkit.from_numpy(values, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0)))
        assert list(have) == coordinates((2, 4))[:pieces]
        np.testing.assert_array_equal(np.concatenate(list(have.values())), values)


def test_a_block_distributes_what_names_no_mapper():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        values = numbers((8, 6))
        with ttnn.distribute(ttnn.ShardTensor2dMesh(mesh, (2, 4), (1, 0))), ttnn.distribute(ttnn.ConcatMesh2dToTensor(mesh, (2, 4), (1, 0))):
            tensor = ttkit.from_numpy(values, device=mesh)
            np.testing.assert_array_equal(ttkit.to_numpy(tensor), values)
        assert list(tensor.shape) == [2, 3]
        with pytest.raises(RuntimeError, match="mesh composer"):
            ttkit.to_numpy(tensor)


def test_refused():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        place = lambda size, *args: ttkit.from_numpy(numbers(size), device=mesh, mesh_mapper=ttnn.create_mesh_mapper(mesh, config(*args)))  # noqa: E731
        refused(lambda: place((4, 4), [0]), "does not match the number of placements")
        refused(lambda: place((4, 4), [0, 0]), "dims must be unique")
        refused(lambda: place((4, 4), [None, 2]), "Invalid dimension index")
        refused(lambda: place((4, 3), [0, 1]), "ND sharding requires the number of chunks 3 to match the mesh dimension size 4")
        refused(lambda: place((9, 3), [0], ttnn.MeshShape([8])), "got 1 on the last one")
        refused(lambda: place((9, 3), [None, None], ttnn.MeshShape(3, 3)), "does not match the device shape size")
        refused(lambda: place((4, 4), [None, None], ttnn.MeshShape(1, 4), ttnn.MeshCoordinate(0, 1)), "does not fit within")
        refused(lambda: place((4, 4), [None, None], ttnn.MeshShape(1, 8), ttnn.MeshCoordinate(0, 1)), "only supported when the distribution fits")
        tensor = place((4, 4), [0, 1])
        refused(lambda: ttnn.create_mesh_composer(mesh, ttnn.MeshComposerConfig([0])), "does not match the number of dimensions")
        refused(lambda: ttkit.to_numpy(tensor, mesh_composer=ttnn.ConcatMesh2dToTensor(mesh, (2, 4), (1, 1))), "dims must be unique")
        refused(lambda: ttkit.to_numpy(tensor, mesh_composer=mesh), "mesh_composer=", TypeError)
        refused(lambda: ttnn.ShardTensor2dMesh(mesh, (2, 4), (0,)), "tuple index out of range", IndexError)
        refused(lambda: ttnn.distribute(3).__enter__(), "TensorToMesh or MeshToTensor", ValueError)
        refused(lambda: ttnn.distribute_tensor(tensor, ttnn.shard_tensor_to_mesh_mapper(mesh, 0)), "only supports host tensors")

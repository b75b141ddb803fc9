"""Meshes: which chips they have, parts of them, and other shapes of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import T3000, coordinates, many, numbers, opened, parts, refused

import ttkit
from ttkit import ttnn
from ttkit.hardware import current_system


def neighbours(shape):
    """Pairs of places next to each other in a row or a column."""
    for row, column in coordinates(shape):
        for other in ((row + 1, column), (row, column + 1)):
            if other in set(coordinates(shape)):
                yield (row, column), other


@pytest.mark.parametrize("system", ["n300", "t3000", "galaxy", "quietbox_bh"])
def test_neighbours_are_linked(system):
    ttkit.use_system(system)
    # with one, a single chip of an n300 cannot be opened
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    rows, columns = current_system().shape
    tried, count = 0, rows * columns
    for shape in itertools.product(range(1, count + 1), repeat=2):
        size, wanted = shape[0] * shape[1], ttnn.MeshShape(shape)
        if size > count:
            continue
        if not (
            1 in shape
            or all(a <= b for a, b in zip(shape, (rows, columns)))
            or all(a <= b for a, b in zip(shape, (columns, rows)))
        ):
            rule = "too big and is not rotatable"
            refused(lambda wanted=wanted: ttnn.open_mesh_device(wanted), rule)
            continue
        with ttnn.open_mesh_device(wanted) as mesh:
            assert len(set(mesh.get_device_ids())) == size
            assert mesh.get_num_devices() == wanted.mesh_size() == size
            for a, b in neighbours(shape):
                assert current_system().linked(mesh.id_at(a), mesh.id_at(b)), (shape, a, b)
            tried += 1
    assert tried >= 2


@many(100)
@given(st.data())
def test_submeshes_are_rectangles(data):
    with opened(("galaxy", (8, 4), None)) as mesh:
        values, whole = numbers((8, 4)), np.array(mesh.get_device_ids()).reshape(8, 4)
        for _ in range(data.draw(st.integers(1, 3))):  # a part of a part
            shape = tuple(data.draw(st.integers(1, n)) for n in mesh.shape)
            corner = tuple(data.draw(st.integers(0, n - m)) for n, m in zip(mesh.shape, shape))
            mesh = mesh.create_submesh(ttnn.MeshShape(shape), ttnn.MeshCoordinate(corner))
            whole = whole[tuple(slice(c, c + n) for c, n in zip(corner, shape))]
            assert mesh.get_device_ids() == whole.ravel().tolist()
            assert mesh.shape == ttnn.MeshShape(shape)
        divisors = ([d for d in range(1, n + 1) if n % d == 0] for n in shape)
        pieces = tuple(data.draw(st.sampled_from(each)) for each in divisors)
        parted = mesh.create_submeshes(ttnn.MeshShape(pieces))
        ids = [i for m in parted for i in m.get_device_ids()]
        assert sorted(ids) == sorted(mesh.get_device_ids())
        assert mesh.get_submeshes() == parted
        t = ttkit.from_numpy(values, device=parted[-1])
        assert list(parts(t)) == coordinates(pieces)
    assert not any(m.is_open for m in parted)


@many(40)
@given(st.lists(st.sampled_from([(2, 4), (4, 2), (1, 8), (8, 1)]), min_size=1, max_size=4))
def test_tensors_stay_on_their_chips_when_a_mesh_is_reshaped(shapes):
    with opened(T3000) as mesh:
        ids = mesh.get_device_ids()
        part = ttnn.create_mesh_mapper(
            mesh, ttnn.MeshMapperConfig(0, None, ttnn.MeshShape(2, 1), ttnn.MeshCoordinate(0, 3))
        )
        t = ttkit.from_numpy(numbers((2, 2)), device=mesh, mesh_mapper=part)
        text, used = str(t), ttkit.memory(mesh).used
        assert {chip for chip, nbytes in used.items() if nbytes} == {ids[3], ids[7]}
        for shape in shapes:
            mesh.reshape(ttnn.MeshShape(shape))
            assert sorted(mesh.get_device_ids()) == sorted(ids)
            assert mesh.shape == ttnn.MeshShape(shape)
            for a, b in neighbours(shape):
                assert mesh.system.linked(mesh.id_at(a), mesh.id_at(b))
            assert str(t) == text
            assert dict(sorted(ttkit.memory(mesh).used.items())) == dict(sorted(used.items()))
            how = {"device": mesh, "mesh_mapper": ttnn.ShardTensorToMesh(mesh, 0)}
            fresh = ttnn.neg(ttkit.from_numpy(numbers((8, 2)), **how))
            whole = np.concatenate(list(parts(fresh).values()))
            np.testing.assert_array_equal(whole, -numbers((8, 2)))
            del fresh


def test_programs_are_counted():
    """Eight operations gave 8 on the real library, too."""
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        mesh.enable_program_cache()
        x, y = (ttnn.ones([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh) for _ in range(2))
        assert mesh.num_program_cache_entries() == 0
        for _ in range(2):  # the second time nothing is new
            ttnn.add(x, y), ttnn.multiply(x, y), ttnn.exp(x), ttnn.relu(x)
            ttnn.matmul(x, y), ttnn.softmax(x, dim=-1), ttnn.layer_norm(x)
            ttnn.typecast(x, ttnn.float32)
            ttnn.add(y, x), x.cpu(), ttnn.ones([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
            assert mesh.num_program_cache_entries() == 8
        ttnn.add(x, 2.0), ttnn.add(x, 3.0)
        assert mesh.num_program_cache_entries() == 9
        ttnn.apply_device_delay(mesh, [[0, 5]])
        assert mesh.num_program_cache_entries() == 10
        mesh.disable_and_clear_program_cache()
        assert mesh.num_program_cache_entries() == 0


def test_each_mesh_and_submesh_has_the_next_id():
    """As on the real library's mock cluster."""
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        first = mesh.id()
        rows = mesh.create_submeshes(ttnn.MeshShape(1, 4))
        assert [row.id() - first for row in rows] == [1, 2]
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 4)) as again:
        assert again.id() == first + 3

"""The exercises of lesson 06: right answers, and wrong ones that are told what is wrong."""

import pytest
from machine import strict_with_fabric

import ttkit
from ttkit import lessons, ttnn


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def own(mesh, x, w, y):
    def put(array, mapper):
        return ttkit.from_numpy(array, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)

    rows = ttnn.ShardTensorToMesh(mesh, dim=0)
    x, y, w = put(x, rows), put(y, rows), put(w, ttnn.ReplicateTensorToMesh(mesh))
    error = ttnn.subtract(ttnn.matmul(x, w), y)
    return ttnn.multiply(ttnn.matmul(x, error, transpose_a=True), 2 / error.logical_volume())


def added(tensor, mesh, axes=(0, 1)):
    for axis in axes:
        tensor = ttnn.all_reduce(tensor, cluster_axis=axis) if mesh.shape[axis] > 1 else tensor
    return tensor


def right(mesh, x, w, y):
    return ttnn.multiply(added(own(mesh, x, w, y), mesh), 1 / mesh.get_num_devices())


def scaled_first(mesh, x, w, y):
    return added(ttnn.multiply(own(mesh, x, w, y), 1 / mesh.get_num_devices()), mesh)


def along_rows(mesh, x, w, y):
    return ttnn.multiply(added(own(mesh, x, w, y), mesh, [1]), 1 / mesh.shape[1])


def too_small(mesh, x, w, y):
    return ttnn.multiply(right(mesh, x, w, y), 1 / mesh.get_num_devices())


def whole_everywhere(mesh, x, w, y):
    everywhere = ttnn.ReplicateTensorToMesh(mesh)
    x, w, y = (
        ttkit.from_numpy(a, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=everywhere)
        for a in (x, w, y)
    )
    error = ttnn.subtract(ttnn.matmul(x, w), y)
    return ttnn.multiply(ttnn.matmul(x, error, transpose_a=True), 2 / error.logical_volume())


WRONG = [
    (own, "nothing was averaged"),
    (lambda mesh, *a: added(own(mesh, *a), mesh), "4 times too large: the sum over 4 devices"),
    (along_rows, "one axis of the mesh only"),
    (too_small, "4 times too small"),
    (whole_everywhere, "x is .* you cut nothing"),
]


@pytest.mark.parametrize("answer", [right, scaled_first])
def test_a_right_gradient_passes(answer, capsys):
    lessons.check("06.gradient", answer)
    assert "one gradient on all 8 devices" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "names"), WRONG)
def test_a_wrong_gradient_is_told_why(answer, names):
    with pytest.raises(lessons.CheckFailed, match=names):
        lessons.check("06.gradient", answer)

"""The lessons' helper room: predictions, comparisons, and each exercise with its solution and with wrong answers."""

import numpy as np
import pytest

import ttkit
from ttkit import lessons, ttnn
from ttkit.sim import mesh as sim_mesh


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    ttkit.strict()
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    yield
    for opened in list(sim_mesh.opened_meshes):
        opened.close()
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttkit.strict(False)


def put(mesh, x, mapper):
    return ttkit.from_numpy(x, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


def cut(mesh, dim):
    return ttnn.ShardTensorToMesh(mesh, dim=dim)


def everywhere(mesh):
    return ttnn.ReplicateTensorToMesh(mesh)


def over(mesh, *placements):
    return ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(list(placements)))


R, S = ttnn.PlacementReplicate(), ttnn.PlacementShard

RIGHT = {
    "00.double": lambda mesh, x: put(mesh, x, cut(mesh, 0)) * 2,
    "00.share": 384,
    "01.second_row": lambda mesh: mesh.create_submesh(ttnn.MeshShape(1, tuple(mesh.shape)[1]), ttnn.MeshCoordinate(1, 0)),
    "01.pairs": lambda mesh: mesh.create_submeshes(ttnn.MeshShape(2, 1)),
    "01.neighbours": lambda system, d: [o for o in system.coordinate_of if o != d and system.linked(o, d)],
    "02.columns": lambda mesh, x: put(mesh, x, over(mesh, R, S(1))),
    "02.round_trip": lambda mesh, x: ttkit.to_numpy(
        put(mesh, x, over(mesh, S(0), S(1))), mesh_composer=ttnn.create_mesh_composer(mesh, ttnn.MeshComposerConfig([0, 1]))
    ),
    "02.bytes": lambda shape, n, dim: 2 * int(np.prod([-(-s // (32 if i >= len(shape) - 2 else 1)) * (32 if i >= len(shape) - 2 else 1) for i, s in enumerate([s // n if i == dim else s for i, s in enumerate(shape)])])),  # noqa: E501
    "03.data_parallel": lambda mesh, x, a, b: ttnn.matmul(
        ttnn.relu(ttnn.matmul(put(mesh, x, cut(mesh, 0)), put(mesh, a, everywhere(mesh)))), put(mesh, b, everywhere(mesh))
    ),
    "03.column_parallel": lambda mesh, x, w, b: ttnn.linear(put(mesh, x, everywhere(mesh)), put(mesh, w, cut(mesh, 1)), bias=put(mesh, b, cut(mesh, 1))),
    "03.row_parallel": lambda mesh, x, w: ttnn.all_reduce(ttnn.matmul(put(mesh, x, cut(mesh, 1)), put(mesh, w, cut(mesh, 0))), cluster_axis=1),
}  # fmt: skip

# (exercise, wrong answer, what the feedback must name)
WRONG = [
    ("00.double", lambda mesh, x: put(mesh, x, everywhere(mesh)) * 2, "device 4 at (0, 0)"),
    ("00.double", lambda mesh, x: put(mesh, x, cut(mesh, 0)), "should be"),
    ("00.double", lambda mesh, x: ttkit.from_numpy(2 * x, mesh_mapper=cut(mesh, 0)), "host memory"),
    ("00.share", 48 * 64, "whole tensor"),
    ("00.share", 48 * 64 // 4, "are not 768"),
    ("01.second_row", lambda mesh: mesh.create_submesh(ttnn.MeshShape(1, tuple(mesh.shape)[1])), "device 5, your mesh has device 4"),
    ("01.second_row", lambda mesh: mesh.create_submeshes(ttnn.MeshShape(2, 1))[1], "device"),
    ("01.pairs", lambda mesh: mesh.create_submeshes(ttnn.MeshShape(1, 2)), "should hold devices"),
    ("01.pairs", lambda mesh: mesh.create_submeshes(ttnn.MeshShape(2, 2)), "4 pairs"),
    ("01.neighbours", lambda system, d: [o for o in system.coordinate_of if sum(abs(a - b) for a, b in zip(system.coordinate_of[o], system.coordinate_of[d])) == 1], "misses it"),  # noqa: E501
    ("01.neighbours", lambda system, d: [o for o in system.coordinate_of if abs(o - d) == 1], "device"),
    ("02.columns", lambda mesh, x: put(mesh, x, over(mesh, S(1), R)), "the shape should be"),
    ("02.columns", lambda mesh, x: put(mesh, x, cut(mesh, 1)), "the shape should be"),
    ("02.round_trip", lambda mesh, x: ttkit.to_numpy(put(mesh, x, cut(mesh, 1)), mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0)), "not what went out"),
    ("02.round_trip", lambda mesh, x: x + 1, "element [0, 0]"),
    ("02.bytes", lambda shape, n, dim: int(np.prod(shape)) // n * 2, "whole tiles"),
    ("02.bytes", lambda shape, n, dim: int(np.prod(shape)) * 2, "should be"),
    ("03.data_parallel", lambda mesh, x, a, b: ttnn.matmul(ttnn.matmul(put(mesh, x, cut(mesh, 0)), put(mesh, a, everywhere(mesh))), put(mesh, b, everywhere(mesh))), "device"),  # noqa: E501
    ("03.data_parallel", lambda mesh, x, a, b: RIGHT["03.data_parallel"](mesh, x[::-1].copy(), a, b), "device 4 at (0, 0)"),
    ("03.column_parallel", lambda mesh, x, w, b: ttnn.matmul(put(mesh, x, everywhere(mesh)), put(mesh, w, cut(mesh, 1))), "device"),
    ("03.column_parallel", lambda mesh, x, w, b: ttnn.linear(put(mesh, x, everywhere(mesh)), put(mesh, w, everywhere(mesh)), bias=put(mesh, b, everywhere(mesh))), "the shape should be"),  # noqa: E501
    ("03.row_parallel", lambda mesh, x, w: ttnn.matmul(put(mesh, x, cut(mesh, 1)), put(mesh, w, cut(mesh, 0))), "sum over the devices is missing"),
    ("03.row_parallel", lambda mesh, x, w: ttnn.multiply(RIGHT["03.row_parallel"](mesh, x, w), 0.5), "device"),
]  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_the_solution_passes(name, capsys):
    lessons.check(name, RIGHT[name])
    assert capsys.readouterr().out.startswith(f"exercise {name}: ")


@pytest.mark.parametrize(("name", "answer", "names"), WRONG, ids=[f"{w[0]}-{i}" for i, w in enumerate(WRONG)])
def test_a_wrong_answer_is_told_where(name, answer, names):
    with pytest.raises(lessons.CheckFailed) as error:
        lessons.check(name, answer)
    assert names in str(error.value)


def test_every_exercise_has_two_wrong_answers():
    from ttkit import exercises  # noqa: F401

    for name in lessons.EXERCISES:
        assert name in RIGHT and sum(w[0] == name for w in WRONG) >= 2, name


def test_an_answer_that_is_not_there_and_an_exercise_that_is_not():
    with pytest.raises(lessons.NotDone):
        lessons.check("00.share", ...)
    with pytest.raises(lessons.NotDone, match="write it"):
        lessons.todo("write it")
    with pytest.raises(lessons.CheckFailed, match="there is no exercise"):
        lessons.check("99.none", 1)


def test_predictions(capsys):
    lessons.predict(a=4, b=10, c=2).reveal(a=4, b=11, c=8)
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("right") and out[1].endswith("off by 1") and out[2].endswith("4 times too few")
    with pytest.raises(lessons.NotDone):
        lessons.predict(a="?")


def test_same_names_the_first_difference():
    with pytest.raises(lessons.CheckFailed, match=r"element \[1\] should be 2, is 3"):
        lessons.same(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    with pytest.raises(lessons.CheckFailed, match="shape should be"):
        lessons.same(np.ones(2), np.ones(3))

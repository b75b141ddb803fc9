"""What holds for the check of every exercise: what it says of an answer, and what it leaves behind."""

import itertools
import sys
import types
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from answers import S, by_axes, composed, cut, everywhere, put
from machine import strict_with_fabric

import ttkit
from ttkit import lessons, ttnn
from ttkit.sim import mesh as sim_mesh


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def test_an_error_in_an_answer_names_the_line_of_the_cell():
    notebook = {"__name__": "__main__"}
    exec(
        compile(
            "def double(mesh, x):\n    return helper(x)\n\ndef helper(x):\n    return x.nothing",
            "a cell",
            "exec",
        ),
        notebook,
    )
    with pytest.raises(
        lessons.CheckFailed,
        match=r"your double stopped with AttributeError in line 2 of your cell: .*nothing",
    ) as error:
        lessons.check("00.double", notebook["double"])
    assert error.value.__suppress_context__


def test_a_stub_stays_to_do():
    with pytest.raises(lessons.NotDone, match=r"exercise 00\.double"):
        lessons.check("00.double", lambda mesh, x: lessons.todo())


def test_an_answer_on_the_notebooks_mesh_is_told_so():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    tensor = put(mesh, np.ones((16, 4), np.float32), cut(mesh, 0))
    answers = [
        ("00.double", lambda m, x: put(mesh, x, cut(mesh, 0)) * 2),
        ("00.double", lambda m, x: tensor),
        ("01.pairs", lambda m: mesh.create_submeshes(ttnn.MeshShape(2, 1))),
        ("02.round_trip", lambda m, x: composed(by_axes(mesh, x, S(0), S(1)), mesh, 0, 1)),
    ]
    for name, answer in answers:
        with pytest.raises(lessons.CheckFailed, match="uses another mesh than the one it is given"):
            lessons.check(name, answer, mesh)


def by_rows(mesh, x, w):
    return ttnn.matmul(put(mesh, x, cut(mesh, 1)), put(mesh, w, cut(mesh, 0)))


def row_parallel(mesh, x, w):
    return ttnn.all_reduce(by_rows(mesh, x, w), cluster_axis=1)


@pytest.mark.parametrize("fabric", ["DISABLED", "FABRIC_1D", "FABRIC_1D_RING"])
def test_a_check_without_an_open_mesh_leaves_the_fabric_as_it_was(fabric):
    config = getattr(ttnn.FabricConfig, fabric)
    ttnn.set_fabric_config(config)
    lessons.check("03.row_parallel", row_parallel)
    with pytest.raises(lessons.CheckFailed):
        lessons.check(
            "03.row_parallel", lambda mesh, x, w: [ttnn.open_mesh_device(ttnn.MeshShape(1, 1))][1]
        )
    assert ttnn.get_fabric_config() is config and not sim_mesh.opened_meshes


def test_a_mesh_without_fabric_is_named():
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
    with pytest.raises(lessons.CheckFailed, match="before you open the mesh"):
        lessons.check("03.row_parallel", row_parallel, mesh)
    assert sim_mesh.opened_meshes == [mesh]


def test_a_budget_is_said(capsys):
    lessons.check("03.row_parallel", row_parallel)
    # [32, 32] and [32, 48 -> 64] in tiles
    assert "12,288 of 12,288 bytes allowed on each of 3 chips" in capsys.readouterr().out


def test_on_a_card_values_decide(monkeypatch, capsys):
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
    monkeypatch.setattr(
        "ttkit.lessons.answers.backend", types.SimpleNamespace(is_simulated=lambda: False)
    )
    with pytest.raises(lessons.CheckFailed, match="needs your open mesh"):
        lessons.check("03.row_parallel", row_parallel)
    with pytest.raises(lessons.CheckFailed, match="partial sum"):
        lessons.check("03.row_parallel", by_rows, mesh)
    put_in_numpy = lambda mesh, x, w: put(mesh, x @ w, everywhere(mesh))  # noqa: E731
    lessons.check("03.row_parallel", put_in_numpy, mesh)
    assert "values only" in capsys.readouterr().out


def tensors_of_any_shape(mesh, *shapes):
    return [put(mesh, np.ones(shape, np.float32), everywhere(mesh)) for shape in shapes]


STRANGE = [None, 3, -1, 2.5, float("nan"), "x", b"x", (), (1, 2), [], [None], [[0]], {}, {"a": 1}, object(), object, np.ones(3), np.ones((2, 2, 2)),
           np.array("a"), np.array([None]),
           10**400, -(10**5000), Fraction(10**400), Decimal("sNaN"), [10**5000], 1e300, "9" * 5000,
           np.ones(4, complex), ttnn.MeshShape(2, 4), ttnn.float32, ttnn.Tensor, ttnn.MeshDevice]  # fmt: skip


ON_RANKS = ("05.shift", "05.all_reduce", "06.bucket")


class Unprintable(Exception):
    def __str__(self):
        raise ValueError

    __repr__ = __str__


def raises_it(*args):
    raise Unprintable


@pytest.mark.parametrize(
    "name", [name for name in sorted(lessons.exercises()) if name not in (*ON_RANKS, "12.loop")]
)
def test_nothing_that_an_answer_gives_stops_a_check(name):
    answers = [
        *STRANGE,
        *(lambda *args, value=value: value for value in STRANGE),
        lambda: 0,
        lambda *args: 1 / 0,
        lambda *args: sys.exit(),
        lambda *args: itertools.count(),
        Unprintable(),
        lambda *args: Unprintable(),
        raises_it,
        lambda *args: exec("("),
    ]
    answers += [
        lambda mesh, *args: (1 / 0 for _ in "a"),
        lambda mesh, *args: mesh,
        lambda mesh, *args: [mesh],
        lambda mesh, *args: ttnn.close_mesh_device(mesh),
    ]
    answers += [
        lambda mesh, *args, shape=shape: tensors_of_any_shape(mesh, shape)[0]
        for shape in [(1,), (2, 24), (3, 1, 2), (1, 1, 1, 1), (0, 2)]
    ]
    answers += [
        lambda mesh, *args: tensors_of_any_shape(mesh, (2, 2)),
        lambda mesh, *args: ttnn.get_device_tensors(tensors_of_any_shape(mesh, (2, 2))[0]),
    ]
    answers += [
        lambda mesh, *args: ttnn.get_device_tensors(tensors_of_any_shape(mesh, (2, 2))[0])[0],
        lambda *args: ttnn.zeros([2, 2]),
    ]
    answers += [
        lambda mesh, *args: ttkit.from_numpy(
            np.ones((2, 2), np.int32), device=mesh, mesh_mapper=cut(mesh, 0)
        )
    ]
    answers += [
        lambda mesh, *args: [t := tensors_of_any_shape(mesh, (2, 2))[0], ttnn.deallocate(t)][0]
    ]
    answers += [
        lambda mesh, *args: [part := mesh.create_submesh(ttnn.MeshShape(1, 2)), part.close()][0]
    ]
    answers += [
        lambda mesh, *args: (
            [parts := mesh.create_submeshes(ttnn.MeshShape(2, 1)), [p.close() for p in parts]][0]
            * 2
        )
    ]
    for answer in answers:
        with pytest.raises((lessons.CheckFailed, lessons.NotDone)):
            lessons.check(name, answer)
    assert not sim_mesh.opened_meshes

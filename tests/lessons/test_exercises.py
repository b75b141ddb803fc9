"""One declaration, one runner: what a check says of an answer, and how hints are given."""

import importlib
import re
import types

import numpy as np
import pytest
from answers import all_exercises, columns, cut, rows, whole

import ttkit
from ttkit import lessons, ttnn
from ttkit.lessons import exercises, on_meshes
from ttkit.lessons.comparing import answer_difference
from ttkit.sim import mesh as sim_mesh


@pytest.fixture
def declared(monkeypatch):
    """A declaration of an exercise of lesson 00, which is forgotten after the test."""
    importlib.import_module("course.lesson_00")  # The lesson's own must not be forgotten with it.
    monkeypatch.setattr(exercises, "DECLARED", {})
    monkeypatch.setattr(exercises, "_hints_shown", {})

    def declare(**what):
        exercises.Exercise("00.mine", **{"hints": ["How many?", "2"], **what})
        return lambda answer: lessons.check("00.mine", answer)

    return declare


def test_an_exercise_that_is_not_begun_tells_how_to_get_a_hint(capsys):
    for undone in (..., None, lambda mesh, x: lessons.todo()):
        lessons.check("00.double", undone)
        said = 'exercise 00.double: not done yet. For a hint: lessons.hint("00.double")\n'
        assert capsys.readouterr().out == said


def test_an_exercise_that_there_is_not():
    for call in (lessons.hint, lambda name: lessons.check(name, 1)):
        for name in ("00.none", "99.none"):
            with pytest.raises(ttkit.TTKitError, match="there is none with this name"):
                call(name)


def test_without_the_folder_course_it_is_said_where_to_run(monkeypatch):
    monkeypatch.setattr(
        exercises, "import_module", lambda name: (_ for _ in ()).throw(missing("course"))
    )
    with pytest.raises(ttkit.TTKitError, match="is not beside this notebook"):
        lessons.check("00.double", 1)


def missing(name):
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_each_call_gives_one_more_hint(declared, capsys):
    declared(asks="the number", reference=lambda: 2)
    for _ in range(3):
        lessons.hint("00.mine")
    assert capsys.readouterr().out.splitlines() == [
        "hint 1 of 2: How many?",
        "hint 2 of 2: 2",
        "00.mine has no more hints. The solution is in the folded cell below the exercise.",
    ]


def test_a_value_is_not_given_away(declared):
    check = declared(asks="the number", reference=lambda: 7, mistakes={"half": lambda: 3.5})
    check(7.0)
    with pytest.raises(lessons.CheckFailed, match=r"^the number is not 3.5: half$"):
        check(3.5)
    with pytest.raises(lessons.CheckFailed, match=r"^the number is not 5$"):
        check(5)


def test_a_function_is_told_the_call_the_difference_and_the_mistake(declared, capsys):
    check = declared(
        asks="area(width, height)",
        reference=lambda width, height: width * height,
        cases=[(2, 2), (2, 3)],
        mistakes={"{width} and {height} are added": lambda width, height: width + height},
        rules=lambda found, width, height: "a whole number" if isinstance(found, float) else "",
        praise="{height} rows",
    )
    check(lambda a, b: a * b)
    assert capsys.readouterr().out == "✓ exercise 00.mine: 3 rows\n"
    said = r"^area\(2, 3\) should be 6, but is 5: 2 and 3 are added$"
    with pytest.raises(lessons.CheckFailed, match=said):
        check(lambda a, b: a + b)
    with pytest.raises(lessons.CheckFailed, match=r"^area\(2, 2\): a whole number$"):
        check(lambda a, b: 1.0 * a * b)
    with pytest.raises(lessons.CheckFailed, match="does it end with `return`"):
        check(lambda a, b: None)
    with pytest.raises(lessons.CheckFailed, match="without brackets after its name"):
        check(4)


def test_what_an_answer_raises_is_shown_as_it_is():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        lessons.check("00.double", lambda mesh, x: x.nothing)


def test_an_answer_may_write_into_its_arguments(declared):
    def doubled(x):
        x *= 2
        return x

    check = declared(
        asks="doubled(x)", reference=lambda x: 2 * x, cases=[(np.arange(3.0),), (np.ones(2),)]
    )
    check(doubled)


@pytest.mark.parametrize(
    ("want", "have", "said"),
    [
        (np.ones(2), "a", "should be an array, but is a str"),
        (np.ones(2), [1, 2], "element [1] should be 1, but is 2"),
        (3, True, "should be a number, but is True"),
        (0.5, 0.25, "should be 0.5, but is 0.25"),
        ([1, 2], [1], "should have 2 items, but has 1"),
        ([1, 2], 3, "should be a list of 2, but is 3"),
        ([np.ones(2), np.ones(2)], [np.ones(2), np.ones(3)], "item 1 the shape should be [2]"),
        ({1}, {2}, "should be {1}, but is {2}"),
        (0.5, 0.5 + 1e-9, ""),
        ("a", "a", ""),
    ],
)
def test_what_differs_is_said(want, have, said):
    found = answer_difference(want, have)
    assert found.startswith(said) and bool(found) == bool(said)


# ---------------------------------------------------------------- the usual mistakes of the course
# What is compared in these is not the answer: it is read from a plan, a mesh or several ranks.
READ = {"01.second_row", "04.broadcast", "04.reduce_scatter", "12.step", "13.layer"}
READ |= {"06.shift", "06.all_reduce", "07.redistribute", "09.bucket", "17.loop"}
# On one of its meshes each of these gives the right result, and then breaks another rule.
ELSEWHERE = ("the mean is over axis", "the sum is along")
USUAL = [
    (name, sentence)
    for name, declared in all_exercises().items()
    for sentence in declared.mistakes
    if name not in READ and not sentence.startswith(ELSEWHERE)
]


def placed(mesh, shards):
    """A tensor that has these arrays on the devices, in their order."""
    shards = [np.ascontiguousarray(shard, np.float32) for shard in shards]
    hosts = [ttkit.from_numpy(shard, layout=ttnn.TILE_LAYOUT) for shard in shards]
    return ttnn.to_device(ttnn.from_host_shards(hosts, mesh.shape), mesh)


@pytest.mark.parametrize(("name", "sentence"), USUAL)
def test_an_answer_with_a_usual_mistake_is_told_so(name, sentence):
    """The mistake is found by the cases, and by no other one that is asked for before it."""
    declared = all_exercises()[name]
    mistake, on_meshes = declared.mistakes[sentence], hasattr(declared.cases, "runs")

    def answer(*given):
        usual = mistake(*given)
        found = declared.reference(*given) if usual is None else usual
        return placed(given[0], found) if on_meshes else found

    with pytest.raises(lessons.CheckFailed) as refused:
        lessons.check(name, answer if "(" in declared.asks else mistake())
    said = " ".join(str(refused.value).split())
    assert all(part in said for part in re.split(r"{.*?}", sentence)), said


# ---------------------------------------------------------------- on meshes
def by_rows(mesh, x, w):
    return ttnn.matmul(columns(mesh, x), rows(mesh, w))


def not_summed(mesh, x, w, b):
    return by_rows(mesh, x, w) + whole(mesh, b)


def row_parallel(mesh, x, w, b):
    return ttnn.all_reduce(by_rows(mesh, x, w), cluster_axis=1) + whole(mesh, b)


def test_an_answer_on_the_notebooks_mesh_is_told_so():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    with pytest.raises(lessons.CheckFailed, match="use the parameter mesh"):
        lessons.check("00.double", lambda m, x: columns(mesh, x) * 2, mesh)


def test_a_tensor_on_the_host_is_told_so():
    with pytest.raises(lessons.CheckFailed, match="device=mesh is missing"):
        lessons.check("00.double", lambda mesh, x: ttkit.from_numpy(x, mesh_mapper=cut(mesh, 1)))


@pytest.mark.parametrize("fabric", ["DISABLED", "FABRIC_1D", "FABRIC_1D_RING"])
def test_a_check_without_an_open_mesh_leaves_the_fabric_as_it_was(fabric):
    config = getattr(ttnn.FabricConfig, fabric)
    ttnn.set_fabric_config(config)
    lessons.check("03.row_parallel", row_parallel)
    with pytest.raises(lessons.CheckFailed) as kept:  # as a notebook keeps the last error
        lessons.check(
            "03.row_parallel", lambda mesh, *_: [ttnn.open_mesh_device(ttnn.MeshShape(1, 1))][1:]
        )
    assert ttnn.get_fabric_config() is config and not sim_mesh.opened_meshes and kept


def test_a_wrong_answer_leaves_no_mesh_open():
    """The traceback is kept, as a notebook keeps the last one."""
    with pytest.raises(lessons.CheckFailed) as _kept:
        lessons.check("00.double", lambda mesh, x: columns(mesh, x) * 3)
    assert not sim_mesh.opened_meshes


def test_a_mesh_without_fabric_is_named():
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
    with pytest.raises(lessons.CheckFailed, match="before you open the mesh"):
        lessons.check("03.row_parallel", row_parallel, mesh)
    assert sim_mesh.opened_meshes == [mesh]


def test_a_budget_is_said(capsys):
    lessons.check("03.row_parallel", row_parallel)
    # [32, 32], [32, 48 -> 64] and [1, 48] in tiles
    said = " ".join(capsys.readouterr().out.split())
    assert "the host put 20,480 bytes on each of the check's 3 chips (limit 20,480)" in said


def test_on_a_card_values_decide(monkeypatch, capsys):
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
    card = types.SimpleNamespace(is_simulated=lambda: False, load=lambda: ttnn)
    monkeypatch.setattr(on_meshes, "backend", card)
    with pytest.raises(lessons.CheckFailed, match="needs your open mesh"):
        lessons.check("03.row_parallel", row_parallel)
    with pytest.raises(lessons.CheckFailed, match="partial sum"):
        lessons.check("03.row_parallel", not_summed, mesh)
    lessons.check("03.row_parallel", lambda mesh, x, w, b: whole(mesh, x @ w + b), mesh)
    assert "values only" in capsys.readouterr().out

"""Tests of right and of wrong answers to exercises; short ways to place an array on a mesh."""

import os
import pathlib
import re
from contextlib import contextmanager
from importlib import import_module

import pytest

import ttkit
from ttkit import lessons, ttnn
from ttkit.lessons import exercises

SUPPORT = pathlib.Path(__file__).resolve().parent
NOTEBOOKS = SUPPORT.parents[1] / "notebooks"


@contextmanager
def engines(ranks):
    """A cluster whose ranks find `course`, as those of a lesson do, and the modules of tests."""
    folders = map(str, (SUPPORT.parents[1], NOTEBOOKS, SUPPORT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(folders))
        with ttkit.Cluster(ranks) as cluster:
            yield cluster


def all_of(kind):
    """Every declaration of a kind in the course, by its name."""
    for path in sorted((NOTEBOOKS / "course").glob("lesson_*.py")):
        import_module(f"course.{path.stem}")
    return {name: one for name, one in exercises.DECLARED.items() if isinstance(one, kind)}


def all_exercises():
    """Every exercise of the course, by its name."""
    return all_of(exercises.Exercise)


def all_challenges():
    """Every challenge of the course, by its name."""
    return all_of(exercises.Challenge)


def numbered(answers):
    """A name for each, as "10.swiglu-2"."""
    return [f"{name}-{i}" for i, (name, *_) in enumerate(answers)]


def right(answers, on=None):
    """A test that the check of its exercise takes each (exercise, answer), and says so first."""

    @pytest.mark.parametrize(("name", "answer"), answers, ids=numbered(answers))
    def test(name, answer, capsys, request):
        lessons.check(name, answer, request.getfixturevalue(on) if on else None)
        assert capsys.readouterr().out.startswith(f"✓ exercise {name}: ")

    return test


def wrong(answers, on=None):
    """A test that each (exercise, answer, what the feedback must name, as a pattern) is refused
    with such a feedback.
    """

    @pytest.mark.parametrize(("name", "answer", "names"), answers, ids=numbered(answers))
    def test(name, answer, names, request):
        given = request.getfixturevalue(on) if on else None
        with pytest.raises(lessons.CheckFailed, match=names):
            lessons.check(name, answer, given)

    return test


def both(table, on=None):
    """Two tests of {exercise: (right answers, {what the feedback must say: wrong answer})}.

    Each exercise has two right answers or more, in different forms; the wrong ones are those that
    its declaration does not name (test_exercises.py has these) or that other devices compute.
    `on` names the fixture of what they run on.
    """
    for name, (rights, _) in table.items():
        assert len(rights) >= 2, name
    good = [(name, answer) for name, (rights, _) in table.items() for answer in rights]
    bad = [
        (name, answer, re.escape(said))
        for name, (_, wrongs) in table.items()
        for said, answer in wrongs.items()
    ]
    return right(good, on), wrong(bad, on)


def put(mesh, x, mapper):
    return ttkit.from_numpy(x, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


def cut(mesh, dim):
    return ttnn.ShardTensorToMesh(mesh, dim=dim)


def everywhere(mesh):
    return ttnn.ReplicateTensorToMesh(mesh)


def rows(mesh, x):
    return put(mesh, x, cut(mesh, 0))


def columns(mesh, x):
    return put(mesh, x, cut(mesh, 1))


def whole(mesh, x):
    return put(mesh, x, everywhere(mesh))


def over(mesh, *placements):
    return ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(list(placements)))


R, S = ttnn.PlacementReplicate(), ttnn.PlacementShard


def by_axes(mesh, x, *placements):
    return put(mesh, x, over(mesh, *placements))

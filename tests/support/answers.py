"""Tests of right and of wrong answers to exercises; short ways to place an array on a mesh."""

import pytest

import ttkit
from ttkit import lessons, ttnn


def numbered(answers):
    """A name for each, as "07.swiglu-2"."""
    return [f"{name}-{i}" for i, (name, *_) in enumerate(answers)]


def right(answers):
    """A test that the check of its exercise takes each (exercise, answer), and says so first."""

    @pytest.mark.parametrize(("name", "answer"), answers, ids=numbered(answers))
    def test(name, answer, capsys):
        lessons.check(name, answer)
        assert capsys.readouterr().out.startswith(f"exercise {name}: ")

    return test


def wrong(answers):
    """A test that each (exercise, answer, what the feedback must name, as a pattern) is refused
    with such a feedback.
    """

    @pytest.mark.parametrize(("name", "answer", "names"), answers, ids=numbered(answers))
    def test(name, answer, names):
        with pytest.raises(lessons.CheckFailed, match=names):
            lessons.check(name, answer)

    return test


def put(mesh, x, mapper):
    return ttkit.from_numpy(x, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


def cut(mesh, dim):
    return ttnn.ShardTensorToMesh(mesh, dim=dim)


def everywhere(mesh):
    return ttnn.ReplicateTensorToMesh(mesh)


def over(mesh, *placements):
    return ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(list(placements)))


R, S = ttnn.PlacementReplicate(), ttnn.PlacementShard


def by_axes(mesh, x, *placements):
    return put(mesh, x, over(mesh, *placements))


def composed(tensor, mesh, *dims):
    return ttkit.to_numpy(
        tensor, mesh_composer=ttnn.create_mesh_composer(mesh, ttnn.MeshComposerConfig(list(dims)))
    )

"""Exercises of lesson 02: right answers in several ways, and wrong ones."""

import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from answers import R, S, by_axes, composed, cut, everywhere, over, put, right, wrong
from machine import strict_with_fabric

import ttkit
from ttkit import lessons, ttnn


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def bytes_per_chip(shape, devices, dim, up=lambda n: -(-n // 32) * 32):
    shard = list(shape)
    shard[dim] //= devices
    for last in (-1, -2):
        shard[last] = up(shard[last])
    return 2 * int(np.prod(shard))


def on_the_host(tensor):
    return [ttkit.to_numpy(t) for t in ttnn.get_device_tensors(tensor)]


def with_a_default_composer(mesh, x):
    tensor = by_axes(mesh, x[None, None], S(2), S(3))
    with ttnn.distribute(ttnn.create_mesh_composer(mesh, ttnn.MeshComposerConfig([2, 3]))):
        return ttkit.to_numpy(tensor)[0, 0]


def rounded_first(shape, devices, dim):
    whole = [*shape[:-2], *(-(-n // 32) * 32 for n in shape[-2:])]
    whole[dim] //= devices
    return 2 * int(np.prod(whole))


def there_and_back(mesh, x, there=None):
    return composed(by_axes(mesh, x if there is None else there, S(0), S(1)), mesh, 0, 1)


def and_asserts(mesh, x):
    y = there_and_back(mesh, x)
    assert np.array_equal(x, y)
    return y


def written_into_x(mesh, x):
    x[:] = there_and_back(mesh, x)
    return x


def of_eight(mesh, x):
    """Right for a mesh of eight."""
    shape = (mesh.shape[0], 8 // mesh.shape[0])
    return put(mesh, x, ttnn.ShardTensor2dMesh(mesh, mesh_shape=shape, dims=(None, 1)))


RIGHT = [
    ("02.round_trip", written_into_x),
    ("02.round_trip", lambda mesh, x: there_and_back(mesh, x).astype(np.float64).copy()),
    ("02.round_trip", lambda mesh, x: np.zeros_like(x) + there_and_back(mesh, x)),
    ("02.round_trip", and_asserts),
    ("02.bytes", lambda *a: Fraction(bytes_per_chip(*a))),
    ("02.bytes", lambda *a: Decimal(bytes_per_chip(*a))),
    ("02.columns", lambda mesh, x: by_axes(mesh, x, R, S(1))),
    (
        "02.columns",
        lambda mesh, x: put(
            mesh, x, ttnn.ShardTensor2dMesh(mesh, mesh_shape=tuple(mesh.shape), dims=(None, 1))
        ),
    ),
    ("02.columns", lambda mesh, x: by_axes(mesh, x, R, S(-1))),
    ("02.round_trip", lambda mesh, x: composed(by_axes(mesh, x, S(0), S(1)), mesh, 0, 1)),
    ("02.round_trip", lambda mesh, x: composed(by_axes(mesh, x, S(1), S(0)), mesh, 1, 0)),
    (
        "02.round_trip",
        lambda mesh, x: ttnn.aggregate_tensor(
            by_axes(mesh, x, S(0), S(1)),
            ttnn.create_mesh_composer(mesh, ttnn.MeshComposerConfig([0, 1])),
        ).to_numpy(),
    ),
    ("02.round_trip", with_a_default_composer),
    ("02.bytes", bytes_per_chip),
    ("02.bytes", lambda *a: np.float64(bytes_per_chip(*a))),
]

# (exercise, wrong answer, what the feedback must name)
WRONG = [
    ("02.columns", lambda mesh, x: by_axes(mesh, x, S(1), R), "you cut dimension 1 in 2"),
    ("02.columns", lambda mesh, x: by_axes(mesh, x, R, S(0)), "you cut dimension 0 in 4"),
    ("02.columns", lambda mesh, x: put(mesh, x, cut(mesh, 1)), "you cut dimension 1 in 8"),
    ("02.columns", lambda mesh, x: by_axes(mesh, x, R, R), "you cut nothing"),
    ("02.columns", lambda mesh, x: ttkit.from_numpy(x, device=mesh, mesh_mapper=over(mesh, R, S(1))), "tiles are asked for"),
    (
        "02.columns",
        lambda mesh, x: ttkit.from_numpy(x, device=mesh, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, mesh_mapper=over(mesh, R, S(1))),
        "float32 is asked for",
    ),
    ("02.round_trip", lambda mesh, x: ttkit.to_numpy(put(mesh, x, cut(mesh, 1)), mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=1)), "you cut dimension 1 in 8"),
    ("02.round_trip", lambda mesh, x: ttkit.to_numpy(put(mesh, x, cut(mesh, 0)), mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0)), "you cut dimension 0 in 8"),
    ("02.round_trip", lambda mesh, x: on_the_host(put(mesh, x, everywhere(mesh)))[0], "you cut nothing"),
    ("02.round_trip", lambda mesh, x: composed(by_axes(mesh, x, S(0), S(1)), mesh, 1, 0), "not what went out"),
    ("02.round_trip", lambda mesh, x: x + 1, "element [0, 0]"),
    ("02.round_trip", lambda mesh, x: x, "never put on the mesh"),
    ("02.round_trip", lambda mesh, x: x.copy(), "never put on the mesh"),
    ("02.round_trip", lambda mesh, x: [composed(by_axes(mesh, x, S(0), S(1)), mesh, 0, 1), x][1], "the x that went in"),
    ("02.round_trip", lambda mesh, x: [by_axes(mesh, x, S(0), S(1)), x.copy()][1], "nothing came back"),
    ("02.round_trip", lambda mesh, x: np.vstack([np.hstack(on_the_host(by_axes(mesh, x, S(0), S(1)))[i * mesh.shape[1] :][: mesh.shape[1]]) for i in range(mesh.shape[0])]), "joined by hand"),
    ("02.columns", of_eight, "your columns stopped with"),
    ("02.round_trip", lambda mesh, x: [there_and_back(mesh, x), x.copy()][1], "the x that went in"),
    ("02.round_trip", lambda mesh, x: [there_and_back(mesh, x, 0 * x), x.copy()][1], "the x that went in"),
    ("02.bytes", lambda *a: 10**400, "should be a whole number below 1e+18, is 1000"),
    ("02.round_trip", lambda mesh, x: None, "gave nothing back"),
    ("02.round_trip", lambda mesh, x: np.array(["a"]), "a NumPy array of numbers"),
    ("02.bytes", lambda shape, n, dim: int(np.prod(shape)) // n * 2, "whole tiles"),
    ("02.bytes", lambda shape, n, dim: int(np.prod(shape)) * 2, "should be"),
    ("02.bytes", lambda *a: bytes_per_chip(*a, up=lambda n: max(32, n)), "rounded up to a multiple of 32"),
    ("02.bytes", lambda *a: 2 * bytes_per_chip(*a), "bfloat16 takes 2 bytes"),
    ("02.bytes", lambda *a: None, "should be a whole number, is None"),
    ("02.bytes", lambda *a: "32768", "should be a whole number"),
    ("02.bytes", lambda *a: (1, 2), "should be a whole number"),
    ("02.columns", lambda mesh, x: by_axes(mesh, x, S(1), S(0)), "you cut dimension 0 in 4"),
    ("02.columns", lambda mesh, x: put(mesh, x[:, ::-1].copy(), over(mesh, R, S(1))), "device 4 at (0, 0)"),
    ("02.columns", lambda mesh, x: ttkit.from_numpy(x, layout=ttnn.TILE_LAYOUT, mesh_mapper=over(mesh, R, S(1))), "host memory"),
    ("02.bytes", rounded_first, "divide first: the shard is rounded up to tiles, not the whole"),
    ("02.bytes", lambda shape, n, dim: 32768, "should be"),
    ("02.bytes", lambda shape, n, dim: bytes_per_chip(shape, n, 0), "should be"),
]  # fmt: skip


test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_where = wrong(
    [(name, answer, re.escape(names)) for name, answer, names in WRONG]
)


def test_every_exercise_has_four_wrong_answers():
    for name in (name for name in lessons.exercises() if name.startswith("02.")):
        assert name in dict(RIGHT) and sum(w[0] == name for w in WRONG) >= 4, name

"""Lesson 02: answers to its exercises beside those of test_lesson_02.py, and the numbers of
its section on placements.
"""

import math
import re

import numpy as np
import pytest
from answers import R, S, by_axes, composed, over, put, right, wrong
from machine import strict_with_fabric

import ttkit
from ttkit import ttnn
from ttkit.lessons.lesson_02 import _why
from ttkit.visualize.placement import placement


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def up(n):
    return math.ceil(n / 32) * 32


def bytes_of(shape, devices, dim, *, first=up, last=up, front=lambda n: n):
    """The lesson's solution; with another rounding, a wrong one."""
    shard = [n // devices if d == dim else n for d, n in enumerate(shape)]
    return 2 * math.prod([*map(front, shard[:-2]), first(shard[-2]), last(shard[-1])])


def rounded_before(shape, devices, dim):
    shape = [*shape[:-2], *map(up, shape[-2:])]
    shape[dim] //= devices
    return 2 * math.prod(shape)


def rounded_twice(shape, devices, dim):
    """Right: rounding up before the division changes nothing, where it is rounded up after it."""
    return bytes_of([*shape[:-2], *map(up, shape[-2:])], devices, dim)


def opened(shape, devices, dim):
    """Right, by making the tensor."""
    with ttnn.open_mesh_device(ttnn.MeshShape(1, devices)) as mesh:
        mapper = ttnn.ShardTensorToMesh(mesh, dim=dim)
        tensor = put(mesh, np.zeros(shape, np.float32), mapper)
        return math.prod(tensor.padded_shape) * 2


RIGHT = [
    ("02.bytes", bytes_of),
    ("02.bytes", rounded_twice),
    ("02.bytes", opened),
    ("02.columns", lambda mesh, x: ttnn.to_layout(ttkit.from_numpy(x, device=mesh, mesh_mapper=over(mesh, R, S(1))), ttnn.TILE_LAYOUT)),
]  # fmt: skip


# (exercise, wrong answer, what the feedback must name)
WRONG = [
    ("02.columns", lambda mesh, x: by_axes(mesh, x, S(0), S(1)), "you cut"),
    ("02.columns", lambda mesh, x: put(mesh, x, ttnn.ShardTensor2dMesh(mesh, mesh_shape=(2, 4), dims=(None, 1))), "4x2 grid, 8 devices), x is [64, 192]: you cut dimension 1 in 4"),
    ("02.columns", lambda mesh, x: by_axes(mesh, x[:, ::-1].copy(), R, S(1)), "device 4 at (0, 0)"),
    ("02.columns", lambda mesh, x: by_axes(mesh, 2 * x, R, S(1)), "device 4 at (0, 0)"),
    ("02.columns", lambda mesh, x: ttkit.from_numpy(x, layout=ttnn.TILE_LAYOUT, mesh_mapper=over(mesh, R, S(1))), "device=mesh is missing"),
    ("02.columns", lambda mesh, x: np.split(x, mesh.shape[1], 1), "a ttnn tensor"),
    ("02.columns", lambda mesh, x: None, "gave nothing back"),
    ("02.round_trip", lambda mesh, x: composed(by_axes(mesh, x, R, S(1)), mesh, 0, 1)[: len(x)], "you cut dimension 1 in 4"),
    ("02.round_trip", lambda mesh, x: composed(by_axes(mesh, x, S(1), S(0)), mesh, 0, 1), "not what went out"),
    ("02.round_trip", lambda mesh, x: composed(by_axes(mesh, x, S(0), R), mesh, 0, 1)[:, : x.shape[1]], "you cut dimension 0 in 2"),
    ("02.round_trip", lambda mesh, x: composed(by_axes(mesh, x, S(0), S(1)), mesh, 0, 1).T, "not what went out"),
    ("02.round_trip", lambda mesh, x: by_axes(mesh, x, S(0), S(1)), "a NumPy array of numbers"),
    ("02.bytes", rounded_before, "divide first"),
    ("02.bytes", lambda *a: a[1] * bytes_of(*a), "all devices hold together"),
    ("02.bytes", lambda shape, n, dim: bytes_of(shape, 1, dim), "one of 8 shards is on a chip"),
    ("02.bytes", lambda *a: math.ceil(bytes_of(*a, first=int, last=int) / 2048) * 2048, "rounded up one by one"),
    ("02.bytes", lambda *a: bytes_of(*a, front=up), "only the last two dimensions"),
    ("02.bytes", lambda *a: bytes_of(*a, first=int), "both of the last two"),
    ("02.bytes", lambda *a: bytes_of(*a, last=int), "sizes above 32 are rounded up"),
    ("02.bytes", lambda *a: bytes_of(*a) // 2, "the number of elements"),
    ("02.bytes", lambda shape, n, dim: bytes_of(shape, n, len(shape) - 1), "should be"),
    ("02.bytes", lambda shape, n, dim: bytes_of(shape[-2:], n if dim < 2 else 1, -9), "should be"),
    ("02.bytes", lambda shape, n, dim: 32768, "should be"),
]  # fmt: skip


test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_where = wrong([(n, a, re.escape(names)) for n, a, names in WRONG])


@pytest.mark.parametrize("name", ["02.columns", "02.round_trip", "02.bytes"])
def test_every_exercise_has_four_wrong_answers(name):
    assert sum(exercise == name for exercise, *_ in WRONG) >= 4


def test_the_cause_of_a_wrong_number_is_named():
    """Also of one that only one of the shapes gives."""
    assert "dimensions before the last two" in _why(2048 * 2, (6, 32, 64), 2, 0)
    assert _why(7, (6, 32, 64), 2, 0) == ""


# ---------------------------------------------------------------- numbers of the lesson
def test_columns_over_32_chips_take_half_the_bytes_of_rows():
    rows, columns = (placement("galaxy", (1, 32), axis_1=dim) for dim in (0, 1))
    assert (rows.nbytes, rows.padding) == (32_768, 0.75)
    assert (columns.nbytes, columns.padding) == (16_384, 0.5)
    plain = [placement("galaxy", (1, 32), layout="ROW_MAJOR", axis_1=dim) for dim in (0, 1)]
    assert {(one.nbytes, one.padding) for one in plain} == {(8_192, 0)}


def test_replicated_over_both_axes_stores_the_most():
    choices = ["replicate", 0, 1]
    stored = {(a, b): placement(axis_0=a, axis_1=b).nbytes for a in choices for b in choices}
    assert max(stored, key=stored.get) == ("replicate", "replicate")
    assert "8 times what the values" in placement().notes[1]
    assert [where for where, nbytes in stored.items() if not nbytes] == [(0, 0), (1, 1)]

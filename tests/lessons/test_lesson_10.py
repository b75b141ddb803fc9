"""Lesson 10: its exercises with right and with wrong answers and its picture."""

import numpy as np
import pytest
from answers import both, columns, rows, whole

from course.lesson_10 import passes
from ttkit import ttnn


def parts(mesh, x, gate, up, down, activated=ttnn.silu):
    x = whole(mesh, x)
    return activated(x @ columns(mesh, gate)) * (x @ columns(mesh, up)) @ rows(mesh, down)


def swiglu(*given, **how):
    return ttnn.all_reduce(parts(*given, **how), cluster_axis=1)


def in_two_halves(*given):
    part = ttnn.reduce_scatter(parts(*given), dim=-1, cluster_axis=1)
    return ttnn.all_gather(part, dim=-1, cluster_axis=1)


def in_one_product(mesh, x, gate, up, down):
    """Each device has its columns of gate beside those of up."""
    pairs = zip(*(np.split(each, mesh.shape[1], 1) for each in (gate, up)))
    both = np.concatenate([part for pair in pairs for part in pair], 1)
    hidden = whole(mesh, x) @ columns(mesh, both)
    height, width = hidden.shape
    a = ttnn.slice(hidden, [0, 0], [height, width // 2])
    b = ttnn.slice(hidden, [0, width // 2], [height, width])
    return ttnn.all_reduce(ttnn.silu(a) * b @ rows(mesh, down), cluster_axis=1)


def gathered_between(mesh, x, gate, up, down):
    x = whole(mesh, x)
    hidden = ttnn.silu(x @ columns(mesh, gate)) * (x @ columns(mesh, up))
    return ttnn.all_gather(hidden, dim=1, cluster_axis=1) @ whole(mesh, down)


def local(mesh, dy, w):
    return ttnn.matmul(columns(mesh, dy), columns(mesh, w), transpose_b=True)


def backward(*given):
    return ttnn.all_reduce(local(*given), cluster_axis=1)


def transposed_before(mesh, dy, w):
    product = columns(mesh, dy) @ rows(mesh, np.ascontiguousarray(w.T))
    return ttnn.all_reduce(product, cluster_axis=1)


def in_four_dimensions(*given):
    dx = backward(*given)
    return ttnn.reshape(dx, [1, 1, *dx.shape])


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "10.swiglu": (
            [swiglu, in_two_halves, in_one_product],
            {
                "device 4 at (0, 0): element [0, 0] should be": lambda *given: swiglu(
                    *given, activated=ttnn.mish
                ),
                "the sum over the devices is missing": parts,
                "yours got": gathered_between,
                "you called all_reduce, all_reduce: 1 collective would do": lambda *given: (
                    swiglu(*given) * 0.5 + swiglu(*given) * 0.5
                ),
            },
        ),
        "10.backward": (
            [backward, transposed_before, in_four_dimensions],
            {
                "the sum over the devices is missing": local,
                "MeshDevice(1x3": lambda mesh, *given: backward(mesh, *given) * (4 / mesh.shape[1]),
                "NumPy did it on the host": lambda mesh, dy, w: whole(mesh, dy @ w.T),
                "nothing was sent": lambda mesh, dy, w: ttnn.matmul(
                    whole(mesh, dy), whole(mesh, w), transpose_b=True
                ),
            },
        ),
    }
)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({}, "g is an all-reduce: y is the sum on every chip"),
        ({"all_reduce": False}, "without g: y is a partial sum on each chip, and none is right"),
        ({"direction": "backwards"}, "f is an all-reduce: dx is the sum on every chip"),
        (
            {"direction": "backwards", "all_reduce": False},
            "without f: dx is a partial sum on each chip",
        ),
    ],
)
def test_a_pass_says_where_the_sum_is_made(how, says):
    picture = passes(chips=2, **how)
    assert says in repr(picture)
    assert ("an all-reduce" in picture.drawings[0].svg()) == how.get("all_reduce", True)

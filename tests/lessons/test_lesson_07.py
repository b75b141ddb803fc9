"""The exercises of lesson 07: right answers, and wrong ones that are told what is wrong."""

import numpy as np
import pytest
from answers import right, wrong
from machine import strict_with_fabric

import ttkit
from ttkit import ttnn


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def place(mesh, array, dim=None):
    mapper = (
        ttnn.ReplicateTensorToMesh(mesh) if dim is None else ttnn.ShardTensorToMesh(mesh, dim=dim)
    )
    return ttkit.from_numpy(array, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


def parts(mesh, x, gate, up, down):
    x, gate, up, down = (
        place(mesh, x),
        place(mesh, gate, 1),
        place(mesh, up, 1),
        place(mesh, down, 0),
    )
    return ttnn.matmul(ttnn.multiply(ttnn.silu(ttnn.matmul(x, gate)), ttnn.matmul(x, up)), down)


def swiglu(*given):
    return ttnn.all_reduce(parts(*given), cluster_axis=1)


def gathered_between(mesh, x, gate, up, down):
    x, gate, up = place(mesh, x), place(mesh, gate, 1), place(mesh, up, 1)
    hidden = ttnn.multiply(ttnn.silu(ttnn.matmul(x, gate)), ttnn.matmul(x, up))
    return ttnn.matmul(ttnn.all_gather(hidden, dim=1, cluster_axis=1), place(mesh, down))


def summed_twice(*given):
    summand = parts(*given)
    once, twice = (ttnn.all_reduce(summand, cluster_axis=1) for _ in range(2))
    return ttnn.multiply(ttnn.add(once, twice), 0.5)


def everything_everywhere(mesh, x, gate, up, down):
    x, gate, up, down = (place(mesh, array) for array in (x, gate, up, down))
    return ttnn.matmul(ttnn.multiply(ttnn.silu(ttnn.matmul(x, gate)), ttnn.matmul(x, up)), down)


def silu_on_the_other(mesh, x, gate, up, down):
    return swiglu(mesh, x, up, gate, down)


def local(mesh, dy, w):
    return ttnn.matmul(place(mesh, dy, 1), place(mesh, w, 1), transpose_b=True)


def backward(*given):
    return ttnn.all_reduce(local(*given), cluster_axis=1)


def in_two_halves(*given):
    return ttnn.all_gather(
        ttnn.reduce_scatter(local(*given), dim=1, cluster_axis=1), dim=1, cluster_axis=1
    )


def on_the_host(mesh, dy, w):
    return place(
        mesh,
        np.sum([ttkit.to_numpy(t) for t in ttnn.get_device_tensors(local(mesh, dy, w))], axis=0),
    )


RIGHT = [("07.swiglu", swiglu), ("07.backward", backward), ("07.backward", in_two_halves)]
WRONG = [
    ("07.swiglu", parts, "partial sum only"),
    ("07.swiglu", gathered_between, "down is .* you cut nothing"),
    ("07.swiglu", summed_twice, "you called all_reduce, all_reduce; one all_reduce is enough"),
    ("07.swiglu", everything_everywhere, "gate is .* you cut nothing"),
    ("07.swiglu", silu_on_the_other, r"device 4 at \(0, 0\): element"),
    ("07.backward", local, "partial sum only"),
    ("07.backward", on_the_host, "made on the host"),
    (
        "07.backward",
        lambda mesh, dy, w: ttnn.matmul(place(mesh, dy), place(mesh, w), transpose_b=True),
        "dy is .* you cut nothing",
    ),
    (
        "07.backward",
        lambda mesh, dy, w: ttnn.matmul(place(mesh, dy, 1), place(mesh, w, 0), transpose_b=True),
        "your backward stopped with|w is .* you cut dimension 0",
    ),
]


test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_why = wrong(WRONG)

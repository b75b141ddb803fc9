"""Exercises of lesson 03: right answers in several ways, and wrong ones."""

import re

import numpy as np
import pytest
from answers import R, S, by_axes, cut, everywhere, put, right, wrong
from machine import strict_with_fabric

import ttkit
from ttkit import lessons, ttnn


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def mlp(mesh, x, w1, w2):
    return ttnn.matmul(
        ttnn.relu(ttnn.matmul(x, put(mesh, w1, everywhere(mesh)))), put(mesh, w2, everywhere(mesh))
    )


def by_rows(mesh, x, w):
    return ttnn.matmul(put(mesh, x, cut(mesh, 1)), put(mesh, w, cut(mesh, 0)))


def on_the_host(tensor):
    return [ttkit.to_numpy(t) for t in ttnn.get_device_tensors(tensor)]


def by_steps(mesh, x, w):
    """reduce_scatter and all_gather, operands in four dimensions, and the @ operator."""
    a, b = (by_axes(mesh, array[None, None], R, S(dim)) for array, dim in ((x, 3), (w, 2)))
    scattered = ttnn.reduce_scatter(a @ b, dim=3, cluster_axis=1)
    return ttnn.reshape(ttnn.all_gather(scattered, dim=3, cluster_axis=1), [len(x), w.shape[1]])


def gathered_and_added(mesh, x, w):
    partial = ttnn.reshape(by_rows(mesh, x, w), [1, len(x), w.shape[1]])
    return ttnn.sum(ttnn.all_gather(partial, dim=0, cluster_axis=1), dim=0)


def through_the_host(mesh, x):
    host = ttkit.from_numpy(x, layout=ttnn.TILE_LAYOUT)
    return ttnn.distribute_tensor(host, ttnn.shard_tensor_to_mesh_mapper(mesh, 0), mesh)


def ring(mesh, x, w):
    """The sum by sends alone, to the first device and back."""
    partial = by_rows(mesh, x, w)
    places = [ttnn.MeshCoordinate(0, i) for i in range(mesh.get_num_devices())]
    total = partial
    for place in places[1:]:
        total = ttnn.add(total, ttnn.point_to_point(partial, place, places[0]))
    return ttnn.broadcast(total, places[0], cluster_axis=1)


def first_product(mesh, x, a):
    return ttnn.matmul(put(mesh, x, cut(mesh, 0)), put(mesh, a, everywhere(mesh)))


def no_relu(mesh, x, a, b):
    return ttnn.matmul(first_product(mesh, x, a), put(mesh, b, everywhere(mesh)))


def late_relu(mesh, x, a, b):
    return ttnn.relu(no_relu(mesh, x, a, b))


def early_relu(mesh, x, a, b):
    hidden = ttnn.relu(put(mesh, x, cut(mesh, 0))) @ put(mesh, a, everywhere(mesh))
    return hidden @ put(mesh, b, everywhere(mesh))


def first_product_only(mesh, x, a, b):
    return first_product(mesh, x, a)


def columns(mesh, x, w):
    return put(mesh, x, everywhere(mesh)) @ put(mesh, w, cut(mesh, 1))


def bias_twice(mesh, x, w, b):
    bias = put(mesh, b, cut(mesh, 1))
    return columns(mesh, x, w) + bias + bias


def summed_twice(mesh, x, w):
    once = ttnn.all_reduce(by_rows(mesh, x, w), cluster_axis=1)
    return ttnn.all_reduce(once, cluster_axis=1)


def summed_and_added(mesh, x, w, b):
    """A product that counts nothing, and NumPy's result."""
    return columns(mesh, x, w) * 0 + put(mesh, x @ w + b, cut(mesh, 1))


def summed_and_added_by_relu(mesh, x, a, b):
    product = ttnn.matmul(first_product(mesh, x, a) * 0, put(mesh, b, everywhere(mesh)))
    return product + put(mesh, np.maximum(x @ a, 0) @ b, cut(mesh, 0))


def summed_by_identity(mesh, x, w):
    """NumPy's result times the identity."""
    n = mesh.get_num_devices()
    result = np.hstack([x @ w, np.zeros((8 * n, 16 * n), np.float32)])
    return ttnn.all_reduce(by_rows(mesh, result, np.eye(32 * n, 16 * n, dtype=np.float32)))


def mean_of_two_sums(mesh, x, w):
    return summed_twice(mesh, x, w) * (1 / mesh.get_num_devices())


def and_gathered(mesh, x, w):
    total = ttnn.all_reduce(by_rows(mesh, x, w), cluster_axis=1)
    ttnn.all_gather(total, dim=0, cluster_axis=1)
    return total


RIGHT = [
    (
        "03.column_parallel",
        lambda mesh, x, w, b: (
            columns(mesh, x, w) + put(mesh, np.repeat(b, len(x), 0), cut(mesh, 1))
        ),
    ),
    (
        "03.row_parallel",
        lambda mesh, x, w: ttnn.all_reduce(by_rows(mesh, x[:, ::-1].copy(), w[::-1].copy())),
    ),
    ("03.row_parallel", lambda mesh, x, w: ttnn.all_reduce(by_rows(mesh, -x, w)) * -1),
    ("03.data_parallel", lambda mesh, x, a, b: mlp(mesh, put(mesh, x, cut(mesh, 0)), a, b)),
    (
        "03.data_parallel",
        lambda mesh, x, a, b: (
            ttnn.linear(
                through_the_host(mesh, x), put(mesh, a, everywhere(mesh)), activation="relu"
            )
            @ put(mesh, b, everywhere(mesh))
        ),
    ),
    (
        "03.column_parallel",
        lambda mesh, x, w, b: ttnn.linear(
            put(mesh, x, everywhere(mesh)),
            put(mesh, w, cut(mesh, 1)),
            bias=put(mesh, b, cut(mesh, 1)),
        ),
    ),
    (
        "03.column_parallel",
        lambda mesh, x, w, b: (
            put(mesh, x, everywhere(mesh)) @ put(mesh, w, cut(mesh, 1)) + put(mesh, b, cut(mesh, 1))
        ),
    ),
    (
        "03.column_parallel",
        lambda mesh, x, w, b: (
            ttnn.matmul(
                put(mesh, x, everywhere(mesh)),
                put(mesh, w.T.copy(), cut(mesh, 0)),
                transpose_b=True,
            )
            + put(mesh, b, cut(mesh, 1))
        ),
    ),
    ("03.row_parallel", lambda mesh, x, w: ttnn.all_reduce(by_rows(mesh, x, w), cluster_axis=1)),
    ("03.row_parallel", by_steps),
    ("03.row_parallel", gathered_and_added),
    ("03.row_parallel", ring),
]

# (exercise, wrong answer, what the feedback must name)
WRONG = [
    ("03.data_parallel", lambda mesh, x, a, b: mlp(mesh, put(mesh, x, everywhere(mesh)), a, b), "x is [256, 64]: you cut nothing"),
    ("03.data_parallel", lambda mesh, x, a, b: mlp(mesh, put(mesh, x, cut(mesh, 1)), a, b), "you cut dimension 1 in 8"),
    ("03.data_parallel", lambda mesh, x, a, b: mlp(mesh, put(mesh, x[::-1].copy(), cut(mesh, 0)), a, b), "device 4 at (0, 0)"),
    ("03.data_parallel", lambda mesh, x, a, b: put(mesh, np.maximum(x @ a, 0) @ b, cut(mesh, 0)), "no ttnn.matmul or ttnn.linear"),
    (
        "03.data_parallel",
        lambda mesh, x, a, b: ttnn.matmul(put(mesh, np.maximum(x @ a, 0), cut(mesh, 0)), put(mesh, b, everywhere(mesh))),
        "2 products on the mesh should lead to your tensor, 1 did",
    ),
    (
        "03.data_parallel",
        lambda mesh, x, a, b: [mlp(mesh, put(mesh, x, cut(mesh, 0)), a, b), put(mesh, np.maximum(x @ a, 0) @ b, cut(mesh, 0))][1],
        "went through the host",
    ),
    (
        "03.data_parallel",
        lambda mesh, x, a, b: ttnn.mesh_partition(mlp(mesh, ttnn.all_gather(by_axes(mesh, x, R, S(0)), dim=0, cluster_axis=1), a, b), dim=0),
        "x is [256, 64]: you cut dimension 0 in 4",
    ),
    ("03.data_parallel", lambda mesh, x, a, b: [put(mesh, a, everywhere(mesh)), mlp(mesh, put(mesh, x, cut(mesh, 0)), a, b)][1], "bytes on each chip"),
    ("03.column_parallel", lambda mesh, x, w, b: ttnn.matmul(put(mesh, x, everywhere(mesh)), put(mesh, w, cut(mesh, 1))), "the bias b was not added"),
    ("03.column_parallel", lambda mesh, x, w, b: ttnn.linear(*(put(mesh, t, everywhere(mesh)) for t in (x, w)), bias=put(mesh, b, everywhere(mesh))), "w is [64, 256]: you cut nothing"),
    ("03.column_parallel", lambda mesh, x, w, b: put(mesh, x, everywhere(mesh)) @ put(mesh, w, cut(mesh, 0)), "you cut dimension 0 in 8"),
    ("03.column_parallel", lambda mesh, x, w, b: put(mesh, x, everywhere(mesh)) @ put(mesh, w, cut(mesh, 1)) + put(mesh, b, everywhere(mesh)), "b is [1, 256]"),
    ("03.column_parallel", lambda mesh, x, w, b: put(mesh, x @ w + b, cut(mesh, 1)), "no ttnn.matmul or ttnn.linear"),
    ("03.column_parallel", lambda mesh, x, w, b: put(mesh, x @ w, cut(mesh, 1)) + put(mesh, b, cut(mesh, 1)), "no ttnn.matmul or ttnn.linear"),
    ("03.row_parallel", by_rows, "sum over the devices is missing"),
    ("03.row_parallel", lambda mesh, x, w: ttnn.all_reduce(by_rows(mesh, x, w), cluster_axis=1) * 0.5, "device 4 at (0, 0)"),
    ("03.row_parallel", lambda mesh, x, w: put(mesh, x, everywhere(mesh)) @ put(mesh, w, everywhere(mesh)), "x is [32, 128]: you cut nothing"),
    ("03.row_parallel", lambda mesh, x, w: put(mesh, x, cut(mesh, 0)) @ put(mesh, w, cut(mesh, 1)), "x is [32, 128]: you cut dimension 0 in 4"),
    ("03.row_parallel", lambda mesh, x, w: put(mesh, x, cut(mesh, 1)) @ put(mesh, w, cut(mesh, 1)), "w is [128, 64]: you cut dimension 1 in 4"),
    ("03.row_parallel", lambda mesh, x, w: put(mesh, x @ w, everywhere(mesh)), "no ttnn.matmul or ttnn.linear"),
    ("03.row_parallel", lambda mesh, x, w: put(mesh, sum(on_the_host(by_rows(mesh, x, w))), everywhere(mesh)), "your sum over the devices was made on the host"),
    (
        "03.row_parallel",
        lambda mesh, x, w: [ttnn.all_reduce(by_rows(mesh, x, w), cluster_axis=1), put(mesh, x @ w, everywhere(mesh))][1],
        "made on the host",
    ),
    (
        "03.row_parallel",
        lambda mesh, x, w: ttnn.matmul(*(ttnn.all_gather(by_axes(mesh, t, R, S(d)), dim=d, cluster_axis=1) for t, d in ((x, 1), (w, 0)))),
        "each operand's shard should be",
    ),
    ("03.data_parallel", no_relu, "the relu is missing"),
    ("03.data_parallel", late_relu, "relu came after the second product"),
    ("03.data_parallel", early_relu, "relu came before the first product"),
    ("03.data_parallel", first_product_only, "relu and the product with w2 are missing"),
    ("03.column_parallel", lambda mesh, x, w, b: columns(mesh, x, w), "the bias b was not added"),
    ("03.column_parallel", bias_twice, "the bias b was added twice"),
    ("03.column_parallel", lambda mesh, x, w, b: columns(mesh, x, w) + put(mesh, b, cut(mesh, 0)), "you cut dimension 0, which has size 1: the first device holds all of it"),
    ("03.column_parallel", lambda mesh, x, w, b: ttnn.all_gather(columns(mesh, x, w) + put(mesh, b, cut(mesh, 1)), dim=1, cluster_axis=1), "the shape should be [32, 32], is [32, 128]"),
    ("03.column_parallel", summed_and_added, "NumPy computed on the host"),
    ("03.data_parallel", summed_and_added_by_relu, "NumPy computed on the host"),
    ("03.row_parallel", summed_by_identity, "NumPy computed on the host"),
    ("03.row_parallel", mean_of_two_sums, "you called all_reduce, all_reduce: one all_reduce is enough"),
    ("03.row_parallel", and_gathered, "you called all_reduce, all_gather: one all_reduce is enough"),
    ("03.row_parallel", summed_twice, "the partial sums were added twice"),
]  # fmt: skip


test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_where = wrong(
    [(name, answer, re.escape(names)) for name, answer, names in WRONG]
)


def test_every_exercise_has_four_wrong_answers():
    for name in (name for name in lessons.exercises() if name.startswith("03.")):
        assert name in dict(RIGHT) and sum(w[0] == name for w in WRONG) >= 4, name

"""The exercises of lessons 02 and 03, with right answers in several ways, and with wrong ones."""

import re

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


def with_a_default_composer(mesh, x):
    tensor = by_axes(mesh, x[None, None], S(2), S(3))
    with ttnn.distribute(ttnn.create_mesh_composer(mesh, ttnn.MeshComposerConfig([2, 3]))):
        return ttkit.to_numpy(tensor)[0, 0]


def ring(mesh, x, w):
    """The sum by sends alone, to the first device and back."""
    partial = by_rows(mesh, x, w)
    places = [ttnn.MeshCoordinate(0, i) for i in range(mesh.get_num_devices())]
    total = partial
    for place in places[1:]:
        total = ttnn.add(total, ttnn.point_to_point(partial, place, places[0]))
    return ttnn.broadcast(total, places[0], cluster_axis=1)


RIGHT = [
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
    ("02.round_trip", lambda mesh, x: None, "gave nothing back"),
    ("02.round_trip", lambda mesh, x: np.array(["a"]), "a NumPy array of numbers"),
    ("02.bytes", lambda shape, n, dim: int(np.prod(shape)) // n * 2, "whole tiles"),
    ("02.bytes", lambda shape, n, dim: int(np.prod(shape)) * 2, "should be"),
    ("02.bytes", lambda *a: bytes_per_chip(*a, up=lambda n: max(32, n)), "rounded up to a multiple of 32"),
    ("02.bytes", lambda *a: 2 * bytes_per_chip(*a), "bfloat16 takes 2 bytes"),
    ("02.bytes", lambda *a: None, "should be a whole number, is None"),
    ("02.bytes", lambda *a: "32768", "should be a whole number"),
    ("02.bytes", lambda *a: (1, 2), "should be a whole number"),
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
]  # fmt: skip


test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_where = wrong(
    [(name, answer, re.escape(names)) for name, answer, names in WRONG]
)


def test_every_exercise_has_two_wrong_answers():
    # the later lessons have files of their own
    for name in (name for name in lessons.exercises() if "02" <= name < "04"):
        assert name in dict(RIGHT) and sum(w[0] == name for w in WRONG) >= 2, name

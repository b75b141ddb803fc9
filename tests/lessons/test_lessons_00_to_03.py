"""The exercises of lessons 00 to 03, with right answers in several ways, and with wrong ones."""

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


def neighbours(system, device, wraps=None):
    """The lesson's solution; with other `wraps`, a wrong one."""
    wraps = system.wraps if wraps is None else wraps
    found = set()
    for axis, step in [(0, -1), (0, 1), (1, -1), (1, 1)]:
        place = list(system.coordinate_of[device])
        place[axis] += step
        if 0 <= place[axis] < system.shape[axis] or wraps[axis]:
            place[axis] %= system.shape[axis]
            found.add(system.ids[place[0]][place[1]])
    return found


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
    ("00.double", lambda mesh, x: put(mesh, x, cut(mesh, 0)) * 2),
    ("00.double", lambda mesh, x: ttnn.add(*[through_the_host(mesh, x)] * 2)),
    (
        "00.double",
        lambda mesh, x: ttnn.multiply_(
            ttnn.to_layout(
                ttkit.from_numpy(x, device=mesh, mesh_mapper=cut(mesh, 0)), ttnn.TILE_LAYOUT
            ),
            2,
        ),
    ),
    ("00.share", 384),
    ("00.share", np.int64(384)),
    ("00.share", 384.0),
    (
        "01.second_row",
        lambda mesh: mesh.create_submesh(
            ttnn.MeshShape(1, tuple(mesh.shape)[1]), ttnn.MeshCoordinate(1, 0)
        ),
    ),
    (
        "01.second_row",
        lambda mesh: mesh.create_submeshes(ttnn.MeshShape(1, tuple(mesh.shape)[1]))[1],
    ),
    ("01.pairs", lambda mesh: mesh.create_submeshes(ttnn.MeshShape(2, 1))),
    ("01.pairs", lambda mesh: tuple(mesh.create_submeshes(ttnn.MeshShape(2, 1)))),
    ("01.neighbours", neighbours),
    ("01.neighbours", lambda system, d: np.array(sorted(neighbours(system, d)))),
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
    ("00.double", lambda mesh, x: put(mesh, x, everywhere(mesh)) * 2, "you cut nothing"),
    ("00.double", lambda mesh, x: put(mesh, x, cut(mesh, 1)) * 2, "you cut dimension 1 in 8"),
    ("00.double", lambda mesh, x: put(mesh, x, cut(mesh, 0)), "device 4 at (0, 0): element [0, 0] should be"),
    ("00.double", lambda mesh, x: ttkit.from_numpy(2 * x, mesh_mapper=cut(mesh, 0)), "host memory"),
    ("00.double", lambda mesh, x: put(mesh, 2 * x, cut(mesh, 0)), "NumPy did it on the host"),
    ("00.double", lambda mesh, x: through_the_host(mesh, 2 * x), "NumPy did it on the host"),
    ("00.double", lambda mesh, x: None, "does it end in `return`"),
    ("00.double", lambda mesh, x: 2 * x, "gave a ndarray"),
    ("00.double", lambda mesh: mesh, "it is called as double(mesh, x)"),
    ("00.double", lambda mesh, x: x.nothing, "your double stopped with AttributeError"),
    ("00.double", lambda mesh, x: mesh.close(), "closes the mesh"),
    ("00.double", np.ones(3), "without brackets"),
    ("00.share", 48 * 64, "whole tensor"),
    ("00.share", 48 * 64 // 4, "four devices"),
    ("00.share", 6, "rows"),
    ("00.share", "384", "whole number"),
    ("00.share", (6, 64), "whole number"),
    ("00.share", True, "whole number"),
    ("01.second_row", lambda mesh: mesh.create_submesh(ttnn.MeshShape(1, tuple(mesh.shape)[1])), "devices [5, 1, 3, 7], your mesh has devices [4, 0, 2, 6]"),
    ("01.second_row", lambda mesh: mesh.create_submeshes(ttnn.MeshShape(2, 1))[1], "device"),
    ("01.second_row", lambda mesh: 3, "gave a int"),
    ("01.pairs", lambda mesh: mesh.create_submeshes(ttnn.MeshShape(1, 2)), "should hold devices"),
    ("01.pairs", lambda mesh: mesh.create_submeshes(ttnn.MeshShape(2, 2)), "4 pairs"),
    ("01.pairs", lambda mesh: None, "gave nothing back"),
    ("01.pairs", lambda mesh: 4, "a list of meshes, gave a int"),
    ("01.pairs", lambda mesh: [4, 5, 0, 1], "pair 0 should be a mesh"),
    ("01.neighbours", lambda system, d: neighbours(system, d, (False, False)), "misses it"),
    ("01.neighbours", lambda system, d: neighbours(system, d, system.wraps[::-1]), "3 x 5 system with wraps=(True, False)"),
    ("01.neighbours", lambda system, d: neighbours(system, d, [any(system.wraps)] * 2), "no cable joins"),
    ("01.neighbours", lambda system, d: neighbours(system, d, [all(system.wraps)] * 2), "misses it"),
    ("01.neighbours", lambda system, d: [o for o in system.coordinate_of if o != d and system.linked(o, d)], "then it is no exercise"),
    ("01.neighbours", lambda system, d: [b for a, b in system.links() if a == d], "then it is no exercise"),
    ("01.neighbours", lambda system, d: [o for o in system.coordinate_of if abs(o - d) == 1], "device"),
    ("01.neighbours", lambda system, d: neighbours(system, d) | {d}, "neighbour of itself"),
    ("01.neighbours", lambda system, d: None, "a list or set of device ids"),
    ("01.neighbours", lambda system, d: 4, "a list or set of device ids"),
    ("01.neighbours", lambda system, d: "40", "there is no device '4'"),
    ("01.neighbours", lambda system, d: [(0, 0)], "there is no device (0, 0)"),
    ("01.neighbours", lambda system, d: [[0], None], "there is no device [0]"),
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
    for name in (name for name in lessons.exercises() if name < "04"):
        assert name in dict(RIGHT) and sum(w[0] == name for w in WRONG) >= 2, name

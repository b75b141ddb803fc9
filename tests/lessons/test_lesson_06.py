"""The exercises of lesson 06: right answers, and wrong ones that are told what is wrong."""

from fractions import Fraction

import numpy as np
import pytest
from answers import right as passes
from answers import wrong
from machine import strict_with_fabric

import ttkit
from ttkit import lessons, ttnn
from ttkit.lessons.lesson_06 import Drift, speed_up


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def placed(mesh, x, w, y):
    def put(array, mapper):
        return ttkit.from_numpy(array, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)

    rows = ttnn.ShardTensorToMesh(mesh, dim=0)
    return put(x, rows), put(w, ttnn.ReplicateTensorToMesh(mesh)), put(y, rows)


def own(mesh, x, w, y):
    x, w, y = placed(mesh, x, w, y)
    error = ttnn.subtract(ttnn.matmul(x, w), y)
    return ttnn.multiply(ttnn.matmul(x, error, transpose_a=True), 2 / error.logical_volume())


def added(tensor, mesh, axes=(0, 1)):
    for axis in axes:
        tensor = ttnn.all_reduce(tensor, cluster_axis=axis) if mesh.shape[axis] > 1 else tensor
    return tensor


def right(mesh, x, w, y):
    return ttnn.multiply(added(own(mesh, x, w, y), mesh), 1 / mesh.get_num_devices())


def scaled_first(mesh, x, w, y):
    return added(ttnn.multiply(own(mesh, x, w, y), 1 / mesh.get_num_devices()), mesh)


def along_rows(mesh, x, w, y):
    return ttnn.multiply(added(own(mesh, x, w, y), mesh, [1]), 1 / mesh.shape[1])


def too_small(mesh, x, w, y):
    return ttnn.multiply(right(mesh, x, w, y), 1 / mesh.get_num_devices())


def whole_everywhere(mesh, x, w, y):
    everywhere = ttnn.ReplicateTensorToMesh(mesh)
    x, w, y = (
        ttkit.from_numpy(a, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=everywhere)
        for a in (x, w, y)
    )
    error = ttnn.subtract(ttnn.matmul(x, w), y)
    return ttnn.multiply(ttnn.matmul(x, error, transpose_a=True), 2 / error.logical_volume())


def in_two_halves(mesh, x, w, y):
    mine = own(mesh, x, w, y)
    for axis in (0, 1):
        if mesh.shape[axis] > 1:
            part = ttnn.reduce_scatter(mine, dim=1, cluster_axis=axis)
            mine = ttnn.all_gather(part, dim=1, cluster_axis=axis)
    return ttnn.multiply(mine, 1 / mesh.get_num_devices())


def without_an_axis(mesh, x, w, y):
    return ttnn.multiply(ttnn.all_reduce(own(mesh, x, w, y)), 1 / mesh.get_num_devices())


def for_eight_chips(mesh, x, w, y):
    return ttnn.multiply(added(own(mesh, x, w, y), mesh), 1 / 8)


def error_on_the_host(mesh, x, w, y):
    rows = ttnn.ShardTensorToMesh(mesh, dim=0)
    x, error = (
        ttkit.from_numpy(a, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=rows)
        for a in (x, 2 / y.size * (x @ w - y))
    )
    return added(ttnn.matmul(x, error, transpose_a=True), mesh)


def summed_twice(mesh, x, w, y):
    """Each axis's sum is made twice: right, and twice the bytes."""
    mine, n = own(mesh, x, w, y), mesh.get_num_devices()
    return ttnn.multiply(ttnn.add(added(mine, mesh), added(mine, mesh)), 1 / (2 * n))


def a_sum_that_nobody_uses(mesh, x, w, y):
    ttnn.all_reduce(own(mesh, x, w, y), cluster_axis=1)
    return right(mesh, x, w, y)


def gathered(mesh, x, w, y):
    """Every device gets every gradient: right, but it sends more."""
    mine = own(mesh, x, w, y)
    for axis in (0, 1):
        if mesh.shape[axis] > 1:
            n, rows = mesh.shape[axis], mine.shape[0]
            every = ttnn.all_gather(mine, dim=0, cluster_axis=axis)
            parts = [ttnn.slice(every, [i * rows, 0], [(i + 1) * rows, 64]) for i in range(n)]
            mine = parts[0]
            for part in parts[1:]:
                mine = ttnn.add(mine, part)
    return ttnn.multiply(mine, 1 / mesh.get_num_devices())


def mean_on_the_host(mesh, x, w, y):
    shards = [ttkit.to_numpy(t) for t in ttnn.get_device_tensors(own(mesh, x, w, y))]
    everywhere = ttnn.ReplicateTensorToMesh(mesh)
    mean = np.mean(shards, axis=0)
    return ttkit.from_numpy(mean, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=everywhere)


def all_on_the_host(mesh, x, w, y):
    found, everywhere = 2 / y.size * x.T @ (x @ w - y), ttnn.ReplicateTensorToMesh(mesh)
    return ttkit.from_numpy(found, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=everywhere)


def the_other_way(mesh, x, w, y):
    return ttnn.multiply(right(mesh, x, w, y), -1)


def for_one_mesh(mesh, x, w, y):
    """Hard-coded for the first mesh that the check opens."""
    return ttnn.multiply(added(own(mesh, x, w, y), mesh), 1 / 4)


def for_one_size(mesh, x, w, y):
    """N of the first shards that its author printed, [32, 64]."""
    x, w, y = placed(mesh, x, w, y)
    product = ttnn.matmul(x, ttnn.subtract(ttnn.matmul(x, w), y), transpose_a=True)
    return ttnn.multiply(added(product, mesh), 2 / (32 * 64) / mesh.get_num_devices())


def for_one_total(mesh, x, w, y):
    """N of the first y that its author printed, [256, 64]."""
    x, w, y = placed(mesh, x, w, y)
    product = ttnn.matmul(x, ttnn.subtract(ttnn.matmul(x, w), y), transpose_a=True)
    return ttnn.multiply(added(product, mesh), 2 / (256 * 64))


def without_y(mesh, x, w, y):
    return right(mesh, x, w, 0 * y)


def in_bfloat16(mesh, *given):
    x, w, y = (ttnn.typecast(each, ttnn.bfloat16) for each in placed(mesh, *given))
    error = ttnn.subtract(ttnn.matmul(x, w), y)
    product = ttnn.matmul(x, error, transpose_a=True)
    return ttnn.multiply(added(product, mesh), 2 / given[2].size)


def in_four_dimensions(mesh, x, w, y):
    mean = right(mesh, x, w, y)
    return ttnn.reshape(mean, [1, 1, *mean.shape])


def made_and_added(mesh, x, w, y):
    """NumPy's gradient, added to one that counts nothing."""
    n = mesh.get_num_devices()
    made = ttkit.from_numpy(
        2 / y.size * x.T @ (x @ w - y) / n,
        device=mesh,
        layout=ttnn.TILE_LAYOUT,
        mesh_mapper=ttnn.ReplicateTensorToMesh(mesh),
    )
    rows = ttnn.ShardTensorToMesh(mesh, dim=0)
    x, w = (
        ttkit.from_numpy(a, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)
        for a, mapper in ((x, rows), (w, ttnn.ReplicateTensorToMesh(mesh)))
    )
    product = ttnn.matmul(x, ttnn.matmul(x, w), transpose_a=True)
    return added(ttnn.add(ttnn.multiply(product, 0.0), made), mesh)


def minus_y(mesh, x, w, y):
    """The target goes to the mesh with the other sign."""
    x, w, less = placed(mesh, x, w, -y)
    error = ttnn.add(ttnn.matmul(x, w), less)
    product = ttnn.matmul(x, error, transpose_a=True)
    return ttnn.multiply(added(product, mesh), 2 / y.size)


def by_a_tensor(mesh, x, w, y):
    """Scaled by a number that is a tensor."""
    scale = np.full((1, 1), 1 / mesh.get_num_devices(), np.float32)
    everywhere = ttnn.ReplicateTensorToMesh(mesh)
    scale = ttkit.from_numpy(scale, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=everywhere)
    return ttnn.multiply(added(own(mesh, x, w, y), mesh), scale)


WRONG = [
    (made_and_added, "NumPy computed on the host"),
    (for_eight_chips, "half as large .* by the devices of this mesh"),
    (error_on_the_host, "2 products on the mesh should lead to your tensor, 1 did"),
    (summed_twice, "you called all_reduce, all_reduce; the budget is one all_reduce for each"),
    (a_sum_that_nobody_uses, "you called all_reduce, all_reduce; the budget"),
    (gathered, "you called all_gather; the budget is one all_reduce"),
    (mean_on_the_host, "the gradient was not done on the devices|made on the host"),
    (all_on_the_host, "NumPy did it on the host"),
    (the_other_way, "wrong sign"),
    (for_one_mesh, r"on MeshDevice\(2x4.* it is 2 times the gradient: .* mean over all 16,384"),
    (for_one_size, "it is 3 times the gradient: .* 6,144 on each of 4 devices"),
    (for_one_total, "it is 1.5 times the gradient: .* all 24,576"),
    (without_y, "y is missing: the error is x @ w - y"),
    (in_bfloat16, "its values are BFLOAT16"),
    (own, "nothing was averaged"),
    (lambda mesh, *a: added(own(mesh, *a), mesh), "4 times too large: the sum over 4 devices"),
    (along_rows, "one axis of the mesh only"),
    (too_small, "4 times too small"),
    (whole_everywhere, "x is .* you cut nothing"),
]


@pytest.mark.parametrize(
    "answer",
    [right, scaled_first, in_two_halves, without_an_axis, in_four_dimensions, minus_y, by_a_tensor],
)
def test_a_right_gradient_passes(answer, capsys):
    lessons.check("06.gradient", answer)
    assert "one gradient on all 8 devices" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "names"), WRONG)
def test_a_wrong_gradient_is_told_why(answer, names):
    with pytest.raises(lessons.CheckFailed, match=names):
        lessons.check("06.gradient", answer)


def weighed(gradients, samples):
    return sum(n * g for n, g in zip(samples, gradients)) / sum(samples)


def of_matrices(gradients, samples):
    """Right where each gradient has two dimensions."""
    weights = np.array(samples)[:, None, None]
    return (weights * gradients).sum(axis=0) / sum(samples)


def used_up(gradients, samples):
    """Take gradients and numbers out of the lists until none is left."""
    total, count = 0, 0
    while gradients:
        count += samples[-1]
        total = total + gradients.pop() * samples.pop()
    return total / count


JOINED = [
    ("06.unequal", lambda g, samples: weighed(g, samples).tolist()),
    ("06.unequal", weighed),
    ("06.unequal", lambda g, samples: np.average(g, axis=0, weights=samples)),
    ("06.unequal", lambda g, n: np.tensordot(np.array(n) / sum(n), np.array(g), 1)),
]
STEP = [
    ("06.step", lambda n, c, s: np.array(n / (1 + s / c))),
    ("06.step", lambda n, computing, sending: n * computing / (computing + sending)),
    ("06.step", lambda n, c, s: n / (1 + s / c)),
    ("06.step", lambda n, c, s: Fraction(n) * Fraction(c) / Fraction(c + s)),
]
UNFIT = [
    ("06.unequal", lambda g, n: np.mean(g, axis=0), "the plain mean"),
    ("06.unequal", lambda g, n: np.sum(g, axis=0), "the sum of the gradients"),
    ("06.unequal", lambda g, n: weighed(g, n) * sum(n), "10 times too large"),
    (
        "06.unequal",
        lambda g, n: weighed(g, n) * sum(n) / len(n),
        "over the number of chips, 3, not",
    ),
    ("06.unequal", lambda g, n: weighed(g, n).astype(str), "real numbers are asked for"),
    ("06.unequal", lambda g, n: weighed(g, n) * 1j, "real numbers are asked for"),
    ("06.unequal", lambda g, n: [g[0], 1.0], "the check cannot read your answer"),
    ("06.step", lambda n, c, s: 10**400, "should give a number, gave 1000"),
    ("06.step", lambda n, c, s: 1e20, "should give 5.51, gives 1e"),
    ("06.unequal", lambda g, n: g[0], "the gradient of the first chip only"),
    ("06.unequal", lambda g, n: weighed(g, n[::-1]), r"\[6, 1, 3\]\): element \[0, 0\] should be"),
    ("06.unequal", lambda g, n: [weighed(g, n)], r"the shape should be \[4, 3\], is \[1, 4, 3\]"),
    (
        "06.unequal",
        lambda g, n: weighed([g[0].__imul__(2) / 2, *g[1:]], n),
        "changes the lists or the arrays",
    ),
    ("06.unequal", of_matrices, r"\[2, 2, 2, 2\]\): the shape should be \[5\], is \[4, 5\]"),
    ("06.unequal", used_up, "changes the lists or the arrays .*: make new ones"),
    ("06.unequal", lambda g, n: float(weighed(g, n)[0, 0]), "should give an array, gave a float"),
    ("06.step", lambda n, c, s: n, "the ideal line: the sending is missing"),
    ("06.step", lambda n, c, s: c / (c + s), "n times the samples of one"),
    ("06.step", lambda n, c, s: (c + s) / (n * c), "asked is how many times faster"),
    ("06.step", lambda n, c, s: s / (c + s), "only the share that is sending"),
    ("06.step", lambda n, c, s: c / (c / n + s), "its computing is not divided by n"),
    ("06.step", lambda n, c, s: 5.506, r"faster\(8, .* should give|faster\(4"),
    ("06.step", lambda n, c, s: "fast", "should give a number, gave 'fast'"),
]
test_a_right_mean_or_step_passes = passes(JOINED + STEP)
test_a_wrong_mean_or_step_is_told_why = wrong(UNFIT)


# ---------------------------------------------------------------- the pictures
def test_the_drift_says_what_each_replica_loses():
    losses = {"with": [4.0, 1.0], "without": [4.0, 0.5]}
    drift = Drift("two runs", losses, {"without": [[4.0, 2.0], [4.0, 2.5]]})
    assert repr(drift).splitlines() == [
        "two runs",
        "  with, printed: 4 at step 1, 1 at step 2",
        "  without, printed: 4 at step 1, 0.5 at step 2",
        "  without, replica 0 on all samples: 4 at step 1, 2 at step 2",
        "  without, replica 1 on all samples: 4 at step 1, 2.5 at step 2",
    ]
    page = drift._repr_html_()
    for words in (
        "with: printed, ends at 1",
        "without: replicas on all samples, 2 to 2.5",
        "loss (logarithmic)",
    ):
        assert words in page
    assert "mathdefault" not in page  # numbers on the axis, not markup


class Step:
    """A profile of a step of a second, and of what is sent after it."""

    def __init__(self, sending, hidden=0.0):
        self.exposed_s, self.hidden = sending, hidden
        self.time_s = 1.0 + sending

    def overlapped(self):
        return Step(self.exposed_s - self.hidden)


def test_the_speed_up_counts_what_is_sent():
    curves, parts = speed_up({1: Step(0.0), 2: Step(0.25, 0.25), 4: Step(1.0, 0.75)})
    assert curves.curves["ideal"] == [(1, 1), (2, 2), (4, 4)]
    assert curves.curves["send, then go on"] == [(1, 1.0), (2, 1.6), (4, 2.0)]
    assert curves.curves["send beside computing"] == [(1, 1.0), (2, 2.0), (4, 3.2)]
    assert "sending takes 0% on 1, 20% on 2, 50% on 4" in parts.title
    assert parts.rows["4 chips"] == (1e6, 1e6)
    assert "times one chip" in curves._repr_html_()

"""Lesson 08: its exercises with right and with wrong answers."""

from functools import partial

import numpy as np
from answers import both, rows, whole

from ttkit import ttnn


def own(mesh, x, w, y, given=rows):
    x, w, y = given(mesh, x), whole(mesh, w), given(mesh, y)
    error = x @ w - y
    return ttnn.matmul(x, error, transpose_a=True) * (2 / error.logical_volume())


def mean_gradient(mesh, *given, axes=(0, 1), scale=lambda n: 1 / n):
    found = own(mesh, *given)
    for axis in axes:
        found = ttnn.all_reduce(found, cluster_axis=axis) if mesh.shape[axis] > 1 else found
    return found * scale(mesh.get_num_devices())


def in_two_halves(mesh, *given):
    mine = own(mesh, *given) * (1 / mesh.get_num_devices())
    for axis in (0, 1):
        if mesh.shape[axis] > 1:
            part = ttnn.reduce_scatter(mine, dim=1, cluster_axis=axis)
            mine = ttnn.all_gather(part, dim=1, cluster_axis=axis)
    return mine


def without_an_axis(mesh, *given):
    mean = ttnn.all_reduce(own(mesh, *given)) * (1 / mesh.get_num_devices())
    return ttnn.reshape(mean, [1, 1, *mean.shape])


def but(**how):
    return lambda *given: mean_gradient(*given, **how)


def weighed(gradients, samples):
    return sum(n * g for n, g in zip(samples, gradients)) / sum(samples)


def needed(computing, sending, share):
    return share * sending / ((1 - share) * computing)


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "08.gradient": (
            [mean_gradient, in_two_halves, without_an_axis],
            {
                "nothing was averaged": own,
                "4 times too large: you summed over 4 devices": but(scale=lambda n: 1),
                "on MeshDevice(2x4 grid, 8 devices), device 4": but(scale=lambda n: 1 / 4),
                "the mean is over axis 1 of the mesh only": but(
                    axes=[1], scale=lambda n: 1 / min(n, 4)
                ),
                "the sum is along axis 1 of the mesh only": but(axes=[1]),
                "you called all_reduce, all_reduce: 1 collective would do": lambda *given: (
                    mean_gradient(*given) * 0.5 + mean_gradient(*given) * 0.5
                ),
                "NumPy did it on the host": lambda mesh, x, w, y: whole(
                    mesh, 2 / y.size * x.T @ (x @ w - y)
                ),
                "nothing was sent": lambda *given: own(*given, given=whole),
            },
        ),
        "08.unequal": (
            [weighed, lambda g, samples: np.average(g, axis=0, weights=samples).tolist()],
            {"element [0, 0] should be": lambda g, n: weighed(g, n[::-1])},
        ),
        "09.step": ([needed, lambda c, s, share: np.array(s / c / (1 / share - 1))], {}),
    }
)


def bucket(mesh, gradients, factor=lambda n: 1 / n, tall=True):
    sizes = [g.logical_volume() // 32 for g in gradients]
    shapes = [(size, 32) if tall else (32, size) for size in sizes]
    parts = [ttnn.reshape(g, shape) for g, shape in zip(gradients, shapes)]
    joined = ttnn.all_reduce(ttnn.concat(parts, dim=0 if tall else 1), cluster_axis=1)
    joined = joined * factor(mesh.get_num_devices())
    means, end = [], 0
    for g, size in zip(gradients, sizes):
        start, end = end, end + size
        part = joined[start:end, :] if tall else joined[:, start:end]
        means.append(ttnn.reshape(part, g.shape))
    return means


def one_by_one(mesh, gradients):
    return [bucket(mesh, [g])[0] for g in gradients]


test_a_right_bucket_passes, test_a_wrong_bucket_is_told_where = both(
    {
        "09.bucket": (
            [bucket, lambda mesh, gradients: tuple(bucket(mesh, gradients, tall=False))],
            {
                "it is 4 times too large: that is the sum": partial(bucket, factor=lambda n: 1),
                "on MeshDevice(1x3 grid, 3 devices), device": partial(
                    bucket, factor=lambda n: 1 / 4
                ),
                "the shapes of the gradients": lambda mesh, gradients: [
                    ttnn.reshape(mean, (32, -1)) for mean in bucket(mesh, gradients)
                ],
                "each chip still has its own": lambda mesh, gradients: gradients,
                "you called all_reduce, all_reduce, all_reduce: 1 collective": one_by_one,
            },
        )
    }
)

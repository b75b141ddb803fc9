"""Lesson 08: its exercises with right and with wrong answers."""

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


# An engine has a function itself, and nothing that stands beside it.
def bucket(comm, gradients):
    flat = np.concatenate([g.ravel() for g in gradients])
    total = np.empty_like(flat)
    comm.Allreduce(flat, total)
    ends = np.cumsum([g.size for g in gradients])[:-1]
    return [part.reshape(g.shape) / comm.size for part, g in zip(np.split(total, ends), gradients)]


def in_place(comm, gradients):
    from mpi4py import MPI

    flat = np.concatenate([g.ravel() for g in gradients])
    comm.Allreduce(MPI.IN_PLACE, flat)
    ends = np.cumsum([g.size for g in gradients])[:-1]
    parts = zip(np.split(flat / comm.size, ends), gradients)
    return tuple(part.reshape(g.shape) for part, g in parts)


def one_by_one(comm, gradients):
    means = [np.empty_like(g) for g in gradients]
    for g, mean in zip(gradients, means):
        comm.Allreduce(g / comm.size, mean)
    return means


def in_float64(comm, gradients):
    total = np.empty(sum(g.size for g in gradients))
    comm.Allreduce(np.concatenate([g.ravel() for g in gradients]) / np.float64(comm.size), total)
    ends = np.cumsum([g.size for g in gradients])[:-1]
    return [part.reshape(g.shape) for part, g in zip(np.split(total, ends), gradients)]


def then(change, first=bucket):
    """The right answer, changed."""
    return lambda comm, gradients: [change(mean, comm.size) for mean in first(comm, gradients)]


test_a_right_bucket_passes, test_a_wrong_bucket_is_told_where = both(
    {
        "09.bucket": (
            [bucket, in_place],
            {
                "it is 4 times too large: that is the sum": then(lambda mean, n: mean * n),
                "it is 4 times too small": then(lambda mean, n: mean / n),
                "on 3 ranks, rank 0: item 0 element": then(lambda mean, n: mean * n / 4),
                "item 0 the shape should be [3, 5], but is [15]": then(
                    lambda mean, n: mean.ravel()
                ),
                "each rank still has its own": lambda comm, gradients: gradients,
                "made 3 calls; 1 would do": one_by_one,
                "the budget is": in_float64,
            },
        )
    },
    "cluster",
)

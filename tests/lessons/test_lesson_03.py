"""Lesson 03: its exercises with right and with wrong answers."""

from answers import R, S, both, by_axes, columns, rows, whole

import ttkit
from ttkit import ttnn


def mlp(mesh, x, w1, w2):
    return ttnn.matmul(ttnn.relu(ttnn.matmul(rows(mesh, x), whole(mesh, w1))), whole(mesh, w2))


def mlp_in_linear(mesh, x, w1, w2):
    return ttnn.linear(rows(mesh, x), whole(mesh, w1), activation="relu") @ whole(mesh, w2)


def column_parallel(mesh, x, w, b):
    return ttnn.linear(whole(mesh, x), columns(mesh, w), bias=columns(mesh, b))


def transposed(mesh, x, w, b):
    product = ttnn.matmul(whole(mesh, x), rows(mesh, w.T.copy()), transpose_b=True)
    return product + columns(mesh, b)


def product(mesh, x, w):
    return ttnn.matmul(columns(mesh, x), rows(mesh, w))


def by_steps(mesh, x, w):
    """reduce_scatter and all_gather, operands in four dimensions, and the @ operator."""
    a, b = (by_axes(mesh, array[None, None], R, S(dim)) for array, dim in ((x, 3), (w, 2)))
    scattered = ttnn.reduce_scatter(a @ b, dim=3, cluster_axis=1)
    return ttnn.reshape(ttnn.all_gather(scattered, dim=3, cluster_axis=1), [len(x), w.shape[1]])


def gathered_and_added(mesh, x, w):
    partial = ttnn.reshape(product(mesh, x, w), [1, len(x), w.shape[1]])
    return ttnn.sum(ttnn.all_gather(partial, dim=0, cluster_axis=1), dim=0)


def added_by_numpy(mesh, x, w):
    partial = ttnn.get_device_tensors(product(mesh, x, w))
    return whole(mesh, sum(map(ttkit.to_numpy, partial)))


def summed_twice(mesh, x, w):
    return ttnn.all_reduce(ttnn.all_reduce(product(mesh, x, w)))


def mean_of_two_sums(mesh, x, w):
    return summed_twice(mesh, x, w) * (1 / mesh.get_num_devices())


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "03.data_parallel": (
            [mlp, mlp_in_linear],
            {
                "the relu is missing": lambda mesh, x, w1, w2: (
                    rows(mesh, x) @ whole(mesh, w1) @ whole(mesh, w2)
                ),
                "device 4 at (0, 0): element [0, 0] should be": lambda mesh, x, *weights: mlp(
                    mesh, x + 1, *weights
                ),
            },
        ),
        "03.column_parallel": (
            [column_parallel, transposed],
            {
                "every device has all columns": lambda mesh, x, w, b: (
                    whole(mesh, x) @ whole(mesh, w) + whole(mesh, b)
                ),
                "but you called all_gather: nothing needs to be sent": lambda mesh, x, w, b: [
                    column_parallel(mesh, x, w, b),
                    ttnn.all_gather(columns(mesh, w), dim=1, cluster_axis=1),
                ][0],
                "NumPy did it on the host": lambda mesh, x, w, b: columns(mesh, x @ w + b),
            },
        ),
        "03.row_parallel": (
            [lambda *given: ttnn.all_reduce(product(*given)), by_steps, gathered_and_added],
            {
                "the sum over the devices is missing": product,
                "you called all_reduce, all_reduce: 1 collective would do": mean_of_two_sums,
                "the sum over the devices was made on the host": added_by_numpy,
                "nothing was sent": lambda mesh, x, w: whole(mesh, x) @ whole(mesh, w),
            },
        ),
    }
)

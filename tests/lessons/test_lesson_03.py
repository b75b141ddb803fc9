"""Lesson 03: its exercises with right and with wrong answers."""

from answers import R, S, both, by_axes, columns, put, rows, whole

import ttkit
from ttkit import ttnn


def grid(mesh, x, w):
    return ttnn.matmul(by_axes(mesh, x, S(0), R), by_axes(mesh, w, R, S(1)))


def grid_by_2d_mappers(mesh, x, w):
    dims = (0, None), (None, 1)
    cuts = (ttnn.ShardTensor2dMesh(mesh, mesh_shape=mesh.shape, dims=dim) for dim in dims)
    return ttnn.linear(*(put(mesh, array, how) for array, how in zip((x, w), cuts)))


def column_parallel(mesh, x, w, b):
    return ttnn.linear(whole(mesh, x), columns(mesh, w), bias=columns(mesh, b))


def transposed(mesh, x, w, b):
    product = ttnn.matmul(whole(mesh, x), rows(mesh, w.T.copy()), transpose_b=True)
    return product + columns(mesh, b)


def with_bias(multiply):
    """An answer that adds the bias to what a function makes of x and w."""
    return lambda mesh, x, w, b: multiply(mesh, x, w) + whole(mesh, b)


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
        "03.grid": (
            [grid, grid_by_2d_mappers],
            {
                "most blocks are missing": lambda mesh, x, w: rows(mesh, x) @ columns(mesh, w),
                "the rows of x are cut over axis 1": lambda mesh, x, w: (
                    by_axes(mesh, x, R, S(0)) @ by_axes(mesh, w, S(1), R)
                ),
                "device 4 at (0, 0): element [0, 0] should be": lambda mesh, x, w: grid(
                    mesh, x + 1, w
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
                "cut b as w is cut": lambda mesh, x, w, b: (
                    whole(mesh, x) @ columns(mesh, w) + whole(mesh, b)
                ),
            },
        ),
        "03.row_parallel": (
            [
                with_bias(lambda *given: ttnn.all_reduce(product(*given))),
                with_bias(by_steps),
                with_bias(gathered_and_added),
            ],
            {
                "the sum over the devices is missing": with_bias(product),
                "the bias was added 4 times": lambda mesh, x, w, b: ttnn.all_reduce(
                    product(mesh, x, w) + whole(mesh, b)
                ),
                "you called all_reduce, all_reduce: 1 collective would do": with_bias(
                    mean_of_two_sums
                ),
                "or the host added it up": with_bias(added_by_numpy),
                "nothing was sent": with_bias(lambda mesh, x, w: whole(mesh, x) @ whole(mesh, w)),
            },
        ),
    }
)

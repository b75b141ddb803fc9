"""Lesson 08, data parallel: its exercises."""

from collections.abc import Callable

import numpy as np

from course.arrays import numbers, replicas, split
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes


# ---------------------------------------------------------------- 08.gradient
def _own(mesh, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Return for each device the gradient of its own samples."""
    samples = zip(split(mesh, x, 0), split(mesh, y, 0))
    return [2 / b.size * a.T @ (a @ w - b) for a, b in samples]


def _times(factor: Callable[[int], float]) -> Callable[..., list[np.ndarray]]:
    """Return a reference: on each of n devices `factor(n)` times the mean gradient."""
    return lambda mesh, *arrays: replicas(
        mesh, factor(mesh.get_num_devices()) * np.mean(_own(mesh, *arrays), axis=0)
    )


def _along(axis: int, of_all: bool = False) -> Callable[..., list[np.ndarray]]:
    """Return a reference: the gradients are summed along one mesh axis only.

    Args:
        axis: the mesh axis of the sum.
        of_all: whether the sum is divided by the number of all devices; by default it is divided by
            the number of devices along the axis.
    """

    def on_devices(mesh, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        placed = np.reshape(_own(mesh, x, w, y), (*mesh.shape, *w.shape))
        n = mesh.get_num_devices() if of_all else mesh.shape[axis]
        sums = np.broadcast_to(placed.sum(axis, keepdims=True) / n, placed.shape)
        return list(sums.reshape(-1, *w.shape))

    return on_devices


def _samples(rows: int, columns: int) -> list:
    # The number of rows on a device differs from mesh to mesh, so an answer cannot use a constant.
    n, own = rows * columns, 32 if rows > 1 else 96
    x, w, y = numbers(own * n, 32), numbers(32, 64), numbers(own * n, 64)
    return [(x, (own, 32)), (w, w.shape), (y, (own, 64))]


Exercise(
    "08.gradient",
    asks="mean_gradient(mesh, x, w, y)",
    reference=_times(lambda n: 1),
    cases=OnMeshes([(1, 4), (2, 4)], _samples, fabric=True),
    mistakes={
        "each device has the gradient of its own samples: nothing was averaged": _own,
        "{n} times too large: you summed over {n} devices, but the loss is a mean": _times(
            lambda n: n
        ),
        "{n} times too small: error.logical_volume() counts one device's elements, so "
        "divide by {n} only once": _times(lambda n: 1 / n),
        "it has the wrong sign: the error is x @ w - y, not y - x @ w": _times(lambda n: -1),
        "the mean is over axis 1 of the mesh only: each axis needs its own all_reduce": _along(1),
        "the mean is over axis 0 of the mesh only: each axis needs its own all_reduce": _along(0),
        "the sum is along axis 1 of the mesh only: each axis needs its own all_reduce": _along(
            1, True
        ),
    },
    budget=Budget(sends=lambda mesh: sum(length > 1 for length in mesh.shape)),
    rtol=1e-4,
    praise="all {n} devices have the gradient that one device computes from all samples",
    hints=[
        "Which samples does a chip need, and which weights? So which of x, w and y do you cut?",
        "The function gradient(x, w, y) of the lesson gives each chip the gradient of its own "
        "samples. How do you make one out of four?",
        "A mesh of 2 x 4 has two axes, and all_reduce adds along one. How does a sum become a "
        "mean?",
        "for axis in (0, 1): if mesh.shape[axis] > 1: found = ttnn.all_reduce(found, "
        "cluster_axis=axis). Then multiply by 1 / mesh.get_num_devices().",
    ],
)


# ---------------------------------------------------------------- 08.unequal
def _added(gradients: list, samples: list[int]):
    """Return the gradient of the sum of the losses of all samples."""
    return sum(n * gradient for n, gradient in zip(samples, gradients))


Exercise(
    "08.unequal",
    asks="joined(gradients, samples)",
    reference=lambda gradients, samples: _added(gradients, samples) / sum(samples),
    cases=[
        ([*numbers(3, 4, 2)], [6, 1, 3]),
        ([*numbers(4, 5)], [2, 2, 2, 2]),
        ([*numbers(2, 3)], [1, 15]),
    ],
    mistakes={
        "that is the plain mean, but the chips have different numbers of samples": (
            lambda gradients, samples: np.mean(gradients, axis=0)
        ),
        "that is the sum of the gradients; expected the mean": (
            lambda gradients, samples: np.sum(gradients, axis=0)
        ),
        "divide by the total number of samples": _added,
        "divide by the number of samples, not of chips": lambda gradients, samples: (
            _added(gradients, samples) / len(samples)
        ),
    },
    rtol=1e-4,
    praise="each sample counts the same, whichever chip has it",
    hints=[
        "Which gradient should count more: that of 100 samples, or that of 1 sample?",
        "Four times the gradient of a mean over 4 samples is the sum of the 4 samples' gradients. "
        "What do you divide the sum over all samples by?",
        "sum(samples * gradient) / sum(samples), over the chips.",
    ],
)

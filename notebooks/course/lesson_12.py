"""Lesson 12, sharded data parallel: its exercise."""

import numpy as np

from course.arrays import numbers
from course.common import place
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes

# ---------------------------------------------------------------- 12.step
SHAPE = (256, 512)  # The weight on a chip has this shape.
RATE = 0.1


def axis_of(mesh) -> int:
    """Return the data-parallel mesh axis: axis 1 of a mesh with one row, otherwise axis 0."""
    return 1 if mesh.shape[0] == 1 else 0


def along(mesh) -> int:
    """Return the number of chips along the data-parallel mesh axis."""
    return int(mesh.shape[axis_of(mesh)])


def _given(rows: int, columns: int) -> list:
    """Return a weight that is replicated along the axis, and another gradient for each chip."""
    places = (1, 1) if rows == 1 else (1, columns)
    grads = numbers(rows, columns, *SHAPE) / 8
    return [(numbers(*places, *SHAPE), None), (grads, None)]


def _step(answer, mesh, w: np.ndarray, grads: np.ndarray):
    """Call an answer with tensors, the axis, and an `update` that checks the size of its shard."""
    n = along(mesh)
    moments = 8 * SHAPE[0] * SHAPE[1]  # AdamW keeps two float32 moments for each weight.

    def update(w, grad):
        if (nbytes := 8 * w.logical_volume()) * n != moments:
            keeps = f"update was given {list(w.shape)}, so it keeps {nbytes:,} bytes of moments"
            raise CheckFailed(f"{keeps} on each chip; the budget is {moments // n:,}, 1/{n} of all")
        return w - grad * RATE

    arrays = np.broadcast_to(w, grads.shape), grads
    placed = (place(mesh, array.reshape(-1, 1, *SHAPE), dim=0) for array in arrays)
    return answer(*placed, axis_of(mesh), update)


def _enough(mesh, w: np.ndarray, grads: np.ndarray) -> int:
    """Return the bytes that all links carry in one all-reduce of the gradients."""
    return 2 * (along(mesh) - 1) * grads.nbytes // along(mesh)


def _taken(factor):
    """Return a reference: an update of the weight by `factor(mesh)` times the mean of gradients."""

    def chips(mesh, w: np.ndarray, grads: np.ndarray) -> list[np.ndarray]:
        mean = grads.mean(axis_of(mesh), keepdims=True)
        new = np.broadcast_to(w - RATE * factor(mesh) * mean, grads.shape)
        return [*new.reshape(-1, *SHAPE)]

    return chips


Exercise(
    "12.step",
    asks="zero1_step(w, grad, axis, update)",
    reference=_taken(lambda mesh: 1),
    cases=OnMeshes([(1, 8), (2, 4)], _given, fabric=True, call=_step),
    mistakes={
        "that is the old weight; return the one that update returns": _taken(lambda mesh: 0),
        "the weight moved by the sum of the gradients, not their mean": _taken(along),
        "the sum is divided by all {n} chips; only those along the axis were added": _taken(
            lambda mesh: along(mesh) / mesh.get_num_devices()
        ),
        "no chip has the whole weight: all_gather is missing": lambda mesh, w, grads: [
            np.split(new, along(mesh))[at[axis_of(mesh)]]
            for new, at in zip(_taken(lambda mesh: 1)(mesh, w, grads), np.ndindex(*mesh.shape))
        ],
    },
    budget=Budget(link_bytes=_enough),
    rtol=1e-4,
    praise="one device's weights, with no more bytes than an all-reduce and 1/n of the moments",
    hints=[
        "Which part of the mean gradient can this chip own, if the all-reduce stops halfway?",
        "reduce_scatter adds the gradients and gives each chip a part. Which part of w does that "
        "chip update?",
        "ttnn.mesh_partition cuts w in the same way and sends nothing. The mean is the sum divided "
        "by w.device().shape[axis].",
        "Call reduce_scatter, multiply, mesh_partition, update and all_gather, in this order. The "
        "three collectives take cluster_axis=axis.",
    ],
)

"""Lesson 12, sharded data parallel: its exercise."""

from typing import Any

import numpy as np

from course.arrays import numbers
from ttkit import backend
from ttkit.backend import from_numpy
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes

# ---------------------------------------------------------------- 12.step
SHAPE = (256, 512)  # The weight on a chip has this shape.
RATE = 0.1


def _axis(mesh) -> int:
    """Return the data-parallel mesh axis: axis 1 of a mesh with one row, otherwise axis 0."""
    return 1 if mesh.shape[0] == 1 else 0


def _given(rows: int, columns: int) -> list:
    """Return a weight that is replicated along the axis, and another gradient for each chip."""
    places = (1, 1) if rows == 1 else (1, columns)
    grads = numbers(rows, columns, *SHAPE) / 8
    return [(numbers(*places, *SHAPE), None), (grads, None)]


def _step(answer, mesh, w: np.ndarray, grads: np.ndarray):
    """Call an answer with tensors, the axis, and an `update` that checks the size of its shard."""
    ttnn, n = backend.load(), mesh.shape[_axis(mesh)]
    moments = 8 * SHAPE[0] * SHAPE[1]  # AdamW keeps two float32 moments for each weight.

    def update(w, grad):
        if (nbytes := 8 * w.logical_volume()) * n != moments:
            keeps = f"update was given {list(w.shape)}, so it keeps {nbytes:,} bytes of moments"
            raise CheckFailed(f"{keeps} on each chip; the budget is {moments // n:,}, 1/{n} of all")
        return ttnn.subtract(w, ttnn.multiply(grad, RATE))

    each = ttnn.MeshMapperConfig([ttnn.PlacementShard(0), ttnn.PlacementShard(1)])
    how: Any = {"device": mesh, "layout": ttnn.TILE_LAYOUT}
    how["mesh_mapper"] = ttnn.create_mesh_mapper(mesh, each)
    whole = np.broadcast_to(w, grads.shape).copy()
    return answer(from_numpy(whole, **how), from_numpy(grads, **how), _axis(mesh), update)


def _enough(mesh, w: np.ndarray, grads: np.ndarray) -> int:
    """Return the bytes that all links carry in one all-reduce of the gradients."""
    n = mesh.shape[_axis(mesh)]
    return int(2 * (n - 1) * grads.nbytes // n)


def _chips(mesh, *values: np.ndarray) -> list[np.ndarray]:
    """Return what each chip holds of a weight and its gradients after an update."""
    w, grad = (np.broadcast_to(each, (*mesh.shape, *SHAPE)) for each in values)
    new = w - np.float32(RATE) * grad
    return [new[at][None, None] for at in np.ndindex(*mesh.shape)]


def _taken(factor, along=_axis):
    """Return a reference: an update of the weight by `factor` times the mean of gradients.

    Args:
        factor: a function from the mesh to the factor.
        along: a function from the mesh to the axis; the mean is over the chips along this axis.
    """
    return lambda mesh, w, grads: _chips(
        mesh, w, factor(mesh) * grads.mean(along(mesh), keepdims=True)
    )


def _along(mesh) -> int:
    return int(mesh.shape[_axis(mesh)])


Exercise(
    "12.step",
    asks="zero1_step(w, grad, axis, update)",
    reference=_taken(lambda mesh: 1),
    cases=OnMeshes([(1, 8), (2, 4)], _given, fabric=True, call=_step),
    mistakes={
        "that is the old weight; return the one that update returns": _taken(lambda mesh: 0),
        "the weight moved by the sum of the gradients, not their mean": _taken(_along),
        "the gradient is too small: it was divided twice": _taken(lambda mesh: 1 / _along(mesh)),
        "the sum is divided by all {n} chips; only those along the axis were added": _taken(
            lambda mesh: _along(mesh) / mesh.get_num_devices()
        ),
        "no chip has the whole weight: all_gather is missing": lambda mesh, w, grads: [
            np.split(new, _along(mesh), 2)[at[_axis(mesh)]]
            for new, at in zip(_taken(lambda mesh: 1)(mesh, w, grads), np.ndindex(*mesh.shape))
        ],
    },
    budget=Budget(link_bytes=_enough),
    rtol=1e-4,
    praise="the weights of one device, no more bytes than an all-reduce, 1/n of the moments",
    hints=[
        "Which part of the mean gradient can this chip own, if the all-reduce stops halfway?",
        "reduce_scatter adds the gradients and gives each chip a part. Which part of w belongs to "
        "it?",
        "ttnn.mesh_partition cuts w in the same way and sends nothing. The mean is the sum divided "
        "by w.device().shape[axis].",
        "reduce_scatter, multiply, mesh_partition, update, all_gather: all along "
        "cluster_axis=axis.",
    ],
)

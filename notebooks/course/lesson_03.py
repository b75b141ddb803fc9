"""Lesson 03, one program, many chips: its exercises."""

from collections.abc import Callable

import numpy as np

from course.arrays import numbers, replicas, split
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes

# A matmul whose inner dimension is sharded leaves a partial sum on each device.
PARTIAL = "each device holds only its partial sum: the sum over the devices is missing"


# ---------------------------------------------------------------- 03.grid
def _blocks(mesh, rows: np.ndarray, columns: np.ndarray) -> list[np.ndarray]:
    """Return rows @ columns in blocks, cut over both axes of the mesh."""
    down, across = mesh.shape
    return [a @ b for a in np.split(rows, down, 0) for b in np.split(columns, across, 1)]


Exercise(
    "03.grid",
    asks="grid(mesh, x, w)",
    reference=_blocks,
    cases=OnMeshes(
        [(2, 4), (4, 2), (2, 2)],
        # Each operand can also be cut over all devices, as in the first mistake below. Such an
        # answer then runs, and its author sees the sentence about this mistake.
        lambda rows, columns: [
            (numbers(192 * rows, 32), (192, 32)),
            (numbers(32, 384 * columns), (32, 384)),
        ],
    ),
    mistakes={
        "rows and columns are cut over all {n} devices, as in the lesson's mistake: most blocks "
        "are missing": lambda mesh, x, w: [
            a @ b for a, b in zip(split(mesh, x, 0), split(mesh, w, 1))
        ],
        "the rows of x are cut over axis 1 of the mesh and the columns of w over axis 0": (
            lambda mesh, x, w: [
                a @ b for b in np.split(w, mesh.shape[0], 1) for a in np.split(x, mesh.shape[1], 0)
            ]
        ),
    },
    budget=Budget(sends=0),
    praise="each device computed its block, all blocks are there, and no chip sent anything",
    hints=[
        "The devices of one column lie along the first axis. What do the devices of one row "
        "of the mesh have in common: rows of x, or columns of w?",
        "x needs two placements: sharded along dimension 0 over the first axis, replicated over "
        "the second. Which two does w need?",
        "config = ttnn.MeshMapperConfig([ttnn.PlacementShard(0), ttnn.PlacementReplicate()]); "
        "mapper = ttnn.create_mesh_mapper(mesh, config). That is for x. Do the same for w, with "
        "its own placements, and call matmul once.",
    ],
)


# ---------------------------------------------------------------- 03.column_parallel
def _with_bias(rows: int, columns: int) -> list:
    n = rows * columns
    x, w, b = numbers(4 * n, 8 * n), numbers(8 * n, 32 * n), numbers(1, 32 * n)
    return [(x, x.shape), (w, (8 * n, 32)), (b, (1, 32))]


def _on_slices(answer, mesh, x, w, b):
    """Call an answer. If its bias is not cut, say so, because ttnn's error names only shapes."""
    try:
        return answer(mesh, x, w, b)
    except TTKitError as error:
        if f"{list(b.shape)} FLOAT32" not in str(error):
            raise
        why = "the bias b is whole, but a chip has only some columns of x @ w: cut b as w is cut"
        raise CheckFailed(f"on {mesh!r}: {why}") from error


Exercise(
    "03.column_parallel",
    asks="column_parallel(mesh, x, w, b)",
    reference=lambda mesh, x, w, b: split(mesh, x @ w + b, 1),
    cases=OnMeshes([(2, 4), (1, 3)], _with_bias, call=_on_slices),
    mistakes={
        "the bias b was not added": lambda mesh, x, w, b: split(mesh, x @ w, 1),
        "the bias b was added twice": lambda mesh, x, w, b: split(mesh, x @ w + 2 * b, 1),
        "the bias b was subtracted, not added": lambda mesh, x, w, b: split(mesh, x @ w - b, 1),
        "every device has all columns: cut those of w and b": lambda mesh, x, w, b: replicas(
            mesh, x @ w + b
        ),
    },
    budget=Budget(sends=0),
    praise="weights and bias are cut alike, and no chip sent anything",
    hints=[
        "A chip computes some columns of the result. Which numbers of the bias does it add?",
        "The bias has shape [1, n]: cut it along dimension 1, as the columns of w are cut.",
        "Call ttnn.linear(x, w, bias=b) with the three tensors.",
    ],
)


# ---------------------------------------------------------------- 03.row_parallel
def partial_sums(mesh, x: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
    """Return the partial sum of x @ w on each device if the inner dimension is cut."""
    return [a @ b for a, b in zip(split(mesh, x, 1), split(mesh, w, 0), strict=True)]


def _inner(rows: int, columns: int) -> list:
    n = rows * columns
    x, w = numbers(8 * n, 32 * n), numbers(32 * n, 16 * n)
    return [(x, (8 * n, 32)), (w, (32, 16 * n)), (numbers(1, 16 * n), (1, 16 * n))]


def _with(biases: Callable[[int], int]) -> Callable[..., list[np.ndarray]]:
    """Return a reference that adds the bias `biases(n)` times on a mesh of n devices."""
    return lambda mesh, x, w, b: replicas(mesh, x @ w + biases(mesh.get_num_devices()) * b)


Exercise(
    "03.row_parallel",
    asks="row_parallel(mesh, x, w, b)",
    reference=_with(lambda n: 1),
    cases=OnMeshes([(1, 4), (1, 3)], _inner, fabric=True),
    mistakes={
        "the bias was added {n} times: each device added it to its partial sum": _with(lambda n: n),
        "the bias b was not added": _with(lambda n: 0),
        PARTIAL: lambda mesh, x, w, b: [part + b for part in partial_sums(mesh, x, w)],
        "it is {n} times the result: the partial sums were added twice": lambda mesh, x, w, b: (
            replicas(mesh, mesh.get_num_devices() * (x @ w) + b)
        ),
        "it is {n} times too small: expected a sum, not a mean": lambda mesh, x, w, b: replicas(
            mesh, x @ w / mesh.get_num_devices() + b
        ),
    },
    budget=Budget(sends=1),
    praise="the partial sums and one bias are added, and every device has the result",
    hints=[
        "Which dimension of x is summed over, and which of w? And if each of n devices adds b to "
        "its partial sum, how many times is b in the sum?",
        "Cut x along dimension 1 and w along dimension 0. Then each chip has a partial sum. Add "
        "the bias after these sums have been added up.",
        "ttnn.all_reduce(..., cluster_axis=1) adds the partial sums of a row of chips. Then add a "
        "replica of b.",
    ],
)

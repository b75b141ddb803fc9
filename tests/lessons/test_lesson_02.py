"""Lesson 02: its exercises with right and with wrong answers, and the numbers of its section on
placements.
"""

import math

import numpy as np
from answers import R, S, both, by_axes, cut, put, rows

from ttkit import ttnn
from ttkit.visualize.tensor import placement


def up(n):
    return math.ceil(n / 32) * 32


def bytes_of(shape, devices, dim):
    """The lesson's solution."""
    shard = [n // devices if d == dim else n for d, n in enumerate(shape)]
    return 2 * math.prod([*shard[:-2], *map(up, shard[-2:])])


def opened(shape, devices, dim):
    """Right, by making the tensor."""
    with ttnn.open_mesh_device(ttnn.MeshShape(1, devices)) as mesh:
        tensor = put(mesh, np.zeros(shape, np.float32), cut(mesh, dim))
        return math.prod(tensor.padded_shape) * 2


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "02.across": (
            [
                lambda mesh, x: by_axes(mesh, x, R, S(0)),
                lambda mesh, x: put(
                    mesh, x, ttnn.ShardTensor2dMesh(mesh, mesh_shape=mesh.shape, dims=(None, 0))
                ),
            ],
            {
                "the rows of x are cut over axis 0 of the mesh": lambda mesh, x: by_axes(
                    mesh, x, S(0), R
                ),
                "the rows of x are cut over all 8 devices": rows,
                "each chip should get x as [128, 384]; yours got [128, 192]": lambda mesh, x: (
                    by_axes(mesh, x, S(1), S(0))
                ),
                "expected TILE layout, got": lambda mesh, x: ttnn.to_layout(
                    by_axes(mesh, x, R, S(0)), ttnn.ROW_MAJOR_LAYOUT
                ),
                "should give a ttnn tensor, but gave": lambda mesh, x: np.split(
                    x, mesh.shape[1], 0
                ),
            },
        ),
        "02.bytes": (
            [bytes_of, opened, lambda *case: float(bytes_of(*case))],
            {"bytes_per_chip((256, 512), 8, 1) should be 32,768, but is 1": lambda *case: 1},
        ),
    }
)


# ---------------------------------------------------------------- numbers of the lesson
def test_the_rows_of_96_x_64_leave_more_whole_tiles_than_its_columns():
    rows, columns = (placement(shape=(96, 64), axis_1=dim) for dim in (0, 1))
    assert "2 tiles" in repr(rows) and "25% padding" in repr(rows)
    assert "3 tiles" in repr(columns) and "50% padding" in repr(columns)


def test_replicated_over_both_axes_stores_the_most():
    choices = ["replicate", 0, 1]
    stored = {(a, b): placement(axis_0=a, axis_1=b).nbytes for a in choices for b in choices}
    assert max(stored, key=stored.get) == ("replicate", "replicate")
    assert "8 times what the values" in placement().notes[1]
    assert [where for where, nbytes in stored.items() if not nbytes] == [(0, 0), (1, 1)]

"""Lesson 01: its exercises with right and with wrong answers."""

import pytest
from answers import both
from machine import strict_with_fabric

from ttkit import ttnn


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)  # nothing is sent in lesson 01
        yield


# ---------------------------------------------------------------- the exercises
def neighbours(system, device, wraps=None):
    """The lesson's solution; with other `wraps`, a wrong one."""
    wraps = system.wraps if wraps is None else wraps
    found = set()
    for axis, step in [(0, -1), (0, 1), (1, -1), (1, 1)]:
        place = list(system.coordinate_of[device])
        place[axis] += step
        if 0 <= place[axis] < system.shape[axis] or wraps[axis]:
            place[axis] %= system.shape[axis]
            found.add(system.ids[place[0]][place[1]])
    return found


def by_comparing(system, device):
    """Right, without arithmetic on ids: all places whose distance is 1, or an axis' length less 1
    where the axis wraps."""
    here, found = system.coordinate_of[device], []
    for other, there in system.coordinate_of.items():
        apart = [abs(a - b) for a, b in zip(here, there)]
        for axis in (0, 1):
            steps = {1, system.shape[axis] - 1} if system.wraps[axis] else {1}
            if apart[1 - axis] == 0 and apart[axis] in steps - {0}:
                found.append(other)
    return found


def row_of(mesh, index):
    return mesh.create_submeshes(ttnn.MeshShape(1, mesh.shape[1]))[index]


def one_by_one(mesh):
    rows, columns = mesh.shape
    places = [(r, c) for r in range(0, rows, 2) for c in range(columns)]
    return [mesh.create_submesh(ttnn.MeshShape(2, 1), ttnn.MeshCoordinate(r, c)) for r, c in places]


def opened_row(mesh):
    ids = row_of(mesh, 1).get_device_ids()
    return ttnn.open_mesh_device(ttnn.MeshShape(1, len(ids)), physical_device_ids=ids)


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "01.second_row": (
            [
                lambda mesh: row_of(mesh, 1),
                lambda mesh: mesh.create_submesh(
                    ttnn.MeshShape(1, mesh.shape[1]), ttnn.MeshCoordinate(1, 0)
                ),
            ],
            {
                "that is the first row": lambda mesh: row_of(mesh, 0),
                "that is the second column": lambda mesh: mesh.create_submesh(
                    ttnn.MeshShape(mesh.shape[0], 1), ttnn.MeshCoordinate(0, 1)
                ),
                "is {'shape': (1, 2), 'devices': [6, 7]}": lambda mesh: row_of(mesh, -1),
                "cut it out of the mesh": opened_row,
                "a mesh is asked for, this is a list": lambda mesh: mesh.get_device_ids()[4:],
                "does it end in `return`": lambda mesh: None,
            },
        ),
        "01.pairs": (
            [lambda mesh: mesh.create_submeshes(ttnn.MeshShape(2, 1)), one_by_one],
            {
                "beside each other": lambda mesh: mesh.create_submeshes(ttnn.MeshShape(1, 2)),
                "one pair alone": lambda mesh: one_by_one(mesh)[:1],
                "item 0 should be": lambda mesh: one_by_one(mesh)[::-1],
            },
        ),
        "01.neighbours": (
            [neighbours, by_comparing],
            {
                "the last chip of the axis is cabled": lambda s, d: neighbours(
                    s, d, (False, False)
                ),
                "one axis for the other": lambda s, d: neighbours(s, d, s.wraps[::-1]),
                "you closed rows and columns": lambda s, d: neighbours(s, d, (True, True)),
                "is no neighbour of itself": lambda s, d: neighbours(s, d) | {d},
            },
        ),
    }
)

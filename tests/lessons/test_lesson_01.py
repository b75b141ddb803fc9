"""Lesson 01: the picture to play with, and its exercises with right and with wrong answers."""

import re

import numpy as np
import pytest
from answers import both

import ttkit
from course.lesson_01 import explore
from ttkit import ttnn
from ttkit.hardware import SYSTEMS


@pytest.fixture(autouse=True)
def without_a_fabric(as_in_a_lesson):
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)  # nothing is sent in lesson 01


# ---------------------------------------------------------------- the picture
SHAPES = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4), (4, 2), (1, 8), (3, 3), (4, 8)]
OFFSETS = [(0, 0), (0, 1), (0, 3), (1, 0), (1, 1), (7, 0)]


def shown(cell):
    """The numbers in a cell: row and column in the mesh, if the mesh has the chip, and its id."""
    return tuple(map(int, re.findall(r"\d+", " ".join([cell.name, *cell.lines]))))


@pytest.mark.parametrize("system", ["t3000", "galaxy", "galaxy_torus", "n300"])
def test_the_picture_shows_what_ttnn_opens_or_its_words(system):
    ttkit.use_system(system)
    for shape in SHAPES:
        for offset in OFFSETS:
            picture = explore(system, shape, offset)
            try:
                mesh = ttnn.open_mesh_device(
                    ttnn.MeshShape(*shape), offset=ttnn.MeshCoordinate(*offset)
                )
            except RuntimeError as error:
                assert picture.alarm == str(error) and len(picture.drawings) == 1
                assert repr(picture).endswith(f"refused: {error}")
                (drawing,) = picture.drawings
                size = "x".join(map(str, shape))
                assert f"<title>refused: {size} at {offset}</title>" in drawing.svg()
                assert drawing.width <= 760
                continue
            with mesh:
                ids = np.reshape(mesh.get_device_ids(), shape)
            rows = [f"row {r}: devices {', '.join(map(str, row))}" for r, row in enumerate(ids)]
            assert repr(picture).splitlines()[1:] == [f"  {row}" for row in rows]
            assert not picture.alarm
            whole, part = (list(map(shown, drawing.cells)) for drawing in picture.drawings)
            assert part == [(r, c, id) for (r, c), id in np.ndenumerate(ids)]
            assert {numbers for numbers in whole if len(numbers) > 1} == set(part)
            assert len(set(whole)) == SYSTEMS[system].num_devices


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("t3000", (2, 4), (0, 0)), ""),
        (("t3000", (2, 2), (0, 2)), ""),
        (("t3000", (4, 2), (0, 0)), "It opens transposed: a row of the mesh is a column of the"),
        (("galaxy", (2, 5), (1, 1)), "machine. ttnn then ignores the offset."),
        (("t3000", (1, 4), (1, 0)), "each chip is linked to the next"),
        (("t3000", (2, 1), (0, 1)), "each chip is linked to the next"),  # along the row
    ],
)
def test_the_picture_says_what_is_special(asked, said):
    notes = " ".join(explore(*asked).notes)
    assert said in notes
    assert said or ("transposed" not in notes and "linked" not in notes)


def test_chips_of_one_row_of_the_mesh_have_one_colour_in_both_drawings():
    for drawing in explore("t3000", (4, 2)).drawings:
        colour = {int(cell.lines[0].split()[1]): cell.fill for cell in drawing.cells}
        rows = [(4, 5), (0, 1), (2, 3), (6, 7)]
        assert [colour[a] == colour[b] for a, b in rows] == [True] * 4
        assert len(set(colour.values())) == 4


def test_a_machine_that_is_not_known_is_refused():
    with pytest.raises(ttkit.TTKitError, match="no system has that name"):
        explore("t4000")


# ---------------------------------------------------------------- the exercises
def neighbours(system, device):
    """The lesson's solution."""
    found = set()
    for axis, step in [(0, -1), (0, 1), (1, -1), (1, 1)]:
        place = list(system.coordinate_of[device])
        place[axis] += step
        if 0 <= place[axis] < system.shape[axis] or system.wraps[axis]:
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
                "expected a mesh, got a list": lambda mesh: mesh.get_device_ids()[4:],
                "does it end with `return`": lambda mesh: None,
            },
        ),
        "01.neighbours": ([neighbours, by_comparing], {}),
    }
)

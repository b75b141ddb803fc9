"""Lesson 01: the picture to play with, and its exercises with right and with wrong answers."""

import dataclasses
import re

import numpy as np
import pytest
from answers import right, wrong
from machine import strict_with_fabric

import ttkit
from ttkit import lessons, ttnn
from ttkit.hardware import SYSTEMS, System, systems
from ttkit.lessons.lesson_01 import explore


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)  # nothing is sent in lesson 01
        yield


# ---------------------------------------------------------------- the picture
SHAPES = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4), (4, 2), (1, 8), (3, 3), (4, 8)]
OFFSETS = [(0, 0), (0, 1), (0, 3), (1, 0), (1, 1), (7, 0)]


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
            whole, part = (drawing.svg() for drawing in picture.drawings)
            for (r, c), device in np.ndenumerate(ids):
                hover = f"<title>device {device}: "
                assert hover in whole and f"{hover}({r}, {c}) in this picture" in part
                assert f"in this picture, ({r}, {c}) of the mesh</title>" in whole
            left_out = SYSTEMS[system].num_devices - ids.size
            assert whole.count("not opened") == left_out and "not opened" not in part


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("t3000", (2, 4), (0, 0)), ""),
        (("t3000", (2, 2), (0, 2)), ""),
        (("t3000", (4, 2), (0, 0)), "It opens transposed: a row of the mesh is a column of the"),
        (("galaxy", (2, 5), (1, 1)), "machine. ttnn then ignores the offset."),
        (("t3000", (1, 4), (1, 0)), "it follows the cables"),
        (("t3000", (2, 1), (0, 1)), "it follows the cables"),  # along the row
    ],
)
def test_the_picture_says_what_is_special(asked, said):
    notes = " ".join(explore(*asked).notes)
    assert said in notes
    assert said or ("transposed" not in notes and "cables" not in notes)


def test_chips_of_one_row_of_the_mesh_have_one_colour_in_both_drawings():
    for drawing in explore("t3000", (4, 2)).drawings:
        found = re.findall(r'fill="(#\w+)"[^>]*><title>device (\d)', drawing.svg())
        colour = {int(device): fill for fill, device in found}
        rows = [(4, 5), (0, 1), (2, 3), (6, 7)]
        assert [colour[a] == colour[b] for a, b in rows] == [True] * 4
        assert len(set(colour.values())) == 4


def test_a_machine_that_is_not_known_is_refused():
    with pytest.raises(ttkit.TTKitError, match="no system has that name"):
        explore("t4000")


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


def diagonal(system, device):
    """One step along both axes at once."""
    r, c = system.coordinate_of[device]
    places = [(r + a, c + b) for a in (-1, 1) for b in (-1, 1)]
    rows, columns = system.shape
    return [system.ids[r][c] for r, c in places if 0 <= r < rows and 0 <= c < columns]


def negative_wraps(system, device):
    """Python's index -1 closes every axis, and only in one direction."""
    r, c = system.coordinate_of[device]
    rows, columns = system.shape
    places = [(r - 1, c), (r, c - 1)]
    places += [(r + 1, c)] * (r + 1 < rows) + [(r, c + 1)] * (c + 1 < columns)
    return {system.ids[r][c] for r, c in places}


def asked_anew(system, device):
    """A system made of the parts of the one that keeps its cables to itself."""
    parts = {each.name: getattr(system, each.name) for each in dataclasses.fields(system)}
    return System(**parts).neighbours[device]


def by_the_grid(system, device):
    found = set()
    for one, other, _ in systems.grid_links(system.shape, system.wraps):
        ids = {system.ids[r][c] for r, c in (one, other)}
        found |= ids - {device} if device in ids else set()
    return found


def closed(parts):
    for part in parts:
        part.close()
    return parts


def of_eight(mesh):
    """Right for a mesh of eight."""
    rows = mesh.shape[0]
    return mesh.create_submesh(ttnn.MeshShape(1, 8 // rows), ttnn.MeshCoordinate(1, 0))


def row_of(mesh, index):
    return mesh.create_submeshes(ttnn.MeshShape(1, tuple(mesh.shape)[1]))[index]


def columns_first(mesh):
    """The right pairs, but column by column."""
    rows, columns = mesh.shape
    return [
        mesh.create_submesh(ttnn.MeshShape(2, 1), ttnn.MeshCoordinate(r, c))
        for c in range(columns)
        for r in range(0, rows, 2)
    ]


def one_by_one(mesh):
    rows, columns = mesh.shape
    return [
        mesh.create_submesh(ttnn.MeshShape(2, 1), ttnn.MeshCoordinate(r, c))
        for r in range(0, rows, 2)
        for c in range(columns)
    ]


def overlapping(mesh):
    rows, columns = mesh.shape
    return [
        mesh.create_submesh(ttnn.MeshShape(2, 1), ttnn.MeshCoordinate(r, c))
        for r in range(rows - 1)
        for c in range(columns)
    ]


def lying(mesh):
    found = mesh.create_submeshes(ttnn.MeshShape(2, 1))
    for pair in found:
        pair.reshape(ttnn.MeshShape(1, 2))
    return found


def opened(mesh, ids, shape):
    return ttnn.open_mesh_device(ttnn.MeshShape(*shape), physical_device_ids=ids)


def opened_pairs(mesh):
    return [opened(mesh, pair.get_device_ids(), (2, 1)) for pair in one_by_one(mesh)]


def opened_row(mesh):
    return opened(mesh, row_of(mesh, 1).get_device_ids(), (1, tuple(mesh.shape)[1]))


def standing(mesh):
    row = row_of(mesh, 1)
    row.reshape(ttnn.MeshShape(tuple(mesh.shape)[1], 1))
    return row


RIGHT = [
    (
        "01.second_row",
        lambda mesh: mesh.create_submesh(
            ttnn.MeshShape(1, tuple(mesh.shape)[1]), ttnn.MeshCoordinate(1, 0)
        ),
    ),
    ("01.second_row", lambda mesh: row_of(mesh, 1)),
    ("01.pairs", lambda mesh: mesh.create_submeshes(ttnn.MeshShape(2, 1))),
    ("01.pairs", lambda mesh: tuple(mesh.create_submeshes(ttnn.MeshShape(2, 1)))),
    ("01.pairs", one_by_one),
    ("01.pairs", lambda mesh: np.array(one_by_one(mesh), dtype=object)),
    ("01.neighbours", neighbours),
    ("01.neighbours", lambda system, d: np.array(sorted(neighbours(system, d)))),
    ("01.neighbours", by_comparing),
]


# (exercise, wrong answer, what the feedback must name)
WRONG = [
    ("01.second_row", lambda mesh: mesh.create_submesh(ttnn.MeshShape(1, tuple(mesh.shape)[1])), "devices [5, 1, 3, 7], your mesh has devices [4, 0, 2, 6]"),
    ("01.second_row", lambda mesh: mesh.create_submeshes(ttnn.MeshShape(2, 1))[1], "your mesh has devices [0, 1]"),
    ("01.second_row", lambda mesh: ttnn.open_mesh_device(ttnn.MeshShape(1, 4), offset=ttnn.MeshCoordinate(1, 0)), "has devices [5, 4, 0, 2]: a line that you open walks around the rim"),
    ("01.second_row", lambda mesh: row_of(mesh, -1), "the second row is devices [0, 1], your mesh has devices [6, 7]"),
    ("01.second_row", lambda mesh: mesh.create_submesh(ttnn.MeshShape(1, 4), ttnn.MeshCoordinate(1, 0)), "your second_row stopped with"),
    ("01.second_row", lambda mesh: mesh, "your mesh has devices [4, 0, 2, 6, 5, 1, 3, 7]"),
    ("01.second_row", standing, "the row has shape (1, 4), yours has"),
    ("01.second_row", opened_row, "cut it out of the mesh"),
    ("01.second_row", lambda mesh: mesh.get_device_ids()[4:], "should give a mesh, gave a list"),
    ("01.second_row", lambda mesh: 3, "gave a int"),
    ("01.second_row", lambda mesh: None, "does it end in `return`"),
    ("01.second_row", of_eight, "your second_row stopped with"),
    ("01.second_row", lambda mesh: closed([row_of(mesh, 1)])[0], "your row is closed"),
    ("01.pairs", lambda mesh: closed(one_by_one(mesh)), "pair 0 is closed"),
    ("01.neighbours", asked_anew, "then it is no exercise"),
    ("01.neighbours", by_the_grid, "then it is no exercise"),
    ("01.neighbours", lambda system, d: [10**400], "there is no device 1000"),
    ("01.neighbours", lambda system, d: [10**5000], "there is no device a int"),
    ("01.pairs", lambda mesh: mesh.create_submeshes(ttnn.MeshShape(1, 2)), "should hold devices"),
    ("01.pairs", lambda mesh: mesh.create_submeshes(ttnn.MeshShape(2, 2)), "4 pairs"),
    ("01.pairs", columns_first, "pair 1 should hold devices [5, 1], holds [2, 6]"),
    ("01.pairs", overlapping, "there are 4 pairs, you made 6"),
    ("01.pairs", lambda mesh: overlapping(mesh)[:4], "pair 2 should hold devices [2, 6]"),
    ("01.pairs", lambda mesh: one_by_one(mesh)[::-1], "pair 0 should hold devices [4, 5], holds [6, 7]"),
    ("01.pairs", lambda mesh: [mesh.create_submesh(ttnn.MeshShape(2, 1), ttnn.MeshCoordinate(0, c)) for c in range(4)], "your pairs stopped with"),
    ("01.pairs", lying, "a mesh of shape (2, 1); pair 0 is"),
    ("01.pairs", opened_pairs, "pair 0 is a mesh of its own"),
    ("01.pairs", lambda mesh: None, "gave nothing back"),
    ("01.pairs", lambda mesh: 4, "a list of meshes, gave a int"),
    ("01.pairs", lambda mesh: [4, 5, 0, 1], "pair 0 should be a mesh"),
    ("01.neighbours", lambda system, d: neighbours(system, d, (False, False)), "your answer stops at every edge. But system.wraps is (True, False): the last chip of each column"),
    ("01.neighbours", lambda system, d: neighbours(system, d, system.wraps[::-1]), "wraps[0] is for mesh axis 0, which runs down the rows and closes columns"),
    ("01.neighbours", lambda system, d: neighbours(system, d, [any(system.wraps)] * 2), "you closed rows and columns. But system.wraps is (True, False)"),
    ("01.neighbours", lambda system, d: neighbours(system, d, [all(system.wraps)] * 2), "your answer stops at every edge"),
    ("01.neighbours", lambda system, d: neighbours(system, d, (True, True)), "no cable joins device"),
    ("01.neighbours", lambda system, d: neighbours(system, d, (system.wraps[0], False)), "with wraps=(False, True), your answer stops at every edge"),
    ("01.neighbours", negative_wraps, "on t3000, no cable joins device 4 and device 6"),
    ("01.neighbours", diagonal, "on t3000, device 4 is cabled to device 0: your answer misses it"),
    ("01.neighbours", lambda system, d: [o for o in neighbours(system, d) if o > d], "your answer misses it"),
    ("01.neighbours", lambda system, d: [o for o in system.coordinate_of if o != d and system.linked(o, d)], "then it is no exercise"),
    ("01.neighbours", lambda system, d: [b for a, b in system.links() if a == d], "then it is no exercise"),
    ("01.neighbours", lambda system, d: system.neighbours[d], "then it is no exercise"),
    ("01.neighbours", lambda system, d: [o for o in system.coordinate_of if abs(o - d) == 1], "device"),
    ("01.neighbours", lambda system, d: neighbours(system, d) | {d}, "neighbour of itself"),
    ("01.neighbours", lambda system, d: None, "a list or set of device ids"),
    ("01.neighbours", lambda system, d: 4, "a list or set of device ids"),
    ("01.neighbours", lambda system, d: "40", "there is no device '4'"),
    ("01.neighbours", lambda system, d: [(0, 0)], "there is no device (0, 0)"),
    ("01.neighbours", lambda system, d: [[0], None], "there is no device [0]"),
]  # fmt: skip

test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_where = wrong(
    [(name, answer, re.escape(names)) for name, answer, names in WRONG]
)


@pytest.mark.parametrize("name", ["01.second_row", "01.pairs", "01.neighbours"])
def test_an_exercise_has_wrong_answers_and_hints(name):
    assert sum(answer[0] == name for answer in WRONG) >= 4
    assert 2 <= len(lessons._HINTS[name]) <= 4

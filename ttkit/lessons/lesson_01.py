"""Lesson 01, mesh devices: the picture to play with, and its exercises."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from unittest.mock import patch

import numpy as np

from ttkit.errors import TTKitError
from ttkit.hardware import SYSTEMS, System, systems
from ttkit.hardware.device_order import device_order
from ttkit.hardware.systems import Coordinate, grid_links, system_named
from ttkit.lessons import CheckFailed, exercise, require
from ttkit.lessons.answers import Answer, asks, is_a
from ttkit.lessons.predicting import as_number, brief
from ttkit.visualize.drawing import BAD, INK, Figure, tone
from ttkit.visualize.mesh import MeshDrawing, MeshPicture, picture_of, system_picture

SIZE = 12.5  # of words; a picture in a narrow window shrinks to 0.8, where they have 10 pixels


# ---------------------------------------------------------------- what opens
def explore(
    system: str = "t3000", shape: Coordinate = (2, 4), offset: Coordinate = (0, 0)
) -> Figure:
    """Return the picture of a mesh that opens on a machine, or of ttnn's words that refuse it.

    Nothing is opened. Chips of one row of the mesh have one colour.

    Args:
        system: what `ttkit.use_system` takes.
        shape: rows and columns of the mesh.
        offset: the coordinate of the machine at which it begins.

    Example:
        >>> explore("t3000", (2, 2), (0, 2))
        a 2x2 mesh at (0, 2) of a t3000
          row 0: devices 2, 6
          row 1: devices 3, 7
    """
    machine = system_named(system)
    size, corner = "x".join(map(str, shape)), tuple(offset)
    title = f"a {size} mesh at {corner} of a {machine.name}"
    given = f"MeshShape({list(shape)}), offset=MeshCoordinate({list(offset)})"
    asked = f"open_mesh_device({given}) on a {machine.name}"
    whole = system_picture(machine)
    try:
        places = list(device_order(machine, shape, corner, asked))
    except TTKitError as error:
        drawing = _draw(whole, {})
        _outline(drawing, shape, corner)
        text, note = f"{title}\n  refused: {error}", "Dashed and red: the mesh that was asked for."
        return Figure(title, [drawing], [note], text, str(error))
    devices = [machine.ids[row][column] for row, column in places]
    mesh = picture_of(f"the mesh: ttnn.MeshShape{tuple(shape)}", shape, devices, machine)
    at = dict(zip(devices, np.ndindex(*shape)))
    ids = np.reshape(devices, shape)
    rows = [f"row {r}: devices {', '.join(map(str, row))}" for r, row in enumerate(ids)]
    notes = [
        *_said(shape, corner, places),
        "In a chip: its device id, and its coordinate in the mesh. One colour: one row of it.",
    ]
    return Figure(title, [_draw(whole, at), _draw(mesh, at)], notes, "\n  ".join([title, *rows]))


def _said(shape: Coordinate, corner: Coordinate, places: list[Coordinate]) -> list[str]:
    """Return what is special about the places in the machine that a mesh takes."""
    if 1 < len(places) == max(shape):
        return ["One row or one column is a line: it follows the cables."]
    if len(places) == 1 or places[1][0] == places[0][0]:
        return []
    moved = " ttnn then ignores the offset." if places[0] != corner else ""
    return [f"It opens transposed: a row of the mesh is a column of the machine.{moved}"]


def _draw(picture: MeshPicture, at: dict[int, Coordinate]) -> MeshDrawing:
    """Draw chips with their coordinates in the mesh that is opened; those left out are dashed."""
    drawing = MeshDrawing(picture, 72, 42, "", gap=(14, 28))
    w, h = drawing.w, drawing.h
    for device, label, (x, y) in zip(picture.devices, picture.labels, drawing.corners):
        where = at.get(device)
        if where is None:
            look, said, words = {"stroke_dasharray": "3 3"}, "not opened", ""
        else:
            look, said, words = {}, f"{where} of the mesh", str(where)
        fill, ink = ("none", "var(--soft)") if where is None else (tone(int(where[0])), INK)
        hover = f"device {device}: {label} in this picture, {said}"
        drawing.add(
            "rect",
            hover=hover,
            x=x,
            y=y,
            width=w,
            height=h,
            rx=6,
            fill=fill,
            stroke="var(--edge)",
            **look,
        )
        drawing.words(
            x + w / 2, y + 18, f"device {device}", size=SIZE, colour=ink, bold=bool(words)
        )
        drawing.words(x + w / 2, y + 34, words, size=SIZE, colour=ink)
    return drawing


def _outline(drawing: MeshDrawing, shape: Coordinate, corner: Coordinate) -> None:
    """Draw the rectangle that was refused, up to a little way out of the machine."""
    (top, left), (rows, columns) = corner, shape
    across, down = drawing.w + drawing.gap_x, drawing.h + drawing.gap_y
    x, y = drawing.left + left * across - 6, drawing.top + top * down - 6
    w = (min(left + columns, 8) - left) * across - drawing.gap_x + 12
    h = (min(top + rows, 9) - top) * down - drawing.gap_y + 12
    drawing.width = max(drawing.width, x + w + 3)
    drawing.height = max(drawing.height, y + h + 3)
    hover = f"refused: {rows}x{columns} at {corner}"
    look: dict[str, Any] = {"stroke": BAD, "stroke_width": 2.5, "stroke_dasharray": "7 4"}
    drawing.add("rect", hover=hover, x=x, y=y, width=w, height=h, rx=8, fill="none", **look)


# ---------------------------------------------------------------- exercises
@exercise(
    "01.second_row",
    "A line that you open walks around the rim of the machine. Which call cuts a row out of an "
    "open mesh instead?",
    "A row has shape (1, columns), and mesh.shape has the columns. At which coordinate does the "
    "second row begin?",
    "mesh.create_submesh(ttnn.MeshShape(1, columns), ttnn.MeshCoordinate(1, 0)); "
    "rows, columns = mesh.shape",
)
@asks("second_row(mesh)", (2, 4), (4, 2), (2, 2))
def _second_row(second_row: Answer, mesh: Any) -> str:
    rows, columns = mesh.shape
    require(rows > 1, f"{mesh!r} has no second row: open one with two rows or more")
    wanted = mesh.get_device_ids()[columns : 2 * columns]
    row = second_row.on(mesh).ok()
    second_row.must_give("a mesh", is_a(row, "get_device_ids"), row)
    have, shape = row.get_device_ids(), tuple(row.shape)
    rule = f"on {mesh!r} the second row is devices {wanted}"
    line = ": a line that you open walks around the rim" * (_is_opened(row) and row is not mesh)
    require(have == wanted, f"{rule}, your mesh has devices {have}{line}")
    require(shape == (1, columns), f"the row has shape (1, {columns}), yours has {shape}")
    require(_is_open(row), "your row is closed: the next cell cannot use it")
    require(not _is_opened(row), "your row is a mesh of its own: cut it out of the mesh")
    return "the second row, in order"


def _is_open(mesh: Any) -> bool:
    return bool(getattr(mesh, "is_open", True))  # on a card this is not known


def _is_opened(mesh: Any) -> bool:
    """Return whether a mesh was opened, not cut out of another; on a card this is not known."""
    return getattr(mesh, "parent", mesh) is None


@exercise(
    "01.pairs",
    "What shape has a mesh of two chips, one below the other?",
    "Such pairs divide the mesh. Which call of this lesson cuts a whole mesh into equal ones?",
    "mesh.create_submeshes(ttnn.MeshShape(rows, columns)), with the shape of one pair",
)
@asks("pairs(mesh)", (2, 4), (4, 2), (2, 2))
def _pairs(pairs: Answer, mesh: Any) -> str:
    ids = np.reshape(mesh.get_device_ids(), tuple(mesh.shape))
    wanted = [pair.tolist() for rows in zip(ids[::2], ids[1::2]) for pair in np.transpose(rows)]
    found = pairs.on(mesh).ok()
    pairs.must_give("a list of meshes", isinstance(found, (list, tuple, np.ndarray)), found)
    several = f"on {mesh!r} there are {len(wanted)} pairs, you made {len(found)}"
    require(len(found) == len(wanted), several)
    for i, (pair, want) in enumerate(zip(found, wanted, strict=True)):
        kind = f"pair {i} should be a mesh of two chips, is a {type(pair).__name__}"
        require(is_a(pair, "get_device_ids"), kind)
        have = pair.get_device_ids()
        require(have == want, f"on {mesh!r} pair {i} should hold devices {want}, holds {have}")
        lies = f"one chip below the other is a mesh of shape (2, 1); pair {i} is {pair.shape}"
        require(tuple(pair.shape) == (2, 1), lies)
        require(_is_open(pair), f"pair {i} is closed: the next cell cannot use it")
        require(not _is_opened(pair), f"pair {i} is a mesh of its own: cut it out of the mesh")
    return "each chip with the one below it"


class _Silent(System):
    """A system that does not answer which chips are linked, since that is the exercise."""

    def linked(self, *devices: Any) -> Any:
        raise CheckFailed(
            "the system knows the answer, but then it is no exercise: "
            "find the neighbours from ids, shape and wraps"
        )

    links = linked
    neighbours = property(linked)  # type: ignore[assignment]


def _rectangle(rows: int, columns: int, wraps: tuple[bool, bool]) -> System:
    """Return a system whose ids show neither a chip's place nor an axis' size."""
    ids = (7 * np.arange(rows * columns) + 3) % (rows * columns)
    table = tuple(map(tuple, ids.reshape(rows, columns).tolist()))
    name = f"{rows} x {columns} system with wraps={wraps}"
    return System(name, SYSTEMS["galaxy"].chip, table, 1, wraps)


def _on_a_grid(system: System, wraps: tuple[bool, bool]) -> dict[int, set[int]]:
    """Return the neighbours of each device if the machine had these `wraps`."""
    found: dict[int, set[int]] = {device: set() for device in system.coordinate_of}
    for (r, c), (r2, c2), _ in grid_links(system.shape, wraps):
        a, b = system.ids[r][c], system.ids[r2][c2]
        found[a].add(b)
        found[b].add(a)
    return found


def _wraps_misread(system: System, have: dict[int, set[int]]) -> None:
    """Raise `CheckFailed` if an answer leaves `system.wraps` out, or takes one axis for another."""
    columns, rows = system.wraps
    lines = "column" if columns else "row"
    closed = f"system.wraps is {system.wraps}: the last chip of each {lines} is cabled to its first"
    if have == _on_a_grid(system, (False, False)):
        require(False, f"on {system.name}, your answer stops at every edge. But {closed}")
    if have == _on_a_grid(system, (rows, columns)):
        axes = "wraps[0] is for mesh axis 0, which runs down the rows and closes columns; wraps[1] "
        require(False, f"{axes}closes rows. On {system.name} you took one for the other: {closed}")
    if have == _on_a_grid(system, (True, True)):
        require(False, f"on {system.name}, you closed rows and columns. But {closed}, no other")


@exercise(
    "01.neighbours",
    "A machine is a grid; only a line that you open walks around its rim. Where is the device? "
    "system.coordinate_of[device] is its (row, column). Which coordinates are one step away?",
    "What is one step beyond the edge? Nothing, unless the axis of that step wraps: then it is "
    "the first chip again. Axis 0 is a step to another row, axis 1 to another column.",
    "For each axis and each step of -1 and 1: add the step to place[axis]. If it is not in "
    "range(system.shape[axis]): with system.wraps[axis] take place[axis] % system.shape[axis], "
    "else skip it.",
    "The id at a place is system.ids[place[0]][place[1]]; put the ids into a set.",
)
@asks("neighbours(system, device)")
def _neighbours(neighbours: Answer) -> str:
    own = [_rectangle(3, 5, wraps) for wraps in ((True, False), (False, True))]
    for system in (SYSTEMS["t3000"], SYSTEMS["galaxy"], *own, SYSTEMS["galaxy_torus"]):
        silent = _Silent(**{f.name: getattr(system, f.name) for f in fields(system)})
        with patch.object(systems, "grid_links", _Silent.linked):  # whoever asks for cables
            given = {device: neighbours(silent, device) for device in system.coordinate_of}
        have = {device: _ids_in(found, system) for device, found in given.items()}
        on, wanted = f"on {system.name}", _on_a_grid(system, system.wraps)
        if have != wanted and system.wraps in ((True, False), (False, True)):
            _wraps_misread(system, have)
        for device, found in have.items():
            itself = f"{on}, your answer names device {device} as a neighbour of itself"
            require(device not in found, itself)
            for other in sorted(wanted[device] - found):
                linked = f"{on}, device {device} is cabled to device {other}"
                raise CheckFailed(f"{linked}: your answer misses it")
            for other in sorted(found - wanted[device]):
                raise CheckFailed(f"{on}, no cable joins device {device} and device {other}")
    return "no cable missing, none invented, wrap-around included"


def _ids_in(found: Any, system: System) -> set[int]:
    """Return the device ids of an answer, or raise `CheckFailed`."""
    try:
        listed = list(found)
    except TypeError:
        asked = f"a list or set of device ids is asked for, yours gave {brief(found)}"
        raise CheckFailed(asked) from None
    for other in listed:
        known = as_number(other) in system.coordinate_of
        rule = f"on {system.name}, there is no device {brief(other)}; device ids are asked for"
        require(known, rule)
    return {int(other) for other in listed}

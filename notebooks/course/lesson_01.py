"""Lesson 01, mesh devices: an interactive picture, and the exercises."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ttkit.errors import TTKitError
from ttkit.hardware import SYSTEMS, System
from ttkit.hardware.device_order import device_order
from ttkit.hardware.systems import Coordinate, grid_links, system_named
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import OnMeshes
from ttkit.plans import topology
from ttkit.plans.cost import busy_traffic, hop_time_s
from ttkit.visualize.cells import Cell, Cells, Grid
from ttkit.visualize.drawing import BAD, Figure, tone
from ttkit.visualize.mesh import grid_of, system_grid


# ---------------------------------------------------------------- an order of the chips
def fullest(order: Sequence[int]) -> tuple[int, float]:
    """Return the messages on the busiest pair of a T3000, and their modelled time in ms.

    Each chip of the order sends 64 MiB to the chip before it and to the chip after it.
    """
    machine, messages = topology("t3000"), Counter[Any]()
    for one, following in pairwise(order):
        for way in ((one, following), (following, one)):
            messages.update(pairwise(machine.route(*way)))
    link, links, most = machine.link, machine.links, max(messages.values())
    seconds = most * hop_time_s(link, (64 << 20) / links, busy_traffic(link), links)
    return most, 1e3 * seconds


# ---------------------------------------------------------------- what opens
def explore(
    system: str = "t3000", shape: Coordinate = (2, 4), offset: Coordinate = (0, 0)
) -> Figure:
    """Return the picture of a mesh on a machine, or of the error if ttnn refuses its shape.

    The mesh is not opened. Chips in the same row of the mesh have the same colour.

    Args:
        system: a name or system, as `ttkit.use_system` takes it.
        shape: rows and columns of the mesh.
        offset: the coordinate of the machine at which the mesh begins.

    Example:
        >>> explore("t3000", (2, 2), (0, 2))
        a 2x2 mesh at (0, 2) of a t3000
          row 0: devices 2, 6
          row 1: devices 3, 7
    """
    machine = system_named(system)
    size, corner = f"{shape[0]}x{shape[1]}", tuple(offset)
    title = f"a {size} mesh at {corner} of a {machine.name}"
    given = f"MeshShape({list(shape)}), offset=MeshCoordinate({list(offset)})"
    asked = f"open_mesh_device({given}) on a {machine.name}"
    whole, low = system_grid(machine), machine.shape[0] > 2
    try:
        places = list(device_order(machine, shape, corner, asked))
    except TTKitError as error:
        drawing = _draw(whole, {}, low)
        _outline(drawing, shape, corner)
        notes = ["The dashed red outline is the mesh that you requested."]
        return Figure(title, [drawing], notes, f"{title}\n  refused: {error}", str(error))
    devices = [machine.ids[row][column] for row, column in places]
    mesh = grid_of(f"ttnn.MeshShape{tuple(shape)}", shape, devices, machine)
    at = dict(zip(devices, np.ndindex(*shape)))
    ids = np.reshape(devices, shape)
    rows = [f"row {r}: devices {', '.join(map(str, row))}" for r, row in enumerate(ids)]
    notes = [
        *_said(shape, corner, places),
        "In each box: coordinate in the mesh, and device id. One colour is one row of the mesh.",
    ]
    return Figure(
        title, [_draw(whole, at, low), _draw(mesh, at, low)], notes, "\n  ".join([title, *rows])
    )


def _said(shape: Coordinate, corner: Coordinate, places: list[Coordinate]) -> list[str]:
    """Return notes on the coordinates of the machine that a mesh takes."""
    if 1 < len(places) == max(shape):
        return ["One row or one column is a line: along the rim, each chip is linked to the next."]
    if len(places) == 1 or places[1][0] == places[0][0]:
        return []
    moved = " ttnn then ignores the offset." if places[0] != corner else ""
    return [f"It opens transposed: a row of the mesh is a column of the machine.{moved}"]


def _draw(grid: Grid, at: dict[int, Coordinate], low: bool) -> Cells:
    """Draw chips with their coordinates in the mesh that is opened; those left out are dashed.

    Args:
        low: whether coordinate and id share a line, so that many rows fit on a screen.
    """
    cells = []
    for device in grid.devices:
        chip, where = f"device {device}", at.get(device)
        if where is None:
            cells.append(Cell("", [chip], "none", dashed=True))
        elif low:
            cells.append(Cell("", [f"{where}: {device}"], tone(where[0])))
        else:
            cells.append(Cell(str(where), [chip], tone(where[0])))
    return Cells(grid, cells, frame="", gap=(10, 14 if low else 24))


def _outline(drawing: Cells, shape: Coordinate, corner: Coordinate) -> None:
    """Draw the rectangle that was refused, without its part beyond row 9 or column 8."""
    (top, left), (rows, columns) = corner, shape
    across, down = drawing.w + drawing.gap_x, drawing.h + drawing.gap_y
    x, y = drawing.left + left * across - 6, drawing.top + top * down - 6
    w = (min(left + columns, 8) - left) * across - drawing.gap_x + 12
    h = (min(top + rows, 9) - top) * down - drawing.gap_y + 12
    drawing.width = max(drawing.width, x + w + 3)
    drawing.height = max(drawing.height, y + h + 3)
    hover = f"refused: {rows}x{columns} at {corner}"
    drawing.box((x, y, w, h), hover, rx=8, stroke=BAD, stroke_dasharray="7 4", stroke_width=2.5)


# ---------------------------------------------------------------- exercises
def _chips(mesh, *_) -> dict[str, Any]:
    """Return the shape and the devices of a mesh that an answer gave."""
    if not hasattr(mesh, "get_device_ids"):
        raise CheckFailed(f"expected a mesh, got a {type(mesh).__name__}")
    return _part(_ids(mesh))


def _part(ids: np.ndarray) -> dict[str, Any]:
    return {"shape": ids.shape, "devices": ids.ravel().tolist()}


def _ids(mesh) -> np.ndarray:
    return np.reshape(mesh.get_device_ids(), tuple(mesh.shape))


def _opened(row, mesh) -> str:
    """Return an error if the row is a mesh of its own; on a card this cannot be seen."""
    opened = getattr(row, "parent", mesh) is None
    return "your row is a mesh of its own: cut it out of the mesh" if opened else ""


Exercise(
    "01.second_row",
    asks="second_row(mesh)",
    reference=lambda mesh: _part(_ids(mesh)[1:2]),
    cases=OnMeshes([(2, 4), (4, 2), (2, 2)], lambda rows, columns: []),
    reads=_chips,
    mistakes={
        "that is the first row: rows are counted from 0": lambda mesh: _part(_ids(mesh)[:1]),
        "that is the second column": lambda mesh: _part(_ids(mesh)[:, 1:2]),
    },
    rules=_opened,
    praise="the second row, in order",
    hints=[
        "A line that you open follows the rim of the machine. Which call cuts a row out of an "
        "open mesh instead?",
        "A row has shape (1, columns), and mesh.shape has the columns. At which coordinate does "
        "the second row begin?",
        "rows, columns = mesh.shape; then "
        "mesh.create_submesh(ttnn.MeshShape(1, columns), ttnn.MeshCoordinate(1, 0))",
    ],
)


def _rectangle(rows: int, columns: int, wraps: tuple[bool, bool]) -> System:
    """Return a system whose ids reveal neither the place of a chip nor the size of an axis."""
    ids = (7 * np.arange(rows * columns) + 3) % (rows * columns)
    table = tuple(map(tuple, ids.reshape(rows, columns).tolist()))
    name = f"{rows} x {columns} system with wraps={wraps}"
    return System(name, SYSTEMS["galaxy"].chip, table, 1, wraps)


def _cabled(system: System, device: int, wraps: tuple[bool, bool]) -> set[int]:
    """Return the neighbours that a device would have if the machine had these `wraps`."""
    found = set()
    for one, other in grid_links(system.shape, wraps):
        pair = [system.ids[row][column] for row, column in (one, other)]
        found |= set(pair) if device in pair else set()
    return found - {device}


MACHINES = [
    SYSTEMS["t3000"],
    SYSTEMS["galaxy"],
    _rectangle(3, 5, (True, False)),
    _rectangle(3, 5, (False, True)),
    SYSTEMS["galaxy_torus"],
]

Exercise(
    "01.neighbours",
    asks="neighbours(system, device)",
    reference=lambda system, device: _cabled(system, device, system.wraps),
    cases=[(system, device) for system in MACHINES for device in system.coordinate_of],
    reads=lambda found, system, device: set(found),
    mistakes={
        "device {device} is not a neighbour of itself": lambda system, device: (
            _cabled(system, device, system.wraps) | {device}
        ),
        "system.wraps is {system.wraps}: where it is True, the last chip of the axis is linked to "
        "the first": lambda system, device: _cabled(system, device, (False, False)),
        "you took one axis for the other: wraps[0] is for a step to another row, wraps[1] for a "
        "step to another column": lambda system, device: _cabled(
            system, device, system.wraps[::-1]
        ),
        "you closed both rows and columns (index -1 means the last one); system.wraps is "
        "{system.wraps}": lambda system, device: _cabled(system, device, (True, True)),
        "these are coordinates; give device ids": lambda system, device: {
            system.coordinate_of[each] for each in _cabled(system, device, system.wraps)
        },
    },
    praise="every linked device is found, and no other, with wrap-around and without",
    hints=[
        "A machine is a grid; only a line that you open follows its rim. Where is the device? "
        "system.coordinate_of[device] is its (row, column). Which coordinates are one step away?",
        "What is one step beyond the edge? Nothing, unless the axis of that step wraps: then it is "
        "the chip at the other end. Axis 0 is a step to another row, axis 1 to another column.",
        "For each axis, and for the steps -1 and 1, start from spot = "
        "list(system.coordinate_of[device]) and add the step to spot[axis]. Is spot[axis] now "
        "outside range(system.shape[axis])? Then take spot[axis] % system.shape[axis] where "
        "system.wraps[axis] is True; otherwise skip the step.",
        "The id at a coordinate is system.ids[spot[0]][spot[1]]; put the ids into a set.",
    ],
)

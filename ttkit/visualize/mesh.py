"""Pictures of meshes: chips where they stand, and the cables that there really are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ttkit.visualize.drawing import Drawing
from ttkit.visualize.placement import Coordinate, grid_of

CHIP_W, CHIP_H, GAP, EDGE = 104, 58, 36, 26
WIRE_STEP = 5  # between the lines of one pair of chips


@dataclass(frozen=True)
class Wire:
    """Cables between two places of a picture."""

    a: Coordinate
    b: Coordinate
    links: int
    neighbours: bool  # next to each other in the picture; others are drawn as a curve


@dataclass(frozen=True)
class MeshPicture:
    """What a picture of a mesh shows."""

    title: str
    rows: int
    columns: int
    devices: tuple[int, ...]  # ids, row by row
    wires: tuple[Wire, ...]
    boards: tuple[tuple[Coordinate, ...], ...]  # boards of several chips whose chips stand side by side
    links_known: bool

    def place(self, index: int) -> Coordinate:
        """Row and column of the chip with this index."""
        return divmod(index, self.columns)


def mesh_picture(mesh: Any) -> MeshPicture:
    """The data of a mesh's picture; cables are known where the mesh knows its system, as on the simulator."""
    rows, columns = grid_of(tuple(mesh.shape))
    devices = tuple(mesh.get_device_ids())
    return _picture(f"{rows}x{columns} mesh", rows, columns, devices, getattr(mesh, "system", None))


def system_picture(system: Any) -> MeshPicture:
    """The data of a whole machine's picture."""
    rows, columns = system.shape
    return _picture(f"{system.name}: {rows}x{columns} chips", rows, columns, tuple(itertools.chain(*system.ids)), system)


def _picture(title: str, rows: int, columns: int, devices: tuple[int, ...], system: Any) -> MeshPicture:
    where = {device: divmod(i, columns) for i, device in enumerate(devices)}
    wires, boards = [], []
    if system is not None:
        title += f" on {system.name}" if title.endswith("mesh") else ""
        for a, b in itertools.combinations(devices, 2):
            if system.linked(a, b):
                (r1, c1), (r2, c2) = where[a], where[b]
                wires.append(Wire(where[a], where[b], system.links_per_pair, abs(r1 - r2) + abs(c1 - c2) == 1))
        for chips in system.boards:
            places = tuple(where[d] for d in chips if d in where)
            if len(places) == 2 and sum(abs(x - y) for x, y in zip(*places, strict=True)) == 1:
                boards.append(places)
    return MeshPicture(title, rows, columns, devices, tuple(wires), tuple(boards), system is not None)


class MeshDrawing:
    """The frame that mesh and tensor pictures share: host, boards, cables; the caller fills the chips."""

    def __init__(self, picture: MeshPicture, width: float = CHIP_W, height: float = CHIP_H, title: str = "", foot: str = ""):
        self.picture, self.w, self.h = picture, width, height
        self.arcs = (26 if picture.rows == 1 else 10) * any(not w.neighbours and w.a[0] == w.b[0] for w in picture.wires)
        wide = picture.columns * width + (picture.columns - 1) * GAP + 2 * EDGE
        total_w = max(wide, 6.2 * max(len(title or picture.title) + 8, len(foot)))
        total_h = picture.rows * height + (picture.rows - 1) * GAP + 2 * EDGE + 14 + self.arcs
        self.drawing = Drawing(total_w, total_h + (16 if foot else 0), title or picture.title)
        self.drawing.box(1, 1, total_w - 2, total_h - 2, edge="var(--frame)", round=12)
        self.drawing.words(12, 18, "host · " + (title or picture.title), size=12, colour="var(--soft)", anchor="start")
        if foot:
            self.drawing.words(4, total_h + 12, foot, size=11, colour="var(--soft)", anchor="start")
        for places in picture.boards:
            self._board(places)
        for wire in picture.wires:
            self._wire(wire)

    def corner(self, place: Coordinate) -> tuple[float, float]:
        """Left and top of the chip at a place."""
        return EDGE + place[1] * (self.w + GAP), EDGE + 12 + self.arcs + place[0] * (self.h + GAP)

    def _board(self, places: Sequence[Coordinate]) -> None:
        corners = [self.corner(p) for p in places]
        x, y = min(c[0] for c in corners) - 8, min(c[1] for c in corners) - 8
        w, h = max(c[0] for c in corners) + self.w + 8 - x, max(c[1] for c in corners) + self.h + 8 - y
        self.drawing.box(x, y, w, h, edge="var(--frame)", round=10, dash="3 3")

    def _wire(self, wire: Wire) -> None:
        (r1, c1), (r2, c2) = sorted((wire.a, wire.b))
        (x1, y1), (x2, y2) = self.corner((r1, c1)), self.corner((r2, c2))
        if wire.neighbours:
            for i in range(wire.links):
                off = (i - (wire.links - 1) / 2) * WIRE_STEP
                if r1 == r2:
                    self.drawing.line(x1 + self.w, y1 + self.h / 2 + off, x2, y2 + self.h / 2 + off)
                else:
                    self.drawing.line(x1 + self.w / 2 + off, y1 + self.h, x2 + self.w / 2 + off, y2)
        elif r1 == r2:
            lift = 14 + 34 * (c2 - c1) / self.picture.columns if self.picture.rows == 1 else 0.7 * GAP
            self.drawing.arc((x1 + self.w * 0.65, y1), (x2 + self.w * 0.35, y2), (0, -lift))
        elif c1 == c2:
            self.drawing.arc((x1 + self.w, y1 + self.h * 0.75), (x2 + self.w, y2 + self.h * 0.25), (0.7 * GAP, 0))
        else:
            self.drawing.arc((x1 + self.w / 2, y1 + self.h), (x2 + self.w / 2, y2), (0, 0))


def draw_mesh(picture: MeshPicture) -> Drawing:
    """A mesh as a picture: ids, coordinates, cables, boards."""
    links = sorted({wire.links for wire in picture.wires})
    foot = f"{links[0]} ethernet link{'s' if links[0] > 1 else ''} between cabled chips" if links else ""
    if any(not wire.neighbours for wire in picture.wires):
        foot += "; dashed: a cable to a chip that is not next to it here"
    if not picture.links_known:
        foot = "cables are not known here, so none are drawn"
    frame = MeshDrawing(picture, foot=foot)
    for index, device in enumerate(picture.devices):
        place = picture.place(index)
        x, y = frame.corner(place)
        frame.drawing.box(x, y, frame.w, frame.h, fill="var(--chip)")
        frame.drawing.words(x + frame.w / 2, y + 25, f"device {device}", size=14, bold=True)
        frame.drawing.words(x + frame.w / 2, y + 44, f"({place[0]}, {place[1]})", size=12, colour="var(--soft)")
    return frame.drawing

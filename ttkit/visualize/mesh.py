"""Pictures of meshes: chips where they stand, and the cables that there really are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttkit.visualize.drawing import ALARM, INK, Drawing, Point, width_of, wrap
from ttkit.visualize.placement import Coordinate, grid_of, ids_at

CHIP_W, CHIP_H, NARROW_W = 104, 58, 92
GAP, NARROW_GAP, EDGE = 36, 24, 26
WIRE_STEP, WRAP_STEP = 5, 3  # between the lines of one pair of chips
# heights: the title, the host's label, a board's margin, a line under the picture
TITLE, LABEL, BOARD, FOOT = 26, 22, 8, 15
UNKNOWN = -1  # a host rank that is not known
LONGEST = 8  # a line of more chips is folded


@dataclass(frozen=True)
class Wire:
    """Cables between two places of a mesh."""

    a: Coordinate
    b: Coordinate
    links: int
    neighbours: bool  # next to each other in the mesh


@dataclass(frozen=True)
class MeshPicture:
    """What a picture of a mesh shows."""

    title: str
    rows: int
    columns: int
    devices: tuple[int, ...]  # ids, row by row; none for a tensor on the host
    wires: tuple[Wire, ...]
    # boards of several chips whose chips stand side by side
    boards: tuple[tuple[Coordinate, ...], ...]
    links_known: bool
    shape: Coordinate = ()  # the mesh's own shape where it is not rows x columns
    fold: int = 0  # a long line is drawn in rows of so many chips, there and back
    hosts: tuple[int | None, ...] = ()  # of chips that other ranks drive, their host rank

    def place(self, index: int) -> Coordinate:
        """Row and column of the chip with this index."""
        return divmod(index, self.columns)

    def label(self, index: int) -> str:
        """The mesh coordinate of the chip with this index."""
        coordinate: list[int] = []
        for n in reversed(self.shape or (self.rows, self.columns)):
            index, at = divmod(index, n)
            coordinate.insert(0, at)
        return f"({', '.join(map(str, coordinate))})"

    def spot(self, place: Coordinate) -> Coordinate:
        """Where a place is drawn: its row and column, or its place in the folded line."""
        if not self.fold:
            return place
        row, column = divmod(place[0] * self.columns + place[1], self.fold)
        return row, self.fold - 1 - column if row % 2 else column

    def straight(self, wire: Wire) -> bool:
        """True where the two chips are drawn next to each other."""
        return (
            sum(abs(x - y) for x, y in zip(self.spot(wire.a), self.spot(wire.b), strict=True)) == 1
        )

    @property
    def drawn(self) -> Coordinate:
        """Rows and columns as drawn."""
        return (
            (-(-self.rows * self.columns // self.fold), self.fold)
            if self.fold
            else (self.rows, self.columns)
        )


def mesh_picture(mesh: Any) -> MeshPicture:
    """The data of a mesh's picture; cables are known where the mesh knows its system, as on the
    simulator.
    """
    shape = tuple(mesh.shape)
    title = f"{'x'.join(map(str, shape))} mesh"
    return replace(
        picture_of(title, shape, chips_of(mesh), getattr(mesh, "system", None)),
        hosts=hosts_of(mesh),
    )


def chips_of(mesh: Any) -> tuple[int, ...]:
    """The device ids of a mesh, row by row; chips of other ranks have numbers that only this
    process uses.
    """
    return tuple(
        getattr(mesh, "chips", None)
        or (-1 - i if id is None else id for i, id in enumerate(ids_at(mesh).values()))
    )


def hosts_of(mesh: Any) -> tuple[int | None, ...]:
    """The host rank of each chip that another rank drives, UNKNOWN on a card, which does not
    say; empty where there is none.
    """
    grid = getattr(mesh, "grid", None)
    if grid is None:
        ids = list(ids_at(mesh).values())
        return tuple(UNKNOWN if id is None else None for id in ids) if None in ids else ()
    if grid.local:
        return ()
    return tuple(None if c in grid.coords else grid.owner_of(c) for c in grid.covers)


def system_picture(system: Any) -> MeshPicture:
    """The data of a whole machine's picture."""
    rows, columns = system.shape
    return picture_of(
        f"{system.name}: {rows}x{columns} chips",
        (rows, columns),
        tuple(itertools.chain(*system.ids)),
        system,
    )


def picture_of(title: str, shape: Coordinate, devices: tuple[int, ...], system: Any) -> MeshPicture:
    """Devices in a grid, with the cables and boards of a system; `system` None: not known."""
    rows, columns = grid_of(shape)
    where = {device: divmod(i, columns) for i, device in enumerate(devices)}
    wires, boards = [], []
    if system is not None:
        title += f" on {system.name}" if title.endswith("mesh") else ""
        wires = _wires(where, system.linked, system.links_per_pair)
        for chips in system.boards:
            places = tuple(where[d] for d in chips if d in where)
            if (
                len(places) == len(chips) == 2
                and sum(abs(x - y) for x, y in zip(*places, strict=True)) == 1
            ):
                boards.append(places)
    own = shape if shape != (rows, columns) else ()
    return _folded(
        MeshPicture(
            title, rows, columns, devices, tuple(wires), tuple(boards), system is not None, own
        ),
        LONGEST,
    )


def topology_picture(title: str, topology: Any, longest: int) -> MeshPicture:
    """The chips and cables of a plan's topology; a line of more than `longest` chips is folded."""
    where = {chip: topology.coordinate(chip) for chip in topology.chips}
    rows, columns = topology.shape
    wires = _wires(where, topology.joined, topology.links)
    return _folded(
        MeshPicture(title, rows, columns, topology.chips, tuple(wires), (), True), longest
    )


def _wires(
    where: Mapping[int, Coordinate], joined: Callable[[int, int], bool], links: int
) -> list[Wire]:
    wires = []
    for a, b in itertools.combinations(where, 2):
        if joined(a, b):
            (r1, c1), (r2, c2) = where[a], where[b]
            wires.append(Wire(where[a], where[b], links, abs(r1 - r2) + abs(c1 - c2) == 1))
    return wires


def _folded(picture: MeshPicture, longest: int) -> MeshPicture:
    if min(picture.rows, picture.columns) > 1 or picture.rows * picture.columns <= longest:
        return picture
    folds = [replace(picture, fold=n) for n in range(longest, 3, -1)]

    # cables that go across and down at once, then those that are not straight
    def crooked(p: MeshPicture) -> tuple[int, int]:
        ends = [(p.spot(w.a), p.spot(w.b)) for w in p.wires]
        return sum(a[0] != b[0] and a[1] != b[1] for a, b in ends), sum(
            not p.straight(w) for w in p.wires
        )

    return min(folds, key=crooked)


class MeshDrawing:
    """The frame that mesh and tensor pictures share: title, host, boards, cables; the caller
    fills the chips.

    Args:
        width, height: of a chip; None takes what suits the number of columns.
        foot: sentences under the picture.
        host: what the outline is.
        gap: between chips, across and down; None takes what suits the number of columns.
        curves: more room for curves, above and beside the chips.
        wire: the colour of all cables; "" for one colour for lines and another for curves.
        alarm: what is wrong, said under the picture.
        tight: little room around the chips, and no name for the outline.
    """

    def __init__(
        self,
        picture: MeshPicture,
        width: float | None = None,
        height: float = CHIP_H,
        title: str = "",
        foot: Sequence[str] = (),
        host: str = "host",
        *,
        gap: tuple[float, float] | None = None,
        curves: tuple[float, float] = (0, 0),
        wire: str = "",
        alarm: str = "",
        tight: bool = False,
    ):
        rows, columns = picture.drawn
        self.picture, self.h = picture, height
        self.edge, self.top = (12, TITLE + 12) if tight else (EDGE, TITLE + LABEL)
        self.w = width or (CHIP_W if columns <= 6 else NARROW_W)
        self.gap_x: float
        self.gap_y: float
        self.gap_x, self.gap_y = gap or (GAP if columns <= 6 else NARROW_GAP, GAP)
        self.above, self.beside = self._room_for_curves(picture, curves)
        frame_w = columns * self.w + (columns - 1) * self.gap_x + 2 * self.edge + self.beside
        self.above += BOARD * bool(picture.boards)
        frame_h = (
            self.top - TITLE + self.above + rows * height + (rows - 1) * self.gap_y + self.edge
        )
        title = title or picture.title
        notes_w = max((width_of(sentence, 11) for sentence in (*foot, alarm)), default=0) + 8
        total_w = max(frame_w + 2, width_of(title, 13, bold=True) + 8, min(notes_w, 680))
        under = [line for sentence in foot for line in wrap(sentence, total_w - 6, 11, 4)]
        alarms = wrap(alarm, total_w - 20, 11, 6) if alarm else []
        self.drawing = Drawing(
            total_w, TITLE + frame_h + 8 + FOOT * len(under) + alarm_height(alarms), title
        )
        self.drawing.words(3, 16, title, size=13, anchor="start", bold=True)
        self.drawing.box(1, TITLE, frame_w, frame_h, edge="var(--frame)", round=12)
        self.drawing.words(
            12, TITLE + 15, host * (not tight), size=11, colour="var(--soft)", anchor="start"
        )
        draw_alarm(self.drawing, TITLE + frame_h + 8, alarms)
        self.drawing.lines(
            3,
            TITLE + frame_h + 17 + alarm_height(alarms),
            under,
            size=11,
            step=FOOT,
            colour="var(--soft)",
            anchor="start",
        )
        for places in picture.boards:
            self._board(places)
        for cable in picture.wires:
            self._wire(cable, wire)

    @staticmethod
    def _room_for_curves(picture: MeshPicture, more: tuple[float, float]) -> tuple[float, float]:
        """Room above a lone row and right of a lone column, and above the first and right of the
        last of several.
        """
        rows, columns = picture.drawn
        curved = [
            (picture.spot(w.a), picture.spot(w.b)) for w in picture.wires if not picture.straight(w)
        ]
        above = (more[0] + (26 if rows == 1 else 12)) * any(a[0] == b[0] for a, b in curved)
        return above, (more[1] + (26 if columns == 1 else 8)) * any(a[1] == b[1] for a, b in curved)

    def corner(self, place: Coordinate) -> tuple[float, float]:
        """Left and top of the chip at a place."""
        row, column = self.picture.spot(place)
        return 1 + self.edge + column * (self.w + self.gap_x), self.top + self.above + row * (
            self.h + self.gap_y
        )

    def fill(self, draw: Callable[[int, float, float], None]) -> Drawing:
        """Call `draw(index, left, top)` for each chip, and return the finished drawing."""
        for index in range(self.picture.rows * self.picture.columns):
            draw(index, *self.corner(self.picture.place(index)))
        return self.drawing

    def _board(self, places: Sequence[Coordinate]) -> None:
        corners = [self.corner(p) for p in places]
        x, y = min(c[0] for c in corners) - BOARD, min(c[1] for c in corners) - BOARD
        w, h = (
            max(c[0] for c in corners) + self.w + BOARD - x,
            max(c[1] for c in corners) + self.h + BOARD - y,
        )
        self.drawing.box(x, y, w, h, edge="var(--frame)", round=10, dash="3 3")

    def _wire(self, wire: Wire, colour: str) -> None:
        first, last = sorted((wire.a, wire.b), key=self.picture.spot)
        for i in range(wire.links):
            start, end, lift = self.course(
                first, last, (i - (wire.links - 1) / 2) * WIRE_STEP, i * WRAP_STEP
            )
            if lift is None:
                self.drawing.line(*start, *end, colour=colour or "var(--wire)")
            else:
                self.drawing.arc(start, end, lift, colour=colour or "var(--wrap)")

    def course(
        self, a: Coordinate, b: Coordinate, off: float, out: float
    ) -> tuple[Point, Point, Point | None]:
        """Where a cable from place `a` to place `b` is drawn: both ends and, if it is a curve,
        the lift of its arc.

        Args:
            off: how far a straight line is moved down or to the right.
            out: how far a curve is moved out.
        """
        if self.picture.spot(b) < self.picture.spot(a):
            start, end, lift = self.course(b, a, off, out)
            return end, start, lift
        (r1, c1), (r2, c2) = self.picture.spot(a), self.picture.spot(b)
        (x1, y1), (x2, y2) = self.corner(a), self.corner(b)
        rows, columns = self.picture.drawn
        if r1 == r2 and c2 - c1 == 1:
            return (x1 + self.w, y1 + self.h / 2 + off), (x2, y2 + self.h / 2 + off), None
        if c1 == c2 and r2 - r1 == 1:
            return (x1 + self.w / 2 + off, y1 + self.h), (x2 + self.w / 2 + off, y2), None
        if r1 == r2:  # above the row; curves over a lone row rise with their length
            rise = 12 + 34 * (c2 - c1) / columns if rows == 1 else 0.62 * self.gap_y
            return (x1 + self.w * 0.72 - out, y1), (x2 + self.w * 0.28 + out, y2), (0, -rise - out)
        if c1 == c2:  # right of the column
            rise = 12 + 34 * (r2 - r1) / rows if columns == 1 else 0.62 * self.gap_x
            return (
                (x1 + self.w, y1 + self.h * 0.8 - out),
                (x2 + self.w, y2 + self.h * 0.2 + out),
                (rise + out, 0),
            )
        return (x1 + self.w / 2 + off, y1 + self.h), (x2 + self.w / 2 + off, y2), (0, 0)


def alarm_height(lines: Sequence[str]) -> float:
    """How much room the box of an alarm takes."""
    return FOOT * len(lines) + 16 if lines else 0


def draw_alarm(drawing: Drawing, y: float, lines: Sequence[str]) -> None:
    """Words that say what is wrong, in a box below `y`."""
    if lines:
        drawing.box(3, y, drawing.width - 6, alarm_height(lines) - 6, fill=ALARM, edge="none")
        drawing.lines(12, y + 15, lines, size=11, step=FOOT, colour=INK, anchor="start")


def cable_notes(picture: MeshPicture) -> list[str]:
    """Sentences that say what the lines of a picture mean."""
    if not picture.links_known:
        return ["Which chips are cabled is not known here, so no cables are drawn."]
    notes = []
    links = sorted({wire.links for wire in picture.wires})
    if links:
        each = "Each line is an ethernet link" + (
            f", {links[0]} for each pair of cabled chips." if len(links) == 1 else "."
        )
        curves = (
            " Curves lead to chips that are not drawn next to each other."
            if not all(map(picture.straight, picture.wires))
            else ""
        )
        notes.append(each + curves)
    elif len(picture.devices) > 1:
        notes.append("No two of these chips are cabled.")
    if picture.fold:
        notes.append(f"The line is folded: {picture.fold} chips there, {picture.fold} back.")
    if picture.hosts:
        notes.append("Dashed chips are driven by other ranks.")
    if picture.boards:
        notes[-1:] = [notes[-1] + " Dotted: one card."] if notes else ["Dotted: one card."]
    return notes


def draw_mesh(picture: MeshPicture) -> Drawing:
    """A mesh as a picture: ids, coordinates, cables, boards."""
    frame = MeshDrawing(picture, foot=cable_notes(picture))

    def chip(index: int, x: float, y: float) -> None:
        away = picture.hosts[index] if picture.hosts else None
        name = (
            f"device {picture.devices[index]}"
            if away is None
            else "another rank's"
            if away == UNKNOWN
            else f"on host {away}"
        )
        frame.drawing.box(
            x,
            y,
            frame.w,
            frame.h,
            fill="var(--chip)" if away is None else "none",
            dash="" if away is None else "3 3",
        )
        frame.drawing.words(x + frame.w / 2, y + 25, name, size=14, bold=away is None)
        frame.drawing.words(
            x + frame.w / 2, y + 44, picture.label(index), size=12, colour="var(--soft)"
        )

    return frame.fill(chip)

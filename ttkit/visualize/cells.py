"""Cells: labelled boxes in a grid, and the links between them.

Meshes, tensors, placements, steps of plans, matmuls, descriptors and ranks are drawn with them.
Pictures with an axis of time are drawn with lanes, not with cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from ttkit.visualize.drawing import BOLD, INK, PALETTE, Drawing, Point, Rectangle, letters, width_of

Coordinate = tuple[int, ...]
Pair = tuple[int, int]  # A pair has the indices of two cells.
Size = tuple[float, float]

# The name of a cell is NAME px high, its lines are SIZE px high and STEP px apart.
NAME = 12
SIZE = 11
STEP = 13
HEAD, PAD = 20, 5  # A cell has HEAD px for its name, and PAD px at its sides.
SLIVER = 4  # The filled part of a box has at least this many px, so that it is visible.
# By default gaps are ACROSS px wide and DOWN px high. If a row of cells would then be wider than
# PAGE px, its gaps are narrower, down to NARROW px.
ACROSS, NARROW, DOWN = 34.0, 4.0, 28.0
PAGE = 590
LINK_STEP = 5  # Straight links of one pair of cells are LINK_STEP px apart.
OUTLINE = 8  # The outline of a card is at most this many px away from its chips.
SHEET = 15  # A sheet that lies over another one is shifted by at most this many px.
# EMPTY fills a box without contents. If only a part of a box is filled, PAPER fills the rest. In
# the small map of a tensor MAP does so, because the map lies on a light colour in both themes.
EMPTY = "var(--empty)"
PAPER, MAP = "var(--paper)", "#dde2ea"
WHOLE: Rectangle = (0, 0, 1, 1)
# A box or sheet that glides to a box, to be added to it, disappears after MERGED_S seconds.
MERGED_S = 0.96


class Box(NamedTuple):
    """A small box in a cell: a chunk of a chip, a chip of a rank, a shard in its whole tensor.

    Args:
        texts: texts to choose from: the first one that fits is written.
        about: a second line, which is written if it fits.
        fill: the colour, such as "#rrggbb"; with "" the box is empty.
        part: the filled part of the box: left, top, width and height, from 0 to 1. If the box has
            a text, the part is at the bottom.
        new: whether to draw a thick border around the box.
        hatched: whether to draw slanted lines over the box.
        sheets: (name, fill) of each of several sheets, which are drawn over one another.
        sources: the boxes from which this box glides to its place, each as (cell, box).
        added: whether the box is a sum. Then the box itself is always drawn. The boxes that glide
            from `sources`, or the sheets, glide onto it and disappear.
    """

    texts: Sequence[str] = ()
    about: str = ""
    fill: str = ""
    part: Rectangle = WHOLE
    new: bool = False
    hatched: bool = False
    sheets: Sequence[tuple[str, str]] = ()
    sources: Sequence[Pair] = ()
    added: bool = False


class Cell(NamedTuple):
    """A box of the grid.

    Args:
        name, lines: the texts on the cell.
        boxes: small boxes below the texts, row by row in `columns` columns, each of size `box`.
    """

    name: str
    lines: Sequence[str] = ()
    fill: str = "var(--chip)"
    dashed: bool = False
    boxes: Sequence[Box] = ()
    columns: int = 1
    box: Size = (20, 20)


class Grid(NamedTuple):
    """The places of cells, and the links between them. Cells have indices, counted row by row.

    Args:
        devices: the number of each cell: if cells are chips, their device ids.
        pairs: the pairs of cells that are linked.
        links: how many links each pair has; None if that is not known.
        cards: (first cell, last cell) of each group of cells that has one outline, such as the
            chips of a card or of a host.
        fold: if not 0, a long line is drawn in rows of this many cells, every second row in the
            opposite direction.
    """

    title: str
    shape: Coordinate
    devices: tuple[int, ...]
    pairs: tuple[Pair, ...] = ()
    links: int | None = None
    cards: tuple[Pair, ...] = ()
    fold: int = 0

    @property
    def labels(self) -> list[str]:
        """The mesh coordinate of each cell."""
        coordinates = itertools.product(*map(range, self.shape))
        return [f"({', '.join(map(str, coordinate))})" for coordinate in coordinates]

    @property
    def drawn(self) -> tuple[int, int]:
        """The number of rows and of columns in the drawing."""
        columns = self.fold or self.shape[-1]
        return -(-len(self.devices) // columns), columns

    def spot(self, index: int) -> tuple[int, int]:
        """Return the row and column where a cell is drawn."""
        columns = self.drawn[1]
        row, column = divmod(index, columns)
        return row, columns - 1 - column if self.fold and row % 2 else column

    def straight(self, pair: Pair) -> bool:
        """Return whether the two cells are drawn next to each other."""
        (r1, c1), (r2, c2) = map(self.spot, pair)
        return abs(r1 - r2) + abs(c1 - c2) == 1

    def folded(self, longest: int) -> Grid:
        """Return the grid. A line of more than `longest` cells is folded into rows of four, as the
        chips stand in machines, so that most of its links are straight.
        """
        cells = len(self.devices)
        return self._replace(fold=4) if self.shape[-1] in (1, cells) and cells > longest else self


class Cells(Drawing):
    """The drawing of a grid of cells. All cells have the size that the largest one needs.

    Args:
        cells: the cells in the order of the grid; None leaves a place empty.
        frame: the name of a frame around all cells; by default there is no frame.
        gap: the width and height of the gaps between cells; by default a row of many cells has
            narrow gaps.
        colour: the colour of all links; by default straight links have one colour and curves
            another.
    """

    def __init__(
        self,
        grid: Grid,
        cells: Sequence[Cell | None],
        *,
        frame: str = "",
        gap: Size | None = None,
        colour: str = "",
    ):
        self.grid, self.cells = grid, cells
        given = [cell for cell in cells if cell is not None]
        self.head = HEAD if any(cell.name for cell in given) else PAD
        self.w = max(map(self._width, given)) + 2 * PAD
        self.h = max(map(self._height, given)) + 7
        rows, columns = grid.drawn
        room = PAGE / columns - self.w
        self.gap_x, self.gap_y = gap or (max(min(ACROSS, room), NARROW), DOWN)
        curved = [pair for pair in grid.pairs if not grid.straight(pair)]
        ends = [(grid.spot(a), grid.spot(b)) for a, b in curved]
        above = self.gap_y if any(a[0] == b[0] for a, b in ends) else 0
        right = 4 + 1.4 * self.gap_x if any(a[1] == b[1] for a, b in ends) else 0
        edge = 22 if frame else 9
        self.left = 1 + edge
        self.top = 1 + edge + above + (OUTLINE if grid.cards else 0)
        width = columns * (self.w + self.gap_x) - self.gap_x + 2 * edge + right
        height = self.top + 13 + rows * (self.h + self.gap_y) - self.gap_y
        super().__init__(width + 2, height + 2, grid.title)
        if frame:
            self.box((1, 1, width, height), rx=12, stroke="var(--frame)")
            self.words(12, 16, frame, fill="var(--soft)", text_anchor="start")
        self._links(colour)
        for index, cell in enumerate(cells):
            if cell is not None:
                self._cell(cell, *self.corner(index))
        self._boxes()

    # ------------------------------------------------------------ places and sizes
    def _width(self, cell: Cell) -> float:
        lines = [width_of(line, SIZE) for line in cell.lines]
        boxes = cell.columns * cell.box[0] if cell.boxes else 0
        return max([*lines, width_of(cell.name, NAME, bold=True), boxes])

    def _height(self, cell: Cell) -> float:
        rows = math.ceil(len(cell.boxes) / cell.columns)
        return self.head + STEP * len(cell.lines) + rows * cell.box[1]

    def corner(self, index: int) -> Point:
        """Return the left and the top of a cell."""
        row, column = self.grid.spot(index)
        return self.left + column * (self.w + self.gap_x), self.top + row * (self.h + self.gap_y)

    def centre(self, index: int) -> Point:
        """Return the middle of a cell."""
        x, y = self.corner(index)
        return x + self.w / 2, y + self.h / 2

    def spot(self, index: int, which: int) -> Rectangle:
        """Return the place and size of a box of a cell in the drawing."""
        cell = self.cells[index]
        x, y = self.corner(index)
        assert cell is not None
        w, h = cell.box
        row, column = divmod(which, cell.columns)
        pad = min(2.4, w / 7, h / 7)  # The cell stays visible in a gap around each box.
        left = x + (self.w - cell.columns * w) / 2 + column * w + pad
        rows = math.ceil(len(cell.boxes) / cell.columns)
        # Boxes stand at the bottom of their cell, so that the boxes of neighbouring cells line up.
        top = y + self.h - 7 - (rows - row) * h + pad
        return left, top, w - 2 * pad, h - 2 * pad

    def course(self, a: int, b: int, off: float = 0, out: float = 0) -> tuple[Point, Point, Point]:
        """Return the line of a link between two cells: its start, its end, and the lift of its arc,
        as `Drawing.line` takes them.

        Args:
            off: how far a straight line is moved down or to the right, in px.
            out: how far a curve is moved outwards, in px.
        """
        if self.grid.spot(b) < self.grid.spot(a):
            start, end, lift = self.course(b, a, off, out)
            return end, start, lift
        r1, c1 = self.grid.spot(a)
        r2, c2 = self.grid.spot(b)
        x1, y1 = self.corner(a)
        x2, y2 = self.corner(b)
        rows, columns = self.grid.drawn
        beside = r1 == r2
        apart = r2 - r1 + c2 - c1
        # If there is only one line of cells, longer arcs rise higher, so that arcs do not overlap.
        rise = out + 0.62 * (self.gap_y if beside else self.gap_x)
        if 1 in (rows, columns):
            rise = out + 12 + 34 * apart / len(self.cells)
        if beside and apart > 1:  # This arc runs above its row.
            return (x1 + self.w * 0.72 - out, y1), (x2 + self.w * 0.28 + out, y2), (0, -rise)
        if c1 == c2 and apart > 1:  # This arc runs to the right of its column.
            x = x1 + self.w
            return (x, y1 + self.h * 0.8 - out), (x, y2 + self.h * 0.2 + out), (rise, 0)
        if r1 == r2:
            y = y1 + self.h / 2 + off
            return (x1 + self.w, y), (x2, y), (0, 0)
        return (x1 + self.w / 2 + off, y1 + self.h), (x2 + self.w / 2 + off, y2), (0, 0)

    # ------------------------------------------------------------ drawing
    def _links(self, colour: str) -> None:
        """Draw the outlines of cards, and the links of each pair as lines or as one thick curve."""
        beyond = min(OUTLINE, self.gap_x / 2 - 1)
        for card in self.grid.cards:
            (x1, y1), (x2, y2) = sorted(map(self.corner, card))
            area = x1 - beyond, y1 - OUTLINE, x2 - x1 + self.w + 2 * beyond
            height = y2 - y1 + self.h + 2 * OUTLINE
            self.box((*area, height), rx=10, stroke="var(--frame)", stroke_dasharray="3 3")
        links = self.grid.links or 0
        for pair in self.grid.pairs:
            straight = self.grid.straight(pair)
            own = "var(--link)" if straight else "var(--curve)"
            drawn, width = (links, 1.3) if straight or links < 2 else (1, 2.5)
            # In a folded line of chips, only the links of neighbours in the line and the link of
            # its two ends are strong. All others are pale.
            line = self.grid.fold and self.grid.shape[1:]
            apart = abs(pair[0] - pair[1])
            pale = line and apart not in (1, len(self.cells) - 1)
            for i in range(drawn):
                self.line(
                    *self.course(*pair, (i - (drawn - 1) / 2) * LINK_STEP),
                    stroke=colour or own,
                    stroke_width=width,
                    stroke_opacity=0.25 if pale else "",
                )

    def _cell(self, cell: Cell, x: float, y: float) -> None:
        """Draw a cell with its name and lines."""
        dash, bold = ("4 3", "") if cell.dashed else ("", BOLD)
        self.box((x, y, self.w, self.h), fill=cell.fill, stroke_dasharray=dash)
        x += self.w / 2
        self.words(x, y + 15, cell.name or [], NAME, **letters(cell.fill), font_weight=bold)
        self.words(x, y + self.head + 9, cell.lines, SIZE, **letters(cell.fill, "var(--soft)"))

    def _boxes(self) -> None:
        """Draw the boxes of all cells. Boxes that glide are drawn last, each as a moving part."""
        found = [
            (self.spot(i, n), box)
            for i, cell in enumerate(self.cells)
            for n, box in enumerate(cell.boxes if cell else ())
        ]
        empty = [area for area, box in found if not box.fill or (box.sources and not box.added)]
        self.blocks(empty, fill=EMPTY, stroke="var(--frame)", stroke_width=0.8)
        self._filled([(area, box) for area, box in found if not box.sources or box.added])
        for area, box in found:
            for source in box.sources:
                dx, dy = (a - b for a, b in zip(self.spot(*source)[:2], area[:2]))
                with self.moving(stay=MERGED_S if box.added else 0, way=(dx, dy)):
                    self._filled([(area, box)])

    def _filled(self, boxes: Sequence[tuple[Rectangle, Box]]) -> None:
        """Draw boxes, with one shape for all boxes of a colour, and write their texts."""
        fills: dict[str, list[Rectangle]] = {PAPER: [], MAP: []}
        full = [(area, box) for area, box in boxes if box.fill and (box.added or not box.sheets)]
        for (x, y, w, h), box in full:
            left, top, wide, high = box.part
            if box.part != WHOLE:
                fills[PAPER if box.fill in PALETTE else MAP].append((x, y, w, h))
            wide = max(w * wide, SLIVER)
            high = max(h * high, SLIVER)
            at = x + min(w * left, w - wide), y + min(h * top, h - high)
            fills.setdefault(box.fill, []).append((*at, wide, high))
        for fill, areas in fills.items():
            edge = "var(--edge)" if fill == PAPER else INK
            self.blocks(areas, fill=fill, stroke=edge, stroke_width=0.6)
        rims = [(x - 0.5, y - 0.5, w + 1, h + 1) for (x, y, w, h), box in boxes if box.new]
        self.blocks(rims, stroke="var(--ink)", stroke_width=1.5)
        self.hatch([area for area, box in boxes if box.hatched], 7, "var(--edge)")
        for area, box in boxes:
            if box.added or not box.sheets:
                self._write(area, box)
            if box.sheets:
                self._sheets(area, box)

    def _write(self, area: Rectangle, box: Box) -> None:
        """Write the first text of a box that fits, and `about` below it if there is room."""
        x, y, w, h = area
        text = next((t for t in box.texts if width_of(t, SIZE) <= w and h >= SIZE), "")
        two = text and box.about and h >= 2 * SIZE + 4 and width_of(box.about, SIZE) <= w
        fill = box.fill if box.part == WHOLE else PAPER
        look = letters(fill, "var(--ink)" if fill else "var(--soft)") | {"size": SIZE}
        if two:
            self.words(x + w / 2, y + h / 2 - 2, text, font_weight=BOLD, **look)
            # A text that nearly fills its box is squeezed a little.
            look |= {"textLength": w - 6} if width_of(box.about, SIZE) > w - 6 else {}
            self.words(x + w / 2, y + h / 2 - 2 + STEP, box.about, **look)
        elif text:
            # The text of a box that is filled in part stands above that part.
            self.words(x + w / 2, y + h * (box.part[1] or 1) / 2 + 4, text, **look)

    def _sheets(self, area: Rectangle, box: Box) -> None:
        """Draw the sheets of a box over one another, the first on top. In a box that is a sum, they
        glide onto one place and disappear.
        """
        x, y, w, h = area
        behind = len(box.sheets) - 1
        step = min(SHEET, 0.6 * min(w, h) / max(behind, 1))
        w, h = w - step * behind, h - step * behind
        for i, (name, fill) in reversed(list(enumerate(box.sheets))):
            off = step * behind / 2 if box.added else step * i
            way = step * i - off
            with self.moving(stay=MERGED_S, way=(way, way)) if box.added else nullcontext():
                self.box((x + off, y + off, w, h), rx=0, fill=fill, stroke=INK)
                if step >= 12:
                    low = y + off + h - 3
                    self.words(x + off + w - 3, low, name, SIZE, **letters(fill), text_anchor="end")
        if not box.added:
            self._write((x, y, w, h - SHEET), box)

"""Pictures of meshes: chips where they stand, and the links that there really are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttkit import backend
from ttkit.visualize.drawing import INK, Drawing, Figure, Point, tone

Coordinate = tuple[int, ...]
Pair = tuple[int, int]  # of indices of chips

CHIP_W, CHIP_H = 82, 58
ROW_W, ROW_GAP = 68, 13  # a chip in a row of more than 4: eight fit a page of 800 px
SHARE_W, SHARE_H = 24, 18  # of a chip in a small picture
GAPS = (20.0, 36.0)  # between chips, across and down
LINK_STEP, CURVE_STEP = 5, 3  # between the links of one pair of chips
CARD = 8  # between a chip and the outline of its card, at most
UNKNOWN = -1  # a host rank that is not known
LONGEST = 8  # a line of more chips is folded


# ---------------------------------------------------------------- what a mesh is made of
def ids_at(mesh: Any) -> dict[Coordinate, int | None]:
    """Return {coordinate: device id} in row-major order, None for a chip of another rank."""
    view, ids = mesh.get_view(), iter(mesh.get_device_ids())
    coordinate = backend.load().MeshCoordinate
    places = itertools.product(*map(range, mesh.shape))
    return {
        place: next(ids) if view.is_local(coordinate(list(place))) else None for place in places
    }


def chips_of(mesh: Any) -> tuple[int, ...]:
    """Return the device ids row by row; chips of other ranks have numbers of this process."""
    known = getattr(mesh, "chips", None)
    return tuple(
        known or (-1 - i if id is None else id for i, id in enumerate(ids_at(mesh).values()))
    )


def hosts_of(mesh: Any) -> tuple[int | None, ...]:
    """Return the host rank of each chip of another rank, UNKNOWN on a card; () if all are ours."""
    ids = ids_at(mesh)
    if None not in ids.values():
        return ()
    owner_of = mesh.grid.owner_of if hasattr(mesh, "grid") else lambda place: UNKNOWN
    return tuple(owner_of(place) if id is None else None for place, id in ids.items())


@dataclass(frozen=True)
class MeshPicture:
    """What a picture of a mesh shows; a chip is known by its index, counted row by row.

    Args:
        devices: the id of each chip.
        pairs: linked chips.
        links: of each pair; None where the links are not known.
        cards: the first and the last of the chips with one outline: those of a card, or of a host.
        fold: a long line is drawn in rows of so many chips, there and back.
        hosts: for each chip of another rank its host rank, else None; () if all chips are ours.
    """

    title: str
    shape: Coordinate
    devices: tuple[int, ...]
    pairs: tuple[Pair, ...] = ()
    links: int | None = None
    cards: tuple[Pair, ...] = ()
    fold: int = 0
    hosts: tuple[int | None, ...] = ()

    @property
    def labels(self) -> list[str]:
        """The mesh coordinate of each chip."""
        coordinates = itertools.product(*map(range, self.shape))
        return [f"({', '.join(map(str, coordinate))})" for coordinate in coordinates]

    @property
    def drawn(self) -> tuple[int, int]:
        """Rows and columns as drawn."""
        columns = self.fold or self.shape[-1]
        return -(-len(self.devices) // columns), columns

    def spot(self, index: int) -> tuple[int, int]:
        """Return the row and column where a chip is drawn."""
        columns = self.drawn[1]
        row, column = divmod(index, columns)
        return row, columns - 1 - column if self.fold and row % 2 else column

    def straight(self, pair: Pair) -> bool:
        """Return whether the two chips are drawn next to each other."""
        (r1, c1), (r2, c2) = map(self.spot, pair)
        return abs(r1 - r2) + abs(c1 - c2) == 1

    def folded(self, longest: int) -> MeshPicture:
        """Return the picture with a line of more than `longest` chips folded.

        Of all lengths of a row, take the one with the fewest slanted links, then the fewest curves.
        """
        chips = len(self.devices)
        if self.shape[-1] not in (1, chips) or chips <= longest:
            return self
        folds = [replace(self, fold=n) for n in range(longest, 3, -1)]

        def crooked(picture: MeshPicture) -> tuple[int, int]:
            ends = [tuple(map(picture.spot, pair)) for pair in self.pairs]
            slanted = sum(a[0] != b[0] and a[1] != b[1] for a, b in ends)
            return slanted, -sum(map(picture.straight, self.pairs))

        return min(folds, key=crooked)


def picture_of(
    title: str, shape: Coordinate, devices: Sequence[int], system: Any = None
) -> MeshPicture:
    """Return the picture of devices, with the links and cards of their system if it is known."""
    picture = MeshPicture(title, shape, tuple(devices))
    if system is not None:
        at = {device: i for i, device in enumerate(devices)}
        ends = ((at[a], at[b]) for a, b in system.links() if a in at and b in at)
        linked = tuple(sorted((min(pair), max(pair)) for pair in ends))
        cards = (tuple(sorted(at.get(chip, -1) for chip in card)) for card in system.cards)
        two = tuple(card for card in cards if len(card) == 2 and card[0] >= 0)
        picture = replace(picture, pairs=linked, links=system.links_per_pair)
        picture = replace(picture, cards=tuple(card for card in two if picture.straight(card)))
    return picture.folded(LONGEST)


def mesh_picture(mesh: Any) -> MeshPicture:
    """Return what a mesh's picture shows; only the simulator's meshes know their links."""
    shape, system = tuple(mesh.shape), getattr(mesh, "system", None)
    title = f"{'x'.join(map(str, shape))} mesh" + (f" on {system.name}" if system else "")
    return replace(picture_of(title, shape, chips_of(mesh), system), hosts=hosts_of(mesh))


def system_picture(system: Any) -> MeshPicture:
    """Return what a whole machine's picture shows."""
    rows, columns = system.shape
    title = f"{system.name}: {rows}x{columns} chips"
    return picture_of(title, system.shape, tuple(itertools.chain(*system.ids)), system)


# ---------------------------------------------------------------- drawn
class MeshDrawing(Drawing):
    """The frame that pictures of meshes, tensors and plans share: outline, cards and links.

    The caller fills the chips.

    Args:
        width, height: of a chip; 0 takes the width that suits the row.
        host: the name of the outline; "" draws a small picture with narrow edges.
        gap: between chips, across and down.
        room: more room for curves, above and beside the chips.
        colour: of all links; by default one for straight ones and another for curves.
    """

    def __init__(
        self,
        picture: MeshPicture,
        width: float = 0,
        height: float = CHIP_H,
        host: str = "host",
        *,
        gap: tuple[float, float] = GAPS,
        room: tuple[float, float] = (0, 0),
        colour: str = "",
    ):
        rows, columns = picture.drawn
        narrow = not width and columns > 4
        self.picture, self.h, self.name_size = picture, height, 12 if narrow else 14
        self.w = width or (ROW_W if narrow else CHIP_W)
        self.gap_x, self.gap_y = (ROW_GAP if narrow else gap[0]), gap[1]
        curved = [pair for pair in picture.pairs if not picture.straight(pair)]
        ends = [(picture.spot(a), picture.spot(b)) for a, b in curved]
        above = (20 + room[0]) * any(a[0] == b[0] for a, b in ends)
        beside = (20 + room[1]) * any(a[1] == b[1] for a, b in ends)
        edge, label = (22, 22) if host else (12, 12)
        self.left, self.top = 1 + edge, 1 + label + above + CARD * bool(picture.cards)
        frame_w = columns * (self.w + self.gap_x) - self.gap_x + 2 * edge + beside
        frame_h = self.top - 1 + rows * (height + self.gap_y) - self.gap_y + edge
        super().__init__(frame_w + 2, frame_h + 2, picture.title)
        self.box(1, 1, frame_w, frame_h, edge="var(--frame)", round=12)
        if host:
            self.words(12, 16, host, size=12, colour="var(--soft)", anchor="start")
        beyond = min(CARD, self.gap_x / 2 - 1)
        for card in picture.cards:
            (x1, y1), (x2, y2) = sorted(map(self.corner, card))
            w, h = x2 - x1 + self.w + 2 * beyond, y2 - y1 + self.h + 2 * CARD
            self.box(x1 - beyond, y1 - CARD, w, h, edge="var(--frame)", round=10, dash="3 3")
        for pair in picture.pairs:
            straight, links = picture.straight(pair), picture.links or 0
            own, width = ("var(--link)", 1.6) if straight else ("var(--curve)", 1.3)
            for i in range(links):
                course = self.course(*pair, (i - (links - 1) / 2) * LINK_STEP, i * CURVE_STEP)
                self.line(*course, colour=colour or own, width=width)

    def corner(self, index: int) -> Point:
        """Return left and top of a chip."""
        row, column = self.picture.spot(index)
        return self.left + column * (self.w + self.gap_x), self.top + row * (self.h + self.gap_y)

    @property
    def corners(self) -> Iterator[Point]:
        """Left and top of each chip, in the order of the devices."""
        return map(self.corner, range(len(self.picture.devices)))

    def chip(
        self, corner: Point, lines: Sequence[str], fill: str = "var(--chip)", dash: str = ""
    ) -> None:
        """Draw a chip with its name and lines about it below the name."""
        (x, y), middle = corner, corner[0] + self.w / 2
        self.box(x, y, self.w, self.h, fill=fill, dash=dash)
        name, about = (INK, INK) if fill.startswith("#") else ("var(--ink)", "var(--soft)")
        self.words(middle, y + 25, lines[0], size=self.name_size, colour=name, bold=not dash)
        self.words(middle, y + 44, lines[1:], colour=about, step=17)

    def tip(self, corner: Point, text: str) -> None:
        """Say something about a chip where the mouse is on it."""
        (x, y), look = corner, {"fill": "transparent", "stroke": "none"}
        self.add("rect", hover=text, x=x, y=y, width=self.w, height=self.h, **look)

    def course(self, a: int, b: int, off: float = 0, out: float = 0) -> tuple[Point, ...]:
        """Return how a link of two chips is drawn: its start, its end, and the lift of its arc.

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
        if r1 == r2 and c2 - c1 > 1:  # above the row; over a lone row it rises with its length
            rise = out + (12 + 34 * (c2 - c1) / columns if rows == 1 else 0.62 * self.gap_y)
            return (x1 + self.w * 0.72 - out, y1), (x2 + self.w * 0.28 + out, y2), (0, -rise)
        if c1 == c2 and r2 - r1 > 1:  # right of the column
            rise = out + (12 + 34 * (r2 - r1) / rows if columns == 1 else 0.62 * self.gap_x)
            x = x1 + self.w
            return (x, y1 + self.h * 0.8 - out), (x, y2 + self.h * 0.2 + out), (rise, 0)
        if r1 == r2:
            y = y1 + self.h / 2 + off
            return (x1 + self.w, y), (x2, y), (0, 0)
        return (x1 + self.w / 2 + off, y1 + self.h), (x2 + self.w / 2 + off, y2), (0, 0)


def link_notes(picture: MeshPicture) -> list[str]:
    """Return the legend of the lines of a picture."""
    if picture.links is None:
        return ["Which chips are linked is not known here, so no links are drawn."]
    notes = []
    if picture.pairs:
        notes.append(
            f"Each line is an ethernet link, {picture.links} for each pair of linked chips."
        )
        if not all(map(picture.straight, picture.pairs)):
            notes.append("Curves lead to chips that are not drawn next to each other.")
    elif len(picture.devices) > 1:
        notes.append("No two of these chips are linked.")
    if picture.fold:
        notes.append(f"The line is folded: {picture.fold} chips there, {picture.fold} back.")
    if picture.hosts:
        notes.append("Dashed chips are driven by other ranks.")
    if picture.cards:
        notes.append("Dotted: one card.")
    return [" ".join(notes)]


def draw_mesh(mesh: Any) -> Figure:
    """Draw an open mesh."""
    return draw_chips(mesh_picture(mesh))


def draw_chips(picture: MeshPicture) -> Figure:
    """Draw a mesh: ids, coordinates, links and cards."""
    drawing = MeshDrawing(picture)
    hosts = picture.hosts or (None,) * len(picture.devices)
    chips = zip(picture.devices, hosts, picture.labels, drawing.corners)
    for index, (device, host, label, corner) in enumerate(chips):
        if host is None:
            drawing.chip(corner, [f"device {device}", label])
        else:
            name = "other rank" if host == UNKNOWN else f"on host {host}"
            drawing.chip(corner, [name, label], "none", "3 3")
        linked = [picture.labels[a + b - index] for a, b in picture.pairs if index in (a, b)]
        if linked:
            drawing.tip(corner, f"{label} is linked to {', '.join(linked)}")
    return Figure(picture.title, [drawing], link_notes(picture))


def draw_share(system: Any, chips: Sequence[int], whose: str, group: int) -> Drawing:
    """Draw a machine small: chips that somebody owns are filled and have their ids.

    Args:
        whose: of whom, in words.
        group: the number of the colour.
    """
    rows, columns = system.shape
    title = f"{whose}: chips {', '.join(map(str, chips))} of {system.num_devices}"
    drawing = Drawing(columns * SHARE_W + 2, rows * SHARE_H + 6, title)
    for chip, (r, c) in system.coordinate_of.items():
        x, y, own = c * SHARE_W + 1, r * SHARE_H + 3, chip in chips
        fill = tone(group) if own else "none"
        drawing.box(x, y, SHARE_W - 3, SHARE_H - 3, fill=fill, round=3, dash="" if own else "2 2")
        if own:
            drawing.words(x + (SHARE_W - 3) / 2, y + 12, str(chip), size=11, colour=INK)
    return drawing

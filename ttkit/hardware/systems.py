"""A system has the grid of chips of a machine, its cards, and the cabled pairs.

`machines.json` has a row for each system. The mesh shapes and the links per pair are those of the
mesh graph descriptors in the ttnn 0.81.1 wheel. The order of ids of a T3000 was read from the
library itself."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ttkit.errors import fail
from ttkit.hardware.chips import CHIPS, MACHINES, Chip

Coordinate = tuple[int, ...]
RowColumn = tuple[int, int]
Ids = tuple[tuple[int, ...], ...]


def grid_links(shape: RowColumn, rings: Sequence[bool]) -> Iterator[tuple[RowColumn, RowColumn]]:
    """Yield pairs of neighbours in a grid; a ring of more than two chips also joins its ends.

    Example:
        >>> list(grid_links((1, 3), (False, True)))
        [((0, 0), (0, 1)), ((0, 1), (0, 2)), ((0, 2), (0, 0))]
    """
    rows, columns = shape
    for r, c in itertools.product(range(rows), range(columns)):
        if r + 1 < rows or (rings[0] and rows > 2):
            yield (r, c), ((r + 1) % rows, c)
        if c + 1 < columns or (rings[1] and columns > 2):
            yield (r, c), (r, (c + 1) % columns)


@dataclass(frozen=True)
class System:
    """A machine: a grid of chips with ids, their cards, and the links between neighbours.

    Args:
        name: the name that `ttkit.use_system` takes.
        chip: the kind of all chips of the system.
        ids: device ids in the order of the grid, [rows][columns].
        links_per_pair: the number of ethernet links between two neighbours.
        wraps: for each axis, whether the last chip is cabled to the first (a ring, not a line).
        cards: for each card, in PCIe order, the ids of its chips; the chip with the PCIe connector
            comes first.

    Example:
        >>> SYSTEMS["t3000"].shape, SYSTEMS["t3000"].ids[1]
        ((2, 4), (5, 1, 3, 7))
    """

    name: str
    chip: Chip
    ids: Ids
    links_per_pair: int = 0
    wraps: tuple[bool, bool] = (False, False)
    cards: Ids = ()

    def __post_init__(self) -> None:
        if not self.cards:
            object.__setattr__(self, "cards", tuple((i,) for i in sorted(self.coordinate_of)))

    @property
    def shape(self) -> RowColumn:
        """The number of rows and of columns of the grid."""
        return len(self.ids), len(self.ids[0])

    @property
    def num_devices(self) -> int:
        """The number of chips."""
        return self.shape[0] * self.shape[1]

    @property
    def coordinate_of(self) -> dict[int, RowColumn]:
        """The place of each device id: {id: (row, column)}."""
        return {device: (r, c) for r, row in enumerate(self.ids) for c, device in enumerate(row)}

    def links(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of device ids that are cabled, each pair once."""
        return (
            (self.ids[r][c], self.ids[r2][c2])
            for (r, c), (r2, c2) in grid_links(self.shape, self.wraps)
        )

    def linked(self, a: int, b: int) -> bool:
        """Return whether a cable joins devices `a` and `b`."""
        return b in self.neighbours[a]

    @functools.cached_property
    def neighbours(self) -> dict[int, set[int]]:
        """The ids of the chips to which each chip is cabled: {id: ids}."""
        found: dict[int, set[int]] = {device: set() for device in self.coordinate_of}
        for a, b in self.links():
            found[a].add(b)
            found[b].add(a)
        return found


def grid_ids(rows: int, columns: int) -> Ids:
    """Return the ids of a grid of chips that are numbered row by row."""
    return tuple(tuple(range(r * columns, (r + 1) * columns)) for r in range(rows))


SYSTEMS = {
    name: System(
        name,
        CHIPS[row["chip"]],
        tuple(map(tuple, row["ids"])),
        row["links_per_pair"],
        tuple(row["wraps"]),
        tuple(map(tuple, row["cards"])),
    )
    for name, row in MACHINES["systems"].items()
}
ALIASES = MACHINES["aliases"]


def system_named(name: str | System) -> System:
    """Return the system of that name or alias; a `System` is returned unchanged.

    Raises:
        TTKitError: the name is not known.
    """
    if isinstance(name, System):
        return name
    key = name.lower().replace("-", "_")
    key = ALIASES.get(key, key)
    if key not in SYSTEMS:
        fail(
            f"use_system({name!r})",
            f"no system has that name; known: {', '.join(SYSTEMS)}",
            "one of those, or pass a System",
        )
    return SYSTEMS[key]


def outside_fabric(chip: int) -> str:
    """Return ttnn's message for a chip that the fabric does not reach."""
    rule = (
        f"Physical chip id {chip} not found in control plane chip mapping. "
        "You are calling for a chip outside of the fabric cluster. "
    )
    return rule + "Check that your mesh graph descriptor specifies the correct topology"


def visible_part(system: System, visible: str) -> System:
    """Return the part of `system` that `TT_VISIBLE_DEVICES=visible` leaves.

    Each number in `visible` is a PCIe device: a card with all of its chips. Ids are renumbered from
    0: first the chips with a PCIe connector, then the others, in the order in which `visible` names
    the cards. If it names all cards, the system is returned unchanged.

    Raises:
        TTKitError: `visible` is not a list of numbers, names a card that does not exist, or names
            cards that are not cabled into a rectangle.

    Example:
        >>> visible_part(SYSTEMS["t3000"], "0,1").ids
        ((0, 2), (1, 3))
    """
    asked = f"TT_VISIBLE_DEVICES={visible!r} on a {system.name}"
    last = len(system.cards) - 1
    parts = [part.strip() for part in visible.split(",")]
    if not all(part.isdigit() and int(part) <= last for part in parts):
        fail(
            asked,
            f"it must be a comma-separated list of PCIe devices, numbered 0 to {last}",
            "only those numbers, or a larger system: TTKIT_SYSTEM=galaxy",
        )
    cards = [system.cards[n] for n in dict.fromkeys(map(int, parts))]
    wanted = [chip for chips in itertools.zip_longest(*cards) for chip in chips if chip is not None]
    if len(wanted) == system.num_devices:
        return system
    where = zip(*(system.coordinate_of[chip] for chip in wanted))
    (top, bottom), (left, right) = ((min(places), max(places) + 1) for places in where)
    part = [row[left:right] for row in system.ids[top:bottom]]
    if {*wanted} != {*itertools.chain(*part)}:
        fail(
            asked,
            f"{outside_fabric(min(wanted))}: these cards are not cabled together into a rectangle",
            "cards that are neighbours",
        )
    # The real library puts the chips with the PCIe connector first if the cards have two chips each
    # and form a single column. Here they form one if the part has two columns.
    if part[0][0] not in wanted[: len(cards)] and right - left == 2:
        part = [row[::-1] for row in part]
    height, width = system.shape
    rows, columns = system.wraps
    wraps = (rows and bottom - top == height, columns and right - left == width)
    ids, renumbered = (
        tuple(tuple(map(wanted.index, chips)) for chips in groups) for groups in (part, cards)
    )
    return replace(system, ids=ids, wraps=wraps, cards=renumbered)

"""The chips of a mesh, the cables between them, and routes from one chip to another."""

import functools
from dataclasses import dataclass

from ttkit.errors import fail
from ttkit.hardware import SYSTEMS, Link, System
from ttkit.hardware.device_order import device_ids
from ttkit.hardware.systems import Ids, RowColumn, system_named

LINE, RING = "LINE", "RING"
Line = tuple[int, ...]  # These are device ids in the order of the line.
Pair = tuple[int, int]  # These are the device ids of two chips.


@dataclass(frozen=True)
class Topology:
    """The chips of a mesh and the cables between them; `topology` makes one.

    Args:
        name: the name of the system, for pictures and messages.
        chips: device ids in the order of the mesh, row by row.
        shape: rows and columns.
        cables: for each chip the chips that it is cabled to.
        links: the number of ethernet links between two cabled chips; each link works both ways.
        link: the rates and latencies of one link, with sources.
        is_torus: whether cables close every row and column of the system into a ring.

    Example:
        >>> t3000 = topology("t3000")
        >>> t3000.neighbours(0), t3000.kind(1), t3000.route(4, 3)
        ((1, 2, 4), 'LINE', (4, 0, 2, 3))
    """

    name: str
    chips: Line
    shape: RowColumn
    cables: Ids
    links: int
    link: Link
    is_torus: bool

    def __repr__(self) -> str:
        return f"Topology({self.name} {self.shape[0]}x{self.shape[1]}, {self.links} links a pair)"

    @functools.cached_property
    def place(self) -> dict[int, int]:
        """The place of each chip in the mesh, row by row: {id: place}."""
        return {chip: i for i, chip in enumerate(self.chips)}

    @functools.cached_property
    def pairs(self) -> frozenset[Pair]:
        """Every (chip, chip) that a cable joins, in both orders."""
        return frozenset((a, b) for a in self.chips for b in self.neighbours(a))

    def coordinate(self, chip: int) -> RowColumn:
        """Return row and column of a chip."""
        return divmod(self.place[chip], self.shape[1])

    def neighbours(self, chip: int) -> tuple[int, ...]:
        """Return the ids of the chips that a cable joins to this one."""
        return self.cables[self.place[chip]]

    def joined(self, a: int, b: int) -> bool:
        """Return True where a cable joins two chips."""
        return (a, b) in self.pairs

    def groups(self, axis: int | None = None) -> list[Line]:
        """Return the lines of chips along a mesh axis: the columns for axis 0, the rows for axis 1,
        one line of all chips for None.
        """
        if axis not in (None, 0, 1):
            fail(
                f"axis {axis!r} of {self!r}",
                "a mesh has the axes 0 (down a column) and 1 (along a row)",
                "axis=0 or axis=1",
            )
        columns = self.shape[1]
        rows = [self.chips[i : i + columns] for i in range(0, len(self.chips), columns)]
        return [self.chips] if axis is None else rows if axis else list(zip(*rows))

    def kind(self, axis: int) -> str:
        """Return RING where a cable joins the last chip of each line along `axis` to its first,
        else LINE.
        """
        return RING if all(map(self.closes, self.groups(axis))) else LINE

    def closes(self, line: Line) -> bool:
        """Return True where a cable joins the ends of a line of three or more chips."""
        return len(line) > 2 and self.joined(line[-1], line[0])

    def route(self, source: int, destination: int) -> Line:
        """Return the chips of a shortest route over cables, with both ends. If there are several
        such routes, it goes along the row first.
        """
        far = {destination: 0}
        front = [destination]
        for a in front:  # The list grows during the loop, so this is a breadth-first search.
            for b in self.neighbours(a):
                if b not in far:
                    far[b] = far[a] + 1
                    front.append(b)
        way = [source]
        while way[-1] != destination:
            here = way[-1]
            row = self.coordinate(here)[0]
            nearer = [b for b in self.neighbours(here) if far[b] == far[here] - 1]
            # Messages go along the row first.
            way.append(min(nearer, key=lambda b: (self.coordinate(b)[0] != row, self.place[b])))
        return tuple(way)


def topology(of, mesh_shape: RowColumn | None = None) -> Topology:
    """Return the topology of an open mesh of the simulator, a `System`, or a system's name.

    Args:
        mesh_shape: the shape of the mesh to open on a system; by default that of the whole system.

    Raises:
        TTKitError: the mesh is on a card, whose cables are not known, so the system's name is
            needed; or a mesh of this shape cannot be opened.

    Example:
        >>> topology("galaxy").shape, topology("galaxy_torus").kind(0)
        ((8, 4), 'RING')
        >>> topology("t3000", (1, 4)).chips
        (4, 0, 2, 6)
    """
    if isinstance(of, (str, System)):
        system = system_named(of)
        shape = mesh_shape or system.shape
        asked = f"topology({system.name!r}, {shape})"
        chips = device_ids(system, shape, (0, 0), asked)
    elif isinstance(getattr(of, "system", None), System):
        if len(tuple(of.shape)) != 2:
            fail(
                f"topology({of!r})",
                f"a mesh has rows and columns, this one has shape {list(of.shape)}",
                "mesh.reshape(ttnn.MeshShape(rows, columns))",
            )
        system = of.system
        chips = of.chips
        shape = tuple(of.shape)
    else:
        fail(
            f"topology({of!r})",
            "cables are known only for systems and simulated meshes",
            f"a name: {', '.join(SYSTEMS)}",
        )
    return _known(system, tuple(chips), shape)


@functools.cache
def _known(system: System, chips: Line, shape: RowColumn) -> Topology:
    there = set(chips)
    cables = tuple(tuple(sorted(system.neighbours[chip] & there)) for chip in chips)
    return Topology(
        system.name,
        chips,
        shape,
        cables,
        system.links_per_pair,
        system.chip.link,
        all(system.wraps),
    )

"""Systems: which chips stand where, on which boards, and which pairs are cabled.

Mesh shapes and links per pair are those of the mesh graph descriptors in the ttnn 0.81.1 wheel; the
id order of a T3000 was read from the library itself."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ttkit.errors import fail
from ttkit.hardware.chips import (
    BLACKHOLE,
    BLACKHOLE_P300,
    WORMHOLE,
    WORMHOLE_GALAXY,
    WORMHOLE_N150,
    Chip,
)

Coordinate = tuple[int, ...]
Place = tuple[int, int]
Item = TypeVar("Item")


def grid_links(shape: Place, rings: Sequence[bool]) -> Iterator[tuple[Place, Place, int]]:
    """Pairs of neighbours in a grid, with the axis; a ring of more than two also joins its ends.

    Example:
        >>> [(a, b) for a, b, axis in grid_links((1, 3), (False, True))]
        [((0, 0), (0, 1)), ((0, 1), (0, 2)), ((0, 2), (0, 0))]
    """
    for r, c in itertools.product(*map(range, shape)):
        for axis, (r2, c2) in enumerate(((r + 1, c), (r, c + 1))):
            inside = (r2, c2)[axis] < shape[axis]
            if inside or (rings[axis] and shape[axis] > 2):
                yield (r, c), ((r2, c2) if inside else ((0, c) if axis == 0 else (r, 0))), axis


def winding(grid: Sequence[Sequence[Item]], ring: bool) -> list[Item] | None:
    """All of a grid as one line of neighbours, back and forth; where it has to close, None for a
    grid that has no such ring.

    Example:
        >>> winding([[0, 1, 2], [3, 4, 5]], ring=False), winding([[0, 1, 2], [3, 4, 5]], ring=True)
        ([0, 1, 2, 5, 4, 3], [0, 1, 2, 5, 4, 3])
    """
    if not ring:
        return [item for r, row in enumerate(grid) for item in (row[::-1] if r % 2 else row)]
    if len(grid) % 2:  # then through the columns
        grid = list(zip(*grid, strict=True))
    if len(grid) % 2 or min(len(grid), len(grid[0])) < 2:
        return None
    line = [grid[0][0]]
    for r, row in enumerate(grid):
        line += row[:0:-1] if r % 2 else row[1:]
    return line + [row[0] for row in grid[:0:-1]]  # the first column is the way back


@dataclass(frozen=True)
class System:
    """A machine: a grid of chips with ids, the boards they sit on, and the links between
    neighbours.

    Args:
        name: what `ttkit.use_system` takes.
        chip: the kind of chip, the same everywhere.
        ids: device ids in the order of the grid, [rows][columns].
        links_per_pair: ethernet links between two neighbours.
        wraps: per axis, True where the last chip is cabled back to the first (a ring, not a line).
        boards: ids of the chips of each board, in PCIe order, the chip with the PCIe connector
        first.

    Example:
        >>> SYSTEMS["t3000"].shape, SYSTEMS["t3000"].ids[1]
        ((2, 4), (5, 1, 3, 7))
    """

    name: str
    chip: Chip
    ids: tuple[tuple[int, ...], ...]
    links_per_pair: int = 0
    wraps: tuple[bool, bool] = (False, False)
    boards: tuple[tuple[int, ...], ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.boards:
            object.__setattr__(self, "boards", tuple((i,) for i in sorted(self.coordinate_of)))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the grid."""
        return len(self.ids), len(self.ids[0])

    @property
    def num_devices(self) -> int:
        """How many chips there are."""
        return self.shape[0] * self.shape[1]

    @property
    def coordinate_of(self) -> dict[int, tuple[int, int]]:
        """Where each device id stands: {id: (row, column)}."""
        return {device: (r, c) for r, row in enumerate(self.ids) for c, device in enumerate(row)}

    def links(self) -> Iterator[tuple[int, int]]:
        """Pairs of device ids that are cabled, each pair once."""
        return (
            (self.ids[r][c], self.ids[r2][c2])
            for (r, c), (r2, c2), _ in grid_links(self.shape, self.wraps)
        )

    def linked(self, a: int, b: int) -> bool:
        """True where a cable joins devices `a` and `b`."""
        here, there = self.coordinate_of[a], self.coordinate_of[b]
        steps = [abs(x - y) for x, y in zip(here, there, strict=True)]
        axis = 0 if steps[0] else 1
        if steps[1 - axis]:
            return False
        size = self.shape[axis]
        return steps[axis] == 1 or (self.wraps[axis] and size > 2 and steps[axis] == size - 1)


def grid_ids(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    """Return the ids of a grid of chips that are numbered row by row."""
    return tuple(tuple(range(r * columns, (r + 1) * columns)) for r in range(rows))


_T3000 = System(
    "t3000", WORMHOLE, ((4, 0, 2, 6), (5, 1, 3, 7)), 2, boards=((0, 4), (1, 5), (2, 6), (3, 7))
)
SYSTEMS = {
    system.name: system
    for system in (
        System("n150", WORMHOLE_N150, grid_ids(1, 1)),
        System("n300", WORMHOLE, grid_ids(1, 2), 2, boards=((0, 1),)),
        _T3000,
        System("galaxy", WORMHOLE_GALAXY, grid_ids(8, 4), 4),
        System("galaxy_torus", WORMHOLE_GALAXY, grid_ids(8, 4), 4, wraps=(True, True)),
        System("p150", BLACKHOLE, grid_ids(1, 1)),
        System("p300", BLACKHOLE_P300, grid_ids(1, 2), 2, boards=((0, 1),)),
        System("quietbox_bh", BLACKHOLE, grid_ids(2, 2), 4),
        System("p300_x2", BLACKHOLE_P300, grid_ids(2, 2), 2, boards=((0, 1), (2, 3))),
        System("loudbox_bh", BLACKHOLE, grid_ids(2, 4), 2),
        System("galaxy_bh", BLACKHOLE, grid_ids(8, 4), 2),
    )
}
ALIASES = {
    "t3k": "t3000",
    "quietbox": "t3000",
    "loudbox": "t3000",
    "qb2": "quietbox_bh",
    "p150_x4": "quietbox_bh",
    "p150_x8": "loudbox_bh",
}

_chosen: list[System] = []


def use_system(system: str | System | Any | None) -> System:
    """Choose the machine that the simulator plays, and return it;

    None goes back to the environment's choice.

    Args:
        system: a name of `SYSTEMS`, a `System` of your own, or a `MeshGraphDescriptor`: the machine
            that its one mesh asks for.

    Raises:
        TTKitError: the name is not known, or the descriptor has several meshes.

    Example:
        >>> use_system("galaxy").num_devices
        32
        >>> use_system(None).name
        't3000'
    """
    if isinstance(system, str):
        system = system_named(system)
    elif system is not None and not isinstance(system, System):
        from ttkit.descriptors import system_of  # brings protobuf

        system = system_of(system)
    _chosen[:] = [] if system is None else [system]
    return current_machine()


def current_system() -> System:
    """The machine in use, seen through the mesh graph descriptor of `TT_MESH_GRAPH_DESC_PATH`
    where that is set.

    Raises:
        TTKitError: the descriptor is refused, or does not fit on the machine.
    """
    path = os.environ.get("TT_MESH_GRAPH_DESC_PATH")
    if not path:
        return current_machine()
    from ttkit.descriptors import seen_through  # brings protobuf

    return seen_through(path, current_machine())


def current_machine() -> System:
    """All chips there are:

    `use_system`'s, else `TTKIT_SYSTEM`'s, else a T3000's; narrowed by `TT_VISIBLE_DEVICES`.
    """
    system = _chosen[0] if _chosen else system_named(os.environ.get("TTKIT_SYSTEM") or "t3000")
    visible = os.environ.get("TT_VISIBLE_DEVICES", "")
    return narrow(system, visible) if visible.strip() else system


def system_named(name: str) -> System:
    """The system of that name or alias.

    Raises:
        TTKitError: the name is not known.
    """
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
    """What ttnn says of a chip that the fabric does not reach."""
    rule = (
        f"Physical chip id {chip} not found in control plane chip mapping. "
        "You are calling for a chip outside of the fabric cluster. "
    )
    return rule + "Check that your mesh graph descriptor specifies the correct topology"


def narrow(system: System, visible: str) -> System:
    """The part of `system` that `TT_VISIBLE_DEVICES=visible` leaves: whole boards, ids
    renumbered from 0.

    The numbers are PCIe devices, one a board; a board brings all of its chips. The chips with a
    PCIe connector are renumbered first, then the others, each in the order in which the boards are
    named.

    Raises:
        TTKitError: not a list of numbers, no such board, or boards that are not cabled into a
        rectangle.

    Example:
        >>> narrow(SYSTEMS["t3000"], "0,1").ids
        ((0, 2), (1, 3))
    """
    asked = f"TT_VISIBLE_DEVICES={visible!r} on a {system.name}"
    try:
        wanted = list(dict.fromkeys(int(part) for part in visible.split(",")))
    except ValueError:
        fail(
            asked,
            "it must be a comma-separated list of PCIe device numbers",
            f"numbers of 0 to {len(system.boards) - 1}, for example 0,1",
        )
    if any(not 0 <= n < len(system.boards) for n in wanted):
        larger = next(
            (
                f", or on the simulator a machine that has more: TTKIT_SYSTEM={name}"
                for name, each in SYSTEMS.items()
                if len(each.boards) > max(wanted)
            ),
            "",
        )
        fail(
            asked,
            f"there are {len(system.boards)} PCIe devices, numbered 0 to {len(system.boards) - 1}",
            f"only those numbers{larger}",
        )
    boards = [system.boards[n] for n in wanted]
    old = [chips[k] for k in range(max(map(len, boards))) for chips in boards if k < len(chips)]
    new_id = {device: number for number, device in enumerate(old)}
    where = system.coordinate_of
    rows = sorted({where[d][0] for d in old})
    columns = sorted({where[d][1] for d in old})
    rectangle = [[system.ids[r][c] for c in columns] for r in rows]
    joined = rows == list(range(rows[0], rows[-1] + 1)) and columns == list(
        range(columns[0], columns[-1] + 1)
    )
    if not joined or sorted(d for row in rectangle for d in row) != sorted(old):
        fail(
            asked,
            f"{outside_fabric(min(old))}: these boards are not cabled together into a rectangle",
            "boards that are neighbours",
        )
    ids = tuple(tuple(new_id[d] for d in row) for row in rectangle)
    # a single column of two-chip boards is seen from its PCIe side
    if ids[0][0] != 0 and len(columns) == 2:
        ids = tuple(row[::-1] for row in ids)
    whole = ids if len(old) < system.num_devices else system.ids
    wraps = tuple(
        w and n == m
        for w, n, m in zip(system.wraps, (len(rows), len(columns)), system.shape, strict=True)
    )
    renumbered = (
        tuple(tuple(new_id[d] for d in chips) for chips in boards)
        if whole is ids
        else system.boards
    )
    return replace(system, ids=whole, wraps=wraps, boards=renumbered)  # type: ignore[arg-type]

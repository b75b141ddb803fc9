"""Pictures of meshes: chips where they stand, and the links that there really are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ttkit import backend
from ttkit.visualize.cells import Box, Cell, Cells, Coordinate, Grid
from ttkit.visualize.drawing import Figure, tone

LONGEST = 8  # A line of more chips is folded into several rows.


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
    if hasattr(mesh, "chips"):
        return tuple(mesh.chips)
    return tuple(-1 - i if id is None else id for i, id in enumerate(ids_at(mesh).values()))


# ---------------------------------------------------------------- where chips stand
def grid_of(title: str, shape: Coordinate, devices: Sequence[int], system: Any = None) -> Grid:
    """Return the grid of devices, with the links and cards of their system if it is known."""
    grid = Grid(title, shape, tuple(devices))
    if system is not None:
        at = {device: i for i, device in enumerate(devices)}
        ends = ((at[a], at[b]) for a, b in system.links() if a in at and b in at)
        linked = tuple(sorted((min(pair), max(pair)) for pair in ends))
        cards = (tuple(sorted(at.get(chip, -1) for chip in card)) for card in system.cards)
        two = tuple(card for card in cards if len(card) == 2 and card[0] >= 0)
        grid = replace(grid, pairs=linked, links=system.links_per_pair)
        grid = replace(grid, cards=tuple(card for card in two if grid.straight(card)))
    return grid.folded(LONGEST)


def mesh_grid(mesh: Any) -> Grid:
    """Return the grid of an open mesh; only the simulator's meshes know their links."""
    shape, system = tuple(mesh.shape), getattr(mesh, "system", None)
    title = f"{'x'.join(map(str, shape))} mesh" + (f" on {system.name}" if system else "")
    return grid_of(title, shape, chips_of(mesh), system)


def system_grid(system: Any) -> Grid:
    """Return the grid of a whole machine."""
    rows, columns = system.shape
    title = f"{system.name}: {rows}x{columns} chips"
    return grid_of(title, system.shape, tuple(itertools.chain(*system.ids)), system)


# ---------------------------------------------------------------- drawn
def draw_mesh(mesh: Any) -> Figure:
    """Draw an open mesh; chips that other ranks drive are dashed."""
    return draw_chips(mesh_grid(mesh), [id is None for id in ids_at(mesh).values()])


def draw_chips(
    grid: Grid, others: Sequence[bool] = (), hosts: Sequence[int] = (), frame: str = "host"
) -> Figure:
    """Draw a mesh: ids, coordinates, links and cards.

    Args:
        others: whether another rank drives each chip; () if all chips are ours.
        hosts: the host of each chip, where they are several; their outlines are the grid's cards.
    """
    cells, notes = [], link_notes(grid, "host" if hosts else "card")
    for i, (device, label) in enumerate(zip(grid.devices, grid.labels)):
        if any(others[i : i + 1]):
            cells.append(Cell("other rank", [label], "none", dashed=True))
        elif hosts:
            cells.append(Cell(f"device {device}", [label, f"host {hosts[i]}"], tone(hosts[i])))
        else:
            cells.append(Cell(f"device {device}", [label]))
    if any(others):
        notes.append("Dashed chips are driven by other ranks.")
    return Figure(grid.title, [Cells(grid, cells, frame=frame)], [" ".join(notes)])


def link_notes(grid: Grid, outline: str) -> list[str]:
    """Return the legend of the lines of a picture, in sentences."""
    if grid.links is None:
        return ["Which chips are linked is not known here, so no links are drawn."]
    notes = []
    if grid.pairs:
        notes.append(f"Each line is an ethernet link, {grid.links} for each pair of linked chips.")
        if not all(map(grid.straight, grid.pairs)):
            notes.append("Curves lead to chips that are not drawn next to each other.")
    elif len(grid.devices) > 1:
        notes.append("No two of these chips are linked.")
    if grid.fold:
        notes.append(f"The line is folded: {grid.fold} chips there, {grid.fold} back.")
    if grid.cards:
        notes.append(f"Dotted: one {outline}.")
    return notes


def draw_share(system: Any, chips: Sequence[int], title: str, group: int) -> Cells:
    """Draw a machine small: chips that somebody owns are filled and have their ids.

    Args:
        title: whose they are, in words.
        group: the number of the colour.
    """
    ids = itertools.chain(*system.ids)
    boxes = [Box([str(chip)], fill=tone(group)) if chip in chips else Box() for chip in ids]
    machine = Cell("", boxes=boxes, columns=system.shape[1], box=(24, 20))
    return Cells(Grid(title, (1, 1), (0,)), [machine], frame="")

"""Pictures of machines: the positions of chips, and the links that the machine has.

A machine is an open mesh, a system, a mesh of a descriptor, or what a rank of a cluster owns."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ttkit import backend
from ttkit.hardware.systems import grid_links
from ttkit.visualize.cells import Box, Cell, Cells, Coordinate, Grid
from ttkit.visualize.drawing import HALO, Figure, ranges, tone
from ttkit.words import counted, grouped

LONGEST = 8  # A line of more chips is folded into several rows.


def ids_at(mesh) -> dict[Coordinate, int | None]:
    """Return {coordinate: device id} in row-major order; the id of another rank's chip is None."""
    view = mesh.get_view()
    ids = iter(mesh.get_device_ids())
    every = backend.load().MeshCoordinateRange(mesh.shape)
    return {tuple(c): next(ids) if view.is_local(c) else None for c in every}


def chips_of(mesh) -> tuple[int, ...]:
    """Return the device ids row by row; chips of other ranks get numbers that no other chip has."""
    if hasattr(mesh, "chips"):
        return tuple(mesh.chips)
    return tuple(-1 - i if id is None else id for i, id in enumerate(ids_at(mesh).values()))


# ---------------------------------------------------------------- where chips stand
def grid_of(title: str, shape: Coordinate, devices: Sequence[int], system=None) -> Grid:
    """Return the grid of devices, with the links and cards of their system if it is known."""
    grid = Grid(title, shape, tuple(devices))
    if system is not None:
        at = {device: i for i, device in enumerate(devices)}
        ends = ((at[a], at[b]) for a, b in system.links() if a in at and b in at)
        linked = tuple(sorted((min(pair), max(pair)) for pair in ends))
        cards = (tuple(sorted(at.get(chip, -1) for chip in card)) for card in system.cards)
        twos = (card for card in cards if len(card) == 2 and card[0] >= 0)
        drawn = tuple(filter(grid.straight, twos))
        grid = grid._replace(pairs=linked, links=system.links_per_pair, cards=drawn)
    return grid.folded(LONGEST)


def mesh_grid(mesh) -> Grid:
    """Return the grid of an open mesh; only the simulator's meshes know their links."""
    shape = tuple(mesh.shape)
    system = getattr(mesh, "system", None)
    title = f"{'x'.join(map(str, shape))} mesh" + (f" on {system.name}" if system else "")
    return grid_of(title, shape, chips_of(mesh), system)


def system_grid(system) -> Grid:
    """Return the grid of a whole machine."""
    rows, columns = system.shape
    title = f"{system.name}: {rows}x{columns} chips"
    return grid_of(title, system.shape, tuple(itertools.chain(*system.ids)), system)


# ---------------------------------------------------------------- drawn
def draw_mesh(mesh) -> Figure:
    """Draw an open mesh; chips that other ranks drive are dashed."""
    return draw_chips(mesh_grid(mesh), [id is None for id in ids_at(mesh).values()])


def draw_chips(
    grid: Grid, others: Sequence[bool] = (), hosts: Sequence[int] = (), frame: str = "host"
) -> Figure:
    """Draw a mesh: coordinates, ids, links and cards.

    Args:
        others: for each chip whether another rank drives it; () if this rank drives all chips.
        hosts: the host of each chip if there are several hosts; `grid.cards` then has the outlines
            of the hosts.
        frame: the words at the frame around all chips.
    """
    cells = []
    notes = link_notes(grid, "host" if hosts else "card")
    for i, (device, label) in enumerate(zip(grid.devices, grid.labels)):
        if any(others[i : i + 1]):
            cells.append(Cell(label, ["other rank"], "none", dashed=True))
        elif hosts:
            cells.append(Cell(label, [f"device {device}", f"host {hosts[i]}"], tone(hosts[i])))
        else:
            cells.append(Cell(label, [f"device {device}"]))
    if any(others):
        notes.append("Dashed chips are driven by other ranks.")
    return Figure(grid.title, [Cells(grid, cells, frame=frame)], [" ".join(notes)])


def link_notes(grid: Grid, outline: str) -> list[str]:
    """Return sentences that explain the lines of a picture.

    Args:
        outline: the word for what a dashed outline surrounds: "card" or "host".
    """
    if grid.links is None:
        return ["The links between chips are not known here, so none are drawn."]
    notes = []
    if grid.pairs:
        notes.append(f"Each line is an ethernet link, {grid.links} for each pair of linked chips.")
        if not all(map(grid.straight, grid.pairs)):
            notes.append("A curve shows all links of two chips that are not drawn side by side.")
    elif len(grid.devices) > 1:
        notes.append("No two of these chips are linked.")
    if grid.fold:
        notes.append(f"The line is folded every {grid.fold} chips; all other links are pale.")
    if grid.cards:
        notes.append(f"A dashed outline: one {outline}.")
    return notes


# ---------------------------------------------------------------- descriptors
def heading(mesh) -> str:
    """Return a description of a mesh in one line."""
    hosts = f", {mesh.num_hosts} hosts" if mesh.num_hosts > 1 else ""
    links = f"{counted(mesh.channels, 'link')} between neighbours, {mesh.policy}"
    about = f"{mesh.size_text} {mesh.arch}, {' x '.join(mesh.dim_types)}"
    return f"mesh {mesh.mesh_id}: {about}, {links}{hosts}"


def described(descriptor) -> str:
    """Return a descriptor as text: each mesh chip by chip, then the connections."""
    lines = []
    for mesh in descriptor.meshes:
        lines.append(heading(mesh))
        for (_, column), (host, device) in _chips(mesh).items():
            lines += [""] if column == 0 else []
            lines[-1] += f"  {f'host {host} ' if mesh.num_hosts > 1 else ''}device {device}"
    for each in descriptor.connections:
        a, b = each.meshes
        lines.append(f"mesh {a} - mesh {b}: {counted(each.channels, 'link')}, {each.policy}")
    return "\n".join(lines)


def _chips(mesh) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the host rank and the device id of the chip at each coordinate."""
    from ttkit.descriptors.placing import (
        chips_of,  # This import loads protobuf, which few pictures need.
    )

    return chips_of(mesh)


def draw_descriptor(descriptor) -> Iterator[Figure]:
    """Yield a picture of all meshes if there are several, then one of each kind of mesh."""
    kinds = grouped(descriptor.meshes, lambda mesh: replace(mesh, mesh_id=0, name=""))
    if len(descriptor.meshes) > 1:
        yield draw_graph(descriptor)
    for first, *others in kinds.values():
        hosts = [host for host, _ in _chips(first).values()] if first.num_hosts > 1 else []
        figure = draw_chips(instance_grid(first), hosts=hosts, frame=f"mesh {first.mesh_id}")
        if others:
            alike = ", ".join(str(mesh.mesh_id) for mesh in others)
            figure = replace(figure, notes=[*figure.notes, f"Identical: mesh {alike}."])
        yield figure


def instance_grid(mesh) -> Grid:
    """Return the grid of one mesh of a descriptor: its chips and links.

    The id of a chip is its number on its host.
    """
    chips = _chips(mesh)
    at = list(chips)
    hosts = [host for host, _ in chips.values()]
    links = [(at.index(a), at.index(b)) for a, b in grid_links(mesh.device_dims, mesh.rings)]
    devices = tuple(device for _, device in chips.values())
    grid = Grid(heading(mesh), mesh.device_dims, devices, tuple(links), mesh.channels)
    grid = grid.folded(LONGEST)
    if mesh.num_hosts == 1 or grid.fold:
        return grid
    last = {host: i for i, host in enumerate(hosts)}
    return grid._replace(cards=tuple((hosts.index(host), i) for host, i in last.items()))


def draw_graph(descriptor) -> Figure:
    """Draw a box for each mesh, and a line for each connected pair with its number of links."""
    meshes = descriptor.meshes
    joined = Counter[tuple[int, int]]()
    ids = [mesh.mesh_id for mesh in meshes]
    for connection in descriptor.connections:
        a, b = sorted(map(ids.index, connection.meshes))
        joined[a, b] += connection.channels
    hosts = counted(descriptor.total_hosts, "host")
    title = f"{len(ids)} meshes, {descriptor.total_devices} chips, {hosts}"
    fold = len(ids) if len(ids) <= 3 else math.ceil(math.sqrt(len(ids)))
    grid = Grid(title, (len(ids),), tuple(ids), tuple(joined), 1, fold=fold)
    cells = []
    for mesh in meshes:
        about = f"{mesh.size_text}, {counted(mesh.num_hosts, 'host')}"
        cells.append(Cell(f"mesh {mesh.mesh_id}", [about], tone(mesh.mesh_id)))
    drawing = Cells(grid, cells, gap=(30, 36))
    for pair, links in joined.items():
        (x1, y1), (x2, y2), (right, up) = drawing.course(*pair)
        x = (x1 + x2) / 2 + 0.75 * right
        y = (y1 + y2) / 2 + 0.75 * up
        # The number is to the right of a vertical line, and above a line that is not vertical.
        at = (x + 8, y + 4) if x1 == x2 else (x, y - 3)
        drawing.words(*at, str(links), 11, **HALO)
    note = "A number on a line: ethernet links between the two meshes."
    if not joined:
        note = "No links between the meshes: they cannot send to one another."
    return Figure(title, [drawing], [note])


# ---------------------------------------------------------------- ranks
def draw_share(
    bindings, binding, system, state: str = "", place: str = "", lines: Sequence[str] = ()
) -> Cells:
    """Draw a small picture of a rank's machine, in which the chips of the rank are filled.

    Filled chips show their ids. If the machine has no card of a given number, no chip is filled.
    The title names the rank and its cards.

    Args:
        state: words of the title after the rank.
        place: words of the title after the cards.
        lines: words above the machine.
    """
    given = bindings.visible_devices(binding)
    chips = []
    cards = list(map(int, given.split(","))) if given else range(len(system.cards))
    owns = f"{'card' if len(cards) == 1 else 'cards'} {ranges(cards)}"
    if max(cards) < len(system.cards):
        chips = [chip for card in cards for chip in system.cards[card]]
        owns += f" ({counted(len(chips), 'chip')}: {ranges(chips)})"
    fill = tone(binding.rank)
    ids = itertools.chain(*system.ids)
    boxes = [Box([str(chip)], fill=fill) if chip in chips else Box() for chip in ids]
    machine = Cell("", lines, boxes=boxes, columns=system.shape[1], box=(24, 20))
    title = f"rank {binding.rank}{state}: {owns}{place}"
    return Cells(Grid(title, (1, 1), (0,)), [machine])


def draw_ranks(cluster, system) -> Figure:
    """Draw the machine of each rank of a cluster, with the chips that the rank owns.

    The cluster need not be started.

    Args:
        system: the machine that each host is.
    """
    drawings, bindings = [], cluster.bindings
    for binding in bindings.rank_bindings:
        host = cluster.hosts[binding.rank]
        part = binding.mesh_host_rank
        state = f" on {host}" if host else ""
        place = "" if binding.mesh_id is None else f", mesh {binding.mesh_id}"
        place += "" if part is None else f", part {part}"
        drawings.append(draw_share(bindings, binding, system, state, place))
    hosts = len(set(cluster.hosts))
    shared = "" if hosts == 1 else f" on {hosts} hosts"
    title = f"{counted(len(drawings), 'rank')}{shared}: "
    title += "each is a process with its own memory and its own cards"
    text = "\n  ".join([title, *(drawing.title for drawing in drawings)])
    note = f"A number is the id of a chip on its host, which is a {system.name}."
    return Figure(title, drawings, [note], text)

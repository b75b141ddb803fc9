"""Pictures of machines without a card: mesh graph descriptors, and the ranks of a cluster."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ttkit.hardware.systems import grid_links
from ttkit.visualize.cells import Cell, Cells, Grid
from ttkit.visualize.drawing import Figure, ranges, tone
from ttkit.visualize.mesh import LONGEST, draw_chips, draw_share
from ttkit.words import counted

LARGEST = 256  # A mesh of more chips is not drawn chip by chip.
MOST = 4  # At most so many kinds of meshes are drawn chip by chip.


def heading(mesh: Any) -> str:
    """Return a mesh in one line."""
    hosts = f", {mesh.num_hosts} hosts" if mesh.num_hosts > 1 else ""
    links = f"{counted(mesh.channels, 'link')} between neighbours, {mesh.policy}"
    topology = " x ".join(mesh.dim_types)
    return f"mesh {mesh.mesh_id}: {mesh.size_text} {mesh.arch}, {topology}, {links}{hosts}"


def described(descriptor: Any) -> str:
    """Return a descriptor as text: each mesh chip by chip, then the connections."""
    lines = []
    for mesh in descriptor.meshes:
        lines.append(heading(mesh))
        if mesh.num_devices > LARGEST:
            continue
        columns = mesh.device_dims[1]
        names = [
            f"  {f'host {host} ' if mesh.num_hosts > 1 else ''}device {device}"
            for host, device in _chips(mesh).values()
        ]
        rows = range(0, len(names), columns)
        lines += ["".join(names[start : start + columns]) for start in rows]
    for connection in descriptor.connections:
        a, b = connection.meshes
        lines.append(f"mesh {a} - mesh {b}: {connection.channels} links, {connection.policy}")
    return "\n".join(lines)


def _chips(mesh: Any) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the host rank and the device id of the chip at each coordinate."""
    from ttkit.descriptors import chips_of  # This import loads protobuf, which few pictures need.

    return chips_of(mesh)


def draw_descriptor(descriptor: Any) -> Iterator[Figure]:
    """Draw all meshes where there are several, then each kind of mesh chip by chip.

    A mesh that is too large for that is a box among all meshes."""
    kinds: dict[Any, list[Any]] = {}
    for mesh in descriptor.meshes:
        kinds.setdefault(replace(mesh, mesh_id=0, name=""), []).append(mesh)
    small = [same for kind, same in kinds.items() if kind.num_devices <= LARGEST][:MOST]
    if len(descriptor.meshes) > 1 or not small:
        yield draw_graph(descriptor)
    for first, *others in small:
        hosts = [host for host, _ in _chips(first).values()] if first.num_hosts > 1 else []
        figure = draw_chips(instance_grid(first), hosts=hosts, frame=f"mesh {first.mesh_id}")
        if others:
            alike = ", ".join(str(mesh.mesh_id) for mesh in others)
            figure = replace(figure, notes=[*figure.notes, f"Like it: mesh {alike}."])
        yield figure


def instance_grid(mesh: Any) -> Grid:
    """Return the grid of one mesh: chips with their ids on their hosts, and its links."""

    def index(place: tuple[int, int]) -> int:
        return place[0] * mesh.device_dims[1] + place[1]

    links = ((index(a), index(b)) for a, b, _ in grid_links(mesh.device_dims, mesh.rings))
    devices = tuple(device for _, device in _chips(mesh).values())
    grid = Grid(heading(mesh), mesh.device_dims, devices, tuple(links), mesh.channels)
    grid = grid.folded(LONGEST)
    if mesh.num_hosts == 1 or grid.fold:
        return grid
    parts = map(mesh.part_of, range(mesh.num_hosts))
    hosts = ((index(at), index((at[0] + h - 1, at[1] + w - 1))) for at, (h, w) in parts)
    return replace(grid, cards=tuple(hosts))


def draw_graph(descriptor: Any) -> Figure:
    """Draw all meshes as boxes, and a line for each joined pair, with its number of links."""
    meshes, joined = descriptor.meshes, Counter[tuple[int, int]]()
    ids = [mesh.mesh_id for mesh in meshes]
    for connection in descriptor.connections:
        a, b = sorted(map(ids.index, connection.meshes))
        joined[a, b] += connection.channels
    number = "1 mesh" if len(ids) == 1 else f"{len(ids)} meshes"
    hosts = counted(descriptor.total_hosts, "host")
    title = f"{number}, {descriptor.total_devices} chips, {hosts}"
    fold = len(ids) if len(ids) <= 3 else math.ceil(math.sqrt(len(ids)))
    grid = Grid(title, (len(ids),), tuple(ids), tuple(joined), 1, fold=fold)
    cells = []
    for mesh in meshes:
        about = f"{mesh.size_text}, {counted(mesh.num_hosts, 'host')}"
        cells.append(Cell(f"mesh {mesh.mesh_id}", [about], tone(mesh.mesh_id)))
    drawing = Cells(grid, cells, frame="", gap=(30, 36))
    for pair, links in joined.items():
        (x1, y1), (x2, y2), (right, up) = drawing.course(*pair)
        x, y = (x1 + x2) / 2 + 0.75 * right, (y1 + y2) / 2 + 0.75 * up
        # The number stands beside a vertical line, above any other.
        at = (x + 8, y + 4) if x1 == x2 else (x, y - 3)
        drawing.words(*at, str(links), size=11, halo=True)
    note = "A number on a line: ethernet links between the two meshes."
    if not joined:
        note = "No links between the meshes: they cannot send to one another."
    return Figure(title, [drawing], [note])


# ---------------------------------------------------------------- ranks
def draw_ranks(cluster: Any, system: Any) -> Figure:
    """Draw the machine of each rank of a cluster, started or not, with the chips that it owns.

    Args:
        system: what each host is.
    """
    drawings, bindings = [], cluster.bindings
    for binding in bindings.rank_bindings:
        given = bindings.visible_devices(binding)
        cards = [int(name) for name in given.split(",")] if given else range(len(system.cards))
        chips = [chip for card in cards for chip in system.cards[card]]
        host, part = cluster.hosts[binding.rank], binding.mesh_host_rank
        about = f"rank {binding.rank}{f' on {host}' if host else ''}: "
        about += f"{'card' if len(cards) == 1 else 'cards'} {ranges(cards)} "
        about += f"({counted(len(chips), 'chip')}: {ranges(chips)})"
        about += "" if binding.mesh_id is None else f", mesh {binding.mesh_id}"
        about += "" if part is None else f", part {part}"
        drawings.append(draw_share(system, chips, about, binding.rank))
    hosts = len(set(cluster.hosts))
    shared = "" if hosts == 1 else f" on {hosts} hosts"
    title = f"{counted(len(drawings), 'rank')}{shared}: "
    title += "each is a process with its own memory and its own cards"
    text = "\n  ".join([title, *(drawing.title for drawing in drawings)])
    note = f"A number is the id of a chip on its host, which is a {system.name}."
    return Figure(title, drawings, [note], text)

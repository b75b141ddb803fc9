"""Pictures of mesh graph descriptors: the chip and host of each coordinate, and joined meshes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ttkit.hardware.systems import grid_links
from ttkit.visualize.drawing import Figure, tone
from ttkit.visualize.mesh import CHIP_H, LONGEST, MeshDrawing, MeshPicture
from ttkit.words import counted

LARGEST = 256  # chips of a mesh that is drawn chip by chip
MOST = 4  # kinds of meshes that are drawn chip by chip
BOX_W = 132  # of a mesh in the picture of several


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
        if mesh.num_devices > LARGEST or descriptor.total_devices > 4 * LARGEST:
            continue
        chips, (rows, columns) = _chips(mesh), mesh.device_dims
        for r in range(rows):
            row = (chips[r, c] for c in range(columns))
            hosts = mesh.num_hosts > 1
            texts = (f"  {f'host {host} ' * hosts}device {device}" for host, device in row)
            lines.append("".join(texts))
    for connection in descriptor.connections:
        a, b = connection.meshes
        lines.append(f"mesh {a} - mesh {b}: {connection.channels} links, {connection.policy}")
    return "\n".join(lines)


def _chips(mesh: Any) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the host rank and the device id of the chip at each coordinate."""
    from ttkit.descriptors import chips_of  # imports protobuf

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
        yield draw_instance(first, [mesh.mesh_id for mesh in others])


def instance_picture(mesh: Any) -> MeshPicture:
    """Return the picture of one mesh: chips with their ids on their hosts, and its links."""

    def index(place: tuple[int, int]) -> int:
        return place[0] * mesh.device_dims[1] + place[1]

    links = ((index(a), index(b)) for a, b, _ in grid_links(mesh.device_dims, mesh.rings))
    devices = tuple(device for _, device in _chips(mesh).values())
    shown = mesh.channels if mesh.channels <= 4 else 1
    picture = MeshPicture(heading(mesh), mesh.device_dims, devices, tuple(links), shown)
    picture = picture.folded(LONGEST)
    if mesh.num_hosts == 1 or picture.fold:
        return picture
    parts = map(mesh.part_of, range(mesh.num_hosts))
    hosts = ((index(at), index((at[0] + h - 1, at[1] + w - 1))) for at, (h, w) in parts)
    return replace(picture, cards=tuple(hosts))


def draw_instance(mesh: Any, others: list[int]) -> Figure:
    """Draw one mesh chip by chip: device id on its host, coordinate, and host.

    Args:
        others: ids of meshes like it.
    """
    picture, several = instance_picture(mesh), mesh.num_hosts > 1
    drawing = MeshDrawing(picture, height=CHIP_H + 14 * several, host=f"mesh {mesh.mesh_id}")
    for (host, device), label, corner in zip(
        _chips(mesh).values(), picture.labels, drawing.corners
    ):
        if several:
            drawing.chip(corner, [f"device {device}", label, f"host {host}"], tone(host))
        else:
            drawing.chip(corner, [f"device {device}", label])
    which = ", its host rank" * several + "; dotted: one host" * bool(picture.cards)
    links = f"{mesh.channels} ethernet links" if mesh.channels > 4 else "one ethernet link"
    notes = [f"Each chip: its device id, its coordinate{which}; a line is {links}."]
    if others:
        notes.append(f"Like it: mesh {', '.join(map(str, others))}.")
    return Figure(picture.title, [drawing], notes)


def draw_graph(descriptor: Any) -> Figure:
    """Draw all meshes as boxes, and a line for each joined pair, with its number of links."""
    meshes, joined = descriptor.meshes, Counter[tuple[int, int]]()
    ids = [mesh.mesh_id for mesh in meshes]
    for connection in descriptor.connections:
        a, b = sorted(map(ids.index, connection.meshes))
        joined[a, b] += connection.channels
    number, hosts = f"{len(ids)} mesh{'es' * (len(ids) > 1)}", f"{descriptor.total_hosts} hosts"
    title = f"{number}, {descriptor.total_devices} chips, {hosts}"
    fold = len(ids) if len(ids) <= 3 else math.ceil(math.sqrt(len(ids)))
    picture = MeshPicture(title, (len(ids),), tuple(ids), tuple(joined), 1, fold=fold)
    drawing = MeshDrawing(picture, BOX_W, host="")
    for mesh, corner in zip(meshes, drawing.corners):
        about = f"{mesh.size_text}, {counted(mesh.num_hosts, 'host')}"
        drawing.chip(corner, [f"mesh {mesh.mesh_id}", about], tone(mesh.mesh_id))
    for pair, links in joined.items() if len(joined) <= 40 else ():
        (x1, y1), (x2, y2), (right, up) = drawing.course(*pair)
        beside = 8 if x1 == x2 else 0  # a line that goes down, not on it
        x, y = (x1 + x2) / 2 + 0.75 * right + beside, (y1 + y2) / 2 + 0.75 * up
        drawing.words(x, y + 4 if beside else y - 3, str(links), size=11, halo=True)
    if joined:
        note = "A number on a line: ethernet links between the two meshes."
    else:
        note = "No links between the meshes: they cannot send to one another."
    return Figure(title, [drawing], [note], text=title)

"""Pictures of mesh graph descriptors: which chip of which host a coordinate is, and what joins
the meshes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ttkit.hardware.systems import grid_links
from ttkit.visualize.drawing import INK, Drawing, tone, width_of
from ttkit.visualize.mesh import CHIP_H, LONGEST, MeshDrawing, MeshPicture, Wire
from ttkit.words import counted

LARGEST = 256  # chips of a mesh that is drawn chip by chip
MOST = 4  # kinds of meshes that are drawn chip by chip
BOX_W, BOX_H, GAP = 132, 58, 44  # of a mesh in the picture of several


def heading(mesh: Any) -> str:
    """A mesh in one line."""
    hosts = f", {mesh.num_hosts} hosts" if mesh.num_hosts > 1 else ""
    links = f"{counted(mesh.channels, 'link')} between neighbours, {mesh.policy}"
    return (
        f"mesh {mesh.mesh_id}: {mesh.size_text} {mesh.arch}, {' x '.join(mesh.dim_types)}, "
        f"{links}{hosts}"
    )


def described(descriptor: Any) -> str:
    """A descriptor as text: each mesh chip by chip, then the connections."""
    lines = []
    for mesh in descriptor.meshes:
        lines.append(heading(mesh))
        if mesh.num_devices > LARGEST or descriptor.total_devices > 4 * LARGEST:
            continue
        chips = _chips(mesh)
        for r in range(mesh.device_dims[0]):
            row = [chips[r, c] for c in range(mesh.device_dims[1])]
            lines.append(
                "  "
                + "  ".join(
                    f"{f'host {host} ' if mesh.num_hosts > 1 else ''}device {device}"
                    for host, device in row
                )
            )
    for connection in descriptor.connections:
        lines.append(
            f"mesh {connection.meshes[0]} - mesh {connection.meshes[1]}: "
            f"{connection.channels} links, {connection.policy}"
        )
    return "\n".join(lines)


def _chips(mesh: Any) -> dict[tuple[int, int], tuple[int, int]]:
    """Host rank and device id of the chip at each coordinate."""
    from ttkit.descriptors import chips_of  # imports protobuf

    return chips_of(mesh)


def draw_descriptor(descriptor: Any) -> Iterator[Drawing]:
    """The pictures of a descriptor: all meshes where there are several, then each kind of mesh
    chip by chip where it is small enough.
    """
    kinds: dict[Any, list[Any]] = {}
    for mesh in descriptor.meshes:
        kinds.setdefault(replace(mesh, mesh_id=0, name=""), []).append(mesh)
    small = [same for kind, same in kinds.items() if kind.num_devices <= LARGEST][:MOST]
    if len(descriptor.meshes) > 1 or not small:
        yield draw_graph(descriptor)
    for same in small:
        yield draw_instance(same[0], tuple(mesh.mesh_id for mesh in same[1:]))


def instance_picture(mesh: Any) -> MeshPicture:
    """The data of the picture of one mesh: chips with the ids they have on their hosts, and the
    links that the descriptor names.
    """
    rows, columns = mesh.device_dims
    wires = [
        Wire(
            a,
            b,
            mesh.channels if mesh.channels <= 4 else 1,
            abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1,
        )
        for a, b, _ in grid_links(mesh.device_dims, mesh.rings)
    ]
    parts = [mesh.part_of(rank) for rank in range(mesh.num_hosts)] if mesh.num_hosts > 1 else []
    hosts = tuple(
        tuple((r + i, c + k) for i in range(h) for k in range(w)) for (r, c), (h, w) in parts
    )
    fold = LONGEST if 1 in (rows, columns) and rows * columns > LONGEST else 0
    devices = tuple(device for _, device in _chips(mesh).values())
    return MeshPicture(
        heading(mesh), rows, columns, devices, tuple(wires), () if fold else hosts, True, (), fold
    )


def draw_instance(mesh: Any, others: tuple[int, ...] = ()) -> Drawing:
    """One mesh chip by chip: device id on its host, coordinate, host; hosts by colour;

    `others` are meshes like it.
    """
    picture, hosts = instance_picture(mesh), [host for host, _ in _chips(mesh).values()]
    links = (
        f"a line is {mesh.channels if mesh.channels > 4 else 'one'} ethernet "
        f"link{'s' * (mesh.channels > 4)}"
    )
    several = mesh.num_hosts > 1
    ink, soft = (INK, INK) if several else ("var(--ink)", "var(--soft)")
    which = f"{', its host rank' * several}{'; dotted: one host' * bool(picture.boards)}"
    foot = [f"Each chip: its device id, its coordinate{which}; {links}."]
    if others:
        foot.append(f"Like it: mesh {', '.join(map(str, others))}.")
    frame = MeshDrawing(
        picture, height=CHIP_H + 14 * several, foot=foot, host=f"mesh {mesh.mesh_id}"
    )

    def chip(index: int, x: float, y: float) -> None:
        frame.drawing.box(
            x, y, frame.w, frame.h, fill=tone(hosts[index]) if several else "var(--chip)"
        )
        frame.drawing.words(
            x + frame.w / 2,
            y + 25,
            f"device {picture.devices[index]}",
            size=14,
            colour=ink,
            bold=True,
        )
        frame.drawing.words(x + frame.w / 2, y + 44, picture.label(index), size=12, colour=soft)
        if several:
            frame.drawing.words(
                x + frame.w / 2, y + 61, f"host {hosts[index]}", size=12, colour=ink
            )

    return frame.fill(chip)


def draw_graph(descriptor: Any) -> Drawing:
    """All meshes as boxes, and a line for each pair that is joined, with its number of links."""
    meshes = descriptor.meshes
    joined: Counter[tuple[int, int]] = Counter()
    for connection in descriptor.connections:
        joined[min(connection.meshes), max(connection.meshes)] += connection.channels
    columns = len(meshes) if len(meshes) <= 3 else math.ceil(math.sqrt(len(meshes)))
    rows = -(-len(meshes) // columns)
    # Back and forth, so that a chain of meshes is drawn as one.
    spots = [
        (r, c if r % 2 == 0 else columns - 1 - c)
        for r, c in itertools.product(range(rows), range(columns))
    ]
    place = {mesh.mesh_id: spot for mesh, spot in zip(meshes, spots)}
    arcs = any(
        place[a][0] == place[b][0] == 0 and abs(place[a][1] - place[b][1]) > 1 for a, b in joined
    )
    top = 60.0 if arcs else 30.0
    corner = {
        mesh_id: (10.0 + c * (BOX_W + GAP), top + r * (BOX_H + GAP))
        for mesh_id, (r, c) in place.items()
    }
    title = (
        f"{len(meshes)} mesh{'es' * (len(meshes) > 1)}, {descriptor.total_devices} chips, "
        f"{descriptor.total_hosts} hosts"
    )
    note = (
        "A number on a line: ethernet links between the two meshes."
        if joined
        else "No links between the meshes: they cannot send to one another."
    )
    width = max(20.0 + columns * (BOX_W + GAP) - GAP, width_of(note, 11) + 12)
    drawing = Drawing(width, top + rows * (BOX_H + GAP), title, title)
    drawing.words(3, 16, title, size=13, anchor="start", bold=True)
    labels = []
    for (a, b), links in sorted(joined.items()):
        (x1, y1), (x2, y2) = ((x + BOX_W / 2, y + BOX_H / 2) for x, y in (corner[a], corner[b]))
        far = abs(x1 - x2) > BOX_W + GAP + 1 or abs(y1 - y2) > BOX_H + GAP + 1
        if far and y1 == y2:
            drawing.arc((x1, y1 - BOX_H / 2), (x2, y2 - BOX_H / 2), (0, -26))
            labels.append(((x1 + x2) / 2, y1 - BOX_H / 2 - 22, links))
        else:
            drawing.line(x1, y1, x2, y2, colour="var(--wrap)" if far else "var(--wire)")
            # beside a line, not on it
            labels.append(
                ((x1 + x2) / 2 + 8 * (x1 == x2), (y1 + y2) / 2 + (4 if x1 == x2 else -3), links)
            )
    for mesh in meshes:
        x, y = corner[mesh.mesh_id]
        drawing.box(x, y, BOX_W, BOX_H, fill=tone(mesh.mesh_id))
        drawing.words(x + BOX_W / 2, y + 24, f"mesh {mesh.mesh_id}", size=14, colour=INK, bold=True)
        hosts = counted(mesh.num_hosts, "host")
        drawing.words(x + BOX_W / 2, y + 43, f"{mesh.size_text}, {hosts}", size=12, colour=INK)
    if len(labels) <= 40:
        for x, y, links in labels:
            drawing.words(x, y, str(links), size=11, halo=True)
    drawing.words(
        3, top + rows * (BOX_H + GAP) - 16, note, size=11, colour="var(--soft)", anchor="start"
    )
    return drawing

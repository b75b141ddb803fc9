"""Meshes and tensors as tables on a terminal, as ttnn prints them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ttkit import backend
from ttkit.visualize.placement import (
    Coordinate,
    Ranges,
    colour,
    filled,
    grid_of,
    ids_at,
    mesh_shape_of,
    shards_of,
    slice_text,
)

CELL = 30  # columns of text
Table = list[Any]  # what rich prints, in order


def _table(title: str, columns: int, cells: Sequence[tuple[str, str | None]]) -> Any:
    """A table of (text, background) in rows under a title."""
    from rich import box
    from rich.align import Align
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, show_header=False, box=box.SQUARE, show_lines=True, padding=(0, 0))
    for _ in range(columns):
        table.add_column(justify="center", vertical="middle", width=CELL)
    boxes = []
    for text, background in cells:
        content = Align(Text(text, justify="center"), "center", vertical="middle")
        content.style = f"on {background}" if background else None
        boxes.append(content)
    for start in range(0, len(boxes), columns):
        table.add_row(*boxes[start : start + columns])
    return table


def system_table() -> Table:
    """The machine: its shape, and the id and coordinate of each chip."""
    ttnn = backend.load()
    system = ttnn._ttnn.multi_device.SystemMeshDescriptor()
    whole, local = system.shape(), system.local_shape()
    cells: list[tuple[str, str | None]] = []
    for c in ttnn.MeshCoordinateRange(whole):
        text = (
            f"Dev. ID: {system.get_device_id(c)}\n({c[0]}, {c[1]})"
            if system.is_local(c)
            else f"Remote\nUnknown\n({c[0]}, {c[1]})"
        )
        cells.append(
            (text, "dark_green")
            if system.all_local()
            else ("Local\n" * system.is_local(c) + text, None)
        )
    title = f"SystemMesh Global Shape: {_pair(whole)} | Local Shape: {_pair(local)}"
    return [
        f"\n[bold green]SystemMesh Global Shape: {whole}[/bold green]",
        f"\n[bold blue]SystemMesh Local Shape: {local}[/bold blue]\n",
        _table(title, tuple(whole)[-1], cells),
    ]


def mesh_table(mesh_device: Any) -> Table:
    """A mesh: the id and coordinate of each chip."""
    rows, columns = tuple(mesh_device.shape)
    ids = ids_at(mesh_device)
    cells: list[tuple[str, str | None]] = [
        (f"{_head(ids, place)}({place[0]}, {place[1]})\n", None) for place in ids
    ]
    return [_table(f"MeshDevice(rows={rows}, cols={columns})", columns, cells)]


def _head(ids: dict[Coordinate, int | None], place: Coordinate) -> str:
    """The first lines of a chip: its id, and where ranks share the mesh, whether this rank
    drives it.
    """
    if ids[place] is None:
        return "Remote\nUnknown ID\n"
    return ("Local\n" if None in ids.values() else "") + f"Dev. ID: {ids[place]}\n"


def tensor_table(tensor: Any) -> Table:
    """A tensor's placements and, for each chip, the slice that it holds; equal slices have equal
    backgrounds.

    This is what ttnn says, which is not always what the chips hold: with a tensor on a part of a
    mesh, ttnn takes the first shards for those of the first places that the topology names; a
    negative dimension is taken for one that is not cut."""
    from rich.panel import Panel

    topology, mesh = tensor.tensor_topology(), tensor.device()
    mesh_shape, shape = mesh_shape_of(tensor), tuple(tensor.shape)
    distribution, named = (
        tuple(topology.distribution_shape()),
        [tuple(c) for c in topology.mesh_coords()],
    )
    shards = shards_of(tensor)
    axis_of: dict[int, int] = {}
    for axis, placement in enumerate(topology.placements()):
        if getattr(placement, "dim", None) is not None:
            axis_of.setdefault(placement.dim, axis)
    whole = list(shape)
    # a negative dimension counts here, though its slices are printed as not cut
    for dim, axis in axis_of.items():
        whole[dim] *= distribution[axis]
    ranges_at = _ranges_at(
        distribution, mesh_shape, named, shards, axis_of, shape, on_host=mesh is None
    )

    groups: dict[Ranges, int] = {}
    group_at = {place: groups.setdefault(ranges_at(place), len(groups)) for place in named}
    holds = set(named[:shards])
    about = f"Shape: {list(shape)}\nDtype: {tensor.dtype.name}\nLayout: {tensor.layout.name}"
    ids = ids_at(mesh) if mesh is not None else {}
    here = (
        {place: _is_here(tensor, place) for place in itertools.product(*map(range, mesh_shape))}
        if mesh is None
        else {}
    )
    cells: list[tuple[str, str | None]] = []
    for place in itertools.product(*map(range, mesh_shape)):
        text = (
            _head(ids, place)
            if ids
            else ""
            if all(here.values())
            else "Local\n"
            if here[place]
            else "Remote\n"
        )
        text += f"({place[0]}, {place[1]})\n"
        if ids and ids[place] is None:  # of a chip of another rank, ttnn says no more
            cells.append((text, None))
            continue
        if place in holds:
            text += f"{slice_text(ranges_at(place), tuple(whole))}\n{about}"
        cells.append((text, colour(group_at[place], len(groups)) if place in group_at else None))
    panel = Panel(str(topology.placements()), title="Placement Configuration", border_style="blue")
    return [
        panel,
        _table(f"Tensor(storage: {tensor.storage_type()})", grid_of(mesh_shape)[1], cells),
    ]


def _is_here(tensor: Any, place: Coordinate) -> bool:
    coordinate, buffer = backend.load().MeshCoordinate, tensor.host_buffer()
    return len(place) != buffer.shape().dims() or bool(buffer.is_local(coordinate(list(place))))


def _ranges_at(
    distribution: Coordinate,
    mesh_shape: Coordinate,
    named: list[Coordinate],
    shards: int,
    axis_of: dict[int, int],
    shape: Coordinate,
    *,
    on_host: bool,
) -> Callable[[Coordinate], Ranges]:
    """A function that says what ttnn prints for a place: (start, end) in each dimension.

    Along each axis, ttnn asks one place for the size of each part: on the host the first one that
    the topology names, on devices the last one that the distribution fills. A place without a
    shard, or none at all, makes a part of size 0."""
    places = filled(distribution, mesh_shape)
    part_at = dict(zip(places, itertools.product(*map(range, distribution))))
    has_part: list[dict[int, bool]] = [{} for _ in distribution]
    if on_host:
        for place in reversed(named):
            for axis, part in enumerate(part_at.get(place, place)[: len(distribution)]):
                has_part[axis][part] = True
    elif len(distribution) <= 2:
        holds = set(named[:shards])
        for place, parts in part_at.items():
            for axis, part in enumerate(parts):
                has_part[axis][part] = place in holds

    def ranges(place: Coordinate) -> Ranges:
        own = part_at.get(place, place)
        found = []
        for dim, size in enumerate(shape):
            axis = axis_of.get(dim)
            part = 0 if axis is None or axis >= len(own) else own[axis]
            if axis is None or part >= distribution[axis]:
                found.append((0, size))
            else:
                sizes = [size * has_part[axis].get(p, False) for p in range(part + 1)]
                found.append((sum(sizes[:-1]), sum(sizes)))
        return tuple(found)

    return ranges


def _pair(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})"


def as_text(table: Table, width: int = 160) -> str:
    """A table as plain text of a fixed width."""
    import io

    from rich.console import Console

    page = io.StringIO()
    console = Console(
        file=page, width=width, color_system=None, force_terminal=False, force_jupyter=False
    )
    for part in table:
        console.print(part)
    return page.getvalue().rstrip("\n")


def _print(what: str, make: Callable[..., Table], *args: Any) -> None:
    """Print a table; like ttnn, say on the error stream why there is none rather than raise."""
    from rich.console import Console

    try:
        table = make(*args)
    except Exception as error:
        print(f"Error visualizing {what}: {error}", file=sys.stderr)
        return
    console = Console()
    for part in table:
        console.print(part)


def visualize_system_mesh() -> None:
    """Print the machine: its shape, and the id and coordinate of each chip."""
    _print("system mesh", system_table)


def visualize_mesh_device(mesh_device: Any) -> None:
    """Print a mesh: the id and coordinate of each chip."""
    _print("mesh device", mesh_table, mesh_device)


def visualize_tensor(tensor: Any) -> None:
    """Print a tensor's placements and the slice that each chip holds."""
    _print("tensor", tensor_table, tensor)

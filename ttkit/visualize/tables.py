"""Meshes and tensors as tables on a terminal, as ttnn prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ttkit import backend
from ttkit.visualize.placement import colour, grid_of, placed

CELL = 30  # columns of text


def _print_table(title: str, columns: int, cells: Sequence[tuple[str, str | None]]) -> None:
    """Print cells of (text, background) in rows under a title."""
    from rich import box
    from rich.align import Align
    from rich.console import Console
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
    Console().print(table)


def visualize_system_mesh() -> None:
    """Print the machine: its shape, and the id and coordinate of each chip."""
    from rich.console import Console

    system = backend.load()._ttnn.multi_device.SystemMeshDescriptor()
    whole, local = system.shape(), system.local_shape()
    console = Console()
    console.print(f"\n[bold green]SystemMesh Global Shape: {whole}[/bold green]")
    console.print(f"\n[bold blue]SystemMesh Local Shape: {local}[/bold blue]\n")
    coordinates = backend.load().MeshCoordinateRange(whole)
    cells = [(f"Dev. ID: {system.get_device_id(c)}\n({c[0]}, {c[1]})", "dark_green") for c in coordinates]
    rows, columns = tuple(whole)
    inner = tuple(local)
    _print_table(f"SystemMesh Global Shape: ({rows}, {columns}) | Local Shape: ({inner[0]}, {inner[1]})", columns, cells)


def visualize_mesh_device(mesh_device: Any) -> None:
    """Print a mesh: the id and coordinate of each chip."""
    rows, columns = grid_of(tuple(mesh_device.shape))
    ids = mesh_device.get_device_ids()
    cells = [(f"Dev. ID: {device}\n({i // columns}, {i % columns})\n", None) for i, device in enumerate(ids)]
    _print_table(f"MeshDevice(rows={rows}, cols={columns})", columns, cells)


def visualize_tensor(tensor: Any) -> None:
    """Print a tensor's placements and, for each chip, the slice that it holds; equal slices have equal backgrounds."""
    from rich.console import Console
    from rich.panel import Panel

    picture = placed(tensor)
    _, columns = grid_of(picture.mesh_shape)
    cells = []
    for cell in picture.cells:
        text = "" if cell.device is None else f"Dev. ID: {cell.device}\n"
        text += f"({cell.coordinate[0]}, {cell.coordinate[1]})\n"
        if cell.shape is not None:
            text += f"{picture.slice_text(cell)}\nShape: {list(cell.shape)}\nDtype: {tensor.dtype.name}\nLayout: {tensor.layout.name}"
        cells.append((text, None if cell.group is None else colour(cell.group, picture.groups)))
    Console().print(Panel(str(tensor.tensor_topology().placements()), title="Placement Configuration", border_style="blue"))
    _print_table(f"Tensor(storage: {tensor.storage_type()})", columns, cells)

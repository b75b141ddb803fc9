"""Pictures: a figure in a notebook, the tables that ttnn prints on a terminal."""

from __future__ import annotations

import sys
from typing import Any

from ttkit.visualize.drawing import Drawing
from ttkit.visualize.memory import MemoryReport, draw_memory, memory
from ttkit.visualize.mesh import draw_mesh, mesh_picture, system_picture
from ttkit.visualize.tensor import draw_tensor

__all__ = [
    "MemoryReport",
    "memory",
    "mesh_html",
    "tensor_html",
    "visualize_memory",
    "visualize_mesh_device",
    "visualize_system_mesh",
    "visualize_tensor",
]


def in_notebook() -> bool:
    """True inside a Jupyter kernel."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _show(drawing: Drawing) -> None:
    from IPython.display import HTML, display

    display(HTML(drawing.html()))


def mesh_html(mesh: Any) -> str:
    """A mesh's picture as HTML."""
    return draw_mesh(mesh_picture(mesh)).html()


def tensor_html(tensor: Any) -> str:
    """A tensor's picture as HTML."""
    return draw_tensor(tensor).html()


def visualize_mesh_device(mesh: Any) -> None:
    """Show a mesh: its chips, ids and coordinates, and the cables between them; on a terminal as ttnn prints it."""
    if in_notebook():
        return _show(draw_mesh(mesh_picture(mesh)))
    from ttkit.visualize.tables import visualize_mesh_device as table

    return table(mesh)


def visualize_system_mesh() -> None:
    """Show the whole machine; on a terminal as ttnn prints it."""
    from ttkit import backend

    if in_notebook() and backend.is_simulated():
        from ttkit.hardware import current_system

        return _show(draw_mesh(system_picture(current_system())))
    from ttkit.visualize.tables import visualize_system_mesh as table

    return table()


def visualize_tensor(tensor: Any) -> None:
    """Show which part of a tensor each chip holds; on a terminal as ttnn prints it."""
    if in_notebook():
        return _show(draw_tensor(tensor))
    from ttkit.visualize.tables import visualize_tensor as table

    return table(tensor)


def visualize_memory(mesh: Any) -> None:
    """Show how full each chip's memory is."""
    report = memory(mesh)
    if in_notebook():
        return _show(draw_memory(report))
    print(report)
    return None

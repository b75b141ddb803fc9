"""Tables: meshes and tensors on a terminal as ttnn prints them, and reports of numbers."""

import colorsys
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from ttkit import backend
from ttkit.visualize.cells import Coordinate
from ttkit.visualize.drawing import on_page
from ttkit.visualize.mesh import ids_at
from ttkit.visualize.tensor import placed, slice_text

WIDTH = 160  # A table of text is at most this many characters wide, unless its words need more.
# In a table that would be wider than WIDTH, a left-aligned column is folded if one of its texts has
# more than this many characters.
FOLDED = 20
NOWRAP = "right;white-space:nowrap"  # Numbers have this style, so that each stays beside its unit.
# If a table in a notebook has more columns than MANY, the first cell of each row, its name, is in a
# line of its own with the style OWN.
MANY = 8
OWN = "border:0;font-weight:600;padding-bottom:0;text-align:left"
# Every second row is grey, with its name. JupyterLab's own stripes would count names as rows.
STRIPES = (' style="background:none"', ' style="background:var(--chip)"')
CELL = 30  # A cell in the table of a mesh is this many characters wide.
Table = list  # A table is a list of objects, which rich prints in order.
Cell = tuple[str, str | None]  # A cell is its text and its background colour.


def as_text(table: Table, width: int = WIDTH) -> str:
    """Return a table as plain text of at most this width, or of more if its words need more."""
    import io

    from rich.console import Console
    from rich.measure import measure_renderables

    page = io.StringIO()
    console = Console(file=page, width=width, color_system=None, force_jupyter=False)
    anything = console.options.update(max_width=1 << 16)
    console.width = max(width, measure_renderables(console, anything, table).minimum)
    console.print(*table, sep="\n")
    return page.getvalue().rstrip("\n")


# ---------------------------------------------------------------- the tables that ttnn prints
def _table(title: str, columns: int, cells: Sequence[Cell]):
    from rich import box
    from rich.align import Align
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, show_header=False, box=box.SQUARE, show_lines=True, padding=(0, 0))
    for _ in range(columns):
        table.add_column(justify="center", vertical="middle", width=CELL)
    boxes = [
        Align(
            Text(text, justify="center"),
            "center",
            style=f"on {background}" if background else None,
            vertical="middle",
        )
        for text, background in cells
    ]
    for start in range(0, len(boxes), columns):
        table.add_row(*boxes[start : start + columns])
    return table


def system_table() -> Table:
    """Return the table of the machine: its shape, and the id and coordinate of each chip."""
    ttnn = backend.load()
    system = ttnn._ttnn.multi_device.SystemMeshDescriptor()
    whole = system.shape()
    local = system.local_shape()
    ids = {
        tuple(c): system.get_device_id(c) if system.is_local(c) else None
        for c in ttnn.MeshCoordinateRange(whole)
    }
    background = "dark_green" if system.all_local() else None
    cells = [(f"{_head(ids, c, 'Unknown')}({c[0]}, {c[1]})", background) for c in ids]
    shapes = [f"({', '.join(map(str, shape))})" for shape in (whole, local)]
    title = f"SystemMesh Global Shape: {shapes[0]} | Local Shape: {shapes[1]}"
    return [
        f"\n[bold green]SystemMesh Global Shape: {whole}[/bold green]",
        f"\n[bold blue]SystemMesh Local Shape: {local}[/bold blue]\n",
        _table(title, tuple(whole)[-1], cells),
    ]


def mesh_table(mesh_device) -> Table:
    """Return the table of a mesh: the id and coordinate of each chip."""
    rows, columns = tuple(mesh_device.shape)
    ids = ids_at(mesh_device)
    cells = [(f"{_head(ids, place)}({place[0]}, {place[1]})\n", None) for place in ids]
    return [_table(f"MeshDevice(rows={rows}, cols={columns})", columns, cells)]


def _head(ids: dict[Coordinate, int | None], place: Coordinate, unknown: str = "Unknown ID") -> str:
    """Return the first lines of a chip's cell: its id.

    If several ranks share the mesh, the lines also say whether this rank drives the chip.
    """
    if ids[place] is None:
        return f"Remote\n{unknown}\n"
    return ("Local\n" if None in ids.values() else "") + f"Dev. ID: {ids[place]}\n"


def tensor_table(tensor) -> Table:
    """Return the table of a tensor: its placements, and the slice of each chip.

    Chips with equal slices have the same background colour.
    """
    from rich.panel import Panel

    topology = tensor.tensor_topology()
    mesh = tensor.device()
    picture = placed(tensor)
    about = f"Shape: {list(tensor.shape)}\nDtype: {tensor.dtype.name}\nLayout: {tensor.layout.name}"
    groups = len({place.ranges for place in picture.cells} - {None})
    ids, here = {}, {}
    if mesh is not None:
        ids = ids_at(mesh)
    else:
        buffer = tensor.host_buffer()
        every = backend.load().MeshCoordinateRange(buffer.shape())
        here = {tuple(c): buffer.is_local(c) for c in every}
    cells: list[Cell] = []
    for place in picture.cells:
        at = place.coordinate
        if mesh is not None:
            head = _head(ids, at)
        else:
            head = "" if all(here.values()) else "Local\n" if here[at] else "Remote\n"
        text = f"{head}({at[0]}, {at[1]})\n"
        background = None
        # For a chip that another rank drives, ttnn prints the head and the coordinate only.
        if place.ranges is not None and ids.get(at, 0) is not None:
            text += f"{slice_text(place.ranges, picture.whole)}\n{about}"
            background = colour(place.group, groups)
        cells.append((text, background))
    panel = Panel(str(topology.placements()), title="Placement Configuration", border_style="blue")
    title = f"Tensor(storage: {tensor.storage_type()})"
    return [panel, _table(title, picture.mesh_shape[-1], cells)]


def colour(group: int, groups: int) -> str:
    """Return the background of a group as #rrggbb: hues evenly spaced, as in ttnn's tables."""
    parts = colorsys.hsv_to_rgb(group / groups, 0.48, 0.80)
    return f"#{bytes(int(part * 255) for part in parts).hex()}"


TABLES: dict[str, Callable[..., Table]] = {
    "system mesh": system_table,
    "mesh device": mesh_table,
    "tensor": tensor_table,
}


def print_table(what: str, *of) -> None:
    """Print a table of `TABLES`.

    If that fails, print the error on the error stream and do not raise it, as ttnn does.
    """
    from rich.console import Console

    try:
        table = TABLES[what](*of)
    except Exception as error:
        print(f"Error visualizing {what}: {error}", file=sys.stderr)
    else:
        Console().print(*table, sep="\n")


# ---------------------------------------------------------------- reports of numbers
@dataclass(frozen=True)
class Report:
    """A table of text with a title, for a terminal, a notebook or rich.

    Args:
        columns: headings; `<` in front of a heading aligns its column left, other columns are
            aligned right.
        last: a row below the others, such as totals; an empty one is not shown.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    last: Sequence[str] = ()

    def __rich__(self):
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self.title, "bold"), box=box.SQUARE, show_footer=bool(self.last))
        headings = [heading.lstrip("<") for heading in self.columns]
        columns = list(zip(headings, *self.rows, *([self.last] if self.last else [])))
        wide = sum(max(map(len, cells)) + 3 for cells in columns) >= WIDTH
        for heading, cells in zip(self.columns, columns):
            left = heading.startswith("<")
            # A wide table folds long text between words. Columns of numbers are not folded, so each
            # number stays beside its unit.
            folds = left and wide and max(map(len, cells)) > FOLDED
            parts = " ".join(cells).split(" ") if folds else cells
            table.add_column(
                cells[0],
                Text(cells[-1] if self.last else ""),
                width=max(map(len, parts)),
                justify="left" if left else "right",
            )
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def __repr__(self) -> str:
        return as_text([self])

    def _repr_html_(self) -> str:
        def line(cells: Sequence[str], tag: str, right: str = "right", stripe: str = "") -> str:
            found, many = [], len(cells) > MANY
            if many:  # The name at the start has a line of its own, above the numbers.
                found.append(
                    f'<{tag} colspan="99" style="{OWN}">{escape(cells[0])}</{tag}></tr><tr{stripe}>'
                )
            for heading, cell in zip(self.columns[many:], cells[many:]):
                left = f"left;min-width:{min(len(cell), FOLDED)}ch"
                side = left if heading.startswith("<") else right
                # A name such as "ZeRO-2" is not broken at its hyphen.
                whole = r'<span style="white-space:nowrap">\g<0></span>'
                text = re.sub(r"\S+-\S+", whole, escape(cell))
                found.append(f'<{tag} style="text-align:{side}">{text}</{tag}>')
            return f"<tr{stripe}>{''.join(found)}</tr>"

        head = line([heading.lstrip("<") for heading in self.columns], "th")
        body = "".join(line(row, "td", NOWRAP, STRIPES[n % 2]) for n, row in enumerate(self.rows))
        foot = f"<tfoot>{line(self.last, 'th', NOWRAP)}</tfoot>" if self.last else ""
        return on_page(
            f'<div class="ttkit-title">{escape(self.title)}</div><div style="overflow-x:auto">'
            f"<table><thead>{head}</thead><tbody>{body}</tbody>{foot}</table></div>"
        )

"""Pictures of tensors over a mesh: which part of the whole each chip holds."""

from __future__ import annotations

from typing import Any

from ttkit.visualize.drawing import Drawing, shorten
from ttkit.visualize.mesh import MeshDrawing, MeshPicture, _picture
from ttkit.visualize.placement import Cell, Placed, colour, grid_of, placed

WIDTH, HEIGHT = 136, 112
MAP = 44  # side of the small map of the last two dimensions
DARK_INK = "#1c2430"  # words on a coloured chip, in both themes


def draw_tensor(tensor: Any) -> Drawing:
    """A tensor as a picture: the same colour where chips hold the same slice, and a map of the slice in the whole."""
    picture = placed(tensor)
    rows, columns = grid_of(picture.mesh_shape)
    mesh = tensor.device()
    if mesh is not None:
        frame_of = _picture("mesh", rows, columns, tuple(mesh.get_device_ids()), getattr(mesh, "system", None))
    else:
        frame_of = MeshPicture("", rows, columns, tuple(range(rows * columns)), (), (), False)
    where = "on device" if mesh is not None else "in host memory"
    title = f"tensor {list(picture.whole)} {tensor.dtype.name} {tensor.layout.name} {where}"
    placements = ", ".join(f"shard dim {p.dim}" if hasattr(p, "dim") else "replicate" for p in tensor.tensor_topology().placements())
    over = "x".join(map(str, tensor.tensor_topology().distribution_shape()))
    frame = MeshDrawing(frame_of, WIDTH, HEIGHT, title, f"placements over {over}: {placements}; one colour: the same values")
    for cell in picture.cells:
        _chip(frame, picture, cell)
    return frame.drawing


def _chip(frame: MeshDrawing, picture: Placed, cell: Cell) -> None:
    x, y = frame.corner(cell.coordinate)
    drawing = frame.drawing
    label = f"({cell.coordinate[0]}, {cell.coordinate[1]})"
    if cell.device is not None:
        label = f"device {cell.device}  {label}"
    if cell.shape is None or cell.group is None or cell.ranges is None:
        drawing.box(x, y, WIDTH, HEIGHT, fill="var(--empty)")
        drawing.words(x + WIDTH / 2, y + 18, label, size=11.5, colour="var(--soft)")
        drawing.words(x + WIDTH / 2, y + HEIGHT / 2 + 10, "no shard", size=11, colour="var(--soft)")
        return
    drawing.box(x, y, WIDTH, HEIGHT, fill=colour(cell.group, picture.groups, 0.36, 0.93))
    drawing.words(x + WIDTH / 2, y + 17, label, size=11.5, colour=DARK_INK, bold=True)
    left, top = x + (WIDTH - MAP) / 2, y + 24
    drawing.box(left, top, MAP, MAP, fill="#ffffff", edge=DARK_INK, round=0)
    spans = [(0, 1, 1)] * (2 - min(2, len(picture.whole)))
    spans += [(a, b, n) for (a, b), n in zip(cell.ranges[-2:], picture.whole[-2:], strict=True)]
    (r0, r1, height), (c0, c1, width) = ((a / max(n, 1), b / max(n, 1), n) for a, b, n in spans)
    if height and width:
        drawing.box(left + MAP * c0, top + MAP * r0, MAP * (c1 - c0), MAP * (r1 - r0), fill="#3d4a5c", edge="none", round=0)
    drawing.words(x + WIDTH / 2, y + 84, shorten(picture.slice_text(cell), 25), size=10, colour=DARK_INK)
    drawing.words(x + WIDTH / 2, y + 100, shorten(f"shard {list(cell.shape)}", 25), size=10, colour=DARK_INK)

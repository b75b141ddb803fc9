"""Pictures of tensors over a mesh: which part of the whole each chip holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ttkit.visualize.drawing import INK, Drawing, tone, width_of, wrap
from ttkit.visualize.mesh import MeshDrawing, chips_of, picture_of
from ttkit.visualize.placement import Cell, Placed, placed

# side of the small map of the last two dimensions, and the least that is seen of a slice
MAP, SLIVER = 44, 2.5
NAME, SIZE, STEP = 11, 10.5, 13  # sizes of the words in a chip, and from line to line


@dataclass(frozen=True)
class Style:
    """How a chip is filled: the map above the words, or left of them where rows are many and
    columns few.
    """

    width: float
    beside: bool

    @property
    def room(self) -> float:
        """How wide a line of words may be."""
        return self.width - 10 - self.beside * (MAP + 12)


def _style(picture: Placed, names: list[str], rows: int, columns: int) -> Style:
    """As wide as the longest slice, within limits: a line that is wider still is broken.

    Names are never broken.
    """
    beside = rows >= 4 and columns <= 4
    least, most = (
        (160, 206)
        if beside
        else (124, 168 if columns <= 4 else 140)
        if columns <= 6
        else (100, 112)
    )
    texts = [picture.slice_text(c) for c in picture.cells] + [
        f"shard {list(c.shape)}" for c in picture.cells if c.shape is not None
    ]
    around = 11 + beside * (MAP + 12)
    longest, name = (
        max((width_of(text, SIZE) for text in texts), default=0),
        max(width_of(text, NAME, bold=True) for text in names),
    )
    return Style(max(min(max(longest + around, least), most), name + around), beside)


def draw_tensor(tensor: Any) -> Drawing:
    """A tensor as a picture: the same colour where chips hold the same slice, and a map of the
    slice in the whole.
    """
    kind = f"{tensor.dtype.name} · {tensor.layout.name}"
    if not tensor.is_allocated():
        return _gone(f"tensor with shards {list(tensor.shape)} · {kind} · deallocated")
    picture, mesh = placed(tensor), tensor.device()
    if mesh is not None:
        chips = picture_of(
            "mesh", picture.mesh_shape, chips_of(mesh), getattr(mesh, "system", None)
        )
    else:
        chips = picture_of("host", picture.mesh_shape, tuple(range(len(picture.cells))), None)
    away = "" if mesh is None else "remote "
    names = [
        away + chips.label(i) if cell.device is None else f"device {cell.device} {chips.label(i)}"
        for i, cell in enumerate(picture.cells)
    ]
    style = _style(picture, names, *chips.drawn)
    words = _words(picture, names, style)
    tallest = max(map(len, words))
    height = max(MAP + 16, STEP * tallest + 14) if style.beside else MAP + STEP * tallest + 22
    title = (
        f"tensor {list(picture.whole)} · {kind} · "
        f"{'on device' if mesh is not None else 'in host memory'}"
    )
    frame = MeshDrawing(
        chips,
        style.width,
        height,
        title,
        _notes(tensor, picture),
        "host" if mesh is not None else "host memory",
    )
    return frame.fill(
        lambda i, x, y: _chip(frame, picture, picture.cells[i], words[i], tallest, style, x, y)
    )


def _gone(title: str) -> Drawing:
    drawing = Drawing(width_of(title, 13, bold=True) + 8, 24, title)
    drawing.words(3, 16, title, size=13, anchor="start", bold=True)
    return drawing


def _notes(tensor: Any, picture: Placed) -> list[str]:
    """Sentences under the picture: how the tensor is placed, and what the colours mean."""
    if len(picture.cells) == 1:
        return []
    topology = tensor.tensor_topology()
    over = tuple(topology.distribution_shape())
    kinds = [
        "replicated" if getattr(p, "dim", None) is None else f"dim {p.dim} is cut"
        for p in topology.placements()
    ]
    if len(over) == len(picture.mesh_shape):
        how = [f"mesh axis {axis} ({n}): {kind}" for axis, (n, kind) in enumerate(zip(over, kinds))]
    else:
        how = [f"{'x'.join(map(str, over))} in row order: {', '.join(kinds)}"]
    text = f"Placement, as ttnn records it: {', '.join(how)}. One colour: the same slice."
    if picture.unequal:
        return [
            text,
            "Striped: recorded as copies of one slice, but the values differ from chip to chip, "
            "as those of partial results do.",
        ]
    return [text]


def _words(picture: Placed, names: list[str], style: Style) -> list[list[str]]:
    """The lines in each chip: which it is, its slice, its shard's shape; the same line at the
    same height in all.
    """
    slices = [
        wrap(picture.slice_text(cell), style.room, SIZE) if cell.shape is not None else ["no shard"]
        for cell in picture.cells
    ]
    most = max(map(len, slices))
    words = []
    for name, cell, lines in zip(names, picture.cells, slices):
        shape = _shape_lines(cell.shape, style.room) if cell.shape is not None else []
        words.append([name, *lines, *[""] * (most - len(lines)), *shape])
    return words


def _shape_lines(shape: tuple[int, ...], room: float) -> list[str]:
    lines = wrap(f"shard {list(shape)}", room, SIZE, 2)
    alone = str(list(shape))
    return ["shard", alone] if len(lines) == 2 and width_of(alone, SIZE) <= room else lines


def _chip(
    frame: MeshDrawing,
    picture: Placed,
    cell: Cell,
    words: list[str],
    tallest: int,
    style: Style,
    x: float,
    y: float,
) -> None:
    drawing, empty = frame.drawing, cell.group is None
    fill = "var(--empty)" if cell.group is None else tone(cell.group)
    drawing.box(x, y, frame.w, frame.h, fill=fill, dash="4 3" if cell.device is None else "")
    if cell.group in picture.unequal:
        drawing.stripes(x + 3, y + 3, frame.w - 6, frame.h - 6)
    ink = "var(--soft)" if empty else INK
    if empty:
        drawing.words(x + frame.w / 2, y + 16, words[0], size=NAME, colour=ink)
        drawing.words(x + frame.w / 2, y + frame.h / 2 + 10, words[1], size=SIZE, colour=ink)
    elif style.beside:
        _map(drawing, picture, cell, x + 8, y + (frame.h - MAP) / 2)
        left, top = x + MAP + 16, y + (frame.h - STEP * tallest) / 2 + 10
        drawing.words(left, top, words[0], size=NAME, colour=ink, anchor="start", bold=True)
        drawing.lines(left, top + STEP, words[1:], size=SIZE, step=STEP, colour=ink, anchor="start")
    else:
        drawing.words(x + frame.w / 2, y + 16, words[0], size=NAME, colour=ink, bold=True)
        _map(drawing, picture, cell, x + (frame.w - MAP) / 2, y + 22)
        drawing.lines(x + frame.w / 2, y + MAP + 36, words[1:], size=SIZE, step=STEP, colour=ink)


def _map(drawing: Drawing, picture: Placed, cell: Cell, left: float, top: float) -> None:
    """The last two dimensions of the whole tensor as a square, what the chip holds of them in
    it.
    """
    drawing.box(left, top, MAP, MAP, fill="#ffffff", edge=INK, round=0)
    spans = [(0, 1, 1)] * (2 - min(2, len(picture.whole)))
    spans += [(a, b, n) for (a, b), n in zip((cell.ranges or ())[-2:], picture.whole[-2:])]
    if all(n for _, _, n in spans):
        (r0, r1), (c0, c1) = ((MAP * a / n, MAP * b / n) for a, b, n in spans)
        w, h = max(c1 - c0, SLIVER), max(r1 - r0, SLIVER)
        drawing.box(
            left + min(c0, MAP - w),
            top + min(r0, MAP - h),
            w,
            h,
            fill="#3d4a5c",
            edge="none",
            round=0,
        )

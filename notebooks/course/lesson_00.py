"""Lesson 00, start here: the picture of a model on several chips, and its exercises."""

from __future__ import annotations

from typing import Any

from ttkit.lessons.exercises import exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes, numbers, replicas, split
from ttkit.visualize.drawing import BAD, INK, Drawing, Figure, tone, width_of
from ttkit.words import counted, short

# ---------------------------------------------------------------- a model on several chips
STATE = {"weights": "", "gradients": "1.2 7", "optimizer": "1.2 3"}  # kind: stripes over its bar
LABELS, BARS, WORDS = 64, 204, 152  # widths of the names, the longest bar and the words after it
STEP, BAR, SIZE = 27, 19, 12.5  # from bar to bar, height of a bar, size of the words


def shares(plan: Any, chips: tuple[int, ...] = (1, 2, 4, 8, 16, 32)) -> Figure:
    """Return the picture of a model's training state, cut evenly over so many chips.

    Activations, which depend on the batch, are left out.

    Args:
        plan: what `training_plan` returns.

    Example:
        >>> from ttkit.train import Settings, training_plan
        >>> shares(training_plan(Settings(), "n150"), chips=(1, 2))
        11 million weights in training: what one chip holds (computed); a chip has 12 GB
          1 chip: 188 MB, fits: weights 46.9 MB, gradients 46.9 MB, optimizer 93.8 MB
          2 chips: 93.8 MB, fits: weights 23.4 MB, gradients 23.4 MB, optimizer 46.9 MB
    """
    held = {n: {kind: plan.memory[kind] / n for kind in STATE} for n in chips}
    title = f"{plan.parameters / 1e6:,.0f} million weights in training: what one chip holds"
    return draw_shares(f"{title} (computed)", held, plan.system.chip.dram_bytes)


def draw_shares(title: str, held: dict[int, dict[str, float]], room: float) -> Figure:
    """Draw a bar for each number of chips, beside a chip's memory.

    Args:
        held: {number of chips: {kind: bytes of one chip}}.
        room: a chip's memory, in bytes.
    """
    drawing = Drawing(LABELS + BARS + WORDS, 44 + STEP * len(held), title)
    most = max(room, *(sum(kinds.values()) for kinds in held.values()))
    line, x = LABELS + BARS * room / most, LABELS + 8.0
    for i, kind in enumerate(STATE):
        _bar(drawing, (x, 4, 22, 13), i, "")
        drawing.words(x + 28, 15, kind, size=SIZE, anchor="start")
        x += 44 + width_of(kind, SIZE)
    lines = [f"{title}; a chip has {short(room, 'B')}"]
    for row, (chips, kinds) in enumerate(held.items()):
        size, left, y = sum(kinds.values()), float(LABELS), 34 + STEP * row
        said = f"{short(size, 'B')}, {'fits' if size <= room else 'does not fit'}"
        name, parts = (
            counted(chips, "chip"),
            [f"{kind} {short(kinds[kind], 'B')}" for kind in STATE],
        )
        drawing.words(LABELS - 7, y + 14, name, size=SIZE, anchor="end")
        for i, kind in enumerate(STATE):
            width = BARS * kinds[kind] / most
            _bar(drawing, (left, y, width, BAR), i, f"{name}: {parts[i]}")
            left += width
        drawing.words(max(left, line) + 7, y + 14, said, size=SIZE, anchor="start")
        lines.append(f"  {name}: {said}: {', '.join(parts)}")
    drawing.line((line, 26), (line, drawing.height - 4), colour=BAD, width=2.5)
    note = f"Red line: a chip's memory, {short(room, 'B')}."
    return Figure(title, [drawing], [note], "\n".join(lines))


def _bar(drawing: Drawing, at: tuple[float, float, float, float], i: int, hover: str) -> None:
    """Draw a part of a bar, with the stripes of its kind, so that colour is not needed."""
    (x, y, width, height), dash = at, list(STATE.values())[i]
    look: dict[str, Any] = {"fill": tone(i), "stroke": INK, "stroke_width": 0.8}
    if dash:
        middle = y + height / 2
        drawing.add("rect", x=x, y=y, width=width, height=height, **look)
        ends = (x + 1, middle), (x + width, middle)
        drawing.line(*ends, colour=INK, width=height - 1, dash=dash)
        look = {"fill": "transparent"}
    drawing.add("rect", hover=hover, x=x, y=y, width=width, height=height, **look)


# ---------------------------------------------------------------- exercises
exercise(
    "00.double",
    asks="double(mesh, x)",
    reference=lambda mesh, x: split(mesh, 2 * x, 1),
    cases=OnMeshes(
        [(2, 4), (1, 3)],
        lambda rows, columns: [(numbers(96, 64 * rows * columns), (96, 64))],
    ),
    mistakes={
        "the columns are there, but nothing doubled them": lambda mesh, x: split(mesh, x, 1),
        "the columns were doubled twice": lambda mesh, x: split(mesh, 4 * x, 1),
        "these are rows, dimension 0; columns are asked for": lambda mesh, x: split(mesh, 2 * x, 0),
        "every device holds all columns": lambda mesh, x: replicas(mesh, 2 * x),
    },
    budget=Budget(sends=0),
    praise="every device doubled its own columns",
    hints=[
        "The lesson cuts rows, which are dimension 0. Which dimension are columns?",
        "Three steps: a mapper that cuts that dimension over the mesh, a tensor on the mesh, an "
        "operation on the tensor. x itself stays as it is.",
        "mapper = ttnn.ShardTensorToMesh(mesh, dim=1); tensor = ttkit.from_numpy(x, device=mesh, "
        "layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper). Then double the tensor, and return it.",
    ],
)

exercise(
    "00.share",
    asks="the number of elements",
    reference=lambda: 384,
    mistakes={
        "that is the whole tensor; eight devices share it": lambda: 48 * 64,
        "that is how many rows the whole tensor has": lambda: 48,
        "that is how many rows a chip holds; each row has 64 elements": lambda: 48 // 8,
        "that is one row; a chip holds several": lambda: 64,
        "that cuts columns; rows are cut, and each row stays whole": lambda: 64 // 8,
        "that would be right for four devices; there are eight": lambda: 48 * 64 // 4,
        "those are the bytes in float32; elements are asked for": lambda: 4 * 384,
    },
    praise="384 elements on each device",
    hints=[
        "How many rows does each chip hold?",
        "Each of these rows has all 64 elements. Multiply.",
    ],
)

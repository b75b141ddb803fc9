"""Lesson 10, tensor parallel: a picture of f and g, and the exercises."""

from collections.abc import Callable
from unittest.mock import patch

import numpy as np

from course.arrays import numbers, replicas
from course.lesson_03 import PARTIAL, partial_sums
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes
from ttkit.visualize.drawing import INK, Drawing, Figure, tone
from ttkit.words import counted


def passes(direction: str = "forwards", chips: int = 4, all_reduce: bool = True) -> Figure:
    """Return the picture of a pass through a column-parallel and then a row-parallel matrix.

    From left to right it shows which values of each array a chip has.

    Args:
        direction: "forwards" or "backwards".
        all_reduce: whether the pass has its all-reduce, which is g forwards and f backwards.

    Example:
        >>> passes("backwards", all_reduce=False)
        backwards, 4 chips, without f: dx is a partial sum on each chip, and none is right
          on each chip: dy (whole), downᵀ (columns), gelu' * ... (columns), upᵀ (rows), dx (partial)
    """
    sign, names = "g", ["x", "up", "gelu(...)", "down", "y"]
    if direction == "backwards":
        sign, names = "f", ["dy", "downᵀ", "gelu' * ...", "upᵀ", "dx"]
    columns = list(zip(names, ["whole", "columns", "columns", "rows", "partial"]))
    state, found = f"without {sign}", "a partial sum on each chip, and none is right"
    if all_reduce:
        state, found = f"{sign} is an all-reduce", "the sum on every chip"
        columns.append((names[-1], "sum"))
    title = f"{direction}, {counted(chips, 'chip')}, {state}: {names[-1]} is {found}"
    has = ", ".join(f"{name} ({kind})" for name, kind in columns)
    text = f"{title}\n  on each chip: {has}"
    drawing, step = Drawing(686, 286, text), 250 / chips  # The height is fixed.
    for i, (name, kind) in enumerate(columns):
        left = 52 + 108 * i
        drawing.words(left + 46, 12, [name, kind])
        for chip in range(chips):
            fill = "var(--frame)" if kind in ("whole", "sum") else tone(chip)
            top, high = 34 + step * chip, step - 6
            whole, wide, flat = (left, top, 92, high), 92 / chips, high / chips
            strips = {
                "columns": (left + wide * chip, top, wide, high),
                "rows": (left, top + flat * chip, 92, flat),
            }
            drawing.box(whole, rx=0, fill="var(--page)")
            drawing.box(strips.get(kind, whole), rx=0, fill=fill, stroke=INK)
            drawing.hatch([whole] if kind == "partial" else [], 9)
            before = (f"chip {chip}", *"@→@= ")[i]
            drawing.words(left - 2, top + high / 2 + 4, before, text_anchor="end")
    if all_reduce:
        drawing.line((584, 18), (584, 280), stroke="var(--ink)", stroke_width=4)
        drawing.words(584, 12, sign)
    note = "A strip: the chip's own columns or rows. Grey: the same on every chip. A colour: a "
    note += "chip's own. Hatched: a partial sum."
    return Figure(title, [drawing], [note], text)


def without_f(module: str):
    """Return a context manager that removes f from this module of `ttkit.train.model`."""
    return patch(f"ttkit.train.model.{module}.enter", lambda x, layout: x)


# ---------------------------------------------------------------- both exercises
def _wrong_sums(factors: Callable) -> dict[str, Callable]:
    """Return the mistakes with the one sum of an exercise: no sum, one too many, or a mean.

    Args:
        factors: a function from the arrays to the two matrices whose product is summed.
    """

    def times(power: int) -> Callable:
        return lambda mesh, *arrays: replicas(
            mesh, np.matmul(*factors(*arrays)) * mesh.shape[1] ** power
        )

    return {
        PARTIAL: lambda mesh, *arrays: partial_sums(mesh, *factors(*arrays)),
        "{n} times too large: you summed twice, or summed complete values": times(1),
        "{n} times too small: expected a sum, not a mean": times(-1),
    }


# ---------------------------------------------------------------- 10.swiglu
Hidden = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _silu(a: np.ndarray) -> np.ndarray:
    return a * (1 + np.tanh(a / 2)) / 2


def _mlp(hidden: Hidden) -> Callable:
    """Return a reference: the MLP with the hidden features `hidden(x @ gate, x @ up)`."""
    return lambda mesh, x, gate, up, down: replicas(mesh, hidden(x @ gate, x @ up) @ down)


def _three_matrices(rows: int, columns: int) -> list:
    n = rows * columns
    # The sizes differ from mesh to mesh, so an answer cannot use constants.
    width, out = 32 * (5 - n), 96 * (5 - n)
    x, (gate, up) = numbers(64 * n, width) / 8, numbers(2, width, 32 * n) / 8
    shards = [x.shape, (width, 32), (width, 32), (32, out)]
    return list(zip([x, gate, up, numbers(32 * n, out) / 8], shards))


Exercise(
    "10.swiglu",
    asks="swiglu(mesh, x, gate, up, down)",
    reference=_mlp(lambda a, b: _silu(a) * b),
    cases=OnMeshes([(1, 4), (1, 3)], _three_matrices, fabric=True),
    mistakes={
        "the silu is on x @ up; it belongs on x @ gate": _mlp(lambda a, b: a * _silu(b)),
        "the silu is missing: silu(x @ gate)": _mlp(lambda a, b: a * b),
        "the silu is on the product of both; it belongs on x @ gate alone": _mlp(
            lambda a, b: _silu(a * b)
        ),
        "x @ up is missing: silu(x @ gate) * (x @ up)": _mlp(lambda a, b: _silu(a)),
        "you added the two; multiply silu(x @ gate) by x @ up": _mlp(lambda a, b: _silu(a) + b),
    }
    | _wrong_sums(lambda x, gate, up, down: (_silu(x @ gate) * (x @ up), down)),
    budget=Budget(sends=1),
    rtol=1e-3,
    praise="three matrices need only one sum",
    hints=[
        "Which cut gives a chip finished numbers for its own columns, so that it can multiply them "
        "element by element?",
        "gate and up have the same columns: cut both alike. Which cut of down fits the hidden "
        "features that a chip has?",
        "Cut gate and up by columns, and down by rows. Then each chip has a partial sum, and one "
        "all_reduce adds them.",
    ],
)


# ---------------------------------------------------------------- 10.backward
def _columns(rows: int, columns: int) -> list:
    n = rows * columns
    return [(numbers(64 * n, 32 * n), (64 * n, 32)), (numbers(96 * n, 32 * n), (96 * n, 32))]


Exercise(
    "10.backward",
    asks="backward(mesh, dy, w)",
    reference=lambda mesh, dy, w: replicas(mesh, dy @ w.T),
    cases=OnMeshes([(1, 4), (1, 3)], _columns, fabric=True),
    mistakes=_wrong_sums(lambda dy, w: (dy, w.T)),
    budget=Budget(sends=1),
    rtol=1e-4,
    praise="each of {n} devices has the gradient of x",
    hints=[
        "A chip has some columns of dy and of w. Which numbers of dy @ wᵀ can it compute from "
        "them?",
        "dy @ wᵀ is a sum over the columns. A chip has the part of that sum for its columns.",
        "Call ttnn.matmul(dy, w, transpose_b=True), then do what f does in the backward pass.",
    ],
)

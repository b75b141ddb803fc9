"""A picture of x @ w over chips: who holds what, who computes what, and what must be added."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttkit.errors import fail
from ttkit.visualize.cells import Box, Cell, Cells, Grid
from ttkit.visualize.drawing import Figure, ranges, tone
from ttkit.visualize.tensor import Ranges, placed, slice_text

Range = tuple[int, int]
WIDE, TALL = 300, 170  # Each of the three matrices takes at most so many px.
# Which of the three sizes are cut: samples (rows of x), the summed dimension, columns of w.
CUTS = {
    "samples": (True, False, False),
    "columns": (False, False, True),
    "rows": (False, True, False),
    "both": (True, False, True),
    "nothing": (False, False, False),
}


@dataclass(frozen=True)
class Part:
    """What one chip multiplies: its rows and columns of x by its rows and columns of w."""

    name: str
    x: Ranges
    w: Ranges

    @property
    def inner(self) -> Range:
        """The part of the dimension that is summed over."""
        return self.x[1]

    @property
    def block(self) -> Ranges:
        """The rows and columns of the result to which it adds."""
        return self.x[0], self.w[1]


@dataclass(frozen=True)
class Product:
    """A product x @ w over chips.

    Args:
        shape: rows of x, columns of x (which are rows of w), columns of w.
        reduced: partial sums were added by an all_reduce.
    """

    shape: tuple[int, int, int]
    parts: tuple[Part, ...]
    reduced: bool = False

    @property
    def how(self) -> str:
        """What is cut, in words."""
        rows, columns = (len({part.block[axis] for part in self.parts}) > 1 for axis in (0, 1))
        inner = len({part.inner for part in self.parts}) > 1
        names = {"the samples": rows, "the columns of w": columns, "the rows of w": inner}
        cut = [name for name, is_cut in names.items() if is_cut]
        if cut == ["the rows of w"]:
            return "the rows of w are cut, and the columns of x"
        if cut == ["the samples"]:
            return "the samples, which are rows of x, are cut"
        return f"{' and '.join(cut)} are cut" if cut else "nothing is cut"

    @property
    def blocks(self) -> dict[Ranges, list[Part]]:
        """The chips of each block of the result that some chip computes."""
        found: dict[Ranges, list[Part]] = {}
        for part in self.parts:
            found.setdefault(part.block, []).append(part)
        return found

    @property
    def partial(self) -> bool:
        """Whether a chip multiplies only a part of the dimension that is summed over."""
        return any(part.inner != (0, self.shape[1]) for part in self.parts)

    @property
    def notes(self) -> list[str]:
        """What the picture shows, in sentences."""
        found, blocks = [], self.blocks
        sums = max(len({part.inner for part in parts}) for parts in blocks.values())
        computed = sum((b - a) * (d - c) for (a, b), (c, d) in blocks)
        whole = self.shape[0] * self.shape[2]
        if computed < whole:
            lost = f"{whole - computed} of {whole} numbers"
            found.append(f"Hatched: no chip computes these blocks, {lost}.")
        if self.partial and self.reduced:
            sheets = f"{sums} sheets have become one"
            found.append(f"all_reduce added the partial sums: {sheets}, the same on every chip.")
        elif self.partial:
            found.append(
                f"Each sheet is a partial sum of one chip. all_reduce adds the {sums} sheets."
            )
        elif len(blocks) == 1:
            found.append("Every chip computes the same.")
        elif computed == whole:
            found.append("The blocks make up the whole result: nothing needs to be added.")
        return found


def described(
    cut: str, chips: int | tuple[int, int], shape: tuple[int, int, int] | None, reduced: bool
) -> Product:
    """Return a product that is cut as described.

    Raises:
        TTKitError: an unknown cut, sizes that the chips do not divide, or a sum of unlike blocks.
    """
    asked = f"visualize_matmul(cut={cut!r}, chips={chips})"
    if cut not in CUTS:
        fail(asked, f"cut is one of {', '.join(CUTS)}", "cut='columns'")
    # One number of chips cuts all sizes along one line; a mesh cuts along its rows and columns.
    down, across = (chips, chips) if isinstance(chips, int) else chips
    m, k, n = (pieces if is_cut else 1 for pieces, is_cut in zip((down, down, across), CUTS[cut]))
    if shape is None:
        shape = math.ceil(8 / m) * m, math.ceil(12 / k) * k, math.ceil(16 / n) * n
    for size, pieces, what in zip(shape, (m, k, n), ("samples", "rows of w", "columns of w")):
        if size % pieces:
            rule = f"{size} {what} do not make {pieces} equal parts"
            fail(asked, rule, f"shape=... with a multiple of {pieces}")
    mesh = itertools.product(range(down), range(across))
    places = ((chip, chip) for chip in range(chips)) if isinstance(chips, int) else mesh
    parts = []
    for chip, (row, column) in enumerate(places):
        rows, inner = _share(shape[0], m, row), _share(shape[1], k, row)
        columns = _share(shape[2], n, column)
        parts.append(Part(f"chip {chip}", (rows, inner), (inner, columns)))
    found = Product(shape, tuple(parts), reduced)
    if reduced and not found.partial:
        unlike = len(found.blocks) > 1
        hold = "different blocks of the result" if unlike else f"{len(parts)} copies of one result"
        rule = f"the chips hold {hold}, not partial sums: an all_reduce would give wrong numbers"
        fail(asked, rule, "reduced=False; or cut='rows', which makes partial sums")
    return found


def _share(size: int, pieces: int, which: int) -> Range:
    """Return the range of one of several equal pieces; of one piece, all."""
    length, at = size // pieces, which % pieces
    return at * length, (at + 1) * length


def of_tensors(x: Any, w: Any, result: Any = None, reduced: bool = False) -> Product:
    """Return the product of two tensors of a mesh, as their placements cut it.

    Args:
        result: the tensor x @ w; if the chips of each block hold equal values, the partial sums
            were added.
    """
    left, right = placed(x), placed(w)
    parts: list[Part] = []
    for a, b in zip(left.cells, right.cells):
        if a.ranges is None or b.ranges is None:
            continue
        name = f"device {a.device}" if a.device is not None else f"chip {len(parts)}"
        rows = _folded(a.ranges[:-1], left.whole[:-1])
        parts.append(Part(name, (rows, a.ranges[-1]), b.ranges[-2:]))
    shape = (math.prod(left.whole[:-1]), left.whole[-1], right.whole[-1])
    found = Product(shape, tuple(parts), reduced)
    return replace(found, reduced=reduced or _added(found, result))


def _folded(ranges: Ranges, whole: Sequence[int]) -> Range:
    """Return the rows of a tensor of more than two dimensions, as if it were a matrix."""
    start, length = 0, 1
    for (a, b), size in zip(ranges, whole):
        if length > 1 and (a, b) != (0, size):
            fail("visualize_matmul(x, w)", "x's rows are cut in two dimensions", "cut one of them")
        start, length = start * size + a, length * (b - a)
    return start, start + length


def _added(product: Product, result: Any) -> bool:
    """Return whether the chips of each block hold the same values."""
    # Values on a card are not read; there the caller passes reduced=True.
    if not product.partial or not hasattr(result, "shards"):
        return False
    import numpy as np

    first: dict[Ranges, Any] = {}
    pairs = zip(product.parts, result.shards())
    return all(np.array_equal(first.setdefault(p.block, shard), shard) for p, shard in pairs)


# ---------------------------------------------------------------- drawn
def draw_matmul(
    x: Any = None,
    w: Any = None,
    result: Any = None,
    *,
    cut: str = "columns",
    chips: int | tuple[int, int] = 4,
    shape: tuple[int, int, int] | None = None,
    reduced: bool = False,
) -> Figure:
    """Return the picture that `visualize_matmul` shows; it takes the same arguments."""
    if x is None:
        product = described(cut, chips, shape, reduced)
    else:
        product = of_tensors(x, w, result, reduced)
    (m, k, n), parts = product.shape, product.parts
    title = f"x [{m}, {k}] @ w [{k}, {n}] on {len(parts)} chips: {product.how}"
    lines, wrong = [title], ""
    for part in parts:
        block = slice_text(part.block, (m, n))
        gives = f"a partial sum of result{block}" if product.partial else f"result{block}"
        operands = f"x{slice_text(part.x, (m, k))} @ w{slice_text(part.w, (k, n))}"
        lines.append(f"{part.name}: {operands} -> {gives}")
        if part.inner != part.w[0]:
            a, b = ("{}:{}".format(*ends) for ends in (part.inner, part.w[0]))
            wrong = (
                f"{part.name} multiplies columns {a} of x by rows {b} of w. They do not belong "
                "together: the numbers are wrong, also after an all_reduce."
            )
    text = "\n  ".join([*lines, *product.notes, *([wrong] if wrong else [])])
    # Put w above the result and x to its left, so that an element is where its row of x meets
    # its column of w.
    cells = [
        None,
        _matrix(product, f"w [{k}, {n}]", (k, n), [part.w for part in parts]),
        _matrix(product, f"x [{m}, {k}]", (m, k), [part.x for part in parts]),
        _matrix(product, f"result [{m}, {n}]", (m, n), [part.block for part in parts]),
    ]
    drawing = Cells(Grid(text, (2, 2), (0, 1, 2, 3)), cells, frame="", gap=(16, 12))
    return Figure(title, [drawing], product.notes, text, wrong)


def _matrix(product: Product, name: str, shape: Range, held: Sequence[Ranges]) -> Cell:
    """Return a matrix as a cell: a box for each block, in the colour of the chip that holds it."""
    rows, columns = (sorted(set(ends)) for ends in zip(*held))
    partial = name.startswith("result") and product.partial and not product.reduced
    boxes = []
    for block in itertools.product(rows, columns):
        owners = [i for i, other in enumerate(held) if other == block]
        where = slice_text(block, shape)
        if not owners:
            boxes.append(Box(hatched=True))
        elif partial:
            # Chips that hold the same partial sum share a sheet.
            same: dict[Range, list[int]] = {}
            for chip in owners:
                same.setdefault(product.parts[chip].inner, []).append(chip)
            sheets = [(_names(product, chips), tone(chips[0])) for chips in same.values()]
            texts = [f"{len(sheets)} partial sums", f"{len(sheets)} sums"]
            boxes.append(Box(texts, fill=sheets[0][1], sheets=sheets))
        elif len(owners) == 1:
            name_of = product.parts[owners[0]].name
            boxes.append(Box([name_of, name_of.split()[-1]], where, tone(owners[0])))
        else:
            count = f"{len(owners)} chips"
            everywhere = len(owners) == len(held)
            texts = [f"all {count}", "all"] if everywhere else [_names(product, owners), count]
            boxes.append(Box(texts, where, "var(--chip)"))
    size = WIDE / len(columns), TALL / len(rows)
    return Cell(name, fill="none", boxes=boxes, columns=len(columns), box=size)


def _names(product: Product, chips: Sequence[int]) -> str:
    """Return the names of some chips, in short."""
    kind = product.parts[0].name.split()[0]
    numbers = ranges(int(product.parts[chip].name.split()[-1]) for chip in chips)
    return f"{kind}{'' if len(chips) == 1 else 's'} {numbers}"

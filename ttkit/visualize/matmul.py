"""A picture of x @ w over chips: who holds what, who computes what, and what must be added."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttkit import backend
from ttkit.errors import fail
from ttkit.visualize.cells import Box, Cell, Cells, Grid
from ttkit.visualize.drawing import Figure, ranges, tone
from ttkit.visualize.tensor import Ranges, placed, slice_text

Range = tuple[int, int]
WIDE, TALL = 300, 170  # Each of the three matrices takes at most so many px.
SHEETS = 8  # Of more sheets some are left out.
CUTS = ("samples", "columns", "rows", "both", "nothing")


@dataclass(frozen=True)
class Part:
    """What one chip multiplies: x[rows, inner] @ w[inner_w, columns]."""

    name: str
    rows: Range
    inner: Range
    inner_w: Range
    columns: Range

    @property
    def block(self) -> Ranges:
        """The rows and columns of the result to which it adds."""
        return self.rows, self.columns


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
        names = {"rows": "the samples", "columns": "the columns of w", "inner": "the rows of w"}
        cut = [name for axis, name in names.items() if self.pieces(axis) > 1]
        if cut == ["the rows of w"]:
            return "the rows of w are cut, and the columns of x"
        if cut == ["the samples"]:
            return "the samples, which are rows of x, are cut"
        return f"{' and '.join(cut)} are cut" if cut else "nothing is cut"

    def pieces(self, axis: str) -> int:
        """Return into how many different ranges its chips cut "rows", "columns" or "inner"."""
        return len({getattr(part, axis) for part in self.parts})

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
    def missing(self) -> list[Ranges]:
        """The blocks of the result that no chip computes."""
        rows = sorted({part.rows for part in self.parts})
        columns = sorted({part.columns for part in self.parts})
        have = self.blocks
        return [block for block in itertools.product(rows, columns) if block not in have]

    @property
    def sheets(self) -> int:
        """How many different partial sums make up a block."""
        return max(len({part.inner for part in parts}) for parts in self.blocks.values())

    def names(self, chips: Sequence[int]) -> str:
        """Return the names of some of its chips, in short."""
        kind = self.parts[0].name.split()[0]
        numbers = ranges(int(self.parts[chip].name.split()[-1]) for chip in chips)
        return f"{kind}{'' if len(chips) == 1 else 's'} {numbers}"

    def numbers(self, blocks: Sequence[Ranges]) -> int:
        """Return how many numbers these blocks hold."""
        return sum((b - a) * (d - c) for (a, b), (c, d) in blocks)


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
    grid = (chips, chips) if isinstance(chips, int) else tuple(chips)
    one_axis = isinstance(chips, int)
    if min(grid) < 1 or len(grid) != 2 or (not one_axis and cut != "both"):
        rule = "chips is how many there are; for cut='both' it may also be a mesh such as (2, 2)"
        fail(asked, rule, "chips=4")
    over = {"samples": (grid[0], 1, 1), "columns": (1, 1, grid[0]), "rows": (1, grid[0], 1)}
    m, k, n = over.get(cut, (grid[0], 1, grid[1]) if cut == "both" else (1, 1, 1))
    if shape is None:
        shape = math.ceil(8 / m) * m, math.ceil(12 / k) * k, math.ceil(16 / n) * n
    for size, pieces, what in zip(shape, (m, k, n), ("samples", "rows of w", "columns of w")):
        if size % pieces:
            rule = f"{size} {what} do not make {pieces} equal parts"
            fail(asked, rule, f"shape=... with a multiple of {pieces}")
    count = grid[0] if one_axis else grid[0] * grid[1]
    parts = []
    for chip in range(count):
        down, across = (chip, chip) if one_axis else divmod(chip, grid[1])
        rows, inner = _share(shape[0], m, down), _share(shape[1], k, down)
        parts.append(Part(f"chip {chip}", rows, inner, inner, _share(shape[2], n, across)))
    found = Product(shape, tuple(parts), reduced)
    if reduced and not found.partial:
        unlike = len(found.blocks) > 1
        hold = "different blocks of the result" if unlike else f"{count} copies of one result"
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

    Raises:
        TTKitError: w is no matrix.
        RuntimeError: what ttnn refuses to multiply, in its words.
    """
    left, right = placed(x), placed(w)
    if math.prod(right.whole[:-2]) != 1 or len(right.whole) < 2 or len(left.whole) < 2:
        fail("visualize_matmul(x, w)", f"w is {list(right.whole)}, no matrix", "a w of two axes")
    parts: list[Part] = []
    for a, b in zip(left.cells, right.cells):
        if a.ranges is None or b.ranges is None:
            continue
        name = f"device {a.device}" if a.device is not None else f"chip {len(parts)}"
        rows = _folded(a.ranges[:-1], left.whole[:-1])
        parts.append(Part(name, rows, a.ranges[-1], b.ranges[-2], b.ranges[-1]))
    shape = (math.prod(left.whole[:-1]), left.whole[-1], right.whole[-1])
    for part in parts:
        if part.inner[1] - part.inner[0] != part.inner_w[1] - part.inner_w[0]:
            # The matmul itself raises and explains why the shapes do not fit.
            backend.load().matmul(x, w)
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
    for part, shard in zip(product.parts, result.shards()):
        other = first.setdefault(part.block, shard)
        if other.shape != shard.shape or not np.array_equal(other, shard):
            return False
    return True


def in_words(product: Product) -> list[str]:
    """Return a line for each chip, and lines about what is missing or must be added."""
    m, k, n = product.shape
    lines = []
    for part in product.parts:
        x = slice_text((part.rows, part.inner), (m, k))
        w = slice_text((part.inner_w, part.columns), (k, n))
        block = slice_text(part.block, (m, n))
        gives = f"a partial sum of result{block}" if product.partial else f"result{block}"
        lines.append(f"{part.name}: x{x} @ w{w} -> {gives}")
    return [*lines, *notes(product)]


def notes(product: Product) -> list[str]:
    """Return what the picture shows, in sentences."""
    found = []
    if product.missing:
        lost, whole = product.numbers(product.missing), product.shape[0] * product.shape[2]
        found.append(f"Hatched: no chip computes these blocks, {lost} of {whole} numbers.")
    if product.partial and product.reduced:
        sheets = f"{product.sheets} sheets have become one"
        found.append(f"all_reduce added the partial sums: {sheets}, the same on every chip.")
    elif product.partial:
        found.append(
            f"Each sheet is a partial sum of one chip. all_reduce adds the {product.sheets} sheets."
        )
    elif not product.missing:
        same = "Every chip computes the same." if len(product.blocks) == 1 else ""
        found.append(same or "The blocks make up the whole result: nothing needs to be added.")
    return found


def fault(product: Product) -> str:
    """Return which chip multiplies parts that do not belong together; "" where none does."""
    for part in product.parts:
        if part.inner != part.inner_w:
            a, b = ("{}:{}".format(*ends) for ends in (part.inner, part.inner_w))
            return (
                f"{part.name} multiplies columns {a} of x by rows {b} of w. They do not belong "
                "together: the numbers are wrong, also after an all_reduce."
            )
    return ""


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
    m, k, n = product.shape
    title = f"x [{m}, {k}] @ w [{k}, {n}] on {len(product.parts)} chips: {product.how}"
    text = "\n  ".join([title, *in_words(product)])
    wrong = fault(product)
    parts = product.parts
    # Put w above the result and x to its left, so that an element is where its row of x meets
    # its column of w.
    cells = [
        None,
        _matrix(product, f"w [{k}, {n}]", (k, n), [(p.inner_w, p.columns) for p in parts]),
        _matrix(product, f"x [{m}, {k}]", (m, k), [(p.rows, p.inner) for p in parts]),
        _matrix(product, f"result [{m}, {n}]", (m, n), [p.block for p in parts]),
    ]
    drawing = Cells(Grid(text, (2, 2), (0, 1, 2, 3)), cells, frame=None, gap=(16, 12))
    return Figure(title, [drawing], notes(product), f"{text}\n  {wrong}".rstrip(), wrong)


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
            boxes.append(_sheets(product, owners))
        elif len(owners) == 1:
            chip = product.parts[owners[0]].name
            boxes.append(Box([chip, chip.split()[-1]], where, tone(owners[0])))
        else:
            count = f"{len(owners)} chips"
            texts = [product.names(owners), count]
            if len(owners) == len(held):
                texts = [f"all {count}", "all"]
            boxes.append(Box(texts, where, "var(--chip)"))
    size = WIDE / len(columns), TALL / len(rows)
    return Cell(name, fill="none", boxes=boxes, columns=len(columns), box=size)


def _sheets(product: Product, owners: Sequence[int]) -> Box:
    """Return the partial sums of a block as sheets; chips that hold the same one share a sheet."""
    same: dict[Range, list[int]] = {}
    for chip in owners:
        same.setdefault(product.parts[chip].inner, []).append(chip)
    sheets = [(product.names(chips), tone(chips[0])) for chips in same.values()]
    shown = sheets
    if len(sheets) > SHEETS:
        shown = [*sheets[: SHEETS - 2], ("...", sheets[SHEETS - 2][1]), sheets[-1]]
    return Box(
        [f"{len(sheets)} partial sums", f"{len(sheets)} sums"], fill=sheets[0][1], sheets=shown
    )

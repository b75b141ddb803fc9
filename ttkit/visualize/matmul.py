"""A picture of x @ w over chips: what each chip holds and computes, and what must be added."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from ttkit.errors import fail
from ttkit.visualize.cells import Box, Cell, Cells, Grid
from ttkit.visualize.drawing import Figure, Frames, ranges, tone
from ttkit.visualize.tensor import Ranges, placed, slice_text, unequal
from ttkit.words import grouped

Range = tuple[int, int]
Shape = tuple[int, int, int]  # A shape is (rows of x, rows of w, columns of w).
WIDE, TALL = 292, 170  # Each of the three matrices is this many px wide and high.
# Each value names the sizes that are cut: m is the number of samples (rows of x), k is the number
# of rows of w, and n is the number of columns of w.
CUTS = {"samples": "m", "columns": "n", "rows": "k", "both": "mn", "nothing": ""}


class Part(NamedTuple):
    """The product that one chip computes: x[x_rows, x_columns] @ w[w_rows, w_columns].

    Each range is (start, end). If the shards of x and w belong together, `w_rows` equals
    `x_columns`.
    """

    name: str
    x_rows: Range
    x_columns: Range
    w_rows: Range
    w_columns: Range

    @property
    def block(self) -> Ranges:
        """The rows and columns of the result that this product belongs to."""
        return self.x_rows, self.w_columns


def described(cut: str, chips: int, shape: Shape | None) -> tuple[Shape, list[Part]]:
    """Return the sizes (m, k, n) of a product, and its parts on the chips for a cut of `CUTS`.

    Raises:
        TTKitError: an unknown cut, or sizes that the chips do not divide.
    """
    asked = f"visualize_matmul(cut={cut!r}, chips={chips})"
    if cut not in CUTS:
        fail(asked, f"cut is one of {', '.join(CUTS)}", "cut='columns'")
    pieces = [chips if size in CUTS[cut] else 1 for size in "mkn"]
    m, k, n = shape or (math.ceil(size / p) * p for size, p in zip((8, 12, 16), pieces))
    for size, p, what in zip((m, k, n), pieces, ("samples", "rows of w", "columns of w")):
        if size % p:
            fail(
                asked,
                f"{size} {what} do not make {p} equal parts",
                f"shape=... with a multiple of {p}",
            )
    parts = []
    for chip in range(chips):
        rows, inner, columns = (
            (size // p * (chip % p), size // p * (chip % p + 1))
            for size, p in zip((m, k, n), pieces)
        )
        parts.append(Part(f"chip {chip}", rows, inner, inner, columns))
    return (m, k, n), parts


def of_tensors(x, w) -> tuple[Shape, list[Part]]:
    """Return the sizes of the product of two tensors on a mesh, and its parts on the chips.

    The placements of the tensors say which part each chip computes.
    """
    left, right = placed(x), placed(w)
    parts: list[Part] = []
    for a, b in zip(left.cells, right.cells):
        if a.ranges and b.ranges:
            name = f"chip {len(parts)}" if a.device is None else f"device {a.device}"
            rows = _folded(a.ranges[:-1], left.whole[:-1])
            parts.append(Part(name, rows, a.ranges[-1], *b.ranges[-2:]))
    return (math.prod(left.whole[:-1]), left.whole[-1], right.whole[-1]), parts


def _folded(ranges: Ranges, whole: Sequence[int]) -> Range:
    """Return the (start, end) of a shard's rows after its dimensions are folded into one.

    Args:
        ranges: the shard in all dimensions of the tensor but the last.
        whole: the sizes of these dimensions.
    """
    start, length = 0, 1
    for (a, b), size in zip(ranges, whole):
        if length > 1 and (a, b) != (0, size):
            rule = "the rows of x on a chip do not follow one another"
            fail("visualize_matmul(x, w)", rule, "cut only the first dimension longer than 1")
        start, length = start * size + a, length * (b - a)
    return start, start + length


def what_is_cut(parts: Sequence[Part]) -> str:
    """Return what is cut, in words."""
    names = {
        "x_rows": "the samples (rows of x)",
        "w_columns": "the columns of w",
        "x_columns": "the columns of x (and rows of w)",
    }
    cut = [name for ends, name in names.items() if len({getattr(p, ends) for p in parts}) > 1]
    return f"{' and '.join(cut)} are cut" if cut else "nothing is cut"


def draw_matmul(
    x=None,
    w=None,
    result=None,
    *,
    cut: str = "columns",
    chips: int = 4,
    shape: Shape | None = None,
    reduced: bool = False,
) -> Figure:
    """Return the picture that `visualize_matmul` shows; it takes the same arguments."""
    (m, k, n), parts = described(cut, chips, shape) if x is None else of_tensors(x, w)
    blocks = grouped(parts, lambda part: part.block)
    partial = any(part.x_columns != (0, k) for part in parts)
    if x is None and reduced and not partial:
        fail(
            f"visualize_matmul(cut={cut!r}, chips={chips})",
            "the chips hold no partial sums: an all_reduce would give wrong numbers",
            "reduced=False; or cut='rows', which makes partial sums",
        )
    of_result = [part.block for part in parts]
    if partial and hasattr(result, "shards"):  # A tensor on a card has no `shards`.
        reduced = reduced or not unequal(result, of_result)

    notes = []
    sums = max(len({part.x_columns for part in same}) for same in blocks.values())
    whole = m * n
    computed = sum((b - a) * (d - c) for (a, b), (c, d) in blocks)
    if computed < whole:
        lost = f"{whole - computed} of {whole} numbers"
        notes.append(f"Hatched: no chip computes these blocks, {lost}.")
    if partial and reduced:
        notes.append(
            f"all_reduce adds the {sums} partial sums: the sheets become one, on all chips."
        )
    elif partial:
        notes.append(f"Each sheet is a partial sum of one chip. all_reduce adds the {sums} sheets.")
    elif len(blocks) == 1:
        notes.append("Every chip computes the same.")
    elif computed == whole:
        notes.append("The blocks make up the whole result: nothing needs to be added.")

    title = f"x [{m}, {k}] @ w [{k}, {n}] on {len(parts)} chips: {what_is_cut(parts)}"
    lines, wrong = [title], []
    of_x = [(part.x_rows, part.x_columns) for part in parts]
    of_w = [(part.w_rows, part.w_columns) for part in parts]
    for part, left, right in zip(parts, of_x, of_w):
        gives = f"{'a partial sum of ' if partial else ''}result{slice_text(part.block, (m, n))}"
        operands = f"x{slice_text(left, (m, k))} @ w{slice_text(right, (k, n))}"
        lines.append(f"{part.name}: {operands} -> {gives}")
        if part.x_columns != part.w_rows:
            a, b = part.x_columns
            c, d = part.w_rows
            wrong = [
                f"{part.name} multiplies columns {a}:{b} of x by rows {c}:{d} of w. They do not "
                "belong together: the numbers are wrong, even after an all_reduce."
            ]
    text = "\n  ".join([*lines, *notes, *wrong])
    # Put w above the result and x to its left, so that an element is where its row of x meets
    # its column of w.
    factors = [
        None,
        _matrix(parts, f"w [{k}, {n}]", (k, n), of_w),
        _matrix(parts, f"x [{m}, {k}]", (m, k), of_x),
    ]
    name = f"result [{m}, {n}]"
    grid = Grid(text, (2, 2), (0, 1, 2, 3))
    frames = []
    for summed in (False, True) if partial and reduced else (False,):
        product = _matrix(parts, name, (m, n), of_result, partial, summed)
        frames.append(Cells(grid, [*factors, product], gap=(8, 12)))
    drawing = Frames(frames) if len(frames) > 1 else frames[0]
    return Figure(title, [drawing], notes, text, "".join(wrong))


def _matrix(
    parts: Sequence[Part],
    name: str,
    shape: Range,
    held: Sequence[Ranges],
    partial: bool = False,
    summed: bool = False,
) -> Cell:
    """Return a matrix as a cell: a box for each block, in the colour of the chip that holds it.

    Args:
        shape: the rows and columns of the matrix.
        held: the block of the matrix that each chip holds.
        partial: whether chips with the same block hold partial sums of it. Chips that sum over the
            same columns of x share a sheet.
        summed: whether the sheets are added up and drawn as one.
    """
    rows, columns = (sorted(set(ends)) for ends in zip(*held))
    boxes = []
    for block in itertools.product(rows, columns):
        owners = [i for i, other in enumerate(held) if other == block]
        where = slice_text(block, shape)
        same = grouped(owners if partial else (), lambda chip: parts[chip].x_columns)
        sheets = [(_names(parts, chips), tone(chips[0])) for chips in same.values()]
        if not owners:
            boxes.append(Box(hatched=True))
        elif sheets and not summed:
            texts = [f"{len(sheets)} partial sums", f"{len(sheets)} sums"]
            boxes.append(Box(texts, fill=sheets[0][1], sheets=sheets))
        elif len(owners) == 1:
            owner = parts[owners[0]].name
            boxes.append(Box([owner, owner.split()[-1]], where, tone(owners[0])))
        else:
            count = f"{len(owners)} chips"
            everywhere = len(owners) == len(held)
            texts = [f"all {count}", "all"] if everywhere else [_names(parts, owners), count]
            boxes.append(Box(texts, where, "var(--chip)", sheets=sheets, added=summed))
    size = WIDE / len(columns), TALL / len(rows)
    return Cell(name, fill="none", boxes=boxes, columns=len(columns), box=size)


def _names(parts: Sequence[Part], chips: Sequence[int]) -> str:
    """Return the names of some chips as a short text, such as "chips 0-3"."""
    kind = parts[0].name.split()[0]
    numbers = ranges(int(parts[chip].name.split()[-1]) for chip in chips)
    return f"{kind}{'' if len(chips) == 1 else 's'} {numbers}"

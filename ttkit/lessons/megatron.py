"""Pictures for lesson 07: two cuts, where f and g stand, and attention heads over chips."""

from __future__ import annotations

from ttkit.errors import fail
from ttkit.visualize.drawing import INK, Drawing, Figure, tone
from ttkit.visualize.matmul import draw_matmul
from ttkit.words import counted

LANE, BOX, HIGH = 38, 82, 28  # from chip to chip, and a box: its width and height
LEFT, GAP, SIGN = 58, 12, 46  # room for the chip's name, between boxes, and for f or g
WHOLE = "#e6e9ed"
STRIPES = "rgba(255,255,255,.55)"
Column = tuple[str, str]  # the words in the boxes, and what they are: whole, own, or a sum's part


def cuts(added: bool = False, chips: int = 4) -> list[Figure]:
    """Draw a product whose matrix is cut by columns, then one whose matrix is cut by rows.

    Args:
        added: all_reduce has added the partial sums of the second product.
    """
    hidden = draw_matmul(cut="columns", chips=chips, shape=(8, 12, 16))
    return [hidden, draw_matmul(cut="rows", chips=chips, shape=(8, 16, 12), reduced=added)]


def passes(way: str = "forwards", chips: int = 4, f: bool = True, g: bool = True) -> Figure:
    """Draw a pair of matrices, columns then rows, over chips: what each chip has at each point.

    Args:
        way: "forwards" or "backwards".
        f: the all-reduce of the backward pass is there.
        g: the all-reduce of the forward pass is there.

    Example:
        >>> passes("backwards", f=False)
        backwards, 4 chips: dx is a partial sum on each chip. Nothing is sent.
          on each chip: dy (whole), g sends nothing, dy @ downᵀ (own), gelu' (own),
          ... @ upᵀ (partial), f is left out, dx (partial)
    """
    if way not in ("forwards", "backwards"):
        fail(f"passes({way!r})", "a pass goes forwards or backwards", 'passes("forwards")')
    there, part = ("own", "partial")
    if way == "forwards":
        end, sums, sign = "y", g, "g"
        columns = [("x", "whole"), ("x @ up", there), ("gelu", there), ("... @ down", part)]
    else:
        end, sums, sign = "dx", f, "f"
        columns = [("dy", "whole"), ("dy @ downᵀ", there), ("gelu'", there), ("... @ upᵀ", part)]
    columns.append((end, "whole" if sums else part))
    sent = f"{sign} is an all-reduce." if sums else "Nothing is sent."
    has = "is the whole sum on every chip" if sums else "is a partial sum on each chip"
    title = f"{way}, {counted(chips, 'chip')}: {end} {has}. {sent}"
    notes = [
        "Grey: whole, and the same on every chip. A colour: the chip's own part. "
        "Striped: a partial sum, as long as the whole.",
    ]
    alarm = ""
    if not sums:
        alarm = f"Without {sign} each chip has a different {end} from here on, and none is right."
    drawing = _lanes(title, columns, chips, way, (f, g))
    first, here = ("f", f) if way == "backwards" else ("g", g)
    other, there_too = ("g", g) if way == "backwards" else ("f", f)
    has_it = [f"{words} ({kind})" for words, kind in columns]
    has_it.insert(1, f"{other} {'sends nothing' if there_too else 'is left out'}")
    has_it.insert(5, f"{first} {'is an all-reduce' if here else 'is left out'}")
    rows = f"  on each chip: {', '.join(has_it[:4])},\n  {', '.join(has_it[4:])}"
    return Figure(title, [drawing], notes, f"{title}\n{rows}", alarm)


def _lanes(
    title: str, columns: list[Column], chips: int, way: str, there: tuple[bool, bool]
) -> Drawing:
    """Draw a lane for each chip, the columns from left to right, and f and g across all lanes."""
    signs = {1: "f", 4: "g"} if way == "forwards" else {1: "g", 4: "f"}  # before these columns
    width = LEFT + 5 * BOX + 2 * SIGN + 6 * GAP
    drawing = Drawing(width + 2, 34 + chips * LANE, title)
    middle = 26 + (chips * LANE - (LANE - HIGH)) / 2
    x = float(LEFT)
    for i, (words, kind) in enumerate(columns):
        if i in signs:
            sends = i == 4
            here = there["fg".index(signs[i])]
            _sign(drawing, x, chips, signs[i], sends and here, here, middle)
            x += SIGN + GAP
        for chip in range(chips):
            y = 26 + chip * LANE
            fill = WHOLE if kind == "whole" else tone(chip)
            hover = f"chip {chip}: {words}, {_meaning(kind, chips)}"
            drawing.add(
                "rect", x=x, y=y, width=BOX, height=HIGH, rx=5, fill=fill,
                stroke="var(--edge)", hover=hover,
            )  # fmt: skip
            if kind == "partial":
                ends = (x + 3, y + HIGH / 2), (x + BOX - 3, y + HIGH / 2)
                drawing.line(*ends, colour=STRIPES, width=HIGH - 2, dash="5 7")
            drawing.words(x + BOX / 2, y + 18, words, size=12, colour=INK)
            if i < 4 and i + 1 not in signs:
                drawing.arrow((x + BOX + 2, y + 14), (x + BOX + GAP - 1, y + 14), width=1.4, head=6)
        x += BOX + GAP
    for chip in range(chips):
        drawing.words(LEFT - 8, 44 + chip * LANE, f"chip {chip}", size=12, anchor="end")
    drawing.words(LEFT, 15, f"{way} →", size=12, anchor="start", bold=True)
    return drawing


def _meaning(kind: str, chips: int) -> str:
    """Return in words how much of it a chip has."""
    own = f"1/{chips} of the features"
    return {"whole": "all of it, as on every chip", "own": own, "partial": "a partial sum"}[kind]


def _sign(
    drawing: Drawing, x: float, chips: int, name: str, sends: bool, here: bool, middle: float
) -> None:
    """Draw f or g across the lanes: filled where it sends, empty where it does nothing."""
    tall = chips * LANE - (LANE - HIGH)
    says = "all-reduce" if sends else "sends nothing" if here else "left out"
    fill, colour = ("var(--link)", "var(--page)") if sends else ("none", "var(--ink)")
    look = {"stroke": "var(--link)", "stroke_dasharray": "" if sends else "4 3"}
    drawing.add(
        "rect", x=x, y=26, width=SIGN, height=tall, rx=6, fill=fill, hover=f"{name}: {says}", **look
    )
    drawing.words(x + SIGN / 2, middle + 6, name if here else f"no {name}", size=16,
                  colour=colour, bold=True)  # fmt: skip
    drawing.words(x + SIGN / 2, 15, says.removeprefix("sends "), size=11, colour="var(--soft)")


def heads(heads: int = 8, chips: int = 4) -> Figure:
    """Draw which chip computes which attention heads.

    Raises:
        TTKitError: the chips cannot have equally many.

    Example:
        >>> heads(8, 4)
        8 attention heads over 4 chips: 2 on each
          chip 0: heads 0, 1
          chip 1: heads 2, 3
          chip 2: heads 4, 5
          chip 3: heads 6, 7
    """
    if heads % chips:
        rule = "num_heads must be divisible by the number of devices"
        fail(f"{heads} heads over {chips} chips", rule, f"a multiple of {chips}, or fewer chips")
    each = heads // chips
    title = f"{heads} attention heads over {counted(chips, 'chip')}: {each} on each"
    wide = min(58, 660 // max(each, 1))
    drawing = Drawing(max(LEFT + each * wide + 10, 300), chips * LANE + 4, title)
    lines = [title]
    for chip in range(chips):
        y, mine = 2 + chip * LANE, range(chip * each, (chip + 1) * each)
        drawing.words(LEFT - 8, y + 18, f"chip {chip}", size=12, anchor="end")
        for i, head in enumerate(mine):
            drawing.add(
                "rect", x=LEFT + i * wide, y=y, width=wide - 4, height=HIGH, rx=5,
                fill=tone(chip), stroke="var(--edge)",
                hover=f"head {head}: its columns of query, key and value are on chip {chip}",
            )  # fmt: skip
            at = LEFT + i * wide + wide / 2 - 2
            drawing.words(
                at, y + 18, f"head {head}" if wide > 50 else f"{head}", size=11, colour=INK
            )
        lines.append(f"  chip {chip}: head{'s' * (each > 1)} {', '.join(map(str, mine))}")
    return Figure(title, [drawing], ["A colour: one chip. No head needs another head's numbers."],
                  "\n".join(lines))  # fmt: skip

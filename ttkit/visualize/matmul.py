"""A picture of x @ w over chips: who holds what, who computes what, and what must be added."""

from __future__ import annotations

from typing import Any

from ttkit.visualize.drawing import INK, Drawing, Figure, Rectangle, ranges, tone, width_of
from ttkit.visualize.products import (
    Part,
    Product,
    Range,
    described,
    fault,
    in_words,
    notes,
    of_tensors,
)
from ttkit.visualize.tensor import Ranges, slice_text

LEAST, MOST, UNIT = 96, 300, 15  # length of a side, and of one element where there are few
LABEL, SHEETS, SHIFT = 10.5, 8, 15  # text; the most sheets drawn, and how far apart they lie
GAP, TOP, MARGIN = 34, 22, 4


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
    drawing = _Picture(product).drawing
    drawing.title = text
    return Figure(title, [drawing], notes(product), f"{text}\n  {wrong}".rstrip(), wrong)


class _Picture:
    """w stands above the result and x left of it: a number of the result is where they meet."""

    def __init__(self, product: Product):
        self.product = product
        m, k, n = product.shape
        self.tones = {part.name: tone(i) for i, part in enumerate(product.parts)}
        cuts = [len({getattr(p, f) for p in product.parts}) for f in ("rows", "inner", "columns")]
        unit = min(UNIT, MOST / max(m, k, n))
        tall, deep, wide = (
            max(LEAST, size * unit, least * pieces)
            for size, pieces, least in zip((m, k, n), cuts, (15, 15, 18))
        )
        left, top = MARGIN + deep + GAP, TOP + deep + GAP
        sheets = product.sheets * (product.partial and not product.reduced)
        self.shift = SHIFT if sheets > 1 and len(product.blocks) == 1 else 0
        room = self.shift * (min(sheets, SHEETS) - 1) if self.shift else 0
        size = left + wide + room + MARGIN + 2, top + tall + room + 20
        self.drawing = Drawing(*size, "")
        self.grids = {
            "x": (MARGIN, top, deep, tall),
            "w": (left, TOP, wide, deep),
            "result": (left, top, wide, tall),
        }
        self.sizes = {"x": (m, k), "w": (k, n), "result": (m, n)}
        self._operand("x", {p.name: (p.rows, p.inner) for p in product.parts})
        self._operand("w", {p.name: (p.inner_w, p.columns) for p in product.parts})
        self._result()
        self._names()

    def _names(self) -> None:
        for name, (x, y, width, height) in self.grids.items():
            m, n = self.sizes[name]
            below = name == "result" and not self.shift
            text = f"{name} [{m}, {n}]"
            at = y + height + 14 if below else y - 6
            self.drawing.words(x + width / 2, at, text, size=12, bold=True)

    def _area(self, name: str, block: Ranges) -> Rectangle:
        """Return where a block of a matrix is drawn."""
        x, y, width, height = self.grids[name]
        (a, b), (c, d) = block
        m, n = self.sizes[name]
        return x + width * c / n, y + height * a / m, width * (d - c) / n, height * (b - a) / m

    def _operand(self, name: str, held: dict[str, Ranges]) -> None:
        """Draw what each chip holds: its own colour, or none where several hold the same."""
        owners: dict[Ranges, list[str]] = {}
        for chip, block in held.items():
            owners.setdefault(block, []).append(chip)
        for block, chips in owners.items():
            self._block(name, block, chips, "holds", "hold")

    def _block(self, name: str, block: Ranges, chips: list[str], what: str, plural: str) -> None:
        x, y, width, height = self._area(name, block)
        alone = len(chips) == 1
        owner = chips[0] if alone else f"{len(chips)} chips ({_numbers(chips)})"
        where = f"{name}{slice_text(block, self.sizes[name])}"
        hover = f"{where}: {owner} {what if alone else plural} it"
        fill = self.tones[chips[0]] if alone else "var(--chip)"
        look: dict[str, Any] = {"fill": fill, "stroke": "var(--edge)"}
        self.drawing.add("rect", "", hover, x=x, y=y, width=width, height=height, **look)
        self._elements(name, block)
        if alone:
            self._label((x, y, width, height), [chips[0], chips[0].split()[-1]])
        else:
            self._swatches((x, y, width, height), chips)

    def _elements(self, name: str, block: Ranges) -> None:
        """Draw the lines between the elements, where they are far enough apart."""
        x, y, width, height = self._area(name, block)
        (a, b), (c, d) = block
        look: dict[str, Any] = {"colour": INK, "width": 0.25}
        if height / (b - a) >= 6:
            for i in range(1, b - a):
                at = y + height * i / (b - a)
                self.drawing.line((x, at), (x + width, at), **look)
        if width / (d - c) >= 6:
            for i in range(1, d - c):
                at = x + width * i / (d - c)
                self.drawing.line((at, y), (at, y + height), **look)

    def _label(self, area: Rectangle, texts: list[str], colour: str = INK) -> None:
        """Write the first text that fits."""
        x, y, width, height = area
        for text in texts:
            if width_of(text, LABEL, bold=True) <= width and height >= LABEL:
                look: dict[str, Any] = {"size": LABEL, "bold": True, "colour": colour}
                self.drawing.words(x + width / 2, y + height / 2 + 4, text, **look)
                return

    def _swatches(self, area: Rectangle, chips: list[str]) -> None:
        """Write that several chips hold a block, with a small square for each where there is room.

        The squares have the chips' colours and numbers."""
        x, y, width, height = area
        side, step = 16, 18
        fits = len(chips) <= 8 and step * len(chips) <= width - 4 and height >= 40
        everyone = len(chips) == len(self.product.parts)
        held = f"{len(chips)} chips"
        head = [f"all {held}", "all"] if everyone else [_numbers(chips), held]
        if everyone or not fits:
            self._backed((x, y - 10 * fits, width, height), head)
        if not fits:
            return
        left, top = (
            x + (width - step * len(chips)) / 2 + 1,
            y + height / 2 + (2 if everyone else -8),
        )
        for i, chip in enumerate(chips):
            box = left + i * step, top, side, side
            self.drawing.box(*box, fill=self.tones[chip], edge=INK, round=2)
            self.drawing.words(box[0] + side / 2, top + 12, chip.split()[-1], size=10, colour=INK)

    def _backed(self, area: Rectangle, texts: list[str]) -> None:
        """Write the first text that fits, on a ground that covers the lines between elements."""
        x, y, width, height = area
        for text in texts:
            wide = width_of(text, LABEL, bold=True) + 6
            if wide <= width and height >= 15:
                middle = x + width / 2, y + height / 2
                at = middle[0] - wide / 2, middle[1] - 8, wide, 16
                self.drawing.box(*at, fill="var(--chip)", edge="none", round=3)
                look: dict[str, Any] = {"size": LABEL, "bold": True, "colour": "var(--ink)"}
                self.drawing.words(middle[0], middle[1] + 4, text, **look)
                return

    def _result(self) -> None:
        product = self.product
        for block, parts in product.blocks.items():
            if product.partial and not product.reduced:
                self._sheets(block, parts)
            else:
                self._block("result", block, [part.name for part in parts], "has", "have")
        for block in product.missing:
            area = self._area("result", block)
            self.drawing.box(*area, fill="var(--page)", round=0)
            where = slice_text(block, self.sizes["result"])
            self.drawing.hatch([area], gap=7, colour="var(--edge)")
            x, y, width, height = area
            look: dict[str, Any] = {"x": x, "y": y, "width": width, "height": height}
            hover = f"result{where}: no chip computes it"
            self.drawing.add("rect", hover=hover, fill="transparent", **look)

    def _sheets(self, block: Ranges, parts: list[Part]) -> None:
        """Draw the partial sums of a block as sheets that lie over one another.

        Chips that hold the same partial sum share a sheet."""
        same: dict[Range, list[str]] = {}
        for part in parts:
            same.setdefault(part.inner, []).append(part.name)
        kind = parts[0].name.split()[0]
        names = {i: a[0] if len(a) == 1 else f"{kind}s {_numbers(a)}" for i, a in same.items()}
        parts = list({part.inner: part for part in parts[::-1]}.values())[::-1]
        shown = parts if len(parts) <= SHEETS else [*parts[: SHEETS - 1], parts[-1]]
        x, y, width, height = self._area("result", block)
        shift: float = self.shift
        if not shift and len(shown) > 1:  # other blocks are beside it: they stay inside
            shift = min(SHIFT, 0.6 * min(width, height) / (len(shown) - 1))
            width, height = (side - shift * (len(shown) - 1) for side in (width, height))
        places = [(x + i * shift, y + i * shift) for i in range(len(shown))]
        for at in places[::-1]:
            self.drawing.box(*at, width, height, fill="#ffffff", edge="none", round=0)
        for (left, top), part in list(zip(places, shown))[::-1]:
            inner = _range(part.inner)
            where = f"result{slice_text(block, self.sizes['result'])}"
            hover = f"{names[part.inner]}: its partial sum of {where}, from columns {inner} of x"
            look: dict[str, Any] = {"fill": self.tones[part.name], "fill_opacity": 0.7}
            look |= {"stroke": INK, "width": width, "height": height}
            self.drawing.add("rect", "", hover, x=left, y=top, **look)
        look = {"size": 10, "colour": INK, "anchor": "end"}
        for i, ((left, top), part) in enumerate(zip(places, shown)):
            last = i == len(shown) - 1
            text = "..." if len(shown) < len(parts) and i == SHEETS - 2 else names[part.inner]
            if shift < 12 and not last:
                continue
            self.drawing.words(left + width - 3, top + height - 4, text, **look)
        if self.shift:
            sheets = [f"{len(parts)} partial sums", f"{len(parts)} sheets"]
            self._label((x, y, width, height - 14), sheets)


def _range(ends: Range) -> str:
    return f"{ends[0]}:{ends[1]}"


def _numbers(chips: list[str]) -> str:
    """Return the numbers of chips, in short."""
    return ranges(int(chip.split()[-1]) for chip in chips)

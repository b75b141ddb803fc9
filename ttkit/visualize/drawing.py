"""SVG by hand: boxes, lines, arrows and words in the colours of the page, light or dark.

All diagrams are drawn with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape

Point = tuple[float, float]

# One style for all pictures; it follows the theme of JupyterLab or VS Code where there is one, else
# the reader's system.
LIGHT = "--ink:#1c2430;--soft:#586274;--chip:#f1f3f7;--edge:#8a94a3;--wire:#3f72c8;--wrap:#b8652f;--frame:#c0c8d2;--empty:#e6e9ed;--page:#ffffff"
DARK = "--ink:#e8ecf2;--soft:#a6b0bd;--chip:#2a313c;--edge:#7b8696;--wire:#7fb0ff;--wrap:#f0a878;--frame:#4d5664;--empty:#323944;--page:#15181d"
_RULES = (
    f".NAME{{{LIGHT};overflow-x:auto;font-family:system-ui,'DejaVu Sans',sans-serif}}"
    f"@media(prefers-color-scheme:dark){{.NAME{{{DARK}}}}}"
    f'[data-jp-theme-light="true"] .NAME,body.vscode-light .NAME{{{LIGHT}}}'
    f'[data-jp-theme-light="false"] .NAME,body.vscode-dark .NAME{{{DARK}}}'
    ".NAME svg{max-width:100%;height:auto;display:block}"
)
# The class is named after the rules, so that pictures saved with other rules on the same page keep
# theirs.
CLASS = "ttkit-picture-" + sha256(_RULES.encode()).hexdigest()[:6]
STYLE = _RULES.replace("NAME", CLASS)
INK = "#1c2430"  # words on a coloured box, in both themes
# what goes wrong, and the box under words that say so, in both themes
BAD, ALARM = "#d64545", "#fbd0cc"
SMALLEST = 0.8  # a picture shrinks to this part of its size, then it scrolls
# Fills of groups: 32 colours as far apart in the OKLab space as can be among those that are light
# enough for dark words; the first eight, which most pictures need, stand furthest apart.
PALETTE = (
    "#faa39c",
    "#8cc3fc",
    "#92d094",
    "#ddb96b",
    "#d2abf1",
    "#5ed3d3",
    "#f6da6f",
    "#efa2cd",
    "#92986e",
    "#ecebd4",
    "#a080d7",
    "#d76f7a",
    "#34b4e8",
    "#9efdfc",
    "#26ac80",
    "#cd7e35",
    "#f2ac7b",
    "#fdc6f7",
    "#82b862",
    "#b0a5c0",
    "#bcd8fe",
    "#fec8b0",
    "#c4fda4",
    "#d487cd",
    "#c6a234",
    "#9ba1fb",
    "#71b5ac",
    "#6e98c3",
    "#a9889d",
    "#d29580",
    "#6ff1c9",
    "#c0dabb",
)


def on_page(svg: str) -> str:
    """SVG for a notebook, with the style that follows its theme."""
    return f'<div class="ttkit-picture {CLASS}"><style>{STYLE}</style>{svg}</div>'


def tone(group: int) -> str:
    """The fill of a group, as #rrggbb; a group keeps its colour however many there are, and the
    33rd has the first's.
    """
    return PALETTE[group % len(PALETTE)]


class Drawing:
    """A picture under construction: shapes are added in the order in which they cover each other.

    Args:
        title: what a screen reader says.
        text: what is shown instead where pictures cannot be.
    """

    def __init__(self, width: float, height: float, title: str, text: str = ""):
        self.width, self.height, self.title, self.text = width, height, title, text
        self._parts: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        *,
        fill: str = "none",
        edge: str = "var(--edge)",
        round: float = 6,
        dash: str = "",
    ) -> None:
        """A rectangle with rounded corners."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{round:g}" fill="{fill}" '
            f'stroke="{edge}"{dashed}/>'
        )

    def blocks(
        self,
        boxes: Iterable[tuple[float, float, float, float]],
        *,
        fill: str = "none",
        edge: str = "none",
        width: float = 1,
    ) -> None:
        """Many rectangles (left, top, width, height) of one look as one shape, which takes an
        eighth of the text.
        """
        path, left, top = "", 0.0, 0.0
        for x, y, w, h in boxes:  # each is drawn from where the one before began
            right, down = round(x - left, 2), round(y - top, 2)
            left, top = left + right, top + down
            path += f"m{right:g} {down:g}h{w:.4g}v{h:.4g}h{-w:.4g}z"
        if path:
            self._parts.append(
                f'<path d="{path}" fill="{fill}" stroke="{edge}" stroke-width="{width:g}"/>'
            )

    def inset(self, other: Drawing, x: float, y: float) -> None:
        """Another picture in this one, its left upper corner at (x, y)."""
        self._parts.append(f'<g transform="translate({x:g} {y:g})">{"".join(other._parts)}</g>')

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        colour: str = "var(--wire)",
        width: float = 1.6,
        dash: str = "",
    ) -> None:
        """A straight line."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" '
            f'stroke-width="{width:g}"{dashed}/>'
        )

    def arc(
        self,
        start: Point,
        end: Point,
        lift: Point,
        *,
        colour: str = "var(--wrap)",
        width: float = 1.3,
    ) -> None:
        """An arc that leaves both ends in the direction `lift` and rises by three quarters of
        it.
        """
        (x1, y1), (x2, y2), (dx, dy) = start, end, lift
        path = f"M{x1:g} {y1:g}C{x1 + dx:g} {y1 + dy:g} {x2 + dx:g} {y2 + dy:g} {x2:g} {y2:g}"
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>'
        )

    def arrow(
        self,
        start: Point,
        end: Point,
        lift: Point = (0, 0),
        *,
        colour: str = "var(--ink)",
        width: float = 2,
        head: float = 8,
    ) -> None:
        """An arrow whose tip is at `end`: straight, or along the arc that leaves both ends in
        the direction `lift`.
        """
        (x1, y1), (x2, y2) = start, end
        dx, dy = (-lift[0], -lift[1]) if any(lift) else (x2 - x1, y2 - y1)
        length = math.hypot(dx, dy) or 1
        ux, uy = dx / length, dy / length
        bx, by = x2 - ux * head, y2 - uy * head
        if any(lift):
            # as high as the head, so that arcs of both ways do not cross
            foot = (x1 - ux * head, y1 - uy * head)
            self.line(x1, y1, *foot, colour=colour, width=width)
            self.arc(foot, (bx, by), lift, colour=colour, width=width)
        else:
            self.line(x1, y1, bx, by, colour=colour, width=width)
        points = (
            (x2, y2),
            (bx - uy * head / 2, by + ux * head / 2),
            (bx + uy * head / 2, by - ux * head / 2),
        )
        self._parts.append(
            f'<polygon points="{" ".join(f"{x:.4g},{y:.4g}" for x, y in points)}" fill="{colour}"/>'
        )

    def stripes(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        *,
        colour: str = "rgba(255,255,255,.45)",
        step: float = 12,
        width: float = 4.2,
    ) -> None:
        """Slanted stripes over a rectangle."""
        path, at = "", -h + step / 2
        while at < w:  # each stripe runs from (at, h) up to (at + h, 0), cut at both sides
            left, right = max(at, 0), min(at + h, w)
            path += (
                f"M{x + left:.4g} {y + h - (left - at):.4g}L{x + right:.4g} "
                f"{y + h - (right - at):.4g}"
            )
            at += step
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>'
        )

    def words(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        colour: str = "var(--ink)",
        anchor: str = "middle",
        bold: bool = False,
        halo: bool = False,
    ) -> None:
        """A line of text; `y` is its base line; a halo keeps it apart from lines below it."""
        look = (
            ' font-weight="600"' * bold
            + ' stroke="var(--page)" stroke-width="3" paint-order="stroke"' * halo
        )
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour}" '
            f'text-anchor="{anchor}"{look}>{escape(text)}</text>'
        )

    def lines(
        self,
        x: float,
        y: float,
        texts: Sequence[str],
        *,
        size: float = 12,
        step: float = 13,
        colour: str = "var(--ink)",
        anchor: str = "middle",
    ) -> None:
        """Lines of text one under the other."""
        for i, text in enumerate(texts):
            self.words(x, y + i * step, text, size=size, colour=colour, anchor=anchor)

    def svg(self, style: str = "") -> str:
        """The picture as SVG."""
        box = f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}"'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" {box} '
            f'role="img"{style}><title>{escape(self.title)}</title>'
        )
        return head + "".join(self._parts) + "</svg>"

    def html(self) -> str:
        """The picture for a notebook, with the style that follows its theme."""
        return on_page(self.svg(f' style="min-width:{SMALLEST * self.width:.0f}px"'))

    def standalone(self) -> str:
        """The picture as an SVG file that carries its own style and a background."""
        head, rest = self.svg(f' class="{CLASS}"').split(">", 1)
        page = '<rect width="100%" height="100%" fill="var(--page)"/>'
        return f"{head}><style>{STYLE}</style>{page}{rest}"

    _repr_html_ = html

    def __repr__(self) -> str:
        return self.text or self.title


def width_of(text: str, size: float, bold: bool = False) -> float:
    """About how wide a line of text is in DejaVu Sans, the widest of the fonts that a page may
    take.
    """
    glyphs = sum(
        0.32
        if c in " ,.|"
        else 0.39
        if c in "[]():;·-"
        else 0.28
        if c in "ijl"
        else 0.76
        if c.isupper()
        else 0.62
        for c in text
    )
    return size * glyphs * (1.1 if bold else 1)


def wrap(text: str, room: float, size: float, most: int = 3) -> list[str]:
    """Text in as few lines as `room` allows, about equally long, broken at spaces; what does not
    fit ends in an ellipsis.

    Example:
        >>> wrap("[:, :, 128:256, 256:384]", 110, 10)
        ['[:, :, 128:256,', '256:384]']
    """
    lines = _broken(text, room, size)
    if len(lines) > most:
        lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
    elif len(lines) > 1:
        narrower = (_broken(text, room * part / 20, size) for part in range(8, 20))
        lines = next((found for found in narrower if len(found) == len(lines)), lines)
    return [_cut(line, room, size) for line in lines]


def _broken(text: str, room: float, size: float) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if not lines[-1] or width_of(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _cut(line: str, room: float, size: float) -> str:
    if width_of(line, size) <= room:
        return line
    while line and width_of(line + "…", size) > room:
        line = line[:-1]
    return line + "…"

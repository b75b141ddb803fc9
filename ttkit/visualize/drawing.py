"""SVG by hand: boxes, lines and words in the colours of the page, light or dark. All of the kit's pictures are drawn with it."""

from __future__ import annotations

from html import escape

# One style for all pictures; it follows JupyterLab's theme where there is one, else the reader's system.
LIGHT = "--ink:#1c2430;--soft:#5b6675;--chip:#f2f4f7;--edge:#8a94a3;--wire:#4a7bd0;--frame:#c3cad4;--empty:#e3e6ea"
DARK = "--ink:#e8ecf2;--soft:#a3adba;--chip:#2a313c;--edge:#7b8696;--wire:#7fb0ff;--frame:#4a5361;--empty:#3a414c"
STYLE = (
    f".ttkit-picture{{{LIGHT};font-family:system-ui,'DejaVu Sans',sans-serif}}"
    f"@media(prefers-color-scheme:dark){{.ttkit-picture{{{DARK}}}}}"
    f'[data-jp-theme-light="true"] .ttkit-picture{{{LIGHT}}}'
    f'[data-jp-theme-light="false"] .ttkit-picture{{{DARK}}}'
    ".ttkit-picture svg{max-width:100%;height:auto;display:block}"
)


class Drawing:
    """A picture under construction: shapes are added in the order in which they cover each other."""

    def __init__(self, width: float, height: float, title: str):
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, *, fill: str = "none", edge: str = "var(--edge)", round: float = 6, dash: str = "") -> None:
        """A rectangle with rounded corners."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{round:g}" fill="{fill}" stroke="{edge}"{dashed}/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, *, colour: str = "var(--wire)", width: float = 1.6) -> None:
        """A straight line."""
        self._parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="{width:g}"/>')

    def arc(self, start: tuple[float, float], end: tuple[float, float], lift: tuple[float, float], *, colour: str = "var(--wire)") -> None:
        """A dashed arc that leaves both ends in the direction `lift` and rises by three quarters of it."""
        (x1, y1), (x2, y2), (dx, dy) = start, end, lift
        path = f"M{x1:g} {y1:g}C{x1 + dx:g} {y1 + dy:g} {x2 + dx:g} {y2 + dy:g} {x2:g} {y2:g}"
        self._parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.4" stroke-dasharray="5 3"/>')

    def words(self, x: float, y: float, text: str, *, size: float = 12, colour: str = "var(--ink)", anchor: str = "middle", bold: bool = False) -> None:
        """A line of text; `y` is its base line."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour}" text-anchor="{anchor}"{weight}>{escape(text)}</text>')

    def svg(self) -> str:
        """The picture as SVG."""
        box = f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img"><title>{escape(self.title)}</title>'
        return head + "".join(self._parts) + "</svg>"

    def html(self) -> str:
        """The picture for a notebook, with the style that follows its theme."""
        return f'<div class="ttkit-picture"><style>{STYLE}</style>{self.svg()}</div>'

    def standalone(self) -> str:
        """The picture as an SVG file that carries its own style."""
        head, rest = self.svg().split(">", 1)
        return head.replace("<svg ", '<svg class="ttkit-picture" ') + f"><style>{STYLE}</style>{rest}"


def shorten(text: str, room: int) -> str:
    """Text cut to `room` characters with an ellipsis."""
    return text if len(text) <= room else text[: room - 1] + "…"

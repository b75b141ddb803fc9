"""Charts by matplotlib: how a notebook shows them, in the colours of a light or a dark page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from html import escape
from textwrap import fill
from typing import Any

from ttkit.visualize.drawing import LIGHT, READABLE, on_page

WIDTH = 6.4  # inches, 614 px on a page; the smallest text is 8 points, which is 10.7 px
SMALL, DOTS_PER_INCH = 8, 192
ROW, LABEL, LETTER = 390, 34, 5  # points: a legend's row, what a label takes, and its letters
MANY = 300  # bars of a lane: more are saved as a bitmap, which keeps the picture small
HOVERS = 60  # points of a line that tell their values, at most
BEHIND = 0.9  # matplotlib's zorder of bars that tell nothing
# Charts are drawn in the colours of the light page. `_shorter` replaces those by the variables of
# the page's style, which have other values on a dark page.
LIGHT_PAGE = dict(rule[2:].split(":") for rule in LIGHT.split(";"))
PAGE = {colour: f"var(--{name})" for name, colour in LIGHT_PAGE.items()}
INK, BLUE, ORANGE, FRAME = (LIGHT_PAGE[name] for name in ("ink", "link", "curve", "frame"))
GREY = "#7a828c"  # which stands out from both pages
Span = tuple[float, float]  # start and end of a bar
LOOK = {
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 9.5,
    "font.size": 8.5,
    "font.sans-serif": ["DejaVu Sans"],
    "text.parse_math": False,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "grid.color": FRAME,
    "grid.linewidth": 0.6,
    "path.simplify_threshold": 1.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
# what a page does not need: third decimals, the font, ids that two charts would share
NEEDLESS = (
    r'(?<=\.\d\d)\d+|(?<=<g) id="[^"]*"| transform="rotate\(-0 [^"]*"|;? ?font-family: [^;"]*'
)


class Chart:
    """Data that matplotlib draws: into your Axes by `plot(ax)`, as a picture in a notebook.

    `repr` has the same data in rounded numbers. Pages without pictures show it, screen readers read
    it, and tests of notebooks compare it: the SVG's bytes depend on the CPU and on matplotlib.
    """

    title: str

    @property
    def height(self) -> float:
        """Of the figure, in inches."""
        return 3.0

    def draw(self, ax: Any) -> None:
        """Draw into a matplotlib Axes."""
        raise NotImplementedError

    def plot(self, ax: Any = None) -> Any:
        """Draw into a matplotlib Axes, by default one in a new figure, and return it."""
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(figsize=(WIDTH, self.height), layout="constrained")[1]
        self.draw(ax)
        return ax

    def _repr_html_(self) -> str:
        return on_page(chart_svg(self))


def chart_svg(chart: Chart) -> str:
    """Return a chart as SVG in the variables of the page's style; the same from run to run."""
    from matplotlib import style
    from matplotlib.figure import Figure

    text, page = repr(chart), io.StringIO()
    # matplotlib makes ids from the salt; two charts on one page must not share them.
    with style.context(["default", {**LOOK, "svg.hashsalt": text}]):
        figure = Figure((WIDTH, chart.height), layout="constrained")
        axes = figure.subplots()
        chart.draw(axes)
        # they would differ from run to run
        unknown = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(page, format="svg", dpi=DOTS_PER_INCH, metadata=unknown)
    # the part up to </defs> has a style for all of the page
    head, body = page.getvalue().split("<svg", 1)[1].split("</defs>", 1)
    box = re.search(r'viewBox="0 0 ([\d.]+) [\d.]+"', head)
    assert box
    wide = float(box[1]) * 4 / 3
    size = (
        f'{box[0]} width="{wide:.0f}" style="min-width:{wide * READABLE / (SMALL * 4 / 3):.0f}px"'
    )
    names = 'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg"'
    about = f"<title>{escape(chart.title)}</title><desc>{escape(text)}</desc>"
    start = f'<svg class="ttkit-chart" {names} {size} role="img" stroke-linejoin="round">{about}'
    drawn = re.sub(r"\s*<[^>]*>\n*", _shorter, body)
    hovers = f'<g fill="none" pointer-events="all">{"".join(_hovers(axes))}</g>'
    return f"{start}{drawn.removesuffix('</svg>')}{hovers}</svg>"


def _hovers(ax: Any) -> Iterator[str]:
    """Yield what is seen only under a pointer: the values of points and of the parts of bars.

    Only an Axes that has been drawn knows where they are.
    """
    wide, high = 72 * ax.figure.get_size_inches()  # matplotlib's SVG has 72 units an inch
    to_figure = ax.transData + ax.figure.transFigure.inverted()

    def at(points: Any) -> Any:
        return (0, high) + to_figure.transform(points) * (wide, -high)  # y points down there

    shape = "<{}><title>{}</title></{}>"
    over, value = ax.get_xlabel() or "x", f"{ax.get_ylabel()} ".lstrip()
    for line in ax.lines:
        points = [(x, y) for x, y in line.get_xydata() if math.isfinite(y)]
        points = points[:: len(points) // HOVERS + 1]
        name = line.get_label()
        if not points or name.startswith("_") or line.get_transform() != ax.transData:
            continue
        for (x, y), (cx, cy) in zip(points, at(points)):
            words = escape(f"{name}: {value}{y:.4g} at {over} {x:.6g}")
            yield shape.format(f'circle cx="{cx:.1f}" cy="{cy:.1f}" r="6"', words, "circle")
    for parts in ax.containers:
        if parts.get_label().startswith("_") or parts[0].get_zorder() == BEHIND:
            continue
        for bar in parts:
            corners = at(bar.get_bbox().get_points()).T
            (left, right), (top, low) = map(sorted, corners)  # an axis may run backwards
            size = bar.get_width() if parts.orientation == "horizontal" else bar.get_height()
            box = f'rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}"'
            words = escape(f"{parts.get_label()}: {size:,.6g}")
            yield shape.format(f'{box} height="{low - top:.1f}"', words, "rect")


def _shorter(tag: re.Match[str]) -> str:
    """Return a tag with the page's variables, without what no page needs."""
    text = re.sub(r"\s+", " ", re.sub(NEEDLESS, "", tag[0]))
    text = re.sub(r" (?=[LCQz/])|(?<=[MLCQz:;]) | $", "", text)
    return re.sub(r"#[0-9a-f]{6}", lambda colour: PAGE.get(colour[0], colour[0]), text)


def entitle(ax: Any, title: str) -> None:
    """Set a title; below it, above the Axes, a legend where something has a label."""
    labels = ax.get_legend_handles_labels()[1]
    title = "\n".join(fill(line, 68) for line in title.split("\n"))
    if not labels:
        ax.set_title(title)
    else:
        rows = math.ceil(sum(LABEL + LETTER * len(label) for label in labels) / ROW)
        columns = math.ceil(len(labels) / rows)
        ax.set_title(title, pad=10 + 14 * math.ceil(len(labels) / columns))
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderpad=0.2)


def leave_empty(ax: Any, text: str) -> None:
    """Write into an empty Axes why it is empty."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center")
    ax.set(xticks=[], yticks=[])


def lanes(ax: Any, names: Sequence[str], end: float, empty: str) -> None:
    """Set up lanes, the first on top, on an axis from 0 to `end`; what is `empty` stays grey."""
    ax.barh(range(len(names)), end, 0.8, color=(GREY, 0.2), label=empty, zorder=BEHIND)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(0, end), ylim=(len(names) - 0.5, -0.5))
    ax.grid(axis="x")
    ax.set_axisbelow(True)


def bars(
    ax: Any,
    lane: float,
    spans: Sequence[Span],
    name: str,
    colour: Any,
    hatch: str = "",
    height: float = 0.8,
) -> None:
    """Draw bars in a lane as one shape, very many of them as a bitmap without rims."""
    import numpy as np
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if spans:
        low, high = lane - height / 2, lane + height / 2
        corners = [[(a, low), (a, high), (b, high), (b, low)] for a, b in spans]
        path, many = Path.make_compound_path_from_polys(np.array(corners)), len(spans) > MANY
        label = None if name in ax.get_legend_handles_labels()[1] else name
        look = {"facecolor": colour, "edgecolor": "black", "linewidth": 0 if many else 0.5}
        ax.add_artist(PathPatch(path, hatch=hatch, rasterized=many, label=label, **look))


def fitting(ax: Any, span: Span, texts: Sequence[str]) -> str:
    """Return the first of some texts that fits into a bar in small letters; "" if none does."""
    left, right = (x for x, _ in ax.transData.transform([(x, 0) for x in span]))
    letters = ((right - left) * 72 / ax.figure.dpi - 2) / (0.64 * SMALL)
    fits = (text for text in texts if max(map(len, text.split("\n"))) <= letters)
    return next(fits, "")


def write(ax: Any, lane: float, span: Span, text: str, plate: Any = None) -> None:
    """Write small letters into the middle of a bar; a plate keeps them readable on a hatch."""
    box = plate and {"facecolor": plate, "edgecolor": "none", "pad": 1}
    look = {"color": "black", "ha": "center", "va": "center", "linespacing": 1.0}
    ax.text(sum(span) / 2, lane, text, size=SMALL, bbox=box, **look)

"""Charts by matplotlib: how a notebook shows them, in the colours of a light or a dark page."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from textwrap import fill
from typing import Any

from ttkit.visualize.drawing import LIGHT, on_page

WIDTH = 8.0  # inches, 768 px on a page; the smallest text is 8 points, which is 10.7 px
SMALL, DOTS_PER_INCH = 8, 192
MANY = 1000  # bars of a chart: more are saved as a bitmap, which keeps the picture small
# Charts are drawn in the colours of the light page. `_shorter` replaces those by the variables of
# the page's style, which have other values on a dark page.
LIGHT_PAGE = dict(rule[2:].split(":") for rule in LIGHT.split(";"))
PAGE = {colour: f"var(--{name})" for name, colour in LIGHT_PAGE.items()}
INK, BLUE, ORANGE, FRAME = (LIGHT_PAGE[name] for name in ("ink", "wire", "wrap", "frame"))
GREY = "#7a828c"  # which stands out from both pages
EMPTY = (GREY, 0.2)
LOOK = {
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
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
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    ),
}


class Chart:
    """Data that matplotlib draws: into your Axes by `plot(ax)`, as a picture in a notebook.

    `repr` says the same in rounded numbers. Pages without pictures show it, screen readers read it,
    and tests of notebooks compare it: the bytes of a picture depend on the CPU and on matplotlib.
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
    """A chart as SVG in the variables of the page's style; the same from run to run."""
    from matplotlib import style
    from matplotlib.figure import Figure

    text, page = repr(chart), io.StringIO()
    # matplotlib makes ids from the salt; two charts on one page must not share them.
    with style.context(["default", {**LOOK, "svg.hashsalt": text}]):
        figure = Figure((WIDTH, chart.height), layout="constrained")
        chart.draw(figure.subplots())
        # they would differ from run to run
        unknown = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(page, format="svg", dpi=DOTS_PER_INCH, metadata=unknown)
    # drops a style for all of the page
    body = page.getvalue().split("<svg", 1)[1].split("</defs>", 1)
    box = re.search(r'viewBox="0 0 ([\d.]+) [\d.]+"', body[0])
    assert box
    head = (
        f'<svg class="ttkit-chart" xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} '
        f'width="{float(box[1]) * 4 / 3:.0f}"'
    )
    head += ' xmlns="http://www.w3.org/2000/svg" role="img" stroke-linejoin="round">'
    return f"{head}<title>{escape(chart.title)}</title><desc>{escape(text)}</desc>" + re.sub(
        r"\s*<[^>]*>\n*", _shorter, body[1]
    )


def _shorter(tag: re.Match[str]) -> str:
    """Return a tag with the page's variables, without what no page needs: third decimals, ids of
    groups.
    """
    text = re.sub(
        r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), tag[0]
    )
    text = re.sub(
        r'(?<=<g) id="[^"]*"| transform="rotate\(-0 [^"]*"| ?font-family: [^;]*;', "", text
    )
    text = re.sub(r"\s+(?=[LCQz/])|(?<=[MLCQz:;])\s+|\s+$", "", re.sub(r"\s+", " ", text))
    return re.sub(r"#[0-9a-f]{6}", lambda colour: PAGE.get(colour[0], colour[0]), text)


def entitle(ax: Any, title: str, samples: Mapping[str, tuple[Any, str]] | None = None) -> None:
    """Set a title; below it, above the Axes, a legend of samples (colour, hatch)."""
    ax.set_title(
        "\n".join(fill(line, 90) for line in title.split("\n")), pad=24 if samples else None
    )
    if samples:
        from matplotlib.patches import Patch

        handles = [
            Patch(facecolor=colour, hatch=hatch, edgecolor="black", linewidth=0.5, label=name)
            for name, (colour, hatch) in samples.items()
        ]
        ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=6, borderpad=0.2)


def lanes(ax: Any, names: Sequence[str], end: float) -> None:
    """Set up horizontal lanes, the first on top, on an axis from 0 to `end`; what stays empty is
    grey.
    """
    ax.barh(range(len(names)), end, 0.8, color=EMPTY)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(0, end), ylim=(len(names) - 0.5, -0.5))
    ax.grid(axis="x")
    ax.set_axisbelow(True)


def bars(
    ax: Any,
    lane: float,
    spans: Sequence[tuple[float, float]],
    colour: Any,
    hatch: str = "",
    many: bool = False,
) -> None:
    """Draw bars (start, end) in a lane as one shape, `many` of them as a bitmap without rims."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if spans:
        low, high = lane - 0.4, lane + 0.4
        corners = []
        for start, end in spans:
            corners += [(start, low), (start, high), (end, high), (end, low), (start, low)]
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(spans)
        rim = 0 if many else 0.5
        look = {
            "facecolor": colour,
            "hatch": hatch,
            "edgecolor": "black",
            "linewidth": rim,
            "rasterized": many,
        }
        ax.add_artist(PathPatch(Path(corners, codes), **look))


def write(ax: Any, x: float, y: float, text: str, plate: Any = None) -> None:
    """Write small letters into the middle of a bar; a plate keeps them readable on a hatch."""
    box = plate and {"facecolor": plate, "edgecolor": "none", "pad": 1}
    ax.text(
        x, y, text, size=SMALL, color="black", ha="center", va="center", linespacing=1.0, bbox=box
    )


def fits(ax: Any, text: str, width: float, end: float) -> bool:
    """Whether small letters fit into a bar of that width on an axis from 0 to `end`."""
    room = ax.bbox.width * 72 / ax.figure.dpi * width / end
    return 0.64 * SMALL * max(map(len, text.split("\n"))) + 2 <= room

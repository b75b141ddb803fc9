"""Charts by matplotlib: how a notebook shows them, in the colours of a light or a dark page."""

from __future__ import annotations

import io
import math
from base64 import b64encode
from html import escape
from textwrap import fill
from typing import Any

from ttkit.visualize.drawing import LIGHT, READABLE, on_page

WIDTH = 6.4  # inches, 614 px on a page; the smallest text is 8 points, which is 10.7 px
SMALL, DOTS_PER_INCH = 8, 192
ROW, LABEL, LETTER = 390, 34, 5  # points: a legend's row, what a label takes, and its letters
# Charts are drawn in the colours of a light page; the style of pictures turns them on a dark one.
LIGHT_PAGE = dict(rule[2:].split(":") for rule in LIGHT.split(";"))
INK, BLUE, ORANGE, FRAME = (LIGHT_PAGE[name] for name in ("ink", "link", "curve", "frame"))
GREY = "#7a828c"  # which stands out from both pages
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
        """Return the chart as an image of its own, in which no style and no id meets the page's."""
        from matplotlib import style
        from matplotlib.figure import Figure

        text, page = repr(self), io.BytesIO()
        with style.context(["default", {**LOOK, "svg.hashsalt": text}]):
            figure = Figure((WIDTH, self.height), layout="constrained")
            self.draw(figure.subplots())
            # a date and a version would differ from run to run
            unknown = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            figure.savefig(page, format="svg", dpi=DOTS_PER_INCH, metadata=unknown)
        image = b64encode(page.getvalue()).decode()
        wide, least = (96 * WIDTH * part for part in (1, READABLE / (SMALL * 4 / 3)))
        return on_page(
            f'<img class="ttkit-chart" alt="{escape(text)}" style="min-width:{least:.0f}px" '
            f'width="{wide:.0f}" src="data:image/svg+xml;base64,{image}">'
        )


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

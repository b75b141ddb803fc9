"""Charts drawn by matplotlib: losses, memory, bars. A notebook shows them as SVG."""

import io
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from textwrap import fill
from typing import Any

from ttkit import backend
from ttkit.visualize.drawing import INK, LIGHT, ROLES, on_page
from ttkit.visualize.lanes import LEFT
from ttkit.words import short

# The WIDTH of a figure, in inches, is 614 px on a page. The smallest text has 8 points, which is
# then 10.7 px. On a narrow page the style keeps a width of 576 px, so this text still has 10 px.
WIDTH = 6.4
DOTS_PER_INCH = 192
LEGEND = 100  # A line of a legend has room for this many letters; a handle takes the room of 7.
# Each colour of a curve stands out from a light and from a dark page. The names of up to four
# curves are written in the first four. These are in OF_PAGE, so small letters are readable in both.
COLOURS = "#3466b8 #a3551f #586274 #9a4fb8 #85893a #cc5780".split()
# Different dashes keep curves apart that lie on one another. Because 6 colours and 5 dashes have no
# common divisor, 30 curves differ.
DASHES: Any = ("-", "--", ":", "-.", (0, (8, 2)))
EDGE = "#22262e"  # Edges and hatches of bars are dark on any page, so this is not in OF_PAGE.
# Hatches let a reader who sees no colours distinguish the parts of a bar.
HATCHES = (None, "//", "..", "xx", "--", "\\\\")
# Each point of a curve has a dot if there are at most this many, and no points without a line.
DOTS = 20
NAMED = 4  # Up to this number of curves, each has its name at its end; more have a legend.
NAME = 20  # The name at the end of a curve is broken into lines of at most this many letters.
LINE = 0.09  # A line of text in the name of a curve takes this part of the height of the Axes.
# The line from the end of a curve to its name is pale, so that it does not look like data.
LEADER = {"arrowstyle": "-", "relpos": (0, 0.5), "shrinkB": 5, "color": "#8a94a3", "linestyle": ":"}
BESIDE = 45  # The name of a bar is broken into lines of at most this many letters.
Points = Sequence[tuple[float, float]]
# Charts are drawn with the colours of a light page, which then become those of any page.
OF_PAGE = {c[-7:]: f"var({c[:-8]})" for c in LIGHT.split(";") if "#" in c}
LOOK = Path(__file__).with_name("look.mplstyle")


class Chart:
    """Data that matplotlib draws. `plot(ax)` draws into your Axes; a notebook shows a picture.

    `repr` has the same data in rounded numbers. Pages without pictures show this text, and screen
    readers read it. Tests of notebooks compare the text and not the picture, because the bytes of
    the SVG depend on the CPU and on matplotlib.
    """

    title: str
    height = 2.8  # The figure has this height in inches.
    left = 0.0  # The Axes begin at this part of the width or later.

    def draw(self, ax) -> None:
        """Draw into a matplotlib Axes."""
        raise NotImplementedError

    def plot(self, ax=None):
        """Draw into a matplotlib Axes, by default one in a new figure, and return it."""
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(figsize=(WIDTH, self.height), layout="constrained")[1]
        self.draw(ax)
        return ax

    def _repr_html_(self) -> str:
        return on_page("".join(self.title_and_image))

    @cached_property
    def title_and_image(self) -> tuple[str, str]:
        """The HTML of the title, and the SVG of the chart, whose style is for the chart only."""
        from matplotlib import style
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        text = repr(self)
        page = io.StringIO()
        with style.context(["default", LOOK, {"svg.hashsalt": text}]):
            figure = Figure((WIDTH, self.height), DOTS_PER_INCH)
            ax = figure.subplots()
            self.draw(ax)
            title = ax.get_title("left")
            ax.set_title("")
            if legend := ax.get_legend():
                signs, labels = ax.get_legend_handles_labels()
                letters = [7 + len(label) for label in labels]
                columns = len(labels) if sum(letters) <= LEGEND else LEGEND // max(letters) or 1
                legend.remove()
                figure.legend(signs, labels, ncols=columns, loc="outside upper left")
            ConstrainedLayoutEngine().execute(figure)
            place = ax.get_position()
            place.x0 = max(self.left, place.x0)
            ax.set_position(place)
            # `savefig` would draw everything twice, and the first drawing would not be used. A date
            # would make saved pictures differ from run to run, and the name of the creator holds
            # the version of matplotlib.
            unknown = "Creator", "Date", "Format", "Type"
            FigureCanvasSVG(figure).print_svg(page, metadata=dict.fromkeys(unknown))
        svg = re.sub(r'<g id="[^"]*"', "<g", page.getvalue().partition("<svg ")[2])
        for light, colour in (("*{", ".ttkit-chart *{"), *OF_PAGE.items()):
            svg = svg.replace(light, colour)
        return (
            f'<div class="ttkit-title">{escape(title)}</div>',
            f'<svg class="ttkit-chart" role="img" aria-label="{escape(text)}" {svg}'
            f"{self.spots(ax)}",
        )

    def spots(self, ax) -> str:
        """Return HTML that is placed over the image of the Axes, such as spots to click."""
        return ""


def entitle(ax, title: str) -> None:
    """Set the title, and a legend if anything has a label."""
    ax.set_title(title)
    if ax.get_legend_handles_labels()[1]:
        ax.legend()


def mark_limit(ax, limit: float, unit: str, name: str = "limit") -> None:
    """Draw a line with its name above it; beyond a limit is the red area of what does not fit."""
    end = max(ax.get_xlim()[1], 1.1 * limit)
    ax.set_xlim(right=end)
    ax.axvline(limit, color=INK)
    if name == "limit":
        ax.axvspan(limit, end, color="#fddcd8", zorder=0)
    text = f"{name}: {short(limit, unit)}"
    ax.text(limit, 1.03, text, ha="center", transform=ax.get_xaxis_transform())


def _name(ax, lines: Sequence, ends: Points) -> None:
    """Write the name of each line to the right of the Axes, and join it to the end of the line.

    A name is moved up if it would cover the one below it. The name of a line that ends much
    earlier than others stands at its end.
    """
    ax.autoscale_view()
    place = ax.transScale + ax.transLimits
    low = -1.0
    for end, line in sorted(zip(ends, lines), key=lambda pair: pair[0][1]):
        name = fill(line.get_label(), NAME)
        look = {"color": line.get_color(), "va": "center"}
        if end[0] < 0.8 * max(ends)[0]:
            ax.annotate(name, end, (8, 0), textcoords="offset points", **look)
            continue
        low = max(place.transform(end)[1], low + LINE * (1 + name.count("\n")))
        ax.annotate(name, end, (1.05, low), textcoords="axes fraction", arrowprops=LEADER, **look)


@dataclass(repr=False)
class Curves(Chart):
    """Curves, such as the losses of one run or of several, over steps or over another quantity.

    If positive values differ widely, their axis is logarithmic.

    Args:
        curves: for each name the points of a curve, (step, value).
        digits: how many digits the values have in `repr`; a reader of the chart needs no more.
        over: the quantity on the horizontal axis, such as "chips".
        dots: the names of the curves that are drawn as points without a line.

    Example:
        >>> Curves("loss", {"DP4": [(1, 5.5), (2, 5.0)], "TP4": [(1, 5.5), (2, 5.1)]})
        loss
          DP4: 5.5 at step 1, 5 at step 2
          TP4: 5.5 at step 1, 5.1 at step 2
    """

    title: str
    curves: Mapping[str, Points]
    digits: int = 3
    over: str = "step"
    dots: Sequence[str] = ()

    def __repr__(self) -> str:
        curves = (f"{name}: {self._in_words(points)}" for name, points in self.curves.items())
        return "\n  ".join([self.title, *curves])

    def _in_words(self, points: Points) -> str:
        """Return text with up to five points at even distances, and the range of all values."""
        if not points:
            return "nothing yet"
        at = {round((len(points) - 1) * part / 4) for part in range(5)}
        shown = (points[i] for i in sorted(at))
        text = ", ".join(f"{y:.{self.digits}g} at {self.over} {x:g}" for x, y in shown)
        values = [y for _, y in points if math.isfinite(y)]
        if values and len(points) > len(at):
            low, high = (f"{y:.{self.digits}g}" for y in (min(values), max(values)))
            text += f"; all from {low} to {high}"
        return text

    def draw(self, ax) -> None:
        """Draw a line for each curve; a value that is not finite leaves a gap."""
        from matplotlib.ticker import MaxNLocator

        ax.set_xlabel(self.over)
        ax.grid(axis="y")
        lines, ends = [], []
        for i, (name, points) in enumerate(self.curves.items()):
            dash = "" if name in self.dots else DASHES[i % len(DASHES)]
            # Curves that are drawn first are wider, so that they stay visible below later ones.
            width = 1.6 + 0.8 * min(len(self.curves) - 1 - i, 2)
            dots = "os^D"[i % 4] if not dash or (len(points) <= DOTS and not self.dots) else ""
            look = {"color": COLOURS[i % len(COLOURS)], "linewidth": width, "marker": dots}
            x, y = zip(*points) if points else ((), ())
            if dash and len({*y}) == 1 < len(y):  # This is a level to compare the others with.
                look = {"color": INK, "linewidth": 0.8}
                dash = "-"
            # A legend leaves out the label "_": a name without any points needs no entry.
            label = name if points or name not in self.dots else "_"
            lines += ax.plot(x, y, linestyle=dash, label=label, **look)
            ends += [point for point in points if math.isfinite(point[1])][-1:]
        ax.set_title(self.title)
        low, high = ax.dataLim.intervaly
        if 0 < 40 * low < high:  # On a linear axis all small values would seem to be 0.
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter("{x:,g}")
        if len(ends) == len(self.curves) <= NAMED and not self.dots:
            _name(ax, lines, ends)
        else:
            ax.legend()
        if all(x == int(x) for points in self.curves.values() for x, _ in points):
            ax.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=True))
        if not any(self.curves.values()):  # Without points, numbers on the axes have no meaning.
            ax.set(xticks=[], yticks=[])


@dataclass(repr=False)
class Stacks(Chart):
    """Stacked bars, such as the kept and dropped tokens of each expert.

    Args:
        rows: for each name of a bar the sizes of its parts.
        parts: the names of the parts. If parts have no names, put the size of a bar into its name.
        hatched: the names of the parts that are drawn as empty, hatched boxes, such as parts that
            are lost or that wait.
        unit: the unit of the sizes: a word, or "B" or "s", for which the axis has prefixes. With
            "B", `repr` has sizes in the form 3.93 MB, and the name of each bar has its sum.
        limit: a number that is drawn as a line, such as a chip's memory; with 0 there is no line.
        until: the axis ends here or later, so that all pictures of a slider have the same axis.
        limit_name: the name of the line; under another name than "limit" nothing is red.

    Example:
        >>> Stacks("tokens", {"expert 0": (4, 0), "expert 1": (5, 3)}, ("kept", "dropped"))
        tokens
          expert 0: 4 kept
          expert 1: 5 kept, 3 dropped
        >>> Stacks("sent", {"0 to 1: 4 KiB": [4096]})
        sent
          0 to 1: 4 KiB
    """

    title: str
    rows: Mapping[str, Sequence[float]]
    parts: Sequence[str] = ("",)
    hatched: Sequence[str] = ()
    unit: str = ""
    limit: float = 0
    until: float = 0
    limit_name: str = "limit"

    left = LEFT / 96 / WIDTH  # The bars of all charts and those of `Lanes` begin at one place.

    def __repr__(self) -> str:
        lines = [self.title]
        for name, sizes in self.rows.items():
            held = [f"{self._text(n)} {part}" for n, part in zip(sizes, self.parts) if n]
            about = f": {', '.join(held) or 'none'}" if any(self.parts) else ""
            lines.append(self._name(name) + about)
        lines += [f"{self.limit_name}: {short(self.limit, self.unit)}"] if self.limit else []
        return "\n  ".join(lines)

    def _text(self, size: float) -> str:
        return short(size, "B") if self.unit == "B" else f"{size:.4g}"

    def _name(self, name: str) -> str:
        return f"{name}: {self._text(sum(self.rows[name]))}" if self.unit == "B" else name

    def __post_init__(self):
        self.height = 0.95 + (0.29 if len(self.rows) <= 16 else 0.2) * len(self.rows)

    def draw(self, ax) -> None:
        """Draw a bar for each row. Each part has its own hatching in addition to its colour."""
        from matplotlib.ticker import EngFormatter, MaxNLocator

        left = [0.0] * len(self.rows)
        names = [fill(self._name(name), BESIDE) for name in self.rows]
        looks = zip(itertools.cycle(COLOURS), itertools.cycle(HATCHES))
        for part, sizes, (other, hatch) in zip(self.parts, zip(*self.rows.values()), looks):
            # The name of a part, such as "weights", selects its colour. If the part has no name,
            # the name of the bar selects it.
            colour = [ROLES.get(part or name, other) for name in self.rows]
            look: dict[str, Any] = {"facecolor": colour, "edgecolor": EDGE, "hatch": hatch}
            if part in self.hatched:
                look = {"fill": False, "edgecolor": colour, "hatch": "////"}
            label = part if self.parts[1:] and any(sizes) else ""
            bars = ax.barh(names, sizes, 0.7, left, label=label, **look)
            for bar, size in zip(bars, sizes):
                if not size:  # A bar of size 0 would show its edge, and the axis would end there.
                    bar.remove()
            left = [a + b for a, b in zip(left, sizes)]
        if self.unit in ("B", "s"):
            ax.xaxis.set_major_formatter(EngFormatter(self.unit))
        else:
            ax.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
            ax.set_xlabel(self.unit or ("" if self.parts[1:] else self.parts[0]))
        ax.set_xlim(0, max(ax.get_xlim()[1], self.until))
        if self.limit:
            mark_limit(ax, self.limit, self.unit, self.limit_name)
        ax.invert_yaxis()
        ax.grid(axis="x")
        entitle(ax, self.title)


class MemoryBars(Stacks):
    """Bars of the memory of a chip: one bar for each case, with a part for each kind of data.

    Args:
        title: the title of the chart.
        held: {case: {kind: bytes}}.
        limit: the memory of a chip in bytes, drawn as a line; with 0 there is no line.

    Example:
        >>> MemoryBars("held", {"ZeRO 0": {"weights": 4e9, "gradients": 4e9}}, limit=12e9)
        held
          ZeRO 0: 8 GB: 4 GB weights, 4 GB gradients
          limit: 12 GB
    """

    def __init__(self, title: str, held: Mapping[str, Mapping[str, float]], limit: float = 0):
        kinds = tuple(dict.fromkeys(itertools.chain(*held.values())))
        rows = {case: [sizes.get(kind, 0) for kind in kinds] for case, sizes in held.items()}
        super().__init__(title, rows, kinds, unit="B", limit=limit)


class MemoryReport(MemoryBars):
    """Bars of the DRAM in use on each chip of a mesh, in bytes. On a card all numbers are NaN.

    Args:
        mesh: the name of the mesh.
        total: the DRAM of each chip in bytes.
        used: {device: bytes in use}.
    """

    def __init__(self, mesh: str, total: float, used: Mapping[int, float]):
        bars = {f"device {device}": {"": nbytes} for device, nbytes in used.items()}
        super().__init__(f"DRAM in use on {mesh}", bars, total)
        self.total, self.used = total, used


def memory(mesh) -> MemoryReport:
    """Return the bytes of DRAM that all tensors use on each chip of a mesh, tile padding included.

    Only the simulator counts these bytes. On a card every number is NaN, so that the same code runs
    there, too.

    Example:
        >>> from ttkit import ttnn
        >>> with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        ...     memory(mesh).used
        {4: 0, 0: 0}
    """
    total = math.nan
    used = dict.fromkeys(mesh.get_device_ids(), total)
    if backend.is_simulated():
        from ttkit.sim.tensor.tensor import bytes_in_use

        total = mesh.system.chip.dram_bytes
        held = bytes_in_use()
        used = {device: held[device] for device in used}
    return MemoryReport(repr(mesh), total, used)

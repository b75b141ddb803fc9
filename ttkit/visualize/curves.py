"""Curves over steps: losses of one run, or of several on one chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ttkit.visualize.chart import BLUE, GREY, ORANGE, Chart, entitle

# Each stands out from a light and from a dark page.
COLOURS = (BLUE, ORANGE, GREY, "#a85cc4", "#85893a", "#cc5780")
DASHES = ("-", "--", ":")  # so that curves that lie on one another can be told apart
DOTS = 20  # up to so many points, each has a dot
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, repr=False)
class Curves(Chart):
    """What a chart shows: name -> (step, value) points; it draws itself in a notebook.

    Args:
        across: what the points are counted in.
        digits: of the values in words; smaller differences do not matter to a reader of the chart.

    Example:
        >>> Curves("loss", {"DP4": [(1, 5.5), (2, 5.0)], "TP4": [(1, 5.5), (2, 5.1)]})
        loss
          DP4: 5.5 at step 1, 5 at step 2
          TP4: 5.5 at step 1, 5.1 at step 2
    """

    title: str
    curves: Mapping[str, Points]
    across: str = "step"
    digits: int = 3

    def __repr__(self) -> str:
        return "\n".join(
            [
                self.title,
                *(f"  {name}: {self._in_words(points)}" for name, points in self.curves.items()),
            ]
        )

    def _in_words(self, points: Points) -> str:
        """Up to five points, evenly spread, and between which values all of them lie."""
        last, values = len(points) - 1, [y for _, y in points if math.isfinite(y)]
        shown = (
            [points[i] for i in sorted({round(last * part / 4) for part in range(5)})]
            if points
            else []
        )
        text = (
            ", ".join(f"{y:.{self.digits}g} at {self.across} {x:g}" for x, y in shown)
            or "nothing yet"
        )
        if values and len(points) > len(shown):
            low, high = (f"{y:.{self.digits}g}" for y in (min(values), max(values)))
            text += f"; all from {low} to {high}"
        return text

    def draw(self, ax: Any) -> None:
        """Draw a line for each curve; a value that is not finite leaves a gap."""
        from matplotlib.ticker import MaxNLocator

        entitle(ax, self.title)
        for i, (name, points) in enumerate(self.curves.items()):
            x, y = zip(*points) if points else ((), ())
            ax.plot(
                x,
                y,
                label=name,
                color=COLOURS[i % len(COLOURS)],
                linestyle=DASHES[(i + i // len(COLOURS)) % len(DASHES)],
                linewidth=1.6 + 0.8 * min(len(self.curves) - 1 - i, 2),  # those below have rims
                marker="o" if len(points) <= DOTS else "",
            )
        ax.set_xlabel(self.across)
        ax.grid(axis="y")
        steps = [x for points in self.curves.values() for x, _ in points]
        if not steps:
            ax.text(0.5, 0.5, "nothing yet", transform=ax.transAxes, ha="center")
            ax.set(xticks=[], yticks=[])
            return
        ax.legend()
        if all(x == int(x) for x in steps):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))

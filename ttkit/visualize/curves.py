"""Curves over steps: losses of one run, or of several on one chart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ttkit.visualize.drawing import Drawing, width_of

LEFT, PLOT, RIGHT = 54, 620, 22
TOP, HEIGHT, BOTTOM = 62, 220, 44
COLOURS = ("var(--wire)", "var(--wrap)", "#2e9e6b", "#a85cc4", "#8a8f3c", "#c44f75")
DASHES = ("", "7 4", "2 3")  # so that curves that lie on one another can be told apart
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Curves:
    """What a chart shows: name -> (step, value) points; it draws itself in a notebook.

    Example:
        >>> Curves("loss", {"DP4": [(1, 5.5), (2, 5.0)], "TP4": [(1, 5.5), (2, 5.1)]})
        loss
          DP4: 5.5 at step 1, 5 at step 2
          TP4: 5.5 at step 1, 5.1 at step 2
    """

    title: str
    curves: Mapping[str, Points]
    across: str = "step"

    def __repr__(self) -> str:
        lines = [self.title]
        for name, points in self.curves.items():
            ends = [points[0], points[-1]] if len(points) > 1 else points
            lines.append(f"  {name}: " + (", ".join(f"{y:.4g} at {self.across} {x:g}" for x, y in ends) or "nothing yet"))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return draw_curves(self).html()


def round_numbers(low: float, high: float, about: int = 5) -> list[float]:
    """About as many round numbers, the first at or below `low` and the last at or above `high`.

    Example:
        >>> round_numbers(1.93, 5.6)
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """
    rough = (high - low) / about or max(abs(high), 1.0) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def draw_curves(chart: Curves) -> Drawing:
    """Lines to scale under a legend, with the axes' numbers; a point alone is a dot."""
    drawing = Drawing(LEFT + PLOT + RIGHT, TOP + HEIGHT + BOTTOM, chart.title, repr(chart))
    drawing.words(3, 16, chart.title, size=13, anchor="start", bold=True)
    every = [(x, y) for points in chart.curves.values() for x, y in points if math.isfinite(y)]
    if not every:
        drawing.words(LEFT, TOP + 20, "nothing yet", anchor="start", colour="var(--soft)")
        return drawing
    ys = round_numbers(min(y for _, y in every), max(y for _, y in every))
    xs = [min(x for x, _ in every), max(x for x, _ in every)]
    wide = xs[1] - xs[0] or 1.0
    place = lambda x, y: (LEFT + (x - xs[0]) / wide * PLOT, TOP + HEIGHT - (y - ys[0]) / (ys[-1] - ys[0]) * HEIGHT)  # noqa: E731
    for y in ys:
        level = place(xs[0], y)[1]
        drawing.line(LEFT, level, LEFT + PLOT, level, colour="var(--frame)", width=1)
        drawing.words(LEFT - 8, level + 4, f"{y:.6g}", size=11, anchor="end", colour="var(--soft)")
    for x in [n for n in round_numbers(xs[0], xs[1], about=8) if xs[0] <= n <= xs[1] and n == int(n)] or xs[:1]:
        drawing.words(place(x, ys[0])[0], TOP + HEIGHT + 17, f"{x:g}", size=11, colour="var(--soft)")
    drawing.words(LEFT + PLOT / 2, TOP + HEIGHT + 36, chart.across, size=11, colour="var(--soft)")
    at: float = LEFT
    for i, (name, points) in enumerate(chart.curves.items()):
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        drawing.line(at, 38, at + 22, 38, colour=colour, width=2.4, dash=dash)
        drawing.words(at + 28, 42, name, size=11, anchor="start", colour="var(--soft)")
        at += 28 + width_of(name, 11) + 24
        spots = [place(x, y) for x, y in points if math.isfinite(y)]
        if len(spots) == 1:
            x, y = spots[0]
            drawing.box(x - 3, y - 3, 6, 6, fill=colour, edge="none", round=3)
        for (x1, y1), (x2, y2) in itertools.pairwise(spots):
            drawing.line(x1, y1, x2, y2, colour=colour, width=2, dash=dash)
    return drawing

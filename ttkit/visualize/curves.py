"""Curves over steps: losses of one run, or of several on one chart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ttkit.visualize.drawing import Drawing, Point, width_of, wrap

LEFT, PLOT, RIGHT = 64, 612, 36
HEIGHT, BOTTOM = 220, 44  # of the plot, and below it
TITLE, ROW, SAMPLE = 18, 20, 28  # heights of a line of the title and of a row of the legend; room for a piece of a curve in it
# Each can be told from the page, light and dark, and the third, whose dots are small, from the first two, which it may lie on.
COLOURS = ("var(--wire)", "var(--wrap)", "var(--ink)", "#a85cc4", "#85893a", "#cc5780")
DASHES = ("", "7 4", "2 3")  # so that curves that lie on one another can be told apart
DOTS = 20  # up to so many points, each has a dot
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
            # Two digits: the third of a loss after some hundred steps depends on the CPU.
            said = ", ".join(f"{y:.2g} at {self.across} {x:g}" for x, y in ends)
            lines.append(f"  {name}: {said or 'nothing yet'}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return draw_curves(self).html()


def round_numbers(low: float, high: float, about: int = 5) -> list[float]:
    """About as many round numbers, the first at or below `low` and the last at or above `high`.

    Example:
        >>> round_numbers(1.93, 5.6)
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """
    same = high - low <= max(1e-6 * max(abs(low), abs(high)), 1e-300)  # numbers that a label would not tell apart
    rough = (max(abs(high), 1.0) if same else high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if same:  # a flat curve lies between two lines, not on the frame
        first, last = first - (first * step >= low), last + (last * step <= high)
    return [i * step for i in range(first, last + 1)]


def pieces(points: Points) -> Iterator[list[Point]]:
    """The points between gaps: a value that is not finite leaves one.

    Example:
        >>> list(pieces([(1, 5.0), (2, float("nan")), (3, 4.0), (4, 3.0)]))
        [[(1, 5.0)], [(3, 4.0), (4, 3.0)]]
    """
    found: list[Point] = []
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            found.append((x, y))
        elif found:
            yield found
            found = []
    if found:
        yield found


def thinned(spots: Sequence[Point]) -> list[Point]:
    """Of the spots in each column of one pixel the lowest and the highest: what is seen of a long run, in a picture that stays small."""
    if len(spots) <= 2 * PLOT:
        return list(spots)
    columns: dict[int, list[Point]] = {}
    for spot in spots:
        columns.setdefault(int(spot[0]), []).append(spot)
    return [spot for column in columns.values() for spot in sorted({min(column, key=lambda p: p[1]), max(column, key=lambda p: p[1])})]


def look(i: int) -> tuple[str, str]:
    """Colour and dash of the curve with this number: eighteen can be told apart."""
    return COLOURS[i % len(COLOURS)], DASHES[(i + i // len(COLOURS)) % len(DASHES)]


def _legend(names: Sequence[str]) -> list[tuple[int, float, str]]:
    """Row, left edge and text of each name."""
    found, row, at = [], 0, float(LEFT)
    for name in names:
        text = wrap(name, PLOT - SAMPLE, 11, most=1)[0]
        wide = SAMPLE + width_of(text, 11)
        if at > LEFT and at + wide > LEFT + PLOT:
            row, at = row + 1, float(LEFT)
        found.append((row, at, text))
        at += wide + 24
    return found


def draw_curves(chart: Curves) -> Drawing:
    """Lines to scale under a legend, with the axes' numbers; few points have dots, and a value that is not finite leaves a gap."""
    curves = {name: list(pieces(points)) for name, points in chart.curves.items()}
    every = [point for parts in curves.values() for part in parts for point in part]
    names, title = _legend(list(curves)), wrap(chart.title, PLOT, 14)  # 14 for 13 in bold
    top = TITLE * len(title) + ROW * (names[-1][0] + 1 if names else 0) + 22
    drawing = Drawing(LEFT + PLOT + RIGHT, top + HEIGHT + BOTTOM, chart.title, repr(chart))
    for i, line in enumerate(title):
        drawing.words(3, 16 + TITLE * i, line, size=13, anchor="start", bold=True)
    for i, (row, at, name) in enumerate(names):
        colour, dash = look(i)
        level: float = TITLE * len(title) + ROW * row + 16
        drawing.line(at, level - 4, at + 22, level - 4, colour=colour, width=2.4, dash=dash)
        drawing.words(at + SAMPLE, level, name, size=11, anchor="start", colour="var(--soft)")
    if not every:
        drawing.words(LEFT, top + 20, "nothing yet", anchor="start", colour="var(--soft)")
        return drawing
    ys = round_numbers(min(y for _, y in every), max(y for _, y in every))
    low, high = min(x for x, _ in every), max(x for x, _ in every)
    if low == high:  # in the middle
        low, high = low - 1, high + 1

    def place(x: float, y: float) -> Point:
        return LEFT + (x - low) / (high - low) * PLOT, top + HEIGHT - (y - ys[0]) / (ys[-1] - ys[0]) * HEIGHT

    for y in ys:
        level = place(low, y)[1]
        drawing.line(LEFT, level, LEFT + PLOT, level, colour="var(--frame)", width=1)
        drawing.words(LEFT - 8, level + 4, f"{y:.4g}", size=11, anchor="end", colour="var(--soft)")
    steps = [n for n in round_numbers(low, high, about=8) if low <= n <= high]
    for x in [n for n in steps if n == int(n)] if all(x == int(x) for x, _ in every) else steps:
        drawing.words(place(x, ys[0])[0], top + HEIGHT + 17, f"{x:,.6g}" if x != int(x) else f"{x:,.0f}", size=11, colour="var(--soft)")
    drawing.words(LEFT + PLOT / 2, top + HEIGHT + 36, chart.across, size=11, colour="var(--soft)")
    for i, parts in enumerate(curves.values()):
        colour, dash = look(i)
        dots = sum(map(len, parts)) <= DOTS
        for part in parts:
            spots = [place(x, y) for x, y in part]
            if len(spots) > 1:
                below = min(len(curves) - 1 - i, 2)  # wider, so that curves that lie on one another have rims
                drawing.curve(thinned(spots), colour=colour, width=2 + 0.9 * below, dash=dash)
            for x, y in spots if dots or len(spots) == 1 else []:
                drawing.box(x - 3, y - 3, 6, 6, fill=colour, edge="none", round=3)
    return drawing

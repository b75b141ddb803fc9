"""The chart of what a collective takes over the size of its shards, by several algorithms."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ttkit.errors import check_counts, fail
from ttkit.plans import Plan, cost, crossover
from ttkit.visualize.chart import INK, Chart, entitle
from ttkit.visualize.charts import COLOURS, DASHES
from ttkit.visualize.drawing import size_text

SIZES = tuple(64 << n for n in range(17))  # bytes: 64 to 4 MiB
DOTS = "os^D"  # a shape for each curve


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:,.4g} us"


@dataclass(frozen=True, repr=False)
class CostCurves(Chart):
    """Curves of modelled seconds over bytes, on logarithmic axes, and where the fastest changes.

    Args:
        curves: name -> (bytes of a shard, seconds) points.
        size: bytes at which the seconds are read off.
        at: name -> the seconds there.
        crossings: (bytes, name that is faster below, name that is faster from there on).
    """

    title: str
    curves: Mapping[str, tuple[tuple[int, float], ...]]
    size: int
    at: Mapping[str, float]
    crossings: tuple[tuple[int, str, str], ...]

    def __repr__(self) -> str:
        times = ", ".join(f"{name} {_micro(seconds)}" for name, seconds in self.at.items())
        lines = [self.title, f"at {size_text(self.size)}: {times}"]
        for size, below, above in self.crossings:
            lines.append(f"cross-over at {size_text(size)}: {below} below, {above} from there on")
        return "\n  ".join(lines)

    @property
    def height(self) -> float:
        """Of the figure, in inches."""
        return 3.6

    def draw(self, ax: Any) -> None:
        """Draw the curves, a line at the size, and a cross at each cross-over."""
        from matplotlib.ticker import FuncFormatter, LogLocator

        ax.set(xscale="log", yscale="log")
        for i, (name, points) in enumerate(self.curves.items()):
            colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
            label = f"{name}: {_micro(self.at[name])}"
            dot = DOTS[i % len(DOTS)]
            ax.plot(*zip(*points), color=colour, linestyle=dash, marker=dot, ms=4, label=label)
            ax.plot(self.size, self.at[name], color=INK, marker=dot, ms=7, fillstyle="none")
        ax.axvline(self.size, color=INK, linewidth=0.8, linestyle=":")
        low = min(seconds for points in self.curves.values() for _, seconds in points)
        for size, below, above in self.crossings:
            there = next(y for x, y in self.curves[below] if x >= size)
            ax.plot(size, there, color=INK, marker="x", ms=9, mew=2)
            text = f"cross-over at {size_text(size)}:\n{below} below, {above} from there on"
            ax.annotate(text, (size, there), (12, -12), textcoords="offset points", va="top")
        ax.set_ylim(bottom=low / 4)
        ax.xaxis.set_major_locator(LogLocator(base=4, numticks=12))
        ax.xaxis.set_minor_locator(LogLocator(base=2, numticks=2))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: size_text(n)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{1e6 * t:g} us"))
        ax.set_xlabel("bytes of the shard of each chip")
        ax.grid()
        entitle(ax, f"{self.title} · at {size_text(self.size)}")


def cost_curves(
    title: str, algorithms: Mapping[str, Callable[[int], Plan]], size: int = 4096
) -> CostCurves:
    """Return the chart of the modelled times of algorithms over the bytes of a shard.

    Args:
        algorithms: name -> a function that builds the plan for a shard of so many bytes.
        size: bytes at which the times are read off.

    Example:
        >>> from ttkit.plans import all_reduce, topology
        >>> def by(name):
        ...     return lambda n: all_reduce(topology("t3000"), n, 1, algorithm=name)
        >>> cost_curves("all_reduce in a row", {"tree": by("tree"), "line": by("line")}, 65536)
        all_reduce in a row
          at 64 KiB: tree 15.51 us, line 10.74 us
          cross-over at 7.93 KiB: tree below, line from there on
    """
    asked = f"cost_curves({title!r}, {list(algorithms)})"
    check_counts(asked, size=size)
    if not algorithms:
        fail(asked, "there is nothing to draw", 'algorithms={"line": ...}')
    curves = {
        name: tuple((n, cost(build(n)).time_s) for n in SIZES) for name, build in algorithms.items()
    }
    best = [min((curves[name][i][1], name) for name in curves)[1] for i in range(len(SIZES))]
    crossings = []
    for below, above in itertools.pairwise(best):
        if below != above:
            found = crossover(algorithms[below], algorithms[above])
            crossings += [(found, below, above)] if found else []
    at = {name: cost(build(size)).time_s for name, build in algorithms.items()}
    return CostCurves(title, curves, size, at, tuple(crossings))

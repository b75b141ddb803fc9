"""A chart of the cost of collectives: seconds over the size of a shard, for several algorithms."""

import itertools
from collections.abc import Callable, Mapping

from ttkit.plans import Plan, cost, crossover
from ttkit.visualize.charts import Curves
from ttkit.visualize.drawing import INK, size_text

SIZES = tuple(64 << n for n in range(17))  # The sizes are powers of two from 64 bytes to 4 MiB.


class CostCurves(Curves):
    """Curves of modelled seconds over the bytes of a shard, with the sizes at which another
    algorithm becomes the fastest.

    Args:
        algorithms: for each name a function that takes the bytes of a shard and returns its plan.
        size: the bytes of the shard whose times are in the title.

    Attributes:
        at: for each name the seconds at `size`.
        crossings: (bytes, seconds, name of the algorithm that is faster below this size, name of
            the one that is faster from there on).

    Example:
        >>> from ttkit.plans import all_reduce, topology
        >>> def by(name):
        ...     return lambda n: all_reduce(topology("t3000"), n, 1, algorithm=name)
        >>> CostCurves("all_reduce in a row", {"tree": by("tree"), "line": by("line")}, 65536)
        all_reduce in a row
          at 64 KiB: tree 59.87 µs, line 64.16 µs
          cross-over at 83.3 KiB: tree below, line from there on
    """

    height = 3.4

    def __init__(
        self, title: str, algorithms: Mapping[str, Callable[[int], Plan]], size: int = 4096
    ):
        curves = {
            name: tuple((n, cost(build(n)).time_s) for n in SIZES)
            for name, build in algorithms.items()
        }
        self.size = size
        self.at = {name: cost(build(size)).time_s for name, build in algorithms.items()}
        times = ", ".join(f"{name} {1e6 * seconds:,.4g} µs" for name, seconds in self.at.items())
        title += f"\n  at {size_text(size)}: {times}"
        super().__init__(title, curves, over="bytes that each chip has")
        self.crossings: list = []
        best = [min((curves[name][i][1], name) for name in curves)[1] for i in range(len(SIZES))]
        for below, above in itertools.pairwise(best):
            if below != above and (found := crossover(algorithms[below], algorithms[above])):
                there = cost(algorithms[above](found)).time_s
                self.crossings.append((found, there, below, above))

    def __repr__(self) -> str:
        found = (
            f"cross-over at {size_text(size)}: {below} below, {above} from there on"
            for size, _, below, above in self.crossings
        )
        return "\n  ".join([self.title, *found])

    def draw(self, ax) -> None:
        """Draw the curves, a vertical line at `size`, and a cross at each cross-over."""
        from matplotlib.ticker import FuncFormatter, LogLocator

        ax.set(xscale="log", yscale="log", ymargin=0.2)
        super().draw(ax)
        ax.axvline(self.size, color=INK, linewidth=0.8, linestyle=":")
        for size, there, below, above in self.crossings:
            ax.plot(size, there, color=INK, marker="x", ms=9, mew=2)
            text = f"cross-over at {size_text(size)}:\n{below} below,\n{above} from there on"
            ax.annotate(text, (size, there), (12, -12), textcoords="offset points", va="top")
        ax.xaxis.set_major_locator(LogLocator(base=4, numticks=12))
        ax.minorticks_off()
        ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: size_text(n)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{1e6 * t:g} µs"))

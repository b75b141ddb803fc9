"""The chart of what algorithms take over the size: its points are the model's, and the cross-over
is where the fastest changes.
"""

from matplotlib.figure import Figure

from ttkit.plans import all_gather, all_reduce, cost, crossover, topology
from ttkit.visualize.charts.costs import SIZES, CostCurves

RIM, GRID = topology("t3000", (1, 8)), topology("t3000")
ALL = {
    "line": lambda n: all_reduce(RIM, n, 1, algorithm="line"),
    "ring": lambda n: all_reduce(RIM, n, 1),
    "tree": lambda n: all_reduce(GRID, n, algorithm="tree"),
}


def test_points_and_times_are_the_models():
    chart = CostCurves("all_reduce", ALL, 5000)
    for name, build in ALL.items():
        assert chart.curves[name] == tuple((n, cost(build(n)).time_s) for n in SIZES)
        assert chart.at[name] == cost(build(5000)).time_s


def test_the_cross_over_is_where_the_fastest_changes():
    ((size, there, below, above),) = CostCurves("all_reduce", ALL).crossings
    assert (below, above) == ("tree", "ring")
    assert size == crossover(ALL["tree"], ALL["ring"])
    times = {n: cost(ALL[n](size)).time_s for n in ALL}
    assert there == times["ring"] <= times["tree"] and times["ring"] <= times["line"]
    assert not CostCurves("one", {"ring": ALL["ring"]}).crossings


def test_what_is_drawn():
    chart = CostCurves("all_reduce", ALL, 65536)
    ax = chart.plot(Figure().subplots())
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert {text.get_text() for text in ax.texts} > set(ALL) and not ax.get_legend()
    assert f"tree {1e6 * chart.at['tree']:,.4g} µs" in chart.title
    drawn = [line for line in ax.lines if len(line.get_xdata()) == len(SIZES)]
    looks = {(line.get_linestyle(), line.get_marker()) for line in drawn}
    assert len(looks) == len(ALL)  # told apart without colours
    crosses = [line for line in ax.lines if line.get_marker() == "x"]
    assert [line.get_xdata()[0] for line in crosses] == [chart.crossings[0][0]]
    assert "64 KiB" in ax.get_title() + ax.get_title(loc="left") and "<svg" in chart._repr_html_()
    assert "cross-over at" in repr(chart) and "tree below, ring from there on" in repr(chart)


def test_what_a_plan_costs_is_of_pairs_not_of_links():
    """A pair has two links: of 4 MiB over the busiest pair each carries 2."""
    card = str(cost(all_gather(topology("t3000"), 1 << 20)))
    assert "busiest pair" in card and "2,097,152 over each of 2 links" in card
    alone = all_gather(topology("t3000"), 1 << 20, links=1)
    assert "over each of" not in str(cost(alone))

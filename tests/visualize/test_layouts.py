"""Memory against speed: the front, its words, its picture."""

import pytest

from ttkit.visualize.charts.layouts import ParetoChart

POINTS = (("A", 2.0, 10.0), ("B", 1.0, 5.0), ("C", 3.0, 9.0), ("D", 2.0, 8.0), ("E", 4.0, 12.0))


def test_the_front():
    chart = ParetoChart("layouts", POINTS, 10.8)
    assert [name for name, *_ in chart.front] == ["B", "A", "E"]
    assert repr(chart).splitlines()[1] == "  B: 1 GB, 5 tokens/s"


@pytest.mark.parametrize("points", [POINTS, ()])
def test_it_draws_into_axes(points):
    plt = pytest.importorskip("matplotlib.pyplot")
    figure, ax = plt.subplots()
    assert ParetoChart("layouts", points, 10.8).plot(ax=ax) is ax
    assert bool(ax.lines) == bool(points)
    plt.close(figure)


def test_in_a_notebook_it_is_a_picture():
    assert "<img" in ParetoChart("layouts", POINTS, 10.8)._repr_html_()

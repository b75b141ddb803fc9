"""Memory against speed: the front, its words, its picture."""

from types import SimpleNamespace

from ttkit.visualize.charts.layouts import pareto

POINTS = (("A", 2.0, 10.0), ("B", 1.0, 5.0), ("C", 3.0, 9.0), ("D", 2.0, 8.0), ("E", 4.0, 12.0))


def test_the_bars_are_the_front():
    fitting = [
        SimpleNamespace(layout=name, memory=SimpleNamespace(total=1e9 * gb), tokens_per_s=speed)
        for name, gb, speed in POINTS
    ]
    machine = SimpleNamespace(room=10.8e9)
    chart = pareto(SimpleNamespace(fitting=fitting, machine=machine, title="layouts"))
    assert [name for name, *_ in chart.bars] == ["B", "A", "E"]
    assert repr(chart).splitlines()[1] == "  B: 1 GB, 5 tokens/s"
    nothing = pareto(SimpleNamespace(fitting=[], machine=machine, title="layouts"))
    assert "<img" in chart._repr_html_() and "<img" in nothing._repr_html_()

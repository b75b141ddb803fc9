"""Charts of losses, memory and links: what they show, in words and in a matplotlib Axes."""

import itertools
import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from visualize.test_chart import svg_of
from visualize.test_look import contrast

from ttkit.visualize import charts
from ttkit.visualize.charts import COLOURS, HATCHES, Curves, MemoryBars, MemoryReport, Stacks
from ttkit.visualize.drawing import DARK, LIGHT

FALLING = [(step, 5.5 / step) for step in range(1, 301)]
NAMES = [f"mesh {i}" for i in range(18)]


def axes(chart):
    return chart.plot(Figure().subplots())


def test_a_line_for_each_curve_with_its_name_and_data():
    curves = {"training loss": FALLING, "validation loss": FALLING[99::100]}
    ax = axes(Curves("loss", curves))
    assert [line.get_label() for line in ax.lines] == list(curves)
    assert [text.get_text() for text in ax.texts] == list(curves) and not ax.get_legend()
    assert [text.xy for text in ax.texts] == [points[-1] for points in curves.values()]
    for line, points in zip(ax.lines, curves.values(), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), points)
    assert ax.get_title() == "loss" and ax.get_xlabel() == "step"
    assert [line.get_marker() for line in ax.lines] == ["", "s"]  # few points have marks


def test_eighteen_curves_can_be_told_apart_and_not_by_colour_alone():
    lines = axes(Curves("loss", dict.fromkeys(NAMES, FALLING))).lines
    looks = [(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines]
    assert len(set(looks)) == 18
    assert all(a[1] != b[1] for a, b in itertools.pairwise(looks))
    widths = [line.get_linewidth() for line in lines]
    # where they lie on one another, those below have rims
    assert widths[-3:] == sorted(set(widths), reverse=True)


def test_names_at_the_ends_of_curves_do_not_cover_each_other():
    curves = {"falls": FALLING, "falls, too": FALLING, "a": FALLING, "is level": [(1, 5), (300, 5)]}
    ax = axes(Curves("loss", curves))
    heights = sorted(text.xyann[1] for text in ax.texts)
    assert all(b - a > 0.085 for a, b in itertools.pairwise(heights)) and len(heights) == 4
    for few in (curves | {"more": FALLING}, curves | {"is level": []}, {"a": [(1, math.nan)]}):
        ax = axes(Curves("loss", few))
        assert not ax.texts and len(ax.get_legend().get_texts()) == len(few)


def test_widely_different_values_have_a_logarithmic_axis_and_a_short_curve_its_name_at_its_end():
    ax = axes(Curves("loss", {"long": FALLING, "short": FALLING[:9]}))
    places = {text.get_text(): text.anncoords for text in ax.texts}
    assert places == {"long": "axes fraction", "short": "offset points"}
    assert [axes(Curves("", {"": FALLING[:n]})).get_yscale() for n in (9, 90)] == ["linear", "log"]


@pytest.mark.parametrize("style", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_stands_out_from_the_page(style):
    page = {f"var({name})": colour for name, colour in (p.split(":") for p in style.split(";"))}
    least = [contrast(page.get(charts.OF_PAGE.get(c, ""), c), page["var(--page)"]) for c in COLOURS]
    assert min(least) >= 3 and min(least[: charts.NAMED]) >= 4.5


@pytest.mark.parametrize(
    "points",
    [
        [(7, 3.25)], [(step, 2.5) for step in range(30)], [(1, 2.5), (2, math.nextafter(2.5, 3))],
        [(0, 0.0), (1, 0.0)], [(1, 4.2), (2, 1e13), (3, -2.5e30)], [(1, 1.25e-9), (2, 1.5e-9)],
        [(0.25, 1), (0.5, 2)], [(1, 4.0), (2, 12.0), (3, math.nan), (4, 5.0), (5, math.inf)],
        [(1, math.nan)],
    ],
    ids=str,
)  # fmt: skip
def test_odd_curves_are_drawn(points):
    chart = Curves("odd & <even> $x_1$", {"a $y$ <b>": points})
    html = chart._repr_html_()
    assert "odd &amp; &lt;even&gt; $x_1$" in html and "a $y$ &lt;b&gt;" in html
    assert "nan" not in svg_of(html).partition(">")[2]
    finite = [y for _, y in points if math.isfinite(y)]
    low, high = axes(chart).get_ylim()
    assert all(low < y < high for y in finite)


@pytest.mark.parametrize("curves", [{}, {"a": []}], ids=str)
def test_nothing_yet(curves):
    ax = axes(Curves("loss", curves))
    assert not any(len(line.get_xdata()) for line in ax.lines)
    assert not ax.get_xticks().size and not ax.get_yticks().size


def test_a_long_run_stays_a_small_picture():
    noise = np.random.default_rng(0).random(100_000)
    assert len(Curves("loss", {"run": list(enumerate(noise))})._repr_html_()) < 60_000


def test_as_text():
    few = Curves("loss", {"a": [(1, 5.5), (20, 2.25)], "b": []})
    assert repr(few) == "loss\n  a: 5.5 at step 1, 2.25 at step 20\n  b: nothing yet"
    many = Curves("loss", {"a": [(step, abs(step - 6.4)) for step in range(1, 10)]})
    some = "5.4 at step 1, 3.4 at step 3, 1.4 at step 5, 0.6 at step 7, 2.6 at step 9"
    assert repr(many) == f"loss\n  a: {some}; all from 0.4 to 5.4"
    assert "2.2 at step 1" in repr(Curves("loss", {"a": [(1, 2.249)]}, digits=2))


# ---------------------------------------------------------------- memory
TOTAL = 12 * 10**9


@pytest.mark.parametrize(("used", "chips"), [(0, 1), (3 * 10**6, 32), (11 * 10**9, 8)])
def test_a_bar_for_each_chip(used, chips):
    report = MemoryReport("a mesh", TOTAL, dict.fromkeys(range(chips), used))
    ax = report.plot(Figure().subplots())
    (drawn,) = ax.containers
    assert list(drawn.datavalues) == [used] * chips
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert [name.split(":")[0] for name in names] == [f"device {chip}" for chip in range(chips)]
    assert ax.get_title() == "DRAM in use on a mesh"
    (line,) = ax.lines  # a bar reaches it where the memory is full
    assert set(line.get_xdata()) == {TOTAL} and ax.get_xlim()[0] == 0 < TOTAL < ax.get_xlim()[1]


# ---------------------------------------------------------------- stacks
def test_the_parts_of_a_stack_follow_each_other_and_what_is_lost_is_hatched():
    rows = {"a": (4, 0.5), "b": (2, 3)}
    ax = axes(Stacks("tokens", rows, ("kept", "lost"), hatched=["lost"], unit="tokens"))
    drawn = [(bar.get_x(), bar.get_width(), bar.get_hatch()) for bar in ax.patches]
    assert drawn == [(0, 4, None), (0, 2, None), (4, 0.5, "////"), (2, 3, "////")]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["kept", "lost"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]
    assert ax.yaxis_inverted() and ax.get_xlabel() == "tokens"


def test_a_stack_leaves_out_what_is_not_there():
    chart = Stacks("tokens", {"a": (4, 0), "b": (2, 1 / 3)}, ("kept", "lost"))
    ax = axes(chart)
    assert [round(bar.get_width(), 3) for bar in ax.patches] == [4, 2, 0.333]
    assert ax.get_xlim()[1] > 4  # The longest bar does not end the axis.
    assert axes(Stacks("", {"a": [4]}, until=9)).get_xlim() == (0, 9)
    assert repr(chart) == "tokens\n  a: 4 kept\n  b: 2 kept, 0.3333 lost"
    assert '<rect x="118.5"' in chart._repr_html_()  # In points: bars begin where lanes do.


def test_bars_of_memory_have_sums_and_a_line():
    held = {"ZeRO 0": {"weights": 4e9, "state": 8e9}, "ZeRO 1": {"weights": 4e9}}
    bars = MemoryBars("held", held, 12e9)
    assert repr(bars).splitlines()[1:] == [
        "  ZeRO 0: 12 GB: 4 GB weights, 8 GB state",
        "  ZeRO 1: 4 GB: 4 GB weights",
        "  limit: 12 GB",
    ]
    ax = axes(bars)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["ZeRO 0: 12 GB", "ZeRO 1: 4 GB"]
    assert ax.lines[0].get_xdata()[0] == 12e9 and ax.texts[0].get_text() == "limit: 12 GB"
    assert len(axes(Stacks("", {"a": [4]}, limit=2, limit_name="b")).patches) == 1  # nothing red


def test_parts_are_told_apart_without_colour():
    kinds = {f"kind {i}": 1.0 for i in range(len(HATCHES))}
    bars = axes(MemoryBars("", {"a": kinds})).containers
    drawn = [bar.patches[0].get_hatch() or "" for bar in bars]
    assert len(set(drawn)) == len(HATCHES) == len(COLOURS)

"""Charts of losses over steps: what they show, in words and as lines of a matplotlib Axes."""

import itertools
import math
import types

import numpy as np
import pytest
from matplotlib.figure import Figure
from visualize.test_look import contrast

from ttkit.visualize.curves import COLOURS, Curves
from ttkit.visualize.drawing import DARK, LIGHT
from ttkit.visualize.training import loss_curves

FALLING = [(step, 5.5 / step) for step in range(1, 301)]
NAMES = [f"mesh {i}" for i in range(18)]


def axes(chart):
    return chart.plot(Figure().subplots())


def test_a_line_for_each_curve_with_its_name_and_data():
    curves = {"training loss": FALLING, "validation loss": FALLING[99::100]}
    ax = axes(Curves("loss", curves))
    assert (
        [line.get_label() for line in ax.lines]
        == list(curves)
        == [text.get_text() for text in ax.get_legend().get_texts()]
    )
    for line, points in zip(ax.lines, curves.values(), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), points)
    assert ax.get_title() == "loss" and ax.get_xlabel() == "step"
    assert [line.get_marker() for line in ax.lines] == ["", "o"]  # few points have dots
    assert axes(Curves("loss", curves, across="epoch")).get_xlabel() == "epoch"


def test_eighteen_curves_can_be_told_apart_and_not_by_colour_alone():
    lines = axes(Curves("loss", dict.fromkeys(NAMES, FALLING))).lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 18
    assert all(a.get_linestyle() != b.get_linestyle() for a, b in itertools.pairwise(lines))
    widths = [line.get_linewidth() for line in lines]
    # where they lie on one another, those below have rims
    assert widths[-3:] == sorted(set(widths), reverse=True)


@pytest.mark.parametrize("style", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_stands_out_from_the_page(style):
    page = dict(part.split(":") for part in style.split(";"))["--page"]
    assert all(contrast(colour, page) >= 3 for colour in COLOURS)


@pytest.mark.parametrize(
    "points",
    [
        [(7, 3.25)],
        [(step, 2.5) for step in range(30)],
        [(1, 2.5), (2, math.nextafter(2.5, 3))],
        [(0, 0.0), (1, 0.0)],
        [(1, 4.2), (2, 1e13), (3, -2.5e30)],
        [(1, 1.25e-9), (2, 1.5e-9)],
        [(0.25, 1), (0.5, 2)],
        [(1, 4.0), (2, 12.0), (3, math.nan), (4, 5.0), (5, math.inf)],
        [(1, math.nan)],
    ],
    ids=str,
)
def test_odd_curves_are_drawn(points):
    chart = Curves("odd & <even> $x_1$", {"a $y$ <b>": points})
    html = chart._repr_html_()
    assert (
        "odd &amp; &lt;even&gt; $x_1$" in html
        and "a $y$ &lt;b&gt;" in html
        and "nan" not in html.split("</desc>")[1]
    )
    finite = [y for _, y in points if math.isfinite(y)]
    low, high = axes(chart).get_ylim()
    assert all(low < y < high for y in finite)


@pytest.mark.parametrize("curves", [{}, {"a": []}], ids=str)
def test_nothing_yet(curves):
    ax = axes(Curves("loss", curves))
    assert [text.get_text() for text in ax.texts] == ["nothing yet"] and ax.get_legend() is None


def test_steps_are_whole_numbers():
    ax = axes(Curves("loss", {"a": [(1, 2.0), (2, 1.0), (3, 0.5)]}))
    assert all(tick == int(tick) for tick in ax.get_xticks())


def test_a_long_run_stays_a_small_picture():
    noise = np.random.default_rng(0).random(100_000)
    assert len(Curves("loss", {"run": list(enumerate(noise))})._repr_html_()) < 40_000


def test_as_text():
    few = Curves("loss", {"a": [(1, 5.5), (20, 2.25)], "b": []}, across="epoch")
    assert repr(few) == "loss\n  a: 5.5 at epoch 1, 2.25 at epoch 20\n  b: nothing yet"
    many = Curves("loss", {"a": [(step, abs(step - 6.4)) for step in range(1, 10)]})
    assert (
        repr(many) == "loss\n  a: 5.4 at step 1, 3.4 at step 3, 1.4 at step 5, 0.6 at step 7, "
        "2.6 at step 9; all from 0.4 to 5.4"
    )
    assert "2.2 at step 1" in repr(Curves("loss", {"a": [(1, 2.249)]}, digits=2))


def test_the_curves_of_a_trainer():
    record = lambda step, held_out=None: types.SimpleNamespace(  # noqa: E731
        step=step, loss=4.0 / step, validation_loss=held_out
    )
    config = types.SimpleNamespace(training_config=types.SimpleNamespace(project_name="small"))
    chart = loss_curves(types.SimpleNamespace(history=[record(1), record(2, 2.5)], settings=config))
    assert (
        repr(chart)
        == "small: 2 steps\n  training loss: 4 at step 1, 2 at step 2\n  validation loss: "
        "2.5 at step 2"
    )
    assert loss_curves(types.SimpleNamespace(history=[], settings=config)).curves == {
        "training loss": []
    }

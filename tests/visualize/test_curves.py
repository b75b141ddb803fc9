"""Charts of losses over steps: what they show, and how they look."""

import itertools
import math
import re
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from visualize.test_look import SVG, check_layout, contrast, words

from ttkit.visualize.curves import COLOURS, DASHES, HEIGHT, LEFT, PLOT, Curves, draw_curves, look, round_numbers, thinned
from ttkit.visualize.drawing import DARK, LIGHT
from ttkit.visualize.training import loss_curves

FALLING = [(step, 5.5 / step) for step in range(1, 301)]
CHARTS = {
    "two": Curves("loss", {"training loss": FALLING, "validation loss": FALLING[99::100]}),
    "eight": Curves("losses", {f"mesh {i} x {8 - i}": [(x, y + i) for x, y in FALLING] for i in range(8)}),
    "long names": Curves("a title " * 30, {"a very long name of a run " * n + str(n): FALLING for n in range(1, 8)}),
    "one word": Curves("x" * 300, {"y" * 300: FALLING}),
    "one point": Curves("loss", {"one": [(7, 3.25)]}),
    "one point beside a run": Curves("loss", {"run": FALLING, "one": [(300, 1e-3)]}),
    "equal": Curves("loss", {"flat": [(step, 2.5) for step in range(30)]}),
    "nearly equal": Curves("loss", {"flat": [(1, 2.5), (2, math.nextafter(2.5, 3))]}),
    "zeros": Curves("loss", {"flat": [(0, 0.0), (1, 0.0)]}),
    "below zero": Curves("reward", {"flat": [(0, -8.0), (1, -1e-3)]}),
    "large": Curves("loss", {"run": [(1, 4.2), (2, 1e13), (3, -2.5e30)]}),
    "tiny": Curves("loss", {"run": [(1, 1.25e-9), (2, 1.5e-9)]}),
    "many steps": Curves("loss", {"run": [(99_999_000, 1), (100_001_000, 2)]}),
    "seconds": Curves("loss", {"run": [(0.25, 1), (0.5, 2)]}, across="seconds"),
    "not finite": Curves("loss", {"run": [(1, 4.0), (2, 12.0), (3, math.nan), (4, 5.0), (5, math.inf)]}),
    "nothing": Curves("loss", {"run": []}),
    "no curves": Curves("loss", {}),
    "never finite": Curves("loss", {"run": [(1, math.nan)]}),
}


@pytest.mark.parametrize("name", CHARTS)
def test_nothing_overlaps_or_sticks_out(name):
    drawing = draw_curves(CHARTS[name])
    root, _ = check_layout(drawing)
    for line in root.iter(SVG + "polyline"):
        for x, y in (map(float, point.split(",")) for point in line.get("points").split()):
            assert LEFT - 0.1 <= x <= LEFT + PLOT + 0.1 and 0 < y < drawing.height
    assert "nan" not in drawing.svg() and "inf" not in drawing.svg()


def test_every_name_is_there():
    names = CHARTS["eight"].curves
    assert names.keys() <= {text for *_, text in words(check_layout(draw_curves(CHARTS["eight"]))[0])}


def test_eighteen_curves_can_be_told_apart():
    assert len({look(i) for i in range(18)}) == 18
    assert all(look(i)[1] != look(i + 1)[1] for i in range(17))  # neighbours also where they lie on one another


@pytest.mark.parametrize("style", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_stands_out_from_the_page(style):
    named = dict(part.split(":") for part in style.split(";"))
    first, second, third, *others = (named[colour[4:-1]] if colour.startswith("var") else colour for colour in COLOURS)
    for colour in (first, second, third, *others):
        assert contrast(colour, named["--page"]) >= 3, colour
    assert min(contrast(third, first), contrast(third, second)) > 1.5  # its dots may lie on either


def test_dashes_run_on_over_the_points():
    lines = re.findall("<polyline[^>]*>", draw_curves(CHARTS["eight"]).svg())
    assert len(lines) == 8 and sum("dasharray" in line for line in lines) == sum(look(i)[1] != "" for i in range(8))


def test_a_curve_below_others_has_rims():
    svg = draw_curves(Curves("one run on three meshes", {"a": FALLING, "b": FALLING, "c": FALLING[100:]})).svg()
    assert re.findall('<polyline[^>]* stroke-width="([^"]*)"', svg) == ["3.8", "2.9", "2"]


def test_one_point_is_a_dot_in_the_middle_and_a_gap_stays_open():
    dot = next(check_layout(draw_curves(CHARTS["one point"]))[0].iter(SVG + "rect"))
    assert float(dot.get("x")) + 3 == LEFT + PLOT / 2
    root, _ = check_layout(draw_curves(CHARTS["not finite"]))
    assert [len(line.get("points").split()) for line in root.iter(SVG + "polyline")] == [2] and len(list(root.iter(SVG + "rect"))) == 3


def test_a_long_run_stays_a_small_picture_with_its_peaks():
    run = [(step, 1.0 + (step == 54_321)) for step in range(100_000)]
    drawing = draw_curves(Curves("loss", {"run": run}))
    assert len(drawing.svg()) < 40_000
    spots = [(x / 150, -y) for x, y in run]
    assert (54_321 / 150, -2.0) in thinned(spots) and thinned(spots) == sorted(thinned(spots))


@pytest.mark.parametrize(("low", "high"), [(0, 0), (3, 3), (-2, -2), (1e9, 1e9), (1.93, 5.6), (-1, 1e-9), (1e-12, 2e-12), (4.2, 1e30)])
def test_round_numbers_enclose(low, high):
    found = round_numbers(low, high)
    assert found[0] <= low + 1e-9 * abs(low) and found[-1] >= high - 1e-9 * abs(high) and 2 <= len(found) <= 8
    assert len({f"{n:.4g}" for n in found}) == len(found)
    assert low < high or found[0] < low < found[-1]  # a flat curve does not lie on the frame


def test_the_curves_of_a_trainer():
    record = lambda step, held_out=None: types.SimpleNamespace(step=step, loss=4.0 / step, validation_loss=held_out)  # noqa: E731
    config = types.SimpleNamespace(training_config=types.SimpleNamespace(project_name="small"))
    chart = loss_curves(types.SimpleNamespace(history=[record(1), record(2, 2.5)], settings=config))
    assert repr(chart) == "small: 2 steps\n  training loss: 4 at step 1, 2 at step 2\n  validation loss: 2.5 at step 2"
    assert loss_curves(types.SimpleNamespace(history=[], settings=config)).curves == {"training loss": []}


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.integers(2, 9))
def test_round_numbers(low, wide, about):
    high = low + wide
    found = round_numbers(low, high, about)
    step = found[1] - found[0]
    slack = step * 1e-6
    assert found[0] <= low + slack and found[-1] >= high - slack and 2 <= len(found) <= about + 3
    assert all(math.isclose(b - a, step, rel_tol=1e-6, abs_tol=abs(low) * 1e-12) for a, b in itertools.pairwise(found))


def lines(chart):
    """The points (x, y) of each curve."""
    return [[tuple(map(float, point.split(","))) for point in found.split()] for found in re.findall('<polyline points="([^"]*)"', draw_curves(chart).svg())]


def test_lines_are_to_scale():
    chart = Curves("loss", {"one": [(0, 4.0), (5, 2.0), (10, 1.0)]})  # the axis goes from 1 to 4
    (found,), top = lines(chart), draw_curves(chart).height - 44 - HEIGHT
    place = lambda x, y: (LEFT + x / 10 * PLOT, top + HEIGHT - (y - 1) / 3 * HEIGHT)  # noqa: E731
    assert [pytest.approx(place(*at), abs=0.1) for at in [(0, 4), (5, 2), (10, 1)]] == found


def test_curves_that_lie_on_one_another_are_told_apart():
    chart = Curves("loss", {name: [(1, 5.5), (2, 5.0)] for name in ("one chip", "DP4", "TP4")})
    svg = draw_curves(chart).svg()
    assert all(name in svg for name in chart.curves) and all(f'"{dash}"' in svg for dash in DASHES if dash)
    assert lines(chart) == [lines(chart)[0]] * 3


@pytest.mark.parametrize(
    "curves",
    [{}, {"a": []}, {"a": [(3, 2.0)]}, {"a": [(1, 0.0), (2, 0.0)]}, {"a": [(1, math.nan), (2, 1.0), (3, math.inf)]}, {"a": [(1, 1e-9), (2, 1e9)]}],
    ids=str,
)
def test_odd_curves_are_drawn(curves):
    chart = Curves("odd & <even>", curves)
    html = chart._repr_html_()
    assert "odd &amp; &lt;even&gt;" in html and "nan" not in re.sub(r"<title>.*?</title>|<desc>.*?</desc>", "", draw_curves(chart).svg(), flags=re.S)
    if not curves.get("a"):
        assert "nothing yet" in html


def test_as_text():
    curves = {"a": [(1, 5.5), (20, 2.2513)], "b": []}
    said = "loss\n  a: 5.5 at epoch 1, 2.3 at epoch 20\n  b: nothing yet"
    assert repr(Curves("loss", curves, across="epoch")) == said

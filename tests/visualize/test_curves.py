"""Charts of losses over steps: what they show, and how they look."""

import math
import re
import types

import pytest
from visualize.test_look import SVG, check_layout, contrast, words

from ttkit.visualize.curves import COLOURS, LEFT, PLOT, Curves, draw_curves, look, round_numbers, thinned
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
    for colour in COLOURS:
        shown = named[colour[4:-1]] if colour.startswith("var") else colour
        assert contrast(shown, named["--page"]) >= 3, colour


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

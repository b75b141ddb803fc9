"""How all charts are shown: small, readable on both pages, compared by what they show."""

import json
import math
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib import colors, pyplot, style
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from visualize.test_look import SVG, contrast

from ttkit.plans import all_gather, gpipe, interleaved, one_f_one_b, topology, zb_h1
from ttkit.visualize.chart import PAGE, chart_svg
from ttkit.visualize.charts import Curves, MemoryReport, Stacks
from ttkit.visualize.costs import link_chart
from ttkit.visualize.drawing import CLASS, DARK, LIGHT
from ttkit.visualize.schedule import schedule_picture
from ttkit.visualize.timeline import COMMUNICATION, COMPUTE, Bar, Lane, Timeline

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHARTS = {
    "curves": Curves(
        "loss", {f"run {i}": [(step, i + 5 / step) for step in range(1, 300)] for i in range(4)}
    ),
    "stacks": Stacks("tokens", {"a": (4, 0.5), "b": (2, 3)}, ("kept", "dropped"), ["dropped"]),
    "links": link_chart(all_gather(topology("galaxy"), 1 << 20)),
    "memory of 8": MemoryReport("a mesh", 12 * 10**9, {chip: chip * 10**6 for chip in range(8)}),
    "memory of 32": MemoryReport("a mesh", 12 * 10**9, {chip: chip * 10**8 for chip in range(32)}),
    "timeline": Timeline(
        "t", (Lane((0,), (Bar("linear", COMPUTE, 0, 2), Bar("all_reduce", COMMUNICATION, 2, 3))),)
    ),
    "1F1B": schedule_picture(one_f_one_b(4, 8)),
    "chunks": schedule_picture(interleaved(4, 8, 2)),
    "ZB-H1": schedule_picture(zb_h1(4, 8)),
    "long": schedule_picture(gpipe(8, 32)),
}


@pytest.fixture(scope="module", params=CHARTS)
def drawn(request):
    """A chart and its SVG, which takes a while to draw."""
    chart = CHARTS[request.param]
    return chart, chart_svg(chart)


def spans(ax, colour, hatch=""):
    """Lane, start and end of each bar of a colour and a hatch."""
    found = []
    for patch in ax.patches:
        if (
            isinstance(patch, PathPatch)
            and (patch.get_hatch() or "") == hatch
            and colors.same_color(patch.get_facecolor(), colour)
        ):
            for corners in patch.get_path().vertices.reshape(-1, 5, 2):
                found.append(
                    (round(corners[:2, 1].mean()), *(float(x) for x in corners[[0, 2], 0]))
                )
    return found


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_axes_in_and_axes_out(chart):
    figure, (first, second) = pyplot.subplots(2)
    assert (
        chart.plot(second) is second
        and second.get_title().split("\n")[0] in chart.title
        and not first.get_title()
    )
    made = chart.plot()
    assert isinstance(made, Axes) and made.figure is pyplot.gcf() is not figure
    pyplot.close("all")


def test_a_picture_is_small_and_the_same_whatever_look_the_reader_has_chosen(drawn):
    chart, svg = drawn
    assert len(svg) < 42_000
    with style.context("dark_background"):
        assert svg == chart_svg(chart)


def test_a_picture_leaves_the_page_alone_and_says_what_it_shows(drawn):
    chart, svg = drawn
    assert "<style" not in svg
    root = ET.fromstring(svg)
    assert (
        root.get("role") == "img"
        and root.find(SVG + "title").text == chart.title
        and root.find(SVG + "desc").text == repr(chart)
    )
    refs = set(re.findall(r'url\(#(\w+)\)|href="#(\w+)"', svg))
    assert {a or b for a, b in refs} <= set(re.findall(r'\bid="(\w+)"', svg))


def test_two_charts_on_one_page_share_no_ids():
    html = [CHARTS[name]._repr_html_() for name in ("curves", "timeline")]
    assert all(f'class="ttkit-picture {CLASS}"' in one for one in html)
    first, second = (set(re.findall(r'\bid="(\w+)"', one)) for one in html)
    assert first and second and not first & second


def test_words_are_large_enough_and_readable_on_both_pages(drawn):
    _, svg = drawn
    root = ET.fromstring(svg)
    scale = float(root.get("width")) / float(root.get("viewBox").split()[2])
    assert float(root.get("width")) <= 800
    texts = list(root.iter(SVG + "text"))
    assert texts
    for text in texts:
        look = text.get("style")
        assert scale * float(re.search(r"([\d.]+)px", look)[1]) >= 10, text.text
        if "var(--ink)" not in look:  # black, which stands on a bar
            assert "fill" not in look, look
    for theme in (LIGHT, DARK):
        page = dict(part.split(":") for part in theme.split(";"))
        assert contrast(page["--ink"], page["--page"]) > 7
    assert set(re.findall(r"var\([^)]*\)", svg)) <= set(PAGE.values())


# ---------------------------------------------------------------- in the outputs of notebooks
LOSSES = np.linspace(4, 1, 40, dtype=np.float32)
ANOTHER_CPU = np.nextafter(LOSSES, np.float32(9))  # each in its last digit
CELL = """import numpy as np
from ttkit.visualize.charts import Curves
losses = np.linspace(4, 1, 40, dtype=np.float32)
{change}
Curves("loss", {{"run": [*enumerate(losses)]}})"""
CHANGES = {
    "losses = np.nextafter(losses, np.float32(9))": True,
    "losses[20] += 0.1": False,
    "losses[11] = 9": False,
}


def test_the_last_digit_changes_no_word():
    assert (LOSSES != ANOTHER_CPU).all()
    assert repr(Curves("loss", {"run": [*enumerate(LOSSES)]})) == repr(
        Curves("loss", {"run": [*enumerate(ANOTHER_CPU)]})
    )


def test_notebooks_compare_charts_by_what_they_show(tmp_path):
    """nbval on cells whose saved output was drawn on another CPU, or from other data."""
    chart = Curves("loss", {"run": [*enumerate(LOSSES)]})
    data = {
        "text/html": "<b>made with another matplotlib</b>".join(
            chart._repr_html_().split("<g>", 1)
        ),
        "text/plain": repr(chart),
    }
    output = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": data}
    same = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [output]}
    cells = [
        same | {"id": str(i), "source": CELL.format(change=change)}
        for i, change in enumerate(CHANGES)
    ]
    (tmp_path / "lesson.ipynb").write_text(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "conftest",
        "--nbval",
        "--nbval-current-env",
        "-v",
        "--color=no",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    passed = [found == "PASSED" for found in re.findall(r"::Cell \d (PASSED|FAILED)", done.stdout)]
    assert passed == list(CHANGES.values()), done.stdout + done.stderr
    assert (
        done.stdout.count("mismatch 'text/plain'") == 2
        and "mismatch 'text/html'" not in done.stdout
    )


def hovers(chart, tag):
    """What an invisible shape says under the pointer -> the shape."""
    shapes = ET.fromstring(chart_svg(chart)).iter(f"{{http://www.w3.org/2000/svg}}{tag}")
    return {shape[0].text: shape.attrib for shape in shapes if len(shape)}


def test_points_and_bars_tell_their_values_under_the_pointer():
    curve = Curves("loss", {"run": [(1, 8.0), (2, math.nan), (3, 6.0), (5, 2.0)]})
    found = hovers(curve, "circle")
    assert list(found) == ["run: 8 at step 1", "run: 6 at step 3", "run: 2 at step 5"]
    x, y = ([float(point[axis]) for point in found.values()] for axis in ("cx", "cy"))
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2)
    assert 2 * (y[1] - y[0]) == pytest.approx(y[2] - y[1], abs=0.3)
    assert 0 < y[0] < y[1] < y[2] < 72 * curve.height  # a smaller value lies lower
    bars = hovers(Stacks("tokens", {"a": (4, 0), "b": (5, 3)}, ("kept", "<lost>")), "rect")
    wide = {words: float(shape["width"]) for words, shape in bars.items()}
    assert wide["kept: 4"] / wide["kept: 5"] == pytest.approx(4 / 5, abs=0.01)
    assert wide["<lost>: 0"] == 0 < wide["<lost>: 3"]
    many = Curves("loss", {"run": [(step, step) for step in range(10_000)]})
    assert 30 < len(hovers(many, "circle")) <= 61


def test_the_grey_of_a_lane_tells_nothing():
    assert hovers(schedule_picture(one_f_one_b(2, 4)), "rect") == {}

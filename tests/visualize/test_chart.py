"""How all charts are shown: small, readable on both pages, compared by what they show."""

import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from base64 import b64decode
from html import escape

import numpy as np
import pytest
from matplotlib import pyplot, style
from matplotlib.axes import Axes
from visualize.test_look import SVG

from ttkit.plans import all_gather, topology
from ttkit.visualize.charts import Curves, MemoryReport, Stacks
from ttkit.visualize.charts.costs import link_chart
from ttkit.visualize.drawing import CLASS, DARK, LIGHT

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHARTS = {
    "curves": Curves(
        "loss", {f"run {i}": [(step, i + 5 / step) for step in range(1, 300)] for i in range(4)}
    ),
    "stacks": Stacks("tokens", {"a": (4, 0.5), "b": (2, 3)}, ("kept", "dropped"), ["dropped"]),
    "links": link_chart(all_gather(topology("galaxy"), 1 << 20)),
    "memory of 8": MemoryReport("a mesh", 12 * 10**9, {chip: chip * 10**6 for chip in range(8)}),
    "memory of 32": MemoryReport("a mesh", 12 * 10**9, {chip: chip * 10**8 for chip in range(32)}),
}


def svg_of(page):
    """The image of a chart."""
    return b64decode(re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', page)[1]).decode()


@pytest.fixture(scope="module", params=CHARTS)
def drawn(request):
    """A chart and its SVG, which takes a while to draw."""
    chart = CHARTS[request.param]
    return chart, chart._repr_html_()


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
    chart, page = drawn
    assert len(page) < 60_000
    with style.context("dark_background"):
        assert page == chart._repr_html_()


def test_a_picture_leaves_the_page_alone_and_says_what_it_shows(drawn):
    chart, page = drawn
    assert f'class="ttkit-picture {CLASS}"' in page and not re.search(r'\bid="', page)
    assert f'alt="{escape(repr(chart))}"' in page
    assert ET.fromstring(svg_of(page)).tag == SVG + "svg"


def test_words_are_large_enough_and_readable_on_a_dark_page(drawn):
    _, page = drawn
    root = ET.fromstring(svg_of(page))
    wide = float(re.search(r'width="(\d+)"', page)[1])
    scale = wide / float(root.get("viewBox").split()[2])
    assert wide <= 800
    texts = list(root.iter(SVG + "text"))
    assert texts
    for text in texts:
        assert scale * float(re.search(r"([\d.]+)px", text.get("style"))[1]) >= 10, text.text
    assert "--chart:none" in LIGHT and "--chart:invert" in DARK


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


def test_notebooks_compare_charts_by_what_they_show(tmp_path):
    """nbval on cells whose saved output was drawn on another CPU, or from other data."""
    chart = Curves("loss", {"run": [*enumerate(LOSSES)]})
    data = {
        "text/html": chart._repr_html_().replace('alt="', 'alt="by another matplotlib ', 1),
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
    options = "-m pytest -p conftest --nbval --nbval-current-env -v --color=no".split()
    command = [sys.executable, *options, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    passed = [found == "PASSED" for found in re.findall(r"::Cell \d (PASSED|FAILED)", done.stdout)]
    assert passed == list(CHANGES.values()), done.stdout + done.stderr
    assert (
        done.stdout.count("mismatch 'text/plain'") == 2
        and "mismatch 'text/html'" not in done.stdout
    )

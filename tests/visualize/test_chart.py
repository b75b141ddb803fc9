"""How all charts are shown: small, readable on both pages, compared by what they show."""

import pathlib
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib import pyplot, style
from matplotlib.axes import Axes
from visualize.test_look import SVG

from ttkit.visualize.charts import Curves, MemoryReport, Stacks
from ttkit.visualize.drawing import CLASS

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHARTS = {
    "curves": Curves("loss", {f"run {i}": [(n, 5 / n) for n in range(1, 99)] for i in range(4)}),
    "stacks": Stacks("tokens", {"a": (4, 0.5), "b": (2, 3)}, ("kept", "dropped"), ["dropped"]),
    "memory of 8": MemoryReport("a mesh", 12 * 10**9, {chip: chip * 10**6 for chip in range(8)}),
    "memory of 32": MemoryReport("a mesh", 12 * 10**9, {chip: chip * 10**8 for chip in range(32)}),
}


def svg_of(page):
    """The image of a chart."""
    return re.search('(?s)<svg class="ttkit-chart".*?</svg>', page)[0]


@pytest.fixture(scope="module", params=CHARTS)
def drawn(request):
    """A chart and its SVG, which takes a while to draw."""
    chart = CHARTS[request.param]
    return chart, chart._repr_html_()


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_axes_in_and_axes_out(chart):
    figure, (first, second) = pyplot.subplots(2)
    assert chart.plot(second) is second
    assert second.get_title().split("\n")[0] in chart.title
    assert not first.get_title()
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
    root = ET.fromstring(svg_of(page))
    assert f'class="ttkit-picture {CLASS}"' in page
    assert root.get("aria-label").split() == repr(chart).split()
    assert all(re.fullmatch(r"[a-z]\w{10}", one) for one in re.findall(r'\bid="(.*?)"', page))
    assert all(".ttkit-chart *{" in style.text for style in root.iter(SVG + "style"))


def test_words_are_large_enough_and_readable_on_a_dark_page(drawn):
    _, page = drawn
    root = ET.fromstring(svg_of(page))
    wide = int(re.search(r"ttkit-chart{[^}]*;width:(\d+)px}", page)[1])
    scale = wide / float(root.get("viewBox").split()[2])
    texts = list(root.iter(SVG + "text"))
    assert texts and wide <= 800 and "var(--ink)" in svg_of(page)
    for text in texts:
        assert scale * float(re.search(r"([\d.]+)px", text.get("style"))[1]) >= 10, text.text
    assert "#1c2430" not in svg_of(page)


# ---------------------------------------------------------------- in the outputs of notebooks
LOSSES = np.linspace(4, 1, 40, dtype=np.float32)
ANOTHER_CPU = np.nextafter(LOSSES, np.float32(9))  # each in its last digit


class Notebook(pytest.File):
    """What nbval collects."""

    def collect(self):
        return []


@pytest.mark.parametrize(
    ("at", "by", "same"), [(slice(None), None, True), (20, 0.1, False), (11, 9, False)]
)
def test_notebooks_compare_charts_by_what_they_show(request, at, by, same):
    """The saved output was drawn by another matplotlib, and now on another CPU or from other data:
    nbval compares what is left of it by the patterns of conftest.py.
    """
    collector = Notebook.__new__(Notebook)
    collector.path, collector.sanitize_patterns = pathlib.Path("lesson.ipynb"), {}
    ours = request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    ours.pytest_collectstart(collector)

    def left(text):
        for pattern, instead in collector.sanitize_patterns.items():
            text = re.sub(pattern, instead, text)
        return text

    saved, losses = Curves("loss", {"run": [*enumerate(LOSSES)]}), LOSSES.copy()
    losses[at] = ANOTHER_CPU if by is None else losses[at] + by
    drawn = Curves("loss", {"run": [*enumerate(losses)]})
    page = saved._repr_html_().replace("<path", "<path by='another matplotlib'", 1)
    assert left(page) == left(drawn._repr_html_())
    assert (left(repr(saved)) == left(repr(drawn))) == same

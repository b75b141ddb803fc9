"""Curves are drawn to scale, with round numbers at their axes."""

import itertools
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttkit.visualize.curves import DASHES, HEIGHT, LEFT, PLOT, TOP, Curves, draw_curves, round_numbers

LINE = re.compile(r'<line x1="([-\d.]+)" y1="([-\d.]+)" x2="([-\d.]+)" y2="([-\d.]+)"([^>]*)>')


def lines(chart, dashed=None):
    """(x1, y1, x2, y2) of the lines inside of the plot that are not of its grid."""
    found = [(tuple(map(float, match.groups()[:4])), match[5]) for match in LINE.finditer(draw_curves(chart).svg())]
    return [ends for ends, style in found if ends[1] >= TOP - 0.1 and "var(--frame)" not in style]


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.integers(2, 9))
def test_round_numbers(low, wide, about):
    high = low + wide
    found = round_numbers(low, high, about)
    step = found[1] - found[0]
    slack = step * 1e-6
    assert found[0] <= low + slack and found[-1] >= high - slack and 2 <= len(found) <= about + 3
    assert all(math.isclose(b - a, step, rel_tol=1e-6, abs_tol=abs(low) * 1e-12) for a, b in itertools.pairwise(found))


def test_lines_are_to_scale():
    (first, second) = lines(Curves("loss", {"one": [(0, 4.0), (5, 2.0), (10, 1.0)]}))  # the axis goes from 1 to 4
    place = lambda x, y: (LEFT + x / 10 * PLOT, TOP + HEIGHT - (y - 1) / 3 * HEIGHT)  # noqa: E731
    assert first == pytest.approx((*place(0, 4), *place(5, 2)), abs=0.1)
    assert second == pytest.approx((*place(5, 2), *place(10, 1)), abs=0.1)


def test_curves_that_lie_on_one_another_are_told_apart():
    chart = Curves("loss", {name: [(1, 5.5), (2, 5.0)] for name in ("one chip", "DP4", "TP4")})
    svg = draw_curves(chart).svg()
    assert all(name in svg for name in chart.curves) and all(f'"{dash}"' in svg for dash in DASHES if dash)
    assert len(set(lines(chart))) == 1


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
    assert repr(Curves("loss", {"a": [(1, 5.5), (20, 2.25)], "b": []}, across="epoch")) == "loss\n  a: 5.5 at epoch 1, 2.25 at epoch 20\n  b: nothing yet"

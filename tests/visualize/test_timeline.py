"""Timelines: what they show; how they look is in test_look."""

import math

import pytest

from ttkit.visualize.report import Report
from ttkit.visualize.timeline import COMMUNICATION, COMPUTE, Bar, Lane, Timeline, draw_timeline, lanes_of, ticks
from ttkit.words import short


def test_exposed_is_what_no_computing_hides():
    lane = Lane((0,), (Bar("a", COMPUTE, 0, 2), Bar("c", COMMUNICATION, 1, 6), Bar("b", COMPUTE, 3, 4)))
    assert lane.exposed == [(2, 3), (4, 6)] and lane.spent(COMPUTE) == 3
    assert lanes_of({1: [], 0: lane.bars, 2: lane.bars}, join=True) == (Lane((0, 2), lane.bars), Lane((1,), ()))


def test_thousands_of_short_bars_stay_a_small_picture():
    bars = tuple(Bar(f"op{i}", COMMUNICATION if i % 7 == 0 else COMPUTE, i * 1e-6, (i + 1) * 1e-6) for i in range(20_000))
    drawing = draw_timeline(Timeline("many, modelled", (Lane((0,), bars),)))
    assert drawing.svg().count("<rect") < 900 and drawing.width < 1000


@pytest.mark.parametrize("end", [1.0, 1.99, 2.0, 2.01, 7, 9.99, 42, 512, 999])
def test_ticks(end):
    found = ticks(end)
    assert 5 <= len(found) <= 11 and found[0] == 0 and found[-1] <= end * 1.0001 and math.isclose(found[1] * (len(found) - 1), found[-1])


def test_short():
    assert [short(v, "B") for v in (0, 1, 999, 1000, 999_499, 999_500, 1.5e9)] == ["0", "1 B", "999 B", "1 kB", "999 kB", "1 MB", "1.5 GB"]
    assert [short(v, "s") for v in (2.0, 0.25, 1.234e-6, 3e-9, 1e-12)] == ["2 s", "250 ms", "1.23 µs", "3 ns", "0.001 ns"]


def test_a_report_escapes_and_keeps_words_whole():
    report = Report("a < b, [red]modelled[/red]", ("<name", "size"), [("x" * 40, "[bold]1")] * 2, ("all & sundry", "2"))
    text, html = repr(report), report._repr_html_()
    assert "x" * 40 in text and "[bold]1" in text and "[red]modelled[/red]" in text and "all & sundry" in text
    assert "a &lt; b" in html and "all &amp; sundry" in html and html.count("<tr>") == 4

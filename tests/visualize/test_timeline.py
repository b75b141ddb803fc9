"""Timelines: what they show, in words and as lanes of a matplotlib Axes."""

import re

import pytest

import ttkit
from ttkit.visualize.lanes import (
    COMMUNICATION,
    COMPUTE,
    KINDS,
    LEFT,
    WIDTH,
    Bar,
    ChipLane,
    Timeline,
)

SENDS = Bar(1, 6, COMMUNICATION, "all_gather")
LANE = ChipLane((0,), (Bar(0, 2, COMPUTE, "linear"), SENDS, Bar(3, 4, COMPUTE, "exp")))


def bars(page):
    """[(top, start, end, fill)] of the bars, in seconds."""
    rect = r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="30" rx="0" fill="([^"]+)" stroke="#1c2430"'
    found = [(float(y), float(x), float(w), fill) for x, y, w, fill in re.findall(rect, page)]
    end = max(x + w for _, x, w, _ in found)
    scale = 8 / (end - LEFT)
    return [
        (round((y - 28) / 40), round((x - LEFT) * scale, 2), round((x + w - LEFT) * scale, 2), fill)
        for y, x, w, fill in found
    ]


def test_exposed_is_what_no_computing_hides():
    assert LANE.exposed == [(2, 3), (4, 6)] and LANE.spans(COMPUTE) == [(0, 2), (3, 4)]
    both = Bar(0, 9, COMPUTE, "long"), Bar(1, 2, COMPUTE, "short")
    assert ChipLane((0,), (*both, Bar(3, 10, COMMUNICATION, "send"))).exposed == [(9, 10)]


def test_bars_are_to_scale_and_not_told_by_colour_alone():
    other = ChipLane((1,), (Bar(0, 8, COMPUTE, "exp"),))
    page = Timeline("timeline", (LANE, other))._repr_html_()
    fills = {kind: look.fill for kind, look in KINDS.items()}
    assert bars(page) == [
        (0, 0, 2, fills[COMPUTE]),
        (0, 1, 6, fills[COMMUNICATION]),
        (0, 3, 4, fills[COMPUTE]),
        (0, 2, 3, fills["exposed"]),
        (0, 4, 6, fills["exposed"]),
        (1, 0, 8, fills[COMPUTE]),
    ]
    assert all(f">{name}<" in page for name in ("linear", "all_gather", "exp", "chip 0", "chip 1"))
    assert len({look.gap for look in KINDS.values()}) == 3


def test_two_rows_where_a_chip_does_both_at_once():
    page = Timeline("timeline", (LANE, LANE), beside=True)._repr_html_()
    rows = {}
    for top, _, _, fill in bars(page):
        rows.setdefault(top, set()).add(fill)
    sent = {KINDS[COMMUNICATION].fill, KINDS["exposed"].fill}
    assert rows == {0: {KINDS[COMPUTE].fill}, 1: sent, 2: {KINDS[COMPUTE].fill}, 3: sent}


def test_a_name_stands_in_its_bar_only_where_it_fits():
    two = ChipLane((0,), (Bar(0, 99, COMPUTE, "linear"), Bar(99, 100, COMPUTE, "linear")))
    assert Timeline("timeline", (two,))._repr_html_().count(">linear<") == 1


def test_an_edge_does_not_hide_a_sliver():
    """A bar of less than 2 px has no edge of another colour, and no lines over it."""
    lane = ChipLane((0,), (Bar(0, 999, COMPUTE, "long"), Bar(999, 1000, COMMUNICATION, "short")))
    page = Timeline("timeline", (lane,))._repr_html_()
    wide, thin = KINDS[COMPUTE].fill, KINDS["exposed"].fill
    edges = re.findall(r'width="([\d.]+)" height="30" rx="0" fill="(#\w+)" stroke="(.*?)"', page)
    assert ("539.46", wide, "#1c2430") in edges and ("0.54", thin, thin) in edges


def test_thousands_of_short_bars_stay_a_small_picture():
    bars = tuple(
        Bar(i * 1e-6, (i + 1) * 1e-6, COMMUNICATION if i % 7 == 0 else COMPUTE, f"op{i}")
        for i in range(20_000)
    )
    page = Timeline("many, modelled", (ChipLane((0,), bars),))._repr_html_()
    assert len(page) < 50_000 and "op1" not in page


def test_nothing_that_takes_time():
    assert "Nothing here takes modelled time." in Timeline("timeline", ())._repr_html_()


@pytest.mark.parametrize(
    ("chips", "label"),
    [((0,), "chip 0"), ((0, 1, 2, 3, 6), "chips 0-3, 6 alike"), (range(0, 64, 3), "…")],
)
def test_the_label_of_a_lane(chips, label):
    assert label in ChipLane(tuple(chips), ()).label and len(ChipLane(tuple(chips), ()).label) < 65


def test_timelines_that_are_compared_share_an_axis():
    lanes = [(ChipLane((0,), (Bar(0, end, COMPUTE, "matmul"),)),) for end in (4e-6, 1e-6)]
    for picture in ttkit.on_one_axis(Timeline("", lane) for lane in lanes):
        wide = WIDTH * picture.end_s / 4e-6  # of the bar, and of the grey below it
        assert picture._repr_html_().count(f'width="{wide:g}" height="30"') == 2

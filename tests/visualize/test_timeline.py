"""Timelines: what they show, in words and as lanes of a matplotlib Axes."""

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from visualize.test_chart import spans

from ttkit.visualize.timeline import COMMUNICATION, COMPUTE, LOOKS, Bar, Lane, Timeline, lanes_of
from ttkit.words import short

LANE = Lane(
    (0,),
    (
        Bar("ttnn.linear", COMPUTE, 0, 2),
        Bar("all_gather", COMMUNICATION, 1, 6),
        Bar("exp", COMPUTE, 3, 4),
    ),
)


def axes(*lanes):
    return Timeline("timeline", lanes).plot(Figure((8, 3)).subplots())


def test_exposed_is_what_no_computing_hides():
    assert LANE.exposed == [(2, 3), (4, 6)] and LANE.spans(COMPUTE) == [(0, 2), (3, 4)]
    assert lanes_of({1: [], 0: LANE.bars, 2: LANE.bars}, join=True) == (
        Lane((0, 2), LANE.bars),
        Lane((1,), ()),
    )
    nested = Lane(
        (0,),
        (
            Bar("long", COMPUTE, 0, 9),
            Bar("short", COMPUTE, 1, 2),
            Bar("send", COMMUNICATION, 3, 10),
        ),
    )
    assert nested.exposed == [(9, 10)]


def test_bars_are_to_scale_and_not_told_by_colour_alone():
    ax = axes(LANE, Lane((1,), (Bar("exp", COMPUTE, 0, 8),)))
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "chip 0",
        "chip 1",
    ] and ax.get_xlim() == (0, 8)
    assert spans(ax, LOOKS[COMPUTE][0]) == [(0, 0, 2), (0, 3, 4), (1, 0, 8)]
    assert spans(ax, LOOKS[COMMUNICATION][0], "\\\\") == [(0, 1, 6)]
    # exposed, on top of it
    assert spans(ax, LOOKS[COMMUNICATION][0], "//") == [(0, 2, 3), (0, 4, 6)]
    assert {"linear", "all_gather", "exp"} <= {text.get_text() for text in ax.texts}
    samples = ax.get_legend().get_patches()
    assert len({patch.get_hatch() for patch in samples[:3]}) == 3


def test_two_rows_where_a_chip_does_both_at_once():
    timeline = Timeline("timeline", (LANE, LANE), beside=True)
    ax = timeline.plot(Figure((8, timeline.height)).subplots())
    rows = {}
    for patch in ax.patches:
        if isinstance(patch, PathPatch):
            for corners in patch.get_path().vertices.reshape(-1, 5, 2):
                low, high = corners[:2, 1]
                rows.setdefault((round(low, 1), round(high, 1)), set()).add(patch.get_hatch() or "")
    upper, lower = {""}, {"\\\\", "//"}
    assert rows == {(-0.4, 0): upper, (0, 0.4): lower, (0.6, 1): upper, (1, 1.4): lower}
    places = {(text.get_text(), round(text.get_position()[1], 1)) for text in ax.texts}
    assert {("linear", -0.2), ("all_gather", 0.2), ("linear", 0.8), ("all_gather", 1.2)} <= places


def test_a_name_stands_in_its_bar_only_where_it_fits():
    ax = axes(Lane((0,), (Bar("linear", COMPUTE, 0, 99), Bar("linear", COMPUTE, 99, 100))))
    assert [text.get_text() for text in ax.texts] == ["linear"]


def test_thousands_of_short_bars_stay_a_small_picture():
    bars = tuple(
        Bar(f"op{i}", COMMUNICATION if i % 7 == 0 else COMPUTE, i * 1e-6, (i + 1) * 1e-6)
        for i in range(20_000)
    )
    assert len(Timeline("many, modelled", (Lane((0,), bars),))._repr_html_()) < 50_000


def test_nothing_that_takes_time():
    assert [text.get_text() for text in axes().texts] == ["nothing that takes modelled time"]


@pytest.mark.parametrize(
    ("chips", "label"),
    [((0,), "chip 0"), ((0, 1, 2, 3, 6), "chips 0-3, 6 alike"), (range(0, 64, 3), "…")],
)
def test_the_label_of_a_lane(chips, label):
    assert label in Lane(tuple(chips), ()).label and len(Lane(tuple(chips), ()).label) < 65


def test_short():
    assert [short(v, "B") for v in (0, 1, 999, 1000, 999_499, 999_500, 1.5e9)] == [
        "0",
        "1 B",
        "999 B",
        "1 kB",
        "999 kB",
        "1 MB",
        "1.5 GB",
    ]
    assert [short(v, "s") for v in (2.0, 0.25, 1.234e-6, 3e-9, 1e-12)] == [
        "2 s",
        "250 ms",
        "1.23 µs",
        "3 ns",
        "0.001 ns",
    ]

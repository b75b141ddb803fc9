"""Charts of pipeline schedules: each bar is an action, and what does not work says so."""

import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from visualize.test_chart import spans

import ttkit
import ttkit.visualize
from ttkit.errors import TTKitError
from ttkit.plans import Schedule, gpipe, interleaved, one_f_one_b, zb_h1
from ttkit.plans.pipelines import SCHEDULES
from ttkit.visualize.schedule import HATCH, schedule_picture
from ttkit.visualize.stages import shade

BUILDERS = {name: build for name, build in SCHEDULES.items() if name != "interleaved"} | {
    "chunks": lambda p, m: interleaved(p, p * m, 3),
}
DEADLOCK = Schedule("mine", 4, 8, one_f_one_b(4, 8).actions[::-1])


def run_of(schedule, zero=1000.0, late=0.0):
    """What a clock might have shown: a little later and longer than modelled."""
    pick = random.Random(1)
    for stage, row in enumerate(schedule.timeline(0.01, 0.02).slots):
        for action, start, end in row:
            yield (
                stage,
                action,
                zero + start + late + pick.random() * 1e-3,
                zero + end + late - pick.random() * 1e-3,
            )


def axes(picture):
    return picture.plot(Figure((8, picture.height)).subplots())


def drawn(ax, schedule):
    """{(kind, chunk): [(lane, start, end), ...]} as the Axes holds them, whatever the hatch."""
    kinds = sorted({action.kind for row in schedule.actions for action in row})
    looks = {
        (kind, chunk): shade(kind, chunk, schedule.chunks)
        for kind in kinds
        for chunk in range(schedule.chunks)
    }
    return {
        key: [bar for hatch in ("", HATCH[key[0]]) for bar in spans(ax, look, hatch)]
        for key, look in looks.items()
    }


def texts(ax):
    return [text.get_text() for text in ax.texts]


def right(ax):
    """What stands beside the lanes."""
    return [label.get_text() for label in ax.child_axes[0].get_yticklabels()]


@settings(max_examples=25)
@given(st.sampled_from(sorted(BUILDERS)), st.integers(2, 8), st.integers(1, 12))
def test_every_bar_is_an_action_and_none_hides_another(name, p, m):
    schedule = BUILDERS[name](p, m)
    picture = schedule_picture(schedule)
    for stage, row in enumerate(picture.modelled.slots):
        assert tuple(slot.action for slot in row) == schedule.actions[stage]
        assert all(slot.start_s < slot.end_s for slot in row) and all(
            a.end_s <= b.start_s for a, b in itertools.pairwise(row)
        )
    bars = drawn(axes(picture), schedule)
    wanted = {key: [] for key in bars}
    for stage, row in enumerate(picture.modelled.slots):
        for action, start, end in row:
            wanted[action.kind, action.chunk].append((stage, start, end))
    assert bars == {key: [pytest.approx(bar) for bar in found] for key, found in wanted.items()}


def test_figures_beside_the_lanes():
    picture = schedule_picture(interleaved(4, 8, 2))
    ax = axes(picture)
    assert right(ax) == [f"bubble 15.8%, holds {peak}" for peak in ("5.5", "4.5", "3.5", "2.5")]
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        f"stage {stage}" for stage in range(4)
    ]
    assert ax.get_title().replace("\n", " ") == picture.title
    assert ax.get_xlabel() == "time, a forward of a stage being 1"
    samples = [text.get_text() for text in ax.get_legend().get_texts()]
    assert samples == ["forward", "backward", "bubble"]
    split = axes(schedule_picture(zb_h1(2, 2))).get_legend()
    assert [text.get_text() for text in split.get_texts()] == [
        "forward",
        "input gradient",
        "weight gradient",
        "bubble",
    ]


@pytest.mark.parametrize(
    "schedule",
    [one_f_one_b(4, 8), one_f_one_b(4, 16), zb_h1(8, 32), interleaved(4, 8, 2)],
    ids=repr,
)
def test_no_action_is_told_by_colour_alone(schedule):
    """An action stands in its bar, or its kind has a hatch of its own."""
    ax = axes(schedule_picture(schedule))
    named = {text.replace("\n", "") for text in texts(ax)}
    hatches = [patch.get_hatch() for patch in ax.get_legend().get_patches()[:-1]]
    kinds = [
        kind
        for kind in HATCH
        if any(action.kind == kind for row in schedule.actions for action in row)
    ]
    for kind, hatch in zip(kinds, hatches, strict=True):
        all_named = all(
            str(action) in named
            for row in schedule.actions
            for action in row
            if action.kind == kind
        )
        assert all_named == (not hatch)
    assert len({hatch for hatch in hatches if hatch}) == sum(map(bool, hatches))


@pytest.mark.parametrize("name", BUILDERS)
def test_a_measured_run_is_on_the_same_axis(name):
    schedule = BUILDERS[name](4, 4)
    modelled = schedule.timeline(0.01, 0.02)
    for what in (schedule, modelled):
        picture = schedule_picture(what, run_of(schedule))
        assert picture.measured.slots[0][0].start_s < 1e-3 and picture.unit == "s"
        assert [[slot.action for slot in row] for row in picture.measured.slots] == [
            list(row) for row in schedule.actions
        ]
        assert picture.end_s == max(picture.modelled.time_s, picture.measured.time_s)
        assert picture.modelled.time_s == pytest.approx(modelled.time_s, rel=0.5)
        ax = axes(picture)
        assert [label.get_text() for label in ax.get_yticklabels()][1::2] == [
            "measured"
        ] * 4 and repr(picture).count("measured |") == 4
        assert ax.get_xlabel() == "time" and ax.get_xlim() == (0, picture.end_s)
        bars = drawn(ax, schedule)
        assert sum(map(len, bars.values())) == 2 * sum(map(len, schedule.actions))
        ran = sorted(
            (2 * stage + 1, start)
            for stage, row in enumerate(picture.measured.slots)
            for _, start, _ in row
        )
        assert sorted(bar[:2] for found in bars.values() for bar in found if bar[0] % 2) == [
            pytest.approx(bar) for bar in ran
        ]


def test_a_run_by_names_in_any_order_and_with_parts_missing():
    run = [(1, "B0", 7.0, 9.0), (1, "F0", 5.0, 6.0), (0, "F0", 4.0, 5.0)]
    picture = schedule_picture(one_f_one_b(2, 1), run)
    assert repr(picture.measured.slots) == "((F0 0-1,), (F0 1-2, B0 3-5))"
    assert sum(map(len, drawn(axes(picture), picture.schedule).values())) == 4 + 3
    assert axes(schedule_picture(one_f_one_b(2, 1), []))  # nothing has been measured yet


@pytest.mark.parametrize(
    ("row", "phrase"),
    [
        ((2, "F0", 0, 1), "F0 on stage 2.*none of Schedule"),
        ((0, "F9", 0, 1), "F9 on stage 0"),
        ((0, "F0", 2, 1), "ends at 1 s, before its start at 2 s"),
        ((0, "f", 0, 1), "the action 'f'"),
    ],
)
def test_a_measured_action_that_is_none(row, phrase):
    with pytest.raises(TTKitError, match=phrase):
        schedule_picture(one_f_one_b(2, 2), [row])


def test_what_does_not_work_is_drawn_as_far_as_it_comes():
    picture = schedule_picture(DEADLOCK)
    ax = axes(picture)
    assert [text.split(", ")[1] for text in right(ax)] == [
        "waits at B0",
        "waits at F1",
        "waits at F1",
        "waits at F1",
    ]
    assert (
        "a deadlock" in ax.get_title()
        and "does not work" in ax.get_title()
        and not any("bubble" in text for text in right(ax))
    )
    assert "waits at B0" in repr(picture) and "stage 0: a deadlock" in repr(picture)
    missing = schedule_picture(Schedule("mine", 2, 2, ["F0 B0 F1", "F0 B0 F1 B1"]))
    assert "micro-batch 1 has F1; a stage does F1 and B1" in axes(missing).get_title().replace(
        "\n", " "
    )
    hung = schedule_picture(
        DEADLOCK, [(stage, "F0", stage * 0.01, stage * 0.01 + 0.01) for stage in range(4)]
    )
    assert (
        hung.unit == "s"
        and hung.measured.time_s == pytest.approx(0.04)
        and len(right(axes(hung))) == 8
    )
    nothing = schedule_picture(Schedule("mine", 2, 2, ["", ""]))
    words = "micro-batch 0 has no action"
    assert words in axes(nothing).get_title().replace("\n", " ") and words in repr(nothing)


def test_the_text_says_what_each_stage_does():
    rows = repr(schedule_picture(one_f_one_b(4, 8))).splitlines()[1:]
    for stage, row in enumerate(rows):
        letters = row.split("|")[1]
        assert re.findall(r"[FB]\d+", letters) == [
            f"{a.kind}{a.micro_batch}" for a in one_f_one_b(4, 8).actions[stage]
        ]
    assert {len(row.split("|")[1]) for row in rows} == {99}
    chunked = repr(schedule_picture(interleaved(2, 2, 2)))
    assert "F0" in chunked and "1B1" in chunked
    wide = repr(schedule_picture(gpipe(16, 64))).splitlines()[1]
    assert (
        set(wide.split("|")[1]) == {"#", "."}
        and wide.split("|")[1].count(".") == pytest.approx(19, abs=1)
        and len(wide) < 140
    )


def test_every_way_to_show_one(monkeypatch, capsys):
    ttkit.visualize_schedule(gpipe(2, 2))
    ttkit.visualize_schedule(gpipe(2, 2).timeline(0.1, 0.2), measured=run_of(gpipe(2, 2)))
    ttkit.visualize_schedule(DEADLOCK)
    out = capsys.readouterr().out
    assert "bubble 33.3% of the time" in out and "measured" in out and "does not work" in out
    shown = []
    monkeypatch.setattr(ttkit.visualize, "in_notebook", lambda: True)
    monkeypatch.setattr(
        ttkit.visualize, "_show", lambda chart: shown.append((chart._repr_html_(), repr(chart)))
    )
    ttkit.visualize_schedule(gpipe(2, 2))
    assert "<svg" in shown[0][0] and shown[0][1].startswith("GPipe: 2 stages")
    ax = Figure().subplots()
    assert (
        ttkit.visualize_schedule(gpipe(2, 2), ax=ax) is ax
        and "GPipe" in ax.get_title()
        and len(shown) == 1
    )
    assert "<svg" in gpipe(2, 2)._repr_html_() and "does not work" in DEADLOCK._repr_html_()
    with pytest.raises(TypeError, match=r"a schedule of ttkit\.plans"):
        ttkit.visualize_schedule([[1, 2]])

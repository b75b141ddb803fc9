"""Pictures of pipeline schedules: every bar is an action, none hides another, and what does not work says so; how they look is in test_look."""

import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttkit
import ttkit.visualize
from ttkit.errors import TTKitError
from ttkit.plans import Schedule, gpipe, interleaved, one_at_a_time, one_f_one_b, zb_h1
from ttkit.visualize.schedule import draw_schedule, schedule_picture, shade

BUILDERS = {"one at a time": one_at_a_time, "GPipe": gpipe, "1F1B": one_f_one_b, "ZB-H1": zb_h1, "chunks": lambda p, m: interleaved(p, p * m, 3)}
DEADLOCK = Schedule("mine", 4, 8, one_f_one_b(4, 8).actions[::-1])


def run_of(schedule, zero=1000.0, late=0.0):
    """What a clock might have shown: a little later and longer than modelled."""
    pick = random.Random(1)
    for stage, row in enumerate(schedule.timeline(0.01, 0.02).slots):
        for action, start, end in row:
            yield stage, action, zero + start + late + pick.random() * 1e-3, zero + end + late - pick.random() * 1e-3


def rectangles(drawing):
    """Corners of all bars, (left, top, right, bottom), by fill; `blocks` draws each from where the one before began."""
    found = {}
    for path, fill in re.findall(r'<path d="((?:m[-\d.e]+ [-\d.e]+h[-\d.e]+v[-\d.e]+h[-\d.e]+z)+)" fill="(#\w+)" stroke="var\(--page\)"', drawing.svg()):
        x = y = 0.0
        for dx, dy, w, h in re.findall(r"m([-\d.e]+) ([-\d.e]+)h([-\d.e]+)v([-\d.e]+)", path):
            x, y = x + float(dx), y + float(dy)
            found.setdefault(fill, []).append((x, y, x + float(w), y + float(h)))
    return found


@settings(max_examples=25)
@given(st.sampled_from(sorted(BUILDERS)), st.integers(2, 8), st.integers(1, 12))
def test_every_bar_is_an_action_and_none_hides_another(name, p, m):
    schedule = BUILDERS[name](p, m)
    picture = schedule_picture(schedule)
    for stage, row in enumerate(picture.modelled.slots):
        assert tuple(slot.action for slot in row) == schedule.actions[stage]
        assert all(slot.start_s < slot.end_s for slot in row) and all(a.end_s <= b.start_s for a, b in itertools.pairwise(row))
    bars = rectangles(draw_schedule(picture))
    count = {}
    for action in (action for row in schedule.actions for action in row):
        fill = shade(action.kind, action.chunk, schedule.chunks)
        count[fill] = count.get(fill, 0) + 1
    assert {fill: len(boxes) for fill, boxes in bars.items()} == count
    lanes = {}
    for box in (box for boxes in bars.values() for box in boxes):
        lanes.setdefault(round(box[1]), []).append(box)
    assert len(lanes) == p
    for boxes in lanes.values():
        boxes.sort()
        assert all(one[2] <= other[0] + 0.1 for one, other in itertools.pairwise(boxes))


def test_figures_beside_the_lanes():
    picture = schedule_picture(interleaved(4, 8, 2))
    assert [picture.figures(picture.modelled, stage) for stage in range(4)] == [("15.8%", "5.5"), ("15.8%", "4.5"), ("15.8%", "3.5"), ("15.8%", "2.5")]
    text = draw_schedule(picture).svg()
    assert "forward, chunks 0 to 1" in text and "weight gradient" not in text and "a forward of a stage being 1" in text
    assert "weight gradient" in draw_schedule(schedule_picture(zb_h1(2, 2))).svg()


@pytest.mark.parametrize("name", BUILDERS)
def test_a_measured_run_is_on_the_same_axis(name):
    schedule = BUILDERS[name](4, 4)
    modelled = schedule.timeline(0.01, 0.02)
    for what in (schedule, modelled):
        picture = schedule_picture(what, run_of(schedule))
        assert picture.measured.slots[0][0].start_s < 1e-3 and picture.unit == "s"
        assert [[slot.action for slot in row] for row in picture.measured.slots] == [list(row) for row in schedule.actions]
        assert picture.end_s == max(picture.modelled.time_s, picture.measured.time_s)
        assert picture.modelled.time_s == pytest.approx(modelled.time_s, rel=0.5)
        drawing = draw_schedule(picture)
        assert drawing.svg().count(">measured<") == 4 and "time in ms" in drawing.svg() and repr(picture).count("measured |") == 4
        bars = rectangles(drawing)
        assert sum(map(len, bars.values())) == 2 * sum(map(len, schedule.actions))


def test_a_run_by_names_in_any_order_and_with_parts_missing():
    run = [(1, "B0", 7.0, 9.0), (1, "F0", 5.0, 6.0), (0, "F0", 4.0, 5.0)]
    picture = schedule_picture(one_f_one_b(2, 1), run)
    assert repr(picture.measured.slots) == "((F0 0-1,), (F0 1-2, B0 3-5))"
    assert draw_schedule(picture).svg().count(">measured<") == 2
    assert draw_schedule(schedule_picture(one_f_one_b(2, 1), [])).svg()  # nothing has been measured yet


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
    assert {stage: str(action) for stage, action in picture.waiting.items()} == {0: "B0", 1: "F1", 2: "F1", 3: "F1"}
    text = draw_schedule(picture).svg()
    assert text.count("waits at") == 4 and "a deadlock" in text and "does not work" in text and "bubble 0" not in text
    assert "waits at B0" in repr(picture) and "stage 0: a deadlock" in repr(picture)
    missing = schedule_picture(Schedule("mine", 2, 2, ["F0 B0 F1", "F0 B0 F1 B1"]))
    assert "B1 (backward of micro-batch 1) is missing" in draw_schedule(missing).svg()
    hung = schedule_picture(DEADLOCK, [(stage, "F0", stage * 0.01, stage * 0.01 + 0.01) for stage in range(4)])
    assert hung.unit == "s" and hung.measured.time_s == pytest.approx(0.04) and "measured" in draw_schedule(hung).svg()
    nothing = schedule_picture(Schedule("mine", 2, 2, ["", ""]))
    assert "is missing" in draw_schedule(nothing).svg() and "is missing" in repr(nothing)


def test_the_text_says_what_each_stage_does():
    rows = repr(schedule_picture(one_f_one_b(4, 8))).splitlines()[1:]
    for stage, row in enumerate(rows):
        letters = row.split("|")[1]
        assert re.findall(r"[FB]\d+", letters) == [f"{a.kind}{a.micro_batch}" for a in one_f_one_b(4, 8).actions[stage]]
    assert {len(row.split("|")[1]) for row in rows} == {99}
    chunked = repr(schedule_picture(interleaved(2, 2, 2)))
    assert "F0" in chunked and "1B1" in chunked
    wide = repr(schedule_picture(gpipe(16, 64))).splitlines()[1]
    assert set(wide.split("|")[1]) == {"#", "."} and wide.split("|")[1].count(".") == pytest.approx(19, abs=1) and len(wide) < 140


def test_every_way_to_show_one(monkeypatch, capsys):
    ttkit.visualize_schedule(gpipe(2, 2))
    ttkit.visualize_schedule(gpipe(2, 2).timeline(0.1, 0.2), measured=run_of(gpipe(2, 2)))
    ttkit.visualize_schedule(DEADLOCK)
    out = capsys.readouterr().out
    assert "bubble 33.3% of the time" in out and "measured" in out and "does not work" in out
    shown = []
    monkeypatch.setattr(ttkit.visualize, "in_notebook", lambda: True)
    monkeypatch.setattr(ttkit.visualize, "_show", lambda drawing, text: shown.append((drawing.html(), text)))
    ttkit.visualize_schedule(gpipe(2, 2))
    assert "<svg" in shown[0][0] and shown[0][1].startswith("GPipe: 2 stages")
    assert "<svg" in gpipe(2, 2)._repr_html_() and "does not work" in DEADLOCK._repr_html_()
    with pytest.raises(TypeError, match=r"a schedule of ttkit\.plans"):
        ttkit.visualize_schedule([[1, 2]])

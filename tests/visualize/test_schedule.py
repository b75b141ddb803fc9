"""Pictures of pipeline schedules: each bar is an action, and what does not work says so."""

import itertools
import random
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from motion import parts

import ttkit
import ttkit.visualize
from ttkit.plans import Schedule, Timetable, gpipe, interleaved, one_at_a_time, one_f_one_b, zb_h1
from ttkit.plans.pipelines import SCHEDULES
from ttkit.plans.schedule import Slot
from ttkit.visualize import on_one_axis
from ttkit.visualize.lanes import HEAD, LANE, LEFT, WIDTH
from ttkit.visualize.lanes.schedule import BAD, SECONDS, schedule_picture

BUILDERS = {name: build for name, build in SCHEDULES.items() if name != "interleaved"} | {
    "chunks": lambda p, m: interleaved(p, p * m, 3)
}
DEADLOCK = Schedule("mine", 4, 8, one_f_one_b(4, 8).actions[::-1])


def run_of(schedule):
    """What a clock might have shown: a little later and longer than modelled."""
    pick = random.Random(1)

    def measured(action, start, end):
        return Slot(action, start + pick.random() * 1e-3, end - pick.random() * 1e-3)

    modelled = schedule.timeline(0.01, 0.02).slots
    return Timetable(schedule, tuple(tuple(measured(*slot) for slot in row) for row in modelled))


def drawn(picture):
    """[(lane, what, start, end)] of the boxes that say what and when under the mouse."""
    page = picture._repr_html_()
    rect = r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"[^>]*><title>(\w+): ([^<]*)'
    scale = WIDTH / picture.end_s
    found = []
    for x, y, w, name, about in re.findall(rect, page):
        if about:
            start = (float(x) - LEFT) / scale
            lane = round((float(y) - HEAD - 2) / LANE)
            found.append((lane, name, start, start + float(w) / scale))
    return found


def beside(picture):
    """What stands below the names of the lanes."""
    return [about for _, _, about in picture.rows]


@settings(max_examples=25)
@given(st.sampled_from(sorted(BUILDERS)), st.integers(2, 8), st.integers(1, 12))
def test_every_bar_is_an_action_and_none_hides_another(name, p, m):
    schedule = BUILDERS[name](p, m)
    picture = schedule_picture(schedule)
    for stage, row in enumerate(picture.table.slots):
        assert tuple(slot.action for slot in row) == schedule.actions[stage]
        assert all(slot.start_s < slot.end_s for slot in row)
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(row))
    wanted = [
        (stage, str(action), pytest.approx(start, abs=0.01), pytest.approx(end, abs=0.01))
        for stage, row in enumerate(picture.table.slots)
        for action, start, end in row
    ]
    if len(wanted) <= 600:
        assert drawn(picture) == wanted


def test_figures_beside_the_lanes():
    picture = schedule_picture(interleaved(4, 8, 2))
    assert "paler: a later chunk of its stage" in picture._repr_html_()
    assert beside(picture) == [f"holds {peak}" for peak in ("5.5", "4.5", "3.5", "2.5")]
    page = picture._repr_html_()
    for words in (*beside(picture), "stage 0", "stage 3", "forward", "backward", "bubble: waits"):
        assert f">{words}<" in page
    assert "time, in forwards of one stage" in page and "input gradient<" not in page
    split = schedule_picture(zb_h1(2, 2))._repr_html_()
    assert ">input gradient<" in split and ">weight gradient<" in split


@pytest.mark.parametrize("name", BUILDERS)
def test_a_measured_run_is_on_the_axis_of_its_model(name):
    schedule = BUILDERS[name](4, 2 if name == "chunks" else 4)
    table = run_of(schedule)
    picture, modelled = on_one_axis(map(schedule_picture, (table, schedule.timeline(0.01, 0.02))))
    assert picture.unit == "s" and picture.until == modelled.until >= picture.end_s
    bars, near = drawn(replace(picture, until=0)), picture.end_s / WIDTH
    assert sorted(bars) == sorted(
        (stage, str(action), pytest.approx(start, abs=near), pytest.approx(end, abs=near))
        for stage, row in enumerate(table.slots)
        for action, start, end in row
    )


def test_a_run_of_which_a_part_is_missing():
    empty = Timetable(one_f_one_b(2, 1), ((), ()))
    assert "waits at F0" in schedule_picture(empty)._repr_html_()
    part = replace(empty, slots=(run_of(empty.schedule).slots[0], ()))
    assert len(drawn(schedule_picture(part))) == 2


def test_what_does_not_work_is_drawn_as_far_as_it_comes():
    picture = schedule_picture(DEADLOCK)
    waits = [text.split(", ")[1] for text in beside(picture)]
    assert waits == ["waits at B0"] + ["waits at F1"] * 3
    page = picture._repr_html_()
    assert "a deadlock" in page and "does not work" in page
    assert not any("bubble" in text for text in beside(picture))
    assert "waits at B0" in repr(picture) and "stage 0: a deadlock" in repr(picture)
    missing = schedule_picture(Schedule("mine", 2, 2, ["F0 B0 F1", "F0 B0 F1 B1"]))
    assert "micro-batch 1 has F1; a stage does F1 and B1" in missing._repr_html_()
    nothing = schedule_picture(Schedule("mine", 2, 2, ["", ""]))
    words = "micro-batch 0 has no action"
    assert words in nothing._repr_html_() and words in repr(nothing)


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
    letters = wide.split("|")[1]
    assert set(letters) == {"#", "."} and len(wide) < 140
    assert letters.count(".") == pytest.approx(19, abs=1)


def test_on_a_terminal_there_are_words(capsys):
    ttkit.visualize_schedule(gpipe(2, 2))
    ttkit.visualize_schedule(run_of(one_f_one_b(2, 2)))
    ttkit.visualize_schedule(DEADLOCK)
    out = capsys.readouterr().out
    assert "bubble 33.3% of the time" in out and "1F1B" in out and "does not work" in out


def test_in_a_notebook_there_is_a_figure(shown):
    ttkit.visualize_schedule(gpipe(2, 2))
    assert "<svg" in shown[0]["text/html"]
    assert shown[0]["text/plain"].startswith("GPipe: 2 stages")
    assert "<svg" in gpipe(2, 2)._repr_html_() and "does not work" in DEADLOCK._repr_html_()


def test_pictures_that_are_compared_share_an_axis():
    pictures = map(schedule_picture, (one_at_a_time(2, 4), gpipe(2, 4)))
    long, short = ttkit.on_one_axis(pictures)
    rows = [repr(picture).splitlines()[1].split("|")[1] for picture in (long, short)]
    assert len(rows[1]) / len(rows[0]) == 15 / 24
    grey = [f'width="{540 * picture.end_s / 24:g}" height="30"' for picture in (long, short)]
    assert grey[0] in long._repr_html_() and grey[1] in short._repr_html_()
    assert grey[0] not in short._repr_html_()  # nobody waits after the end


# ---------------------------------------------------------------- how its boxes look
def page_of(schedule):
    return schedule_picture(schedule)._repr_html_()


def test_boxes_have_letters_where_they_fit_and_kinds_are_hatched_where_not():
    wide, narrow = page_of(one_f_one_b(3, 4)), page_of(one_at_a_time(4, 8))
    assert wide.count(">B0<") == 3 and '<path d="M' not in wide
    assert ">B0<" not in narrow and 'th="0.35"' in narrow and 'th="0.35"' not in wide
    hatches = re.findall(r'<path d="M[^"]*" fill="none"', narrow)
    assert len(hatches) == 4 * 8 + 1  # each backward, and the legend
    assert page_of(gpipe(4, 8)).count(">F7<") == 4
    assert 'fill="none"' not in page_of(one_at_a_time(4, 16))  # bars of 5.6 px, and their legend
    mixed = page_of(gpipe(4, 12))  # a backward has room for its letters, a forward has not
    assert mixed.count(">B0<") == 4 and ">F0<" not in mixed


def test_what_never_starts_is_dashed_and_stands_behind_the_rest():
    picture = schedule_picture(Schedule("stuck", 2, 2, ["F0 B0 F1 B1", "F0 F1 B0 B1"]))
    page = picture._repr_html_()
    late = [float(x) for x in re.findall(r'<rect x="([\d.]+)"[^>]*dasharray', page)]
    assert len(late) == 6 and page.count(f'stroke="{BAD}"') == 2  # where each stage stops
    assert [what for _, what, *_ in drawn(picture)] == ["F0", "F0"]
    assert min(late) > LEFT + WIDTH / 2 and max(late) < LEFT + WIDTH


@pytest.mark.parametrize("build", [one_f_one_b, gpipe, zb_h1])
def test_time_runs_along_the_axis_and_a_dot_follows_the_first_micro_batch(build):
    schedule = build(3, 4)
    picture = replace(schedule_picture(schedule), moving=True)
    drawing = picture.figure().drawings[0]
    found = parts(drawing.svg())
    ghosts = [part for part in found if part.ghost]
    line, *dots = [part for part in found if not part.ghost]
    second = SECONDS / picture.end_s  # of a unit of time
    slots = [(stage, *slot) for stage, row in enumerate(picture.table.slots) for slot in row]
    # a bar and the text in it
    assert sorted({round(ghost.at / second, 3) for ghost in ghosts}) == sorted(
        {start for _, _, start, _ in slots}
    )
    assert all(ghost.shown(SECONDS + 0.1) for ghost in ghosts)
    first = [(stage, start, end) for stage, a, start, end in slots if a.micro_batch == 0]
    ways = []
    for dot in dots:
        x = float(dot.node[0].get("cx"))
        at = [(x + dot.off(s)[0] - LEFT) / WIDTH for s in (dot.at, dot.at + dot.stay)]
        lane = round((float(dot.node[0].get("cy")) - HEAD - 2) / LANE - 0.4)
        ways.append((lane, *(part * picture.end_s for part in at)))
        assert dot.at / second == pytest.approx(ways[-1][1], abs=0.01)
        assert dot.way[1] == 0 and not dot.rests
    assert sorted(ways) == [pytest.approx(way, abs=0.01) for way in sorted(first)]
    assert line.stay == pytest.approx(SECONDS, abs=0.01)
    assert not parts(schedule_picture(schedule).figure().drawings[0].svg())


def test_pictures_that_move_on_one_axis_run_on_one_clock():
    both = on_one_axis(
        replace(schedule_picture(b(2, 4)), moving=True) for b in (one_at_a_time, gpipe)
    )
    clocks = [parts(picture.figure().drawings[0].svg()) for picture in both]
    assert len({part.turn for clock in clocks for part in clock}) == 1
    lines = [next(part for part in clock if not part.ghost) for clock in clocks]
    assert lines[1].stay / lines[0].stay == pytest.approx(both[1].end_s / both[0].end_s, abs=0.01)


def test_a_micro_batch_can_be_traced_through_all_stages():
    svg = schedule_picture(one_f_one_b(3, 4)).figure().drawings[0].svg()
    for micro_batch in range(4):  # a forward and a backward on each of three stages
        assert svg.count(f'" data-trace="{micro_batch}"') == 2 * 6  # each with its text
        assert f'svg:has([data-trace="{micro_batch}"]:hover)' in svg

"""Lanes: a box for each bar, with its text or a hatching."""

import re

import pytest

from ttkit.plans import Schedule, gpipe, interleaved, one_at_a_time, one_f_one_b, zb_h1
from ttkit.visualize.lanes import HEAD, LANE, LEFT, SIZE, WIDTH, draw_lanes
from ttkit.visualize.lanes.schedule import schedule_picture


def page_of(schedule):
    return schedule_picture(schedule)._repr_html_()


def boxes(page):
    """{(what, stage): (left, width)} of the boxes with words under the mouse."""
    rect = r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"[^>]*><title>(\w+): '
    found = re.findall(rect, page)
    return {
        (name, round((float(y) - HEAD - 2) / LANE)): (float(x), float(w)) for x, y, w, name in found
    }


@pytest.mark.parametrize(
    "schedule", [one_f_one_b(4, 8), interleaved(4, 8, 2), zb_h1(2, 3)], ids=repr
)
def test_each_action_has_a_box_to_scale_with_its_times(schedule):
    times, page = schedule.timeline(), page_of(schedule)
    found = boxes(page)
    assert len(found) == sum(map(len, schedule.actions))
    scale = WIDTH / times.time_s
    for stage, row in enumerate(times.slots):
        for action, start, end in row:
            left, width = found[str(action), stage]
            assert left == pytest.approx(LEFT + start * scale, rel=1e-4)
            assert width == pytest.approx((end - start) * scale, rel=1e-4)
            assert f"{start:g} to {end:g}" in page


def test_boxes_have_letters_where_they_fit_and_kinds_are_hatched_where_not():
    wide, narrow = page_of(one_f_one_b(3, 4)), page_of(one_at_a_time(4, 8))
    assert wide.count(">B0<") == 3 and '<path d="M' not in wide
    assert ">B0<" not in narrow
    hatches = re.findall(r'<path d="M[^"]*" fill="none"', narrow)
    assert len(hatches) == 4 * 8 + 1  # each backward, and the legend
    assert page_of(gpipe(4, 8)).count(">F7<") == 4
    mixed = page_of(gpipe(4, 12))  # a backward has room for its letters, a forward has not
    assert mixed.count(">B0<") == 4 and ">F0<" not in mixed


def test_bubble_and_memory_stand_beside_each_name_and_nothing_is_below_ten_pixels():
    page = page_of(interleaved(4, 8, 2))
    for stage, held in enumerate(("5.5", "4.5", "3.5", "2.5")):
        assert f">stage {stage}<" in page and f">bubble 15.8%, holds {held}<" in page
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', page)]
    assert 0.8 * min(sizes) >= 10 and min(sizes) == SIZE
    assert LEFT + WIDTH <= 760


def test_what_never_starts_is_dashed_and_stands_behind_the_rest():
    stuck = Schedule("stuck", 2, 2, ["F0 B0 F1 B1", "F0 F1 B0 B1"])
    page = page_of(stuck)
    assert page.count("stroke-dasharray") == 6 and set(boxes(page)) == {("F0", 0), ("F0", 1)}
    late = [float(x) for x in re.findall(r'<rect x="([\d.]+)"[^>]*dasharray', page)]
    ran = boxes(page)["F0", 1]
    assert sum(ran) <= min(late) and max(late) < LEFT + WIDTH


def test_very_many_boxes_are_few_shapes():
    page = page_of(gpipe(16, 64))
    assert "<title>F0:" not in page and len(page) < 400_000
    words = {"title": "nothing", "idle": "idle", "axis": "time"}
    assert "<svg" in draw_lanes([], {}, 0, **words).svg()

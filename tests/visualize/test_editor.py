"""A schedule that a reader changes: by a call, by a drag and by keys."""

import re

import pytest

from ttkit.plans import one_f_one_b
from ttkit.visualize.drawing import BAD
from ttkit.visualize.widgets.builder import ScheduleEditor


def editor(room=0):
    return ScheduleEditor(one_f_one_b(2, 3), room)


def names(row):
    return " ".join(map(str, row))


def test_a_move_puts_an_action_in_another_place():
    mine = editor().move(0, "F1", 2)
    assert names(mine.schedule.actions[0]) == "F0 B0 F1 F2 B1 B2"
    assert names(mine.schedule.actions[1]) == names(one_f_one_b(2, 3).actions[1])
    mine.move(0, mine.schedule.actions[0][2], 1)
    assert mine.schedule == one_f_one_b(2, 3) and mine.problem == ""


def test_a_deadlock_is_named_and_can_be_repaired():
    mine = editor().move(1, "B0", 2).move(0, "F1", 2)
    assert "stage 1 at F1 waits for the activations" in mine.problem
    page = mine.figure()._repr_html_()
    assert "ttkit-alarm" in page and "stroke-dasharray" in page
    assert "waits at F1" in repr(mine) and mine.move(0, "F1", 1).problem == ""


def test_what_a_stage_holds_is_compared_with_its_room():
    assert editor(room=2).problem == ""
    full = editor(room=1)
    assert full.problem == "stage 0 holds 2; there is room for 1"
    assert re.search(f'fill="{re.escape(BAD)}"[^>]*>holds 2 of 1<', full.figure()._repr_html_())
    assert "there is room for 1" in repr(editor(1)) and "room" not in repr(editor())


@pytest.mark.parametrize(
    ("text", "stage", "row"),
    [
        ("0 F1>0 B0", 0, "F0 B0 F1 F2 B1 B2"), ("0 B0>0 F0", 0, "B0 F0 F1 F2 B1 B2"),
        ("0 F1 right", 0, "F0 B0 F1 F2 B1 B2"), ("1 B1 left", 1, "F0 B0 B1 F1 F2 B2"),
        ("0 F0 left", 0, "F0 F1 B0 F2 B1 B2"), ("0 B2 right", 0, "F0 F1 B0 F2 B1 B2"),
        ("0 F1>1 B0", 0, "F0 F1 B0 F2 B1 B2"),
    ],
)  # fmt: skip
def test_what_a_reader_does_on_the_page(text, stage, row):
    mine = editor()
    page = mine.act(text)
    assert names(mine.schedule.actions[stage]) == row
    wanted = {f"{s} {action}" for s, line in enumerate(mine.schedule.actions) for action in line}
    assert set(re.findall(r'data-drag="([^"]*)"', page)) == wanted
    assert set(re.findall(r'data-drop="([^"]*)"', page)) == wanted
    assert page.count('tabindex="0"') == page.count('role="button"') == len(wanted)


def test_its_page_has_one_box_of_words_whether_it_works_or_not():
    mine = editor()
    assert 'class="ttkit-alarm ttkit-fine"' in mine.page()
    mine.move(0, "B0", 0)
    assert mine.problem and mine.page().count('class="ttkit-alarm"') == 1


def test_it_is_shown_alive_in_a_notebook_and_printed_elsewhere(monkeypatch, capsys):
    editor().show()
    assert "bubble 25.0% of the time" in capsys.readouterr().out
    shown = []
    monkeypatch.setattr("ttkit.visualize.widgets.in_notebook", lambda: True)
    monkeypatch.setattr("ttkit.visualize.widgets.live", lambda *given: shown.append(given))
    mine = editor()
    mine.show()
    widget, words, still = shown[0]
    assert "drag" in words and "1F1B" in repr(still) and "data-drag" in widget.page
    widget._handle_custom_msg({"act": "0 F1 right"}, [])
    assert names(mine.schedule.actions[0]) == "F0 B0 F1 F2 B1 B2" and "40.0%" in widget.page

"""The map of the course has a tick at each lesson whose exercises are passed."""

import json

import pytest

from ttkit import lessons
from ttkit.lessons import folder, progress

MAP = "# a course\n\n| | lesson | min |\n|---|---|---|\n| 00 | first | 01 |\n| 01 | second | 00 |\n\nthe end\n"


def lesson(*names):
    cells = [{"cell_type": "code", "source": f'lessons.check("{name}", x)'} for name in names]
    return json.dumps({"cells": [*cells, {"cell_type": "markdown", "source": "text"}]})


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course of two lessons; called with results of exercises, it is the map that they give."""
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    (notebooks / "welcome.md").write_text(MAP)
    (notebooks / "00_first.ipynb").write_text(lesson("00.a"))
    (notebooks / "01_second.ipynb").write_text(lesson("01.b", "01.c", "01.d"))
    file = tmp_path / "lessons.json"
    monkeypatch.setenv("TTKIT_LEARNER", str(file))
    monkeypatch.setattr(folder, "course", lambda: tmp_path)

    def passes(**results):
        named = {name.replace("_", "."): word for name, word in results.items()}
        file.write_text(json.dumps({"exercises": named}))
        return progress.page_with_ticks(notebooks / "welcome.md")

    return passes


def test_a_tick_stands_where_all_is_passed_and_a_number_where_some_is(course):
    assert course() == MAP
    assert course(**{"00_a": "tried", "01_b": "tried"}) == MAP
    some = course(**{"00_a": "passed", "01_b": "passed", "01_d": "tried"})
    assert "| 00\xa0✓ | first | 01 |" in some and "| 01\xa01/3 | second | 00 |" in some
    every = course(**{f"01_{name}": "passed" for name in "bcd"})
    assert "| 01\xa0✓ | second | 00 |" in every and "| 00 | first | 01 |" in every


def test_a_learners_welcome_page_gets_its_ticks_when_jupyterlab_starts(course, tmp_path):
    mine = tmp_path / "mine"
    course()
    folder.copy_course(mine)
    assert (mine / "notebooks" / "welcome.md").read_text() == MAP
    course(**{"00_a": "passed"})
    assert folder.copy_course(mine) == []
    assert "| 00\xa0✓ | first | 01 |" in (mine / "notebooks" / "welcome.md").read_text()


def test_the_map_of_the_course_is_a_table(course, capsys):
    course(**{"00_a": "passed"})
    lessons.course_map()
    assert capsys.readouterr().out.splitlines()[2] == "| 00\xa0✓ | first | 01 |"


def test_every_lesson_has_a_row_in_the_map(monkeypatch, tmp_path):
    kept = tmp_path / "lessons.json"
    monkeypatch.setenv("TTKIT_LEARNER", str(kept))
    notebooks = folder.course() / "notebooks"
    paths = sorted(notebooks.glob("[0-9]*.ipynb"))
    names = [name for path in paths for name in progress.contents(path)[1]]
    kept.write_text(json.dumps({"exercises": dict.fromkeys(names, "passed")}))
    assert progress.page_with_ticks(notebooks / "welcome.md").count("✓ | [") == len(paths)

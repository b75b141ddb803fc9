"""A learner's folder: copied whole, brought up to date, and never written over."""

import json

import pytest

import ttkit
from ttkit.lessons import folder
from ttkit.lessons.folder import copy_course


def lesson(text, outputs=("an answer",), count=7):
    """A lesson of one cell, which was run."""
    cell = {"cell_type": "code", "source": text, "outputs": [*outputs], "execution_count": count}
    return json.dumps({"cells": [cell]}, indent=1) + "\n"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A course of three files."""
    course = tmp_path / "course"
    for name in ("notebooks/welcome.md", "notebooks/00_start.ipynb", "configs/one/hosts.txt"):
        (course / name).parent.mkdir(parents=True, exist_ok=True)
        (course / name).write_text(lesson("first") if name.endswith("ipynb") else f"first {name}")
    (course / "notebooks" / ".ipynb_checkpoints").mkdir()
    (course / "notebooks" / ".ipynb_checkpoints" / "x.ipynb").write_text("not of the course")
    monkeypatch.setattr(folder, "course", lambda: course)
    return course


def held(place):
    files = (path for path in place.rglob("*") if path.is_file() and ".ttkit" not in path.parts)
    return {str(path.relative_to(place)): path.read_text() for path in files}


def test_the_first_copy_has_every_file(source, tmp_path):
    place = tmp_path / "a learner's größe"
    assert copy_course(place) == []
    names = ("notebooks/welcome.md", "notebooks/00_start.ipynb", "configs/one/hosts.txt")
    fresh = lesson("first", (), None)  # without outputs
    assert held(place) == {name: f"first {name}" for name in names} | {names[1]: fresh}
    assert copy_course(place) == [] and len(held(place)) == 3


def test_what_a_learner_has_changed_stays_and_the_newer_one_goes_beside_it(source, tmp_path):
    place = tmp_path / "mine"
    copy_course(place)
    mine, newer = place / "notebooks" / "00_start.ipynb", source / "notebooks" / "00_start.ipynb"
    mine.write_text("my answers")
    assert copy_course(place) == []  # nothing new came
    assert len(held(place)) == 3
    newer.write_text(lesson("second"))
    (source / "notebooks" / "welcome.md").write_text("second")
    beside = f"00_start.{ttkit.__version__}.ipynb"
    said = f"notebooks/00_start.ipynb is yours, so it stays; the newer one is {beside}"
    assert copy_course(place) == [said]
    assert mine.read_text() == "my answers"
    assert (place / "notebooks" / beside).read_text() == lesson("second", (), None)
    assert (place / "notebooks" / "welcome.md").read_text() == "second"  # not changed by anybody
    (place / "notebooks" / beside).write_text("answers in the newer one")
    assert copy_course(place) == []
    assert (place / "notebooks" / beside).read_text() == "answers in the newer one"
    assert mine.read_text() == "my answers" and len(held(place)) == 4


def test_a_file_that_was_there_before_the_course_stays(source, tmp_path):
    place = tmp_path / "mine"
    (place / "configs" / "one").mkdir(parents=True)
    (place / "configs" / "one" / "hosts.txt").write_text("my hosts")
    (said,) = copy_course(place)
    assert "hosts.txt is yours, so it stays" in said
    assert (place / "configs" / "one" / "hosts.txt").read_text() == "my hosts"


def test_the_list_of_copies_is_damaged_or_gone(source, tmp_path):
    place = tmp_path / "mine"
    copy_course(place)
    (place / folder.RECORD).write_text("{")
    assert copy_course(place) == []
    assert set(json.loads((place / folder.RECORD).read_text())) == set(held(place))


def test_a_clone_is_its_own_folder(source):
    before = held(source)
    assert copy_course(source) == [] and held(source) == before
    assert not (source / ".ttkit").exists()


def test_a_folder_that_cannot_be_one(source, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ttkit.TTKitError, match="a folder that you can write to"):
        copy_course(tmp_path / "file")


def test_the_course_of_this_checkout():
    names = {str(name) for name in folder.files(folder.course())}
    assert {"notebooks/00_start_here.ipynb", "notebooks/course/lesson_00.py"} <= names
    assert {"notebooks/welcome.md", "examples/llama.py"} <= names
    assert "configs/t3000_2ranks/rank_bindings.yaml" in names or any(
        "t3000_2ranks" in n for n in names
    )
    assert not [name for name in names if "__pycache__" in name]

"""Predictions: what a learner may type, and what is said about it."""

import json

import numpy as np
import pytest

from ttkit import lessons
from ttkit.lessons import predicting, progress


@pytest.fixture
def notebook(monkeypatch, tmp_path):
    """A notebook's kernel, what it displays, and the learner's file."""
    outputs = []
    for module in (predicting, progress):
        monkeypatch.setattr(module, "in_notebook", lambda: True)
    monkeypatch.setattr(
        predicting, "show_widget", lambda widget, words: outputs.append((widget, words))
    )
    monkeypatch.setenv("TTKIT_LEARNER", str(tmp_path / "kept" / "lessons.json"))
    return outputs, tmp_path / "kept" / "lessons.json"


@pytest.mark.parametrize(
    ("guess", "fact", "said"),
    [
        (4, 4, "you said 4, it is 4: right"),
        ("10", 11, "off by 1"),
        (2, 8, "4 times too small"),
        (np.int64(4096), 1024, "4 times too large"),
        ("4,096", 1024, "you said 4,096, it is 1,024: 4 times too large"),
        ("4 096", 4096, "right"),
        ("384.0", 384, "you said 384, it is 384: right"),
        ("8 bytes", 8, "right"),
        ("4'096", 4096, "right"),
        ("24,6", 24.6, "right"),
        ("0,5", 1, "2 times too small"),
        ("4, 2", (4, 2), "right"),
        ("−3", -3, "right"),
        ("8 or 9", 8, "not it"),
        ("50%", 40, "off by 10"),
        (0, 8, "off by 8"),
        ("1.5", np.float32(3), "2 times too small"),
        ("4", "4", "right"),
        ("4 x 2", "4x2", "right"),
        ("(4, 2)", "4x2", "right"),
        ("[4,2]", (4, 2), "right"),
        ("2x4", "4x2", "not it"),
        ("COLUMNS_ROWS()", "columns_rows", "right"),
        (" Shard ", "shard", "right"),
        ("many", 8, "you said many, it is 8: not it"),
        (8, (8, 4), "it is (8, 4): not it"),
        (None, 8, "no guess yet, it is 8"),
        ("", 8, "no guess yet, it is 8"),
    ],
)
def test_a_prediction_and_the_fact(guess, fact, said, capsys):
    lessons.predict("00.a", a="How many?").guess(a=guess).reveal(a=fact)
    assert capsys.readouterr().out.strip().endswith(said)


def test_in_a_notebook_nothing_is_filled_in_and_nothing_revealed(notebook):
    outputs, file = notebook
    guess = lessons.predict("00.a", rows="How many rows?", way=["Which?", "line", "ring"])
    guess.reveal(rows=1234, way="ring")
    assert not any("1234" in words or "1,234" in words for _, words in outputs)
    assert [words for _, words in outputs[2:]] == [
        "How many rows? No guess yet. Guess, then press Reveal.",
        "Which? No guess yet. Guess, then press Reveal.",
    ]
    rows, way = (row for row, _ in outputs[2:])
    assert [row.children[0].value for row in (rows, way)] == ["", ""]
    assert rows.children[0] is outputs[0][0]  # the same box in both places
    assert rows.children[2].value == "no guess yet"
    rows.children[1].click()
    assert rows.children[2].value == "no guess yet, it is 1,234" and not file.exists()
    rows.children[0].value = "617"
    way.children[0].value = "ring"
    for row in (rows, way):
        row.children[1].click()
    assert rows.children[2].value == "you said 617, it is 1,234: 2 times too small"
    assert way.children[2].value == "you said ring, it is ring: right"
    assert json.loads(file.read_text())["predictions"] == {"00.a.rows": 617, "00.a.way": "ring"}


def test_what_a_learner_tried_and_passed_is_kept(notebook):
    _, file = notebook
    with pytest.raises(lessons.CheckFailed):
        lessons.check("00.share", 7)
    assert progress.kept()["exercises"] == {"00.share": "tried"}
    lessons.check("00.share", 384)
    with pytest.raises(lessons.CheckFailed):
        lessons.check("00.share", 7)
    with pytest.raises(lessons.NotDone):
        lessons.check("00.double", ...)
    assert progress.kept()["exercises"] == {"00.share": "passed"}
    file.write_text("{broken")
    assert progress.kept() == {"predictions": {}, "exercises": {}}


def test_a_solution_is_not_the_learners(notebook, capsys):
    _, file = notebook
    lessons.solution("00.share", 384)
    assert capsys.readouterr().out == "solution of 00.share: 384 elements on each device\n"
    assert not file.exists()


def test_a_file_that_cannot_be_written_does_not_stop_a_lesson(notebook, monkeypatch, tmp_path):
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("TTKIT_LEARNER", str(tmp_path / "taken" / "lessons.json"))
    lessons.check("00.share", 384)
    monkeypatch.setenv("TTKIT_LEARNER", "")
    lessons.check("00.share", 384)
    assert progress.kept() == {"predictions": {}, "exercises": {}}

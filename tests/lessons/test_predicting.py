"""Predictions: what a learner may type, and what is said about it."""

import json

import numpy as np
import pytest

from ttkit import lessons
from ttkit.lessons import exercises, predicting, progress


@pytest.fixture
def notebook(monkeypatch, tmp_path):
    """A notebook's kernel, what it displays, and the learner's file."""
    outputs = []
    for module in (predicting, progress):
        monkeypatch.setattr(module, "in_notebook", lambda: True)
    monkeypatch.setattr(exercises, "in_notebook", lambda: True)
    for module in (predicting, exercises):
        monkeypatch.setattr(module, "show_widget", lambda widget, _: outputs.append(widget))
    monkeypatch.setenv("TTKIT_LEARNER", str(tmp_path / "kept" / "lessons.json"))
    return outputs, tmp_path / "kept" / "lessons.json"


@pytest.mark.parametrize(
    ("guess", "fact", "said"),
    [
        (4, 4, "right"), ("10", 11, "off by 1"), (2, 8, "4 times too small"),
        (np.int64(4096), 1024, "4 times too large"), ("4,096", 1024, "4 times too large"),
        ("4 096", 4096, "right"), ("384.0", 384, "right"), ("8 bytes", 8, "right"),
        ("4'096", 4096, "right"), ("24,6", 24.6, "right"), ("0,5", 1, "2 times too small"),
        ("4, 2", (4, 2), "right"), ("−3", -3, "right"), ("8 or 9", 8, "not right"),
        ("50%", 40, "off by 10"), (0, 8, "off by 8"),
        ("1.5", np.float32(3), "2 times too small"), ("4 x 2", "4x2", "right"),
        ("(4, 2)", "4x2", "right"), ("[4,2]", (4, 2), "right"), ("2x4", "4x2", "not right"),
        ("COLUMNS_ROWS()", "columns_rows", "right"), (" Shard ", "shard", "right"),
        ("many", 8, "not right"), (8, (8, 4), "not right"), ("2,200", 2272.0, "close enough"),
        ("6", np.float32(5.8), "close enough"), ("5,5", 5.8, "off by 0.3"),
        (2200, 2272, "off by 72"),
    ],
)  # fmt: skip
def test_a_guess_and_the_fact(guess, fact, said):
    read = predicting.read_guess(guess) if isinstance(guess, str) else guess
    assert predicting.verdict(read, fact) == said


QUESTIONS = {"rows": ("How many rows?", 1234), "way": ("Which?", "ring", "line", "ring")}


def card(outputs):
    lessons.predict("00.a", lambda: print("because"), **QUESTIONS)
    *boxes, buttons, said, answer = outputs.pop().children
    return boxes, *buttons.children, said, answer


def test_in_a_notebook_nothing_is_filled_in_and_nothing_shown_before_reveal(notebook, capsys):
    outputs, file = notebook
    (rows, way), reveal, _, said, _ = card(outputs)
    assert (rows.value, way.value, said.value) == ("", "", "")
    reveal.click()
    assert said.value == "Guess first, even roughly, or press Skip."
    assert not capsys.readouterr().out
    rows.value, way.value = "617", "ring"
    reveal.click()
    assert json.loads(file.read_text())["predictions"] == {"00.a.rows": 617, "00.a.way": "ring"}
    assert rows.layout.display == "none" and capsys.readouterr().out == "because\n"
    assert said.value == (
        '<p data-verdict="2 times too small">How many rows?<br>You said 617: 2 times too small. '
        'Answer: <b>1,234</b></p><p data-verdict="right">Which?<br>You said ring: right. '
        "Answer: <b>ring</b></p>"
    )


def test_skip_shows_the_answer_and_keeps_no_guess(notebook, capsys):
    outputs, file = notebook
    (rows, _), _, skip, said, _ = card(outputs)
    skip.click()
    assert "How many rows?<br>Answer: <b>1,234</b></p>" in said.value
    assert (rows.layout.display, capsys.readouterr().out) == ("none", "because\n")
    assert not file.exists()


def test_where_nobody_learns_the_answer_stands_there(notebook, monkeypatch, capsys):
    outputs, _ = notebook
    monkeypatch.setenv("TTKIT_LEARNER", "")
    lessons.predict("00.a", lambda: print("because"), **QUESTIONS)
    assert capsys.readouterr().out.splitlines() == [
        "How many rows? Answer: 1,234.",
        "Which? (line, ring) Answer: ring.",
        "because",
    ]
    assert not outputs


def test_an_exercise_that_waits_is_a_card_with_hints(notebook, capsys):
    outputs, file = notebook
    lessons.check("00.double", ...)
    row, _ = outputs.pop().children
    label, button = row.children
    assert label.value == "○ exercise 00.double: not done yet" and not file.exists()
    button.click()
    assert "hint 1 of" in capsys.readouterr().out


def test_what_a_learner_tried_and_passed_is_kept(notebook):
    outputs, file = notebook
    with pytest.raises(lessons.CheckFailed):
        lessons.check("00.share", 7)
    row, reason, _ = outputs.pop().children
    label, _ = row.children  # The other one is the button for hints.
    assert label.value == "✗ exercise 00.share: not right yet"
    assert "the number of elements is not 7" in reason.value
    assert progress.saved()["exercises"] == {"00.share": "tried"}
    lessons.check("00.share", 384)
    (label,) = outputs.pop().children[0].children
    assert label.value == "✓ exercise 00.share: 384 elements on each device"
    with pytest.raises(lessons.CheckFailed):
        lessons.check("00.share", 7)
    lessons.check("00.double", ...)
    assert progress.saved()["exercises"] == {"00.share": "passed"}
    file.write_text("{broken")
    assert progress.saved() == {"predictions": {}, "exercises": {}, "challenges": {}}


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
    assert progress.saved() == {"predictions": {}, "exercises": {}, "challenges": {}}

"""Open challenges: scores come from the models, scoreboards keep the best entries, and an answer that is
wrong or not complete gets no score.
"""

import dataclasses
import json
import re

import pytest
from answers import all_challenges

from ttkit import lessons, plans
from ttkit.errors import TTKitError
from ttkit.lessons import exercises, progress
from ttkit.plans import one_f_one_b, zb_h1

GRID, RING = plans.topology("t3000"), plans.topology("t3000", (1, 8))
TREE = plans.all_reduce(GRID, 1 << 20, algorithm="tree")
AROUND = plans.all_reduce(RING, 1 << 20, axis=1)
SLOWER = "DP4 TP4 PP2 ZeRO-2 SP recompute interleaved-2 4 micro-batches"
# challenge: an answer that is right and worse than the best known, and its row of the scoreboard
WORSE = {
    "04.steps": (TREE, "6 steps", "★", "tree, 6 steps"),
    "04.link": (AROUND, "917,504 bytes", "★★", "ring, 8 steps"),
    "04.memory": (AROUND, "262,144 bytes", "★", "ring, 8 steps"),
    "15.room": (
        ["F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5", *["F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5"] * 2]
        + ["F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"],
        "bubble",
        "★",
        "the stages hold 3, 2, 2, 1",
    ),
    "23.speed": ((32, SLOWER), " tokens/s", "★", f"batch 32, {SLOWER}"),
    "23.bytes": ((32, SLOWER), " bytes", "★", f"batch 32, {SLOWER}"),
}
UNFINISHED = dataclasses.replace(TREE, steps=TREE.steps[:-1])
# challenge: answers that get no score, with the reason
WRONG = [
    ("04.steps", UNFINISHED, "after the last step chunk"),
    ("04.link", plans.all_reduce(GRID, 1 << 10), "1024 bytes; expected chips"),
    ("04.link", plans.all_reduce(GRID, 1 << 20, 1), "expected an all_reduce of all eight chips"),
    ("04.memory", plans.all_gather(GRID, 1 << 20), "an all_reduce of all eight chips"),
    ("04.memory", [], "expected a Plan, got a list"),
    ("15.room", one_f_one_b(4, 6), "stage 0"),
    ("15.room", zb_h1(4, 8), "4 stages and 6 micro-batches are asked for"),
    ("15.room", ["F0 F1"] * 4, "micro-batch 0 has F0; a stage does"),
    ("23.speed", (65, SLOWER), "the batch must be 1 to 64 sequences"),
    ("23.bytes", (32, "DP32"), "DP32 cannot run"),
    ("23.bytes", (32, "DP5"), "the layout 'DP5'"),
]


@pytest.fixture
def scoreboards(monkeypatch, tmp_path):
    """What is displayed; a notebook keeps what is entered in a file of its own."""
    monkeypatch.setenv("TTKIT_LEARNER", str(tmp_path / "lessons.json"))
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    return shown


def test_there_are_six():
    assert set(all_challenges()) == set(WORSE)


@pytest.mark.parametrize("name", WORSE)
def test_the_best_known_is_scored_as_any_answer_and_is_better(name, scoreboards):
    declared, (answer, *row) = all_challenges()[name], WORSE[name]
    worse, known = (declared.score(each)[0] for each in (answer, declared.reference()))
    assert (worse < known) == declared.higher != (worse > known)
    lessons.challenge(name, answer)
    lessons.challenge(name, declared.reference())
    best, mine, other = scoreboards[-1].rows
    assert best[0] == "best known" and best[2:] == ("★★★☆", "")
    assert mine[:3] == ("this one", *best[1:3])
    score, stars, *words = row
    assert other[0] == "yours" and score in other[1] and other[2] == stars.ljust(4, "☆")
    assert other[3][0] == ("-" if declared.higher else "+") and all(w in other[3] for w in words)


def test_no_layout_of_the_planner_is_better_at_the_best_batch():
    from course import lesson_23

    for name in ("23.speed", "23.bytes"):
        declared = all_challenges()[name]
        batch, _ = declared.reference()
        found = lesson_23.plan_layouts(lesson_23.MODEL, "galaxy", batch=batch, overlap=True)
        scores = [declared.score((batch, each.layout))[0] for each in found.fitting]
        best = (max if declared.higher else min)(scores)
        assert declared.score(declared.reference())[0] == best


@pytest.mark.parametrize(("name", "answer", "why"), WRONG)
def test_a_wrong_answer_gets_no_score_and_is_told_why(name, answer, why, scoreboards):
    with pytest.raises((lessons.CheckFailed, TTKitError), match=re.escape(why)):
        lessons.challenge(name, answer)
    assert not scoreboards and not progress.saved()["challenges"]


def test_a_scoreboard_keeps_the_best_entries(scoreboards):
    numbers = exercises.Challenge(
        "00.least",
        asks="the least",
        score=lambda answer: (answer, f"it is {answer}"),
        reference=lambda: 8,
        unit="{:g} steps",
    )
    lessons.challenge("00.least", ...)
    asks, stars = scoreboards[-1].title.split("\n")
    assert asks == "open challenge 00.least: the least" and "★★ within 25%" in stars
    best, mine = scoreboards[-1].rows
    assert best == ("best known", "8 steps", "★★★☆", "")
    assert mine[:3] == ("yours", "none yet", "☆☆☆☆") and "three dots" in mine[3]
    for number in (9, 7, 12, 10, 8, 7, 11):
        lessons.challenge("00.least", number)
    kept = progress.saved()["challenges"]["00.least"]
    assert kept == [[n, f"it is {n}"] for n in (7, 8, 9, 10, 11)]
    stars = [row[2] for row in scoreboards[-1].rows]
    assert stars == ["★★★☆", "★★★★", "★★★☆", "★★☆☆", "★★☆☆", "★☆☆☆", "★☆☆☆"]
    lessons.challenge("00.least", 30)  # It is shown, and forgotten.
    words = "+275% against the best known; it is 30"
    assert scoreboards[-1].rows[-1] == ("this one", "30 steps", "★☆☆☆", words)
    assert progress.saved()["challenges"]["00.least"] == kept
    assert "7 steps" in repr(scoreboards[-1]) and json.loads(progress.file().read_text())
    exercises.DECLARED.pop(numbers.name)


def test_a_challenge_that_there_is_not():
    with pytest.raises(TTKitError, match=r"challenge '04.broadcast'.*\n.*one of .*04.link"):
        lessons.challenge("04.broadcast", 1)
    with pytest.raises(TTKitError, match=r"exercise '04.steps': there is none with this name"):
        lessons.check("04.steps", 1)

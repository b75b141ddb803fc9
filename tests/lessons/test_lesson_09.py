"""The exercises of lesson 09, with right answers and with wrong ones."""

import pytest
from answers import wrong

from ttkit import lessons
from ttkit.lessons.lesson_09 import BROKEN, _grade
from ttkit.plans import gpipe, one_at_a_time, one_f_one_b, zb_h1


def two_ahead(stages, micro_batches):
    rows = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, 2)
        row = [f"F{i}" for i in range(ahead)]
        for i in range(micro_batches):
            row += [f"F{ahead + i}"] * (ahead + i < micro_batches) + [f"B{i}"]
        rows.append(" ".join(row))
    return rows


RIGHT = [
    ("09.bubble", lambda p, m, v: (p - 1) / (v * m + p - 1)),
    ("09.budget", two_ahead),
    ("09.budget", two_ahead(4, 6)),
    ("09.repair", (2, "F0 B0 F1 B1 F2 B2 F3 B3")),
]

# (exercise, wrong answer, what the feedback must name)
WRONG = [
    (
        "09.bubble",
        lambda p, m, v: (p - 1) / (m + p - 1),
        r"bubble\(4, 8, 2\) gives 0.2727; the schedule interleaved 1F1B has 0.1579",
    ),
    (
        "09.bubble",
        lambda p, m, v: (p - 1) / (v * m),
        "a part of the work; asked is its part of the whole time, 0.5",
    ),
    ("09.bubble", lambda p, m, v: None, r"bubble\(2, 1, 1\) should be a number"),
    ("09.bubble", lambda p, m: 0, "it is called as bubble"),
    (
        "09.budget",
        one_f_one_b,
        "after action 4, F3, it holds the activations of 4 micro-batches; the memory is for 3",
    ),
    ("09.budget", gpipe, "the memory is for 3"),
    ("09.budget", one_at_a_time, "75.0% of the time is bubble; at most 50.0% may be"),
    (
        "09.budget",
        lambda p, m: one_at_a_time(p, m - 1),
        "micro_batches=5, asked is micro_batches=6",
    ),
    ("09.repair", 2, "a pair is asked for"),
    ("09.repair", (3, BROKEN[0]), "there is no stage 3"),
    ("09.repair", (1, "F0 F1 F2 B0 F3 B1 B2 B3"), "stage 1 .*the memory is for 2"),
    ("09.repair", (2, "F0 F1 B0 F2 B1 F3 B2 B3"), "stage 2 .*the memory is for 1"),
]


@pytest.mark.parametrize(("name", "answer"), RIGHT)
def test_right_answers(name, answer, capsys):
    lessons.check(name, answer)
    assert f"exercise {name}: " in capsys.readouterr().out


test_wrong_answers = wrong(WRONG)


def test_every_exercise_has_two_wrong_answers():
    for name in [name for name in lessons.exercises() if name.startswith("09.")]:
        assert len([1 for wrong, *_ in WRONG if wrong == name]) >= 2, name


ONE = "F0 B0 F1 B1"


@pytest.mark.parametrize(
    ("answer", "stages", "micro_batches", "memory", "bubble", "phrase"),
    [
        (
            one_f_one_b(4, 8),
            4,
            8,
            4,
            0.28,
            "yes: 4 stages, 8 micro-batches, bubble 27.3% of the time, "
            "at most the activations of 4 micro-batches on a stage",
        ),
        (one_f_one_b, 4, 8, [4, 3, 2, 1], 1, "bubble 27.3%"),
        (lambda p, m: gpipe(p, m).actions, 2, 5, 5, 1, "2 stages, 5 micro-batches"),
        ([ONE, ONE], 2, 2, 1, 1, "bubble 50.0% of the time, at most the activations of 1 micro-"),
        (["F0 B0"], 1, 1, 1, 0, "yes: 1 stage, 1 micro-batch, bubble 0.0%"),
        (zb_h1(4, 8), 4, 8, 4, 1 / 9, "bubble 11.1%"),
    ],
    ids=lambda value: None,
)
def test_a_right_schedule_is_praised_with_its_figures(
    answer, stages, micro_batches, memory, bubble, phrase, capsys
):
    _grade(answer, stages, micro_batches, memory, bubble)
    assert phrase in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "memory", "bubble", "phrase"),
    [
        (gpipe(4, 8), 8, 1, "is for stages=4, asked is stages=2"),
        ("steps", 3, 1, "2 lists, one for each stage, this is 'steps'"),
        (7, 3, 1, "this is 7"),
        ([ONE + " F2 B2"], 3, 1, "2 lists, one for each stage"),
        ([ONE, ONE], 3, 1, "stage 0 of .*yours.*micro-batch 2"),
        (["F0 F1 F2 B0 B1 B2", "B0 F0 F1 B1 F2 B2"], 3, 1, "stage 1 of .*: B0 .* needs F0"),
        (
            ["F0 B0 F1 B1 F2 B2", "F0 F1 B0 B1 F2 B2"],
            3,
            1,
            "stage 0 at B0 waits for the gradients .* stage 1 at F1 waits",
        ),
        (gpipe, [3, 1], 1, "stage 1 .* after action 2, F1"),
        (
            one_at_a_time,
            3,
            0.25,
            "50.0% of the time is bubble; at most 25.0% may be. The longest wait: stage 0, "
            "3 forwards long, before B0",
        ),
    ],
    ids=lambda value: None,
)
def test_what_is_wrong_with_a_schedule_is_named(answer, memory, bubble, phrase):
    with pytest.raises(lessons.CheckFailed, match=phrase):
        _grade(answer, 2, 3, memory, bubble)


@pytest.mark.parametrize("answer", [None, ..., lambda p, m: None])
def test_a_schedule_that_is_not_there(answer):
    with pytest.raises(lessons.NotDone, match="a schedule of 2 stages"):
        _grade(answer, 2, 3, 3, 1)

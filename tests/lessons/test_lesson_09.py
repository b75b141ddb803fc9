"""The exercises of lesson 09, with right answers and with wrong ones."""

import numpy as np
import pytest
from answers import numbered, wrong

from ttkit import lessons
from ttkit.errors import TTKitError
from ttkit.lessons.lesson_09 import BROKEN, BUBBLE, BUILD, ROOM, _grade, card, schedule_of
from ttkit.plans import gpipe, interleaved, one_at_a_time, one_f_one_b, zb_h1
from ttkit.train.config import TransformerConfig
from ttkit.train.layout import Layout
from ttkit.visualize.editor import ScheduleEditor


def two_ahead(stages, micro_batches):
    rows = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, 2)
        row = [f"F{i}" for i in range(ahead)]
        for i in range(micro_batches):
            row += [f"F{ahead + i}"] * (ahead + i < micro_batches) + [f"B{i}"]
        rows.append(" ".join(row))
    return rows


def edited():
    editor = ScheduleEditor(one_f_one_b(4, 6), room=3)
    editor.move(0, "F3", 4).move(0, "F4", 6).move(0, "F5", 8)
    return editor.move(1, "B1", 4).move(1, "B2", 6).move(2, "B2", 5)


def best():
    return edited().schedule


def drained_twice(stages, micro_batches):
    """GPipe of three micro-batches, and once more."""
    half = " ".join([*(f"F{i}" for i in range(3)), *(f"B{i}" for i in range(3))])
    again = " ".join([*(f"F{i}" for i in range(3, 6)), *(f"B{i}" for i in range(3, 6))])
    return [f"{half} {again}"] * stages


def at_once(rows):
    """The same with the last stage's list on all stages."""
    return [rows[-1]] * len(rows)


RIGHT = [
    ("09.bubble", lambda p, m, v: (p - 1) / (v * m + p - 1)),
    ("09.bubble", lambda p, m, v: 1 - v * m / (v * m + p - 1)),
    ("09.budget", best()),
    ("09.budget", lambda p, m: best()),
    ("09.budget", [" ".join(map(str, row)) for row in best().actions]),
    ("09.budget", "\n".join(" ".join(map(str, row)) for row in best().actions)),
    ("09.budget", [", ".join(map(str, row)) for row in best().actions]),
    ("09.budget", {i: " ".join(map(str, row)) for i, row in enumerate(best().actions)}),
    ("09.budget", np.array([[str(action) for action in row] for row in best().actions])),
    ("09.budget", {i: " ".join(map(str, best().actions[i])) for i in (3, 2, 1, 0)}),
    ("09.budget", [str(row).lower() for row in best().actions]),
    ("09.budget", "\n\n".join("; ".join(map(str, row)) for row in best().actions)),
    ("09.budget", edited()),
    ("09.bubble", lambda p, m, v: np.array((p - 1) / (v * m + p - 1))),
    ("09.repair", (np.int64(2), "F0, B0, F1, B1, F2, B2, F3, B3")),
    ("09.repair", (2, "F0 B0 F1 B1 F2 B2 F3 B3")),
    ("09.repair", (2.0, "[f0 b0 f1 b1 f2 b2 f3 b3]")),
    ("09.repair", [2, ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"]]),
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
    ("09.budget", one_at_a_time, "75.0% of the time is bubble; at most 40.0% may be"),
    ("09.budget", drained_twice, "50.0% of the time is bubble; at most 40.0% may be"),
    ("09.budget", two_ahead, "50.0% of the time is bubble; at most 40.0% may be"),
    ("09.budget", two_ahead(4, 6), "The longest wait: stage 0, 7 forwards long, before B0"),
    ("09.budget", at_once(two_ahead(4, 6)), "75.0% of the time is bubble"),
    ("09.budget", lambda p, m: zb_h1(p, m), "a backward is whole here: write B0, not I0 and W0"),
    ("09.budget", lambda p, m: interleaved(p, m, 2), "one chunk .*, and the schedule has 2"),
    ("09.budget", lambda p, m: two_ahead(p, m)[:3], "4 lists, one for each stage"),
    ("09.bubble", lambda p, m, v: (p - 1) / p, r"bubble\(2, 4, 1\) gives 0.5; "),
    ("09.bubble", lambda p, m, v: (p - 1) / (v * (m + p - 1)), "gives 0.1364; the schedule"),
    ("09.bubble", lambda p, m, v: 100 * (p - 1) / (v * m + p - 1), "gives 50, a percentage; asked"),
    ("09.bubble", lambda p, m, v: f"{1 / p}", r"should be a number, is '0.5'"),
    ("09.budget", lambda: best(), "your schedule stopped with TypeError.*it is called as schedule"),
    ("09.budget", lambda p, m: 1 / 0, "your schedule stopped with ZeroDivisionError"),
    ("09.budget", ScheduleEditor(one_f_one_b(4, 6), room=3), "the memory is for 3"),
    ("09.budget", {3 - i: row for i, row in enumerate(best().actions)}, "stage 0 .*a deadlock"),
    ("09.budget", ["F" + "9" * 5000] * 4, "a micro-batch's number"),
    ("09.budget", [range(10**12)] * 4, "0 is no action"),
    ("09.budget", {0: "F0", "a": "B0", None: "", 1: ""}, "micro-batch 0"),
    ("09.budget", 0.4, "4 lists, one for each stage, this is 0.4"),
    ("09.repair", (2, "F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3"), "a backward is whole here"),
    ("09.repair", (2, "F1 B1 F0 B0 F2 B2 F3 B3"), "45.5% of the time is bubble; at most 33.3%"),
    ("09.repair", (np.array([2, 2]), "F0 B0"), r"there is no stage array\(\[2, 2\]\)"),
    ("09.repair", ("2", "F0 B0 F1 B1 F2 B2 F3 B3"), "there is no stage '2'; the number of the st"),
    ("09.repair", (2, None), "3 lists, one for each stage, this is"),
    ("09.repair", (0, "F0 B0 F1 B1 F2 B2 F3 B3"), "a deadlock|waits for"),
    ("09.repair", (2, "F0 B0 F1 B1 F2 B2"), "micro-batch 3 has no action"),
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


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=numbered(RIGHT))
def test_right_answers(name, answer, capsys):
    lessons.check(name, answer)
    assert f"exercise {name}: " in capsys.readouterr().out


test_wrong_answers = wrong(WRONG)


def test_every_exercise_has_four_wrong_answers_and_hints(capsys):
    for name in [name for name in lessons.exercises() if name.startswith("09.")]:
        assert len([1 for wrong, *_ in WRONG if wrong == name]) >= 4, name
        lessons.hint(name)
    assert capsys.readouterr().out.count("hint 1 of 3") == 3


def test_no_schedule_has_a_smaller_bubble_than_the_budget():
    """F5 starts on stage 0 after its B0, B1 and B2, F3 and F4, and then goes there and back."""
    assert best().timeline().time_s == 10 + 3 * 2 + 2 + 4 + 4 * 2
    assert best().timeline().bubble_fraction == pytest.approx(BUBBLE)
    assert max(best().peak_activations()) == ROOM


def test_the_playground_takes_each_schedule_and_refuses_in_words():
    for name in BUILD:
        assert schedule_of(name, 4, 8, 2).schedule.stages == 4
    assert schedule_of("interleaved", 4, 8, 2).modelled.bubble_fraction == pytest.approx(3 / 19)
    longer = schedule_of("1F1B", 2, 4, backward=3)
    assert longer.modelled.time_s == 4 * 4 + 4 and longer.unit == ""
    with pytest.raises(TTKitError, match="do not fill"):
        schedule_of("interleaved", 5, 11, 2)


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


def test_the_card_of_a_layout_is_the_planners():
    sizes = {"num_heads": 2, "embedding_dim": 64, "num_blocks": 8, "vocab_size": 64}
    model = TransformerConfig(**sizes, max_sequence_length=32, dropout_prob=0)
    found = card(model, Layout(pp=8, micro_batches=8), 8)
    assert list(found) == ["MB sent", "calls", "GB held", "% waits"]
    assert found["calls"] == 16 and 0 < found["% waits"] < 100

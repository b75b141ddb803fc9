"""Pipeline schedules that learners hand in: what is wrong is named, budgets are kept."""

import pytest

from ttkit.lessons import CheckFailed, NotDone, check_schedule
from ttkit.plans import gpipe, interleaved, one_at_a_time, one_f_one_b, zb_h1

RIGHT = "F0 B0 F1 B1"


@pytest.mark.parametrize(
    ("learners", "stages", "micro_batches", "budget", "phrase"),
    [
        (
            one_f_one_b(4, 8),
            4,
            8,
            {"memory": 4, "bubble": 0.28},
            "4 stages, 8 micro-batches, bubble 27.3% of the time, "
            "at most the activations of 4 micro-batches",
        ),
        (one_f_one_b, 4, 8, {"memory": [4, 3, 2, 1]}, "bubble 27.3%"),
        (lambda p, m: gpipe(p, m).actions, 2, 5, {"memory": 5}, "2 stages, 5 micro-batches"),
        (
            [RIGHT, RIGHT],
            2,
            2,
            {"memory": 1},
            "bubble 50.0% of the time, at most the activations of 1 micro-batch on a stage",
        ),
        (["F0 B0"], 1, 1, {}, "yes: 1 stage, 1 micro-batch, bubble 0.0%"),
        (zb_h1(4, 8), 4, 8, {"memory": 4, "bubble": 1 / 9}, "bubble 11.1%"),
        (
            interleaved(4, 8, 2),
            4,
            8,
            {"memory": 5.5, "bubble": 3 / 19, "chunks": 2},
            "2 chunks a stage, bubble 15.8%",
        ),
    ],
    ids=lambda value: None,
)
def test_a_right_schedule_is_praised_with_its_figures(
    learners, stages, micro_batches, budget, phrase, capsys
):
    check_schedule(learners, stages, micro_batches, **budget)
    out = capsys.readouterr().out
    assert out.startswith("yes: ") and phrase in out


@pytest.mark.parametrize(
    ("learners", "budget", "phrase"),
    [
        (gpipe(4, 8), {}, "is for stages=4, asked is stages=2"),
        (gpipe(2, 4), {}, "is for micro_batches=4, asked is micro_batches=3"),
        (interleaved(2, 3, 2), {}, "is for chunks=2, asked is chunks=1"),
        (gpipe(2, 3), {"chunks": 2}, "is for chunks=1, asked is chunks=2"),
        ("steps", {}, "2 lists, one for each stage, this is 'steps'"),
        (7, {}, "this is 7"),
        ([RIGHT + " F2 B2"], {}, "2 lists, one for each stage, this is .'F0 B0"),
        ([RIGHT, RIGHT], {}, "stage 0 of .*yours.*: micro-batch 2 has no action"),
        (["F0 F1 F2 B0 B1 B2", "B0 F0 F1 B1 F2 B2"], {}, "stage 1 of .*: B0 .* needs F0"),
        (
            ["F0 B0 F1 B1 F2 B2", "F0 F1 B0 B1 F2 B2"],
            {},
            "stage 0 at B0 waits for the gradients .* stage 1 at F1 waits",
        ),
        (["F0 F1 F2 B0 B1 B2", "F0 F0 B0 F1 B1 F2 B2"], {}, "stage 1 .* F0 .* comes twice"),
        (
            gpipe,
            {"memory": 2},
            "stage 0 .* after action 3, F2, it holds the activations of 3 micro-batches; "
            "the memory is for 2",
        ),
        (gpipe, {"memory": [3, 1]}, "stage 1 .* after action 2, F1"),
        (
            one_at_a_time,
            {"bubble": 0.25},
            "50.0% of the time is bubble; at most 25.0% may be. The longest wait: stage 0, "
            "3 forwards long, before B0",
        ),
        (
            one_f_one_b,
            {"bubble": 0.2},
            "25.0% of the time is bubble; at most 20.0% may be. The longest wait: stage 0, "
            "2 forwards long, before B0",
        ),
        (one_f_one_b, {"memory": "much"}, "memory_limit='much'"),
    ],
    ids=lambda value: None,
)
def test_what_is_wrong_is_named(learners, budget, phrase):
    with pytest.raises(CheckFailed, match=phrase):
        check_schedule(learners, 2, 3, **budget)


@pytest.mark.parametrize("learners", [None, ..., lambda p, m: None])
def test_what_is_not_done(learners):
    with pytest.raises(NotDone, match="a schedule of 2 stages"):
        check_schedule(learners, 2, 3)

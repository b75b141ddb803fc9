"""Plans that learners hand in: what is wrong is named, budgets are kept."""

import dataclasses

import pytest

from ttkit.lessons import CheckFailed, check_plan
from ttkit.plans import Plan, Transfer, all_gather, all_reduce, reduce_scatter, topology

T3000 = topology("t3000")


def test_a_right_plan_is_praised_with_its_figures(capsys):
    check_plan(
        reduce_scatter(T3000, 4096, axis=1),
        "reduce_scatter",
        max_steps=3,
        max_bytes_per_link=3072,
        max_extra_bytes=2048,
    )
    assert (
        capsys.readouterr().out
        == "yes: reduce_scatter in 3 steps, at most 3,072 bytes from a chip to a neighbour, "
        "2,048 bytes of extra memory\n"
    )


@pytest.mark.parametrize(
    ("plan", "goal", "budget", "phrase"),
    [
        (
            all_gather(T3000, 64, 1),
            "all_reduce",
            {},
            "the plan is for all_gather, asked is all_reduce",
        ),
        ("steps", "all_reduce", {}, "this is a str"),
        (None, "all_reduce", {}, "this is a NoneType"),
        (
            all_reduce(T3000, 4096, 1),
            "all_reduce",
            {"max_steps": 4},
            "takes 6 steps; the budget is 4",
        ),
        (
            all_reduce(T3000, 4096, 1, algorithm="tree"),
            "all_reduce",
            {"max_bytes_per_link": 4095},
            "sends 4,096 bytes to chip",
        ),
        (
            all_gather(T3000, 64, 1),
            "all_gather",
            {"max_extra_bytes": 191},
            "holds 192 bytes beside its shard; the budget is 191",
        ),
        (
            dataclasses.replace(all_gather(T3000, 64, 1), steps=()),
            "all_gather",
            {},
            "chip 4 does not hold chunk 1",
        ),
        (
            Plan("all_gather", T3000, [[Transfer(4, 2, 0)]], 64, 1),
            "all_gather",
            {},
            "step 1 of 1 .* chip 4 sends chunk 0 to chip 2, but no cable joins them",
        ),
    ],
    ids=lambda value: None,
)
def test_what_is_wrong_is_named(plan, goal, budget, phrase):
    with pytest.raises(CheckFailed, match=phrase):
        check_plan(plan, goal, **budget)

"""Lesson 18: its picture, and right and wrong answers to its exercises."""

import math
from fractions import Fraction

import numpy as np
import pytest
from answers import right, wrong

import ttkit
from ttkit.lessons import CheckFailed, check
from ttkit.lessons.lesson_18 import (
    CAPSTONE,
    BreakEven,
    alone,
    card,
    planned_bytes,
    small_gpt,
    to_run,
)
from ttkit.train.config import TransformerConfig
from ttkit.train.layout import Layout

BEST = "TP8 PP8 SP recompute 128 micro-batches"


def break_even(parameters, sequence, chips, flops_per_s, bytes_per_s):
    sending = 2 * (chips - 1) / chips * 4 * parameters / bytes_per_s
    backward = 4 * parameters * sequence / flops_per_s
    return max(1, int(-(-sending // backward)))


def by_trying(parameters, sequence, chips, flops_per_s, bytes_per_s):
    batch = 1
    while 2 * (chips - 1) / chips / bytes_per_s > sequence * batch / flops_per_s:
        batch += 1
    return np.float64(batch)


def part(flops=4, size=4, times=2, whole=math.ceil):
    """An answer with another factor somewhere."""

    def answer(parameters, sequence, chips, flops_per_s, bytes_per_s):
        sent = times * (chips - 1) / chips * size / bytes_per_s
        return max(1, whole(sent / (flops * sequence / flops_per_s)))

    return answer


def layout(**sizes):
    return Layout(tp=8, pp=8, sequence_parallel=True, recompute=True, **sizes)


test_right_answers = right(
    [
        ("18.batch", break_even),
        ("18.batch", by_trying),
        ("18.layout", (BEST, "pp", "optimizer")),
        ("18.layout", ["128 micro-batches recompute SP PP8 TP8", "pp", "optimizer"]),
        ("18.layout", (layout(micro_batches=128), "pp", "optimizer")),
        ("18.layout", (BEST.lower().replace(" ", ", "), "PP ", "Optimizer")),
        ("18.layout", (f"({BEST.upper()})".replace(" ", " + "), "'pp'", " optimizer\n")),
        ("18.layout", (BEST.replace("micro-batches", "micro batches"), "pp", "optimizer")),
        (
            "18.layout",
            (f"DP1 ZeRO-0 {BEST.replace('micro-b', 'microb')}".split(), "pp", "optimizer"),
        ),
        ("18.batch", lambda p, s, n, f, b: max(1, math.ceil(Fraction(2 * n - 2, n) * f / (b * s)))),
    ]
)

test_wrong_answers = wrong(
    [
        ("18.batch", part(flops=6), "backward alone, which has 4"),
        ("18.batch", part(flops=2), "over before the first gradient"),
        ("18.batch", part(times=1), "sends 2 .n - 1. / n of the gradients"),
        ("18.batch", part(size=2), "of 4 bytes each"),
        ("18.batch", part(whole=math.floor), "64.94 are needed"),
        ("18.batch", part(whole=round), "116.25 are needed, so whole ones are the next number up"),
        ("18.batch", part(whole=lambda x: int(x) + 1), "exactly 3 are needed, and are enough"),
        (
            "18.batch",
            lambda p, s, n, f, b: break_even(p, s, 8, f, b),
            r"gives 106; sending takes 4.96 s, .* 0.0427 s: 116.2 are needed",
        ),
        ("18.batch", lambda p, s, n, f, b: s * break_even(p, s, n, f, b), "these are tokens"),
        ("18.batch", lambda p, s, n, f, b: n * break_even(p, s, n, f, b), "asked is that of one"),
        ("18.batch", part(times=2 * 8 / 7), "not twice all"),
        ("18.batch", part(whole=float), "64.94 are needed"),
        ("18.batch", lambda *run: break_even(*run) if run[2] > 1 else 0, "at least one sequence"),
        ("18.batch", lambda *run: None, "gave nothing back: does it end in `return`"),
        ("18.layout", BEST, "asked is a triple"),
        ("18.layout", ("my favourite", "pp", "optimizer"), "'my' is no part of a layout"),
        ("18.layout", (f"the best is {BEST}", "pp", "optimizer"), "'the' is no part of a layout"),
        ("18.layout", (f"TP4 {BEST}", "pp", "optimizer"), "'TP8': the layout names tp twice"),
        (
            "18.layout",
            (f"{BEST} 64", "pp", "optimizer"),
            "'64': the layout names micro_batches twice",
        ),
        ("18.layout", (f"TP0 {BEST}", "pp", "optimizer"), "'TP0' is no part of a layout"),
        ("18.layout", ("TP" + "9" * 5000, "pp", "optimizer"), "'TP9{38}' is no part of a layout"),
        ("18.layout", (BEST.replace("128", "0"), "pp", "optimizer"), "'0' is no part of a layout"),
        ("18.layout", (BEST, "pp", "optimizer and weights"), "not 'optimizer and weights'"),
        ("18.batch", lambda *run: break_even(*run) - 1, "so whole ones are the next number up"),
        (
            "18.batch",
            lambda *run: f"{break_even(*run)} sequences",
            "a number of sequences, gave a str",
        ),
        ("18.layout", (BEST, "tp", "optimizer"), r"over the hosts' network: \d+ s a step"),
        ("18.layout", ("TP64", "tp", "optimizer"), "tensor-parallel sums of every block"),
        ("18.layout", ("CP64", "cp", "optimizer"), "keys and values of every block"),
        ("18.layout", (BEST, "host", "optimizer"), "between the hosts lies one of dp, tp, pp, cp"),
        ("18.layout", (BEST, "dp", "optimizer"), "dp 1 is not cut in two"),
        ("18.layout", (BEST, "pp", "memory"), "constraint is one of weights, .*, not 'memory'"),
        ("18.layout", (BEST, ["pp"], "optimizer"), "between the hosts lies one of .*, not"),
        ("18.layout", ("DP8 TP4 ZeRO-3", "dp", "optimizer"), "32 chips; two Galaxies have 64"),
        ("18.layout", ("TP16 PP4", "pp", "optimizer"), "tp 16 does not divide num_groups 8"),
        ("18.layout", ("DP4 TP8 PP2", "pp", "optimizer"), "opened as the transpose"),
        ("18.layout", ("DP16 TP4", "dp", "weights"), "does not fit: it needs more .*: optimizer"),
        (
            "18.layout",
            (BEST.replace(" recompute", ""), "pp", "optimizer"),
            "does not fit: it needs 15.3 of 12 GB .*: activations 5.5",
        ),
        ("18.layout", (BEST.replace(" SP", ""), "pp", "optimizer"), "only without the headroom"),
        (
            "18.layout",
            ("DP8 TP4 PP2 ZeRO-3 SP recompute 8 micro-batches", "pp", "optimizer"),
            "fits and trains .* another one that fits is 1.48 times as fast",
        ),
        ("18.layout", (BEST, "pp", "weights"), "not by weights: of a chip's GB"),
        ("18.layout", (BEST, "pp", "bubble"), "bubble is not the limit: .* 1.05 times as fast"),
        ("18.layout", (BEST, "pp", "chip links"), "a step would be 1.15 times as fast"),
        ("18.layout", (BEST, "pp", "network"), "with twice the memory, .* 1.39 times as fast"),
    ]
)


def test_the_praise_names_what_binds(capsys):
    check("18.layout", (BEST, "pp", "optimizer"))
    assert "1.39 times as fast: optimizer binds" in capsys.readouterr().out


def test_the_capstone_is_the_lessons():
    """Its answer is the planner's best, for the model of configs/models."""
    import pathlib

    from ttkit.layouts.search import plan_layouts

    file = pathlib.Path(__file__).parents[2] / "configs/models/llama70b.yaml"
    assert str(plan_layouts(str(file), **CAPSTONE).best.layout) == BEST


def test_break_even_names_where_it_pays():
    chart = BreakEven("a title", "tokens", {"one": [(64, 3.0), (128, 1.0)], "two": [(64, 2.0)]})
    text = repr(chart)
    assert "one: 3 at 64; at most 1 from 128 on" in text and "two: 2 at 64; at most 1 no" in text
    assert "break-even" in chart._repr_html_()


def test_no_answer_yet():
    with pytest.raises(CheckFailed, match="asked is a triple"):
        check("18.layout", (BEST, "pp"))


def test_one_technique_alone_is_planned_however_large_it_is():
    gpt = TransformerConfig(num_heads=32, embedding_dim=4096, num_blocks=32, dropout_prob=0.0)
    found = [alone(gpt, **cut) for cut in ({"dp": 8}, {"tp": 8}, {"pp": 8, "micro_batches": 32})]
    sent = [sum(each.bytes_sent for each in one.traffic) for one in found]
    assert sent[1] > sent[0] > sent[2] and not any(one.refused for one in found)
    assert found[0].memory.total > 12e9 and found[2].times.bubble > found[0].times.bubble == 0


def test_the_card_has_a_row_for_each_technique():
    gpt = TransformerConfig(num_heads=32, embedding_dim=4096, num_blocks=32, dropout_prob=0.0)
    found = alone(gpt, pp=8, micro_batches=32)
    table = card("a title", {"PP": ("the blocks", found)})
    ((name, cut, held, sent, calls, *_, speed),) = table.rows
    assert (name, cut) == ("PP", "the blocks")
    assert held == f"{found.memory.total / 1e9:.0f}"
    assert sent == f"{sum(each.bytes_sent for each in found.traffic) / 1e9:.1f}"
    assert calls == f"{sum(each.times for each in found.traffic):,}"
    assert speed == f"{found.tokens_per_s:,.0f}" and len(table.columns) == len(table.rows[0])


def test_a_layouts_yaml_comes_back_as_the_layout_that_is_run():
    plans = ttkit.plan_layouts(small_gpt().transformer_config, "t3000", batch=16)
    choice = plans.find("DP2 TP4")
    settings = to_run(plans.yaml(choice))
    devices, training = settings.device_config, settings.training_config
    assert (devices.mesh_shape, devices.enable_ddp, devices.enable_tp) == ((2, 4), True, True)
    assert (training.batch_size, training.tokenizer_type) == (16, "byte")
    assert (training.checkpoint_dir, training.eval_every) == ("", 0)


def test_planned_bytes_are_those_of_all_calls_of_a_collective():
    plans = ttkit.plan_layouts(small_gpt().transformer_config, "t3000", batch=16)
    choice = plans.find("DP2 TP4 ZeRO-2 SP")
    found, calls = planned_bytes(choice), choice.traffic
    assert set(found) == {each.collective for each in calls}
    assert sum(found.values()) == sum(each.times * each.plan.total_bytes for each in calls)
    assert len(calls) > len(found)  # several calls of one collective are added

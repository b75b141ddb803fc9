"""Lesson 18: its picture, and its exercises with right and with wrong answers."""

import math

import numpy as np
import pytest
from answers import both

import ttkit
from course.lesson_18 import BreakEven, alone, card, planned_bytes, small_gpt, to_run
from ttkit.lessons import check
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TransformerConfig

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


LAYOUT = Layout(tp=8, pp=8, sequence_parallel=True, recompute=True, micro_batches=128)


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "18.batch": (
            [break_even, by_trying],
            {
                "backward alone, which has 4": part(flops=6),
                "over before the first gradient": part(flops=2),
                "sends 2 (n - 1) / n of the gradients, of 4 bytes each": part(times=1),
                "of 4 bytes each": part(size=2),
                "should be 65, is 64: one less is too few": part(whole=math.floor),
                "should be 117, is 116: one less is too few": part(whole=round),
                "should be 3, is 4: one less is enough": part(whole=lambda x: int(x) + 1),
                "these are tokens": lambda p, s, *more: s * break_even(p, s, *more),
                "asked is that of one": lambda p, s, n, *more: n * break_even(p, s, n, *more),
                "not twice all": part(times=2 * 8 / 7),
                "asked are whole sequences": part(whole=float),
                "should be 1, is 0": lambda *run: break_even(*run) if run[2] > 1 else 0,
            },
        ),
        "18.layout": (
            [
                (BEST, "pp", "optimizer"),
                ["128 micro-batches recompute SP PP8 TP8", "pp", "optimizer"],
                (LAYOUT, "PP ", "Optimizer"),
            ],
            {
                "between the hosts is not 'tp': the tensor-parallel sums": (
                    BEST,
                    "tp",
                    "optimizer",
                ),
                "the hosts have no replicas of their own": (BEST, "dp", "optimizer"),
                "between the hosts lies one of pp, dp, tp, cp": (BEST, "host", "optimizer"),
                "what binds is one of chip links, ": (BEST, "pp", "memory"),
                "cannot run: tp 16 does not divide num_groups 8": ("TP16 PP4", "pp", "optimizer"),
                "DP8 TP4 PP2 ZeRO-3 SP recompute 8 micro-batches fits and trains": (
                    "DP8 TP4 PP2 ZeRO-3 SP recompute 8 micro-batches",
                    "pp",
                    "optimizer",
                ),
                "not by weights: of a chip's GB": (BEST, "pp", "weights"),
                "bubble is not the limit": (BEST, "pp", "bubble"),
                "a step would be 1.15 times as fast": (BEST, "pp", "chip links"),
                "with twice the memory, TP4 PP8 CP2 SP 128 micro-batches would be 1.39": (
                    BEST,
                    "pp",
                    "network",
                ),
            },
        ),
    }
)


def test_the_praise_names_what_binds(capsys):
    check("18.layout", (BEST, "pp", "optimizer"))
    assert "1.39 times as fast: optimizer binds" in " ".join(capsys.readouterr().out.split())


def test_a_layout_that_is_not_in_the_table_is_named():
    with pytest.raises(RuntimeError, match=r"'TP8 PP8'.*begin with TP8 PP8 SP"):
        check("18.layout", ("TP8 PP8", "pp", "optimizer"))


def test_break_even_names_where_it_pays():
    chart = BreakEven("a title", "tokens", {"one": [(64, 3.0), (128, 1.0)], "two": [(64, 2.0)]})
    text = repr(chart)
    assert "one: 3 at 64; at most 1 from 128 on" in text and "two: 2 at 64; at most 1 no" in text


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

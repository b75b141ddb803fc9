"""The planner against published tables and formulas."""

import pytest

from ttkit.layouts.costs import bubble_fraction, memory_of, moments, parameters_of
from ttkit.layouts.dry_run import Job, Stage, one_pass
from ttkit.layouts.search import plan_layouts
from ttkit.plans import interleaved
from ttkit.plans.pipelines import SCHEDULES
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TrainingConfig, TransformerConfig


@pytest.mark.parametrize("stage, published", [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero(stage, published):
    """Rajbhandari 2020, figure 1: 7.5 billion parameters on 64 devices, 16 bytes each in 16 bits
    with 32-bit moments and weights beside.
    """
    config = TransformerConfig(
        num_heads=32, embedding_dim=4096, num_blocks=36, vocab_size=51200, bias=False, dropout_prob=0.0,
        weight_tying="enabled",
    )  # fmt: skip
    layout = Layout(dp=64, zero=stage, precision="bfloat16")
    job = Job(config, 64, 128, TrainingConfig(precision="bfloat16"))
    planned = memory_of(Stage(job, layout, blocks=36))
    each = sum(planned[:3]) / parameters_of(config)
    # norms' vectors take 32 rows each
    assert each * 7.5 == pytest.approx(published, rel=0.02)


def kept(sequence, heads=16, width=512, batch=4, dropout=0.0, attention="stored", **layout):
    """Bytes that a GPT block keeps from forward to backward in 16 bits."""
    sizes = {"num_heads": heads, "embedding_dim": width, "num_blocks": 3}
    config = TransformerConfig(**sizes, dropout_prob=dropout, attention=attention)
    job = Job(config, batch, sequence, TrainingConfig())
    step = one_pass(Stage(job, Layout(precision="bfloat16", **layout), blocks=3))
    return step.at["head"][1] - step.at["block"][1]


@pytest.mark.parametrize(
    "layout, linear, korthikanti",
    [
        ({}, 50, 34),
        ({"tp": 4}, 20 + 30 / 4 + 4 / 4, 10 + 24 / 4),
        ({"tp": 8}, 20 + 34 / 8, 10 + 24 / 8),
        ({"tp": 4, "sequence_parallel": True}, 8 + 50 / 4, 34 / 4),
        ({"tp": 8, "sequence_parallel": True}, 8 + 50 / 8, 34 / 8),
    ],
)
def test_activations(layout, linear, korthikanti):
    """Korthikanti 2022, table 2: s b h (34 + 5 a s / h) bytes a layer; with tensor parallelism
    s b h (10 + 24 / t + 5 a s / (h t)), with sequence parallelism all of it divided by t.

    The formulas have the same form here. Of a s^2 b, this model keeps the 2 bytes of the softmax
    and drops nothing of it (3 bytes less); of s b h it keeps the result of every operation, so
    more than is needed, and with sequence parallelism what it has gathered.
    """
    s, b, h, a = 1024, 4, 512, 16
    quadratic = 2 * a * s / h / layout.get("tp", 1)
    assert kept(s, **layout) == s * b * h * (linear + quadratic)
    # Without stored scores nothing is quadratic, and the result of each block of queries stays.
    assert kept(s, attention="flash", **layout) == s * b * h * linear
    assert linear > korthikanti - 2 / layout.get("tp", 1)  # its masks of dropout


def test_a_mask_of_dropout_adds_its_bytes():
    """Two masks and two results of s b h elements of 2 bytes."""
    assert kept(256, dropout=0.1) - kept(256) == 256 * 4 * 512 * 8


SIZES = [(2, 2), (4, 8), (8, 3), (3, 16)]
RUNS = [(name, p, m, 1) for name in ("gpipe", "1f1b", "one_at_a_time") for p, m in SIZES]
RUNS += [("interleaved", p, m, 2) for p, m in [(2, 2), (4, 8), (2, 12), (4, 64)]]


@pytest.mark.parametrize("name, p, m, chunks", [*RUNS, ("interleaved", 4, 8, 1)])
def test_bubbles_and_micro_batches_in_flight(name, p, m, chunks):
    """(p - 1) / (m + p - 1) of the time (Huang 2019, Narayanan 2021), chunks times as many
    micro-batches of a shorter pipeline, as the schedules show.
    """
    shown = interleaved(p, m, chunks) if name == "interleaved" else SCHEDULES[name](p, m)
    published = (p - 1) / (p if name == "one_at_a_time" else m * chunks + p - 1)
    assert bubble_fraction(name, p, m, chunks) == pytest.approx(published)
    assert shown.timeline().bubble_fraction == pytest.approx(published)
    most = tuple(
        max(sum(kept) / chunks for _, kept, _ in row) for row in moments(name, p, m, chunks)
    )
    assert most == shown.peak_activations()


def test_flops_of_a_mixture_are_those_of_the_experts_that_a_token_uses():
    sizes = {"num_heads": 4, "embedding_dim": 128, "num_blocks": 2, "max_sequence_length": 128}
    many, two = (TransformerConfig(**sizes, num_experts=n) for n in (8, 2))
    rates = [
        each.mfu * each.times.total
        for each in (plan_layouts(c, "n300", 4).best for c in (many, two))
    ]
    assert rates[0] == pytest.approx(rates[1])

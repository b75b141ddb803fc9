"""The planner against published tables and formulas."""

import pytest

from ttkit.layouts.costs import bubble_fraction, memory_of, moments, parameters_of
from ttkit.layouts.dry_run import Job, Stage, one_pass
from ttkit.plans import gpipe, interleaved, one_at_a_time, one_f_one_b
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
    planned = memory_of(job, layout, Stage(blocks=36))
    each = sum(planned[:3]) / parameters_of(config)
    # norms' vectors take 32 rows each
    assert each * 7.5 == pytest.approx(published, rel=0.02)


def kept(sequence, heads=16, width=512, batch=4, dropout=0.0, attention="stored", **layout):
    """Bytes that a GPT block keeps from forward to backward in 16 bits."""
    sizes = {"num_heads": heads, "embedding_dim": width, "num_blocks": 3}
    config = TransformerConfig(**sizes, dropout_prob=dropout, attention=attention)
    job = Job(config, batch, sequence, TrainingConfig())
    step = one_pass(job, Layout(precision="bfloat16", **layout), Stage(blocks=3))
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


@pytest.mark.parametrize("p, m", [(2, 2), (4, 8), (8, 3), (3, 16)])
def test_bubbles(p, m):
    """(p - 1) / (m + p - 1) of the time (Huang 2019, Narayanan 2021), as the schedules show."""
    for name, schedule in (("1f1b", one_f_one_b), ("gpipe", gpipe)):
        counted = schedule(p, m).timeline().bubble_fraction
        assert bubble_fraction(name, p, m) == pytest.approx((p - 1) / (m + p - 1))
        assert bubble_fraction(name, p, m) == pytest.approx(counted)
    assert bubble_fraction("one_at_a_time", p, m) == pytest.approx((p - 1) / p)
    whole = one_at_a_time(p, m).timeline().bubble_fraction
    assert whole == pytest.approx((p - 1) / p)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "one_at_a_time"])
@pytest.mark.parametrize("p, m", [(2, 2), (4, 8), (8, 3)])
def test_micro_batches_in_flight(name, p, m):
    most = tuple(max(kept for _, (kept,), _ in row) for row in moments(name, p, m))
    assert most == SCHEDULES[name](p, m).peak_activations()


@pytest.mark.parametrize("p, m", [(2, 2), (4, 8), (2, 12), (4, 64)])
def test_interleaved_micro_batches_in_flight(p, m):
    most = tuple(
        max(sum(kept) / 2 for _, kept, _ in row) for row in moments("interleaved", p, m, 2)
    )
    shown = interleaved(p, m, 2)
    assert most == shown.peak_activations()
    assert bubble_fraction("interleaved", p, m, 2) == pytest.approx(
        shown.timeline().bubble_fraction
    )


def test_interleaved_with_one_chunk_is_1f1b():
    shown = interleaved(4, 8, 1).timeline().bubble_fraction
    assert bubble_fraction("interleaved", 4, 8) == pytest.approx(shown)

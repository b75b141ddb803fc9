"""One description of a layout: its rules, and the way to a configuration and back."""

import pathlib

import pytest

from ttkit import TTKitError
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import DeviceConfig, LayoutConfig, Settings, TransformerConfig

ROOT = pathlib.Path(__file__).parents[2]
MODEL = TransformerConfig(
    model_type="llama", num_heads=8, num_groups=4, embedding_dim=256, intermediate_dim=768, num_blocks=4
)  # fmt: skip
MOE = TransformerConfig(num_heads=8, embedding_dim=256, num_blocks=4, num_experts=6)


@pytest.mark.parametrize(
    "layout, rule",
    [
        (Layout(tp=16), "tp 16 does not divide num_heads 8"),
        (Layout(tp=8), "tp 8 does not divide num_groups 4"),
        (Layout(pp=5), "pp 5 stages of 1 chunks for 4 blocks"),
        (Layout(dp=3), "dp 3 x micro_batches 1 do not divide batch 8"),
        (Layout(dp=2, micro_batches=8), "dp 2 x micro_batches 8 do not divide batch 8"),
        (Layout(cp=4), "cp 4 does not cut sequence 128 into 8 parts of whole tiles of 32"),
        (Layout(sequence_parallel=True), "sequence_parallel needs tp above 1"),
        (Layout(dp=2, ep=2), "ep 2 for a model without experts"),
        (Layout(dp=4, ep=2), "ep 2 is neither 1 nor dp 4"),
        (Layout(zero=1), "zero 1 needs dp or cp above 1"),
    ],
)
def test_refused(layout, rule):
    with pytest.raises(TTKitError, match=rule):
        layout.check(MODEL, 8, 128)


@pytest.mark.parametrize(
    "layout, sequence, rule",
    [
        (Layout(dp=4, ep=4), 128, "ep 4 does not divide 6 experts"),
        (Layout(cp=2), 128, "cp 2 with experts"),
        (Layout(tp=4, sequence_parallel=True), 64, "tp 4 does not cut 64 tokens"),
    ],
)
def test_refused_with_experts(layout, sequence, rule):
    with pytest.raises(TTKitError, match=rule):
        layout.check(MOE, 8, sequence)


@pytest.mark.parametrize(
    "device, layout, rule",
    [
        (DeviceConfig((1, 4), enable_tp=True), {"zero": 1}, "enable_ddp or enable_cp is on"),
        (DeviceConfig((1, 4), enable_ddp=True), {"sequence_parallel": True}, "enable_tp is on"),
    ],
)
def test_what_has_nothing_to_share_with_is_refused(device, layout, rule):
    with pytest.raises(TTKitError, match=rule):
        Layout.of(Settings(device, layout=LayoutConfig(**layout)))

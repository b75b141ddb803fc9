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
    "model, layout, rule",
    [
        (MODEL, Layout(tp=16), "tp 16 does not divide num_heads 8"),
        (MODEL, Layout(tp=8), "tp 8 does not divide num_groups 4"),
        (MODEL, Layout(pp=5), "pp 5 stages of 1 chunks for 4 blocks"),
        (MODEL, Layout(dp=3), "dp 3 x micro_batches 1 do not divide batch 8"),
        (MODEL, Layout(dp=2, micro_batches=8), "dp 2 x micro_batches 8 do not divide batch 8"),
        (MODEL, Layout(cp=4), "cp 4 does not cut sequence 128 into 8 parts of whole tiles of 32"),
        (MODEL, Layout(sequence_parallel=True), "sequence_parallel needs tp above 1"),
        (MODEL, Layout(dp=2, ep=2), "ep 2 for a model without experts"),
        (MODEL, Layout(dp=4, ep=2), "ep 2 is neither 1 nor dp 4"),
        (MODEL, Layout(zero=1), "zero 1 needs dp, cp or ranks over 1"),
        (MOE, Layout(dp=4, ep=4), "ep 4 does not divide 6 experts"),
        (MOE, Layout(cp=2), "cp 2 with experts"),
        (MOE, Layout(tp=4, sequence_parallel=True), "tp 4 does not cut 64 tokens"),
    ],
)
def test_refused(model, layout, rule):
    with pytest.raises(TTKitError, match=rule):
        layout.check(model, 8, 64 if layout.sequence_parallel else 128)


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

"""Runs on layouts that share more than batch and weights: the losses, the validation and the
checkpoints are those of one chip, on every layout.
"""

from dataclasses import replace

import numpy as np
import pytest
from train.tiny import TRAINING

from ttkit import TTKitError
from ttkit.train import AutoContext, Trainer, builtin_corpus
from ttkit.train.config.settings import DeviceConfig, LayoutConfig, Settings, TransformerConfig

TEXT = builtin_corpus()[:40_000]
MODEL = TransformerConfig(
    num_heads=4,
    num_groups=4,
    embedding_dim=128,
    num_blocks=2,
    max_sequence_length=128,
    intermediate_dim=256,
    dropout_prob=0,
)
DDP = DeviceConfig((1, 4), enable_ddp=True)
BOTH = DeviceConfig((2, 4), enable_ddp=True, enable_tp=True)
LINE = DeviceConfig((1, 8), enable_ddp=True)
LAYOUTS = {
    "one": (DeviceConfig(), {}),
    "ZeRO 1": (DDP, {"zero": 1}),
    "ZeRO 2": (LINE, {"zero": 2}),
    "ZeRO 3": (BOTH, {"zero": 3}),
    "SP": (DeviceConfig((1, 4), enable_tp=True), {"sequence_parallel": True}),
    "SP, ZeRO 2": (BOTH, {"sequence_parallel": True, "zero": 2}),
    "buckets": (BOTH, {"bucket_mb": 1}),
}


def a_run(name, *, model=None, **training):
    """The settings of a small model on a layout."""
    device, layout = LAYOUTS[name]
    how = {"batch_size": 8, "use_clip_grad_norm": True, **training}
    return Settings(
        device_config=device,
        training_config=replace(TRAINING, **how),
        transformer_config=replace(MODEL, **(model or {})),
        layout=LayoutConfig(**layout),
    )


def trainer(name, **how):
    """A trainer of that model."""
    return Trainer(a_run(name, **how), text=TEXT)


def losses(name, steps=3, **how):
    with trainer(name, **how) as run:
        return [(r.loss, r.validation_loss or 0) for r in run.fit(steps, show=False)]


@pytest.fixture(autouse=True)
def closed():
    yield
    AutoContext.get_instance().close_device()


HOW = {
    "GPT": {"eval_every": 3, "validation_batch_size": 8},
    "Llama, recomputed": {"model": {"model_type": "llama", "runner_type": "memory_efficient"}},
}


@pytest.mark.parametrize("how", HOW)
def test_losses_are_those_of_one_chip(how):
    wanted = losses("one", **HOW[how])
    assert wanted[-1][0] < wanted[0][0]
    for name in LAYOUTS:
        np.testing.assert_allclose(losses(name, **HOW[how]), wanted, rtol=1e-5, err_msg=name)


def test_a_run_goes_on_on_any_layout(tmp_path):
    wanted = losses("one", 2 * len(LAYOUTS))
    for name in LAYOUTS:
        with trainer(name, checkpoint_dir=str(tmp_path)) as run:
            run.fit(2, show=False)
    found = [(r.loss, 0) for r in run.history]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.parametrize(
    "device, layout, rule",
    [
        (DeviceConfig((1, 4), enable_tp=True), {"zero": 1}, "enable_ddp is off"),
        (DDP, {"sequence_parallel": True}, "enable_tp is off"),
    ],
)
def test_what_has_nothing_to_share_with_is_refused(device, layout, rule):
    settings = Settings(device, TRAINING, transformer_config=MODEL, layout=LayoutConfig(**layout))
    with pytest.raises(TTKitError, match=rule):
        Trainer(settings, text=TEXT)
    assert not AutoContext.get_instance().is_device_open()


def test_a_wrong_stage_is_named():
    with pytest.raises(TTKitError, match="zero"):
        LayoutConfig(zero=4)

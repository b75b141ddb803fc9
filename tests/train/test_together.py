"""Everything together: data, tensor, context, expert and pipeline parallelism, ZeRO, sequence
parallelism, recomputation and micro-batches against one device.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train.pipelines import TEXT as LINE
from train.pipelines import far, fitted, pipelined
from train.runs import quiet

import ttkit
from ttkit import ttnn
from ttkit.train import Trainer
from ttkit.train.config.settings import (
    DeviceConfig,
    LayoutConfig,
    MultihostConfig,
    PipelineParallelConfig,
    Settings,
    TrainingConfig,
    TransformerConfig,
)

TEXT = LINE * 12
STRATEGIES = ("ddp", "cp", "tp")


@st.composite
def runs(draw, chips=8, stages=(1, 2)):
    """Settings of a run on so many chips at most, with one of these numbers of stages."""
    stages = draw(st.sampled_from(stages))
    shapes = {8: [(2, 4), (1, 8), (1, 4), (1, 2)], 4: [(2, 2), (1, 4), (1, 2)], 16: [(4, 4)]}
    shapes[32] = [(8, 4), (4, 4)]
    if chips > 8:
        shapes[8] = [(2, 4), (8, 1)]  # of which a Galaxy has four
    shape = draw(st.sampled_from(shapes[chips // stages]))
    names = ["ddp", "tp"] if chips == 8 and shape == (1, 8) else list(STRATEGIES)
    many = 1 if 1 in shape else 2
    on = draw(st.lists(st.sampled_from(names), min_size=many, max_size=many, unique=True))
    on = [name for name in STRATEGIES if name in on]
    size = dict(zip(on, [n for n in shape if n > 1] or [1]))
    if size.get("cp", 1) > 4:
        on, size = ["ddp"] if many == 1 else on, {} if many == 1 else size
        size = size or {"ddp": max(shape)}
    cp = size.get("cp", 1)
    has_experts = "ddp" in on and cp == 1 and draw(st.booleans())
    layout = LayoutConfig(
        zero=draw(st.integers(0, 3)) if "ddp" in on else 0,
        sequence_parallel="tp" in on and cp == 1 and draw(st.booleans()),
        expert_parallel=has_experts and draw(st.booleans()),
        bucket_mb=draw(st.sampled_from([0.0, 0.05])),
    )
    tp, parts = size.get("tp", 1), draw(st.integers(1, 2)) if stages == 1 else 4
    length = 64 * cp if cp > 1 else 64
    model = TransformerConfig(
        draw(st.sampled_from(["gpt2", "llama"])),
        draw(st.sampled_from(["default", "memory_efficient"])),
        num_heads=8,
        num_groups=max(4, tp),
        embedding_dim=draw(st.sampled_from([64, 128])),
        num_blocks=stages * draw(st.integers(1, 2)),
        max_sequence_length=length,
        intermediate_dim=draw(st.sampled_from([64, 128])),
        dropout_prob=0,
        num_experts=8 if has_experts else 0,
        weight_tying=draw(st.sampled_from(["enabled", "disabled"])),
    )
    training = TrainingConfig(
        batch_size=size.get("ddp", 1) * parts,
        gradient_accumulation_steps=parts,
        optimizer={"type": "SGD", "lr": 0.05, "momentum": 0.9},
        max_steps=2,
        num_epochs=100,
        tokenizer_type="char",
        checkpoint_dir="",
        eval_every=0,
        use_clip_grad_norm=draw(st.booleans()),
    )
    pipeline = PipelineParallelConfig(
        model.num_blocks, schedule=draw(st.sampled_from(["1f1b", "gpipe"]))
    )
    enabled = {f"enable_{name}": True for name in on}
    return Settings(
        DeviceConfig(shape, enable_pp=stages > 1, **enabled),
        training,
        MultihostConfig(stages > 1, stages, "mpi", pipeline),
        transformer_config=model,
        layout=layout,
    )


def trained(run):
    """Losses and weights after two steps."""
    if run.multihost_config.num_workers > 1:
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        with pipelined(run, TEXT) as trainer:
            return fitted(trainer, 2)
    with Trainer(run, text=TEXT) as trainer:
        return fitted(trainer, 2)


def check(run):
    chips = np.prod(run.device_config.mesh_shape) * run.multihost_config.num_workers
    ttkit.use_system("t3000" if chips <= 8 else "galaxy")
    losses, weights = trained(run)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    whole = replace(run.training_config, gradient_accumulation_steps=1)
    plain = replace(run.transformer_config, runner_type="default")
    alone = trained(Settings(training_config=whole, transformer_config=plain))
    np.testing.assert_allclose(losses, alone[0], rtol=1e-5)
    assert not far(weights, alone[1], 2e-5)


@settings(max_examples=4, **quiet)
@given(runs())
def test_any_layout_of_eight_chips(run):
    check(run)


@settings(max_examples=1, **quiet)
@given(runs(32, (1, 2, 4)))
def test_any_layout_of_a_galaxy(run):
    check(run)


@pytest.mark.long
@settings(max_examples=200, **quiet)
@given(st.one_of(runs(), runs(32, (1, 2, 4))))
def test_hundreds_of_layouts(run):
    check(run)

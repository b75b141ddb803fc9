"""The memory of a chip in a training step, by kind, at its highest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ttkit.layouts.step import KEPT, Pass, Stage, one_pass, update
from ttkit.plans.pipelines import SCHEDULES
from ttkit.train.config import TrainingConfig, TransformerConfig
from ttkit.train.layout import Layout
from ttkit.train.stage import split_blocks


class Memory(NamedTuple):
    """Bytes of a chip when it holds most, in a step after the first.

    Attributes:
        weights, gradients, optimizer: what a chip has of them at the end of a step.
        activations: what forward keeps for backward, as far as it is there beside all gradients.
        buffers: masks, angles, and what single operations need.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    buffers: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def stages(config: TransformerConfig, layout: Layout) -> list[Stage]:
    """Return the stages of a layout; one without a pipeline."""
    if layout.pp == 1:
        return [Stage((True, True), config.num_blocks, 1)]
    more = (1,) if layout.schedule == "interleaved" else ()
    schedule = SCHEDULES[layout.schedule](layout.pp, layout.micro_batches, *more)
    blocks = [len(part[0]) for part in split_blocks(config, layout.pp)]
    last = layout.pp - 1
    return [
        Stage((i == 0, i == last), blocks[i], held)
        for i, held in enumerate(schedule.peak_activations())
    ]


def held(step: Pass, others: int) -> np.ndarray:
    """Return the bytes held after each allocation, with so many more blocks than two."""
    kept, left = step.size("kept_block"), step.size("left")
    each = [kept if part in KEPT else left if part == "rest" else 0 for part in step.parts]
    result: np.ndarray = step.held + others * (np.array(each) + step.size("block"))
    return result


def memory_of(
    config: TransformerConfig,
    layout: Layout,
    stage: Stage,
    batch: int,
    sequence: int,
    training: TrainingConfig,
) -> Memory:
    """Return the memory of a chip of a stage."""
    rows, others = batch // (layout.dp * layout.micro_batches), stage.others
    step = one_pass(config, layout, stage, rows, sequence)
    after = update(config, layout, stage, sequence, training)
    weights, gradients, optimizer = (
        all_of_two + others * one for all_of_two, one in zip(after.state, after.block)
    )
    state = weights + gradients + optimizer
    kept = step.size("kept") + others * step.size("kept_block")
    constants = step.size("constants") + others * step.size("constants_block")
    passing = held(step, others).max() + optimizer + (stage.in_flight - 1) * kept
    beside = int(max(passing - state, constants + after.most))
    activations = min(int(stage.in_flight * kept), beside)
    return Memory(weights, gradients, optimizer, activations, beside - activations)


def memory(
    config: TransformerConfig,
    layout: Layout,
    batch: int,
    sequence: int,
    training: TrainingConfig | None = None,
) -> Memory:
    """Return the memory of the chip that holds most.

    Args:
        config: the model.
        layout: how it is cut.
        batch: sequences of a step, of all replicas together.
        sequence: tokens of each.
        training: its optimizer; AdamW unless given.

    Example:
        >>> tiny = TransformerConfig(num_heads=2, embedding_dim=64, dropout_prob=0.0)
        >>> whole, half = (memory(tiny, Layout(tp=n), 8, 128) for n in (1, 2))
        >>> whole.weights, half.weights, half.total < whole.total
        (1441792, 761856, True)
    """
    training = training or TrainingConfig()
    rest = (batch, sequence, training)
    found = [memory_of(config, layout, stage, *rest) for stage in set(stages(config, layout))]
    return max(found, key=sum)

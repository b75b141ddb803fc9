"""The memory of a chip in a training step, by kind, at its highest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ttkit.layouts.step import KEPT, Job, Stage, one_pass, update
from ttkit.plans.pipelines import SCHEDULES
from ttkit.train.config import TransformerConfig
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


def memory_of(job: Job, layout: Layout, stage: Stage) -> Memory:
    """Return the memory of a chip of a stage."""
    step, after, others = one_pass(job, layout, stage), update(job, layout, stage), stage.others
    weights, gradients, optimizer = (
        counted + after.others * one for counted, one in zip(after.state, after.block)
    )
    state = weights + gradients + optimizer
    in_use, at = step.in_use, step.at
    # of a block: what its forward keeps, what more it leaves after its backward, what it has
    one_kept = in_use[at["head"]] - in_use[at["block"]]
    left = one_kept
    if "rest" in at:
        left += in_use[at["rest"]] - in_use[at["block backward"]]
    block = in_use[at["without block"]] - in_use[at["end"]]
    more = [one_kept if part in KEPT else left if part == "rest" else 0 for part in step.parts]
    held = in_use[1:] + others * (np.array(more) + block)
    kept = int(in_use[at["end of forward"]] - in_use[at["start"]] + others * one_kept)
    constants = in_use[at["gradients"]] - in_use[at["constants"]]
    had = after.block[0] + (after.block[1] if layout.micro_batches > 1 else 0)
    constants += others * (block - had)
    passing = held[at["start"] : at["without block"]].max() + optimizer
    passing += (stage.in_flight - 1) * kept
    beside = int(max(passing - state, constants + after.most))
    activations = min(int(stage.in_flight * kept), beside)
    return Memory(weights, gradients, optimizer, activations, beside - activations)


def memory(job: Job, layout: Layout) -> Memory:
    """Return the memory of the chip that holds most.

    Example:
        >>> from ttkit.train.config import TransformerConfig
        >>> tiny = TransformerConfig(num_heads=2, embedding_dim=64, dropout_prob=0.0)
        >>> job = Job(tiny, batch=8, sequence=128, training=TrainingConfig())
        >>> whole, half = (memory(job, Layout(tp=n)) for n in (1, 2))
        >>> whole.weights, half.weights, half.total < whole.total
        (1441792, 761856, True)
    """
    found = [memory_of(job, layout, stage) for stage in set(stages(job.config, layout))]
    return max(found, key=sum)

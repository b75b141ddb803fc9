"""A chip's part of a training step, by the dry run of what differs between layouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ttkit.layouts.dry_run import Ends, Pass, Update, pass_of, update_of
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TrainingConfig, TransformerConfig

# The dry run has at most so many blocks: the last one stands for all others but the first.
MOST = 2


class Job(NamedTuple):
    """What is trained, whatever its layout.

    Attributes:
        config: the model.
        batch: sequences of a step, of all replicas together.
        sequence: tokens of each.
        training: the optimizer, and whether gradients are clipped.
        bucket_mb: gradients are averaged together up to so many MB.
    """

    config: TransformerConfig
    batch: int
    sequence: int
    training: TrainingConfig
    bucket_mb: float = 0

    def rows(self, layout: Layout) -> int:
        """Sequences of a micro-batch in each replica."""
        return self.batch // (layout.dp * layout.micro_batches)


class Stage(NamedTuple):
    """A stage of the model: its ends, its blocks, and how many micro-batches it holds at once."""

    ends: Ends = (True, True)
    blocks: int = 1
    in_flight: float = 1

    @property
    def others(self) -> int:
        """Blocks that are like the last one and not run."""
        return max(self.blocks - MOST, 0)


def one_pass(job: Job, layout: Layout, stage: Stage) -> Pass:
    """Return forward and backward of a micro-batch through two blocks of a stage at most."""
    rows, sequence, zero = job.rows(layout), job.sequence, layout.zero
    dp = layout.dp if zero > 1 or layout.ep > 1 else min(layout.dp, 2)
    layout = replace(
        layout,
        dp=dp,
        pp=1,
        zero=0 if zero == 1 else zero,  # ZeRO-1 changes only the optimizer's step.
        micro_batches=min(layout.micro_batches, 2),
        schedule="1f1b",
    )
    config = _plain(job.config, min(stage.blocks, MOST), sequence)
    return pass_of(config, layout, stage.ends, rows)


def update(job: Job, layout: Layout, stage: Stage) -> Update:
    """Return what follows the last backward of a step; buckets need all blocks."""
    dp = layout.dp if layout.zero or layout.ep > 1 else min(layout.dp, 2)
    few: dict[str, Any] = {"sequence_parallel": False, "recompute": False, "micro_batches": 1}
    layout = replace(layout, dp=dp, pp=1, cp=min(layout.cp, 2), **few)
    training, blocks = job.training, stage.blocks if job.bucket_mb else min(stage.blocks, MOST)
    optimizer = tuple((training.optimizer or {}).items())
    config = _plain(job.config, blocks, job.sequence)
    found = update_of(
        config, layout, stage.ends, (training.use_clip_grad_norm, optimizer, job.bucket_mb)
    )
    return found._replace(others=stage.blocks - blocks)


def _plain(config: TransformerConfig, blocks: int, sequence: int) -> TransformerConfig:
    """Return the configuration without what does not change a chip's share of a step."""
    few: dict[str, Any] = {"experimental": None, "runner_type": "default"}
    return replace(config, num_blocks=blocks, max_sequence_length=sequence, **few)

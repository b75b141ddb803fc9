"""A chip's part of a training step, from the model's own code run on tensors without values.

It is run (`dry_run`) for a small batch and a small sequence, and once more for larger ones: a
tensor's bytes grow with a power of each (0 or 1 of the batch; 0, 1 or 2 of the sequence), which the
two runs show, and so give the bytes of every size, exactly."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ttkit.layouts.dry_run import Ends, Pass, Update, pass_of, update_of
from ttkit.train.config.layout import TILE, Layout
from ttkit.train.config.settings import TrainingConfig, TransformerConfig

MOST = 2  # blocks that are run; the last one, which is marked, stands for all but the first


class Job(NamedTuple):
    """What is trained, however it is cut.

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
        """Blocks that are like the marked one and not run."""
        return max(self.blocks - MOST, 0)


def _grown(small: np.ndarray, large: np.ndarray, by: tuple[int, int, int]) -> np.ndarray:
    """Return numbers of another batch and sequence.

    Args:
        small, large: of a batch of 2 and 3 (or both of 1), and of a sequence and twice as long.
        by: the batch, that of `small`, and how often its sequence is contained in the new one.
    """
    rows, first, longer = by
    result = small.copy()
    # how much larger, twice: 3/2 for the batch, 2 and 4 for the sequence, and what these make
    twice = 2 * large // np.where(small == 0, 1, small)
    for factor, batch, sequence in ((3, 1, 0), (4, 0, 1), (6, 1, 1), (8, 0, 2), (12, 1, 2)):
        these = twice == factor
        result[these] = small[these] * rows**batch // first**batch * longer**sequence
    return result


def one_pass(job: Job, layout: Layout, stage: Stage) -> Pass:
    """Return forward and backward of a micro-batch through two blocks of a stage at most."""
    rows, sequence, zero = job.rows(layout), job.sequence, layout.zero
    dp = layout.dp if zero > 1 or layout.ep > 1 else min(layout.dp, 2)
    layout = replace(
        layout,
        dp=dp,
        pp=1,
        zero=0 if zero == 1 else zero,  # which only the optimizer sees
        micro_batches=min(layout.micro_batches, 2),
        schedule="1f1b",
    )
    return _sized(job.config, layout, stage.ends, min(stage.blocks, MOST), rows, sequence)


@functools.lru_cache(maxsize=1024)
def _sized(
    config: TransformerConfig, layout: Layout, ends: Ends, blocks: int, rows: int, sequence: int
) -> Pass:
    unit = TILE * (layout.tp if layout.sequence_parallel else 1)
    unit *= 2 * layout.cp if layout.cp > 1 else 1
    # ZeRO cuts a table of positions where this divides the sequence: in all three, or in none
    step = TILE * layout.dp if layout.zero else TILE
    unit = unit if sequence % step else math.lcm(unit, step)
    alike = sequence % unit == 0 and bool(sequence % step) == bool(2 * unit % step)
    lengths = (unit, 2 * unit) if alike else (sequence, sequence)
    # a batch of one has no sums over the batch
    batches = (1, 1) if rows == 1 else (2, 3)
    if config.num_experts:  # whose places come in whole tiles
        lengths, batches = (sequence, sequence), (rows, rows)
    small, large = (
        pass_of(_plain(config, blocks, length), layout, ends, batch)
        for length, batch in zip(lengths, batches)
    )
    by = (rows, batches[0], sequence // lengths[0])
    grown = (_grown(one, other, by) for one, other in zip(small[5:], large[5:]))
    return Pass(*small[:5], *grown)  # type: ignore[arg-type]


def update(job: Job, layout: Layout, stage: Stage) -> Update:
    """Return what follows the last backward of a step; buckets need all blocks."""
    dp = layout.dp if layout.zero or layout.ep > 1 else min(layout.dp, 2)
    layout = replace(layout, dp=dp, pp=1, cp=min(layout.cp, 2), micro_batches=1, recompute=False)
    training, blocks = job.training, stage.blocks if job.bucket_mb else min(stage.blocks, MOST)
    optimizer = tuple((training.optimizer or {}).items())
    clips, norm = training.use_clip_grad_norm, training.clip_grad_norm_max_norm
    config = _plain(job.config, blocks, job.sequence)
    found = update_of(config, layout, stage.ends, (clips, norm, optimizer, job.bucket_mb))
    return found._replace(others=stage.blocks - blocks)


def _plain(config: TransformerConfig, blocks: int, sequence: int) -> TransformerConfig:
    """Return the model's sizes without what a chip's part of a step does not depend on."""
    few: dict[str, Any] = {"experimental": None, "runner_type": "default"}
    return replace(config, num_blocks=blocks, max_sequence_length=sequence, **few)

"""The memory of a chip in a training step, by kind, at its highest."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ttkit.layouts.step import Job, Stage, one_pass, update
from ttkit.plans.pipelines import SCHEDULES
from ttkit.plans.schedule import Schedule
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TransformerConfig, split_blocks


class Memory(NamedTuple):
    """The peak memory of a chip in bytes, in a step after the first.

    Attributes:
        weights, gradients, optimizer: what a chip has of them at the end of a step.
        activations: kept by forward for backward, as far as they coexist with all gradients.
        buffers: masks, angles, and what single operations need.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    buffers: int

    @property
    def total(self) -> int:
        """The sum over all kinds."""
        return sum(self)


def schedule_of(name: str, stages: int, micro_batches: int) -> Schedule:
    """Return the schedule of that name; an interleaved one has one chunk on each stage."""
    more = (1,) if name == "interleaved" else ()
    return SCHEDULES[name](stages, micro_batches, *more)


@functools.lru_cache(maxsize=1024)
def in_flight(schedule: str, stages: int, micro_batches: int) -> tuple[float, ...]:
    """Return how many micro-batches have activations in each stage's memory, at most.

    Example:
        >>> in_flight("1f1b", 4, 8), in_flight("gpipe", 2, 8)
        ((4, 3, 2, 1), (8.0, 8.0))
    """
    if schedule == "1f1b":  # The formula is faster than building a schedule of many stages.
        return tuple(min(micro_batches, stages - stage) for stage in range(stages))
    return schedule_of(schedule, stages, micro_batches).peak_activations()


def stages(config: TransformerConfig, layout: Layout, per_stage: Sequence[int] = ()) -> list[Stage]:
    """Return the stages; blocks are divided evenly unless `per_stage` has the number of each."""
    if layout.pp == 1:
        return [Stage((True, True), config.num_blocks, 1)]
    counts = in_flight(layout.schedule, layout.pp, layout.micro_batches)
    blocks = split_blocks(config, layout.pp, per_stage)
    last = layout.pp - 1
    return [
        Stage((i == 0, i == last), len(part), count)
        for i, (part, count) in enumerate(zip(blocks, counts))
    ]


def _passing(job: Job, layout: Layout, stage: Stage, at_once: float) -> tuple[int, int, int]:
    """Return three sizes in bytes: the peak of a micro-batch's forward and backward without the
    optimizer's state, what forwards keep for backward, and the constants (masks, angles, numbers).

    Args:
        at_once: how many micro-batches have activations in memory.
    """
    step, others = one_pass(job, layout, stage), stage.others
    at = step.at
    # Of each block, `one_kept` is what its forward keeps for backward, `left` is what remains after
    # its backward, and `block` is what it keeps from step to step.
    one_kept = at["head"] - at["block"]
    left = one_kept
    if "rest" in at:
        left += at["rest"] - at["block backward"]
    block = at["without block"] - at["end"]
    held = step.in_use + others * (one_kept * step.kept + left * step.rest + block)
    kept = at["end of forward"] - at["start"] + others * one_kept
    constants = step.constants
    weights, gradients, _ = update(job, layout, stage).block
    constants += others * (block - weights - (gradients if layout.micro_batches > 1 else 0))
    most = held.max() + (at_once - 1) * kept
    return int(most), int(at_once * kept), int(constants)


def memory_of(job: Job, layout: Layout, stage: Stage) -> Memory:
    """Return the memory of a chip of a stage."""
    after, at_once = update(job, layout, stage), stage.in_flight
    if layout.micro_batches > at_once:
        passes = [_passing(job, layout, stage, at_once)]
    else:
        # During the first backward no gradients exist yet. During the second they do, and one
        # micro-batch fewer is in flight.
        one = job._replace(batch=job.batch // layout.micro_batches)
        passes = [_passing(one, replace(layout, micro_batches=1), stage, at_once)]
        if layout.micro_batches > 1:
            passes.append(_passing(job, layout, stage, at_once - 1))
    most, kept, constants = max(passes)
    weights, gradients, optimizer = after.of_all
    state = weights + gradients + optimizer
    beside = max(most + optimizer - state, constants + after.most)
    activations = min(kept, beside)
    return Memory(weights, gradients, optimizer, activations, beside - activations)


def memory(job: Job, layout: Layout) -> Memory:
    """Return the memory of the chip that holds most.

    Example:
        >>> from ttkit.train.config.settings import TrainingConfig, TransformerConfig
        >>> tiny = TransformerConfig(num_heads=2, embedding_dim=64, dropout_prob=0.0)
        >>> job = Job(tiny, batch=8, sequence=128, training=TrainingConfig())
        >>> whole, half = (memory(job, Layout(tp=n)) for n in (1, 2))
        >>> whole.weights, half.weights, half.total < whole.total
        (1916928, 1138688, True)
    """
    found = [memory_of(job, layout, stage) for stage in stages(job.config, layout)]
    return max(found, key=sum)

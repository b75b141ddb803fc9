"""A chip's part of a training step, read from dry runs: the passes through the blocks of a stage,
and what follows the last backward."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ttkit.layouts.passes import (
    Ends,
    Pass,
    Recording,
    Sends,
    dry_run,
    give_grads,
    is_on,
    model_of,
    part_of,
    pass_of,
)
from ttkit.sim.tape import stored_bytes
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TrainingConfig, TransformerConfig
from ttkit.train.model.modules import Parameter, tiled
from ttkit.train.parallel.data_parallel import average_gradients, owners
from ttkit.train.run.optimizers import clip_grad_norm, make_optimizer


class ParameterBytes(NamedTuple):
    """What a parameter takes of a chip.

    Attributes:
        part: the part of a step that uses it first.
        weights, gradients, optimizer: bytes.
        size: the elements of its shard, in whole tiles.
    """

    part: str
    weights: int
    gradients: int
    optimizer: int
    size: int


class Update(NamedTuple):
    """What follows the last backward, of a block and the ends: averaged gradients, optimizer.

    Attributes:
        sends: the collectives.
        held: what each parameter takes.
        most: the peak of the bytes in use beside that.
        others: blocks that are not run.
        hosts: ranks that share the optimizer's state.
    """

    sends: Sends
    held: list[ParameterBytes]
    most: int
    others: int = 0
    hosts: int = 1

    @property
    def of_blocks(self) -> list[ParameterBytes]:
        """The part of `held` that blocks take."""
        return [each for each in self.held if each.part == "block"]

    @property
    def of_all(self) -> tuple[int, int, int]:
        """Bytes of weights, gradients and a rank's optimizer, of all blocks and of the ends."""
        every = zip(*self.held, *self.others * self.of_blocks)
        _, weights, gradients, optimizer, sizes = every
        most, size = largest_share(sizes, self.hosts)
        return sum(weights), sum(gradients), sum(optimizer) * most // size


@functools.lru_cache(maxsize=1024)
def largest_share(sizes: tuple[int, ...], hosts: int) -> tuple[int, int]:
    """Return the most that one rank updates of these sizes, and the sum of the sizes."""
    held = Counter[int]()
    for rank, size in zip(owners(sizes, hosts), sizes):
        held[rank] += size
    return max(held.values()), sum(sizes)


@functools.lru_cache(maxsize=1024)
def _steps(
    config: TransformerConfig,
    layout: Layout,
    ends: Ends,
    clips: bool,
    optimizer: tuple,
    bucket_mb: float,
) -> tuple[Recording, list[ParameterBytes]]:
    """Run what follows the last backward, of a step after the first.

    Returns:
        What it did, and what each parameter takes.
    """
    given = {"optimizer": dict(optimizer)} if optimizer else {}
    training = TrainingConfig(precision=layout.precision, **given)  # type: ignore[arg-type]
    with dry_run(layout) as run:
        parameters = model_of(config, run, ends).parameters()
        update = make_optimizer(training, parameters)
        by_part = itertools.groupby(parameters.items(), lambda item: part_of(item[0]))
        groups = [(part, dict(group)) for part, group in by_part]

        def optimize(group: dict[str, Parameter]) -> None:
            update.parameters = group
            update.step()

        average = functools.partial(average_gradients, bucket_mb=bucket_mb)
        steps: list[tuple[str, Callable, list]] = [
            ("gradients", average, [("block", parameters)] if bucket_mb else groups[::-1]),
            # Any norm exceeds 0, so this always clips.
            ("norm", lambda group: clip_grad_norm(group, 0.0), groups if clips else []),
            ("optimizer", optimize, groups),
        ]
        for _ in range(2):  # The first step makes the optimizer's state.
            give_grads(parameters, run)
            first = len(run.calls.events)
            for name, do, pairs in steps:
                # The block comes last.
                for part, group in sorted(pairs, key=lambda pair: pair[0] == "block"):
                    run.begin(f"{part} {name}")
                    do(group)
        recording = Recording(run, first)
        give_grads(parameters, run)
        return recording, [
            ParameterBytes(
                part_of(name),
                stored_bytes([parameter.get_value()]),
                stored_bytes([parameter.get_grad()]),
                stored_bytes([v for key, v in update.state.items() if key.endswith(f"/{name}")]),
                tiled(parameter.shard_shape),
            )
            for name, parameter in parameters.items()
        ]


@functools.lru_cache(maxsize=1024)
def update_of(
    config: TransformerConfig, layout: Layout, ends: Ends, clips: bool, *how: Any
) -> Update:
    """Return what follows the last backward on a stage with those ends.

    Args:
        clips: whether gradients are clipped.
        how: the keys and values of the optimizer's settings, and up to how many MB of gradients
            are averaged together.
    """
    both = ends if clips or how[-1] else (True, True)  # One run serves all stages.
    run, held = _steps(config, layout, both, clips, *how)
    runs = is_on(layout, ends)
    calls, sends, in_use = run.share(runs)
    mine = [each for each in held if runs(each.part)]
    most = int(in_use[: len(calls), 1][calls].max())
    return Update(sends, mine, most - sum(sum(each[1:4]) for each in mine))


# ---------------------------------------------------------------- a chip's part of a step
class Job(NamedTuple):
    """What is trained, whatever its layout.

    Attributes:
        config: the model.
        batch: sequences of a step, of all replicas together.
        sequence: tokens of each.
        training: the optimizer, and whether gradients are clipped.
        bucket_mb: gradients are averaged together up to this many MB.
    """

    config: TransformerConfig
    batch: int
    sequence: int
    training: TrainingConfig
    bucket_mb: float = 0

    def rows(self, layout: Layout) -> int:
        """Sequences of a micro-batch in each replica."""
        return self.batch // (layout.dp * layout.micro_batches)


class Moment(NamedTuple):
    """A backward of a stage, before it begins.

    Attributes:
        chunk: its chunk.
        kept: of how many micro-batches each chunk keeps activations, this one's included.
        done: whether each chunk has gradients of an earlier micro-batch.
    """

    chunk: int
    kept: tuple[int, ...]
    done: tuple[bool, ...]


class Stage(NamedTuple):
    """A stage of a layout of the job: its ends, its blocks, and when it may hold most; or one of
    its chunks."""

    job: Job
    layout: Layout
    ends: Ends = (True, True)
    blocks: int = 1
    moments: tuple[Moment, ...] = (Moment(0, (1,), (False,)),)

    @property
    def others(self) -> int:
        """Blocks that are not run."""
        return self.blocks - 1

    @property
    def chunks(self) -> list[Stage]:
        """Its chunks: the first stage's first begins the model; the last stage's last ends it."""
        many = len(self.moments[0].kept)
        return [
            Stage(
                self.job,
                self.layout,
                (self.ends[0] and i == 0, self.ends[1] and i == many - 1),
                self.blocks // many + (i < self.blocks % many),
            )
            for i in range(many)
        ]


# The calls of a chip do not depend on these.
ONE_STAGE: dict[str, Any] = {"pp": 1, "schedule": "1f1b", "chunks": 1, "blocks": (), "hosts": 1}


def one_pass(stage: Stage) -> Pass:
    """Return forward and backward of a micro-batch through one block of a stage."""
    job, layout, *_ = stage
    config = _plain(job.config, 1, job.sequence, all(stage.ends))
    return pass_of(config, _for_pass(layout), stage.ends, job.rows(layout))


@functools.lru_cache(maxsize=4096)
def _for_pass(layout: Layout) -> Layout:
    """Return a layout without what does not change a pass."""
    zero = layout.zero
    return replace(
        layout,
        dp=layout.dp if zero > 1 or layout.ep > 1 else min(layout.dp, 2),
        zero=0 if zero == 1 else zero,  # ZeRO-1 changes only the optimizer's step.
        micro_batches=min(layout.micro_batches, 2),
        **ONE_STAGE,
    )


def update(stage: Stage) -> Update:
    """Return what follows the last backward of a step; buckets need all blocks."""
    job, layout, *_ = stage
    training, blocks = job.training, stage.blocks if job.bucket_mb else 1
    optimizer, clips = tuple((training.optimizer or {}).items()), training.use_clip_grad_norm
    config = _plain(job.config, blocks, job.sequence, clips or all(stage.ends))
    layout, hosts = _for_update(layout), layout.hosts
    found = update_of(config, layout, stage.ends, clips, optimizer, job.bucket_mb)
    return found._replace(others=stage.blocks - blocks, hosts=hosts)


@functools.lru_cache(maxsize=4096)
def _for_update(layout: Layout) -> Layout:
    """Return a layout without what does not change an update."""
    return replace(
        layout,
        dp=layout.dp if layout.zero or layout.ep > 1 else min(layout.dp, 2),
        cp=layout.cp if layout.zero and layout.dp == 1 else min(layout.cp, 2),
        sequence_parallel=False,
        recompute=False,
        micro_batches=1,
        **ONE_STAGE,
    )


@functools.lru_cache
def _plain(
    config: TransformerConfig, blocks: int, sequence: int, is_tied: bool
) -> TransformerConfig:
    """Return the configuration without what does not change a chip's share of a step.

    Args:
        is_tied: whether it matters that weights are tied.
    """
    few = replace(config, experimental=None, runner_type="default")
    few = few if is_tied else replace(few, weight_tying="disabled")
    return replace(few, num_blocks=blocks, max_sequence_length=sequence)

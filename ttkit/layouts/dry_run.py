"""The work of a chip in a training step, read from dry runs: the passes through the blocks of a
stage, and what follows the last backward."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from ttkit.layouts.passes import Pass, give_grads, model_of, part_of, pass_of
from ttkit.layouts.recording import Ends, Recording, Sends, dry_run, is_on
from ttkit.layouts.simulated import with_simulator
from ttkit.sim.tape import stored_bytes
from ttkit.train.config.layout import Layout, tiled
from ttkit.train.config.settings import TrainingConfig, TransformerConfig
from ttkit.train.model.modules import Parameter
from ttkit.train.parallel.data_parallel import average_gradients, owners
from ttkit.train.run.optimizers import clip_grad_norm, make_optimizer


class ParameterBytes(NamedTuple):
    """The bytes that a parameter needs on a chip.

    Attributes:
        part: the part of a step that uses the parameter first.
        weights, gradients, optimizer: the bytes of its weight, gradient and optimizer state.
        size: the number of elements of its shard, padded to whole tiles.
    """

    part: str
    weights: int
    gradients: int
    optimizer: int
    size: int


class Update(NamedTuple):
    """The work after the last backward: the mean of the gradients, and the optimizer.

    Attributes:
        sends: the collectives.
        held: the bytes of each parameter, of the blocks that were run and of the model's ends.
        most: the peak of the bytes in use beside those of `held`.
        others: the number of blocks that are not run, because they are like the one that is run.
        hosts: the number of ranks that share the optimizer's state.
    """

    sends: Sends
    held: list[ParameterBytes]
    most: int
    others: int = 0
    hosts: int = 1

    @property
    def of_blocks(self) -> list[ParameterBytes]:
        """The entries of `held` for the parameters of blocks."""
        return [each for each in self.held if each.part == "block"]

    @property
    def of_all(self) -> tuple[int, int, int]:
        """The bytes of weights, gradients and a rank's optimizer state, for all blocks and ends."""
        _, weights, gradients, optimizer, sizes = zip(*self.held, *self.others * self.of_blocks)
        most, size = largest_share(sizes, self.hosts)
        return sum(weights), sum(gradients), sum(optimizer) * most // size


@cache
def largest_share(sizes: tuple[int, ...], hosts: int) -> tuple[int, int]:
    """Return the sum of the sizes that the busiest rank updates, and the sum of all sizes."""
    held = Counter[int]()
    for rank, size in zip(owners(sizes, hosts), sizes):
        held[rank] += size
    return max(held.values()), sum(sizes)


@lru_cache(1024)
def _steps(
    config: TransformerConfig,
    layout: Layout,
    ends: Ends,
    clips: bool,
    optimizer: tuple,
    bucket_mb: float,
) -> tuple[Recording, list[ParameterBytes]]:
    """Run what follows the last backward, and record it for a step after the first.

    Returns:
        The recording, and the bytes of each parameter.
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

        average = partial(average_gradients, bucket_mb=bucket_mb)
        steps: list[tuple[str, Callable, list]] = [
            ("gradients", average, [("block", parameters)] if bucket_mb else groups[::-1]),
            # Every norm is above 0, so the gradients are always clipped.
            ("norm", lambda group: clip_grad_norm(group, 0.0), groups if clips else []),
            ("optimizer", optimize, groups),
        ]
        for _ in range(2):  # The first step creates the optimizer's state; the second is recorded.
            give_grads(parameters, run)
            first = len(run.calls.events)
            for name, do, pairs in steps:
                # The parameters of the block come last.
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


@lru_cache(1024)
@with_simulator
def update_of(
    config: TransformerConfig, layout: Layout, ends: Ends, clips: bool, *how: Any
) -> Update:
    """Return what follows the last backward on a stage with those ends.

    Args:
        clips: whether gradients are clipped.
        how: the keys and values of the optimizer's settings, and `Job.bucket_mb`.
    """
    # Without clipping and buckets, one run with both ends is enough for all stages.
    both = ends if clips or how[-1] else (True, True)
    run, held = _steps(config, layout, both, clips, *how)
    runs = is_on(layout, ends)
    calls, sends, in_use = run.share(runs)
    mine = [each for each in held if runs(each.part)]
    most = int(in_use[: len(calls), 1][calls].max())
    return Update(sends, mine, most - sum(sum(each[1:4]) for each in mine))


# ---------------------------------------------------------------- a chip's part of a step
class Job(NamedTuple):
    """The training that is planned, without its layout.

    Attributes:
        config: the model.
        batch: the number of sequences in a step, in all replicas together.
        sequence: the number of tokens in a sequence.
        training: the optimizer, and whether gradients are clipped.
        bucket_mb: the most MB of gradients that are averaged together; 0 averages each alone.
    """

    config: TransformerConfig
    batch: int
    sequence: int
    training: TrainingConfig
    bucket_mb: float = 0

    def rows(self, layout: Layout) -> int:
        """Return the number of sequences of a micro-batch in each replica."""
        return self.batch // (layout.dp * layout.micro_batches)


class Moment(NamedTuple):
    """The state of a stage just before a backward.

    Attributes:
        chunk: the chunk of that backward.
        kept: for each chunk, the number of micro-batches whose activations it keeps, including
            that of the backward.
        done: for each chunk, whether it has gradients of an earlier micro-batch.
    """

    chunk: int
    kept: tuple[int, ...]
    done: tuple[bool, ...]


class Stage(NamedTuple):
    """A pipeline stage, or one of its chunks: which ends of the model it has, the number of its
    blocks, and the moments at which its memory may be at its peak."""

    job: Job
    layout: Layout
    ends: Ends = (True, True)
    blocks: int = 1
    moments: tuple[Moment, ...] = (Moment(0, (1,), (False,)),)

    @property
    def others(self) -> int:
        """The number of blocks that are not run: the dry run has one block."""
        return self.blocks - 1

    @property
    def chunks(self) -> list[Stage]:
        """The chunks of the stage.

        The first chunk of the first stage begins the model. The last chunk of the last stage ends
        it.
        """
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


# The calls of a chip do not depend on these settings, so all dry runs use the same values.
ONE_STAGE: dict[str, Any] = {"pp": 1, "schedule": "1f1b", "chunks": 1, "blocks": (), "hosts": 1}


def one_pass(stage: Stage) -> Pass:
    """Return the forward and backward of a micro-batch through one block of a stage."""
    job, layout, *_ = stage
    config = _plain(job.config, 1, job.sequence, all(stage.ends))
    return pass_of(config, _for_pass(layout), stage.ends, job.rows(layout))


@cache
def _for_pass(layout: Layout) -> Layout:
    """Return a layout with fixed values for settings that do not change a pass."""
    zero = layout.zero
    return replace(
        layout,
        dp=layout.dp if zero > 1 or layout.ep > 1 else min(layout.dp, 2),
        zero=0 if zero == 1 else zero,  # ZeRO-1 changes only the optimizer's step.
        micro_batches=min(layout.micro_batches, 2),
        **ONE_STAGE,
    )


def update(stage: Stage) -> Update:
    """Return what follows the last backward of a step; with buckets, all blocks are run."""
    job, layout, *_ = stage
    training = job.training
    blocks = stage.blocks if job.bucket_mb else 1
    optimizer = tuple((training.optimizer or {}).items())
    clips = training.use_clip_grad_norm
    config = _plain(job.config, blocks, job.sequence, clips or all(stage.ends))
    layout, hosts = _for_update(layout), layout.hosts
    found = update_of(config, layout, stage.ends, clips, optimizer, job.bucket_mb)
    return found._replace(others=stage.blocks - blocks, hosts=hosts)


@cache
def _for_update(layout: Layout) -> Layout:
    """Return a layout with fixed values for settings that do not change an update."""
    return replace(
        layout,
        dp=layout.dp if layout.zero or layout.ep > 1 else min(layout.dp, 2),
        cp=layout.cp if layout.zero else min(layout.cp, 2),
        sequence_parallel=False,
        recompute=False,
        micro_batches=1,
        **ONE_STAGE,
    )


@cache
def _plain(
    config: TransformerConfig, blocks: int, sequence: int, is_tied: bool
) -> TransformerConfig:
    """Return a configuration with fixed values for settings that do not change a chip's work.

    Args:
        is_tied: whether to keep the setting that ties weights; otherwise it is turned off.
    """
    few = replace(config, experimental=None, runner_type="default")
    few = few if is_tied else replace(few, weight_tying="disabled")
    return replace(few, num_blocks=blocks, max_sequence_length=sequence)

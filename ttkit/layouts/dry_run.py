"""A chip's part of a training step, read from dry runs: the passes through the blocks of a stage,
and what follows the last backward."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ttkit.layouts.passes import Ends, Pass, Sends, dry_run, give_grads, model_of, pass_of
from ttkit.sim.tape import stored_bytes
from ttkit.sim.tensor.tensor import most_in_use
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TrainingConfig, TransformerConfig
from ttkit.train.model.modules import Parameter, tiled
from ttkit.train.parallel.data_parallel import average_gradients, owners
from ttkit.train.run.optimizers import clip_grad_norm, make_optimizer


class Update(NamedTuple):
    """What follows the last backward, of a block and the ends: averaged gradients, optimizer.

    Attributes:
        sends: the collectives.
        state, block: bytes of weights, gradients and optimizer; of all, and of a block.
        most: the peak of the bytes in use beside them.
        sizes: of the shards of the parameters, of all and of a block.
        others: blocks that are not run.
        hosts: ranks that share the optimizer's state.
    """

    sends: Sends
    state: tuple[int, int, int]
    block: tuple[int, int, int]
    most: int
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    others: int = 0
    hosts: int = 1

    @property
    def of_all(self) -> tuple[int, int, int]:
        """Bytes of weights, gradients and optimizer of all blocks."""
        both = zip(self.state, self.block)
        weights, gradients, optimizer = (all_ + self.others * one for all_, one in both)
        most, every = largest_share(*self.sizes, self.others, self.hosts)
        return weights, gradients, optimizer * most // every


@functools.lru_cache(maxsize=1024)
def largest_share(
    sizes: tuple[int, ...], block: tuple[int, ...], others: int, hosts: int
) -> tuple[int, int]:
    """Return the size of what the rank updates that has most, and the size of all parameters."""
    every, held = sizes + others * block, Counter[int]()
    for rank, size in zip(owners(every, hosts), every):
        held[rank] += size
    return max(held.values()), sum(every)


@functools.lru_cache(maxsize=1024)
def update_of(
    config: TransformerConfig,
    layout: Layout,
    ends: Ends,
    clips: bool,
    optimizer: tuple,
    bucket_mb: float,
) -> Update:
    """Run what follows the last backward, of a step after the first.

    Args:
        clips: whether gradients are clipped.
        optimizer: the keys and values of its settings.
        bucket_mb: gradients are averaged together up to this many MB.
    """
    given = {"optimizer": dict(optimizer)} if optimizer else {}
    training = TrainingConfig(precision=layout.precision, **given)  # type: ignore[arg-type]
    with dry_run(layout) as run:
        model = model_of(config, run, ends)
        parameters = model.parameters()
        last = f"blocks.{max(model.blocks)}."
        mine = {name: each for name, each in parameters.items() if name.startswith(last)}
        others = {name: each for name, each in parameters.items() if name not in mine}
        update = make_optimizer(training, parameters)

        def optimize(group: dict[str, Parameter]) -> None:
            update.parameters = group
            update.step()

        halves = [("", others), ("block ", mine)]
        steps: list[tuple[str, Callable, list]] = [("optimizer", optimize, halves)]
        if clips:  # Any norm exceeds 0, so this always clips.
            steps.insert(0, ("norm", lambda group: clip_grad_norm(group, 0.0), halves))
        average = functools.partial(average_gradients, bucket_mb=bucket_mb)
        steps.insert(0, ("gradients", average, [("", parameters)] if bucket_mb else halves))
        for _ in range(2):  # The first step makes the optimizer's state.
            give_grads(parameters, run)
            first, most = len(run.calls.events), most_in_use(run.layout.device)
            for name, do, groups in steps:
                for prefix, group in groups:
                    run.begin(prefix + name)
                    do(group)
        events, state = run.calls.events[first:], update.state.items()
        most = max(most, *(event.in_use for event in events))
        give_grads(parameters, run)
        of = [
            (
                stored_bytes([parameter.get_value() for parameter in group.values()]),
                stored_bytes([parameter.get_grad() for parameter in group.values()]),
                stored_bytes([value for key, value in state if key.split("/", 1)[1] in group]),
            )
            for group in (parameters, mine)
        ]
    every, block = (
        tuple(tiled(each.shard_shape) for each in group.values()) for group in (parameters, mine)
    )
    return Update(run.sends(events), of[0], of[1], most - sum(of[0]), (every, block))


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
    """A stage of the model: its ends, its blocks, and when it may hold most; or one of its
    chunks."""

    ends: Ends = (True, True)
    blocks: int = 1
    moments: tuple[Moment, ...] = (Moment(0, (1,), (False,)),)

    @property
    def others(self) -> int:
        """Blocks that are not run."""
        return self.blocks - 1

    @property
    def chunks(self) -> list[Stage]:
        """Its chunks: the first one of the first stage begins the model, the last one ends it."""
        many = len(self.moments[0].kept)
        return [
            Stage(
                (self.ends[0] and i == 0, self.ends[1] and i == many - 1),
                self.blocks // many + (i < self.blocks % many),
            )
            for i in range(many)
        ]


# The calls of a chip do not depend on these.
ONE_STAGE: dict[str, Any] = {"pp": 1, "schedule": "1f1b", "chunks": 1, "blocks": (), "hosts": 1}


def one_pass(job: Job, layout: Layout, stage: Stage) -> Pass:
    """Return forward and backward of a micro-batch through one block of a stage."""
    rows, zero = job.rows(layout), layout.zero
    layout = replace(
        layout,
        dp=layout.dp if zero > 1 or layout.ep > 1 else min(layout.dp, 2),
        zero=0 if zero == 1 else zero,  # ZeRO-1 changes only the optimizer's step.
        micro_batches=min(layout.micro_batches, 2),
        **ONE_STAGE,
    )
    return pass_of(_plain(job.config, 1, job.sequence), layout, stage.ends, rows)


def update(job: Job, layout: Layout, stage: Stage) -> Update:
    """Return what follows the last backward of a step; buckets need all blocks."""
    zero, hosts = layout.zero, layout.hosts
    layout = replace(
        layout,
        dp=layout.dp if zero or layout.ep > 1 else min(layout.dp, 2),
        cp=layout.cp if zero and layout.dp == 1 else min(layout.cp, 2),
        sequence_parallel=False,
        recompute=False,
        micro_batches=1,
        **ONE_STAGE,
    )
    training, blocks = job.training, stage.blocks if job.bucket_mb else 1
    optimizer = tuple((training.optimizer or {}).items())
    config = _plain(job.config, blocks, job.sequence)
    clips = training.use_clip_grad_norm
    found = update_of(config, layout, stage.ends, clips, optimizer, job.bucket_mb)
    return found._replace(others=stage.blocks - blocks, hosts=hosts)


@functools.lru_cache
def _plain(config: TransformerConfig, blocks: int, sequence: int) -> TransformerConfig:
    """Return the configuration without what does not change a chip's share of a step."""
    few = replace(config, experimental=None, runner_type="default")
    return replace(few, num_blocks=blocks, max_sequence_length=sequence)

"""A model's own code, run on a mesh without values: a micro-batch forward and backward, and what
follows the last backward. What it held, sent and multiplied is read from the tape.

One block of a model is run. It stands for all of them: as the last one, whose backward finds what
all others keep, and as the first one, whose backward finds the gradients of all others."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ttkit import backend, ttnn
from ttkit.errors import fail
from ttkit.sim.mesh.opening import without_values
from ttkit.sim.ops import OPERATIONS
from ttkit.sim.ops.work import work_of
from ttkit.sim.tape import Event, Tape, stored_bytes
from ttkit.sim.tensor.tensor import most_in_use
from ttkit.train.autograd import Tensor, Value, recorded
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TrainingConfig, TransformerConfig
from ttkit.train.model.models import Transformer, create_model
from ttkit.train.model.modules import Parameter, tiled
from ttkit.train.parallel.data_parallel import average_gradients, owners
from ttkit.train.parallel.distributed import mean_over_groups
from ttkit.train.run.optimizers import clip_grad_norm, make_optimizer

# KEPT: in these parts of a step the activations of the blocks before this one are in memory.
# REPEATED: these parts run once in each block, so their collectives are counted for each.
KEPT = ("block", "head", "block backward")
REPEATED = ("block", "block backward", "block gradients", "block norm", "block optimizer")
# The two values say whether a stage has the embedding, and whether it has the head.
Ends = tuple[bool, bool]
# An entry is a collective: the part of the step, its name, its axis's strategy, bytes of a shard.
Sends = tuple[tuple[str, str, str, int], ...]


@dataclass
class DryRun:
    """A layout on a mesh without values, while its tape records.

    Attributes:
        layout: on the mesh.
        at: how many calls there were, and bytes in use, where each part of the step began.
    """

    layout: Layout
    calls: Tape
    at: dict[str, tuple[int, int]]

    def begin(self, part: str) -> None:
        """Name the part of a step that follows; where it began first counts."""
        self.calls.part = part
        self.at.setdefault(part, self.here())

    def here(self) -> tuple[int, int]:
        """Return how many calls there were so far, and the bytes in use."""
        return len(self.calls.events), most_in_use(self.layout.device)

    def sends(self, events: Iterable[Event]) -> Sends:
        """Return the collectives of some calls."""
        strategies = {axis: name for name, axis in self.layout.axes or ()}
        return tuple(
            (event.part, each.collective, strategies[each.axis or 0], each.shard_bytes)
            for event in events
            for each in event.sent
        )

    def new(self, shape: Iterable[int]) -> Value:
        """Return a tensor of the layout's type on the mesh."""
        where = {"layout": ttnn.TILE_LAYOUT, "device": self.layout.device}
        return ttnn.empty(list(shape), dtype=self.layout.dtype, **where)


@contextmanager
def dry_run(layout: Layout) -> Iterator[DryRun]:
    """Open a mesh without values for a layout, with a mesh axis for each strategy that is on."""
    if not backend.is_simulated():
        rule = "the trainer's calls run on the simulator's mesh without values"
        fail(f"plan {layout}", rule, "TTKIT_BACKEND=sim for the process that plans")
    rows, columns = [*(n for n in (layout.dp, layout.cp, layout.tp) if n > 1), 1, 1][:2]
    with without_values((rows, columns)) as (mesh, calls):
        yield DryRun(replace(layout, axes=None).on(mesh), calls, {})


def _marked(x: Tensor, run: DryRun, part: str) -> Tensor:
    """Return the same tensor; `part` begins when its gradient is complete."""

    def backward(grad: Value) -> list[Value]:
        run.begin(part)
        return [grad]

    return recorded("mark", x.get_value(), [x], backward)


def _mark_parts(model: Transformer, run: DryRun, again: bool) -> None:
    """Let the embedding and the one block of a model name the parts of the dry run.

    Args:
        again: whether backward recomputes the block, and so calls it a second time.
    """
    embed, (block,) = model.embed, model.blocks.values()
    forward = block.forward

    def marked(x: Tensor, cache=None) -> Tensor:
        if run.calls.part != "start":
            run.begin("block backward")
            return forward(x, cache)
        run.begin("block")
        y = forward(x, cache)
        run.begin("head")
        return y if again else _marked(y, run, "block backward")

    vars(model)["embed"] = lambda ids, cache: _marked(embed(ids, cache), run, "rest")
    vars(block)["forward"] = marked


def _pass(model: Transformer, run: DryRun, rows: int, parts: int) -> None:
    """Go forward and backward, as `Trainer` and `Stage` do."""
    layout, config = model.layout, model.config
    length = config.max_sequence_length
    ids = np.empty((rows * layout.dp, 1, 1, length), np.uint32)
    if model.is_first:
        start: Any = layout.tokens(ids)
    else:
        length //= layout.cp * (layout.tp if layout.sequence_parallel else 1)
        start = Tensor(run.new((rows, 1, length, config.embedding_dim)))
        start = _marked(start, run, "rest")
    end = model(start)
    del start
    if model.is_last:
        end = model.loss(end, layout.tokens(ids))
        mean_over_groups(end, layout)
    run.at["end of forward"] = run.here()
    if model.is_last:
        (end * (1 / parts) if parts > 1 else end).backward()
    else:
        end.set_grad(run.new(end.shape()))
        end.backward()


def _model(
    config: TransformerConfig, run: DryRun, ends: Ends, recompute: bool = False
) -> Transformer:
    """Construct a stage with those ends of the model; `config` has as many blocks as it."""
    start = 0 if ends[0] else 1
    blocks = range(start, start + config.num_blocks)
    count = blocks.stop + (not ends[1])
    runner: Any = "memory_efficient" if recompute else "default"
    config = replace(config, num_blocks=count, runner_type=runner)
    model = create_model(config, run.layout, blocks)
    for parameter in model.parameters().values():
        sharded = parameter.is_sharded
        parameter.set_value(run.new(parameter.shard_shape if sharded else parameter.local_shape))
    model.train()
    return model


class Computed(NamedTuple):
    """Calls that compute or move something on a chip.

    Attributes:
        parts: the part of a step that each was in.
        flops, moved: the flops of its tiles, and the bytes that it reads and writes in DRAM.
        multiplied: the flops of its values if it is a matmul, else 0.
    """

    parts: tuple[str, ...]
    flops: np.ndarray
    moved: np.ndarray
    multiplied: np.ndarray


# The keys are ids of keyword arguments, which repeated calls share; as these stay, so do their ids.
# The values are flops of tiles, bytes moved, and flops of values of a matmul.
_works: dict[int, tuple[Any, tuple[int, int, int] | None]] = {}


def _work(event: Event) -> tuple[int, int, int] | None:
    operation = OPERATIONS[event.name]
    elsewhere = operation.kind in ("write", "read", "collective")
    if elsewhere or not (work := work_of(event, operation)):
        return None
    return work.flops_of_tiles, work.moved, work.flops if operation.kind == "product" else 0


def computed(events: Iterable[Event]) -> Computed:
    """Return the calls among some events that compute or move something on a chip."""
    parts, rows = [], []
    for event in events:
        known = _works.get(id(event.kwargs))
        if known is None:
            known = _works[id(event.kwargs)] = event.kwargs, _work(event)
        if known[1]:
            parts.append(event.part)
            rows.append(known[1])
    return Computed(tuple(parts), *np.array(rows).T)


class Pass(NamedTuple):
    """Forward and backward of a micro-batch through one block.

    Attributes:
        in_use: bytes held after each call, without the optimizer's state.
        kept: for each call, whether it comes before the backward of the earlier blocks, whose
            activations are then in memory.
        back: for each call, whether it may come after the backward of the later blocks.
        at: bytes held where each part began.
        constants: bytes of masks, angles and numbers, which are there from the first step on.
        sends: the collectives.
        computed: the calls that compute or move something on a chip.
    """

    in_use: np.ndarray
    kept: np.ndarray
    back: np.ndarray
    at: dict[str, int]
    constants: int
    sends: Sends
    computed: Computed


def _bytes(values: Iterable[Value | None]) -> int:
    return stored_bytes([value for value in values if value is not None])


def _give_grads(parameters: Mapping[str, Parameter], run: DryRun) -> None:
    for parameter in parameters.values():
        sharded = parameter.zero_dim is not None and run.layout.zero >= 2
        parameter.set_grad(run.new(parameter.shard_shape if sharded else parameter.local_shape))


def _constants(events: list[Event]) -> np.ndarray:
    """Return the bytes of the constants that are made from each call on, and at the end 0.

    The first forward puts them on the mesh, and they stay.
    """
    nbytes = [
        stored_bytes(event.results)
        if OPERATIONS[event.name].kind == "write" and event.result.tensor() is not None
        else 0
        for event in events
    ]
    return np.append(np.cumsum(nbytes[::-1])[::-1], 0)


@functools.lru_cache(maxsize=1024)
def pass_of(config: TransformerConfig, layout: Layout, ends: Ends, rows: int) -> Pass:
    """Run a micro-batch of `rows` sequences in each replica, of a step after the first."""
    with dry_run(layout) as run:
        model = _model(config, run, ends, layout.recompute)
        parameters = model.parameters()
        if layout.micro_batches > 1:
            _give_grads(parameters, run)
        _mark_parts(model, run, layout.recompute)
        run.begin("start")
        first = len(run.calls.events)
        _pass(model, run, rows, layout.micro_batches)
        events = run.calls.events[first:]
        later = _constants(events)
        if layout.micro_batches == 1:
            for parameter in parameters.values():
                parameter.set_grad(None)
        # What freeing the block saves is what a block keeps from step to step.
        run.begin("without block")
        vars(model.blocks.popitem()[1]).clear()
        del parameters
        run.begin("end")
    at = {part: nbytes + int(later[max(i - first, 0)]) for part, (i, nbytes) in run.at.items()}
    return Pass(
        in_use=np.array([event.in_use for event in events]) + later[1:],
        kept=np.array([event.part in KEPT for event in events]),
        back=np.array([event.part in ("block backward", "rest") for event in events]),
        at=at,
        constants=int(later[0]),
        sends=run.sends(events),
        computed=computed(events),
    )


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
        model = _model(config, run, ends)
        parameters = model.parameters()
        last = f"blocks.{max(model.blocks)}."
        mine = {name: each for name, each in parameters.items() if name.startswith(last)}
        others = {name: each for name, each in parameters.items() if name not in mine}
        update = make_optimizer(training, parameters)

        def average(group: dict[str, Parameter]) -> None:
            if not bucket_mb:
                average_gradients(group)

        def clip(group: dict[str, Parameter]) -> None:
            if clips:
                clip_grad_norm(group, 0.0)  # Any norm exceeds 0, so this always clips.

        def optimize(group: dict[str, Parameter]) -> None:
            update.parameters = group
            update.step()

        for _ in range(2):  # The first step makes the optimizer's state.
            _give_grads(parameters, run)
            made = [_bytes(p.get_grad() for p in group.values()) for group in (parameters, mine)]
            first, most = len(run.calls.events), most_in_use(run.layout.device)
            if bucket_mb:
                run.begin("gradients")
                average_gradients(parameters, None, bucket_mb)
            for name, do in (("gradients", average), ("norm", clip), ("optimizer", optimize)):
                for part, group in ((name, others), (f"block {name}", mine)):
                    run.begin(part)
                    do(group)
        events, state = run.calls.events[first:], update.state.items()
        of = [
            (
                _bytes(parameter.get_value() for parameter in group.values()),
                grads,
                _bytes(value for key, value in state if key.split("/", 1)[1] in group),
            )
            for group, grads in zip((parameters, mine), made)
        ]
        most = max(most, *(event.in_use for event in events))
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


def one_pass(job: Job, layout: Layout, stage: Stage) -> Pass:
    """Return forward and backward of a micro-batch through one block of a stage."""
    rows, sequence, zero = job.rows(layout), job.sequence, layout.zero
    dp = layout.dp if zero > 1 or layout.ep > 1 else min(layout.dp, 2)
    layout = replace(
        layout,
        dp=dp,
        pp=1,
        zero=0 if zero == 1 else zero,  # ZeRO-1 changes only the optimizer's step.
        micro_batches=min(layout.micro_batches, 2),
        schedule="1f1b",
        chunks=1,
        hosts=1,
    )
    config = _plain(job.config, 1, sequence)
    return pass_of(config, layout, stage.ends, rows)


def update(job: Job, layout: Layout, stage: Stage) -> Update:
    """Return what follows the last backward of a step; buckets need all blocks."""
    dp = layout.dp if layout.zero or layout.ep > 1 else min(layout.dp, 2)
    few: dict[str, Any] = {"sequence_parallel": False, "recompute": False, "micro_batches": 1}
    cp = layout.cp if layout.zero and layout.dp == 1 else min(layout.cp, 2)
    hosts = layout.hosts
    layout = replace(layout, dp=dp, pp=1, cp=cp, schedule="1f1b", chunks=1, hosts=1, **few)
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

"""Dry runs of one micro-batch: a model's own code runs forward and backward on a mesh without
values. The tape records the bytes that it holds and sends, and the flops that it does.

Only one block of a model is run, and its figures are used for all blocks. Memory may be highest in
the backward of the last block, while all other blocks still keep activations, or in the backward
of the first block, when all other blocks have gradients. The figures of the one block serve for
both cases."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ttkit.layouts.recording import (
    INPUT,
    LATER,
    OUTPUT,
    DryRun,
    Ends,
    Recording,
    Sends,
    dry_run,
    is_on,
    is_repeated,
)
from ttkit.layouts.simulated import with_simulator
from ttkit.sim.ops import OPERATIONS
from ttkit.sim.ops.work import work_of
from ttkit.sim.tape import DescribedTensor, Event, TapeWithoutValues, stored_bytes
from ttkit.train.autograd import Tensor, Value, recorded
from ttkit.train.config.layout import TILE, Layout
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.model.models import Transformer, create_model
from ttkit.train.model.modules import HEAD, Parameter
from ttkit.train.parallel.distributed import mean_over_replicas

Array = np.ndarray


def part_of(parameter: str) -> str:
    """Return the part of a step that uses a parameter first."""
    kind = parameter.split(".")[0]
    return {"blocks": "block", "norm": "head"}.get(
        kind, "head" if parameter == HEAD else "embedding"
    )


def _marked(x: Tensor, run: DryRun, part: str) -> Tensor:
    """Return the same tensor, recorded so that `part` begins once its gradient is complete."""

    def backward(grad: Value) -> list[Value]:
        run.begin(part)
        return [grad]

    return recorded("mark", x.get_value(), [x], backward)


def _mark_parts(model: Transformer, run: DryRun, again: bool) -> None:
    """Wrap the embedding and the only block of a model, so that they begin the parts of the step.

    Args:
        again: whether backward recomputes the block, and so calls it a second time.
    """
    embed = model.embed
    (block,) = model.blocks.values()
    forward = block.forward

    def marked(x: Tensor, cache=None) -> Tensor:
        if run.calls.part != "embedding":
            run.begin("block backward")
            return forward(x, cache)
        x.get_value()._allocation.give_to(INPUT)
        run.begin("block")
        y = forward(x, cache)
        y.get_value()._allocation.give_to(OUTPUT)
        run.edge = stored_bytes([y.get_value()])
        run.begin("head")
        return y if again else _marked(y, run, "block backward")

    vars(model)["embed"] = lambda ids, cache: _marked(embed(ids, cache), run, "embedding backward")
    vars(block)["forward"] = marked


def _pass(model: Transformer, run: DryRun, rows: int) -> None:
    """Run one micro-batch forward and backward, as `Trainer` and the pipeline's `Stage` do."""
    layout = model.layout
    config = model.config
    length = config.max_sequence_length // layout.cp
    if model.is_first:
        start: Any = run.tokens(rows, length)
    else:
        length //= layout.tp if layout.sequence_parallel else 1
        start = Tensor(run.new((rows, 1, length, config.embedding_dim)))
        start = _marked(start, run, "embedding backward")
    end = model(start)
    del start
    if model.is_last:
        end = model.loss(end, run.tokens(rows, config.max_sequence_length // layout.cp))
        run.begin("head mean")
        mean_over_replicas(end, layout)
    run.begin("end of forward")
    run.begin("head")
    total = end
    if not model.is_last:
        end.set_grad(run.new(end.shape()))
    elif layout.micro_batches > 1:
        run.begin("head scale")
        scaled = _marked(end, run, "head") * (1 / layout.micro_batches)
        run.begin("head")
        total = _marked(scaled, run, "head scale")
    total.backward()


def model_of(
    config: TransformerConfig, run: DryRun, ends: Ends, recompute: bool = False
) -> Transformer:
    """Construct the part of a model that a stage with these ends has. The `num_blocks` of `config`
    are the blocks of the stage."""
    start = 0 if ends[0] else 1
    blocks = range(start, start + config.num_blocks)
    count = blocks.stop + (not ends[1])
    runner: Any = "memory_efficient" if recompute else "default"
    config = replace(config, num_blocks=count, runner_type=runner)
    model = create_model(config, run.layout, blocks)
    for name, parameter in model.parameters().items():
        run.calls.mesh.owner = part_of(name)
        sharded = parameter.is_sharded
        parameter.set_value(run.new(parameter.shard_shape if sharded else parameter.local_shape))
    model.train()
    return model


class Pass(NamedTuple):
    """Forward and backward of a micro-batch through one block.

    Attributes:
        in_use: bytes held after each call, without the optimizer's state, [2, calls]. The first row
            is for the first micro-batch, before which there are no gradients; the second row is
            for the other micro-batches.
        kept: for each call, whether it comes after the forward and before the backward of the
            earlier blocks, while their activations are in memory.
        back: for each call, whether it may come after the backward of the later blocks.
        at: bytes held where each part began, in the first micro-batch and in the others.
        constants: bytes of attention masks, rotary angles and token ids of the logits, which are in
            memory from the first step on.
        sends: the collectives.
        repeated, forward: for each call that computes or moves something on a chip, whether it runs
            once in each block, and whether it belongs to forward.
        flops, moved: for the same calls, the flops of their tiles, and the bytes that they read and
            write in DRAM.
        multiplied: for the same calls, the flops of the values of a matmul, or 0 for other calls.
    """

    in_use: Array
    kept: Array
    back: Array
    at: dict[str, list[int]]
    constants: int
    sends: Sends
    repeated: Array
    forward: Array
    flops: Array
    moved: Array
    multiplied: Array


def give_grads(parameters: Mapping[str, Parameter], run: DryRun, later: str = "") -> None:
    """Give parameters the gradients that earlier micro-batches have left.

    Args:
        later: with `LATER` these gradients, and those added to them, count only from the second
            micro-batch on; with "" they always count.
    """
    for name, parameter in parameters.items():
        run.calls.mesh.owner = owner = part_of(name) + later
        sharded = parameter.zero_dim is not None and run.layout.zero >= 2
        grad = run.new(parameter.shard_shape if sharded else parameter.local_shape)
        parameter.set_grad(_Earlier(grad, owner, run.calls) if later else grad)


@dataclass
class _Earlier:
    """A gradient that earlier micro-batches have left. Another gradient is added to it.

    The first micro-batch has neither this gradient nor a sum: the new gradient itself stays in
    memory, where the sum is in later micro-batches, and has the same size. So the bytes of the sum
    count in all micro-batches, and the bytes of the two terms only in the later ones.
    """

    grad: Value
    owner: str
    calls: TapeWithoutValues

    def __add__(self, grad: Value) -> Value:
        grad._allocation.give_to(self.owner)
        self.calls.part += LATER
        total = self.grad + grad
        self.calls.part = self.calls.part.removesuffix(LATER)
        return total


@functools.lru_cache(1024)
def _run(
    config: TransformerConfig, layout: Layout, ends: Ends, rows: int
) -> tuple[Recording, list[tuple[str, int]]]:
    """Run one micro-batch, with `rows` sequences in each replica, as in a step after the first.

    Returns:
        The recording; the part and the bytes of each constant. The first step puts the constants on
        the mesh, and they stay there, so the recording counts them from its beginning.
    """
    with dry_run(layout) as run:
        model = model_of(config, run, ends, layout.recompute)
        parameters = model.parameters()
        if layout.micro_batches > 1:
            give_grads(parameters, run, LATER)
        _mark_parts(model, run, layout.recompute)
        first = len(run.calls.events)
        if any(ends):
            run.begin("numbers")
            # The property makes the numbers when it is first read.
            model.vocabulary.numbers  # noqa: B018
        run.begin("embedding")
        _pass(model, run, rows)
        run.calls.mesh.used["stage"] = 0
        stay = [
            (number, event.part, stored_bytes(event.results))
            for number, event in enumerate(run.calls.events[first:])
            if OPERATIONS[event.name].kind == "write" and event.result.tensor() is not None
        ]
        # The block is freed here. The bytes that this frees are those that a block keeps from one
        # step to the next.
        run.begin("without block")
        vars(model.blocks.popitem()[1]).clear()
        del parameters
        run.begin("end")
        recording = Recording(run, first)
    for number, part, nbytes in stay:
        recording.held[recording.after <= number, recording.owners.index(part)] += nbytes
    return recording, [(part, nbytes) for _, part, nbytes in stay]


# All tensors whose sizes do not depend on the number of rows have fewer bytes than this in all.
MOST = 1 << 35


@functools.lru_cache(4096)
@with_simulator
def pass_of(config: TransformerConfig, layout: Layout, ends: Ends, rows: int) -> Pass:
    """Return the pass of a micro-batch of `rows` sequences in each replica, in a step after the
    first.

    One dry run serves all stages, all numbers of micro-batches and all numbers of rows. It has so
    many rows that the bytes of all rows are a multiple of `MOST`. All other bytes are fewer than
    `MOST`, so one division separates the two. Dimensions with rows are also longer than all others.
    These cases have a dry run for their own number of rows: rows that are not whole tiles; experts,
    whose slots may share a tile; one row with positions, whose gradients need no sum; and models
    for which the arrays of the large run would be too long.
    """
    length = config.max_sequence_length // layout.cp
    length //= layout.tp if layout.sequence_parallel else 1
    has_positions = config.model_type == "gpt2" and ends[0]
    # The bytes of one row in any tensor are a multiple of this: a row has whole tiles, of 2048
    # bytes in bfloat16 and 4096 in float32, or token ids of 4 bytes.
    unit = math.gcd(2048, 4 * config.max_sequence_length // layout.cp)
    many = MOST // unit
    # An array must have fewer than 2**63 bytes. Only the scores of attention may have more, because
    # they grow with the square of the sequence.
    too_many = many * config.num_heads * config.max_sequence_length**2 >= 1 << 60
    if length % TILE or config.num_experts or (rows == 1 and has_positions) or too_many:
        many, unit = rows, 0
    both, like = ends, layout
    # The backward of experts differs on a stage without the loss, because the loss includes their
    # balance losses. All other models run with both ends, and each stage takes its share.
    if not config.num_experts:
        both = (True, True)
        like = replace(layout, micro_batches=2)
        # A second replica changes one thing: the loss is averaged (the part "head mean"). `is_on`
        # leaves that part out again.
        if layout.dp == layout.cp == 1:
            like = replace(like, dp=2, zero=0)
    return _share((config, like, both, many), layout, ends, rows, unit)


def _share(run: tuple, layout: Layout, ends: Ends, rows: int, unit: int = 0) -> Pass:
    """Return the share of a dry run that belongs to a stage, for `rows` rows.

    Args:
        run: the arguments of `_run`.
        unit: a divisor of the bytes of each row if the run has another number of rows; else 0.
    """
    recording, constants = _run(*run)
    runs = is_on(layout, ends)
    calls, sends, held = recording.share(runs)

    def of_rows(nbytes: Any) -> Any:
        of_a_row, others = divmod(nbytes, MOST)
        return others + of_a_row * unit * rows if unit else nbytes

    held, works = of_rows(held), _works(run, rows)
    done = calls & (works[:, 0] >= 0)
    forward = recording.after[len(calls) + recording.moments.index("end of forward")]
    return Pass(
        held[: len(calls)][calls].T,
        recording.where(lambda part: not part.startswith(("embedding", "numbers")))[calls],
        recording.where(lambda part: "backward" in part)[calls],
        dict(zip(recording.moments, held[len(calls) :].tolist())),
        sum(nbytes for part, nbytes in constants if runs(part)),
        tuple((*send[:3], of_rows(send[3])) for send in sends),
        recording.where(is_repeated)[done],
        np.flatnonzero(done) < forward,
        *works[done].T,
    )


NOTHING = -1, 0, 0
# The outer key is (rows in the dry run, rows wanted). The inner key is the id of the keyword
# arguments of a call; repeated calls share one dict of them. The value also holds this dict, so
# that no other object can get its id.
_known_works: dict[tuple[int, int], dict[int, tuple[Any, tuple[int, int, int]]]] = {}


@functools.lru_cache(4096)
def _works(run: tuple, rows: int) -> Array:
    """Return the work of each call of a run if it had `rows` rows: the flops of its tiles, the
    bytes that it moves, and the flops of its values if it is a matmul. Collectives, transfers from
    or to the host, and calls that do nothing on a chip have `NOTHING`.
    """
    many = run[-1]
    works = []
    known = _known_works.setdefault((many, rows), {})
    for event in _run(*run)[0].events:
        key = id(event.kwargs)
        if key not in known:
            known[key] = event.kwargs, _work(event, rows, many)
        works.append(known[key][1])
    return np.array(works)


def _with_rows(value: Any, rows: int, many: int) -> Any:
    """Return an argument or a result of a call as it is with `rows` rows in place of `many`."""
    if many == rows:
        return value
    if isinstance(value, DescribedTensor):
        shapes = (value.shard_shape, value.padded)
        real, padded = (tuple(n // many * rows if n >= many else n for n in s) for s in shapes)
        return value._replace(shard_shape=real, padded=padded)
    if type(value) in (list, tuple):
        return type(value)(_with_rows(each, rows, many) for each in value)
    return value


def _work(event: Event, rows: int, many: int) -> tuple[int, int, int]:
    operation = OPERATIONS[event.name]
    if operation.kind in ("write", "read", "collective"):
        return NOTHING
    args, result = (_with_rows(each, rows, many) for each in (event.args, event.result))
    kwargs = {key: _with_rows(value, rows, many) for key, value in event.kwargs.items()}
    work = work_of(Event(event.name, args, kwargs, event.part, result), operation)
    if not work:
        return NOTHING
    return work.flops_of_tiles, work.moved, work.flops if operation.kind == "product" else 0

"""A model's own code, run on tensors without values: a micro-batch forward and backward, and what
follows the last backward.

Two blocks of a model at most are run. The last one is marked on the tape: it stands for all others
but the first."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ttkit.layouts.shapes import Mesh, Tape, Value, dtype_named, without_values
from ttkit.train.autograd.tensor import Tensor, no_grad, recorded
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TrainingConfig, TransformerConfig
from ttkit.train.model.models import Block, Transformer, create_model
from ttkit.train.model.parameter import Parameter
from ttkit.train.parallel.data_parallel import average_gradients
from ttkit.train.parallel.distributed import mean_over_groups
from ttkit.train.run.optimizers import clip_grad_norm, make_optimizer

AXES = ("dp", "cp", "tp")  # a mesh without chips has an axis for each
# the parts of a step in which the blocks before the marked one are kept, and those of that block
KEPT = ("block", "head", "block backward")
REPEATED = ("block", "block backward", "block gradients", "block optimizer")
Ends = tuple[bool, bool]  # whether a stage has the first part of the model, and the last one


class Planned(Layout):
    """A layout on a mesh without chips."""

    @property
    def dtype(self) -> Any:
        """The type of weights and activations."""
        return dtype_named(self.precision)

    def mapper(
        self, tp_dim: int | None = None, dp_dim: int | None = None, cp_dim: int | None = None
    ) -> list[tuple[int, int]]:
        """Return the dimensions that are cut, and into how many parts."""
        cuts = (tp_dim, self.tp), (dp_dim, self.dp), (cp_dim, self.cp)
        return [(dim, size) for dim, size in cuts if dim is not None]


def planned(layout: Layout, tape: Tape) -> Planned:
    """Return a layout on a mesh of one axis for each of `AXES`."""
    sizes = layout.dp, layout.cp, layout.tp
    pairs = enumerate(zip(AXES, sizes))
    axes = tuple((name, axis) for axis, (name, size) in pairs if size > 1)
    return Planned(**{**vars(layout), "axes": axes, "device": Mesh(sizes, tape)})


class _Marked:
    """A block whose forward and backward are parts on the tape.

    Args:
        first: it comes before the marked one: only the begin of its backward matters.
        again: backward computes blocks again, and so calls them a second time.
    """

    def __init__(self, block: Block, tape: Tape, first: bool, again: bool):
        self.block, self.tape, self.first, self.again = block, tape, first, again

    def __getattr__(self, name: str) -> Any:
        return getattr(self.block, name)

    def __call__(self, x: Tensor, cache: Any = None) -> Tensor:
        forward = self.tape.part == "start"
        if not forward:
            self.tape.begin("rest" if self.first else "block backward")
        if self.first:
            return self.block(x, cache)  # type: ignore[no-any-return]
        if forward:
            self.tape.begin("block")
        y = self._mark(self.block(self._mark(x, "rest")), "block backward")
        if forward:
            self.tape.begin("head")
        return y

    def _mark(self, x: Tensor, part: str) -> Tensor:
        """The same tensor; `part` begins where its gradient is complete."""

        def backward(grad: Value) -> list[Value]:
            if not self.again:
                self.tape.begin(part)
            return [grad]

        return recorded("mark", x.get_value(), [x], backward)


def _stored(parameter: Parameter) -> Value:
    """What a chip has of a parameter between steps."""
    return Tensor.get_value(parameter)


def _place(layout: Layout, parameter: Parameter) -> None:
    shape = parameter.shard_shape if parameter.is_sharded else parameter.local_shape
    parameter.set_value(Value(layout.device, shape, layout.dtype))


def _pass(model: Transformer, tape: Tape, rows: int, parts: int) -> None:
    """Go forward and, where gradients are recorded, backward, as `Trainer` and `Stage` do."""
    layout, config = model.layout, model.config
    length = config.max_sequence_length
    ids = np.empty((rows * layout.dp, 1, 1, length), np.uint32)
    if model.is_first:
        start: Any = layout.tokens(ids)
    else:
        length //= layout.cp * (layout.tp if layout.sequence_parallel else 1)
        shape = (rows, 1, length, config.embedding_dim)
        start = Tensor(Value(layout.device, shape, layout.dtype))
    end = model(start)
    del start
    if model.is_last:
        end = model.loss(end, layout.tokens(ids))
        mean_over_groups(end, layout)
    tape.at["end of forward"] = len(tape.events)
    if not end.get_requires_grad():
        return
    if model.is_last:
        (end * (1 / parts) if parts > 1 else end).backward()
    else:
        end.set_grad(end.get_value().like(end.shape()))
        end.backward()


def _model(
    config: TransformerConfig, layout: Layout, ends: Ends, recompute: bool = False
) -> Transformer:
    """Construct a stage with those ends of the model; `config` has as many blocks as it."""
    start = 0 if ends[0] else 1
    blocks = range(start, start + config.num_blocks)
    count = blocks.stop + (not ends[1])
    runner: Any = "memory_efficient" if recompute else "default"
    model = create_model(replace(config, num_blocks=count, runner_type=runner), layout, blocks)
    for parameter in model.parameters().values():
        _place(layout, parameter)
    model.train()
    return model


class Pass(NamedTuple):
    """Forward and backward of a micro-batch through two blocks.

    Attributes:
        kept, rest: of each event, whether it was while the blocks before the marked one are kept,
            or after the marked one's backward.
        sends, multiplied: of each of `sent`, and of each product, in which part of a step it was;
            of a collective, its name and axis, too.
        at: the number of the event with which a part began.
        events: bytes that were allocated; below 0, given back.
        sent: bytes of a chip's shard, of each collective.
        flops: of each product.
        first, second, result: bytes of its operands and its result.
    """

    kept: np.ndarray
    rest: np.ndarray
    sends: tuple[tuple[str, str, int], ...]
    multiplied: tuple[str, ...]
    at: dict[str, int]
    events: np.ndarray
    sent: np.ndarray
    flops: np.ndarray
    first: np.ndarray
    second: np.ndarray
    result: np.ndarray

    @property
    def in_use(self) -> np.ndarray:
        """Bytes held before each event, and after the last, without the optimizer's state."""
        return np.concatenate([[0], np.cumsum(self.events)])

    @property
    def moved(self) -> np.ndarray:
        """Bytes that each product reads and writes."""
        return self.first + self.second + self.result


def _bytes(values: Iterable[Value | None]) -> int:
    return sum(value.nbytes for value in values if value is not None)


def _marked(parameters: Mapping[str, Parameter], model: Transformer) -> dict[str, Parameter]:
    """Return the parameters of the marked block."""
    prefix = f"blocks.{max(model.blocks)}."
    return {name: each for name, each in parameters.items() if name.startswith(prefix)}


def _give_grads(parameters: Mapping[str, Parameter], layout: Layout) -> None:
    for parameter in parameters.values():
        in_parts = parameter.zero_dim is not None and layout.zero >= 2
        shape = parameter.shard_shape if in_parts else parameter.local_shape
        parameter.set_grad(_stored(parameter).like(shape))


@functools.lru_cache(maxsize=1024)
def pass_of(config: TransformerConfig, layout: Layout, ends: Ends, rows: int) -> Pass:
    """Run a micro-batch of so many sequences in each replica, of a step after the first."""
    tape = Tape()
    with without_values():
        model = _model(config, planned(layout, tape), ends, layout.recompute)
        parameters = model.parameters()
        tape.begin("constants")
        with no_grad():  # which makes masks, angles and numbers
            _pass(model, tape, rows, layout.micro_batches)
        tape.begin("gradients")
        if layout.micro_batches > 1:
            _give_grads(parameters, model.layout)
        for index, block in model.blocks.items():
            marked = _Marked(block, tape, index != max(model.blocks), layout.recompute)
            model.blocks[index] = marked  # type: ignore[assignment]
        del tape.sent[:], tape.products[:]
        tape.begin("start")
        _pass(model, tape, rows, layout.micro_batches)
        if layout.micro_batches == 1:
            for parameter in parameters.values():
                parameter.set_grad(None)
        # the marked block goes, and with it all that it has from step to step
        tape.begin("without block")
        del model.blocks[index], block, marked, parameters
        tape.begin("end")
        products = list(zip(*tape.products)) or [()] * 5
        numbers: list[Any] = [
            [nbytes for _, nbytes in tape.events],
            [each.nbytes for each in tape.sent],
            *products[1:],
        ]
        kept = np.array([part in KEPT for part, _ in tape.events])
        rest = np.array([part == "rest" for part, _ in tape.events])
    sends = tuple((each.part, each.collective, each.axis) for each in tape.sent)
    arrays = (np.array(each, np.int64) for each in numbers)
    return Pass(kept, rest, sends, products[0], tape.at, *arrays)


class Update(NamedTuple):
    """What follows the last backward, of two blocks and the ends: averaged gradients, optimizer.

    Attributes:
        sends: (part, collective, axis, bytes) of each collective.
        state, block: bytes of weights, gradients and optimizer; of all, and of a block.
        most: bytes beside them, at most.
        others: blocks that are like the marked one and not counted.
    """

    sends: tuple[tuple[str, str, int, int], ...]
    state: tuple[int, int, int]
    block: tuple[int, int, int]
    most: int
    others: int = 0

    @property
    def of_all(self) -> tuple[int, int, int]:
        """Bytes of weights, gradients and optimizer of all blocks."""
        both = zip(self.state, self.block)
        weights, gradients, optimizer = (all_ + self.others * one for all_, one in both)
        return weights, gradients, optimizer


@functools.lru_cache(maxsize=1024)
def update_of(
    config: TransformerConfig, layout: Layout, ends: Ends, how: tuple[Any, ...]
) -> Update:
    tape, (clips, norm, optimizer, bucket_mb) = Tape(), how
    given = {"optimizer": dict(optimizer)} if optimizer else {}
    training = TrainingConfig(precision=layout.precision, **given)  # type: ignore[arg-type]
    with without_values():
        model = _model(config, planned(layout, tape), ends)
        parameters = model.parameters()
        mine = _marked(parameters, model)
        others = {name: each for name, each in parameters.items() if name not in mine}
        update = make_optimizer(training, parameters)
        for _ in range(2):  # the optimizer's state is made in the first step
            _give_grads(parameters, model.layout)
            made = [_bytes(p.get_grad() for p in group.values()) for group in (parameters, mine)]
            del tape.sent[:]
            start = len(tape.events)
            if bucket_mb:
                tape.part = "gradients"
                average_gradients(parameters, None, bucket_mb)
            for tape.part, group in (("gradients", others), ("block gradients", mine)):
                if not bucket_mb:
                    average_gradients(group)
            for tape.part, group in (("norm", others), ("block gradients", mine)):
                if clips:
                    clip_grad_norm(group, norm)
            for tape.part, group in (("optimizer", others), ("block optimizer", mine)):
                update.parameters = group
                update.step()
        state = update.state.items()
        of = [
            (
                _bytes(map(_stored, group.values())),
                grads,
                _bytes(value for key, value in state if key.split("/", 1)[1] in group),
            )
            for group, grads in zip((parameters, mine), made)
        ]
        in_use = np.cumsum([nbytes for _, nbytes in tape.events])
        most = int(in_use[start - 1 :].max()) - sum(of[0])
    return Update(tuple(tape.sent), of[0], of[1], most)

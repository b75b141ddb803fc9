"""A model's own code, run on a mesh without values: a micro-batch forward and backward. What it
held, sent and multiplied is read from the tape.

One block of a model is run. It stands for all of them: as the last one, whose backward finds what
all others keep, and as the first one, whose backward finds the gradients of all others."""

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ttkit import backend, ttnn
from ttkit.errors import fail
from ttkit.sim.mesh.opening import without_values
from ttkit.sim.ops import OPERATIONS
from ttkit.sim.ops.work import work_of
from ttkit.sim.tape import DescribedTensor, Event, Tape, stored_bytes
from ttkit.sim.tensor.tensor import most_in_use
from ttkit.train.autograd import Tensor, Value, recorded
from ttkit.train.config.layout import TILE, Layout
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.model.models import Transformer, create_model
from ttkit.train.model.modules import Parameter
from ttkit.train.parallel.distributed import mean_over_replicas

# HOLDS_EARLIER_BLOCKS: in these parts of a step the activations of the blocks before this one are
# in memory.
# REPEATED: these parts run once in each block, so their collectives are counted for each.
HOLDS_EARLIER_BLOCKS = ("block", "head", "block backward")
REPEATED = ("block", "block backward", "block gradients", "block norm", "block optimizer")
FORWARD = ("start", "block")
# The two values say whether a stage has the embedding, and whether it has the head.
Ends = tuple[bool, bool]
# An entry is a collective: the part of the step, its name, its axis's strategy, bytes of a shard.
Sends = tuple[tuple[str, str, str, int], ...]


class Snapshot(NamedTuple):
    """A moment of a dry run: the calls so far, the bytes in use, and those of them that exist only
    from the second micro-batch on.
    """

    calls: int
    in_use: int
    earlier: int


@dataclass
class DryRun:
    """A layout on a mesh without values, while its tape records.

    Attributes:
        layout: on the mesh.
        at: where each part of the step began.
        earlier: bytes of the gradients that the first micro-batch does not have here.
        sums: of each call that has added to a gradient: its number, that of the calls before what
            it added was freed, and the bytes of a gradient.
    """

    layout: Layout
    calls: Tape
    at: dict[str, Snapshot] = field(default_factory=dict)
    earlier: int = 0
    sums: list[tuple[int, int, int]] = field(default_factory=list)

    def begin(self, part: str) -> None:
        """Name the part of a step that follows; where it began first counts."""
        self.calls.part = part
        self.at.setdefault(part, self.snapshot())

    def snapshot(self) -> Snapshot:
        """Return how much has been called, and is in use, so far."""
        return Snapshot(len(self.calls.events), most_in_use(self.layout.device), self.earlier)

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
        return ttnn.empty(
            list(shape), dtype=self.layout.dtype, layout=ttnn.TILE_LAYOUT, device=self.layout.device
        )

    def tokens(self, rows: int, length: int) -> Value:
        """Return tokens as each chip has them."""
        return ttnn.empty(
            [rows, 1, 1, length],
            dtype=ttnn.uint32,
            layout=ttnn.ROW_MAJOR_LAYOUT,
            device=self.layout.device,
        )


@contextmanager
def dry_run(layout: Layout) -> Iterator[DryRun]:
    """Open a mesh without values for a layout, with a mesh axis for each strategy that is on."""
    if not backend.is_simulated():
        rule = "the trainer's calls run on the simulator's mesh without values"
        fail(f"plan {layout}", rule, "TTKIT_BACKEND=sim for the process that plans")
    rows, columns = [*(n for n in (layout.dp, layout.cp, layout.tp) if n > 1), 1, 1][:2]
    with without_values((rows, columns)) as (mesh, calls):
        yield DryRun(replace(layout, axes=None).on(mesh), calls)


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
    length = config.max_sequence_length // layout.cp
    if model.is_first:
        start: Any = run.tokens(rows, length)
    else:
        length //= layout.tp if layout.sequence_parallel else 1
        start = Tensor(run.new((rows, 1, length, config.embedding_dim)))
        start = _marked(start, run, "rest")
    end = model(start)
    del start
    if model.is_last:
        end = model.loss(end, run.tokens(rows, config.max_sequence_length // layout.cp))
        mean_over_replicas(end, layout)
    run.at["end of forward"] = run.snapshot()
    if model.is_last:
        (end * (1 / parts) if parts > 1 else end).backward()
    else:
        end.set_grad(run.new(end.shape()))
        end.backward()


def model_of(
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
        repeated, forward: whether each runs once in each block, and before the loss.
        flops, moved: the flops of its tiles, and the bytes that it reads and writes in DRAM.
        multiplied: the flops of its values if it is a matmul, else 0.
    """

    repeated: np.ndarray
    forward: np.ndarray
    flops: np.ndarray
    moved: np.ndarray
    multiplied: np.ndarray


class Pass(NamedTuple):
    """Forward and backward of a micro-batch through one block.

    Attributes:
        in_use: bytes held after each call, without the optimizer's state: in the first micro-batch,
            before which there are no gradients, and in the others; [2, calls].
        kept: for each call, whether it comes before the backward of the earlier blocks, whose
            activations are then in memory.
        back: for each call, whether it may come after the backward of the later blocks.
        at: bytes held where each part began, in the first micro-batch and in the others.
        constants: bytes of masks, angles and numbers, which are there from the first step on.
        sends: the collectives.
        computed: the calls that compute or move something on a chip.
    """

    in_use: np.ndarray
    kept: np.ndarray
    back: np.ndarray
    at: dict[str, tuple[int, int]]
    constants: int
    sends: Sends
    computed: Computed


def give_grads(
    parameters: Mapping[str, Parameter],
    run: DryRun,
    kind: Callable[[Value], Any] = lambda grad: grad,
) -> None:
    """Give parameters gradients as earlier micro-batches leave them; `kind` may wrap each."""
    for parameter in parameters.values():
        sharded = parameter.zero_dim is not None and run.layout.zero >= 2
        grad = run.new(parameter.shard_shape if sharded else parameter.local_shape)
        parameter.set_grad(kind(grad))


class _Earlier:
    """A gradient of earlier micro-batches; notes when what is added to it is freed, since the first
    micro-batch keeps that as its gradient.
    """

    def __init__(self, grad: Value, run: DryRun):
        self.grad, self.run = grad, run
        run.earlier += stored_bytes([grad])

    def __add__(self, grad: Value) -> Value:
        total, nbytes, run = self.grad + grad, stored_bytes([self.grad]), self.run
        number = len(run.calls.events) - 1

        def freed() -> None:
            run.earlier -= nbytes
            run.sums.append((number, len(run.calls.events), nbytes))

        weakref.finalize(grad, freed)
        return total


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
def _run(
    config: TransformerConfig, layout: Layout, ends: Ends, rows: int
) -> tuple[Pass, list[Event]]:
    """Run a micro-batch of `rows` sequences in each replica, of a step after the first."""
    with dry_run(layout) as run:
        model = model_of(config, run, ends, layout.recompute)
        parameters = model.parameters()
        if layout.micro_batches > 1:
            give_grads(parameters, run, lambda grad: _Earlier(grad, run))
        _mark_parts(model, run, layout.recompute)
        run.begin("start")
        first = len(run.calls.events)
        _pass(model, run, rows, layout.micro_batches)
        events = run.calls.events[first:]
        later = _constants(events)
        # What freeing the block saves is what a block keeps from step to step.
        run.begin("without block")
        vars(model.blocks.popitem()[1]).clear()
        del parameters
        run.begin("end")
    in_use = np.array([[event.in_use for event in events]] * 2)
    for _, freed, nbytes in run.sums:
        in_use[0, : freed - first] -= nbytes
    # The first micro-batch makes no sums.
    in_use[0, [number - first for number, _, _ in run.sums]] = 0
    at = {}
    for part, snapshot in run.at.items():
        held = snapshot.in_use + int(later[max(snapshot.calls - first, 0)])
        at[part] = held - snapshot.earlier, held
    found = Pass(
        in_use=in_use + later[1:],
        kept=np.array([event.part in HOLDS_EARLIER_BLOCKS for event in events]),
        back=np.array([event.part in ("block backward", "rest") for event in events]),
        at=at,
        constants=int(later[0]),
        sends=run.sends(events),
        computed=Computed(*np.zeros((5, 0))),
    )
    return found, events


MOST = 1 << 35  # A chip has fewer bytes of what does not depend on the number of rows.


@functools.lru_cache(maxsize=4096)
def pass_of(config: TransformerConfig, layout: Layout, ends: Ends, rows: int) -> Pass:
    """Return a micro-batch of `rows` sequences in each replica, of a step after the first.

    One dry run serves all numbers of rows. It has so many of them that the bytes of rows exceed
    `MOST`, and dimensions with rows all others. This needs rows of whole tiles; an expert's slots
    may share one, and a single row has no gradients of positions to add up.
    """
    length = config.max_sequence_length // layout.cp
    length //= layout.tp if layout.sequence_parallel else 1
    has_positions = config.model_type == "gpt2" and ends[0]
    # All bytes of a row are a multiple of this: of a tile in bfloat16, or of the tokens.
    unit = math.gcd(2048, 4 * config.max_sequence_length // layout.cp)
    many = MOST // unit
    # An array has less than 2**63 bytes, and attention's scores are the largest.
    too_many = many * config.num_heads * config.max_sequence_length**2 >= 1 << 60
    if length % TILE or config.num_experts or (rows == 1 and has_positions) or too_many:
        found, events = _run(config, layout, ends, rows)
        return found._replace(computed=computed(events, rows, MOST))
    found, events = _run(config, layout, ends, many)

    def of_rows(nbytes: Any) -> Any:
        of_a_row, others = divmod(nbytes, MOST)
        return others + of_a_row * unit * rows

    return found._replace(
        in_use=of_rows(found.in_use),
        at={part: (of_rows(first), of_rows(other)) for part, (first, other) in found.at.items()},
        sends=tuple((*send[:3], of_rows(send[3])) for send in found.sends),
        computed=computed(events, rows, many),
    )


# The keys are numbers of rows, then ids of keyword arguments, which repeated calls share and keep.
# The values have flops of tiles, bytes moved, and flops of values of a matmul.
_works: dict[tuple[int, int], dict[int, tuple[Any, tuple[int, int, int] | None]]] = {}


def _with_rows(value: Any, rows: int, many: int) -> Any:
    """Return an argument or a result with another number of rows."""
    if isinstance(value, DescribedTensor):
        shapes = (value.shard_shape, value.padded)
        real, padded = (tuple(n // many * rows if n >= many else n for n in s) for s in shapes)
        return value._replace(shard_shape=real, padded=padded)
    if type(value) in (list, tuple):
        return type(value)(_with_rows(each, rows, many) for each in value)
    return value


def _work(event: Event, rows: int, many: int) -> tuple[int, int, int] | None:
    operation = OPERATIONS[event.name]
    if operation.kind in ("write", "read", "collective"):
        return None
    args, result = (_with_rows(each, rows, many) for each in (event.args, event.result))
    kwargs = {key: _with_rows(value, rows, many) for key, value in event.kwargs.items()}
    if not (work := work_of(replace(event, args=args, kwargs=kwargs, result=result), operation)):
        return None
    return work.flops_of_tiles, work.moved, work.flops if operation.kind == "product" else 0


def computed(events: Iterable[Event], rows: int, many: int) -> Computed:
    """Return the calls among some events that compute or move something on a chip.

    Args:
        rows: the number of rows to count.
        many: the number of rows in the events.
    """
    parts, works, known = [], [], _works.setdefault((rows, many), {})
    for event in events:
        key = id(event.kwargs)
        if key not in known:
            known[key] = event.kwargs, _work(event, rows, many)
        if work := known[key][1]:
            parts.append(event.part)
            works.append(work)
    repeated, forward = (np.array([p in some for p in parts]) for some in (REPEATED, FORWARD))
    return Computed(repeated, forward, *np.array(works).T)

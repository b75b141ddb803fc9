"""A model's own code, run on a mesh without values: a micro-batch forward and backward. What it
held, sent and multiplied is read from the tape.

One block of a model is run. It stands for all of them: for the last one, in whose backward all
others keep activations, and for the first one, in whose backward all others have gradients."""

import functools
import itertools
import math
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
from ttkit.sim.tape import DescribedTensor, Event, TapeWithoutValues, stored_bytes
from ttkit.train.autograd import Tensor, Value, recorded
from ttkit.train.config.layout import TILE, Layout
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.model.models import Transformer, create_model
from ttkit.train.model.modules import HEAD, Parameter
from ttkit.train.parallel.distributed import mean_over_replicas

# A tensor counts under the part that makes it. Only these have owners of their own: the block's
# input, its output, and a gradient of earlier micro-batches with what is added to it.
INPUT, OUTPUT, LATER = "block input", "head input", " later"
# The two values say whether a stage has the embedding, and whether it has the head.
Ends = tuple[bool, bool]
# An entry is a collective: the part of the step, its name, its axis's strategy, bytes of a shard.
Sends = tuple[tuple[str, str, str, int], ...]


def is_repeated(part: str) -> bool:
    """Return whether a part runs once in each block, so that its collectives count for each."""
    return part.startswith("block")


def is_on(layout: Layout, ends: Ends) -> Callable[[str], bool]:
    """Return a test of parts: a stage with those ends runs it, or has what it makes in memory."""
    embeds, has_head = ends
    # A part's name begins with a key: "stage" is of stages without the head, "numbers" of tokens.
    on = {"embedding": embeds, "block": True, "head": has_head, "stage": not has_head}
    on["numbers"] = has_head or (embeds and layout.tp > 1)
    without: tuple[str, ...] = (LATER, "scale") if layout.micro_batches == 1 else ()
    without += ("mean",) if layout.dp == layout.cp == 1 else ()
    return functools.cache(
        lambda part: on.get(part.split()[0], False) and not part.endswith(without)
    )


@dataclass
class DryRun:
    """A layout on a mesh without values, while its tape records.

    Attributes:
        layout: the layout, placed on the mesh.
        at: where each part of the step began: the number of calls before, and bytes by owner.
        edge: bytes of the block's output.
    """

    layout: Layout
    calls: TapeWithoutValues
    at: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    edge: int = 0

    def begin(self, part: str) -> None:
        """Name the part of a step that follows; `at` keeps where it began first."""
        if part in ("head", "block backward") and part not in self.at:
            # A stage without the head keeps its output, then the gradient that it is given, too.
            self.calls.mesh.used["stage"] += self.edge
        self.at.setdefault(part, (len(self.calls.events), [*self.calls.mesh.used.values()]))
        self.calls.part = self.calls.mesh.owner = part

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


class Recording:
    """What a dry run did.

    Args:
        first: the number of its first call that counts.

    Attributes:
        events, sends: the calls and their collectives.
        names, parts: the parts of the step; for each call, the number of its part among them.
        moments: where the parts began.
        after: for each call, then each moment, how many calls were made by then.
        held: for each of these, bytes by owner.
        owners: the owners.
    """

    def __init__(self, run: DryRun, first: int):
        strategies = {axis: name for name, axis in run.layout.axes or ()}
        self.events, self.owners = run.calls.events[first:], list(run.calls.mesh.used)
        self.sends: Sends = tuple(
            (event.part, each.collective, strategies[each.axis or 0], each.shard_bytes)
            for event in self.events
            for each in event.sent
        )
        parts = [event.part for event in self.events]
        self.names, self.parts = np.unique(parts, return_inverse=True)
        self.moments, (numbers, held) = list(run.at), zip(*run.at.values())
        self.after = np.array([*range(1, len(parts) + 1), *(n - first for n in numbers)])
        # Owners are in the order of their first tensors, so earlier calls know fewer of them.
        table = itertools.zip_longest(*run.calls.held[first:], *held, fillvalue=0)
        self.held = np.array(list(table)).T

    def where(self, holds: Callable[[str], bool]) -> np.ndarray:
        """Return for each call whether `holds` is true of its part."""
        return np.array(list(map(holds, self.names)))[self.parts]

    def share(self, runs: Callable[[str], bool]) -> tuple[np.ndarray, Sends, np.ndarray]:
        """Return what a stage does that runs certain parts.

        Returns:
            Whether it makes each call; its collectives; for each call and moment its bytes, in the
            first micro-batch and in the others.
        """
        mine = list(map(runs, self.owners))
        first = [own and not owner.endswith(LATER) for own, owner in zip(mine, self.owners)]
        sends = tuple(send for send in self.sends if runs(send[0]))
        return self.where(runs), sends, self.held @ np.array([first, mine]).T


@contextmanager
def dry_run(layout: Layout) -> Iterator[DryRun]:
    """Open a mesh without values for a layout, with a mesh axis for each strategy that is on."""
    if not backend.is_simulated():
        rule = "the trainer's calls run on the simulator's mesh without values"
        fail(f"plan {layout}", rule, "TTKIT_BACKEND=sim for the process that plans")
    rows, columns = [*(n for n in (layout.dp, layout.cp, layout.tp) if n > 1), 1, 1][:2]
    with without_values((rows, columns)) as (mesh, calls):
        yield DryRun(replace(layout, axes=None).on(mesh), calls)


def part_of(parameter: str) -> str:
    """Return the part of a step that uses a parameter first."""
    kind = parameter.split(".")[0]
    return {"blocks": "block", "norm": "head"}.get(
        kind, "head" if parameter == HEAD else "embedding"
    )


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
    """Go forward and backward, as `Trainer` and `Stage` do."""
    layout, config = model.layout, model.config
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
    """Construct a stage with those ends of the model; `config` has only its blocks."""
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
        in_use: bytes held after each call, without the optimizer's state: in the first micro-batch,
            before which there are no gradients, and in the others; [2, calls].
        kept: for each call, whether it comes before the backward of the earlier blocks, whose
            activations are then in memory.
        back: for each call, whether it may come after the backward of the later blocks.
        at: bytes held where each part began, in the first micro-batch and in the others.
        constants: bytes of masks, angles and numbers, which are there from the first step on.
        sends: the collectives.
        repeated, forward: for each call that computes or moves something on a chip, whether it runs
            once in each block, and whether it belongs to forward.
        flops, moved: the flops of its tiles, and the bytes that it reads and writes in DRAM.
        multiplied: the flops of its values if it is a matmul, else 0.
    """

    in_use: np.ndarray
    kept: np.ndarray
    back: np.ndarray
    at: dict[str, list[int]]
    constants: int
    sends: Sends
    repeated: np.ndarray
    forward: np.ndarray
    flops: np.ndarray
    moved: np.ndarray
    multiplied: np.ndarray


def give_grads(parameters: Mapping[str, Parameter], run: DryRun, later: str = "") -> None:
    """Give parameters gradients as earlier micro-batches leave them.

    Args:
        later: `LATER`, if what is added to them is noted.
    """
    for name, parameter in parameters.items():
        run.calls.mesh.owner = owner = part_of(name) + later
        sharded = parameter.zero_dim is not None and run.layout.zero >= 2
        grad = run.new(parameter.shard_shape if sharded else parameter.local_shape)
        parameter.set_grad(_Earlier(grad, owner, run.calls) if later else grad)


@dataclass
class _Earlier:
    """A gradient of earlier micro-batches. The first micro-batch has none: what is added is then
    the gradient itself, and stays as long as the sum does in the others.
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


@functools.lru_cache(maxsize=1024)
def _run(
    config: TransformerConfig, layout: Layout, ends: Ends, rows: int
) -> tuple[Recording, list[tuple[str, int]]]:
    """Run a micro-batch of `rows` sequences in each replica, of a step after the first.

    Returns:
        What it did; the part and the bytes of each constant. The first forward puts them on the
        mesh, and they stay, so they are counted from the beginning.
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
            model.vocabulary.numbers  # noqa: B018 - They are made when they are first asked for.
        run.begin("embedding")
        _pass(model, run, rows)
        run.calls.mesh.used["stage"] = 0
        stay = [
            (number, event.part, stored_bytes(event.results))
            for number, event in enumerate(run.calls.events[first:])
            if OPERATIONS[event.name].kind == "write" and event.result.tensor() is not None
        ]
        # What freeing the block saves is what a block keeps from step to step.
        run.begin("without block")
        vars(model.blocks.popitem()[1]).clear()
        del parameters
        run.begin("end")
        recording = Recording(run, first)
    for number, part, nbytes in stay:
        recording.held[recording.after <= number, recording.owners.index(part)] += nbytes
    return recording, [(part, nbytes) for _, part, nbytes in stay]


MOST = 1 << 35  # What does not depend on the number of rows has fewer bytes.


@functools.lru_cache(maxsize=4096)
def pass_of(config: TransformerConfig, layout: Layout, ends: Ends, rows: int) -> Pass:
    """Return a micro-batch of `rows` sequences in each replica, of a step after the first.

    One dry run serves all stages, a micro-batch alone or one of several, and all numbers of rows.
    It has so many rows that their bytes are multiples of `MOST`, which no other bytes reach, and
    that a dimension with rows is the longest. Exceptions are rows that are not whole tiles,
    experts, whose slots may share a tile, and one row, whose position gradients need no sum.
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
        many, unit = rows, 0
    both, like = ends, layout
    if not config.num_experts:  # Experts' backward depends on the loss, which balances them.
        both, like = (True, True), replace(layout, micro_batches=2)
        if layout.dp == layout.cp == 1:  # Replicas change only the mean of the loss.
            like = replace(like, dp=2, zero=0)
    return _share((config, like, both, many), layout, ends, rows, unit)


def _share(run: tuple, layout: Layout, ends: Ends, rows: int, unit: int = 0) -> Pass:
    """Return what a stage does of a run.

    Args:
        run: the arguments of `_run`.
        unit: if the run has another number of rows, a divisor of the bytes of each; else 0.
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
# The keys are numbers of rows, then ids of keyword arguments: repeated calls share these, and the
# values keep them alive.
_known_works: dict[tuple[int, int], dict[int, tuple[Any, tuple[int, int, int]]]] = {}


@functools.lru_cache(maxsize=4096)
def _works(run: tuple, rows: int) -> np.ndarray:
    """Return what each call of a run would do with another number of rows: flops of tiles, bytes
    moved, flops of values of a matmul; `NOTHING` if it neither computes nor moves anything.
    """
    many = run[-1]
    works, known = [], _known_works.setdefault((many, rows), {})
    for event in _run(*run)[0].events:
        key = id(event.kwargs)
        if key not in known:
            known[key] = event.kwargs, _work(event, rows, many)
        works.append(known[key][1])
    return np.array(works)


def _with_rows(value: Any, rows: int, many: int) -> Any:
    """Return an argument or a result with another number of rows."""
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

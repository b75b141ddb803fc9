"""Compute the cost of a layout for a chip in a training step.

The cost is the bytes sent (by collective and kind of link), the peak memory (by kind),
and the modelled time.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from ttkit.hardware.chips import ELEMENT_BYTES, Chip
from ttkit.hardware.roofline import default_fidelity, dram_s, operation_s
from ttkit.layouts.dry_run import Job, Moment, Stage, one_pass, update
from ttkit.layouts.places import Machine, Place
from ttkit.layouts.recording import Send, Sends, is_repeated
from ttkit.plans import Plan, Topology, collectives
from ttkit.plans.cost import cost, hop_time_s
from ttkit.plans.pipelines import schedule_of
from ttkit.plans.schedule import Action
from ttkit.train.config.layout import TILE, Layout, in_tiles
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.model.models import create_model

# Each part of a step runs in a phase, which `Traffic.what` of its collectives names.
PHASES = {"embedding": "forward", "block": "forward", "head": "loss", "head mean": "loss"}
# Along the DP and CP axes, `Traffic.what` names what these collectives send, not the phase.
SENT_BY = {"all_gather": "weights", "reduce_scatter": "gradients", "all_to_all": "tokens"}
NAMES = {"dp": "DDP", "cp": "CP", "tp": "TP"}
CHIPS = "chip links"
HOSTS = "between hosts"
# On any mesh, the modelled time of a plan is linear in the bytes of a shard, if the shard has at
# least half of this many bytes.
LARGE = 1 << 23
# These collectives run as rings on a torus, where the trainer opens FABRIC_1D_RING, and as lines on
# other machines.
WITH_ALGORITHM = {"all_gather", "all_reduce", "all_to_all", "reduce_scatter"}


@cache
def parameters_of(config: TransformerConfig) -> int:
    """Return the number of a model's parameters."""
    parameters = create_model(config, Layout()).parameters().values()
    return sum(math.prod(parameter.global_shape) for parameter in parameters)


class Traffic(NamedTuple):
    """Collectives of one kind in a step.

    Attributes:
        what: their purpose, such as "DDP gradients".
        times: the number of calls in a step.
        collective: the name in `ttkit.plans`.
        nbytes: the bytes of each chip's shard; for "hosts" traffic, of all parameters of a host.
        axis: the mesh axis; None between stages and between hosts.
        topology: the chips; None between hosts.
        bytes_sent: the bytes that the busiest chip, or for "hosts" traffic a host, sends in a step.
        time_s: the modelled seconds of all calls in a step.
        once: the number of these calls that follow the last micro-batch.
    """

    what: str
    times: int
    collective: str
    nbytes: int
    axis: int | None
    topology: Topology | None
    bytes_sent: int
    time_s: float
    once: int

    @property
    def link(self) -> str:
        """The kind of link: between chips, or between hosts."""
        return HOSTS if self.topology is None else CHIPS

    @property
    def plan(self) -> Plan:
        """The plan of one of these collectives; only traffic along a mesh axis has a plan."""
        assert self.topology is not None and self.axis is not None
        return plan_of(self.collective, self.topology, self.axis, self.nbytes)


@lru_cache(1024)
def plan_of(collective: str, topology: Topology, axis: int, nbytes: int) -> Plan:
    """Return the plan of a collective along a mesh axis, as the trainer runs it."""
    how = {"algorithm": "line"} if collective in WITH_ALGORITHM and not topology.is_torus else {}
    build = getattr(collectives, collective)
    return build(topology, nbytes, axis, **how)  # type: ignore[no-any-return]


@cache
def price(collective: str, topology: Topology, axis: int, nbytes: int) -> tuple[int, float]:
    """Return the bytes that the busiest chip sends in one collective, and its modelled seconds.

    All chips send at the same time. For large shards that the axis divides evenly, both values are
    linear in the size of a shard, so two plans are enough for all such shards."""
    if nbytes <= LARGE or nbytes % topology.shape[axis]:
        plan = plan_of(collective, topology, axis, nbytes)
        return max(plan.bytes_sent.values()), cost(plan).time_s
    sent, time_s = price(collective, topology, axis, LARGE // 2)
    _, time2_s = price(collective, topology, axis, LARGE)
    more = (nbytes - LARGE) / (LARGE // 2)
    return sent * nbytes // (LARGE // 2), time2_s + more * (time2_s - time_s)


@cache
def _counted(sends: Sends, others: int) -> Counter[Send]:
    """Return {kind: number of calls} of collectives. A kind is a purpose, a name, the strategy of
    the axis, and the bytes of a shard.
    """
    found: Counter[Send] = Counter()
    for part, collective, axis, nbytes in sends:
        phase = PHASES.get(part, part.split()[-1])
        if axis != "tp":
            phase = SENT_BY.get(collective, phase)
        # Backward completes the gradient of the embedding last, so nothing hides its sending.
        if phase == "gradients" and part.startswith("embedding"):
            phase = "embedding gradients"
        times = 1 + others if is_repeated(part) else 1
        found[f"{NAMES[axis]} {phase}", collective, axis, nbytes] += times
    return found


def traffic(stage: Stage, topology: Topology, axes: dict[str, int]) -> list[Traffic]:
    """Return the collectives of a step on the mesh of a stage.

    Args:
        axes: the mesh axis of each strategy ("dp", "cp", "tp") whose size is above 1.
    """
    step = one_pass(stage)
    after = update(stage)
    of_a_pass = _counted(step.sends, stage.others).items()
    counted = Counter({kind: times * stage.layout.micro_batches for kind, times in of_a_pass})
    at_end = _counted(after.sends, after.others)
    counted.update(at_end)
    found = []
    for kind, times in counted.items():
        what, collective, name, nbytes = kind
        axis, once = axes[name], at_end[kind]
        sent, time_s = price(collective, topology, axis, nbytes)
        both = times * sent, times * time_s
        found.append(Traffic(what, times, collective, nbytes, axis, topology, *both, once))
    return found


def traffic_between_meshes(
    job: Job, layout: Layout, place: Place, machine: Machine, there: Topology
) -> Iterator[Traffic]:
    """Yield the traffic between pipeline stages, and between replicas of hosts.

    Replicas send gradients and, with ZeRO, weights.
    """
    rate = machine.network_gb_per_s * 1e9
    system = machine.system
    if layout.pp > 1:
        size = ELEMENT_BYTES[layout.precision]
        width = job.config.embedding_dim
        length = job.sequence // layout.cp // (layout.tp if layout.sequence_parallel else 1)
        rows = job.rows(layout) * in_tiles(length)
        # Each chunk sends activations forward and gradients back, but not beyond the model's ends,
        # which both stages of two have.
        many = 2 * layout.chunks - (layout.pp == 2)
        messages = [("PP activations", many * layout.micro_batches, 0, rows)]
        # The first and the last stage send each other their gradients of a tied embedding table at
        # the same time.
        if job.config.is_tied:
            rows = in_tiles(job.config.vocab_size, TILE * layout.tp) // layout.tp
            shared = layout.zero_dim((1, 1, rows, width)) is not None
            messages.append(("PP gradients", 1, 1, rows // (layout.zero_shards if shared else 1)))
        chips = math.prod(place.shape)
        links = system.links_per_pair
        where = None if place.stages > 1 else there
        for what, times, after, rows in messages:
            nbytes = rows * width * size
            # The fabric forwards packets as they arrive, so more hops add almost no time.
            each = hop_time_s(system.chip.link, nbytes / links, links=links) if links else 0.0
            if place.stages > 1:
                each = max(each, chips * nbytes / rate)
            sent = times * nbytes
            time_s = times * each
            yield Traffic(what, times, "point_to_point", nbytes, None, where, sent, time_s, after)
    if place.replicas > 1:  # The trainer sends full gradients and weights in float32.
        n = place.replicas
        nbytes = 4 * parameters_of(job.config) // place.stages
        sends = [("hosts gradients", "all_reduce", 2)]
        # With ZeRO, the mean gradient of a parameter goes to one rank, which updates the parameter
        # and sends it to all ranks.
        if layout.zero:
            sends = [("hosts gradients", "reduce", 1), ("hosts weights", "broadcast", 1)]
        for what, name, times in sends:
            sent = times * (n - 1) * nbytes // n
            yield Traffic(what, 1, name, nbytes, None, None, sent, sent / rate, 1)


# ---------------------------------------------------------------- memory
class Memory(NamedTuple):
    """The peak memory of a chip in bytes, in a step after the first.

    Attributes:
        weights, gradients, optimizer: the bytes of these on a chip at the end of a step.
        activations: the bytes that forward keeps for backward, but at most the peak minus the sum
            of these three.
        buffers: the rest of the peak: masks, rotary angles, and buffers of single operations.
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


@cache
def moments(
    schedule: str, stages: int, micro_batches: int, chunks: int = 1
) -> tuple[tuple[Moment, ...], ...]:
    """Return for each stage the backward passes at which its memory may peak.

    Example:
        >>> moments("1f1b", 2, 8)[1]
        (Moment(chunk=0, kept=(1,), done=(True,)),)
    """
    # These schedules repeat their rounds, so a few rounds have all moments and are faster to build.
    if schedule in ("1f1b", "interleaved") and micro_batches % stages == 0:
        micro_batches = min(micro_batches, 3 * stages)
    return tuple(
        tuple(_moments(row, chunks))
        for row in schedule_of(schedule, stages, micro_batches, chunks).actions
    )


def _moments(row: Sequence[Action], chunks: int) -> list[Moment]:
    """Return the backward passes of a stage that may need the most memory.

    A backward pass is left out if a later one of the same chunk keeps at least as many
    micro-batches of every chunk, because the later one also has at least the same
    gradients.
    """
    kept = [0] * chunks
    done = [False] * chunks
    found: list[Moment] = []
    for action in row:
        if action.kind == "F":
            kept[action.chunk] += 1
            continue
        now = Moment(action.chunk, tuple(kept), tuple(done))
        found = [
            one
            for one in found
            if one.chunk != now.chunk or any(a > b for a, b in zip(one.kept, kept))
        ]
        found.append(now)
        if action.kind != "I":
            kept[action.chunk] -= 1
        done[action.chunk] = True
    return found


def stages(job: Job, layout: Layout) -> list[Stage]:
    """Return the stages of a layout."""
    last = layout.pp - 1
    rows = moments(layout.schedule, layout.pp, layout.micro_batches, layout.chunks)
    blocks = layout.stages_of(job.config)
    return [Stage(job, layout, (i == 0, i == last), blocks[i], row) for i, row in enumerate(rows)]


class Passing(NamedTuple):
    """The bytes for the forward and backward of a micro-batch through one chunk.

    Attributes:
        state: the bytes of weights, constants, and gradients that earlier micro-batches have left.
        kept: the bytes that a forward keeps for backward.
        beside: the peak of all other bytes.
        constants: the bytes of masks, rotary angles and token ids.
    """

    state: int
    kept: int
    beside: int
    constants: int


def _passing(stage: Stage, has_grads: bool) -> Passing:
    """Return the bytes that a chunk needs.

    Args:
        stage: the chunk.
        has_grads: whether an earlier micro-batch has left gradients.
    """
    step = one_pass(stage)
    others = stage.others
    in_use = step.in_use[int(has_grads)]
    at = {k: v[int(has_grads)] for k, v in step.at.items()}
    after = update(stage)
    run = stage.blocks - after.others
    gradients = sum(each.gradients for each in after.of_blocks) // run
    weights = sum(each.weights for each in after.of_blocks) // run
    block = at["without block"] - at["end"]
    constants = step.constants + others * (block - weights - gradients)
    if not has_grads:
        block -= gradients
    # These are bytes of one block: `one_kept` is what its forward keeps for backward, `left` is
    # what remains after its backward, and `block` is what it keeps from step to step.
    one_kept = at["head"] - at["block"]
    left = one_kept + at["embedding backward"] - at["block backward"]
    # One block was run, and it stands for all blocks. If it stands for the last block, the forward
    # of each other block has left `one_kept`. If it stands for the first block, the backward of
    # each other block has left `left`.
    of_others = np.maximum(one_kept * step.kept, left * step.back)
    most = (in_use + others * (of_others + block)).max()
    kept = at["end of forward"] - at["embedding"] + others * one_kept
    state = at["embedding"] + others * block
    return Passing(state, kept, int(most) - state - kept, constants)


def memory_of(stage: Stage) -> Memory:
    """Return the memory of a chip of a stage."""
    after = update(stage)
    chunks = stage.chunks
    passing = cache(lambda chunk, done: _passing(chunks[chunk], done))
    found = []
    for chunk, kept, done in stage.moments:
        each = list(map(passing, range(len(chunks)), done))
        keeps = sum(n * one.kept for n, one in zip(kept, each))
        most = sum(one.state for one in each) + keeps + each[chunk].beside
        found.append((most, keeps, sum(one.constants for one in each)))
    most, keeps, constants = max(found)
    weights, gradients, optimizer = after.of_all
    state = weights + gradients + optimizer
    beside = max(most + optimizer - state, constants + after.most)
    activations = min(keeps, beside)
    return Memory(weights, gradients, optimizer, activations, beside - activations)


# ---------------------------------------------------------------- time
class Times(NamedTuple):
    """The modelled seconds of the parts of a step, which run one after the other.

    Attributes:
        compute: the operations of all micro-batches on a chip.
        communication: all communication, or with overlap the part that cannot be hidden.
        hidden: the communication that runs during compute with overlap on; with overlap off, the
            part that could run during compute. It is not added to the total.
        bubble: the time in which a stage of a pipeline waits.
        optimizer: the reads and writes of weights, gradients and optimizer state.
    """

    compute: float
    communication: float
    hidden: float
    bubble: float
    optimizer: float

    @property
    def total(self) -> float:
        """The seconds of a step: the sum of all parts but `hidden`."""
        return self.compute + self.communication + self.bubble + self.optimizer


def compute_s(stage: Stage, chip: Chip) -> tuple[float, float]:
    """Return the seconds of a micro-batch's operations, forward and backward."""
    calls = one_pass(stage)
    fidelity = default_fidelity(chip, [stage.layout.precision.upper()] * 2)
    seconds = operation_s(chip, calls.flops, calls.moved, fidelity)
    times = 1 + stage.others * calls.repeated
    return float(seconds @ (times * calls.forward)), float(seconds @ (times * ~calls.forward))


def flops(stage: Stage) -> int:
    """Return the floating-point operations of the matmuls of a step on a chip."""
    calls = one_pass(stage)
    return int(calls.multiplied @ (1 + stage.others * calls.repeated)) * stage.layout.micro_batches


@cache
def bubble_fraction(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Return the fraction of a step in which stages wait; backward takes twice as long as forward.

    Example:
        >>> bubble_fraction("1f1b", 4, 8) == bubble_fraction("gpipe", 4, 8) == 3 / (8 + 3)
        True
        >>> bubble_fraction("interleaved", 4, 8, 2) == 3 / (2 * 8 + 3)
        True
    """
    # The formulas are faster than building a schedule of many stages.
    if schedule == "1f1b" or (schedule == "interleaved" and micro_batches % stages == 0):
        return (stages - 1) / (chunks * micro_batches + stages - 1)
    return schedule_of(schedule, stages, micro_batches, chunks).timeline().bubble_fraction


def times_of(stage: Stage, chip: Chip, memory: Memory, talk: list[Traffic], overlap: bool) -> Times:
    """Return the modelled time of a step whose slowest stage is this one.

    Args:
        talk: the collectives of the stage.
        overlap: whether communication overlaps with compute: gradients with the last backward, and
            weights with the first forward. Under ZeRO-3, weights overlap with all operations, since
            each micro-batch gathers them again.
    """
    layout = stage.layout
    forward, backward = compute_s(stage, chip)
    compute = layout.micro_batches * (forward + backward)
    sent = sum(each.time_s for each in talk)
    hidden = 0.0
    gathering = compute if layout.zero == 3 else forward
    for name, room in (("gradients", backward), ("weights", gathering)):
        for what in (f"DDP {name}", f"CP {name}", f"hosts {name}"):
            hidden += min(sum(each.time_s for each in talk if each.what == what), room)
    hidden = min(hidden, compute)
    exposed = sent - hidden if overlap else sent
    # A stage waits for the work of other stages on each micro-batch. It does not wait for their
    # work after the last micro-batch.
    waits = compute + sum((1 - each.once / each.times) * each.time_s for each in talk)
    fraction = bubble_fraction(layout.schedule, layout.pp, layout.micro_batches, layout.chunks)
    bubble = waits * fraction / (1 - fraction)
    # A fused optimizer, such as ttml's MorehAdamW, reads and writes weights and state, and reads
    # gradients.
    moved = 2 * (memory.weights + memory.optimizer) + memory.gradients
    return Times(compute, exposed, hidden, bubble, float(dram_s(chip, moved)))

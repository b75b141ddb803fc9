"""The search: every layout of a model on a machine, with its memory, its traffic and its time."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ttkit.errors import fail
from ttkit.hardware import System, current_system
from ttkit.hardware.device_order import opens_transposed
from ttkit.hardware.systems import system_named
from ttkit.layouts.memory import Memory, memory_of, stages
from ttkit.layouts.report import Layouts
from ttkit.layouts.step import Job, update
from ttkit.layouts.times import Times, products_s, times_of
from ttkit.layouts.traffic import Traffic, traffic
from ttkit.plans import Topology, topology
from ttkit.plans.cost import hop_time_s
from ttkit.roofline import default_fidelity
from ttkit.train.config import Settings, TrainingConfig, TransformerConfig
from ttkit.train.config_files import read_settings
from ttkit.train.layout import TILE, Layout
from ttkit.train.memory import DTYPES
from ttkit.train.models import create_model
from ttkit.train.parallel import MeshLayout

NETWORK = 12.5  # GB/s of a host, 100 Gbit/s Ethernet: an assumption, to be replaced by one's own


class Place(NamedTuple):
    """Where a layout lies: the mesh of a stage, its axes, and how hosts share the layout.

    Attributes:
        shape: rows and columns of the mesh of each stage.
        axes: the mesh axis of each of "dp", "cp" and "tp" that is above 1 on the mesh.
        replicas: hosts that have other replicas.
        stages: hosts that have other stages.
    """

    shape: tuple[int, int]
    axes: tuple[tuple[str, int], ...]
    replicas: int = 1
    stages: int = 1


class Machine(NamedTuple):
    """Hosts with a system each, joined by a network.

    Attributes:
        headroom: the part of DRAM that stays free.
        overlap: communication runs beside products where it can.
    """

    system: System
    hosts: int = 1
    headroom: float = 0.1
    overlap: bool = False
    network_gb_per_s: float = NETWORK

    @property
    def chips(self) -> int:
        """Of all hosts."""
        return self.hosts * self.system.num_devices

    @property
    def room(self) -> float:
        """Bytes of a chip that may be used."""
        return self.system.chip.dram_bytes * (1 - self.headroom)


@dataclass(frozen=True)
class Candidate:
    """A layout with what it takes; `refused` says why it cannot run, "" if it can."""

    layout: Layout
    place: Place | None = None
    memory: Memory | None = None
    times: Times | None = None
    traffic: tuple[Traffic, ...] = ()
    tokens_per_s: float = 0.0
    mfu: float = 0.0
    refused: str = ""


def place_of(system: System, layout: Layout, hosts: tuple[int, int], may_hang: bool) -> Place | str:
    """Return where a layout lies on each host's system, or why it cannot.

    Args:
        hosts: how many share the replicas, and the stages.
        may_hang: take shapes that ttnn opens transposed, too.
    """
    replicas, split = hosts
    dp, pp = layout.dp // replicas, layout.pp // split
    on = {name: n for name, n in (("dp", dp), ("cp", layout.cp), ("tp", layout.tp)) if n > 1}
    if len(on) > 2:
        return "a mesh has two axes, for two of dp, cp and tp"
    rows, columns = system.shape
    if len(on) < 2:
        shape, axes = (1, *(on.values() or (1,))), tuple((name, 1) for name in on)
        if pp * shape[1] > system.num_devices:
            what = f"{pp} meshes" if pp > 1 else "a mesh"
            return f"{rows}x{columns} chips have no room for {what} of 1x{shape[1]}"
        return Place(shape, axes, *hosts)  # type: ignore[arg-type]
    shape = tuple(on.values())
    fits = (rows // shape[0]) * (columns // shape[1])
    turned = (rows // shape[1]) * (columns // shape[0])
    if max(fits, turned) < pp:
        what = f"{pp} meshes" if pp > 1 else "a mesh"
        return f"{rows}x{columns} chips have no room for {what} of {shape[0]}x{shape[1]}"
    hangs = opens_transposed(system.shape, shape)
    if hangs and not may_hang:
        return f"{hangs} (may_hang=True plans it)"
    return Place(shape, tuple(zip(on, (0, 1))), *hosts)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=64)
def parameters_of(config: TransformerConfig) -> int:
    """Return how many numbers a model learns; of its blocks, one is counted for all."""
    one, two = (
        sum(
            math.prod(p.global_shape)
            for p in create_model(replace(config, num_blocks=n), MeshLayout()).parameters().values()
        )
        for n in (1, 2)
    )
    return one + (config.num_blocks - 1) * (two - one)


def between(
    job: Job, layout: Layout, place: Place, machine: Machine, there: Topology
) -> Iterator[Traffic]:
    """Yield what stages send each other, and hosts."""
    rate, system = machine.network_gb_per_s * 1e9, machine.system
    if layout.pp > 1:
        length = job.sequence // layout.cp // (layout.tp if layout.sequence_parallel else 1)
        nbytes = job.rows(layout) * -(-length // TILE) * TILE * job.config.embedding_dim
        nbytes *= DTYPES[layout.precision]
        chips = math.prod(place.shape)
        once = hop_time_s(system.chip.link, nbytes / system.links_per_pair)
        if place.stages > 1:
            once = max(once, chips * nbytes / rate)
        times, where = 2 * layout.micro_batches, None if place.stages > 1 else there
        rest = (nbytes, None, where, times * nbytes, times * once)
        yield Traffic("PP activations", times, "point_to_point", *rest)
    if place.replicas > 1:  # the trainer sends whole gradients, float32
        n, nbytes = place.replicas, 4 * parameters_of(job.config) // place.stages
        sent = 2 * (n - 1) * nbytes // n
        rest = (nbytes, None, None, sent, sent / rate)
        yield Traffic("hosts gradients", 1, "all_reduce", *rest)


def why_not_memory(memory: Memory, machine: Machine) -> str:
    """Return why a chip is too small, or ""."""
    if memory.total <= machine.room:
        return ""
    kind, most = max(memory._asdict().items(), key=lambda item: item[1])
    free = f" ({machine.headroom:.0%} stay free)" if machine.headroom else ""
    dram = machine.system.chip.dram_bytes / 1e9
    return f"needs {memory.total / 1e9:.1f} of {dram:g} GB{free}: {kind} {most / 1e9:.1f}"


def evaluate(job: Job, layout: Layout, place: Place, machine: Machine) -> Candidate:
    """Return memory, traffic and time of a layout at its place."""
    inner = replace(layout, dp=layout.dp // place.replicas)
    own = job._replace(batch=job.batch // place.replicas)
    chip, found = machine.system.chip, stages(job.config, inner)
    # what lasts from step to step is counted faster, and often is too much alone
    lasting = max((Memory(*update(own, inner, stage).of_all, 0, 0) for stage in found), key=sum)
    if refused := why_not_memory(lasting, machine):
        refused = refused.replace("needs", "needs more than", 1)
        return Candidate(layout, place, lasting, refused=refused)
    memory = max((memory_of(own, inner, stage) for stage in found), key=sum)
    if refused := why_not_memory(memory, machine):
        return Candidate(layout, place, memory, refused=refused)
    slowest = max(found, key=lambda stage: sum(products_s(own, inner, stage, chip)))
    there = topology(machine.system, place.shape)
    talk = traffic(own, inner, slowest, there, dict(place.axes))
    talk += between(own, inner, place, machine, there)
    times = times_of(own, inner, slowest, chip, memory, talk, machine.overlap)
    tokens, config = job.batch * job.sequence, job.config
    # Chowdhery 2022, appendix B: of parameters, and of attention's two products
    each = 6 * parameters_of(config)
    each += 12 * config.num_blocks * config.embedding_dim * job.sequence
    peak = chip.peak_flops(default_fidelity(chip, [layout.precision.upper()] * 2))
    mfu = each * tokens / (times.total * layout.chips * peak)
    return Candidate(layout, place, memory, times, tuple(talk), tokens / times.total, mfu)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _sizes(machine: Machine) -> Iterator[tuple[Layout, tuple[int, int]]]:
    """Yield the sizes of layouts that use all chips, and how hosts share replicas and stages."""
    chips = machine.system.num_devices
    for replicas in _divisors(machine.hosts):
        split = machine.hosts // replicas
        for tp, pp in itertools.product(_divisors(chips), repeat=2):
            if chips % (tp * pp) == 0:
                for cp in _divisors(chips // (tp * pp)):
                    dp = chips // (tp * pp * cp)
                    yield Layout(replicas * dp, tp, split * pp, cp), (replicas, split)


def _variants(layout: Layout, replicas: int, job: Job) -> Iterator[Layout]:
    """Yield the ways in which chips can share more, and compute again; those that hold least
    first.
    """
    stages = range(3, -1, -1) if layout.dp // replicas > 1 else [0]
    shared = [True, False] if layout.tp > 1 else [False]
    experts = bool(getattr(job.config, "num_experts", 0)) and layout.dp > 1
    for ep in (layout.dp, 1) if experts else (1,):
        for sequence, again, zero in itertools.product(shared, (True, False), stages):
            more = {"sequence_parallel": sequence, "recompute": again, "zero": zero}
            yield replace(layout, ep=ep, **more)  # type: ignore[arg-type]


def _leaner(layout: Layout, than: Layout) -> bool:
    same = ("ep", "sequence_parallel")
    shares = layout.zero >= than.zero and layout.recompute >= than.recompute
    return shares and all(getattr(layout, key) == getattr(than, key) for key in same)


def search(job: Job, machine: Machine, precision: Any, may_hang: bool) -> Iterator[Candidate]:
    """Yield a candidate for each layout, with the micro-batches that are fastest and fit."""
    for sizes, hosts in _sizes(machine):
        sizes = replace(sizes, precision=precision)
        place = place_of(machine.system, sizes, hosts, may_hang)
        rule = sizes.why_not(job.config, job.batch, job.sequence)
        if rule or isinstance(place, str):
            yield Candidate(sizes, refused=rule or str(place))
            continue
        counts = [n for n in _divisors(job.batch // sizes.dp) if n & (n - 1) == 0]
        large: list[Candidate] = []  # refused for their memory
        for layout in _variants(sizes, hosts[0], job):
            if rule := layout.why_not(job.config, job.batch, job.sequence):
                yield Candidate(layout, refused=rule)
                continue
            layout = replace(layout, micro_batches=counts[-1])
            if less := next((each for each in large if _leaner(each.layout, layout)), None):
                rule = f"holds more than {less.layout}, which {less.refused}"
                yield Candidate(layout, place, less.memory, refused=rule)
                continue
            best = evaluate(job, layout, place, machine)
            for count in counts[-2::-1]:
                if best.refused:
                    break
                found = evaluate(job, replace(layout, micro_batches=count), place, machine)
                if found.refused or found.tokens_per_s < best.tokens_per_s:
                    break
                best = found
            if best.refused:
                large.append(best)
            yield best


def plan_layouts(
    model: TransformerConfig | Settings | str,
    system: System | str | None = None,
    batch: int = 32,
    sequence: int | None = None,
    *,
    hosts: int = 1,
    precision: str = "float32",
    optimizer: dict[str, Any] | None = None,
    headroom: float = 0.1,
    may_hang: bool = False,
    overlap: bool = False,
    network_gb_per_s: float = NETWORK,
    mode: str = "training",
) -> Layouts:
    """Return every layout of a model on all chips of a machine, the fastest first.

    Args:
        model: its sizes, or a configuration's file.
        system: of each host; the machine in use unless given.
        batch: sequences of a step, of all replicas together.
        sequence: tokens of each; the model's max_sequence_length unless given.
        hosts: systems that a network of `network_gb_per_s` joins.
        precision: "float32" or "bfloat16", of weights, gradients and activations.
        optimizer: as in a training configuration; AdamW unless given.
        headroom: the part of DRAM that stays free.
        may_hang: plan mesh shapes that ttnn opens transposed, on which collectives may hang.
        overlap: gradients are sent under the backward, weights gathered under products.
        mode: "training", or "inference" for prefill and decode.

    Example:
        >>> gpt = TransformerConfig(num_heads=8, embedding_dim=256, dropout_prob=0.0)
        >>> found = plan_layouts(gpt, "n300", batch=4)
        >>> len(found.fitting), str(found.fitting[0].layout)
        (13, 'DP2')
    """
    if isinstance(model, str):
        model = read_settings(model)
    config = model.transformer_config if isinstance(model, Settings) else model
    machine = system_named(system) if isinstance(system, str) else system or current_system()
    if mode != "training":
        from ttkit.layouts.inference import plan_inference  # noqa: F401

        fail(f"plan_layouts(mode={mode!r})", "not there yet", "training")
    length = sequence or config.max_sequence_length
    training = TrainingConfig(optimizer=optimizer)  # type: ignore[arg-type]
    job = Job(replace(config, experimental=None), batch, length, training)
    there = Machine(machine, hosts, headroom, overlap, network_gb_per_s)
    return Layouts(job, there, list(search(job, there, precision, may_hang)))

"""The search: every layout of a model on a machine, with its memory, its traffic and its time."""

import functools
import gc
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ttkit.errors import check_counts, fail
from ttkit.hardware import System, current_system
from ttkit.hardware.roofline import default_fidelity
from ttkit.hardware.systems import system_named
from ttkit.layouts.costs import (
    Memory,
    compute_s,
    flops,
    memory_of,
    parameters_of,
    stages,
    times_of,
    traffic,
    traffic_between_meshes,
)
from ttkit.layouts.dry_run import Job, update
from ttkit.layouts.inference import Serving
from ttkit.layouts.places import (
    NETWORK,
    Machine,
    Place,
    divisors,
    place_of,
    sizes_of,
    why_not_memory,
)
from ttkit.layouts.report import Candidate, Layouts
from ttkit.plans import topology
from ttkit.train.config.files import read_settings
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import Settings, TrainingConfig, TransformerConfig

Run = Callable[[Layout], Candidate]  # A `Run` evaluates a layout of the job at its place.


def evaluate(job: Job, layout: Layout, place: Place, machine: Machine) -> Candidate:
    """Return memory, traffic and time of a layout at its place."""
    hosts = place.replicas if layout.zero else 1
    inner = replace(layout, dp=layout.dp // place.replicas, hosts=hosts)
    own = job._replace(batch=job.batch // place.replicas)
    chip = machine.system.chip
    found = stages(own, inner)
    # The earlier a stage is, the more micro-batches it keeps. So the one that needs most is the
    # first, which also has the embedding, the last, which has the head, or one that has more blocks
    # than all before it.
    found = [
        stage
        for i, stage in enumerate(found)
        if stage.ends[1] or all(stage.blocks > other.blocks for other in found[:i])
    ]
    # Weights, gradients and optimizer state are counted first, because that is fast, and they alone
    # are often too large.
    lasting = max((Memory(*update(stage).of_all, 0, 0) for stage in found), key=sum)
    if refused := why_not_memory(lasting._asdict(), machine):
        refused = refused.replace("needs", "needs more than", 1)
        return Candidate(layout, place, lasting, refused=refused)
    memory = lasting
    for stage in found:
        memory = max(memory, memory_of(stage), key=sum)
        if refused := why_not_memory(memory._asdict(), machine):
            return Candidate(layout, place, memory, refused=refused)
    slowest = max(found, key=lambda stage: sum(compute_s(stage, chip)))
    there = topology(machine.system, place.shape)
    talk = traffic(slowest, there, dict(place.axes))
    talk += traffic_between_meshes(own, inner, place, machine, there)
    times = times_of(slowest, chip, memory, talk, machine.overlap)
    tokens = job.batch * job.sequence
    config = job.config
    # These are the flops for one token as Chowdhery 2022, appendix B, counts them: first those of
    # the parameters, then those of the two matmuls of attention. Of the experts, those count that
    # the token uses.
    config = replace(config, num_experts=min(config.num_experts, config.experts_per_token))
    each = 6 * parameters_of(config)
    each += 12 * config.num_blocks * config.embedding_dim * job.sequence
    peak = chip.peak_flops(default_fidelity(chip, [layout.precision.upper()] * 2))
    mfu = each * tokens / (times.total * layout.chips * peak)
    speed = tokens / times.total
    work = flops(slowest)
    return Candidate(layout, place, memory, times, tuple(talk), work, speed, mfu)


def _variants(layout: Layout, replicas: int, job: Job) -> Iterator[Layout]:
    """Yield the variants of a layout: what its chips share (experts, sequence, ZeRO stage), and
    whether backward recomputes. Variants that need less memory come first.
    """
    dp = layout.dp // replicas  # of one mesh
    shares = dp > 1 or layout.cp > 1
    # If only hosts have replicas, ZeRO-1 is the only stage that can share something.
    stages = range(3, -1, -1) if shares else range(replicas > 1, -1, -1)
    shared = [True, False] if layout.tp > 1 else [False]
    for ep in (dp, 1) if job.config.num_experts and dp > 1 else (1,):
        for sequence, again, zero in itertools.product(shared, (True, False), stages):
            yield replace(layout, ep=ep, zero=zero, sequence_parallel=sequence, recompute=again)


def _leaner(layout: Layout, than: Layout) -> bool:
    """Return whether a variant needs no more memory than another: it shards and recomputes as much
    or more, and has the same experts on a chip."""
    more = ("zero", "recompute", "sequence_parallel")
    return layout.ep == than.ep and all(getattr(layout, k) >= getattr(than, k) for k in more)


def search(job: Job, machine: Machine, precision, may_hang: bool) -> Iterator[Candidate]:
    """Yield a candidate for each layout, with the number of micro-batches that is fastest and fits.

    Only powers of two are tried as numbers of micro-batches.

    Context parallelism sends more than data parallelism. So a layout is refused if the same layout
    with data parallelism in its place fits.
    """
    fitting: set[Layout] = set()
    model = job.config, job.batch, job.sequence
    for sizes, hosts in sorted(sizes_of(machine), key=lambda each: each[0].cp):
        sizes = replace(sizes, precision=precision)
        place = place_of(machine.system, sizes, hosts)
        rule = sizes.why_not(*model)
        if rule or isinstance(place, str):
            yield Candidate(sizes, refused=rule or str(place))
            continue
        if place.warning and not may_hang:
            yield Candidate(sizes, refused=f"{place.warning} (may_hang=True plans it)")
            continue
        counts = [n for n in divisors(job.batch // sizes.dp) if n & (n - 1) == 0]
        run = functools.partial(evaluate, job, place=place, machine=machine)
        large: list[Candidate] = []  # These need too much memory.
        for layout in _variants(sizes, hosts[0], job):
            if rule := layout.why_not(*model, hosts[0]):
                yield Candidate(layout, refused=rule)
                continue
            alike = replace(layout, dp=layout.dp * layout.cp, cp=1)
            if layout.cp > 1 and alike in fitting:
                rule = "dp in place of cp fits, and sends less"
                yield Candidate(layout, place, refused=rule)
                continue
            most = replace(layout, micro_batches=counts[-1])
            if less := next((each for each in large if _leaner(each.layout, most)), None):
                rule = f"holds more than {less.layout}, which {less.refused}"
                yield Candidate(most, place, less.memory, refused=rule)
                continue
            best = run(most)
            if best.refused and best.memory.activations:
                best = _uneven(run, job.config, best) or best
            best = _fastest(run, best, counts)
            if best.refused:
                large.append(best)
                yield best
                continue
            fitting.add(layout)
            yield best
            # A pipeline with interleaved chunks waits less and sends more. It is listed only if it
            # is faster.
            layout = replace(most, schedule="interleaved", chunks=2)
            if layout.pp > 1 and not layout.why_not(*model, hosts[0]):
                found = _fastest(run, run(layout), counts)
                if found.tokens_per_s > best.tokens_per_s:
                    best = found
                    yield found
            if uneven := _uneven(run, job.config, best):
                yield uneven


def _uneven(run: Run, config: TransformerConfig, best: Candidate) -> Candidate | None:
    """Return a pipeline with fewer blocks on its last and its first stage, which also have the head
    and the embedding, if it is faster than `best`, or if neither fits and it needs less memory;
    else None.
    """
    layout, found = best.layout, None
    blocks = [*layout.stages_of(config)]
    for end in (layout.pp - 1, 0):
        while layout.pp > 1 and blocks[end] > layout.chunks:
            # The block goes to a stage with the fewest blocks: one in the middle, if there is one.
            other = min(range(end == 0, layout.pp - 1) or [1], key=lambda i: (blocks[i], -i))
            moved = [*blocks]
            moved[end] -= 1
            moved[other] += 1
            each = run(replace(layout, blocks=tuple(moved)))
            if each.order <= best.order:
                break
            best = found = each
            blocks = moved
    return found


def _fastest(run: Run, best: Candidate, counts: Sequence[int]) -> Candidate:
    """Return the candidate with the fastest number of micro-batches, or a refused one.

    Args:
        best: the candidate with the most micro-batches; fewer are tried as long as they are faster.
        counts: the possible numbers of micro-batches, the smallest first.
    """
    for count in counts[-2::-1]:
        if best.refused:
            break
        found = run(replace(best.layout, micro_batches=count))
        if found.refused or found.tokens_per_s < best.tokens_per_s:
            break
        best = found
    return best


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
):
    """Return every layout of a model on all chips of a machine, the fastest first.

    Args:
        model: the sizes of a model, the settings of a training, or the path of their YAML file. Of
            the settings only the model counts; the arguments below say how it is trained.
        system: the system of each host, or its name; by default the machine in use.
        batch: sequences of a step, of all replicas together.
        sequence: tokens of each sequence; by default the model's max_sequence_length.
        hosts: the number of hosts. A network of `network_gb_per_s` for each host joins them.
        precision: "float32" or "bfloat16", of weights, gradients and activations in training.
            Inference ignores it.
        optimizer: the optimizer's settings, as in a training configuration; by default AdamW.
        headroom: the fraction of DRAM that stays free, below 1. A negative one plans for more DRAM
            than there is.
        may_hang: whether to plan training also on mesh shapes that ttnn opens transposed, where
            collectives may hang. Plans for inference always list these, with a warning.
        overlap: whether communication overlaps with compute: gradients with backward, and weights
            with forward.
        mode: "training", or "inference" for prefill and decode with a cache of `sequence`
            positions.

    Returns:
        `Layouts` or, for inference, `Serving`.

    Example:
        >>> gpt = TransformerConfig(num_heads=8, embedding_dim=256, dropout_prob=0.0)
        >>> found = plan_layouts(gpt, "n300", batch=4)
        >>> found.best.layout.chips, found.find("DP2 ZeRO-1").memory.optimizer
        (2, 21823488)
    """
    if isinstance(model, str):
        model = read_settings(model)
    config = model.transformer_config if isinstance(model, Settings) else model
    machine = current_system() if system is None else system_named(system)
    length = config.max_sequence_length if sequence is None else sequence
    check_counts("plan_layouts", batch=batch, sequence=length, hosts=hosts)
    if not headroom < 1:
        fail("plan_layouts", f"headroom={headroom} must be below 1; at 1 all of DRAM stays free")
    if not network_gb_per_s > 0:
        fail("plan_layouts", f"network_gb_per_s={network_gb_per_s} must be above 0")
    training = TrainingConfig(optimizer=optimizer)  # type: ignore[arg-type]
    trained = replace(config, experimental=None, max_sequence_length=length)
    job = Job(trained, batch, length, training)
    there = Machine(machine, hosts, headroom, overlap, network_gb_per_s)
    if mode == "inference":
        return Serving(config, there, batch, length)
    if mode != "training":
        fail(f"plan_layouts(mode={mode!r})", "the modes are training and inference")
    # Dry runs make and keep many thousands of events. Each garbage collection would visit all of
    # them, so collection is off meanwhile.
    collects = gc.isenabled()
    gc.disable()
    try:
        return Layouts(job, there, list(search(job, there, precision, may_hang)))
    finally:
        if collects:
            # These two calls move all objects to the oldest generation. Without them the next
            # collection would take long.
            gc.freeze()
            gc.unfreeze()
            gc.enable()


def explore_layouts(start: Mapping[str, Any], **choices: Any) -> None:
    """Show the layouts that fit as points of speed against memory, with controls for the plan.

    A click on a point explains its layout and gives its YAML. Plans are cached, so going back to an
    earlier choice takes no time. On a terminal the points are printed.

    Args:
        start: the arguments of `plan_layouts` to begin with.
        choices: for each argument that gets a control, its values, as a sequence or as
            {words: value}.

    Example:
        >>> gpt = TransformerConfig(num_heads=8, embedding_dim=256, dropout_prob=0.0)
        >>> explore_layouts({"model": gpt, "system": "n300", "batch": 4}, batch=[4, 8])
        gpt2, 6 blocks, batch 4 x 128 tokens on n300, 2 chips: modelled tokens/s
          Pareto front: 30266 at GB per chip ...
    """
    from ttkit.visualize.charts.plans import LayoutMap
    from ttkit.visualize.widgets.play import play

    @functools.cache
    def draw(**values) -> LayoutMap:
        return LayoutMap(plan_layouts(**{**start, **values}))

    begin = {name: start[name] for name in choices if name in start}
    play(draw, start=begin, **choices)

"""The collectives of a training step: which, how often, how many bytes, over which links."""

from __future__ import annotations

import functools
from collections import Counter
from typing import NamedTuple

from ttkit.layouts.dry_run import REPEATED, Sends
from ttkit.layouts.step import Job, Stage, one_pass, update
from ttkit.plans import Plan, Topology, collectives, cost
from ttkit.train.config.layout import Layout

# A collective is named after the phase of the step in which it runs.
PHASES = {
    "start": "forward",
    "block": "forward",
    "head": "loss",
    "block backward": "backward",
    "rest": "backward",
    "block gradients": "gradients",
    "block norm": "norm",
    "block optimizer": "optimizer",
}
# On the data-parallel axis the kind of collective reports what it sends, whatever the phase.
SHARDED = {"all_gather": "weights", "reduce_scatter": "gradients", "all_to_all": "tokens"}
NAMES = {"dp": "DDP", "cp": "CP", "tp": "TP"}
CHIPS, HOSTS = "chip links", "between hosts"
# From so many bytes on, the modelled time of a plan is linear in its bytes, on any mesh.
LARGE = 1 << 23
# The trainer opens the fabric as lines, also where cables close a ring.
ALGORITHM = {"all_gather", "all_reduce", "all_to_all", "reduce_scatter"}


class Kind(NamedTuple):
    """Collectives of one kind: their purpose, their strategy's axis, and the bytes of a shard."""

    what: str
    collective: str
    axis: str
    nbytes: int


class Traffic(NamedTuple):
    """Collectives of one kind in a step.

    Attributes:
        what: their purpose, such as "DDP gradients".
        times: how often a step calls them.
        collective: the name in `ttkit.plans`.
        nbytes: the size of each chip's shard.
        axis: the mesh axis; None between hosts.
        topology: the chips; None between hosts.
        bytes_sent: the bytes that the busiest chip (or host) sends in a step.
        time_s: the modelled seconds of all of them in a step.
    """

    what: str
    times: int
    collective: str
    nbytes: int
    axis: int | None
    topology: Topology | None
    bytes_sent: int
    time_s: float

    @property
    def link(self) -> str:
        """The kind of link: between chips, or between hosts."""
        return HOSTS if self.topology is None else CHIPS

    @property
    def plan(self) -> Plan:
        """The plan of one such collective between chips; there is none between hosts."""
        assert self.topology is not None and self.axis is not None
        return plan_of(self.collective, self.topology, self.axis, self.nbytes)


@functools.lru_cache(maxsize=1024)
def plan_of(collective: str, topology: Topology, axis: int, nbytes: int) -> Plan:
    """Return the plan of a collective along a mesh axis, as the trainer runs it."""
    how = {"algorithm": "line"} if collective in ALGORITHM else {}
    build = getattr(collectives, collective)
    return build(topology, nbytes, axis, **how)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=65536)
def price(collective: str, topology: Topology, axis: int, nbytes: int) -> tuple[int, float]:
    """Return the bytes that the busiest chip sends, and the modelled seconds, of one collective.

    Both numbers are linear in the size of large shards, so plans are made once, for two sizes."""
    if nbytes <= LARGE or nbytes % topology.shape[axis]:
        plan = plan_of(collective, topology, axis, nbytes)
        return max(plan.bytes_sent.values()), cost(plan).time_s
    sent, time_s = price(collective, topology, axis, LARGE // 2)
    _, time2_s = price(collective, topology, axis, LARGE)
    more = (nbytes - LARGE) / (LARGE // 2)
    return sent * nbytes // (LARGE // 2), time2_s + more * (time2_s - time_s)


def _what(axis: str, part: str, collective: str) -> str:
    phase = PHASES.get(part, part)
    if axis == "dp":
        phase = SHARDED.get(collective, phase)
    return f"{NAMES[axis]} {phase}"


@functools.lru_cache(maxsize=4096)
def _counted(sends: Sends, others: int) -> tuple[tuple[Kind, int], ...]:
    found: Counter[Kind] = Counter()
    for part, collective, name, nbytes in sends:
        times = 1 + others if part in REPEATED else 1
        found[Kind(_what(name, part, collective), collective, name, nbytes)] += times
    return tuple(found.items())


def collectives_of(job: Job, layout: Layout, stage: Stage) -> Counter[Kind]:
    """Return how often a stage's chips call each kind of collective in a step."""
    found: Counter[Kind] = Counter()
    step, after = one_pass(job, layout, stage), update(job, layout, stage)
    for kind, times in _counted(step.sends, stage.others):
        found[kind] += times * layout.micro_batches
    for kind, times in _counted(after.sends, after.others):
        found[kind] += times
    return found


def traffic(
    job: Job, layout: Layout, stage: Stage, topology: Topology, axes: dict[str, int]
) -> list[Traffic]:
    """Return the collectives of a step on the mesh of a stage.

    Args:
        axes: the mesh axis of each of "dp", "cp" and "tp" that is above 1.
    """
    found = []
    for kind, times in collectives_of(job, layout, stage).items():
        axis = axes[kind.axis]
        sent, time_s = price(kind.collective, topology, axis, kind.nbytes)
        rest = (topology, times * sent, times * time_s)
        found.append(Traffic(kind.what, times, kind.collective, kind.nbytes, axis, *rest))
    return found

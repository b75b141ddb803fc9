"""What a plan would take on real links: a modelled time, from published figures, with its inputs
beside it.

The model is alpha-beta, link by link. The first packet of a message needs a hop's latency, which
grows with the packet as measured; the rest streams behind it at the link's measured rate. Messages
that share a link share its rate. A step lasts as long as its slowest link, and the steps follow
each other. What it leaves out: the chips' own work (additions, copies), and that links were
measured slower where every chip forwards for others at once; price a plan with `traffic="ring"` to
see that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ttkit.errors import fail
from ttkit.hardware import Link
from ttkit.plans import collectives
from ttkit.plans.plan import Plan, Step
from ttkit.plans.topology import RING, Topology
from ttkit.words import counted

PACKET = 4096  # bytes: the packet of the published figures
SMALLEST = 16


@dataclass(frozen=True)
class Cost:
    """What a plan would take:

    `time_s` in all, `step_times_s` one by one; prints as a card that names its inputs.

    Example:
        >>> from ttkit.plans import all_gather, cost, topology
        >>> card = cost(all_gather(topology("t3000"), 1 << 20, axis=1))
        >>> round(card.time_s * 1e6), round(card.bus_bandwidth_gb_per_s, 1)
        (137, 23.0)
    """

    plan: Plan = field(repr=False)
    step_times_s: tuple[float, ...] = field(repr=False)
    inputs: tuple[str, ...] = field(repr=False)
    time_s: float = 0.0

    @property
    def data_bytes(self) -> int:
        """The bytes that NCCL's tests name as the size of a collective: all shards where they
        are gathered, one shard elsewhere.
        """
        return self.plan.shard_bytes * (
            self.plan.group_size if self.plan.collective == "all_gather" else 1
        )

    @property
    def algorithm_bandwidth_gb_per_s(self) -> float:
        """Size over time."""
        return self.data_bytes / self.time_s / 1e9 if self.time_s else float("inf")

    @property
    def bus_bandwidth_gb_per_s(self) -> float:
        """Size over time, times what a chip must send of it at least; comparable with a link's
        rate whatever the number of chips.

        The factors are those of nccl-tests (doc/PERFORMANCE.md): 2 (n - 1) / n for all_reduce, (n -
        1) / n for all_gather, reduce_scatter and all_to_all, 1 for broadcast and point_to_point.
        """
        n = self.plan.group_size
        factor = {"all_reduce": 2 * (n - 1) / n, "broadcast": 1.0, "point_to_point": 1.0}.get(
            self.plan.collective, (n - 1) / n
        )
        return self.algorithm_bandwidth_gb_per_s * factor

    def __str__(self) -> str:
        plan, busiest = (
            self.plan,
            max(
                self.plan.bytes_per_link.items(), key=lambda item: item[1], default=(("-", "-"), 0)
            ),
        )
        rows = [
            (
                "collective",
                f"{plan.collective} by {plan.algorithm}, {len(plan.topology.chips)} chips of "
                f"{plan.topology.name}",
            ),
            ("steps", f"{len(plan.steps)}"),
            (
                "busiest link",
                f"{busiest[1]:,} bytes, chip {busiest[0][0]} to chip {busiest[0][1]}, "
                f"over {plan.links} cable" + "s" * (plan.links > 1),
            ),
            ("sent by a chip", f"at most {max(plan.bytes_sent.values()):,} bytes"),
            ("extra memory", f"at most {plan.peak_extra_bytes:,} bytes on a chip"),
            ("time, modelled", f"{self.time_s * 1e6:,.1f} us"),
            ("bus bandwidth, modelled", f"{self.bus_bandwidth_gb_per_s:.2f} GB/s"),
            *(("from" if i == 0 else "", text) for i, text in enumerate(self.inputs)),
        ]
        return "\n".join(f"{name:<24} {text}" for name, text in rows)


def rate_gb_per_s(
    link: Link, traffic: str = "line", links: int = 1, packet_bytes: int = PACKET
) -> float:
    """What each of `links` links of a pair carries, in GB/s, as published; between two published
    numbers of links, in proportion.

    Where several links were measured for another pattern only, what they lose there is taken to be
    lost here.

    Raises:
        TTKitError: a pattern of traffic or a packet size that was not measured.

    Example:
        >>> from ttkit.plans import topology
        >>> rate_gb_per_s(topology("t3000").link), rate_gb_per_s(topology("t3000").link, packet_bytes=2048)
        (11.78, 8.03)
    """
    known = [r for r in link.rates if r.traffic == traffic and r.packet_bytes == packet_bytes]
    if not known:
        rows = ", ".join(
            sorted({f"{r.traffic} with {r.packet_bytes}-byte packets" for r in link.rates})
        )
        fail(
            f"the rate of a link for {traffic!r} with {packet_bytes}-byte packets",
            f"that was not measured; there are: {rows}",
        )
    points = {r.links: r.gb_per_s for r in known}
    base = points.setdefault(1, known[0].gb_per_s)
    if len(points) == 1:
        shared = [
            r
            for r in link.rates
            if r.links > 1
            and r.packet_bytes == packet_bytes
            and r.traffic == f"{traffic} multicast"
        ]
        alone = next(
            (
                r.gb_per_s
                for r in link.rates
                if shared and (r.traffic, r.links) == (shared[0].traffic, 1)
            ),
            1.0,
        )
        points |= {r.links: base * r.gb_per_s / alone for r in shared}
    counts = sorted(points)
    return float(np.interp(links, counts, [points[n] for n in counts]))


def hop_time_s(
    link: Link, nbytes: float, traffic: str = "line", links: int = 1, packet_bytes: int = PACKET
) -> float:
    """Seconds for a message of `nbytes` over one of `links` links that are in use together, one
    hop.

    Example:
        >>> from ttkit.plans import topology
        >>> round(hop_time_s(topology("t3000").link, 16) * 1e9), round(hop_time_s(topology("t3000").link, 4096) * 1e9)
        (801, 1443)
    """
    if nbytes <= 0:
        return 0.0
    kind = traffic.split()[0]
    latency = next((row for row in link.latencies if row.traffic == kind), link.latencies[0])
    first_ns = np.interp(
        min(nbytes, PACKET), (SMALLEST, PACKET), (latency.smallest_ns, latency.packet_ns)
    )
    rest_s = (
        (nbytes - PACKET) / (rate_gb_per_s(link, traffic, links, packet_bytes) * 1e9)
        if nbytes > PACKET
        else 0.0
    )
    return float(first_ns * 1e-9 + rest_s)


def cost(plan: Plan, traffic: str = "line", packet_bytes: int = PACKET) -> Cost:
    """The modelled time of a plan on its topology's links.

    Args:
        traffic: the pattern whose published rate the links get: "line" (a message along a line of
        chips, nobody else
            sending), or one in which all chips send and forward at once: "ring", "ring multicast",
            "mesh", ...
        packet_bytes: 4096, or another size for which there are figures.

    Raises:
        TTKitError: as `rate_gb_per_s`.
    """
    link = plan.topology.link
    times = tuple(_step_time(plan, step, traffic, packet_bytes) for step in plan.steps)
    rate = rate_gb_per_s(link, traffic, plan.links, packet_bytes)
    latency = next(
        (row for row in link.latencies if row.traffic == traffic.split()[0]), link.latencies[0]
    )
    inputs = (
        f"{rate:.2f} GB/s each of {counted(plan.links, 'cable')}, {traffic}, "
        f"{packet_bytes}-byte packets",
        f"{latency.smallest_ns:g} ns a hop for {SMALLEST} bytes, "
        f"{latency.packet_ns:g} ns for {PACKET}",
        f"both published: {link.source}",  # a line of its own, so that none wraps on a page
    )
    return Cost(plan, times, inputs, sum(times))


def _step_time(plan: Plan, step: Step, traffic: str, packet_bytes: int) -> float:
    """The slowest pair of chips: its bytes over as many cables as its messages may use."""
    load: Counter[tuple[int, int]] = Counter()
    messages: Counter[tuple[int, int]] = Counter()
    for t in step:
        load[t.source, t.destination] += t.bytes or 0
        messages[t.source, t.destination] += 1
    slowest = {
        (load[pair], min(max(1, plan.topology.links), plan.links * messages[pair])) for pair in load
    }
    return max(
        (
            hop_time_s(plan.topology.link, size / cables, traffic, cables, packet_bytes)
            for size, cables in slowest
        ),
        default=0.0,
    )


# ---------------------------------------------------------------- the choice
def candidates(
    collective: str, topology: Topology, shard_bytes: int, axis: int | None = None
) -> list[Plan]:
    """A plan of each algorithm that can do a collective here.

    Example:
        >>> from ttkit.plans import topology
        >>> [plan.algorithm for plan in candidates("all_reduce", topology("t3000"), 1024)]
        ['line', 'tree', 'ring']
    """
    build: Callable[..., Plan] = getattr(collectives, collective)
    along = [axis] if axis is not None else [a for a in (1, 0) if topology.shape[a] > 1]
    ring = bool(along) and all(topology.kind(a) == RING for a in along)
    names: list[str | None] = ["line", *["ring"] * ring, *["tree"] * (collective == "all_reduce")]
    names += ["snake"] * (axis is None and min(topology.shape) > 1)
    return [build(topology, shard_bytes, axis, algorithm=name) for name in names]


def fastest(collective: str, topology: Topology, shard_bytes: int, axis: int | None = None) -> Plan:
    """The plan with the least modelled time among `candidates`.

    Example:
        >>> from ttkit.plans import topology
        >>> [fastest("all_reduce", topology("t3000"), size, axis=1).algorithm for size in (64, 1 << 20)]
        ['tree', 'line']
    """
    return min(
        candidates(collective, topology, shard_bytes, axis), key=lambda plan: cost(plan).time_s
    )


def crossover(
    small: Callable[[int], Plan], large: Callable[[int], Plan], low: int = 1, high: int = 1 << 30
) -> int | None:
    """The smallest shard, in bytes, for which the second algorithm takes no longer than the first;

    None where it always or never does.

    Args:
        small, large: build a plan for a shard of so many bytes: the one that is better for small
        shards, then the other.

    Example:
        >>> from ttkit.plans import all_reduce, topology
        >>> t3000 = topology("t3000")
        >>> size = crossover(lambda n: all_reduce(t3000, n, 1, algorithm="tree"), lambda n: all_reduce(t3000, n, 1, algorithm="line"))
        >>> 1_000 < size < 100_000
        True
    """

    def gains(size: int) -> bool:
        return cost(large(size)).time_s <= cost(small(size)).time_s

    if gains(low) or not gains(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if gains(middle) else (middle, high)
    return high

"""The modelled time of a plan on real links. It is computed from published figures and printed with
them.

The model is alpha-beta, link by link. The first packet of a message takes the latency of a hop,
which grows with the size of the packet, as measured; all other bytes follow at the measured rate of
the link. Links have a lower measured rate where all chips send and forward at the same time, as in
a collective. Messages that share a link share its rate. A step lasts as long as its slowest pair of
chips, and the steps run one after the other. If chips on the way only pass messages on, no step
waits for the one before: the time is that of the busiest pair in all steps, and one more packet for
each further step. An all_gather, a reduce_scatter or an
all_reduce also takes the handling time of its chips, which start kernels and add or
copy what arrives. The planner, the profile and the lessons all use this time, but the plans of
inference leave the handling time out (`ttkit.layouts.inference` says why).
"""

import bisect
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ttkit.errors import fail
from ttkit.hardware import Link
from ttkit.hardware.chips import Fact, Latency
from ttkit.plans.plan import Plan
from ttkit.words import counted, grouped

# The published figures are for packets of these two sizes, in bytes.
PACKET, SMALLEST = 4096, 16


@dataclass(frozen=True, repr=False)
class Cost:
    """The modelled time of a plan: `time_s` in total, and `step_times_s` per step.

    It prints as a table that names its inputs.

    Example:
        >>> from ttkit.plans import all_gather, cost, topology
        >>> round(cost(all_gather(topology("t3000"), 1 << 20, axis=1)).time_s * 1e6)
        291
    """

    plan: Plan
    step_times_s: tuple[float, ...]
    inputs: tuple[str, ...]

    @property
    def time_s(self) -> float:
        """The modelled seconds in all."""
        return sum(self.step_times_s)

    @property
    def bus_bandwidth_gb_per_s(self) -> float:
        """The fewest bytes that a chip must send, divided by the time. It can be compared with the
        rate of a link, for any number of chips.

        It is size times factor divided by time, as in nccl-tests (doc/PERFORMANCE.md). The size is
        that of all shards for all_gather, else of one shard. The factor is 2 (n - 1) / n for
        all_reduce, (n - 1) / n for all_gather, all_to_all and reduce_scatter, and 1 for broadcast,
        point_to_point and shift.
        """
        n = self.plan.group_size
        part = (n - 1) / n
        factors = {
            "all_gather": n - 1,
            "all_to_all": part,
            "reduce_scatter": part,
            "all_reduce": 2 * part,
        }
        size = self.plan.shard_bytes * factors.get(self.plan.collective, 1)
        return size / self.time_s / 1e9 if self.time_s else float("inf")

    def __repr__(self) -> str:
        plan = self.plan
        (a, b), most = max(
            plan.bytes_per_link.items(), key=lambda item: item[1], default=(("-", "-"), 0)
        )
        on = f"{len(plan.topology.chips)} chips of {plan.topology.name}"
        each = f", {most // plan.links:,} over each of {plan.links} links" if plan.links > 1 else ""
        rows = [
            ("collective", f"{plan.collective} by {plan.algorithm}, {on}"),
            ("steps", f"{len(plan.steps)}"),
            ("busiest pair", f"{most:,} bytes, chip {a} to chip {b}{each}"),
            ("sent by a chip", f"at most {max(plan.bytes_sent.values()):,} bytes"),
            ("extra memory", f"at most {plan.peak_extra_bytes:,} bytes on a chip"),
            ("time, modelled", f"{self.time_s * 1e6:,.1f} µs"),
            ("bus bandwidth, modelled", f"{self.bus_bandwidth_gb_per_s:.2f} GB/s"),
            *(("from" if i == 0 else "", text) for i, text in enumerate(self.inputs)),
        ]
        return "\n".join(f"{name:<24} {text}" for name, text in rows)


def rate_gb_per_s(link: Link, traffic: str = "line", links: int = 1) -> float:
    """Return the published rate of each link in GB/s, if a pair uses `links` links.

    If this number of links was not measured, the rate is interpolated.

    For some patterns only one link was measured, and for their multicast several links. With
    more links, such a pattern is assumed to lose the same fraction of its rate as its
    multicast.

    Raises:
        TTKitError: this pattern of traffic was not measured.

    Example:
        >>> from ttkit.plans import topology
        >>> rate_gb_per_s(topology("t3000").link), rate_gb_per_s(topology("t3000").link, "ring")
        (11.78, 5.18)
    """
    points = {rate.links: rate.gb_per_s for rate in link.rates if rate.traffic == traffic}
    if not points:
        known = ", ".join(sorted({rate.traffic for rate in link.rates}))
        fail(
            f"the rate of a link for {traffic!r} with {PACKET}-byte packets",
            f"this pattern was not measured; the measured ones are {known}",
        )
    base = points.setdefault(1, next(iter(points.values())))
    if len(points) == 1:
        shared = {
            rate.links: rate.gb_per_s
            for rate in link.rates
            if rate.traffic == f"{traffic} multicast"
        }
        points |= {n: base * rate / shared.get(1, rate) for n, rate in shared.items() if n > 1}
    counts = sorted(points)
    return float(np.interp(links, counts, [points[n] for n in counts]))


# While all chips send, a link has the rate of the first of these patterns that was measured on it.
BUSY = ("ring multicast", "line")
# A collective takes this handling time once for each chip of a group after the first. A tree takes
# it once for every two of its steps.
_SMALL = "tenstorrent/tt-metal FSDP_PERF_REPORT.md, section 4: read off its small tensors"
HOP_S = {
    "all_gather": Fact(5e-6, "s", _SMALL),
    "reduce_scatter": Fact(12e-6, "s", _SMALL),
    "all_reduce": Fact(17e-6, "s", f"{_SMALL}, of a reduce-scatter and an all-gather"),
}


# Routers forward each packet of these collectives when it arrives. In the others, chips on the way
# keep or add what they forward.
FORWARDED = ("all_to_all", "point_to_point", "shift")


def busy_traffic(link: Link) -> str:
    """Return the pattern of traffic whose rate a link has while all chips send and forward.

    Example:
        >>> from ttkit.plans import topology
        >>> busy_traffic(topology("galaxy").link), busy_traffic(topology("galaxy_bh").link)
        ('ring multicast', 'line')
    """
    measured = {rate.traffic for rate in link.rates}
    return next(name for name in BUSY if name in measured)


def _latency(link: Link, traffic: str) -> Latency:
    kind = traffic.split()[0]
    return next((row for row in link.latencies if row.traffic == kind), link.latencies[0])


def hop_time_s(link: Link, nbytes: float, traffic: str = "line", links: int = 1) -> float:
    """Return the seconds of a message of `nbytes` for one hop, over one of `links` links that are
    in use together.

    Example:
        >>> from ttkit.plans import topology
        >>> [round(hop_time_s(topology("t3000").link, size) * 1e9) for size in (16, 4096)]
        [801, 1443]
    """
    if nbytes <= 0:
        return 0.0
    latency = _latency(link, traffic)
    first_ns = np.interp(
        min(nbytes, PACKET), (SMALLEST, PACKET), (latency.smallest_ns, latency.packet_ns)
    )
    rest = max(0, nbytes - PACKET)
    rest_s = rest / (rate_gb_per_s(link, traffic, links) * 1e9) if rest else 0.0
    return float(first_ns * 1e-9 + rest_s)


def cost(plan: Plan, traffic: str | None = None) -> Cost:
    """Return the modelled time of a plan on its topology's links.

    Args:
        traffic: the pattern whose published rate the links get. With a pattern given, the plan has
            no handling time. "line" is a message along a line of chips while no other chip sends;
            in "ring", "ring multicast", "mesh", ... all chips send and forward at once. By default
            the pattern is `busy_traffic`, or "line" for `point_to_point`.

    Raises:
        TTKitError: this pattern of traffic was not measured.

    Example:
        >>> from ttkit.plans import all_gather, cost, topology
        >>> plan = all_gather(topology("t3000"), 1 << 20, axis=1)
        >>> [round(1e6 * each.time_s) for each in (cost(plan, "line"), cost(plan))]
        [137, 291]
    """
    link, own_s = plan.topology.link, 0.0
    # No handling time was published for the other collectives.
    if not traffic and plan.collective in HOP_S:
        hops = len(plan.steps) / 2 if plan.algorithm == "tree" else plan.group_size - 1
        own_s = hops * HOP_S[plan.collective].value
    if traffic is None:
        traffic = "line" if plan.collective == "point_to_point" else busy_traffic(link)
    own = own_s / max(1, len(plan.steps))
    times = tuple(_step_time(plan, i, traffic) + own for i in range(len(plan.steps)))
    rate = rate_gb_per_s(link, traffic, plan.links)
    latency = _latency(link, traffic)
    inputs = [
        f"{rate:.2f} GB/s each of {counted(plan.links, 'link')}, {traffic}, {PACKET}-byte packets",
        f"{latency.smallest_ns:g} ns a hop for {SMALLEST} bytes, "
        f"{latency.packet_ns:g} ns for {PACKET}",
        f"both published: {link.source}",  # The source has its own line, so that it does not wrap.
    ]
    if own_s:
        inputs.append(f"{own_s * 1e6:.0f} µs of the chips' handling time: {_SMALL}")
    return Cost(plan, times, tuple(inputs))


def _step_time(plan: Plan, number: int, traffic: str) -> float:
    """Return the seconds of a step: those of its slowest pair of chips. The messages of a pair use
    as many of its links as they may."""
    forwarded = plan.collective in FORWARDED
    steps = plan.steps if forwarded and number == 0 else [plan.steps[number]]
    pairs = grouped(itertools.chain(*steps), lambda t: (t.source, t.destination)).values()
    # Every step after the first adds only the time of one packet.
    longest = PACKET if forwarded and number else np.inf
    most = max(1, plan.topology.links)
    loads = {
        (sum(min(t.bytes, longest) for t in ts), min(most, plan.links * len(ts))) for ts in pairs
    }
    times = [hop_time_s(plan.topology.link, size / n, traffic, n) for size, n in loads]
    return max(times, default=0.0)


def crossover(small: Callable[[int], Plan], large: Callable[[int], Plan]) -> int | None:
    """Return the smallest shard, in bytes, for which the second algorithm takes no
    longer than the first; None if this is so for every shard up to a GiB, or for none.

    Args:
        small, large: two functions from the bytes of a shard to a plan. The first has the algorithm
            that is better for small shards.

    Example:
        >>> from ttkit.plans import all_reduce, topology
        >>> t3000 = topology("t3000")
        >>> size = crossover(
        ...     lambda n: all_reduce(t3000, n, 1, algorithm="tree"),
        ...     lambda n: all_reduce(t3000, n, 1, algorithm="line"),
        ... )
        >>> 1_000 < size < 100_000
        True
    """

    def gains(size: int) -> bool:
        return cost(large(size)).time_s <= cost(small(size)).time_s

    sizes = range(1, (1 << 30) + 1)
    first = bisect.bisect_left(sizes, True, key=gains)
    return sizes[first] if 0 < first < len(sizes) else None

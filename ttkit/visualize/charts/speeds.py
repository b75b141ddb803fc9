"""How fast a chip's data moves: in its own memory, to a neighbour, to another host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ttkit.hardware import System, current_system
from ttkit.visualize.charts import Bars
from ttkit.visualize.drawing import size_text
from ttkit.words import counted

GBIT = 8  # A byte has 8 bits, so 100 Gbit/s are 12.5 GB/s.
# Keys are powers of ten of a millisecond.
MARKS = {-3: "1 us", -1: "0.1 ms", 1: "10 ms", 3: "1 s", 5: "100 s"}


class Way(NamedTuple):
    """One way for data; `gb_per_s` is what one chip gets while all chips of its host use it."""

    name: str
    gb_per_s: float
    source: str

    def ms(self, nbytes: float) -> float:
        """Return how many milliseconds some bytes of each chip take; latency is left out."""
        return nbytes / self.gb_per_s / 1e6


@dataclass(frozen=True, repr=False)
class Ways(Bars):
    """Bars of the times that the same bytes take on each way, on an axis by powers of ten."""

    ways: Sequence[Way] = ()

    def slower(self, first: int = 0, last: int = -1) -> float:
        """Return how many times longer one way takes than another."""
        return self.ways[first].gb_per_s / self.ways[last].gb_per_s


def ways_out(
    mib_a_chip: float = 64,
    network_gbit_per_s: float = 100,
    links_between_hosts: int = 2,
    system: System | None = None,
) -> Ways:
    """Return how long each chip's data takes inside its host, and out of it.

    All chips of a host send at once, so they share the cables between hosts and the network.

    Args:
        mib_a_chip: of data of each chip.
        network_gbit_per_s: of the host's network card: an assumption, to be replaced by your own.
        links_between_hosts: chip links from this host's chips to those of another host.
        system: the machine of a host; by default the one in use.

    Example:
        >>> ways_out(mib_a_chip=64)
        64 MiB of each of 8 chips, all at once
          its own DRAM: 0.233 ms at 288 GB/s (published)
          to a linked chip, 2 links: 2.85 ms at 23.6 GB/s (measured by Tenstorrent)
          to the other host, 2 chip links: 22.8 ms at 2.94 GB/s (measured, shared by 8 chips)
          to the other host, network: 42.9 ms at 1.56 GB/s (assumed 100 Gbit/s, shared by 8 chips)
          Each mark is a hundred times the one before; latency is left out.
    """
    system = system or current_system()
    chip, chips, links = system.chip, system.num_devices, system.links_per_pair
    link = chip.link.rates[0].gb_per_s  # The first rate is that of a message along a line of chips.
    shared = f"shared by {counted(chips, 'chip')}"
    ways = [Way("its own DRAM", chip.dram_bandwidth.value, "published")]
    if links:
        name = f"to a linked chip, {counted(links, 'link')}"
        ways.append(Way(name, links * link, "measured by Tenstorrent"))
    name = f"to the other host, {counted(links_between_hosts, 'chip link')}"
    ways.append(Way(name, links_between_hosts * link / chips, f"measured, {shared}"))
    gb_per_s = network_gbit_per_s / GBIT / chips
    source = f"assumed {network_gbit_per_s:g} Gbit/s, {shared}"
    ways.append(Way("to the other host, network", gb_per_s, source))
    title = f"{size_text(mib_a_chip * 2**20)} of each of {counted(chips, 'chip')}, all at once"
    bars = []
    for way in ways:
        ms = way.ms(mib_a_chip * 2**20)
        time = f"{ms:.3g} ms" if ms < 1000 else f"{ms / 1000:.3g} s"
        bars.append((way.name, ms, f"{time} at {way.gb_per_s:.3g} GB/s ({way.source})"))
    foot = ["Each mark is a hundred times the one before; latency is left out."]
    return Ways(title, bars, foot, [(10.0**mark, text) for mark, text in MARKS.items()], ways)

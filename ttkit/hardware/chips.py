"""Chips and ethernet links; a `Fact` is a figure of a chip, with its unit and its source.

`machines.json` has the figures of all chips, links and systems, of a core's matrix engine, and the
bytes of elements and tiles. Each of a chip's `facts` is [value, unit, source]. The entries of a
link's `rates` and `latencies` are the fields of `Rate` and `Latency`. The latencies of a p300 are
those of a p150, because none are published for the p300.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

MACHINES: dict[str, Any] = json.loads(Path(__file__).with_name("machines.json").read_text())
GEMM_REPORT = "tenstorrent/tt-metal, tech_reports/GEMM_FLOPS"


class Fact(NamedTuple):
    """A number with its unit and its source.

    Example:
        >>> WORMHOLE.dram_bandwidth.value, WORMHOLE.dram_bandwidth.unit
        (288, 'GB/s')
    """

    value: float
    unit: str
    source: str


class Rate(NamedTuple):
    """The rate of one link for a pattern of traffic.

    It was measured with packets of 4096 bytes in Tenstorrent's fabric benchmark.
    """

    traffic: str
    gb_per_s: float
    links: int = 1  # This many links of a pair of chips were in use at once.


class Latency(NamedTuple):
    """The time of a packet for one hop in nanoseconds, in the benchmark of `Rate`."""

    traffic: str
    smallest_ns: float  # This is the time of a packet of 16 bytes.
    packet_ns: float  # This is the time of a packet of 4096 bytes.


# ELEMENT_BYTES is the size of one element of a ttnn type. 16 block floats share an exponent, so
# TILE_BYTES is the size of a whole tile of 1024 elements.
ELEMENT_BYTES: dict[str, int] = MACHINES["element_bytes"]
TILE_BYTES: dict[str, int] = MACHINES["tile_bytes"]

# A core's matrix engine does this many flops per cycle at LoFi.
ENGINE = Fact(*MACHINES["engine"])
# A matrix engine multiplies two 32x32 tiles in this many cycles. The number depends on the math
# fidelity: a higher one needs more passes, and each pass adds mantissa bits.
CYCLES_PER_TILE = {name: Fact(*figure) for name, figure in MACHINES["cycles_per_tile"].items()}


@dataclass(frozen=True)
class Link:
    """One ethernet link between two chips; its figures are for one direction.

    `rates` and `latencies` hold measured figures. The first entry of each is for a message along a
    line of chips."""

    rates: tuple[Rate, ...]
    latencies: tuple[Latency, ...]
    source: str


@dataclass(frozen=True)
class Chip:
    """One accelerator chip as it is on its card: name, memory, matrix engine, links.

    Example:
        >>> WORMHOLE.dram_bytes // 2**30
        11
    """

    name: str
    arch: str
    cores: Fact
    clock: Fact
    dram: Fact
    dram_banks: Fact
    dram_bandwidth: Fact
    core_grid: tuple[int, int]  # Programs may use a grid of this many cores in x and y.
    link: Link

    @property
    def dram_bytes(self) -> int:
        """The DRAM of one chip in bytes; a GB of the specification is 10^9 bytes."""
        return int(self.dram.value * 10**9)

    def peak_flops(self, fidelity: str) -> float:
        """Return the peak of the matrix engines of all cores, in flop/s.

        Args:
            fidelity: "LoFi", "HiFi2", "HiFi3" or "HiFi4".

        Example:
            >>> WORMHOLE.peak_flops("LoFi") / 1e12, WORMHOLE.peak_flops("HiFi4") / 1e12
            (262.144, 65.536)
        """
        passes = CYCLES_PER_TILE[fidelity].value / CYCLES_PER_TILE["LoFi"].value
        return self.cores.value * self.clock.value * ENGINE.value / passes


LINKS = {
    name: Link(
        tuple(Rate(*rate) for rate in row["rates"]),
        tuple(map(Latency._make, row["latencies"])),
        row["source"],
    )
    for name, row in MACHINES["links"].items()
}
CHIPS = {
    name: Chip(
        name,
        row["arch"],
        core_grid=tuple(row["core_grid"]),
        link=LINKS[row["link"]],
        **{key: Fact(*figure) for key, figure in row["facts"].items()},
    )
    for name, row in MACHINES["chips"].items()
}
WORMHOLE = CHIPS["n300 chip"]
BLACKHOLE = CHIPS["p150 chip"]

"""Chips and ethernet links; every constant is a `Fact`, a number with its unit and its source."""

from dataclasses import dataclass, replace
from typing import NamedTuple

WORMHOLE_PAGE = "docs.tenstorrent.com, Wormhole specifications"
BLACKHOLE_PAGE = "docs.tenstorrent.com, Blackhole specifications"
GEMM_REPORT = "tenstorrent/tt-metal, tech_reports/GEMM_FLOPS"
FABRIC_GOLDENS = "tenstorrent/tt-metal, perf_microbenchmark/routing/golden"
MOCK_CLUSTER = "ttnn 0.81.1 on its mock cluster, T3000"
DRAM_VIEWS = "tenstorrent/tt-metal, tt_metal/soc_descriptors/blackhole_140_arch.yaml"


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
    """The time of a packet for one hop in that benchmark, in nanoseconds."""

    traffic: str
    smallest_ns: float  # The packet has 16 bytes.
    packet_ns: float  # The packet has 4096 bytes.


# Bytes of an element, and of a tile of 1024 in blocks of 16 that share an exponent; ttnn's names.
ELEMENT_BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "uint32": 4,
    "int32": 4,
    "uint16": 2,
    "uint8": 1,
    "int8": 1,
}
TILE_BYTES = {"bfloat8_b": 1088, "bfloat4_b": 576}

# A core's matrix engine does this many at LoFi.
ENGINE = Fact(4096, "flop/cycle", GEMM_REPORT)
# It multiplies two 32x32 tiles in this many cycles, by math fidelity: each pass
# adds mantissa bits.
CYCLES_PER_TILE = {
    name: Fact(16 * passes, "cycles", GEMM_REPORT)
    for passes, name in enumerate(("LoFi", "HiFi2", "HiFi3", "HiFi4"), 1)
}


@dataclass(frozen=True)
class Link:
    """One ethernet link between two chips, each way.

    `rates` and `latencies` hold measured figures: the first of each is a message along a line of
    chips."""

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
    core_grid: tuple[int, int]  # Programs may use these cores, x and y.
    link: Link

    @property
    def dram_bytes(self) -> int:
        """DRAM of one chip in bytes; the specification's GB are powers of ten."""
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


_T3000_LINK = Link(
    (
        Rate("line", 11.78),
        Rate("line multicast", 11.68),
        Rate("ring", 5.18),
        Rate("ring multicast", 5.75),
        Rate("half ring", 6.09),
        Rate("mesh", 6.51),
        Rate("mesh multicast", 7.86),
    ),
    (Latency("line", 801, 1443), Latency("ring", 805, 1481), Latency("mesh", 929, 1547)),
    FABRIC_GOLDENS,
)
_GALAXY_LINK = Link(
    (
        Rate("line", 11.77),
        Rate("line multicast", 11.66),
        Rate("line multicast", 10.06, links=4),
        Rate("ring multicast", 8.34),
        Rate("ring multicast", 8.34, links=2),
        Rate("ring multicast", 6.0, links=4),
    ),
    (Latency("line", 853, 1375), Latency("mesh", 991, 1488)),
    FABRIC_GOLDENS,
)
_BLACKHOLE_LINK = Link(
    (Rate("line", 28.07), Rate("line multicast", 29.46), Rate("neighbours", 33.29)),
    (Latency("line", 679, 813), Latency("mesh", 715, 902)),
    FABRIC_GOLDENS,
)
# The latencies are those of the p150: none of a p300 are published.
_P300_LINK = replace(_BLACKHOLE_LINK, rates=(Rate("line", 23.55), Rate("line", 15.66, links=2)))


def _published(page: str, cores: int, clock: float, dram: int, bandwidth: int) -> dict[str, Fact]:
    """Return the facts of a chip's page, in Hz, GB and GB/s."""
    return {
        "cores": Fact(cores, "cores", page),
        "clock": Fact(clock, "Hz", page),
        "dram": Fact(dram, "GB", page),
        "dram_bandwidth": Fact(bandwidth, "GB/s", page),
    }


WORMHOLE = Chip(
    name="n300 chip",
    arch="WORMHOLE_B0",
    dram_banks=Fact(12, "banks", MOCK_CLUSTER),
    core_grid=(8, 8),
    link=_T3000_LINK,
    **_published(WORMHOLE_PAGE, cores=64, clock=1.0e9, dram=12, bandwidth=288),
)
WORMHOLE_N150 = replace(
    WORMHOLE, name="n150 chip", cores=Fact(72, "cores", WORMHOLE_PAGE), core_grid=(8, 9)
)
WORMHOLE_GALAXY = replace(WORMHOLE_N150, name="Galaxy chip", link=_GALAXY_LINK)
BLACKHOLE = Chip(
    name="p150 chip",
    arch="BLACKHOLE",
    dram_banks=Fact(8, "banks", DRAM_VIEWS),
    core_grid=(13, 10),
    link=_BLACKHOLE_LINK,
    **_published(BLACKHOLE_PAGE, cores=140, clock=1.35e9, dram=32, bandwidth=512),
)
BLACKHOLE_P300 = replace(BLACKHOLE, name="p300 chip", link=_P300_LINK)

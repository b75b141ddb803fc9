"""Chips and ethernet links: every constant is a `Fact`, a number with its unit and its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

WORMHOLE_PAGE = "docs.tenstorrent.com, Wormhole specifications"
BLACKHOLE_PAGE = "docs.tenstorrent.com, Blackhole specifications"
GEMM_REPORT = "tenstorrent/tt-metal, tech_reports/GEMM_FLOPS"
ETHERNET_GUIDE = "tenstorrent/tt-metal, tech_reports/EthernetMultichip/BasicEthernetGuide"
FABRIC_GOLDENS = "tenstorrent/tt-metal, perf_microbenchmark/routing/golden (4 KiB packets, one link)"
PRESS = "press coverage of Hot Chips 2024 (secondary)"


class Fact(NamedTuple):
    """A number with its unit and where it comes from.

    Example:
        >>> WORMHOLE.dram_bandwidth.value, WORMHOLE.dram_bandwidth.unit
        (288, 'GB/s')
    """

    value: float
    unit: str
    source: str


# Cycles of a core's matrix engine for a 32x32 tile times another, by math fidelity: each pass adds mantissa bits.
CYCLES_PER_TILE = {"LoFi": Fact(16, "cycles", GEMM_REPORT), "HiFi2": Fact(32, "cycles", GEMM_REPORT)}
CYCLES_PER_TILE |= {"HiFi3": Fact(48, "cycles", GEMM_REPORT), "HiFi4": Fact(64, "cycles", GEMM_REPORT)}


@dataclass(frozen=True)
class Link:
    """One ethernet link between two chips, each way."""

    raw: Fact  # what the wires carry
    bandwidth: Fact  # measured by Tenstorrent's fabric benchmark
    hop_latency: Fact  # 16-byte packet, one hop


@dataclass(frozen=True)
class Chip:
    """One accelerator chip as a board carries it: name, memory, matrix engine, links.

    Example:
        >>> WORMHOLE.dram_bytes // 2**30
        11
    """

    name: str
    arch: str
    cores: Fact
    clock: Fact
    flop_per_cycle: Fact  # one core's matrix engine at LoFi
    sram_per_core: Fact
    dram: Fact
    dram_bandwidth: Fact
    dram_grid: tuple[int, int]  # DRAM banks as ttnn numbers them, x and y
    core_grid: tuple[int, int]  # cores that programs may use, x and y
    link: Link

    @property
    def dram_bytes(self) -> int:
        """DRAM of one chip in bytes; the specification's GB are powers of ten."""
        return int(self.dram.value * 10**9)

    def peak_flops(self, fidelity: str) -> float:
        """What the matrix engines of all cores can do, in flop/s.

        Args:
            fidelity: "LoFi", "HiFi2", "HiFi3" or "HiFi4".

        Example:
            >>> WORMHOLE.peak_flops("LoFi") / 1e12, WORMHOLE.peak_flops("HiFi4") / 1e12
            (262.144, 65.536)
        """
        passes = CYCLES_PER_TILE[fidelity].value / CYCLES_PER_TILE["LoFi"].value
        return self.cores.value * self.clock.value * self.flop_per_cycle.value / passes


_ENGINE = Fact(4096, "flop/cycle", GEMM_REPORT)
_WORMHOLE_LINK = Link(Fact(12.5, "GB/s", ETHERNET_GUIDE), Fact(11.78, "GB/s", FABRIC_GOLDENS), Fact(801e-9, "s", FABRIC_GOLDENS))
_BLACKHOLE_LINK = Link(Fact(50.0, "GB/s", PRESS), Fact(28.07, "GB/s", FABRIC_GOLDENS), Fact(679e-9, "s", FABRIC_GOLDENS))


def _wormhole(name: str, cores: int, core_grid: tuple[int, int]) -> Chip:
    page = WORMHOLE_PAGE
    return Chip(
        name=name, arch="WORMHOLE_B0", cores=Fact(cores, "cores", page), clock=Fact(1.0e9, "Hz", page), flop_per_cycle=_ENGINE,
        sram_per_core=Fact(1536 * 1024, "bytes", page), dram=Fact(12, "GB", page), dram_bandwidth=Fact(288, "GB/s", page),
        dram_grid=(12, 1), core_grid=core_grid, link=_WORMHOLE_LINK,
    )  # fmt: skip


def _blackhole(name: str, cores: int) -> Chip:
    page = BLACKHOLE_PAGE
    return Chip(
        name=name, arch="BLACKHOLE", cores=Fact(cores, "cores", page), clock=Fact(1.35e9, "Hz", page), flop_per_cycle=_ENGINE,
        sram_per_core=Fact(1536 * 1024, "bytes", page), dram=Fact(32, "GB", page), dram_bandwidth=Fact(512, "GB/s", page),
        dram_grid=(8, 1), core_grid=(13, 10), link=_BLACKHOLE_LINK,
    )  # fmt: skip


WORMHOLE = _wormhole("n300 chip", 64, (8, 8))
WORMHOLE_N150 = _wormhole("n150 chip", 72, (8, 9))
BLACKHOLE = _blackhole("p150 chip", 140)
CHIPS = {chip.name: chip for chip in (WORMHOLE, WORMHOLE_N150, BLACKHOLE)}

"""A chip's roofline: the modelled time that flops and bytes take.

The slower one counts: the matrix engines at their peak, or DRAM at its bandwidth. Launch, tile
layout changes and messages between cores cost nothing here, so a card is slower, most of all in
small operations: tt-metal's GEMM_FLOPS report has 13 Tflop/s for a traced 512x512x512 product on an
n150, and 68 for 4096x4096x4096 at HiFi2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ttkit.hardware.chips import Chip


class Price(NamedTuple):
    """A modelled time, and what it is spent on: "compute" or "memory"."""

    time_s: float
    bound: str


def roofline(chip: Chip, flops: float, nbytes: float, fidelity: str) -> Price:
    """Return the modelled time of work on one chip: the longer of computing and moving.

    Args:
        flops: floating-point operations on this chip.
        nbytes: bytes read from and written to its DRAM.
        fidelity: "LoFi", "HiFi2", "HiFi3" or "HiFi4".

    Example:
        >>> from ttkit.hardware.chips import WORMHOLE
        >>> roofline(WORMHOLE, flops=2 * 4096**3, nbytes=3 * 4096**2 * 2, fidelity="HiFi2")
        Price(time_s=0.001048576, bound='compute')
    """
    compute, memory = flops / chip.peak_flops(fidelity), nbytes / (chip.dram_bandwidth.value * 1e9)
    return Price(compute, "compute") if compute > memory else Price(memory, "memory")


def default_fidelity(chip: Chip, dtypes: Sequence[str], *, configured: bool = False) -> str:
    """Return the math fidelity that ttnn takes when none is given.

    ttnn has this rule for matmuls; the profile takes it for every operation: LoFi for two block
    floats, and where a program or a core grid is given; HiFi4 for two float32 (HiFi3 on Wormhole,
    whose HiFi4 may err); else HiFi2. Source: tt-metal, ttnn/cpp/ttnn/operations/matmul/device, the
    attributes of a matmul.

    Args:
        dtypes: names of the operands' types, the first two count.
        configured: the call has a program_config or a core_grid.

    Example:
        >>> from ttkit.hardware.chips import WORMHOLE
        >>> default_fidelity(WORMHOLE, ["BFLOAT16", "BFLOAT8_B"])
        'HiFi2'
        >>> default_fidelity(WORMHOLE, ["BFLOAT8_B", "BFLOAT4_B"])
        'LoFi'
    """
    two = set(dtypes[:2])
    if two == {"FLOAT32"}:
        return "HiFi3" if chip.arch == "WORMHOLE_B0" else "HiFi4"
    return "LoFi" if configured or (two and two <= {"BFLOAT8_B", "BFLOAT4_B"}) else "HiFi2"

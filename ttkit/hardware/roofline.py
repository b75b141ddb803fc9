"""The modelled time of an operation on one chip: the launch, and then the longer of the time to
compute and the time to move bytes to and from DRAM.

The planner, `training_plan`, the profile and inference use these times. The three constants are
published or follow from published figures. None is fitted to the measurements that the model is
compared with. (For inference the planner adds a time for each layer, and that one is fitted.)
"""

from collections.abc import Sequence

import numpy as np

from ttkit.hardware.chips import GEMM_REPORT, Chip, Fact

# A matmul of 2 n^3 flops takes LAUNCH + 2 n^3 / (MATMUL_SHARE * peak). Two measured matmuls give
# both constants: n = 512 at 13.45 Tflop/s, traced, and n = 4096 at 68.4 Tflop/s. They were measured
# at HiFi2 on an n150, whose peak is 147.5 Tflop/s.
LAUNCH = Fact(16.1e-6, "s", f"{GEMM_REPORT}: 512^3 traced and 4096^3, HiFi2, n150")
MATMUL_SHARE = Fact(0.468, "of the peak", f"{GEMM_REPORT}: 512^3 traced and 4096^3, HiFi2, n150")
DRAM_SHARE = Fact(
    0.866,
    "of the bandwidth",
    "tenstorrent/tt-metal, tech_reports/Saturating_DRAM_bandwidth: "
    "239 to 260 of 288 GB/s in the products of Llama 3 70B's decode, on a Wormhole",
)


def compute_s(chip: Chip, flops, fidelity: str):
    """Return the modelled seconds of flops on one chip, without the launch."""
    return flops / (chip.peak_flops(fidelity) * MATMUL_SHARE.value)


def dram_s(chip: Chip, nbytes):
    """Return the modelled seconds to read bytes from one chip's DRAM or to write them there."""
    return nbytes / (chip.dram_bandwidth.value * 1e9 * DRAM_SHARE.value)


def operation_s(chip: Chip, flops, nbytes, fidelity: str):
    """Return the modelled seconds of an operation on one chip; arrays give the times of several.

    Args:
        flops: floating-point operations on this chip, counted over whole tiles.
        nbytes: bytes read from and written to its DRAM.
        fidelity: "LoFi", "HiFi2", "HiFi3" or "HiFi4".

    Example:
        >>> from ttkit.hardware.chips import CHIPS
        >>> n = np.array([512, 4096])
        >>> seconds = operation_s(CHIPS["n150 chip"], 2.0 * n**3, 0, "HiFi2")
        >>> (2 * n**3 / seconds / 1e12).round(1)  # Tflop/s
        array([13.4, 68.5])
    """
    return LAUNCH.value + np.maximum(compute_s(chip, flops, fidelity), dram_s(chip, nbytes))


def default_fidelity(chip: Chip, dtypes: Sequence[str], *, configured: bool = False) -> str:
    """Return the math fidelity that ttnn takes when none is given.

    ttnn has this rule for matmuls; the profile and the planner use it for every operation:

    - HiFi4 for float32 operands only, but HiFi3 on Wormhole, where HiFi4 may give wrong results;
    - LoFi for block floats only, and for any other call with a program_config or a core_grid;
    - HiFi2 otherwise.

    Source: tt-metal, ttnn/cpp/ttnn/operations/matmul/device, the attributes of a matmul.

    Args:
        dtypes: the names of the operands' types; only the first two are used.
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

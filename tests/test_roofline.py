"""Peaks, fidelities and the table of flops; what they make of a call is in test_profile."""

import pytest

from ttkit.hardware import SYSTEMS
from ttkit.hardware.chips import BLACKHOLE, WORMHOLE
from ttkit.roofline import COUNTED, MOVES, OF_INPUT, default_fidelity, roofline
from ttkit.sim import ttnn as _simulated  # noqa: F401  fills the table of operations
from ttkit.sim.dispatch import OPERATIONS


def test_default_fidelity():
    two = lambda a, b, chip=WORMHOLE, **how: default_fidelity(chip, [a, b], **how)  # noqa: E731
    assert two("BFLOAT16", "BFLOAT16") == two("BFLOAT16", "BFLOAT8_B") == two("FLOAT32", "BFLOAT16") == "HiFi2"
    assert two("BFLOAT8_B", "BFLOAT4_B") == two("BFLOAT16", "BFLOAT16", configured=True) == "LoFi"
    assert (two("FLOAT32", "FLOAT32"), two("FLOAT32", "FLOAT32", BLACKHOLE)) == ("HiFi3", "HiFi4")


def test_the_tables_name_operations_that_there_are():
    assert set(COUNTED) | set(OF_INPUT) | MOVES <= set(OPERATIONS) and not (set(COUNTED) | set(OF_INPUT)) & MOVES


def test_peaks_are_the_published_ones():
    assert SYSTEMS["n150"].chip.peak_flops("HiFi4") == pytest.approx(74e12, rel=0.01)  # FP16, Wormhole specifications
    assert SYSTEMS["n300"].chip.peak_flops("HiFi4") * 2 == pytest.approx(131e12, rel=0.01)


def test_the_roof_has_two_sides():
    ridge = WORMHOLE.peak_flops("LoFi") / 288e9  # flops for each byte
    assert roofline(WORMHOLE, 1.01 * ridge * 1e6, 1e6, "LoFi").bound == "compute" and roofline(WORMHOLE, 0.99 * ridge * 1e6, 1e6, "LoFi").bound == "memory"
    assert roofline(WORMHOLE, 0, 288e9, "HiFi4") == (1.0, "memory") and roofline(BLACKHOLE, 0, 0, "LoFi").time_s == 0

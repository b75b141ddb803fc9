"""Peaks, fidelities and what each operation's record says of flops; calls are in test_profile."""

import pytest

from ttkit.hardware import SYSTEMS
from ttkit.hardware.chips import BLACKHOLE, WORMHOLE
from ttkit.hardware.roofline import DRAM_SHARE, LAUNCH, MATMUL_SHARE, default_fidelity, operation_s
from ttkit.sim import ttnn as _simulated  # noqa: F401  fills the table of operations
from ttkit.sim.ops import OPERATIONS, no_flops


def test_default_fidelity():
    two = lambda a, b, chip=WORMHOLE, **how: default_fidelity(chip, [a, b], **how)  # noqa: E731
    assert (
        two("BFLOAT16", "BFLOAT16")
        == two("BFLOAT16", "BFLOAT8_B")
        == two("FLOAT32", "BFLOAT16")
        == "HiFi2"
    )
    assert two("BFLOAT8_B", "BFLOAT4_B") == two("BFLOAT16", "BFLOAT16", configured=True) == "LoFi"
    assert (two("FLOAT32", "FLOAT32"), two("FLOAT32", "FLOAT32", BLACKHOLE)) == ("HiFi3", "HiFi4")


def test_what_computes_has_flops_and_nothing_else():
    computes = {name for name, record in OPERATIONS.items() if record.flops is not no_flops}
    assert computes == {
        name for name, record in OPERATIONS.items() if record.kind in ("compute", "product")
    }
    assert {"matmul", "add_", "softmax"} <= computes
    assert not {"all_reduce", "reshape", "zeros"} & computes


SHAPES = {"a": (4, 8), "b": (8, 2), "out": (4, 2)}


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("matmul", {"input_tensor_a": "a", "transpose_a": False}, 2 * 4 * 2 * 8),
        ("matmul", {"input_tensor_a": "b", "transpose_a": True}, 2 * 4 * 2 * 8),
        ("softmax", {}, 5 * 4 * 8), ("sum", {}, 4 * 8), ("add", {}, 4 * 2), ("reshape", {}, 0),
    ],
)  # fmt: skip
def test_flops(name, given, wanted):
    assert OPERATIONS[name].flops(given, ["a", "b"], ["out"], SHAPES.__getitem__) == wanted


def test_peaks_are_the_published_ones():
    # FP16, Wormhole specifications
    assert SYSTEMS["n150"].chip.peak_flops("HiFi4") == pytest.approx(74e12, rel=0.01)
    assert SYSTEMS["n300"].chip.peak_flops("HiFi4") * 2 == pytest.approx(131e12, rel=0.01)


def test_the_longer_of_computing_and_moving_counts():
    peak, rate = WORMHOLE.peak_flops("LoFi") * MATMUL_SHARE.value, 288e9 * DRAM_SHARE.value
    for seconds in (0.5, 2):
        spent = operation_s(WORMHOLE, seconds * peak, rate, "LoFi")
        assert spent == pytest.approx(max(seconds, 1) + LAUNCH.value)


@pytest.mark.parametrize("n, tflops", [(512, 13.45), (4096, 68.4)])
def test_products_of_two_sizes_are_the_published_ones(n, tflops):
    chip = SYSTEMS["n150"].chip
    seconds = operation_s(chip, 2 * n**3, 0, "HiFi2")  # The operands lay in SRAM.
    assert 2 * n**3 / seconds / 1e12 == pytest.approx(tflops, rel=0.005)

"""Shapes and the chips that they get."""

import pytest

from ttkit.hardware import SYSTEMS
from ttkit.hardware.device_order import device_order, transposed_warning


@pytest.mark.parametrize(
    "dims, shape, turned",
    [
        ((2, 4), (2, 4), False), ((2, 4), (4, 2), True), ((2, 4), (2, 2), False),
        ((2, 4), (3, 1), False), ((4, 4), (2, 4), False), ((2, 6), (3, 2), True),
        ((2, 4), (5, 1), False), ((8, 4), (4, 8), True),
    ],
)  # fmt: skip
def test_opens_transposed(dims, shape, turned):
    assert bool(transposed_warning(dims, shape)) == turned


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_full_mesh_has_every_chip_once(name):
    system = SYSTEMS[name]
    for shape in (system.shape, system.shape[::-1], (1, system.num_devices)):
        places = list(device_order(system, shape, (0, 0), "a test"))
        assert len(set(places)) == len(places) == system.num_devices

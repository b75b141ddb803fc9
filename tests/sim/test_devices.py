"""Devices by the names of programs for one card, and of test fixtures."""

import pytest

import ttkit
from ttkit import ttnn


@pytest.fixture
def on(request):
    yield ttkit.use_system
    ttkit.use_system(None)


def test_devices_one_by_one(on):
    on("t3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)  # which wants all chips
    device = ttnn.open_device(2, dispatch_core_config=ttnn.DispatchCoreConfig())
    assert device.get_device_ids() == [2]
    ttnn.close_device(device)


def test_a_fabric_as_fixtures_set_it(on):
    on("t3000")
    modes = ttnn.FabricTensixConfig.DISABLED, ttnn.FabricUDMMode.DISABLED
    strict = ttnn.FabricReliabilityMode.STRICT_INIT
    ring, manager = ttnn.FabricConfig.FABRIC_1D_RING, ttnn.FabricManagerMode.DEFAULT
    ttnn.set_fabric_config(ring, strict, None, *modes, manager)
    assert ttnn.get_fabric_config() is ring
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def test_the_default_device_is_what_was_set(wide):
    ttnn.SetDefaultDevice(wide)
    assert ttnn.GetDefaultDevice() is wide
    ttnn.SetDefaultDevice()
    assert ttnn.GetDefaultDevice() is None

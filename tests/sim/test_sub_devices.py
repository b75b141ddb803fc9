"""Sub-devices, semaphores, events: what is kept, and in which order calls must come. Phrases are
golden cases (tests/conformance/hints.json).
"""

import pytest

from ttkit import TTKitError, ttnn


def cores(x, y):
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(x, y))])


def test_a_manager_is_loaded_cleared_and_removed(wide):
    one = wide.create_sub_device_manager([ttnn.SubDevice([cores(3, 3)])], 0)
    wide.load_sub_device_manager(one)
    assert len(wide.sub_devices) == 1 and wide.sub_devices[0].cores == [cores(3, 3)]
    wide.set_sub_device_stall_group([ttnn.SubDeviceId(0)])
    wide.reset_sub_device_stall_group()
    with pytest.raises(TTKitError, match="Cannot remove active sub device manager"):
        wide.remove_sub_device_manager(one)
    wide.clear_loaded_sub_device_manager()
    wide.remove_sub_device_manager(one)
    with pytest.raises(TTKitError, match="Sub device manager does not exist"):
        wide.load_sub_device_manager(one)


def test_a_semaphore_keeps_its_value(wide):
    semaphore = ttnn.create_global_semaphore(wide, cores(7, 7), 3)
    assert (semaphore.value, semaphore.cores) == (3, cores(7, 7))
    ttnn.reset_global_semaphore_value(semaphore, 1)
    assert semaphore.value == 1


def test_an_event_names_its_queue_and_chips(wide):
    event = ttnn.record_event(wide, 1)
    assert event.mesh_cq_id == 1 and len(list(event.device_range)) == 8
    ttnn.wait_for_event(0, event)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        ttnn.wait_for_event(0)


def test_the_default_device_is_what_was_set(wide):
    ttnn.SetDefaultDevice(wide)
    assert ttnn.GetDefaultDevice() is wide
    ttnn.SetDefaultDevice()
    assert ttnn.GetDefaultDevice() is None

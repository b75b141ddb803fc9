"""Hints: records with ttnn's fields, and keywords that every operation takes. Texts are
golden cases (tests/conformance/hints.json)."""

import numpy as np
import pytest
from shards import hint

from ttkit import ttnn
from ttkit.sim.hints import RECORDS


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16])
def test_a_fused_activation_is_computed(wide, put, parts, dtype):
    a, b = put(wide, [64, 64], "S0R", dtype), put(wide, [64, 32], "RS0", dtype)
    relu = (ttnn.UnaryOpType.RELU, 0.0)
    config = hint("MatmulMultiCoreReuseMultiCastProgramConfig", fused_activation=relu)
    fused = parts(ttnn.linear(a, b, program_config=config))
    plain = parts(ttnn.linear(a, b, activation="relu"))
    assert min(v.min() for v in fused) == 0
    for one, other in zip(fused, plain, strict=True):
        np.testing.assert_array_equal(one, other)


# ---------------------------------------------------------------- records
@pytest.mark.parametrize("name", RECORDS)
def test_a_row_is_a_class_whose_fields_are_read_and_written(name):
    value = hint(name)
    for field in value.takes.parameters:
        setattr(value, field, 7)
        assert getattr(value, field) == 7
    with pytest.raises(TypeError, match="unknown"):
        hint(name, unknown=1)
    assert hint(name) == hint(name)
    assert list(vars(hint(name))) == list(value.takes.parameters)  # They print in ttnn's order.


def test_a_class_of_configurations_for_annotations():
    with pytest.raises(TypeError, match="missing"):
        ttnn.SDPAProgramConfig(q_chunk_size=32)
    config = ttnn.init_device_compute_kernel_config(ttnn.get_arch_name())
    assert isinstance(config, ttnn.DeviceComputeKernelConfig | None)


def test_numbers_compare_with_their_own():
    one, other = ttnn.SubDeviceId(1), ttnn.SubDeviceId(2)
    assert one != other and one == ttnn.SubDeviceId(1) and int(one) == 1
    assert (repr(one), str(one)) == ("SubDeviceId(1)", "1")


# ---------------------------------------------------------------- what works beside what
def cores(x, y):
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(x, y))])


def test_sub_devices_change_nothing(wide, put):
    x, both = put(wide, [32, 32], "S0R"), [ttnn.SubDevice([cores(3, 3)])]
    manager = wide.create_sub_device_manager(both, 0)
    wide.load_sub_device_manager(manager)
    wide.set_sub_device_stall_group([ttnn.SubDeviceId(0)])
    ttnn.all_gather(x, 0, cluster_axis=1, subdevice_id=ttnn.SubDeviceId(0))
    wide.reset_sub_device_stall_group()
    wide.clear_loaded_sub_device_manager()
    wide.remove_sub_device_manager(manager)


def test_a_semaphore_keeps_its_value(wide):
    semaphore = ttnn.create_global_semaphore(wide, cores(7, 7), 3)
    assert (semaphore.value, semaphore.cores) == (3, cores(7, 7))
    other = ttnn.create_global_semaphore(wide, cores(7, 7), 3)
    address = ttnn.get_global_semaphore_address
    assert address(semaphore) == address(semaphore) != address(other)
    ttnn.reset_global_semaphore_value(semaphore, 1)
    assert semaphore.value == 1


def test_weights_read_ahead(wide, put):
    room = ttnn.create_global_circular_buffer(wide, [(ttnn.CoreCoord(0, 0), cores(1, 1))], 2048)
    weight, other = put(wide, [32, 32]), put(wide, [32, 32])
    assert room.size == 2048 and weight.buffer_address() != other.buffer_address()
    assert ttnn.dram_prefetcher([weight, other], 1, room) is other


def test_cores_that_start_kernels():
    # as tt-metal's conftest
    config = ttnn.DispatchCoreConfig(ttnn.DispatchCoreType.WORKER, None, None)
    assert config.type is ttnn.DispatchCoreType.WORKER

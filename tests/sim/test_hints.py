"""Hints: records with ttnn's fields, and keywords that every operation takes. Texts are
golden cases (tests/conformance/hints.json).
"""

import numpy as np
import pytest

from ttkit import ttnn
from ttkit.sim.hints import RECORDS

BLOCKS = {
    "compute_with_storage_grid_size": (8, 8),
    "in0_block_w": 1,
    "out_subblock_h": 1,
    "out_subblock_w": 1,
    "per_core_M": 1,
    "per_core_N": 1,
}


def product(**changes):
    return ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        **(BLOCKS | {"transpose_mcast": False} | changes)
    )


def test_an_unknown_keyword_is_refused(wide, put):
    x = put(wide, [32, 32], "S0R")
    with pytest.raises(TypeError, match="unexpected keyword argument 'memory_confg'"):
        ttnn.add(x, x, memory_confg=ttnn.DRAM_MEMORY_CONFIG)
    with pytest.raises(TypeError, match="memory_config='DRAM' is a str, not MemoryConfig"):
        ttnn.add(x, x, memory_config="DRAM")


def test_every_operation_takes_a_queue(wide, put):
    x = put(wide, [32, 32], "S0R")
    for queue in (0, 1, None):
        assert ttnn.relu(x, queue_id=queue).shape == [32, 32]


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16])
def test_a_fused_activation_is_computed(wide, put, parts, dtype):
    a, b = put(wide, [64, 64], "S0R", dtype), put(wide, [64, 32], "RS0", dtype)
    config = product(per_core_M=2, fused_activation=(ttnn.UnaryOpType.RELU, 0.0))
    fused = parts(ttnn.linear(a, b, program_config=config))
    plain = parts(ttnn.linear(a, b, activation="relu"))
    assert min(v.min() for v in fused) == 0
    for one, other in zip(fused, plain, strict=True):
        np.testing.assert_array_equal(one, other)


# ---------------------------------------------------------------- records
NEED = {
    "compute_with_storage_grid_size": (8, 4),
    "transpose_mcast": True,
    "fuse_batch": True,
    "mcast_in0": False,
    "inplace": False,
}


def made(name, **more):
    fields = RECORDS[name].takes.parameters.values()
    needed = [field.name for field in fields if field.default is field.empty]
    return getattr(ttnn, name)(**{f: NEED.get(f, 2) for f in needed}, **more)


@pytest.mark.parametrize("name", RECORDS)
def test_a_row_is_a_class_whose_fields_are_read_and_written(name):
    value = made(name)
    for field in value.takes.parameters:
        setattr(value, field, 7)
        assert getattr(value, field) == 7
    with pytest.raises(TypeError, match="unknown"):
        made(name, unknown=1)
    assert made(name) == made(name)


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
    ttnn.reset_global_semaphore_value(semaphore, 1)
    assert semaphore.value == 1


def test_cores_that_start_kernels():
    config = ttnn.DispatchCoreConfig(
        ttnn.DispatchCoreType.WORKER, None, None
    )  # as tt-metal's conftest
    assert config.type is ttnn.DispatchCoreType.WORKER

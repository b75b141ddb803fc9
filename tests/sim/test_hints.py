"""Keywords that are hints: which an operation takes in each dialect, and what is refused. Phrases
are golden cases (tests/conformance/hints.json).
"""

import numpy as np
import pytest

import ttkit
from ttkit import TTKitError, ttnn
from ttkit.dialect import DialectWarning, _warned
from ttkit.sim.hints import EVERY
from ttkit.sim.operation import OPERATIONS

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


def test_older_hints_are_taken_in_the_default_dialect_alone(wide, put, parts):
    x = put(wide, [32, 32], "S0R")
    with pytest.raises(TypeError, match="incompatible function arguments: use_legacy"):
        ttnn.add(x, x, use_legacy=True)
    ttkit.strict(False)
    _warned.clear()
    with pytest.warns(DialectWarning, match="use_legacy"):
        total = ttnn.add(x, x, use_legacy=True)
    for a, b in zip(parts(total), parts(x), strict=True):
        np.testing.assert_array_equal(a, 2 * b)


def test_a_hint_is_no_parameter_that_an_operation_has():
    for name, record in OPERATIONS.items():
        given = set(record.signature.parameters)
        assert "use_legacy" not in given, name
    assert "memory_config" in EVERY


def test_every_operation_takes_a_queue(wide, put):
    x = put(wide, [32, 32], "S0R")
    for queue in (0, 1, None, ttnn.QueueId(1)):
        assert ttnn.relu(x, queue_id=queue).shape == [32, 32]
    with pytest.raises(TTKitError, match="cq_id 2 is out of range"):
        ttnn.relu(x, cq_id=2)


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16])
def test_a_fused_activation_is_computed(wide, put, parts, dtype):
    a, b = put(wide, [64, 64], "S0R", dtype), put(wide, [64, 32], "RS0", dtype)
    config = product(per_core_M=2, fused_activation=(ttnn.UnaryOpType.RELU, 0.0))
    fused = parts(ttnn.linear(a, b, program_config=config))
    plain = parts(ttnn.linear(a, b, activation="relu"))
    assert min(v.min() for v in fused) == 0
    for one, other in zip(fused, plain, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"compute_with_storage_grid_size": (8, 10)}, r"must fit within device grid \(8, 9\)"),
        ({"in0_block_w": 3}, r"Kt \(2\) must be divisible by in0_block_w \(3\)"),
        ({"per_core_N": 4, "out_subblock_w": 3}, "must be divisible by out_subblock_w"),
        ({"per_core_M": 9, "out_subblock_h": 9}, "needs to be at most 8 to fit in hardware"),
        ({"per_core_M": 3}, r"per_core_M \(3\) exceeds Mt \(2\)"),
    ],
)
def test_blocks_are_checked_on_a_galaxy(put, changes, rule):
    ttkit.use_system("galaxy")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(8, 4)) as mesh:
        a, b = put(mesh, [64, 64], "S0R"), put(mesh, [64, 32], "RS0")
        assert ttnn.matmul(a, b, program_config=product(per_core_M=2)).shape == [64, 32]
        with pytest.raises(TTKitError, match=rule):
            ttnn.matmul(a, b, program_config=product(**changes))


def test_a_sub_device_must_be_loaded(wide, put):
    x, cores = put(wide, [32, 32], "S0R"), [(0, 0), (3, 3), (4, 0), (7, 7)]
    with pytest.raises(TTKitError, match="SubDevice index 1 out of bounds 1"):
        ttnn.all_gather(x, 0, cluster_axis=1, subdevice_id=ttnn.SubDeviceId(1))
    ranges = [
        ttnn.CoreRange(ttnn.CoreCoord(*a), ttnn.CoreCoord(*b)) for a, b in zip(*[iter(cores)] * 2)
    ]
    both = [ttnn.SubDevice([ttnn.CoreRangeSet([r])]) for r in ranges]
    wide.load_sub_device_manager(wide.create_sub_device_manager(both, 0))
    ttnn.all_gather(x, 0, cluster_axis=1, subdevice_id=ttnn.SubDeviceId(1))


def test_a_keyword_that_would_change_values_is_refused(wide, put):
    x = put(wide, [32, 32], "S0R")
    assert list(ttnn.concat([x, x], 1, groups=1).shape) == [32, 64]
    with pytest.raises(TTKitError, match="the simulator's concat has no groups"):
        ttnn.concat([x, x], 1, groups=2)

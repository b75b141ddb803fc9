"""Value classes of hints: fields read back and written, refusals. Their texts are golden cases
(tests/conformance/hints.json).
"""

import pytest

import ttkit
from ttkit import ttnn
from ttkit.sim.values import CLASSES, ENUMERATIONS, ROWS

NEED = {
    "compute_with_storage_grid_size": (8, 4),
    "transpose_mcast": True,
    "fuse_batch": True,
    "mcast_in0": False,
    "inplace": False,
}


def made(name):
    needed = [word for word in ROWS[name].split() if "=" not in word]
    return getattr(ttnn, name)(**{f: NEED.get(f, 2) for f in needed})


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_a_class_whose_fields_are_read_and_written(name):
    value = made(name)
    for field in value.fields:
        setattr(value, field, getattr(value, field))
        with pytest.raises(TypeError, match="incompatible function arguments"):
            setattr(value, field, object())
    with pytest.raises(AttributeError):
        value.unknown = 1
    with pytest.raises(TypeError, match="unknown"):
        getattr(ttnn, name)(unknown=1)
    assert value == value and value != made(name)


def test_pairs_and_activations_stand_for_values():
    value = made("MatmulMultiCoreReuseMultiCastProgramConfig")
    assert value.compute_with_storage_grid_size == ttnn.CoreCoord(8, 4)
    assert value.fused_activation is None
    value.fused_activation = (ttnn.UnaryOpType.GELU, True)
    assert value.fused_activation.op_type is ttnn.UnaryOpType.GELU
    assert value.fused_activation.params == [1.0]


def test_blocks_are_all_that_a_core_computes_unless_given():
    value = made("MatmulMultiCoreReuseMultiCastProgramConfig")
    assert (value.out_block_h, value.out_block_w) == (2, 2)
    line = "MatmulMultiCoreReuseMultiCast1DProgramConfig"
    assert made(line).hop_cores == ttnn.CoreRangeSet([])


def test_enumerations_count_from_zero():
    for name in ENUMERATIONS:
        assert [m.value for m in CLASSES[name]] == list(range(len(CLASSES[name])))


@pytest.mark.parametrize(
    ("system", "kind", "arch"),
    [("t3000", "ETH", "wormhole_b0"), ("galaxy", "WORKER", "wormhole_b0")],
)
def test_dispatch_cores_are_those_of_the_machine(system, kind, arch):
    ttkit.use_system(system)
    assert ttnn.DispatchCoreConfig().type.name == kind
    assert ttnn.get_arch_name() == arch


def test_numbers_compare_with_their_own():
    one, other = ttnn.SubDeviceId(1), ttnn.SubDeviceId(2)
    assert one != other and one == ttnn.SubDeviceId(1) and int(one) == 1
    with pytest.raises(TypeError, match="incompatible function arguments"):
        ttnn.QueueId(-1)

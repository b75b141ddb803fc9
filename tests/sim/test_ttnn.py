"""The namespace: a name that is not there says which is closest, and where to add it."""

import pytest

import ttkit
from ttkit import ttnn


@pytest.mark.parametrize(
    ("where", "name", "says"),
    [
        (
            ttnn,
            "hardsigmod",
            "ttnn.hardsigmod: the simulator has no such name; the closest is ttnn.hardsigmoid",
        ),
        (ttnn, "igamma", "ttkit/sim/ops/unary.py or binary.py"),
        (ttnn, "zzz", "ttnn.zzz: the simulator has no such name\n"),
        (ttnn.transformer, "concatenate_head", "the closest is ttnn.transformer.concatenate_heads"),
        (ttnn.experimental, "conv3d", "ttnn.experimental.conv3d"),
        (ttnn.device, "CloseDevices", "the closest is ttnn.device.CloseDevice"),
    ],
)
def test_a_missing_name(where, name, says):
    with pytest.raises(AttributeError) as error:
        getattr(where, name)
    assert says in str(error.value)
    assert not hasattr(where, name) and not hasattr(where, f"_{name}")


def test_names_of_the_kit_are_not_in_it():
    assert not {"to_numpy", "OPERATIONS", "send_async"} & set(dir(ttnn))
    assert ttnn.experimental.send_async is not None and ttnn.div is ttnn.divide


def test_operations_have_their_full_names():
    assert ttnn.all_gather.python_fully_qualified_name == "ttnn.all_gather"
    sent = ttnn.experimental.send_async
    assert sent.python_fully_qualified_name == "ttnn.experimental.send_async"


def test_fallback_functions():
    fallback = ttnn.get_fallback_function(ttnn.subtract)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        x = ttnn.full([32, 32], 3.0, device=mesh, layout=ttnn.TILE_LAYOUT, dtype=ttnn.bfloat16)
        assert (ttkit.to_numpy(fallback(x, 1.0)) == 2).all()


@pytest.mark.parametrize(
    ("system", "ids"),
    [("n150", [0]), ("n300", [0]), ("t3000", [0, 1, 2, 3]), ("galaxy", [*range(32)])],
)
def test_devices_with_a_pcie_connection(system, ids):
    ttkit.use_system(system)
    try:
        assert ttnn.get_pcie_device_ids() == ids
        assert ttnn.get_num_pcie_devices() == len(ids)
    finally:
        ttkit.use_system(None)

"""The troubleshooting section of the distributed training guide, row by row: its message comes,
and its cure with it (those of a mismatch of axes: test_context.py).
"""

import pytest
from machine import close_all, describe

import ttkit
from ttkit import TTKitError, ttnn
from ttkit.train import AutoContext, DistributedConfig


@pytest.fixture(autouse=True)
def clean_machine():
    """Here the code switches the fabric on and off itself."""
    yield
    close_all()


BOTH = DistributedConfig(enable_ddp=True, enable_tp=True)


@pytest.fixture
def context():
    ttkit.use_system("galaxy")
    fresh = AutoContext()
    yield fresh
    fresh.close_device()
    close_all()
    assert ttnn.get_fabric_config() == ttnn.FabricConfig.DISABLED


def message_of(call, *arguments, **keywords):
    """(what is wrong, what to try) of the error that a call raises."""
    with pytest.raises(TTKitError) as error:
        call(*arguments, **keywords)
    wrong, _, cure = str(error.value).partition("\n  try: ")
    return wrong, cure


@pytest.mark.parametrize("shape", [[1, 32], [32, 1]])
def test_a_line_on_a_grids_descriptor_hangs_or_crashes(context, tmp_path, monkeypatch, shape):
    """Critical in the guide: `[1, 32]` and `[32, 1]` where the descriptor has 4x8."""
    describe(monkeypatch, tmp_path, 32, 4, 8)
    wrong, cure = message_of(context.open_device, shape)
    assert (
        f"Mesh shape mismatch!\nRequested mesh_shape: {shape}\nMGD device_topology dims: [4, 8]\n"
        in wrong
    )
    assert "hangs or crashes" in wrong
    assert "mesh_shape [4, 8]" in cure and f"device_topology has dims {shape}" in cure
    context.open_device([4, 8])  # which the guide calls fine
    assert context.get_device().get_num_devices() == 32


def test_mgd_shape_mismatch(context, tmp_path, monkeypatch):
    """`mesh_shape: [4, 8]` with a descriptor of 1x32."""
    describe(monkeypatch, tmp_path, 32, 1, 32)
    wrong, cure = message_of(context.open_device, [4, 8])
    assert (
        "Mesh shape mismatch!\nRequested mesh_shape: [4, 8]\nMGD device_topology dims: [1, 32]"
        in wrong
    )
    assert "a descriptor whose device_topology has dims [4, 8]" in cure


def test_mgd_file_not_found(context, monkeypatch):
    monkeypatch.setenv(
        "TT_MESH_GRAPH_DESC_PATH", "/nowhere/galaxy_1x32_mesh_graph_descriptor.textproto"
    )
    monkeypatch.delenv("TT_METAL_HOME", raising=False)
    wrong, cure = message_of(context.open_device, [8, 4])
    assert "TT_MESH_GRAPH_DESC_PATH=" in wrong and "not found: /nowhere/galaxy_1x32" in wrong
    assert "TT_METAL_HOME is not set" in cure and "8 or 32 devices" in cure
    monkeypatch.setenv("TT_METAL_HOME", "/somewhere")
    assert "TT_METAL_HOME" not in message_of(context.open_device, [8, 4])[1]


def test_context_not_initialized(context):
    context.open_device([8, 4])
    wrong, cure = message_of(context.get_parallelism_context)
    assert "ParallelismContext is not initialized." in wrong
    assert "initialize_parallelism_context" in cure and "after open_device and before" in cure
    context.initialize_parallelism_context(BOTH)
    assert context.get_parallelism_context().get_tp_size() == 4


def test_context_already_initialized(context):
    context.open_device([8, 4])
    context.initialize_parallelism_context(BOTH)
    wrong, cure = message_of(context.initialize_parallelism_context, BOTH)
    assert "ParallelismContext is already initialized." in wrong and "once" in cure


PHRASE = (
    "Physical chip id {} not found in control plane chip mapping. "
    "You are calling for a chip outside of the fabric cluster. "
    "Check that your mesh graph descriptor specifies the correct topology"
)


def test_physical_chip_id_not_found(context, tmp_path, monkeypatch):
    """A descriptor of fewer chips than the machine has, and a chip that it leaves out."""
    describe(monkeypatch, tmp_path, 32, 4, 4)
    wrong, cure = message_of(context.open_device, [1, 2], device_ids=[30, 31])
    assert PHRASE.format(30) in wrong
    assert "tt-topology -l mesh" in cure and "all 32 chips" in cure


def test_cards_that_are_not_cabled(context, monkeypatch):
    ttkit.use_system("t3000")
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "0,3")
    wrong, cure = message_of(context.open_device, [2, 2])
    assert PHRASE.format(0) in wrong and cure == "cards that are neighbours"

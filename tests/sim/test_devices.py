"""Devices by the names of programs for one card, and of test fixtures."""

import pytest

import ttkit
from ttkit import TTKitError, ttnn


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ("n150", "N150"), ("n300", "N300"), ("t3000", "T3K"), ("galaxy", "GALAXY"),
        ("galaxy_torus", "GALAXY"), ("p150", "P150"), ("galaxy_bh", "BLACKHOLE_GALAXY"),
    ],
)  # fmt: skip
def test_kinds_of_machines(system, kind):
    ttkit.use_system(system)
    assert ttnn.cluster.get_cluster_type() is ttnn.cluster.ClusterType[kind]
    black = system.endswith("bh") or system.startswith("p")
    assert ttnn.device.is_blackhole() is black and ttnn.device.is_wormhole_b0() is not black
    assert not ttnn.using_distributed_env()


def test_numbers_of_the_real_enumeration():
    kinds = ttnn.cluster.ClusterType
    assert [kinds.T3K.value, kinds.P150_X8.value, kinds.CUSTOM.value] == [3, 13, 18]


def test_devices_one_by_one():
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)  # which wants all chips
    assert [ttnn.GetPCIeDeviceID(i) for i in range(8)] == [0, 1, 2, 3] * 2
    assert (ttnn.GetNumPCIeDevices(), ttnn.GetNumAvailableDevices()) == (4, 8)
    device = ttnn.CreateDevice(2, dispatch_core_config=ttnn.DispatchCoreConfig())
    assert device.get_device_ids() == [2]
    ttnn.CloseDevice(device)


def test_memory_and_sizes():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        tensor = ttnn.zeros([32, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
        assert ttnn.is_tensor_storage_on_device(tensor)
        assert not ttnn.is_tensor_storage_on_device(tensor.cpu())
    assert [ttnn.element_size(d) for d in (ttnn.uint8, ttnn.bfloat16, ttnn.int32)] == [1, 2, 4]
    with pytest.raises(TTKitError, match="is invalid"):
        ttnn.element_size(ttnn.bfloat8_b)
    assert ttnn.Tensor([1.0], [1], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT).element_size() == 2


def test_classes_that_annotations_name():
    inside = ttnn._ttnn
    assert inside.operations.ccl.Topology is ttnn.Topology
    assert inside.device.SubDeviceId is ttnn.SubDeviceId
    semaphore = inside.global_semaphore.global_semaphore
    assert inside.operations.experimental.ccl_experimental.GlobalSemaphoreArg is semaphore
    with pytest.raises(AttributeError, match=r"_ttnn.tensor.Tenso: .* closest is .*tensor.Tensor"):
        inside.tensor.Tenso  # noqa: B018


def test_a_fabric_as_fixtures_set_it():
    router = ttnn._ttnn.fabric.FabricRouterConfig()
    router.max_packet_payload_size_bytes = 6144
    modes = ttnn.FabricTensixConfig.DISABLED, ttnn.FabricUDMMode.DISABLED
    strict = ttnn.FabricReliabilityMode.STRICT_INIT
    ring, manager = ttnn.FabricConfig.FABRIC_1D_RING, ttnn.FabricManagerMode.DEFAULT
    ttnn.set_fabric_config(ring, strict, None, *modes, manager, router)
    assert ttnn.get_fabric_config() is ring
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def test_the_default_device_is_what_was_set(wide):
    ttnn.SetDefaultDevice(wide)
    assert ttnn.GetDefaultDevice() is wide
    ttnn.SetDefaultDevice()
    assert ttnn.GetDefaultDevice() is None

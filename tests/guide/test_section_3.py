"""Guide, section 3: a tensor of two halves, one on each device."""

import numpy as np
import pytest

import ttkit
from ttkit import ttnn


@pytest.fixture
def halves():
    """A 1x2 mesh, and a host tensor whose left half is 1 and right half 2, cut along dimension
    3.
    """
    ttkit.use_system("n300")
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    values = np.zeros((1, 1, 32, 64), np.float32)
    values[..., 0:32], values[..., 32:64] = 1.0, 2.0
    placements = [ttnn.PlacementReplicate(), ttnn.PlacementShard(3)]
    mesh_mapper = ttnn.create_mesh_mapper(mesh_device, ttnn.MeshMapperConfig(placements=placements))
    return mesh_device, ttnn.from_torch(values, mesh_mapper=mesh_mapper, layout=ttnn.TILE_LAYOUT)


def test_the_host_tensor_prints_shard_by_shard(halves):
    _, tensor = halves
    first, second = str(tensor).split("ttnn.Tensor(")[1:]
    assert first.startswith("[[[[ 1.0") and second.startswith("[[[[ 2.0")
    for text in (first, second):
        assert "..." in text
        assert "shape=Shape([1, 1, 32, 32]), dtype=DataType::FLOAT32, layout=Layout::TILE)" in text


def test_on_device_each_shard_is_headed_by_its_device(halves):
    mesh_device, tensor = halves
    tensor = ttnn.to_device(tensor, mesh_device)
    assert str(tensor).startswith("device_id: 0, ") and "\ndevice_id: 1, " in str(tensor)
    for value, shard in zip((1.0, 2.0), ttnn.get_device_tensors(tensor)):
        assert (ttkit.to_numpy(shard) == value).all() and list(shard.shape) == [1, 1, 32, 32]


@pytest.mark.parametrize("on_device", [False, True])
def test_visualize_tensor(halves, capsys, on_device):
    mesh_device, tensor = halves
    ttnn.visualize_tensor(ttnn.to_device(tensor, mesh_device) if on_device else tensor)
    text = capsys.readouterr().out
    assert "[:, :, :, 0:32]" in text
    assert "[:, :, :, 32:64]" in text
    assert ("Dev. ID: 1" in text) == on_device

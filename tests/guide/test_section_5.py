"""Guide, section 5: all-gather over the whole mesh, and along one axis."""

import numpy as np
import pytest

import ttkit
from ttkit import DialectWarning, ttnn

VALUES = np.arange(32 * 256, dtype=np.float32).reshape(1, 1, 32, 256)


def shards_over(mesh_device):
    return ttnn.from_torch(
        VALUES,
        layout=ttnn.TILE_LAYOUT,
        device=mesh_device,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh_device, dim=3),
    )


def test_all_gather_over_eight_devices():
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    tensor = shards_over(mesh_device)
    with pytest.warns(DialectWarning) as seen:
        for _ in range(3):
            output = ttnn.all_gather(tensor, dim=3, num_links=1)
    assert len(seen) == 2  # no fabric was set, and no cluster axis given: each once
    for shard in ttnn.get_device_tensors(output):
        np.testing.assert_array_equal(ttkit.to_numpy(shard), VALUES)


def test_all_gather_along_the_columns():
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    tensor = shards_over(mesh_device)
    with pytest.warns(DialectWarning):
        output = ttnn.all_gather(
            tensor, dim=3, cluster_axis=0, mesh_device=mesh_device, topology=ttnn.Topology.Linear
        )
    pieces = np.split(VALUES, 8, 3)
    for index, shard in enumerate(ttnn.get_device_tensors(output)):
        column = index % 4
        np.testing.assert_array_equal(
            ttkit.to_numpy(shard), np.concatenate([pieces[column], pieces[4 + column]], 3)
        )
    ttnn.close_mesh_device(mesh_device)


def test_strict_refuses_the_older_forms():
    ttkit.strict()
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    tensor = shards_over(mesh_device)
    with pytest.raises(RuntimeError, match="requires cluster_axis to be set"):
        ttnn.all_gather(tensor, dim=3, num_links=1)
    with pytest.raises(TypeError):
        ttnn.all_gather(tensor, dim=3, cluster_axis=0, mesh_device=mesh_device)

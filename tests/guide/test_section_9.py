"""Guide, section 9.2: a matrix product on two devices, its columns gathered."""

import numpy as np
import pytest

import ttkit
from ttkit import DialectWarning, ttnn


def test_matmul_and_all_gather():
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((1, 1, 128, 128), dtype=np.float32), rng.standard_normal((1, 1, 128, 256), dtype=np.float32)
    input_a = ttnn.from_torch(a, layout=ttnn.TILE_LAYOUT, device=mesh_device, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh_device))
    input_b = ttnn.from_torch(b, layout=ttnn.TILE_LAYOUT, device=mesh_device, mesh_mapper=ttnn.ShardTensorToMesh(mesh_device, dim=3))
    output = ttnn.matmul(input_a, input_b)
    assert list(output.shape) == [1, 1, 128, 128]
    with pytest.warns(DialectWarning, match="cluster_axis=1"):  # along axis 0 there is one device: the guide means the other
        gathered = ttnn.all_gather(output, dim=3, cluster_axis=0)
    for shard in ttnn.get_device_tensors(gathered):
        np.testing.assert_allclose(ttkit.to_numpy(shard), a @ b, rtol=1e-4, atol=1e-4)


def test_with_torch_in_bfloat16(torch):
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    a, b = torch.randn(1, 1, 128, 128, dtype=torch.bfloat16), torch.randn(1, 1, 128, 256, dtype=torch.bfloat16)
    input_a = ttnn.from_torch(a, layout=ttnn.TILE_LAYOUT, device=mesh_device, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh_device))
    input_b = ttnn.from_torch(b, layout=ttnn.TILE_LAYOUT, device=mesh_device, mesh_mapper=ttnn.ShardTensorToMesh(mesh_device, dim=3))
    with pytest.warns(DialectWarning):
        gathered = ttnn.all_gather(ttnn.matmul(input_a, input_b), dim=3, cluster_axis=0)
    ttkit.assert_with_pcc(torch.matmul(a.float(), b.float()), ttnn.to_torch(ttnn.get_device_tensors(gathered)[1]), 0.999)

"""Guide, section 9.2: a matrix product on two devices, its columns gathered."""

import numpy as np
import pytest
from formulas import tolerance

import ttkit
from ttkit import DialectWarning, ttnn


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"])
def test_matmul_and_all_gather(dtype):
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((1, 1, 128, n), dtype=np.float32) for n in (128, 256))
    how = {"dtype": dtype, "layout": ttnn.TILE_LAYOUT, "device": mesh_device}
    input_a = ttnn.from_torch(a, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh_device), **how)
    input_b = ttnn.from_torch(b, mesh_mapper=ttnn.ShardTensorToMesh(mesh_device, dim=3), **how)
    output = ttnn.matmul(input_a, input_b)
    assert list(output.shape) == [1, 1, 128, 128]
    # along axis 0 there is one device: the guide means the other
    with pytest.warns(DialectWarning, match="cluster_axis=1"):
        gathered = ttnn.all_gather(output, dim=3, cluster_axis=0)
    parts = [ttkit.to_numpy(t).astype(np.float64) for t in ttnn.get_device_tensors(input_b)]
    whole = ttkit.to_numpy(ttnn.get_device_tensors(input_a)[0]) @ np.concatenate(parts, 3)
    for shard in ttnn.get_device_tensors(gathered):
        np.testing.assert_allclose(ttkit.to_numpy(shard), whole, **tolerance(dtype, additions=128))
        ttkit.assert_with_pcc(whole, shard, 0.9999)

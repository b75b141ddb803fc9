"""Guide, section 4: gelu on one device, then on four with the same text."""

import numpy as np
import pytest

import ttkit
from ttkit import DialectWarning, ttnn


def gelu(x):
    from math import erf

    return np.vectorize(lambda v: 0.5 * v * (1 + erf(v / 2**0.5)))(x.astype(np.float64))


def test_gelu_on_one_device():
    device = ttnn.open_device(0)
    values = np.random.default_rng(0).random((1, 1, 32, 32), dtype=np.float32)
    tensor = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=device)
    np.testing.assert_allclose(ttkit.to_numpy(ttnn.gelu(tensor)), gelu(values), rtol=1e-5, atol=1e-6)
    ttnn.close_device(device)


def test_gelu_on_four_devices():
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
    values = np.random.default_rng(1).random((1, 1, 32, 128), dtype=np.float32)
    tensor = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh_device)  # no mapper: all of it on each device
    output = ttnn.gelu(tensor)
    shards = ttnn.get_device_tensors(output)
    assert len(shards) == 4
    for shard in shards:
        np.testing.assert_allclose(ttkit.to_numpy(shard), gelu(values), rtol=1e-5, atol=1e-6)


def test_the_bfloat16_input_of_the_guide(torch):
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
    values = torch.rand((1, 1, 32, 128), dtype=torch.bfloat16)
    output = ttnn.gelu(ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh_device))
    assert output.dtype is ttnn.bfloat16
    ttkit.assert_with_pcc(torch.nn.functional.gelu(values.float()), ttnn.to_torch(ttnn.get_device_tensors(output)[3]), 0.999)


def test_older_spelling_of_a_mesh_shape():
    with pytest.warns(DialectWarning, match="MeshShape"):
        assert ttnn.MeshShape(y=1, x=4) == ttnn.MeshShape(1, 4)
    ttkit.strict()
    with pytest.raises(TypeError):
        ttnn.MeshShape(y=1, x=4)

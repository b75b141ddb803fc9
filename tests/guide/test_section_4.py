"""Guide, section 4: gelu on one device, then on four with the same text."""

import numpy as np
import pytest
from formulas import gelu, tolerance

import ttkit
from ttkit import DialectWarning, ttnn


def test_gelu_on_one_device():
    device = ttnn.open_device(0)
    values = np.random.default_rng(0).random((1, 1, 32, 32), dtype=np.float32)
    tensor = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=device)
    np.testing.assert_allclose(
        ttkit.to_numpy(ttnn.gelu(tensor)), gelu(values.astype(np.float64)), **tolerance()
    )
    ttnn.close_device(device)


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"])
def test_gelu_on_four_devices(dtype):
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
    values = np.random.default_rng(1).random((1, 1, 32, 128), dtype=np.float32)
    # no mapper: all of it on each device
    tensor = ttnn.from_torch(values, dtype=dtype, layout=ttnn.TILE_LAYOUT, device=mesh_device)
    output = ttnn.gelu(tensor)
    assert output.dtype is dtype
    given, made = (list(map(ttkit.to_numpy, ttnn.get_device_tensors(t))) for t in (tensor, output))
    assert len(made) == 4
    for shard, result in zip(given, made, strict=True):
        np.testing.assert_allclose(shard, values, rtol=2**-8)
        np.testing.assert_allclose(result, gelu(shard.astype(np.float64)), **tolerance(dtype))


def test_older_spelling_of_a_mesh_shape():
    with pytest.warns(DialectWarning, match="MeshShape"):
        assert ttnn.MeshShape(y=1, x=4) == ttnn.MeshShape(1, 4)
    ttkit.strict()
    with pytest.raises(TypeError):
        ttnn.MeshShape(y=1, x=4)

"""Guide, section 7: the Falcon MLP tensor-parallel on eight devices, weights cut along their
width.
"""

import sys
from pathlib import Path

import ttkit
from ttkit import ttnn

sys.path.insert(0, str(Path(__file__).parent))
from falcon import FalconMLP, inputs, torch_model


def test_tensor_parallel_on_eight_devices(torch):
    model, states = torch_model(torch), inputs(torch, 1, 256)
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    with ttnn.distribute(ttnn.ReplicateTensorToMesh(mesh_device)):
        hidden = ttnn.from_torch(
            states, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh_device
        )
    with ttnn.distribute(ttnn.ShardTensorToMesh(mesh_device, dim=-1)):
        parameters = ttnn.model_preprocessing.preprocess_model_parameters(
            initialize_model=lambda: model, device=mesh_device
        )
    assert list(parameters.dense_h_to_4h.weight.shape) == [128, 64]
    output = FalconMLP(parameters, gather=lambda t: ttnn.all_gather(t, dim=3, num_links=1))(hidden)
    with ttnn.distribute(ttnn.ConcatMeshToTensor(mesh_device, dim=3)):
        ttkit.assert_with_pcc(model.forward(states), ttnn.to_torch(output), 0.98)

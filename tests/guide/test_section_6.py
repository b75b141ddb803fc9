"""Guide, section 6: the Falcon MLP on one device, then data-parallel on four."""

import sys
from pathlib import Path

import ttkit
from ttkit import ttnn

sys.path.insert(0, str(Path(__file__).parent))
from falcon import FalconMLP, inputs, torch_model


def test_on_one_device(torch):
    model, states = torch_model(torch), inputs(torch, 1, 128)
    device = ttnn.open_device(0)
    hidden = ttnn.from_torch(states, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    parameters = ttnn.model_preprocessing.preprocess_model_parameters(
        initialize_model=lambda: model, device=device
    )
    assert list(parameters.dense_h_to_4h.weight.shape) == [128, 512]
    ttkit.assert_with_pcc(model.forward(states), ttnn.to_torch(FalconMLP(parameters)(hidden)), 0.98)
    ttnn.close_device(device)


def test_data_parallel_on_four_devices(torch):
    model, states = torch_model(torch), inputs(torch, 4, 128)
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(y=1, x=4))
    with ttnn.distribute(ttnn.ShardTensorToMesh(mesh_device, dim=0)):
        hidden = ttnn.from_torch(
            states, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh_device
        )
    with ttnn.distribute(ttnn.ReplicateTensorToMesh(mesh_device)):
        parameters = ttnn.model_preprocessing.preprocess_model_parameters(
            initialize_model=lambda: model, device=mesh_device
        )
    output = FalconMLP(parameters)(hidden)
    assert list(output.shape) == [1, 1, 128, 128]
    with ttnn.distribute(ttnn.ConcatMeshToTensor(mesh_device, dim=0)):
        ttkit.assert_with_pcc(model.forward(states), ttnn.to_torch(output), 0.98)

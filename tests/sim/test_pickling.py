"""A tensor stays in the process that made it."""

import copy
import pickle

import numpy as np
import pytest

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("on_mesh", [False, True])
def test_a_tensor_cannot_be_copied_out(take, on_mesh):
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        device = mesh if on_mesh else None
        mapper = ttnn.ReplicateTensorToMesh(mesh) if on_mesh else None
        tensor = ttkit.from_numpy(np.zeros((32, 32), np.float32), device=device, mesh_mapper=mapper)
        with pytest.raises(TTKitError) as caught:
            take(tensor)
    assert str(caught.value) == (
        "pickle or deepcopy a FLOAT32 tensor of shape [32, 32]: "
        "a tensor belongs to the process that made it, as its mesh does\n"
        "  try: ttkit.to_numpy(tensor), whose array may go anywhere; ttnn.clone(tensor)"
    )

"""Guide, section 8.3: a model on each submesh of a Galaxy, captured once and replayed on new
inputs.
"""

import numpy as np

import ttkit
from ttkit import ttnn


def test_hybrid_parallel_with_a_trace():
    ttkit.use_system("galaxy")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(8, 4))
    submeshes = mesh_device.create_submeshes(ttnn.MeshShape(2, 4))
    assert len(submeshes) == 4
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 32), dtype=np.float32)

    def host(values, submesh):  # the summed dimension over the columns of the submesh
        mapper = ttnn.create_mesh_mapper(
            submesh, ttnn.MeshMapperConfig([ttnn.PlacementReplicate(), ttnn.PlacementShard(1)])
        )
        return ttkit.from_numpy(values, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)

    first, second = rng.standard_normal((2, 4, 16, 64), dtype=np.float32)
    activations = [ttnn.to_device(host(x, s), s) for x, s in zip(first, submeshes)]
    cut = [
        ttnn.create_mesh_mapper(
            s, ttnn.MeshMapperConfig([ttnn.PlacementReplicate(), ttnn.PlacementShard(0)])
        )
        for s in submeshes
    ]
    weights = [
        ttkit.from_numpy(weight, layout=ttnn.TILE_LAYOUT, device=s, mesh_mapper=c)
        for s, c in zip(submeshes, cut)
    ]

    def forward(x, w):
        return ttnn.relu(ttnn.all_reduce(ttnn.matmul(x, w), cluster_axis=1))

    for x, w in zip(activations, weights):  # the guide compiles by running once
        forward(x, w)
    trace_id = ttnn.begin_trace_capture(mesh_device, cq_id=0)
    outputs = [forward(x, w) for x, w in zip(activations, weights)]
    ttnn.end_trace_capture(mesh_device, trace_id, cq_id=0)

    def check(inputs):
        for x, output in zip(inputs, outputs):
            for shard in ttnn.get_device_tensors(output):
                np.testing.assert_allclose(
                    ttkit.to_numpy(shard), np.maximum(x @ weight, 0), rtol=1e-4, atol=1e-4
                )

    check(first)
    for x, tensor, submesh in zip(second, activations, submeshes):
        ttnn.copy_host_to_device_tensor(host(x, submesh), tensor)
    check(first)  # nothing runs until the trace does
    ttnn.execute_trace(mesh_device, trace_id, blocking=False)
    check(second)
    ttnn.release_trace(mesh_device, trace_id)

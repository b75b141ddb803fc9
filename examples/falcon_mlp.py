"""The MLP of Falcon-7B on one device, then data-, tensor- and hybrid-parallel, each compared
with the one device.

    python examples/falcon_mlp.py            4544 features, 18176 inside, as in Falcon-7B:
                                             2.4 GB of memory on the simulator
    python examples/falcon_mlp.py --small    256 features

It goes through sections 6 to 8 of the guide "Programming Mesh of Devices" on eight chips. The
weights are random: what is shown here is that all ways to lay the model on chips give one result.
"""

import argparse
import time

import numpy as np

import ttkit
from ttkit import ttnn

SIZES = {"falcon-7b": (4544, 18176), "small": (256, 1024)}


class FalconMLP:
    """Two linear layers with a gelu between;

    `gather` is what happens to each chip's part of the inner features.
    """

    def __init__(self, up, down, gather=None):
        self.up, self.down, self.gather = up, down, gather

    def __call__(self, x):
        inner = ttnn.gelu(ttnn.linear(x, self.up))
        return ttnn.linear(self.gather(inner) if self.gather else inner, self.down)


def opened(rows, columns):
    """A mesh with a fabric between its chips: closing the last mesh switches that off."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    return ttnn.open_mesh_device(ttnn.MeshShape(rows, columns))


def place(array, mesh, *placements):
    """An array on a mesh, cut along its axes as the placements say."""
    mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(list(placements)))
    return ttkit.from_numpy(
        array, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper
    )


def joined(tensor, *dims):
    """The whole of a tensor: the shards along each mesh axis side by side in a dimension."""
    composer = ttnn.create_mesh_composer(tensor.device(), ttnn.MeshComposerConfig(list(dims)))
    return ttkit.to_numpy(tensor, mesh_composer=composer)


SAME, CUT_BATCH, CUT_WIDTH = (
    ttnn.PlacementReplicate(),
    ttnn.PlacementShard(0),
    ttnn.PlacementShard(3),
)


def gathered(inner):
    """All inner features on each chip of a line, which has a part of them."""
    return ttnn.all_gather(inner, dim=3, cluster_axis=1)


def one_device(x, up, down):
    """What all others must give."""
    with opened(1, 1) as mesh:
        model = FalconMLP(place(up, mesh, SAME, SAME), place(down, mesh, SAME, SAME))
        return ttkit.to_numpy(model(place(x, mesh, SAME, SAME)))


def data_parallel(x, up, down):
    """Section 6: four chips with the whole model and a quarter of the batch each."""
    with opened(1, 4) as mesh:
        model = FalconMLP(place(up, mesh, SAME, SAME), place(down, mesh, SAME, SAME))
        return joined(model(place(x, mesh, SAME, CUT_BATCH)), 1, 0)


def tensor_parallel(x, up, down):
    """Section 7: eight chips with an eighth of each weight's width; the inner features are
    gathered, as the second layer needs all.
    """
    with opened(1, 8) as mesh:
        model = FalconMLP(
            place(up, mesh, SAME, CUT_WIDTH), place(down, mesh, SAME, CUT_WIDTH), gathered
        )
        return joined(model(place(x, mesh, SAME, SAME)), 0, 3)


def hybrid_parallel(x, up, down):
    """Section 8: two lines of four chips with half of the batch each; a line shares the model.

    Captured once, and run as a trace.
    """
    with opened(2, 4) as mesh:
        submeshes = mesh.create_submeshes(ttnn.MeshShape(1, 4))
        models = [
            FalconMLP(
                place(up, part, SAME, CUT_WIDTH), place(down, part, SAME, CUT_WIDTH), gathered
            )
            for part in submeshes
        ]
        inputs = [
            place(np.zeros_like(half), part, SAME, SAME)
            for half, part in zip(np.split(x, 2), submeshes)
        ]
        for model, tensor in zip(models, inputs):  # compiles, on hardware
            model(tensor)
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        outputs = [model(tensor) for model, tensor in zip(models, inputs)]
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        for half, tensor, part in zip(np.split(x, 2), inputs, submeshes):
            mapper = ttnn.create_mesh_mapper(part, ttnn.MeshMapperConfig([SAME, SAME]))
            ttnn.copy_host_to_device_tensor(
                ttkit.from_numpy(
                    half, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper
                ),
                tensor,
            )
        ttnn.execute_trace(mesh, trace, blocking=True)
        result = np.concatenate([joined(output, 0, 3) for output in outputs])
        ttnn.release_trace(mesh, trace)
        return result


def main(size="falcon-7b", batch=4, length=64):
    """Run all four; how alike each result is to the one device's (Pearson correlation)."""
    hidden, wide = SIZES[size]
    random = np.random.default_rng(0)
    up = random.standard_normal((1, 1, hidden, wide), dtype=np.float32) / np.float32(hidden**0.5)
    down = random.standard_normal((1, 1, wide, hidden), dtype=np.float32) / np.float32(wide**0.5)
    x = random.uniform(-1, 1, (batch, 1, length, hidden)).astype(np.float32)
    right = one_device(x, up, down)
    alike = {}
    for run in (data_parallel, tensor_parallel, hybrid_parallel):
        start = time.perf_counter()
        result = run(x, up, down)
        ttkit.assert_with_pcc(right, result, 0.98)
        alike[run.__name__] = ttkit.pcc(right, result)
        print(
            f"{run.__name__:16} {list(result.shape)}: correlation with one device "
            f"{alike[run.__name__]:.6f}, {time.perf_counter() - start:.1f} s"
        )
    return alike


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true")
    main("small" if parser.parse_args().small else "falcon-7b")

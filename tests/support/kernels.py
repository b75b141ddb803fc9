"""Trains a moment, and prints what came out as one line of JSON.

Started by tests/course/test_any_cpu.py under different kernels of BLAS.
"""

import hashlib
import json
import tempfile

import numpy as np
from machine import strict_with_fabric
from train.tiny import DEVICES, trainer, weights

import ttkit
from ttkit import ttnn
from ttkit.sim.collectives import ORDERED_UP_TO


def run(form, *steps, **options):
    """The losses and the weights after so many steps, so many more in another trainer, ..."""
    for count in steps:
        with trainer(form, **options) as one:
            one.fit(count, show=False)
            found = [record.loss for record in one.history], weights(one)
    return found


def equal(one, other):
    """The same bits: the losses, and each weight."""
    (losses, arrays), (their_losses, theirs) = one, other
    return losses == their_losses and all(np.array_equal(arrays[n], theirs[n]) for n in arrays)


def goes_on(form):
    """A run that goes on from its checkpoint is the run that was not stopped."""
    with tempfile.TemporaryDirectory() as folder:
        return equal(run(form, 2, 2, checkpoint_dir=folder), run(form, 4))


def sums_in_mesh_order(size):
    """Small sums add the shards one after the other, as the mesh has them."""
    values = np.random.default_rng(0).standard_normal((8, size)).astype(np.float32)
    total = values[:1]
    for row in values[1:]:
        total = total + row
    with strict_with_fabric(), ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        cut = ttnn.ShardTensorToMesh(mesh, dim=0)
        tensor = ttkit.from_numpy(values, device=mesh, mesh_mapper=cut)
        found = ttnn.get_device_tensors(ttnn.all_reduce(tensor))
        return all(np.array_equal(ttkit.to_numpy(each), total) for each in found)


def first_weights():
    """A digest of the weights before the first step."""
    with trainer() as one:
        arrays = [array.tobytes() for _, array in sorted(weights(one).items())]
    return hashlib.sha256(b"".join(arrays)).hexdigest()


print(
    json.dumps(
        {
            "losses": {form: run(form, 6)[0] for form in DEVICES},
            "first weights": first_weights(),
            "same bits": {
                "with the same seed": equal(run("DP2xTP2", 3), run("DP2xTP2", 3)),
                "from a checkpoint": goes_on("DP2xTP2"),
                "in mesh order": all(map(sums_in_mesh_order, (1, 7, 1000, ORDERED_UP_TO // 8))),
            },
        }
    )
)

"""Linear regression on a mesh: the rows share the batch (data parallel), the chips of a row
share the layer (tensor parallel).

    TTKIT_SYSTEM=galaxy python examples/linear_regression_tp_dp.py        8x4 chips, as on a Galaxy
    python examples/linear_regression_tp_dp.py --mesh 2 4 --variant row   8 chips, as on a T3000

The model of ttml's example of this name: 64 features to 64, batches of 256. In the column variant
each chip makes a part of the outputs and compares them with its part of the targets; in the row
variant each has a part of the inputs, and products are summed."""

import argparse

import numpy as np

from ttkit import ttnn
from ttkit.backend import from_numpy
from ttkit.train import SGD, AutoContext, DistributedConfig, SGDConfig, synchronize_gradients
from ttkit.train.autograd import Tensor
from ttkit.train.autograd.ops import mse_loss
from ttkit.train.model.modules import ColumnParallelLinear, RowParallelLinear
from ttkit.train.parallel.distributed import one_copy

FEATURES = 64


def main(mesh=(8, 4), variant="column", batch_size=256, steps=20, seed=0):
    """Train; the losses, and how far the weights are from the true ones in the end."""
    context = AutoContext.get_instance()
    context.open_device(list(mesh))
    context.initialize_parallelism_context(DistributedConfig(enable_ddp=True, enable_tp=True))
    axes = context.get_parallelism_context()
    print(f"{variant} variant on {axes}")
    device, ddp_axis, tp_axis = context.get_device(), axes.get_ddp_axis(), axes.get_tp_axis()

    make = ColumnParallelLinear if variant == "column" else RowParallelLinear
    model = make(FEATURES, FEATURES, has_bias=True)
    model.parameters()  # which names them
    model.init_weights(seed)
    # A chip's loss is the mean over its own outputs. In the column variant those are fewer, and the
    # slope of each weight larger.
    lr = 0.1 * FEATURES * (batch_size / 128) / (axes.get_tp_size() if variant == "column" else 1)
    optimizer = SGD(model.parameters(), SGDConfig.make(lr))

    # batch and features
    cut = ttnn.create_mesh_mapper(
        device, ttnn.MeshMapperConfig([ttnn.PlacementShard(0), ttnn.PlacementShard(3)])
    )
    # the batch only
    copied = ttnn.create_mesh_mapper(
        device, ttnn.MeshMapperConfig([ttnn.PlacementShard(0), ttnn.PlacementReplicate()])
    )
    input_mapper, target_mapper = (copied, cut) if variant == "column" else (cut, copied)

    def place(array, mapper):
        return Tensor(
            from_numpy(
                array,
                dtype=ttnn.float32,
                layout=ttnn.TILE_LAYOUT,
                device=device,
                mesh_mapper=mapper,
            ),
            requires_grad=False,
        )

    # over the batch's groups and, in the column variant, the parts of the outputs
    def mean_loss(loss):
        total = ttnn.all_reduce(
            ttnn.all_reduce(loss.get_value(), cluster_axis=ddp_axis), cluster_axis=tp_axis
        )
        return one_copy(total).item() / device.get_num_devices()

    random = np.random.default_rng(seed)
    true_weight = random.standard_normal((1, 1, FEATURES, FEATURES), dtype=np.float32)
    true_bias = random.standard_normal((1, 1, 1, FEATURES), dtype=np.float32)
    losses = []
    for step in range(1, steps + 1):
        x = random.standard_normal((batch_size, 1, 1, FEATURES), dtype=np.float32)
        y = x @ true_weight.swapaxes(2, 3) + true_bias
        optimizer.zero_grad()
        loss = mse_loss(model(place(x, input_mapper)), place(y, target_mapper))
        loss.backward()
        synchronize_gradients(model.parameters())  # the mean over the rows of the mesh
        optimizer.step()
        losses.append(mean_loss(loss))
        if step == 1 or step % 5 == 0:
            print(f"step {step:3}: loss {losses[-1]:.6f}")
    distance = float(np.abs(model.weight.gather() - true_weight).max())
    print(f"largest distance of a weight from the true one: {distance:.6f}")
    context.close_device()
    return losses, distance


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mesh", type=int, nargs=2, default=[8, 4], metavar=("ROWS", "COLUMNS"))
    parser.add_argument("--variant", choices=["column", "row"], default="column")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    main(asked.mesh, asked.variant, asked.batch_size, asked.steps)

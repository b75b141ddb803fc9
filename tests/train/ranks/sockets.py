"""Three ranks with a mesh each: values go from rank 0 to rank 2, gradients come back, and rank 1
is not in their context.
"""

import numpy as np

from ttkit import TTKitError, to_numpy, ttnn
from ttkit.train import AutoContext, DistributedConfig
from ttkit.train.autograd import Tensor
from ttkit.train.sockets import SocketType

context = AutoContext.get_instance()
context.initialize_distributed_context()
world = context.get_distributed_context()
context.open_device([1, 2])
context.initialize_parallelism_context(DistributedConfig(enable_ddp=True))
context.initialize_socket_manager(SocketType.MPI)
sockets = context.get_socket_manager()
mapper = ttnn.create_mesh_mapper(
    context.get_device(), ttnn.MeshMapperConfig([ttnn.PlacementReplicate(), ttnn.PlacementShard(0)])
)

assert world.size() == 3
values = np.arange(2 * 32 * 32, dtype=np.float32).reshape(2, 1, 32, 32)
if world.rank() in (0, 2):
    ends = world.create_sub_context([0, 2])
    assert (ends.size(), ends.rank(), ends.world_rank(1)) == (2, world.rank() // 2, 2)
    ends.barrier()
    tensor = Tensor.from_numpy(
        values if world.rank() == 0 else np.zeros_like(values),
        mapper=mapper,
        device=context.get_device(),
    )
    if world.rank() == 0:
        sockets.send(tensor, ends, 1)
        sockets.recv(tensor, ends, 1, use_grad=True)
        parts = [to_numpy(part) for part in ttnn.get_device_tensors(tensor.get_grad())]
        np.testing.assert_array_equal(np.concatenate(parts), 2 * values)
    else:
        assert sockets.recv(tensor, ends, 0) is tensor
        tensor.set_grad(ttnn.multiply(tensor.get_value(), 2.0))
        sockets.send(tensor, ends, 0, use_grad=True)
else:
    try:
        world.create_sub_context([0, 2])
    except TTKitError as error:
        assert "the one that asks is one of them" in str(error)
    else:
        raise AssertionError("a context of others was made")
world.barrier()
print(f"rank {world.rank()} done")

"""Rank r fills its mesh with r + 1 and sends it to rank 0 over the fabric; rank 0 adds up what
comes and all-reduces the sum over its chips.

With W ranks and D chips in rank 0's mesh, every element is then W(W+1)/2 * D.
"""

import socket
import sys

from ttkit import to_numpy, ttnn

SHAPE = (1, 1, 32, 32)  # of what one chip holds: one tile


def fabric_socket(mesh, sender, receiver):
    """This rank's end of a socket that joins each chip of the sender's mesh to the same chip of
    the receiver's, core (0, 0) to core (0, 0).
    """
    cores = [
        ttnn.MeshCoreCoord(place, ttnn.CoreCoord(0, 0))
        for place in ttnn.MeshCoordinateRange(mesh.shape)
    ]
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 16 * 1024)
    config = ttnn.SocketConfig(
        [ttnn.SocketConnection(core, core) for core in cores],
        memory,
        sender_rank=sender,
        receiver_rank=receiver,
    )
    return ttnn.MeshSocket(mesh, config)


def main():
    ttnn.init_distributed_context()
    rank, size = int(ttnn.distributed_context_get_rank()), int(ttnn.distributed_context_get_size())
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)  # joins the chips of a mesh, and the meshes
    mesh = ttnn.open_mesh_device()  # all chips of the mesh that this rank is bound to
    rows, columns = mesh.shape
    print(f"rank {rank} of {size} on {socket.gethostname()}: a {rows}x{columns} mesh", flush=True)
    total = ttnn.full(SHAPE, rank + 1.0, dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh)
    right = True
    if rank > 0:
        ttnn.experimental.send_async(total, fabric_socket(mesh, rank, 0))
    else:
        for sender in range(1, size):
            received = ttnn.zeros(SHAPE, dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh)
            ttnn.experimental.recv_async(received, fabric_socket(mesh, sender, 0))
            total = ttnn.add(total, received)
        for axis in (0, 1):
            if mesh.shape[axis] > 1:
                total = ttnn.all_reduce(total, cluster_axis=axis)
        found = to_numpy(total, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))  # of every chip
        expected = size * (size + 1) / 2 * mesh.get_num_devices()
        right = bool((found == expected).all())
        print(
            f"sum over {size} ranks and {mesh.get_num_devices()} chips: {found.flat[0]:g}, "
            f"expected {expected:g}",
            flush=True,
        )
        if not right:
            print(f"{(found != expected).sum()} of {found.size} elements are not", flush=True)
    ttnn.distributed_context_barrier()
    ttnn.close_mesh_device(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

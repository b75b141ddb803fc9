"""Run by every rank: the distributed context, and sockets between meshes. python talk.py
two|shared ...
"""

import os
import sys

import numpy as np
from machine import close_all

import ttkit
from ttkit import ttnn

RANK = int(os.environ["OMPI_COMM_WORLD_RANK"])
MEMORY = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 1 << 16)


def core(place):
    return ttnn.MeshCoreCoord(ttnn.MeshCoordinate(*place), ttnn.CoreCoord(0, 0))


def joined(pairs, **ends):
    return ttnn.SocketConfig(
        [ttnn.SocketConnection(core(a), core(b)) for a, b in pairs], MEMORY, **ends
    )


def tensor(mesh, seed=0, mapper=None):
    values = np.random.default_rng(seed).standard_normal((32 * mesh.get_num_devices(), 64))
    how = {"layout": ttnn.TILE_LAYOUT, "mesh_mapper": mapper or ttnn.ShardTensorToMesh(mesh, 0)}
    return ttkit.from_numpy(values.astype(np.float32), device=mesh, **how)


def refused(call, phrase):
    try:
        call()
    except RuntimeError as error:
        assert phrase in str(error), error
    else:
        raise AssertionError(f"not refused: {phrase}")


def context(size):
    assert ttnn.distributed_context_is_initialized()
    ttnn.init_distributed_context()
    ttnn.init_distributed_context()
    rank, ranks = ttnn.distributed_context_get_rank(), ttnn.distributed_context_get_size()
    assert (int(rank), repr(rank), ranks) == (RANK, f"Rank({RANK})", type(ranks)(size))
    ttnn.distributed_context_barrier()


def two():
    """Each rank has a mesh of its own."""
    os.environ.update(TT_MESH_ID=str(RANK), TT_MESH_HOST_RANK="0")
    context(2)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    refused(lambda: ttnn.open_mesh_device(ttnn.MeshShape(2, 4)), "is_multi_mesh")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    assert mesh.get_device_ids() == [4, 0, 2, 6, 5, 1, 3, 7]
    assert mesh.get_view().is_local(ttnn.MeshCoordinate(1, 3))
    every = [((r, c), (r, c)) for r in range(2) for c in range(4)]
    there = {"sender_rank": 0, "receiver_rank": 1}
    for sender in (0, 1):
        ends = {"sender_rank": sender, "receiver_rank": 1 - sender}
        socket, sends = ttnn.MeshSocket(mesh, joined(every, **ends)), RANK == sender
        assert socket.get_socket_endpoint_type().name == ("SENDER" if sends else "RECEIVER")
        given = [tensor(mesh, 5), tensor(mesh, 6, ttnn.ReplicateTensorToMesh(mesh))]
        for wanted in given:
            if sends:
                assert ttnn.experimental.send_async(wanted, socket) == []
                continue
            into = ttnn.zeros(list(wanted.shape), ttnn.float32, ttnn.TILE_LAYOUT, mesh)
            (got,) = ttnn.experimental.recv_async(into, socket)
            assert got is into
            assert np.array_equal(got.full_array(), wanted.full_array())
            assert got.array.shape == wanted.array.shape
        wrong = ttnn.experimental.recv_async if sends else ttnn.experimental.send_async
        refused(lambda wrong=wrong, given=given, socket=socket: wrong(given[0], socket), "socket")
    some = ttnn.MeshSocket(mesh, joined([((0, 0), (1, 3)), ((1, 1), (0, 2))], **there))
    if RANK == 0:
        ttnn.experimental.send_async(tensor(mesh, 8), some)
        ttnn.experimental.send_async(tensor(mesh, 8), some)
    else:
        into = ttnn.zeros([32, 64], ttnn.float32, ttnn.TILE_LAYOUT, mesh)
        ttnn.experimental.recv_async(into, some)
        have, sent = into.full_array(), tensor(mesh, 8).full_array()
        assert np.array_equal(have[1, 3], sent[0, 0])
        assert np.array_equal(have[0, 2], sent[1, 1])
        assert not have[0, 0].any()
        large = ttnn.zeros([64, 64], ttnn.float32, ttnn.TILE_LAYOUT, mesh)
        sent = "the sender's tensor is [32, 64] FLOAT32 TILE"
        refused(lambda: ttnn.experimental.recv_async(large, some), sent)
    others = joined([((RANK, 0), (RANK, 0))], **there)
    refused(lambda: ttnn.MeshSocket(mesh, others), "rank 1 calls MeshSocket")


def shared():
    """Sockets between submeshes of a mesh that the ranks share, some of them on one rank."""
    os.environ.update(TT_MESH_ID="0", TT_MESH_HOST_RANK=str(RANK))
    context(2)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    for shape in ((2, 2), (1, 4)):
        first, second = mesh.create_submeshes(ttnn.MeshShape(*shape))
        places = list(np.ndindex(shape))
        pairs = list(zip(places, places[::-1]))  # turned around
        sender, receiver = ttnn.create_socket_pair(first, second, joined(pairs))
        sent, into = tensor(first, 3), ttnn.zeros([32, 64], ttnn.float32, ttnn.TILE_LAYOUT, second)
        ttnn.experimental.send_async(sent, sender)
        ttnn.experimental.recv_async(into, receiver)
        one, other = (
            [ttkit.to_numpy(shard) for shard in ttnn.get_device_tensors(t.cpu())]
            for t in (sent, into)
        )
        assert np.array_equal(one, other[::-1])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
        close_all()
        print(f"passed {name} {RANK}", flush=True)

"""Sockets between the meshes of two ranks: for pipelines, hierarchical training, and the tensors
of ttml."""

from __future__ import annotations

import functools
from typing import Any

from ttkit import ttnn

FIFO_BYTES = 1 << 16  # Each chip's receiving buffer has this size.


def sockets(mesh: Any, peer: int) -> dict[int, Any]:
    """Return the sockets between the mesh of this rank and one of the same shape on another rank,
    by the rank that sends: each chip is connected to the chip at its coordinate.

    Both ranks must make their sockets in the same order."""
    rank = int(ttnn.distributed_context_get_rank())
    cores = [
        ttnn.MeshCoreCoord(coordinate, ttnn.CoreCoord(0, 0))
        for coordinate in ttnn.MeshCoordinateRange(mesh.shape)
    ]
    connections = [ttnn.SocketConnection(core, core) for core in cores]
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, FIFO_BYTES)
    found = {}
    for sender, receiver in sorted([(rank, peer), (peer, rank)]):
        ends = {"sender_rank": sender, "receiver_rank": receiver}
        found[sender] = ttnn.MeshSocket(mesh, ttnn.SocketConfig(connections, memory, **ends))
    return found


_kept = functools.cache(sockets)  # The tensors of ttml have one pair for all of them.


class SocketManager:
    """Sends tensors of ttml from rank to rank, between meshes of the same shape."""

    def send(self, tensor: Any, distributed_ctx: Any, rank: int, use_grad: bool = False) -> None:
        """Send the values of a tensor, or its gradient."""
        value = tensor.get_grad() if use_grad else tensor.get_value()
        mine = int(ttnn.distributed_context_get_rank())
        ttnn.experimental.send_async(value, _kept(value.device(), rank)[mine])

    def recv(self, tensor: Any, distributed_ctx: Any, rank: int, use_grad: bool = False) -> Any:
        """Fill a tensor like the one that is sent with what arrives, and return it."""
        like = ttnn.zeros_like(tensor.get_value())
        value = ttnn.experimental.recv_async(like, _kept(like.device(), rank)[rank])[0]
        (tensor.set_grad if use_grad else tensor.set_value)(value)
        return tensor

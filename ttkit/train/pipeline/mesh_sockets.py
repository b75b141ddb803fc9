"""Sockets between the meshes of two ranks: for pipelines, and for the tensors of ttml."""

from __future__ import annotations

import functools
from typing import Any

from ttkit import ttnn

FIFO_BYTES = 1 << 16  # Each chip's receiving buffer has this size.


class Sockets:
    """A socket in each direction between the mesh of this rank and one of the same shape on
    another rank: each chip is connected to the chip at its coordinate.

    Both ranks must make their sockets in the same order."""

    def __init__(self, mesh: Any, peer: int):
        rank = int(ttnn.distributed_context_get_rank())
        cores = [
            ttnn.MeshCoreCoord(coordinate, ttnn.CoreCoord(0, 0))
            for coordinate in ttnn.MeshCoordinateRange(mesh.shape)
        ]
        connections = [ttnn.SocketConnection(core, core) for core in cores]
        memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, FIFO_BYTES)
        sockets = {}
        for sender, receiver in sorted([(rank, peer), (peer, rank)]):
            config = ttnn.SocketConfig(
                connections, memory, sender_rank=sender, receiver_rank=receiver
            )
            sockets[sender] = ttnn.MeshSocket(mesh, config)
        self._out, self._in = sockets[rank], sockets[peer]

    def send(self, tensor: Any) -> None:
        """Send the shards of all chips."""
        ttnn.experimental.send_async(tensor, self._out)

    def receive(self, like: Any) -> Any:
        """Return what the other rank sends, in a tensor like the given one, which it overwrites."""
        return ttnn.experimental.recv_async(like, self._in)[0]


_sockets = functools.cache(Sockets)


class SocketManager:
    """Sends tensors of ttml from rank to rank, between meshes of the same shape."""

    def send(self, tensor: Any, distributed_ctx: Any, rank: int, use_grad: bool = False) -> None:
        """Send the values of a tensor, or its gradient."""
        value = tensor.get_grad() if use_grad else tensor.get_value()
        _sockets(value.device(), rank).send(value)

    def recv(self, tensor: Any, distributed_ctx: Any, rank: int, use_grad: bool = False) -> Any:
        """Fill a tensor like the one that is sent with what arrives, and return it."""
        like = ttnn.zeros_like(tensor.get_value())
        value = _sockets(like.device(), rank).receive(like)
        (tensor.set_grad if use_grad else tensor.set_value)(value)
        return tensor

"""Tensors between the meshes of two ranks: by fabric, chip to chip, or by MPI, from host to
host.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.convert import from_numpy, to_numpy
from ttkit.errors import fail

KINDS = ("fabric", "mpi")
FIFO_BYTES = 1 << 16  # of each chip's receiving buffer


class Channel:
    """A way to and from another rank, which has a mesh of the same shape; each rank makes one,
    in the same order.

    Args:
        mesh: the mesh of this rank.
        peer: the other rank.
        kind: "fabric" joins each chip with the one at its place by sockets; "mpi" goes by way of
        both hosts. What arrives is the same.

    Raises:
        TTKitError: no such kind or rank; a mesh that ranks share, for "mpi".

    Example::

        channel = Channel(mesh, peer=1 - rank, kind="mpi")
        if rank == 0:
            channel.send(tensor)
        else:
            tensor = channel.receive(like)  # `like` has the shape, type and layout of what comes,
            and gets its values
    """

    def __init__(self, mesh: Any, peer: int, kind: str = "fabric"):
        ttnn = backend.load()
        asked = f"Channel({mesh!r}, peer={peer}, kind={kind!r})"
        rank, size = (
            int(ttnn.distributed_context_get_rank()),
            int(ttnn.distributed_context_get_size()),
        )
        if kind not in KINDS:
            fail(asked, f"there is no kind {kind!r}", " or ".join(KINDS))
        if not 0 <= peer < size or peer == rank:
            fail(asked, f"this is rank {rank} of {size}", "another rank")
        self.mesh, self.peer, self.kind = mesh, peer, kind
        self._ttnn = ttnn
        if kind == "mpi":
            view = mesh.get_view()
            if not all(view.is_local(c) for c in ttnn.MeshCoordinateRange(mesh.shape)):
                fail(
                    asked,
                    "other ranks drive some chips of the mesh, and their values are not on this "
                    "host",
                    "kind='fabric'",
                )
            return
        # in the same order on both ranks
        ends = [(min(rank, peer), max(rank, peer)), (max(rank, peer), min(rank, peer))]
        sockets = {
            sender: ttnn.MeshSocket(mesh, self._config(sender, receiver))
            for sender, receiver in ends
        }
        self._out, self._in = sockets[rank], sockets[peer]

    def _config(self, sender: int, receiver: int) -> Any:
        ttnn = self._ttnn
        places = itertools.product(*map(range, self.mesh.shape))
        cores = [
            ttnn.MeshCoreCoord(ttnn.MeshCoordinate(list(place)), ttnn.CoreCoord(0, 0))
            for place in places
        ]
        memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, FIFO_BYTES)
        return ttnn.SocketConfig(
            [ttnn.SocketConnection(core, core) for core in cores],
            memory,
            sender_rank=sender,
            receiver_rank=receiver,
        )

    def send(self, tensor: Any) -> None:
        """Send the shards of all chips of a tensor on the mesh."""
        if self.kind == "fabric":
            self._ttnn.experimental.send_async(tensor, self._out)
            return
        for shard in self._ttnn.get_device_tensors(tensor):
            self._ttnn.distributed_context_send_bytes(
                np.ascontiguousarray(to_numpy(shard)).tobytes(), self.peer
            )

    def receive(self, like: Any) -> Any:
        """What the other rank sends, in the shape, type, layout and distribution of `like`, a
        tensor on the mesh that covers it.
        """
        ttnn = self._ttnn
        if self.kind == "fabric":
            return ttnn.experimental.recv_async(like, self._in)[0]
        shards = []
        for shard in ttnn.get_device_tensors(like):
            values = to_numpy(shard)
            came = np.frombuffer(
                ttnn.distributed_context_recv_bytes(values.nbytes, self.peer), values.dtype
            ).reshape(values.shape)
            shards.append(from_numpy(came, dtype=like.dtype, layout=like.layout))
        host = ttnn.from_host_shards(shards, self.mesh.shape)
        ttnn.copy_host_to_device_tensor(host, like)
        return like

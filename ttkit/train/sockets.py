"""Ranks that train together: which there are, and tensors from one to another."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from ttkit import backend
from ttkit.channel import Channel
from ttkit.errors import fail


class SocketType(enum.Enum):
    """How tensors go from rank to rank; ttml's names."""

    MPI = "mpi"  # by way of both hosts
    FABRIC = "fabric"  # chip to chip


class DistributedContext:
    """The ranks that MPI started, or some of them, numbered from 0 among themselves.

    Example:
        >>> context = DistributedContext()  # of one process on its own
        >>> context.rank(), context.size()
        (0, 1)
    """

    def __init__(self, ranks: Sequence[int] | None = None):
        self._ttnn = backend.load()
        self._ttnn.init_distributed_context()
        self._ranks = (
            tuple(range(int(self._ttnn.distributed_context_get_size())))
            if ranks is None
            else tuple(ranks)
        )

    def __repr__(self) -> str:
        return f"DistributedContext(rank {self.rank()} of {self.size()})"

    def size(self) -> int:
        """How many ranks there are."""
        return len(self._ranks)

    def rank(self) -> int:
        """The number of this rank in this context."""
        return self._ranks.index(int(self._ttnn.distributed_context_get_rank()))

    def world_rank(self, rank: int) -> int:
        """The number among all ranks of a rank of this context.

        Raises:
            TTKitError: no such rank.
        """
        if not 0 <= rank < self.size():
            fail(
                f"rank {rank} of {self!r}", f"the ranks are 0 to {self.size() - 1}", "one of those"
            )
        return self._ranks[rank]

    def barrier(self) -> None:
        """Wait until all ranks of this context have come here."""
        if self._ranks == tuple(range(int(self._ttnn.distributed_context_get_size()))):
            self._ttnn.distributed_context_barrier()
            return
        first, others = self._ranks[0], self._ranks[1:]
        if self.rank():  # say that we are here, and wait to be told that all are
            self._ttnn.distributed_context_send_bytes(b"\0", first)
            self._ttnn.distributed_context_recv_bytes(1, first)
            return
        for other in others:
            self._ttnn.distributed_context_recv_bytes(1, other)
        for other in others:
            self._ttnn.distributed_context_send_bytes(b"\0", other)

    def create_sub_context(self, ranks: Sequence[int]) -> DistributedContext:
        """A context of some of these ranks, numbered in the given order; only they may make it.

        Raises:
            TTKitError: no such rank, one twice, or this rank is none of them.
        """
        if len(set(ranks)) != len(ranks) or self.rank() not in ranks:
            fail(
                f"create_sub_context({list(ranks)}) on rank {self.rank()}",
                "each rank may come once, and the one that asks is one of them",
            )
        return DistributedContext([self.world_rank(rank) for rank in ranks])


class SocketManager:
    """Sends tensors, or their gradients, to other ranks and takes them; the ways are made when
    they are first used.

    Args:
        mesh: the mesh of this rank; that of the other rank has the same shape.
        kind: by MPI through both hosts, or by fabric from chip to chip. What arrives is the same.
    """

    def __init__(self, mesh: Any, kind: SocketType):
        self._mesh, self.kind = mesh, kind
        self._channels: dict[int, Channel] = {}

    def _channel(self, context: DistributedContext, rank: int) -> Channel:
        peer = context.world_rank(rank)
        if peer not in self._channels:
            self._channels[peer] = Channel(self._mesh, peer, self.kind.value)
        return self._channels[peer]

    def send(self, tensor: Any, ctx: DistributedContext, rank: int, use_grad: bool = False) -> None:
        """Send a tensor's value, or with `use_grad` its gradient, to a rank of the context.

        Raises:
            TTKitError: no such rank; no gradient yet.
        """
        value = tensor.get_grad() if use_grad else tensor.get_value()
        if value is None:
            fail(f"send the gradient of {tensor!r}", "it has none yet", "loss.backward() first")
        self._channel(ctx, rank).send(value)

    def recv(self, tensor: Any, ctx: DistributedContext, rank: int, use_grad: bool = False) -> Any:
        """Take what a rank of the context sends as the tensor's value, or with `use_grad` as its
        gradient; the tensor comes back.

        Raises:
            TTKitError: no such rank.
        """
        ttnn = backend.load()
        # a new tensor: the old one may be in a graph
        came = self._channel(ctx, rank).receive(ttnn.empty_like(tensor.get_value()))
        if use_grad:
            tensor.set_grad(came)
        else:
            tensor.set_value(came)
        return tensor

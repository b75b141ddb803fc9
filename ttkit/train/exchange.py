"""A model's parameters or gradients between some ranks: what hierarchical training sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ttkit import ttnn
from ttkit.plans.actions import Message, Place
from ttkit.train.modules import Parameter
from ttkit.train.p2p import FabricTransport, MPITransport, to_host


def name_of_role(rank: int, world: int, num_workers: int) -> str:
    """Return the role of a rank: see `ttkit.train.hierarchy`."""
    if rank < num_workers:
        return "worker"
    if rank > num_workers:
        return "optimizer"
    return "aggregator_optimizer" if world == num_workers + 1 else "aggregator"


class Exchange:
    """Arrays of a model's parameters, in the order of their names, between some ranks, all of which
    must make one: the aggregator and those that it sends to.

    Args:
        parameters: what `model.parameters()` returns; values are not needed.
        ranks: of the world, the aggregator's included.
        num_workers: the aggregator's rank.
        socket_type: "mpi" or "fabric".
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        ranks: Sequence[int],
        num_workers: int,
        socket_type: str,
    ):
        from mpi4py import MPI  # after ttnn, as the real library requires

        self.parameters = [parameter for _, parameter in sorted(parameters.items())]
        world, self.ranks = MPI.COMM_WORLD, list(ranks)
        self.layout = self.parameters[0].layout

        def describe(message: Message) -> str:
            rank = self.ranks[message.source.stage]
            return (
                f"the {message.what} of rank {rank}, {name_of_role(rank, world.size, num_workers)}"
            )

        comm = world.Create_group(world.Get_group().Incl(self.ranks))
        self.here = comm.rank
        if socket_type == "fabric":
            hub = self.ranks.index(num_workers)
            routes = [
                (what, rank, hub)
                for what in ("weight gradients", "weights")
                for rank in range(len(self.ranks))
                if rank != hub
            ]
            self.transport: MPITransport = FabricTransport(
                comm, self.layout, routes, describe=describe
            )
        else:
            self.transport = MPITransport(comm, describe=describe)

    def _message(self, what: str, number: int, source: int, destination: int) -> Message:
        return Message(what, number, Place(source, 0), Place(destination, 0))

    def send(
        self, what: str, rank: int, arrays: Iterable[np.ndarray], note: Sequence[float]
    ) -> None:
        """Start to send a rank two numbers, and an array of each parameter."""
        to = self.ranks.index(rank)
        self.transport.put(self._message("note", 0, self.here, to), np.array(note, np.float32))
        for number, array in enumerate(arrays):
            self.transport.put(self._message(what, number, self.here, to), array)

    def note(self, rank: int) -> tuple[float, float]:
        """Wait for the two numbers that a rank sends before its arrays."""
        message = self._message("note", 0, self.ranks.index(rank), self.here)
        first, second = self.transport.fetch(message, (2,))
        return float(first), float(second)

    def receive(self, what: str, rank: int, groups: int = 1) -> Iterator[np.ndarray]:
        """Yield a rank's arrays [groups, 1, rows, columns] as they arrive."""
        source = self.ranks.index(rank)
        awaited = [
            (self._message(what, number, source, self.here), (groups, *parameter.global_shape[1:]))
            for number, parameter in enumerate(self.parameters)
        ]
        for message, shape in awaited:
            self.transport.has(message, shape)
        for message, shape in awaited:
            yield self.transport.fetch(message, shape)


def by_group(parameter: Parameter) -> np.ndarray:
    """Return a parameter's gradient of each group, [groups, 1, rows, columns]."""
    grad, layout = parameter.get_grad(), parameter.layout
    if grad is None:
        return np.zeros((layout.ddp_size, *parameter.global_shape[1:]), np.float32)
    if parameter.shard_dim is not None:
        grad = ttnn.all_gather(grad, parameter.shard_dim, cluster_axis=layout.tp_axis)
    return to_host(grad, layout)[:, :, : parameter.global_shape[2]]

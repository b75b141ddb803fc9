"""A model's parameters or gradients between some ranks: what hierarchical training sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ttkit import ttnn
from ttkit.plans.actions import Message, Place
from ttkit.train.autograd.tensor import Value
from ttkit.train.model.parameter import Parameter
from ttkit.train.parallel.distributed import averaged, one_copy
from ttkit.train.pipeline.p2p import MPITransport, to_host


def name_of_role(rank: int, world: int, num_workers: int) -> str:
    """Return the role of a rank: see `ttkit.train.run.hierarchy`."""
    if rank < num_workers:
        return "worker"
    if rank > num_workers:
        return "optimizer"
    return "aggregator_optimizer" if world == num_workers + 1 else "aggregator"


class Exchange:
    """Arrays of a model's parameters, in the order of their names, between the aggregator and each
    other rank; every rank must make one.

    Args:
        parameters: what `model.parameters()` returns; values are not needed, but the layout has as
            many data-parallel groups as the workers'.
        num_workers: the aggregator's rank.
        socket_type: "mpi" or "fabric".
    """

    def __init__(self, parameters: Mapping[str, Parameter], num_workers: int, socket_type: str):
        from mpi4py import MPI  # after ttnn, as the real library requires

        self.parameters = [parameter for _, parameter in sorted(parameters.items())]
        self.layout, self.num_workers = self.parameters[0].layout, num_workers
        comm = MPI.COMM_WORLD.Dup()
        self.rank = comm.rank

        def describe(message: Message) -> str:
            rank = message.source.stage
            role = name_of_role(rank, comm.size, num_workers)
            return f"the {message.what} of rank {rank}, {role}"

        routes = [
            (what, rank, num_workers)
            for what in ("weight gradients", "weights")
            for rank in range(comm.size)
            if rank != num_workers and socket_type == "fabric"
        ]
        self.transport = MPITransport(comm, self.layout, routes, describe=describe)
        if self.rank != num_workers:  # it waits longer than the aggregator, which names the culprit
            self.transport.patience = 2

    def _message(self, what: str, number: int, source: int, destination: int) -> Message:
        return Message(what, number, Place(source, 0), Place(destination, 0))

    def send(
        self, what: str, rank: int, arrays: Iterable[np.ndarray], note: Sequence[float]
    ) -> None:
        """Start to send a rank two numbers, and an array of each parameter."""
        self.transport.put(self._message("note", 0, self.rank, rank), np.array(note, np.float32))
        for number, array in enumerate(arrays):
            self.transport.put(self._message(what, number, self.rank, rank), array)

    def receive(
        self, what: str, rank: int, groups: int = 1
    ) -> tuple[float, float, Iterator[np.ndarray]]:
        """Wait for a rank's two numbers; return them and its arrays [groups, 1, rows, columns], as
        they arrive.
        """
        awaited = [
            (self._message(what, number, rank, self.rank), (groups, *parameter.global_shape[1:]))
            for number, parameter in enumerate(self.parameters)
        ]
        first, second = self.transport.fetch(self._message("note", 0, rank, self.rank), (2,))
        for message, shape in awaited:
            self.transport.has(message, shape)
        arrays = (self.transport.fetch(message, shape) for message, shape in awaited)
        return float(first), float(second), arrays

    def send_weights(self, weights: Iterable[np.ndarray], steps: float, running: float) -> None:
        """Send all workers the weights after so many steps, and whether another step comes."""
        weights = list(weights)
        for worker in range(self.num_workers):
            self.send("weights", worker, weights, (steps, running))

    def average(self) -> tuple[float, list[np.ndarray]]:
        """Return the workers' mean loss, and the mean of each gradient over all workers and the
        groups of their meshes.
        """
        layout, workers = self.layout, self.num_workers
        loss, sums = 0.0, dict[int, Value]()
        for worker in range(workers):  # always in this order, so that a sum is always the same
            part, _, arrays = self.receive("weight gradients", worker, layout.dp)
            loss += part / workers
            for number, array in enumerate(arrays):
                value = layout.place(array, dtype=ttnn.float32, dp_dim=0)
                sums[number] = ttnn.add(sums[number], value) if number in sums else value
        means = (ttnn.multiply(total, 1 / workers) for total in sums.values())
        return loss, [one_copy(averaged(mean, layout.dp_axis)) for mean in means]


def by_group(parameter: Parameter) -> np.ndarray:
    """Return a parameter's gradient of each group, [groups, 1, rows, columns]."""
    grad, layout = parameter.get_grad(), parameter.layout
    if grad is None:
        return np.zeros((layout.dp, *parameter.global_shape[1:]), np.float32)
    if parameter.shard_dim is not None:
        grad = ttnn.all_gather(grad, parameter.shard_dim, cluster_axis=layout.tp_axis)
    return to_host(grad, layout)[:, :, : parameter.global_shape[2]]

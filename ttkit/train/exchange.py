"""A model's parameters or gradients between some ranks, in few large messages: what hierarchical
training sends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from ttkit import ttnn
from ttkit.plans.actions import Message, Place
from ttkit.train.modules import Parameter
from ttkit.train.p2p import FabricTransport, MPITransport, to_host
from ttkit.train.replicas import in_buckets

WIDTH = 1024  # of a bucket's rows: whole tiles, so that a mesh can hold it without much padding


def name_of_role(rank: int, world: int, num_workers: int) -> str:
    """Return the role of a rank: see `ttkit.train.hierarchy`."""
    if rank < num_workers:
        return "worker"
    if rank > num_workers:
        return "optimizer"
    return "aggregator_optimizer" if world == num_workers + 1 else "aggregator"


class Buckets:
    """A model's parameters in the order of their names, several in one array.

    Args:
        parameters: what `model.parameters()` returns; values are not needed.
    """

    def __init__(self, parameters: Mapping[str, Parameter]):
        named = in_buckets(sorted(parameters.items()))
        self.buckets = [[parameter for _, parameter in bucket] for bucket in named]
        self.parameters = [parameter for bucket in self.buckets for parameter in bucket]

    def shape(self, bucket: int, groups: int) -> tuple[int, int, int, int]:
        """Return the shape of a bucket's array: a row of numbers for each group, in lines of
        `WIDTH`, zeros at the end.
        """
        numbers = sum(math.prod(parameter.global_shape) for parameter in self.buckets[bucket])
        return groups, 1, -(-numbers // WIDTH), WIDTH

    def pack(self, array_of: Callable[[Parameter], np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the buckets of each parameter's array [groups, 1, rows, columns]."""
        for bucket, parameters in enumerate(self.buckets):
            arrays = [array_of(parameter) for parameter in parameters]
            flat = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)
            shape = self.shape(bucket, len(flat))
            yield np.pad(flat, [(0, 0), (0, shape[2] * WIDTH - flat.shape[1])]).reshape(shape)

    def unpack(self, buckets: Iterable[np.ndarray]) -> Iterator[tuple[Parameter, np.ndarray]]:
        """Yield each parameter with its global array, from buckets of one group."""
        for parameters, array in zip(self.buckets, buckets, strict=True):
            flat, start = array.ravel(), 0
            for parameter in parameters:
                size = math.prod(parameter.global_shape)
                yield parameter, flat[start : start + size].reshape(parameter.global_shape)
                start += size


class Exchange(Buckets):
    """Buckets between some ranks, all of which must make one: the aggregator and those that it
    sends to.

    Args:
        parameters: as for `Buckets`.
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

        super().__init__(parameters)
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

    def _message(self, what: str, bucket: int, source: int, destination: int) -> Message:
        return Message(what, bucket, Place(source, 0), Place(destination, 0))

    def send(
        self, what: str, rank: int, buckets: Iterable[np.ndarray], note: Sequence[float]
    ) -> None:
        """Start to send two numbers and buckets to a rank."""
        to = self.ranks.index(rank)
        self.transport.put(self._message("note", 0, self.here, to), np.array(note, np.float32))
        for number, array in enumerate(buckets):
            self.transport.put(self._message(what, number, self.here, to), array)

    def expect(self, what: str, rank: int, groups: int = 1) -> None:
        """Post the receives of a rank's buckets, so that they arrive while others are awaited."""
        for number, message in enumerate(self._incoming(what, rank)):
            self.transport.expect(message, self.shape(number, groups))

    def _incoming(self, what: str, rank: int) -> list[Message]:
        source = self.ranks.index(rank)
        return [
            self._message(what, number, source, self.here) for number in range(len(self.buckets))
        ]

    def note(self, rank: int) -> tuple[float, float]:
        """Wait for the two numbers that a rank sends before its buckets."""
        message = self._message("note", 0, self.ranks.index(rank), self.here)
        first, second = self.transport.fetch(message, (2,))
        return float(first), float(second)

    def receive(self, what: str, rank: int, groups: int = 1) -> Iterator[np.ndarray]:
        """Yield the buckets of a rank as they arrive."""
        self.expect(what, rank, groups)
        for number, message in enumerate(self._incoming(what, rank)):
            yield self.transport.fetch(message, self.shape(number, groups))


def by_group(parameter: Parameter) -> np.ndarray:
    """Return a parameter's gradient of each group, [groups, 1, rows, columns]."""
    grad, layout = parameter.get_grad(), parameter.layout
    if grad is None:
        return np.zeros((layout.ddp_size, *parameter.global_shape[1:]), np.float32)
    if parameter.shard_dim is not None:
        grad = ttnn.all_gather(grad, parameter.shard_dim, cluster_axis=layout.tp_axis)
    return to_host(grad, layout)[:, :, : parameter.global_shape[2]]

"""Hierarchical training: workers compute gradients, others average them and step (tt-train,
examples/multihost/hierarchical_parallel).

| ranks of n workers | 2-tier               | 3-tier     |
|--------------------|----------------------|------------|
| 0 to n - 1         | worker               | worker     |
| n                  | aggregator_optimizer | aggregator |
| n + 1              |                      | optimizer  |

A step: weights go from the optimizer by way of the aggregator to the workers; each worker sends the
gradients of its part of the batch, one for each of its data-parallel groups; the aggregator
averages them over workers and groups; the optimizer steps. ttml's aggregator sums over its devices
where its guide says averages, so its learning rate means another; here it is the average that the
guide describes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.plans.schedule import Message, Place
from ttkit.train.autograd import Value
from ttkit.train.config import Settings
from ttkit.train.context import AutoContext
from ttkit.train.distributed import averaged, one_copy
from ttkit.train.modules import Parameter
from ttkit.train.ranks import in_buckets
from ttkit.train.sockets import SocketType
from ttkit.train.trainer import Trainer, open_layout
from ttkit.train.wires import FabricWire, MPIWire, to_host

WIDTH = 1024  # of a bucket's rows: whole tiles, so that a mesh can hold it without much padding
ROLES = ("worker", "aggregator", "aggregator_optimizer", "optimizer")


def role_of(rank: int, world: int, num_workers: int) -> str:
    """What a rank does; prints it.

    Args:
        rank, world: of this process.
        num_workers: of multihost_config.

    Raises:
        TTKitError: ranks that are neither two tiers nor three.

    Example:
        >>> [role_of(rank, 4, 2) for rank in (1, 2, 3)]
        Rank 1/4: Running as worker (3-tier mode)
        Rank 2/4: Running as aggregator (3-tier mode)
        Rank 3/4: Running as optimizer (3-tier mode)
        ['worker', 'aggregator', 'optimizer']
    """
    tiers = world - num_workers + 1
    if num_workers < 1 or tiers not in (2, 3):
        rule = (
            f"{num_workers} workers need {num_workers + 1} ranks (2-tier) or {num_workers + 2} "
            f"(3-tier), and there are {world}"
        )
        fail(
            "hierarchical training",
            rule,
            f"ttkit run -n {max(num_workers, 1) + 2}, or num_workers: {max(world - 2, 1)}",
        )
    role = _role(rank, world, num_workers)
    print(f"Rank {rank}/{world}: Running as {role} ({tiers}-tier mode)", flush=True)
    return role


def _role(rank: int, world: int, num_workers: int) -> str:
    if rank < num_workers:
        return "worker"
    if rank > num_workers:
        return "optimizer"
    return "aggregator_optimizer" if world == num_workers + 1 else "aggregator"


class Parcels:
    """A model's parameters between some ranks: in name order, several in one message.

    All these ranks must make one.

    Args:
        parameters: what `model.parameters()` gives; values are not needed.
        ranks: world ranks.
        lines: (what, rank, rank) that go over the fabric where the AutoContext's sockets do.
        num_workers: to name ranks by their role.
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        ranks: Sequence[int],
        lines: Iterable[tuple[str, int, int]],
        num_workers: int,
    ):
        from mpi4py import MPI  # after ttnn, as the real library wants it

        self._cut(parameters)
        self.layout, self.ranks = self.parameters[0].layout, list(ranks)
        world, context = MPI.COMM_WORLD, AutoContext.get_instance()

        def words(message: Message) -> str:
            rank = self.ranks[message.source.stage]
            return f"the {message.what} of rank {rank}, {_role(rank, world.size, num_workers)}"

        comm = world.Create_group(world.Get_group().Incl(self.ranks))
        self.here = comm.rank
        fabric = (
            context.is_socket_manager_initialized()
            and context.get_socket_manager().kind is SocketType.FABRIC
        )
        at = self.ranks.index
        self.wire: MPIWire = (
            FabricWire(
                comm, self.layout, [(what, at(a), at(b)) for what, a, b in lines], words=words
            )
            if fabric
            else MPIWire(comm, words=words)
        )

    def _cut(self, parameters: Mapping[str, Parameter]) -> None:
        self.buckets = [
            [parameter for _, parameter in bucket]
            for bucket in in_buckets(sorted(parameters.items()))
        ]
        self.parameters = [parameter for bucket in self.buckets for parameter in bucket]

    def _message(self, what: str, bucket: int, source: int, destination: int) -> Message:
        return Message(what, bucket, Place(source, 0), Place(destination, 0))

    def shape(self, bucket: int, groups: int) -> tuple[int, int, int, int]:
        """Of a bucket's array: a row of the parameters' numbers for each group, in lines of
        `WIDTH`, zeros at the end.
        """
        numbers = sum(math.prod(parameter.global_shape) for parameter in self.buckets[bucket])
        return groups, 1, -(-numbers // WIDTH), WIDTH

    def packed(self, array_of: Callable[[Parameter], np.ndarray]) -> Iterator[np.ndarray]:
        """The buckets, of each parameter's array [groups, 1, rows, columns]."""
        for bucket, parameters in enumerate(self.buckets):
            arrays = [array_of(parameter) for parameter in parameters]
            flat = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)
            shape = self.shape(bucket, len(flat))
            yield np.pad(flat, [(0, 0), (0, shape[2] * WIDTH - flat.shape[1])]).reshape(shape)

    def unpacked(self, buckets: Iterable[np.ndarray]) -> Iterator[tuple[Parameter, np.ndarray]]:
        """Each parameter with its global array, from buckets of one group."""
        for parameters, array in zip(self.buckets, buckets, strict=True):
            flat, start = array.ravel(), 0
            for parameter in parameters:
                size = math.prod(parameter.global_shape)
                yield parameter, flat[start : start + size].reshape(parameter.global_shape)
                start += size

    def send(
        self, what: str, rank: int, buckets: Iterable[np.ndarray], note: Sequence[float]
    ) -> None:
        """Send buckets and two numbers to a rank; they are on their way when this returns."""
        to = self.ranks.index(rank)
        self.wire.put(self._message("note", 0, self.here, to), np.array(note, np.float32))
        for number, array in enumerate(buckets):
            self.wire.put(self._message(what, number, self.here, to), array)

    def expect(self, what: str, rank: int, groups: int = 1) -> None:
        """Give buckets of a rank a place to come to, so that they come in while others are
        waited for.
        """
        source = self.ranks.index(rank)
        for number in range(len(self.buckets)):
            self.wire.expect(
                self._message(what, number, source, self.here), self.shape(number, groups)
            )

    def note(self, rank: int) -> tuple[float, float]:
        """The two numbers that a rank sends before its buckets."""
        message = self._message("note", 0, self.ranks.index(rank), self.here)
        self.wire.expect(message, (2,))
        first, second = self._wait(message)
        return float(first), float(second)

    def receive(self, what: str, rank: int, groups: int = 1) -> Iterator[np.ndarray]:
        """The buckets of a rank, one after the other as they come."""
        self.expect(what, rank, groups)
        for number in range(len(self.buckets)):
            yield self._wait(self._message(what, number, self.ranks.index(rank), self.here))

    def _wait(self, message: Message) -> np.ndarray:
        start = time.monotonic()
        while not self.wire.has(message):
            self.wire.nap(start, [message])
        return self.wire.take(message)


def _by_group(parameter: Parameter) -> np.ndarray:
    """A parameter's gradient, [groups, 1, rows, columns]: the groups of a mesh have not averaged
    theirs.
    """
    grad = parameter.get_grad()
    if grad is None:
        return np.zeros((parameter.layout.ddp_size, *parameter.global_shape[1:]), np.float32)
    if parameter.shard_dim is not None:
        grad = ttnn.all_gather(grad, parameter.shard_dim, cluster_axis=parameter.layout.tp_axis)
    return to_host(grad, parameter.layout)[:, :, : parameter.global_shape[2]]


class RemoteOptimizer:
    """What a worker has in place of an optimizer: its step sends the gradients away and brings
    the new weights.

    Args:
        parameters: what `model.parameters()` gives; they need no values yet.
        aggregator_rank: whom to talk to; the ranks below it are the workers.

    Attributes:
        steps: how many steps the weights have behind them.
        running: whether the optimizer wants gradients of these weights.

    Example::

        remote = RemoteOptimizer(model.parameters(), aggregator_rank)
        remote.receive_weights()
        while remote.running:
            remote.zero_grad()
            loss = ...              # of this worker's part of batch number `remote.steps`
            loss.backward()         # without synchronize_gradients: the aggregator averages the groups of a mesh, too
            remote.step(loss)       # the number, for the log
    """

    def __init__(self, parameters: Mapping[str, Parameter], aggregator_rank: int):
        self.aggregator_rank, self.steps, self.running = aggregator_rank, 0, True
        self._parcels = Parcels(
            parameters, range(aggregator_rank + 1), _lines(aggregator_rank), aggregator_rank
        )
        self._parcels.wire.patience = 2

    def get_sorted_parameters(self) -> list[Parameter]:
        """The parameters by name: the order in which they travel."""
        return list(self._parcels.parameters)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self._parcels.parameters:
            parameter.set_grad(None)

    def step(self, loss: float = 0.0) -> None:
        """Send the gradients, and receive the weights that they lead to.

        Args:
            loss: of this worker's part of the batch.
        """
        self.send_gradients(loss)
        self.receive_weights()

    def send_gradients(self, loss: float = 0.0) -> None:
        """Send the gradients to the aggregator."""
        parcels = self._parcels
        parcels.send("weight gradients", self.aggregator_rank, parcels.packed(_by_group), (loss, 0))

    def receive_weights(self) -> None:
        """Wait for the aggregator's weights, and take them.

        Raises:
            TTKitError: they did not come in time.
        """
        steps, running = self._parcels.note(self.aggregator_rank)
        for parameter, array in self._parcels.unpacked(
            self._parcels.receive("weights", self.aggregator_rank)
        ):
            parameter.place(array)
        self._parcels.wire.flush()
        self.steps, self.running = int(steps), bool(running)

    def set_lr(self, lr: float) -> None:
        """Nothing: the learning rate is the optimizer's."""

    def get_lr(self) -> float:
        """0.0: the learning rate is the optimizer's."""
        return 0.0

    def state_dict(self) -> dict[str, int]:
        """{"steps": ...}; the rest is the optimizer's."""
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Take `state_dict`'s count."""
        self.steps = int(state["steps"])


def _lines(aggregator_rank: int) -> list[tuple[str, int, int]]:
    return [
        (what, worker, aggregator_rank)
        for what in ("weight gradients", "weights")
        for worker in range(aggregator_rank)
    ]


class Aggregator:
    """Averages what workers send; in 3-tier mode it passes that on to an optimizer, and the
    optimizer's weights to the workers.

    Args:
        parameters: of the model, without values; its layout has as many data-parallel groups as the
        workers'. num_workers: ranks 0 to num_workers - 1. optimizer_rank: None in 2-tier mode.
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        num_workers: int,
        optimizer_rank: int | None = None,
    ):
        self.num_workers, self.optimizer_rank = num_workers, optimizer_rank
        self.workers = Parcels(parameters, range(num_workers + 1), _lines(num_workers), num_workers)
        self.layout = self.workers.layout
        if optimizer_rank is not None:
            self.optimizer = _upstream(parameters, num_workers, optimizer_rank)

    def run(self) -> int:
        """Steps until the optimizer ends it; how many."""
        assert self.optimizer_rank is not None
        count = 0
        while True:
            steps, running = self.optimizer.note(self.optimizer_rank)
            self.send_weights(
                list(self.optimizer.receive("weights", self.optimizer_rank)),
                int(steps),
                bool(running),
            )
            if not running:
                self.workers.wire.flush()
                return count
            loss, buckets = self.average()
            self.optimizer.send("weight gradients", self.optimizer_rank, buckets, (loss, 0))
            self.workers.wire.flush()
            self.optimizer.wire.flush()
            count += 1

    def send_weights(self, buckets: Sequence[np.ndarray], steps: int, running: bool) -> None:
        """Give all workers the weights after so many steps, and say whether another step comes."""
        for worker in range(self.num_workers):
            self.workers.send("weights", worker, buckets, (steps, running))

    def average(self) -> tuple[float, list[np.ndarray]]:
        """The mean loss, and the buckets of the mean gradient over all workers and the groups of
        their meshes.
        """
        groups = self.layout.ddp_size
        for worker in range(self.num_workers):
            self.workers.expect("weight gradients", worker, groups)
        loss, sums = 0.0, dict[int, Value]()
        # always in this order, so that a sum is always the same
        for worker in range(self.num_workers):
            loss += self.workers.note(worker)[0] / self.num_workers
            for number, array in enumerate(
                self.workers.receive("weight gradients", worker, groups)
            ):
                value = self.layout.place(array, dtype=ttnn.float32, ddp_dim=0)
                sums[number] = ttnn.add(sums[number], value) if number in sums else value
        return loss, [self._mean(value) for value in sums.values()]

    def _mean(self, total: Value) -> np.ndarray:
        """Over workers, and over the groups: ttml's all_reduce leaves their sum here."""
        mean = averaged(ttnn.multiply(total, 1 / self.num_workers), self.layout.ddp_axes)
        return one_copy(mean)


def _upstream(
    parameters: Mapping[str, Parameter], aggregator_rank: int, optimizer_rank: int
) -> Parcels:
    lines = [(what, aggregator_rank, optimizer_rank) for what in ("weight gradients", "weights")]
    return Parcels(parameters, [aggregator_rank, optimizer_rank], lines, aggregator_rank)


class HierarchicalTrainer(Trainer):
    """The optimizer's rank, in 2-tier mode also the aggregator's: a trainer whose gradients come
    from workers.

    Learning rate, clipping, validation, log and checkpoints are those of `Trainer`, and a
    checkpoint goes on with either. Workers wait while it validates or saves. The end of a
    with-block, or `end`, tells them that no further step comes.

    Args:
        settings: a training configuration with multihost_config.num_workers, or its path.
        text, resume, step: as for `Trainer`.
    """

    def _open(self, settings: Settings) -> None:
        """The mesh of this rank, which is not one of several alike."""
        if not settings.multihost_config.enabled:
            fail(
                "HierarchicalTrainer",
                "Multihost is not enabled",
                "multihost_config: {enabled: true, num_workers: ...}",
            )
        self.layout = open_layout(settings)
        self.layouts, self.rank, self.world, self.comm = [self.layout], 0, 1, None

    def _build(self) -> None:
        """The model, and the way to the workers."""
        from mpi4py import MPI

        super()._build()
        workers = self.settings.multihost_config.num_workers
        two_tiers = MPI.COMM_WORLD.rank == workers
        self.aggregator = Aggregator(self.parameters, workers) if two_tiers else None
        if self.aggregator:
            self.parcels = self.aggregator.workers
        else:
            self.parcels = _upstream(self.parameters, workers, workers + 1)
            self.parcels.wire.patience = 2

    def _send_weights(self, running: bool) -> None:
        buckets = list(self.parcels.packed(lambda parameter: parameter.gather()))
        if self.aggregator:
            self.aggregator.send_weights(buckets, self.steps, running)
        else:
            self.parcels.send("weights", self.parcels.ranks[0], buckets, (self.steps, running))

    def gradients(self) -> float:
        """Give the workers the weights; their mean loss, and in each parameter the mean
        gradient.
        """
        self._send_weights(True)
        if self.aggregator:
            loss, buckets = self.aggregator.average()
        else:
            rank = self.parcels.ranks[0]
            loss, buckets = (
                self.parcels.note(rank)[0],
                list(self.parcels.receive("weight gradients", rank)),
            )
        for parameter, array in self.parcels.unpacked(buckets):
            parameter.set_grad(parameter.distribute(array, parameter.get_value().dtype))
        self.parcels.wire.flush()
        return loss

    def end(self) -> None:
        """Give the workers the last weights, and end their loops."""
        self._send_weights(False)
        self.parcels.wire.flush()

    def __exit__(self, *what: object) -> None:
        if what[0] is None:  # otherwise they are stopped, as this rank is
            self.end()
        self.close()

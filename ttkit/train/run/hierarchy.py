"""Hierarchical training: workers compute gradients, other ranks average them and update the
weights (tt-train, examples/multihost/hierarchical_parallel).

| ranks of n workers | 2-tier               | 3-tier     |
|--------------------|----------------------|------------|
| 0 to n - 1         | worker               | worker     |
| n                  | aggregator_optimizer | aggregator |
| n + 1              |                      | optimizer  |

In a step, the optimizer sends the weights to the workers by way of the aggregator. Each worker
sends back the gradients of its shard of the batch, one for each of its data-parallel replicas. The
aggregator averages them over workers and replicas, and the optimizer updates the weights. According
to ttml's guide the aggregator averages over its devices, but ttml's code sums, so the same learning
rate makes larger steps there. Here the aggregator averages, as in the guide."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ttkit.errors import fail
from ttkit.plans.schedule import Message, StageChunk
from ttkit.train.config.settings import Settings
from ttkit.train.context import open_layout
from ttkit.train.model.modules import Array, Parameter, Parameters
from ttkit.train.parallel.ranks import MPITransport, to_host
from ttkit.train.run.optimizers import Optimizer, SGDConfig
from ttkit.train.run.trainer import Trainer

ROLES = "worker aggregator aggregator_optimizer optimizer".split()


def role_name(rank: int, world: int, num_workers: int) -> str:
    """Return the role of a rank, as in the table at the start of this module."""
    if rank < num_workers:
        return "worker"
    if rank > num_workers:
        return "optimizer"
    return "aggregator_optimizer" if world == num_workers + 1 else "aggregator"


class Exchange:
    """The connection between the aggregator and each other rank, over which they send arrays of a
    model's parameters in the order of the parameters' names. Every rank must construct one.

    Args:
        parameters: what `model.parameters()` returns. Values are not needed, but the layout must
            have as many data-parallel replicas as the layouts of the workers.
        num_workers: the number of workers, which is also the rank of the aggregator.
        socket_type: "mpi" or "fabric".
    """

    def __init__(self, parameters: Parameters, num_workers: int, socket_type: str):
        from mpi4py import MPI  # The real ttnn must be loaded before mpi4py.

        self.parameters = [parameter for _, parameter in sorted(parameters.items())]
        layout = self.parameters[0].layout
        if max(layout.zero, layout.ep) > 1:
            fail(
                "hierarchical training",
                f"a worker sends a replica's gradient; with {layout} each chip has a part of it",
                "zero below 2 and no expert_parallel",
            )
        comm = MPI.COMM_WORLD.Dup()
        self.rank = comm.rank

        def name(rank: int) -> str:
            return f"rank {rank}, {role_name(rank, comm.size, num_workers)}"

        routes = [
            (what, rank, num_workers)
            for what in ("weight gradients", "weights")
            for rank in range(comm.size)
            if rank != num_workers and socket_type == "fabric"
        ]
        # The other ranks wait twice as long as the aggregator. So the aggregator's error comes
        # first, and it names the missing rank.
        factor = 1 if self.rank == num_workers else 2
        self.transport = MPITransport(comm, layout, routes, name=name, timeout_factor=factor)
        # The aggregator's peers are the workers. Each other rank has one peer, the aggregator.
        self.peers = range(num_workers) if self.rank == num_workers else [num_workers]

    def _message(self, what: str, number: int, source: int, destination: int) -> Message:
        # Message 0 holds the two numbers. Its kind, "note", has no route, so MPI carries it, not a
        # socket from chip to chip.
        kind = what if number else "note"
        return Message(kind, number, StageChunk(source), StageChunk(destination))

    def send(self, what: str, rank: int, arrays: Iterable[Array], note: Sequence[float]) -> None:
        """Start to send two numbers and an array of each parameter to a rank."""
        for number, array in enumerate([np.array(note), *arrays]):
            self.transport.put(self._message(what, number, self.rank, rank), array)

    def receive(self, what: str, rank: int) -> tuple[float, float, Iterator[Array]]:
        """Wait for a rank's two numbers; return them and an iterator over its arrays.

        The gradients of a worker are [replicas, experts, rows, columns], all other arrays [1,
        experts, rows, columns]; parameters without experts have 1 in place of `experts`. The
        iterator waits until the next array has arrived.
        """
        arrays = (
            self.transport.take(self._message(what, number, rank, self.rank))
            for number in range(1 + len(self.parameters))
        )
        first, second = next(arrays)
        return float(first), float(second), arrays

    def send_weights(self, weights: Iterable[Array], steps: float, running: float) -> None:
        """Send all peers the weights after `steps` steps, and whether another step follows."""
        weights = list(weights)
        for peer in self.peers:
            self.send("weights", peer, weights, (steps, running))

    def average(self) -> tuple[float, list[Array]]:
        """Return the mean loss of the peers, and the mean of each gradient over the peers and the
        replicas on their meshes.
        """
        loss = 0.0
        sums = [np.zeros((), np.float32)] * len(self.parameters)
        for peer in self.peers:  # A fixed order of addition makes runs reproducible.
            part, _, arrays = self.receive("weight gradients", peer)
            loss += part / len(self.peers)
            means = (array.mean(0, keepdims=True) / len(self.peers) for array in arrays)
            sums = list(map(np.add, sums, means))
        return loss, sums


def by_replica(parameter: Parameter) -> Array:
    """Return the gradient of a parameter on each replica, [replicas, experts, rows, columns]."""
    grad = parameter.get_grad()
    layout = parameter.layout
    if grad is None:
        return np.zeros((layout.dp, *parameter.global_shape[1:]), np.float32)
    array = to_host(grad, (layout.dp_axis, 0), (layout.tp_axis, parameter.shard_dim))
    return array[:, :, : parameter.global_shape[2]]


def announce_role(rank: int, world: int, num_workers: int) -> str:
    """Return the role of a rank, and print it.

    Args:
        rank, world: the rank of this process, and the number of ranks.
        num_workers: the setting of this name in multihost_config.

    Raises:
        TTKitError: the number of ranks gives neither two tiers nor three.

    Example:
        >>> [announce_role(rank, 4, 2) for rank in (1, 2, 3)]
        Rank 1/4: Running as worker (3-tier mode)
        Rank 2/4: Running as aggregator (3-tier mode)
        Rank 3/4: Running as optimizer (3-tier mode)
        ['worker', 'aggregator', 'optimizer']
    """
    tiers = world - num_workers + 1
    if tiers not in (2, 3):
        fail(
            "hierarchical training",
            f"{num_workers} workers need {num_workers + 1} ranks (2-tier) or {num_workers + 2} "
            f"(3-tier), and there are {world}",
            f"ttkit run -n {num_workers + 2}, or num_workers: {max(world - 2, 1)}",
        )
    role = role_name(rank, world, num_workers)
    print(f"Rank {rank}/{world}: Running as {role} ({tiers}-tier mode)", flush=True)
    return role


class RemoteOptimizer(Optimizer):
    """A worker's optimizer: `step` sends the gradients to the aggregator and receives new weights.

    Args:
        parameters: what `model.parameters()` returns; they need no values yet.
        aggregator_rank: the rank to send to; the ranks below it are the workers.
        socket_type: "mpi" or "fabric".

    Attributes:
        steps: how many times the weights have been updated.
        running: whether another step follows, for which the worker must send gradients.

    Example::

        remote = RemoteOptimizer(model.parameters(), aggregator_rank)
        remote.receive_weights()
        while remote.running:
            remote.zero_grad()
            loss = ...  # Compute it from this worker's shard of batch number `remote.steps`.
            loss.backward()  # No synchronize_gradients follows: the aggregator averages.
            remote.step(loss)  # Pass the loss as a number, which is for the log.
    """

    def __init__(self, parameters: Parameters, aggregator_rank: int, socket_type: str = "mpi"):
        # The learning rate is set on the optimizer's rank.
        super().__init__(parameters, SGDConfig(lr=0.0))
        self.aggregator_rank = aggregator_rank
        self.running = True
        self.exchange = Exchange(parameters, aggregator_rank, socket_type)

    def step(self, loss: float = 0.0) -> None:
        """Send the gradients, and receive the updated weights.

        Args:
            loss: the loss of this worker's shard of the batch, as a number.
        """
        grads = map(by_replica, self.exchange.parameters)
        self.exchange.send("weight gradients", self.aggregator_rank, grads, (loss, 0))
        self.receive_weights()

    def receive_weights(self) -> None:
        """Receive the aggregator's weights.

        Raises:
            TTKitError: the weights did not arrive in time.
        """
        exchange = self.exchange
        steps, running, arrays = exchange.receive("weights", self.aggregator_rank)
        for parameter, array in zip(exchange.parameters, arrays):
            parameter.place(array)
        exchange.transport.flush()
        self.steps = int(steps)
        self.running = bool(running)


class Aggregator:
    """The rank between workers and optimizer in 3-tier mode.

    It averages the workers' gradients and sends them to the optimizer, and it sends the optimizer's
    weights to the workers.

    Args:
        parameters: the parameters of the model, which need no values. Their layout must have as
            many data-parallel replicas as the layouts of the workers.
        num_workers: the number of workers, which are ranks 0 to num_workers - 1.
        optimizer_rank: the rank of the optimizer.
        socket_type: "mpi" or "fabric".
    """

    def __init__(
        self,
        parameters: Parameters,
        num_workers: int,
        optimizer_rank: int,
        socket_type: str = "mpi",
    ):
        self.exchange = Exchange(parameters, num_workers, socket_type)
        self.optimizer_rank = optimizer_rank

    def run(self) -> int:
        """Forward weights and gradients until the optimizer ends the run; return how many steps
        there were.
        """
        exchange = self.exchange
        optimizer = self.optimizer_rank
        count = 0
        while True:
            steps, running, weights = exchange.receive("weights", optimizer)
            exchange.send_weights(weights, steps, running)
            if not running:
                exchange.transport.flush()
                return count
            loss, means = exchange.average()
            exchange.send("weight gradients", optimizer, means, (loss, 0))
            exchange.transport.flush()
            count += 1


class HierarchicalTrainer(Trainer):
    """A trainer whose gradients come from workers. It runs on the rank of the optimizer, which in
    2-tier mode is also the aggregator.

    Learning rate, clipping, validation, log and checkpoints work as in `Trainer`, and each of the
    two can resume from a checkpoint of the other. Workers wait while this trainer validates or
    saves. The end of a with-block, or `end`, notifies them that no further step follows.

    Args:
        settings: a training configuration with multihost_config.num_workers, or its path.
        text, step: the arguments of `Trainer`.
    """

    def _open(self, settings: Settings) -> None:
        """Open the mesh of this rank, which is the only rank that updates weights."""
        self.layout = open_layout(settings)
        self.layouts = [self.layout]
        self.rank = 0
        self.world = 1
        self.comm = None

    def _build(self) -> None:
        """Make the model, and connect to the workers or the aggregator."""
        super()._build()
        hosts = self.settings.multihost_config
        self.exchange = Exchange(self.parameters, hosts.num_workers, hosts.socket_type)

    def _send_weights(self, running: bool) -> None:
        weights = (parameter.gather() for parameter in self.exchange.parameters)
        self.exchange.send_weights(weights, self.steps, running)

    def gradients(self) -> float:
        """Send the weights, set the mean gradients, and return the mean loss of the workers."""
        exchange = self.exchange
        self._send_weights(True)
        loss, means = exchange.average()
        for parameter, array in zip(exchange.parameters, means):
            parameter.place_grad(array)
        exchange.transport.flush()
        return loss

    def end(self) -> None:
        """Send the workers the last weights, and end their loops."""
        self._send_weights(False)
        self.exchange.transport.flush()

    def __exit__(self, *what: object) -> None:
        if what[0] is None:  # After an error the workers stop together with this rank.
            self.end()
        self.close()

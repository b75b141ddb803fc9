"""Hierarchical training: workers compute gradients, other ranks average them and update the
weights (tt-train, examples/multihost/hierarchical_parallel).

| ranks of n workers | 2-tier               | 3-tier     |
|--------------------|----------------------|------------|
| 0 to n - 1         | worker               | worker     |
| n                  | aggregator_optimizer | aggregator |
| n + 1              |                      | optimizer  |

In a step, the optimizer sends the weights to the workers by way of the aggregator. Each worker
sends the gradients of its part of the batch, one for each of its data-parallel groups. The
aggregator averages them over workers and groups, and the optimizer updates the weights. ttml's
aggregator sums over its devices where its guide says averages, so its learning rate means another;
here it is the average of the guide."""

from __future__ import annotations

from collections.abc import Mapping

from ttkit.errors import fail
from ttkit.train.config.settings import Settings
from ttkit.train.context import open_layout
from ttkit.train.model.parameter import Parameter
from ttkit.train.run.exchange import Exchange, by_group, name_of_role
from ttkit.train.run.optimizers import Optimizer, SGDConfig
from ttkit.train.run.trainer import Trainer

ROLES = ("worker", "aggregator", "aggregator_optimizer", "optimizer")


def role_of(rank: int, world: int, num_workers: int) -> str:
    """Return the role of a rank, and print it.

    Args:
        rank, world: of this process.
        num_workers: of multihost_config.

    Raises:
        TTKitError: the ranks make neither two tiers nor three.

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
        cure = f"ttkit run -n {max(num_workers, 1) + 2}, or num_workers: {max(world - 2, 1)}"
        fail("hierarchical training", rule, cure)
    role = name_of_role(rank, world, num_workers)
    print(f"Rank {rank}/{world}: Running as {role} ({tiers}-tier mode)", flush=True)
    return role


class RemoteOptimizer(Optimizer):
    """A worker's optimizer: its step sends the gradients away and receives the new weights.

    Args:
        parameters: what `model.parameters()` returns; they need no values yet.
        aggregator_rank: the rank to send to; the ranks below it are the workers.
        socket_type: "mpi" or "fabric".

    Attributes:
        steps: how many updates the weights have had.
        running: whether the optimizer wants gradients of these weights.

    Example::

        remote = RemoteOptimizer(model.parameters(), aggregator_rank)
        remote.receive_weights()
        while remote.running:
            remote.zero_grad()
            loss = ...              # of this worker's part of batch number `remote.steps`
            loss.backward()         # without synchronize_gradients: the aggregator averages
            remote.step(loss)       # the number, for the log
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        aggregator_rank: int,
        socket_type: str = "mpi",
    ):
        super().__init__(parameters, SGDConfig(lr=0.0))  # the rate is that of the optimizer's rank
        self.aggregator_rank, self.running = aggregator_rank, True
        self._exchange = Exchange(parameters, aggregator_rank, socket_type)

    def get_sorted_parameters(self) -> list[Parameter]:
        """Return the parameters by name: the order in which they are sent."""
        return list(self._exchange.parameters)

    def step(self, loss: float = 0.0) -> None:
        """Send the gradients, and receive the updated weights.

        Args:
            loss: of this worker's part of the batch.
        """
        self.send_gradients(loss)
        self.receive_weights()

    def send_gradients(self, loss: float = 0.0) -> None:
        """Send the gradients to the aggregator."""
        grads = map(by_group, self._exchange.parameters)
        self._exchange.send("weight gradients", self.aggregator_rank, grads, (loss, 0))

    def receive_weights(self) -> None:
        """Receive the aggregator's weights.

        Raises:
            TTKitError: they did not come in time.
        """
        exchange = self._exchange
        steps, running, arrays = exchange.receive("weights", self.aggregator_rank)
        for parameter, array in zip(exchange.parameters, arrays):
            parameter.place(array)
        exchange.transport.flush()
        self.steps, self.running = int(steps), bool(running)


class Aggregator:
    """Averages the workers' gradients and sends them to an optimizer, and the optimizer's weights
    to the workers: the rank between them in 3-tier mode.

    Args:
        parameters: of the model, without values; its layout has as many data-parallel groups as the
            workers'.
        num_workers: ranks 0 to num_workers - 1.
        optimizer_rank: the rank of the optimizer.
        socket_type: "mpi" or "fabric".
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        num_workers: int,
        optimizer_rank: int,
        socket_type: str = "mpi",
    ):
        self.exchange = Exchange(parameters, num_workers, socket_type)
        self.optimizer_rank = optimizer_rank

    def run(self) -> int:
        """Pass weights and gradients on until the optimizer ends the run; return the steps."""
        exchange, optimizer, count = self.exchange, self.optimizer_rank, 0
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
    """The optimizer's rank, in 2-tier mode also the aggregator's: a trainer whose gradients come
    from workers.

    Learning rate, clipping, validation, log and checkpoints are those of `Trainer`, and a
    checkpoint goes on with either. Workers wait while it validates or saves. The end of a
    with-block, or `end`, notifies them that no further step comes.

    Args:
        settings: a training configuration with multihost_config.num_workers, or its path.
        text, step: as for `Trainer`.
    """

    def _open(self, settings: Settings) -> None:
        """Open the mesh of this rank, which is not one of several alike."""
        if not settings.multihost_config.enabled:
            cure = "multihost_config: {enabled: true, num_workers: ...}"
            fail("HierarchicalTrainer", "Multihost is not enabled", cure)
        self.layout = open_layout(settings)
        self.layouts, self.rank, self.world, self.comm = [self.layout], 0, 1, None

    def _build(self) -> None:
        """Make the model, and connect to the workers or the aggregator."""
        super()._build()
        multihost = self.settings.multihost_config
        self.exchange = Exchange(self.parameters, multihost.num_workers, multihost.socket_type)
        self.is_aggregator = self.exchange.rank == multihost.num_workers

    def _send_weights(self, running: bool) -> None:
        exchange = self.exchange
        weights = (parameter.gather() for parameter in exchange.parameters)
        if self.is_aggregator:
            exchange.send_weights(weights, self.steps, running)
        else:
            exchange.send("weights", exchange.num_workers, weights, (self.steps, running))

    def gradients(self) -> float:
        """Send the workers the weights; return their mean loss and set the mean gradients."""
        exchange = self.exchange
        self._send_weights(True)
        if self.is_aggregator:
            loss, means = exchange.average()
        else:
            loss, _, arrays = exchange.receive("weight gradients", exchange.num_workers)
            means = list(arrays)
        for parameter, array in zip(exchange.parameters, means):
            parameter.set_shard_grad(parameter.distribute(array, parameter.dtype, shard=True))
        exchange.transport.flush()
        return loss

    def end(self) -> None:
        """Send the workers the last weights, and end their loops."""
        self._send_weights(False)
        self.exchange.transport.flush()

    def __exit__(self, *what: object) -> None:
        if what[0] is None:  # otherwise they are stopped, as this rank is
            self.end()
        self.close()

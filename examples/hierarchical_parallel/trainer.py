"""What each kind of rank does, a function for each."""

import data

from ttkit.train import Aggregator, AutoContext, HierarchicalTrainer, RemoteOptimizer, create_model
from ttkit.train.context import current_layout
from ttkit.train.parallel.distributed import mean_over_replicas


def worker(settings):
    """Gradients of this rank's part of each batch."""
    tokens, settings = data.read(settings)
    rank, parts = (
        AutoContext.get_instance().get_distributed_context().rank(),
        settings.training_config.gradient_accumulation_steps,
    )
    batches = data.batches(settings, tokens, rank)
    layout = current_layout()
    model = create_model(settings.transformer_config, layout)
    hosts = settings.multihost_config
    remote = RemoteOptimizer(model.parameters(), hosts.num_workers, hosts.socket_type)
    remote.receive_weights()
    while remote.running:
        remote.zero_grad()
        for dropout in model.dropouts():
            dropout.calls = remote.steps * 2 * parts  # the same elements after a resume
        total = 0.0
        for part in range(parts):
            x, y = batches.batch(remote.steps, part, parts)
            loss = model.loss(model(layout.tokens(x)), layout.tokens(y)) * (1 / parts)
            loss.backward()
            total += mean_over_replicas(loss, layout)
        remote.step(total)
    print(f"worker: ended after step {remote.steps}", flush=True)


def aggregator(settings):
    """The mean of the workers' gradients, to the optimizer; its weights, to the workers."""
    _, settings = data.read(settings)
    hosts = settings.multihost_config
    workers = hosts.num_workers
    model = create_model(settings.transformer_config)  # of which only the names and shapes are used
    steps = Aggregator(model.parameters(), workers, workers + 1, hosts.socket_type).run()
    print(f"aggregator: ended after {steps} steps", flush=True)


def optimizer(settings, role="optimizer"):
    """The step, and all that a training run keeps: log and checkpoints."""

    def say(record):
        if record.step % 5 == 0 or record.validation_loss is not None:
            held_out = (
                ""
                if record.validation_loss is None
                else f", validation {record.validation_loss:.4f}"
            )
            print(f"{role}: step {record.step}: loss {record.loss:.4f}{held_out}", flush=True)

    with HierarchicalTrainer(settings) as trainer:
        trainer.fit(show=False, on_step=say)
        print(f"{role}: ended after step {trainer.steps}", flush=True)


def aggregator_optimizer(settings):
    """Both on one rank."""
    optimizer(settings, "aggregator_optimizer")

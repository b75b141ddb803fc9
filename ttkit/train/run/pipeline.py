"""Training a model whose layers are divided into the stages of a pipeline, each on its own mesh.

A `ttkit.plans.Schedule` lists the actions of each stage in order; ttml's pipeline training has only
the schedule `one_at_a_time`. In ttml the first rank sends the targets to the last one; here every
rank reads the text itself."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.files import AnyPath
from ttkit.plans.pipelines import schedule_of
from ttkit.plans.schedule import Action, Message, Schedule, Slot, StageChunk, Task, Timetable
from ttkit.train.autograd import Tensor, Value, no_grad
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import Settings, TransformerConfig, split_blocks
from ttkit.train.context import DistributedContext, open_layout, recording
from ttkit.train.model.models import create_model
from ttkit.train.model.modules import HEAD, TABLE, Array, Parameters
from ttkit.train.parallel.data_parallel import average_gradients
from ttkit.train.parallel.distributed import mean_over_replicas
from ttkit.train.parallel.ranks import (
    MPITransport,
    Transport,
    fabric_routes,
    mean_over_ranks,
    start_mpi,
    to_host,
)
from ttkit.train.run.checkpoint import Arrays, Saved
from ttkit.train.run.trainer import VALIDATION_BATCHES, Trainer

# `data(i)` returns the tokens and targets of micro-batch i.
Data = Callable[[int], tuple[Array, Array]]


class Stage:
    """A stage of a pipeline: one or more parts of a model, its chunks, on one mesh.

    Args:
        index: the number of the stage, from 0.
        config: the configuration of the whole model.
        layout: the layout on this stage's mesh.
        blocks: for each chunk the numbers of its blocks.
    """

    def __init__(
        self, index: int, config: TransformerConfig, layout: Layout, blocks: Sequence[range]
    ):
        self.index, self.layout = index, layout
        self.chunks = [create_model(config, layout, each) for each in blocks]
        self._kept: dict[Action, tuple[Tensor | None, Tensor]] = {}

    def parameters(self) -> Parameters:
        """Return {name: parameter} for all chunks of the stage."""
        return {k: each for chunk in self.chunks for k, each in chunk.parameters().items()}

    def forward(
        self, action: Action, given: Value | None, batch: tuple[Array, Array], before: int
    ) -> tuple[Value, float]:
        """Return the output of a chunk, and what the chunk adds to the loss.

        The output of the last chunk is the loss, and the chunk adds this loss. The output of any
        other chunk is activations, [B, 1, S, E], and the chunk adds the balance loss of its
        experts. Dropout zeroes the same elements as without a pipeline, in any order of forwards.

        Args:
            given: the activations of the chunk before; None for the first chunk.
            batch: tokens and targets of the micro-batch, for the first and the last chunk.
            before: the count of calls from which each dropout starts in this step.
        """
        model = self.chunks[action.chunk]
        x, y = batch
        for dropout in model.dropouts():
            # Each forward calls a block's dropout twice, and the model's own one once.
            dropout.calls = before + action.micro_batch * (1 if dropout is model.dropout else 2)
        start = None if model.is_first else Tensor(given)
        end = model(self.layout.tokens(x) if start is None else start)
        if model.is_last:
            end = model.loss(end, self.layout.tokens(y))
        if recording[0]:  # Only backward frees the tensors kept here, and validation runs none.
            self._kept[action] = start, end
        found = [end] if model.is_last else [Tensor(each.balance) for each in model.experts()]
        return end.get_value(), sum(mean_over_replicas(each, self.layout) for each in found)

    def backward(self, action: Action, grad: Value | None, share: float) -> Value | None:
        """Add to the gradients of the parameters. Return the gradient of the input, or None if the
        input is tokens.

        Args:
            grad: the gradient of the output; None for the last chunk, whose output is the loss.
            share: the factor with which the losses of one micro-batch count in the step's loss.
        """
        start, end = self._kept.pop(action._replace(kind="F"))
        if grad is None:
            end = end * share if share != 1 else end
        else:
            end.set_grad(grad)
        for layer in self.chunks[action.chunk].experts():
            layer.balance_grad = share
        end.backward()
        return start.get_grad() if start else None


class PipelineTrainer(Trainer):
    """A trainer whose model is divided into stages, with `gradient_accumulation_steps`
    micro-batches.

    Ranks 0 to stages - 1 are the stages of a pipeline. The next group of as many ranks is a replica
    of this pipeline, and so on. Parameters keep the names of the whole model, so a run can resume
    from a checkpoint with any number of stages, or with a `Trainer`.

    Args:
        settings: a training configuration with a multihost_config, or the path of one.
        meshes: the meshes of all stages, if this process drives all of them. They are submeshes of
            an open mesh, and each uses the strategies of device_config. By default this process is
            one of `num_workers` ranks, and its stage has the mesh of device_config.
        how: the arguments `text` and `step` of `Trainer`.

    Attributes:
        times: (stage, action, start_s, end_s) of each action of the last step on the stages of this
            process, by the clock of the host.

    Raises:
        TTKitError: the settings contradict each other; this is checked before any computation.

    Example:
        >>> from ttkit.train.config import MultihostConfig, TrainingConfig, TransformerConfig
        >>> small = TransformerConfig(
        ...     num_heads=2, embedding_dim=32, num_blocks=2, max_sequence_length=32, dropout_prob=0
        ... )
        >>> config = TrainingConfig(
        ...     batch_size=4,
        ...     gradient_accumulation_steps=4,
        ...     tokenizer_type="byte",
        ...     checkpoint_dir="",
        ... )
        >>> settings = Settings(
        ...     training_config=config,
        ...     transformer_config=small,
        ...     multihost_config=MultihostConfig(True, 2),
        ... )
        >>> with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        ...     submeshes = mesh.create_submeshes(ttnn.MeshShape(1, 1))
        ...     trainer = PipelineTrainer(settings, meshes=submeshes)
        ...     trainer.step().step, trainer.schedule, len(trainer.times)
        (1, Schedule(1F1B: 2 stages, 4 micro-batches), 16)
    """

    def __init__(self, settings: Settings | AnyPath, *, meshes: Sequence | None = None, **how: Any):
        self._meshes = meshes
        self.times: list[tuple[int, Action, float, float]] = []
        self._broken = False
        super().__init__(settings, **how)

    # ------------------------------------------------------------ parts
    def _open(self, settings: Settings) -> None:
        """Open the mesh of this rank or use the given meshes, and find the number of this rank."""
        multihost = settings.multihost_config
        meshes = self._meshes
        ranks = DistributedContext()
        self.rank, self.comm = ranks.rank(), None
        self.world = ranks.size() if meshes is None else len(meshes)
        self.num_stages = len(multihost.blocks_per_stage) or self.world
        workers = multihost.num_workers
        if (
            self.world != workers
            or workers % self.num_stages
            or (meshes and workers != self.num_stages)
        ):
            fail(
                "PipelineTrainer",
                f"World size ({self.world}) must equal multihost_config.num_workers ({workers}), "
                f"a multiple of the stages ({self.num_stages})",
                f"ttkit run -n {workers}, or meshes=[...] for as many stages in one process",
            )
        if meshes is None:
            self.layouts = [open_layout(settings)]
            self.comm = start_mpi().COMM_WORLD
        else:
            shapes = (tuple(mesh.shape) for mesh in meshes)
            devices = (replace(settings.device_config, mesh_shape=shape) for shape in shapes)
            layouts = (Layout.of(replace(settings, device_config=device)) for device in devices)
            self.layouts = [layout.on(mesh) for layout, mesh in zip(layouts, meshes)]
        self.layout = self.layouts[0]

    def _build(self) -> None:
        """Make the stages of this process. Connect them to the other stages and their replicas."""
        hosts = self.settings.multihost_config
        config = self.model_config
        micro_batches = self.settings.training_config.gradient_accumulation_steps
        plan = hosts.pipeline
        self.schedule = schedule = schedule_of(
            plan.schedule, self.num_stages, micro_batches, plan.chunks_per_rank
        )
        if any(action.kind in "IW" for row in schedule.actions for action in row):
            fail(
                "PipelineTrainer",
                f"{schedule!r} splits backwards into I and W; this trainer runs them whole",
                "a schedule of F and B; timeline() and the pictures show the effect of splitting",
            )
        divided = split_blocks(config, self.num_stages, hosts.blocks_per_stage, schedule.chunks)
        mine = range(self.num_stages) if self.comm is None else [self.rank % self.num_stages]
        self.stages = {
            stage: Stage(stage, config, layout, divided[stage :: self.num_stages])
            for stage, layout in zip(mine, self.layouts)
        }
        self.parameters = {}
        for own in self.stages.values():
            self.parameters |= own.parameters()
        self.replicas = None
        self.transport = Transport()
        if self.comm is None:
            return
        replica, stage = divmod(self.rank, self.num_stages)
        # This communicator has the ranks of one pipeline.
        stages = self.comm.Split(replica, self.rank)
        routes = fabric_routes(schedule) if hosts.socket_type == "fabric" else ()
        self.transport = MPITransport(stages, self.layout, routes, schedule.chunks)
        if self.world > self.num_stages:
            self.replicas = self.comm.Split(stage, self.rank)

    # ------------------------------------------------------------ one step
    def gradients(self) -> float:
        """Compute the mean gradients of this rank's stages; return their part of the loss."""
        micro_batches = self.schedule.micro_batches
        self.times = []
        total = self._play(
            self.schedule, lambda i: self.batches.batch(self.steps, i, micro_batches)
        )
        average_gradients(self.parameters, self.settings.layout.bucket_mb)
        if self.model_config.is_tied:
            self._add_table_gradients()
        return total / micro_batches

    def _add_table_gradients(self) -> None:
        """Add up the two gradients of the table of tied embeddings (Shoeybi 2019).

        The first and the last stage both have this table, and send each other their gradients. Both
        then have the same sum and equal weights, so their optimizers keep the weights equal.
        """
        table = StageChunk(0)
        head = StageChunk(self.num_stages - 1, self.schedule.chunks - 1)
        ends = [(TABLE, table, head), (HEAD, head, table)]
        # With a single chunk, table and head are one parameter, and autograd has added up the two
        # gradients.
        mine = [each for each in ends if each[0] in self.parameters and table != head]
        grads = {}
        for name, here, there in mine:
            own = self.parameters[name]
            along = own.layout.replica_axes
            cuts = (own.layout.tp_axis, own.shard_dim), *((axis, own.zero_dim) for axis in along)
            grads[name] = to_host(own.get_grad(), *cuts)[:, :, : own.global_shape[2]]
            self.transport.put(Message("weight gradients", 0, here, there), grads[name])
        for name, here, there in mine:
            message = Message("weight gradients", 0, there, here)
            self.parameters[name].place_grad(grads[name] + self.transport.take(message))
        self.transport.flush()

    def _play(self, schedule: Schedule, data: Data) -> float:
        """Run a schedule on the stages of this process; return the sum of their losses."""
        if self._broken:
            fail(
                "PipelineTrainer",
                "an earlier step stopped before its end, so the stages have done different actions",
                "a new PipelineTrainer on all ranks",
            )
        total = 0.0
        todo = {stage: deque(schedule.tasks(stage)) for stage in self.stages}
        self._broken = True
        for each in self.stages.values():
            for chunk in each.chunks:
                chunk.train(recording[0])
        while any(todo.values()):
            for stage, tasks in todo.items():
                awaited = tasks[0].receive if tasks else None
                if tasks and (awaited is None or self.transport.has(awaited)):
                    total += self._do(self.stages[stage], tasks.popleft(), data)
        self.transport.flush()
        self._broken = False
        return total

    def _do(self, stage: Stage, task: Task, data: Data) -> float:
        """Do one action of a stage; return what the action adds to the loss."""
        action = task.action
        loss = 0.0
        start = time.time()
        layout = stage.layout
        given = self.transport.receive(task.receive, layout) if task.receive else None
        parts = self.schedule.micro_batches
        if action.kind == "F":
            batch = data(action.micro_batch)
            value, loss = stage.forward(action, given, batch, self.steps * 2 * parts)
        else:
            value = stage.backward(action, given, 1 / parts)
        # Wait for the device, so that the measured times include its work.
        ttnn.synchronize_device(layout.device)
        if task.send:
            self.transport.send(task.send, value, layout)
        if recording[0]:
            self.times.append((stage.index, action, start, time.time()))
        return loss

    def across_ranks(self, total: float) -> float:
        """Return a number added up over the stages and averaged over the replicas."""
        return total if self.comm is None else mean_over_ranks(self.comm, total) * self.num_stages

    def validate(self) -> float:
        """Return the mean loss of the validation text. The stages run forwards only."""
        count = min(len(self.validation), VALIDATION_BATCHES)
        chunks = self.schedule.chunks
        row = tuple(Action("F", i, chunk) for chunk in range(chunks) for i in range(count))
        forwards = Schedule(
            "forward only", self.num_stages, count, (row,) * self.num_stages, chunks
        )
        with no_grad():
            found = self._play(forwards, self.validation.batch) / count
        return self.across_ranks(found)

    # ------------------------------------------------------------ results
    def timetable(self) -> Timetable:
        """Return when each stage did each action in the last step. Every rank must call this.

        The result can be drawn in the same way as the result of `schedule.timeline()`. On several
        hosts, the times contain the differences between the clocks of the hosts."""
        rows = self.times
        if self.comm is not None:
            of_ranks = self.comm.allgather(rows if self.replica == 0 else [])
            rows = [row for rows in of_ranks for row in rows]
        first = min((start for _, _, start, _ in rows), default=0.0)
        slots: list[list[Slot]] = [[] for _ in range(self.num_stages)]
        for stage, action, start, end in rows:
            slots[stage].append(Slot(action, start - first, end - first))
        return Timetable(self.schedule, tuple(map(tuple, slots)))

    def collected(self) -> Arrays:
        """Return the global arrays of a checkpoint; only rank 0 gets those of all stages."""
        found = super().collected()
        # With tied weights the head equals the table of the first stage, so it is not saved again.
        mine = {
            name: array
            for name, array in found.items()
            if not (self.model_config.is_tied and name.endswith(HEAD))
        }
        if self.comm is None:
            return mine
        parts = self.comm.gather(mine if self.replica == 0 else {}) or []
        return {name: array for part in parts for name, array in part.items()}

    def _restore(self, saved: Saved) -> None:
        copies = {name.replace(TABLE, HEAD): array for name, array in saved.tensors.items()}
        super()._restore(saved._replace(tensors=copies | saved.tensors))

    def sample(self, *args, **kwargs) -> NoReturn:
        """Refuse to sample.

        Raises:
            TTKitError: always.
        """
        fail(
            "PipelineTrainer.sample",
            "each token would wait for every stage",
            "save(), then sample() of a Trainer with the same checkpoint_dir",
        )

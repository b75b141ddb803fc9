"""Training a model whose layers are cut into the stages of a pipeline, each on a mesh of its own.

What each stage does in which order is a `ttkit.plans.Schedule`; ttml's pipeline training knows
`one_at_a_time` only. Every rank reads the text itself, so that targets need not travel from the
first rank to the last, as they do in ttml."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.plans.pipelines import SCHEDULES
from ttkit.plans.schedule import Action, Message, Place, Schedule, Task
from ttkit.plans.timetable import Slot, Timetable
from ttkit.train import checkpoint, optimizers
from ttkit.train.autograd import no_grad
from ttkit.train.config import PipelineParallelConfig, Settings
from ttkit.train.config_files import read_settings
from ttkit.train.distributed import synchronize_gradients
from ttkit.train.models import create_model
from ttkit.train.modules import Layout
from ttkit.train.ranks import Replicas, mean, start_mpi
from ttkit.train.run_folder import Saved
from ttkit.train.sockets import DistributedContext
from ttkit.train.stage import COPY, TABLE, Stage, split_blocks
from ttkit.train.trainer import VALIDATION_BATCHES, Trainer, mean_over_groups, open_layout
from ttkit.train.wires import AHEAD, FabricWire, MPIWire, Wire, lines_of

Data = Callable[[int], tuple[np.ndarray, np.ndarray]]  # micro-batch -> tokens, targets


class PipelineTrainer(Trainer):
    """A trainer whose model is cut into stages, with as many micro-batches as
    `gradient_accumulation_steps` says.

    Ranks 0 to stages - 1 are the stages of a pipeline, the next as many those of its first replica,
    and so on. Parameters keep the names of the whole model, so a checkpoint goes on with any number
    of stages, or with a `Trainer`.

    Args:
        settings: a training configuration with a multihost_config, or the path of one.
        schedule: one of `ttkit.plans`, or one of one's own; that of `pipeline_parallel_config`
        unless given. meshes: the meshes of all stages, where this process drives them all:
        submeshes of one that is open. A `Layout` in place of a
            mesh says which of its axes is for what. Without: this process is one of `num_workers`
            ranks, and its stage has the mesh of device_config.
        text, resume, step: as for `Trainer`.

    Attributes:
        times: (stage, action, start_s, end_s) of the last step on the stages of this process, by
        the clock of the host.

    Raises:
        TTKitError: whatever does not fit together, before anything is computed.

    Example:
        >>> from ttkit.train.config import MultihostConfig, Settings, TrainingConfig, TransformerConfig
        >>> small = TransformerConfig(num_heads=2, embedding_dim=32, num_blocks=2, max_sequence_length=32, dropout_prob=0)
        >>> config = TrainingConfig(batch_size=4, gradient_accumulation_steps=4, tokenizer_type="byte", checkpoint_dir="", eval_every=0)
        >>> settings = Settings(training_config=config, transformer_config=small, multihost_config=MultihostConfig(True, 2))
        >>> with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        ...     trainer = PipelineTrainer(settings, meshes=mesh.create_submeshes(ttnn.MeshShape(1, 1)))
        ...     trainer.step().step, trainer.schedule, len(trainer.times)
        (1, Schedule(1F1B: 2 stages, 4 micro-batches), 16)
    """

    def __init__(
        self,
        settings: Settings | str | os.PathLike[str],
        *,
        schedule: Schedule | None = None,
        meshes: Sequence[Any] | None = None,
        text: str | None = None,
        resume: bool = True,
        step: int | None = None,
    ):
        self._given, self._meshes = schedule, meshes
        self.times: list[tuple[int, Action, float, float]] = []
        self._broken = False
        super().__init__(
            settings if isinstance(settings, Settings) else read_settings(settings),
            text=text,
            resume=resume,
            step=step,
        )

    # ------------------------------------------------------------ parts
    def _open(self, settings: Settings) -> None:
        """The meshes and the ranks."""
        multihost = settings.multihost_config
        if not multihost.enabled:
            fail(
                "PipelineTrainer",
                "Multihost is not enabled",
                "multihost_config: {enabled: true, num_workers: a rank for each stage}",
            )
        ranks = DistributedContext()
        self.rank, self.world, self.comm = (
            ranks.rank(),
            ranks.size() if self._meshes is None else len(self._meshes),
            None,
        )
        if self.world != multihost.num_workers:
            rule = (
                f"World size ({self.world}) must equal multihost_config.num_workers "
                f"({multihost.num_workers})"
            )
            fail(
                "PipelineTrainer",
                rule,
                f"ttkit run -n {multihost.num_workers}, or meshes=[...] for as many stages in one "
                "process",
            )
        if self.world < 2:
            fail(
                "PipelineTrainer",
                "Pipeline parallel requires world_size > 1",
                "num_workers: 2 or more, or a Trainer",
            )
        self.pipeline = multihost.pipeline_parallel_config or PipelineParallelConfig(
            settings.transformer_config.num_blocks
        )
        shares = self.pipeline.blocks_per_rank
        self.count = (
            self.world
            if self._meshes is not None
            else self._given.stages
            if self._given
            else len(shares) or self.world
        )
        if self.world % self.count:
            rule = (
                f"World size ({self.world}) is no multiple of the stages ({self.count}), "
                "so they do not make up whole pipelines"
            )
            fail(
                "PipelineTrainer",
                rule,
                f"{self.world - self.world % self.count or self.count} ranks",
            )
        if self._meshes is not None:
            self.layouts = [
                mesh if isinstance(mesh, Layout) else _layout(settings, mesh)
                for mesh in self._meshes
            ]
            self.layout = self.layouts[0]
            return
        mpi = start_mpi()
        self.layout, self.comm = open_layout(settings), mpi.COMM_WORLD
        self.layouts = [self.layout]

    def _build(self) -> None:
        """This process's stages, what joins them, and who has copies of them."""
        self.schedule = self._schedule()
        chunks, shares = self.schedule.chunks, self.pipeline.blocks_per_rank
        if self.pipeline.num_blocks != self.model_config.num_blocks:
            rule = (
                f"pipeline_parallel_config.num_blocks is {self.pipeline.num_blocks}, "
                f"the model has {self.model_config.num_blocks} blocks"
            )
            fail("PipelineTrainer", rule, f"num_blocks: {self.model_config.num_blocks}")
        if shares and sorted(map(int, shares)) != list(range(self.count)):
            rule = (
                f"blocks_per_rank has the ranks {sorted(map(int, shares))}, "
                f"and the stages are ranks 0 to {self.count - 1}"
            )
            fail("PipelineTrainer", rule, "one line 'RANK: BLOCKS' for each stage")
        per_stage = [
            blocks for _, blocks in sorted((int(rank), blocks) for rank, blocks in shares.items())
        ]
        blocks = split_blocks(self.model_config, self.count, chunks, per_stage)
        first = self.rank // self.count * self.count
        mine = range(self.count) if self.comm is None else [self.rank - first]
        self.stages = {
            stage: Stage(stage, self.model_config, layout, blocks[stage])
            for stage, layout in zip(mine, self.layouts)
        }
        self.parameters = {
            key: parameter
            for stage in self.stages.values()
            for key, parameter in stage.parameters().items()
        }
        self.part, self.parts = (
            (0, 1) if self.comm is None else (self.rank // self.count, self.world // self.count)
        )
        self.replicas, self.wire = None, Wire()
        if self.comm is not None:
            line = self.comm.Split(self.part, self.rank)  # the stages of our pipeline
            fabric = self.settings.multihost_config.socket_type == "fabric"
            self.wire = (
                FabricWire(line, self.layout, lines_of(self.schedule), chunks)
                if fabric
                else MPIWire(line, chunks)
            )
            if self.parts > 1:
                self.replicas = Replicas(
                    self.parameters,
                    self.comm.Split(self.rank - first, self.rank),
                    self.layout.ddp_axes,
                )

    def _schedule(self) -> Schedule:
        parts, name = (
            self.settings.training_config.gradient_accumulation_steps,
            self.pipeline.schedule,
        )
        if self._given is None and self.pipeline.chunks_per_rank > 1 and name != "interleaved":
            fail(
                "PipelineTrainer",
                f"chunks_per_rank is {self.pipeline.chunks_per_rank}, and {name} has one",
                "schedule: interleaved",
            )
        more = (self.pipeline.chunks_per_rank,) if name == "interleaved" else ()
        schedule = (self._given or SCHEDULES[name](self.count, parts, *more)).validate()
        if (schedule.stages, schedule.micro_batches) != (self.count, parts):
            rule = (
                f"{schedule!r} is not for {self.count} stages and gradient_accumulation_steps "
                f"{parts}"
            )
            fail("PipelineTrainer", rule, "a schedule of that size")
        if any(action.kind in "IW" for row in schedule.actions for action in row):
            rule = (
                f"{schedule!r} splits backwards, and a backward here makes the gradients of "
                "inputs and weights in one pass"
            )
            fail(
                "PipelineTrainer",
                rule,
                "a schedule of F and B; timeline() and the pictures show what splitting would "
                "bring",
            )
        return schedule

    # ------------------------------------------------------------ one step
    def gradients(self) -> float:
        """The mean loss of a step; each parameter has its gradient then, of all micro-batches,
        averaged over replicas.
        """
        parts = self.settings.training_config.gradient_accumulation_steps
        self.times = []
        total = (
            self._play(self.schedule, lambda i: self.batches.batch(self.steps, i, parts), keep=True)
            / parts
        )
        if self.replicas:
            self.replicas.average()
        else:
            for key, parameter in self.parameters.items():
                if parameter.layout.ddp_axes:
                    synchronize_gradients({key: parameter}, parameter.layout.ddp_axes)
        if TABLE in self.parameters or COPY in self.parameters:
            self._sum_table()
        return self._everywhere(total)

    def _play(self, schedule: Schedule, data: Data, keep: bool) -> float:
        """Do what a schedule says on the stages of this process, and give the sum of the losses
        that they see.
        """
        if self._broken:
            fail(
                "PipelineTrainer",
                "a step was given up before, so the stages are out of step",
                "PipelineTrainer(..., resume=True) on all ranks",
            )
        total, todo, start = (
            0.0,
            {stage: deque(schedule.tasks(stage)) for stage in self.stages},
            time.monotonic(),
        )
        shape = (
            *data(0)[0].shape[:2],
            self.model_config.max_sequence_length,
            self.model_config.embedding_dim,
        )
        self._broken = True
        for each in self.stages.values():
            each.train(keep)
        try:
            while any(todo.values()):
                moved = False
                for stage, tasks in todo.items():
                    for message in [task.receive for task in tasks if task.receive][:AHEAD]:
                        self.wire.expect(message, shape)
                    if tasks and (tasks[0].receive is None or self.wire.has(tasks[0].receive)):
                        total += self._do(self.stages[stage], tasks.popleft(), shape, data, keep)
                        moved, start = True, time.monotonic()
                if not moved:
                    self.wire.nap(
                        start,
                        [tasks[0].receive for tasks in todo.values() if tasks and tasks[0].receive],
                    )
            self.wire.flush()
        except BaseException:
            self.wire.drop()
            for each in self.stages.values():
                each.forget()
            raise
        self._broken = False
        return total

    def _do(
        self, stage: Stage, task: Task, shape: tuple[int, ...], data: Data, keep: bool
    ) -> float:
        """One action of a stage; the loss where it computes one."""
        action, loss, start = task.action, 0.0, time.time()
        came = self.wire.receive(task.receive, stage.layout, shape) if task.receive else None
        if action.kind == "F":
            part, (x, y) = stage.parts[action.chunk], data(action.micro_batch)
            stage.set_dropout(action, self.steps * 2 * self.schedule.micro_batches)
            given = stage.layout.tokens(x) if part.is_first else came
            out = stage.forward(
                action, given, stage.layout.tokens(y) if part.is_last else None, keep
            )
            loss = mean_over_groups(out, stage.layout) if part.is_last else 0.0
            value = out.get_value()
        else:
            value = stage.backward(action, came, 1 / self.schedule.micro_batches)
        ttnn.synchronize_device(stage.layout.device)  # so that the times are those of the work
        if task.send:
            self.wire.send(task.send, value, stage.layout)
        if keep:
            self.times.append((stage.index, action, start, time.time()))
        return loss

    def _sum_table(self) -> None:
        """Tied embeddings: the first stage's table and the last one's get the sum of both
        gradients, and so stay equal.
        """
        ends = {TABLE: Place(0, 0), COPY: Place(self.count - 1, self.schedule.chunks - 1)}
        other, start = {TABLE: COPY, COPY: TABLE}, time.monotonic()
        mine = {key: self.parameters[key] for key in ends if key in self.parameters}
        if not self.model_config.is_tied:
            return
        grads = {key: parameter.gather(parameter.get_grad()) for key, parameter in mine.items()}
        for key, grad in grads.items():
            self.wire.put(Message("table", 0, ends[key], ends[other[key]]), grad)
        for key, parameter in mine.items():
            message = Message("table", 0, ends[other[key]], ends[key])
            self.wire.expect(message, parameter.global_shape)
            while not self.wire.has(message):
                self.wire.nap(start, [message])
            parameter.set_grad(
                parameter.distribute(
                    grads[key] + self.wire.take(message), parameter.get_value().dtype
                )
            )
        self.wire.flush()

    def _everywhere(self, total: float) -> float:
        """The sum of a number over the stages, its mean over the replicas."""
        return total if self.comm is None else mean(self.comm, total)[0] * self.count

    def clip(self, max_norm: float) -> None:
        """Scale all gradients of all stages down together where their norm is above `max_norm`."""
        own = optimizers.gradient_square(
            parameter for key, parameter in self.parameters.items() if key != COPY
        )
        optimizers.clip_grad_norm(self.parameters, max_norm, self._everywhere(own))

    def validate(self) -> float:
        """The mean loss of the text that is held out: forwards only."""
        count = min(len(self.validation), VALIDATION_BATCHES)
        order = [
            [Action("F", i, chunk) for chunk in range(self.schedule.chunks) for i in range(count)]
            for _ in range(self.count)
        ]
        forwards = Schedule("forward only", self.count, count, order, self.schedule.chunks)  # type: ignore[arg-type]
        with no_grad():
            found = self._play(forwards, self.validation.batch, keep=False) / count
        return self._everywhere(found)

    # ------------------------------------------------------------ what comes out
    def timetable(self) -> Timetable:
        """When each stage did what in the last step, for the same pictures as
        `schedule.timeline()`; every rank must call.

        The ranks' clocks are taken to agree; on several hosts they are as good as those hosts'
        clocks."""
        rows = (
            self.times
            if self.comm is None
            else [
                row
                for rows in self.comm.allgather(self.times if self.part == 0 else [])
                for row in rows
            ]
        )
        first = min((start for _, _, start, _ in rows), default=0.0)
        slots = [
            [
                Slot(action, start - first, end - first)
                for at, action, start, end in rows
                if at == stage
            ]
            for stage in range(self.count)
        ]
        return Timetable(self.schedule, tuple(map(tuple, slots)))

    def collected(self) -> dict[str, np.ndarray]:
        """What a checkpoint keeps, whole on rank 0; stage by stage and tensor by tensor, so that
        no message is of a whole stage.
        """
        mine = {key: array for key, array in super().collected().items() if not key.endswith(COPY)}
        if self.comm is None:
            return mine
        if 0 < self.rank < self.count:
            for item in mine.items():
                self.comm.send(item, 0)
            self.comm.send(None, 0)
        for stage in range(1, self.count) if self.rank == 0 else ():
            while (item := self.comm.recv(source=stage)) is not None:
                mine[item[0]] = item[1]
        return mine

    def _restore(self, saved: Saved) -> None:
        """Take this process's part of a whole model's checkpoint."""
        whole = create_model(self.model_config, Layout()).parameters()
        model = {key[6:]: array for key, array in saved.tensors.items() if key.startswith("model/")}
        checkpoint.check_matches(
            {name: parameter.global_shape for name, parameter in whole.items()}, model
        )
        mine: dict[str, np.ndarray] = {}
        for key, parameter in self.parameters.items():
            mine |= {
                name[: -len(parameter.name)] + key: array
                for name, array in saved.tensors.items()
                if name.split("/")[-1] == parameter.name
            }
        super()._restore(replace(saved, tensors=mine))

    def sample(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not here.

        Raises:
            TTKitError: always.
        """
        fail(
            "PipelineTrainer.sample",
            "it would wait for every stage for each token",
            "save(), then sample() of a Trainer with the same checkpoint_dir",
        )


def _layout(settings: Settings, mesh: Any) -> Layout:
    """The layout of a stage's mesh: the configuration's strategies on the axes that this mesh
    has for them.
    """
    device = replace(settings.device_config, mesh_shape=tuple(mesh.shape))
    axes = device.axes()
    dtype = getattr(ttnn, settings.training_config.precision)
    return Layout(
        mesh, axes.get("tp"), device.size("tp"), axes.get("ddp"), device.size("ddp"), dtype
    )

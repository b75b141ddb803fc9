"""What a training run takes, before it starts: memory of a chip, bytes between chips, modelled
times. Nothing is opened or allocated.

It costs the layout of one configuration as `ttkit.layouts` costs all layouts of a machine: the
model's own code runs on tensors without values. The modelled times assume no overlap of
communication with compute."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import psutil

from ttkit.backend import is_simulated
from ttkit.errors import OutOfMemoryError, fail
from ttkit.hardware import System, current_system
from ttkit.hardware.chips import ELEMENT_BYTES
from ttkit.hardware.device_order import opens_transposed
from ttkit.hardware.systems import system_named
from ttkit.plans import topology
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import Settings
from ttkit.train.model.models import Transformer, create_model
from ttkit.train.model.modules import tiled
from ttkit.words import Tables, short


def check_memory(settings: Settings, layout: Layout, on_one_process: bool) -> None:
    """Compare weights, gradients and optimizer state with the host's free memory. A chip's DRAM is
    counted by the simulator, which refuses what does not fit, as ttnn does on cards.

    Args:
        layout: on an open mesh.

    Raises:
        OutOfMemoryError: they do not fit.
    """
    if not is_simulated():
        return
    from ttkit.layouts.costs import stages
    from ttkit.layouts.dry_run import Job, update

    model, training = settings.transformer_config, settings.training_config
    layout = replace(layout, device=None)
    job = Job(model, training.batch_size, model.max_sequence_length, training)
    held = [sum(update(job, layout, stage).of_all) for stage in stages(model, layout)]
    # The simulator keeps data-parallel replicas in one array.
    needed = sum(held) * layout.tp if on_one_process else max(held)
    room = psutil.virtual_memory().available
    if needed > room:
        fail(
            f"Trainer of embedding_dim {model.embedding_dim:,}, num_blocks {model.num_blocks:,}",
            f"this host has {short(room, 'B')} free and must hold {short(needed, 'B')} of weights, "
            "gradients and optimizer state",
            "a smaller model or precision: bfloat16; ttkit train --plan shows the parts",
            OutOfMemoryError,
        )


class Part(NamedTuple):
    """Parameters of one part of the model: of all chips together, and on each of them."""

    name: str
    parameters: int
    on_a_chip: int
    bytes_on_a_chip: int


@dataclass(frozen=True, repr=False)
class TrainingPlan(Tables):
    """The cost of a training run; prints as tables. Made by `training_plan`.

    Args:
        settings: the run.
        system: the machine.
        model: without values; of a pipeline, its first stage.
    """

    settings: Settings
    system: System
    model: Transformer

    # ------------------------------------------------------------ sizes
    @functools.cached_property
    def parts(self) -> list[Part]:
        """The parameters by part of the model, blocks together, in the order of the model."""
        found: dict[str, list[int]] = {}
        for name, parameter in self.model.parameters().items():
            words = name.split(".")
            key = words[0]
            if key == "blocks":
                key = f"blocks, {words[2]}"
            elif key == "vocabulary":
                key = " ".join(words[:2])
            local = parameter.local_shape
            nbytes = tiled(local) * ELEMENT_BYTES[self.layout.precision]
            numbers = math.prod(parameter.global_shape), math.prod(local), nbytes
            found[key] = [a + b for a, b in zip(found.get(key, [0, 0, 0]), numbers)]
        return [Part(key, *numbers) for key, numbers in found.items()]

    @property
    def parameters(self) -> int:
        """How many numbers the model learns; of a pipeline, its first stage."""
        return sum(part.parameters for part in self.parts)

    # ------------------------------------------------------------ a step
    @property
    def layout(self) -> Layout:
        """How the step is cut."""
        return Layout.of(self.settings)

    @functools.cached_property
    def cost(self):
        """Memory, traffic and times, a `ttkit.layouts.search.Candidate`; the stages of a pipeline
        lie on as many hosts as they need.
        """
        from ttkit.layouts.dry_run import Job
        from ttkit.layouts.places import Machine, Place, room_for
        from ttkit.layouts.search import evaluate

        training, model = self.settings.training_config, self.settings.transformer_config
        layout = replace(self.layout, axes=None)
        shape: Any = tuple(self.settings.device_config.mesh_shape)
        hosts = math.ceil(layout.pp / max(room_for(self.system, shape), 1))
        place = Place(shape, self.layout.axes or (), layout.dp // self.model.layout.dp, hosts)
        job = Job(
            replace(model, experimental=None),
            training.batch_size,
            model.max_sequence_length,
            training,
            self.settings.layout.bucket_mb,
        )
        any_size = Machine(self.system, headroom=-math.inf)
        return evaluate(job, layout, place, any_size)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes on each chip when it holds most, of a pipeline in its fullest stage: weights,
        gradients, optimizer, activations, buffers.
        """
        return self.cost.memory._asdict()  # type: ignore[no-any-return]

    @property
    def fits(self) -> bool:
        """Whether a chip's DRAM holds all that."""
        return sum(self.memory.values()) <= self.system.chip.dram_bytes

    @property
    def traffic(self) -> list:
        """The collectives of a step: `ttkit.layouts.costs.Traffic`; of a pipeline, those of its
        slowest stage.
        """
        return self.cost.traffic  # type: ignore[no-any-return]

    @property
    def times_s(self) -> dict[str, float]:
        """Modelled seconds of a step: matmuls, each kind of communication, the bubble of a
        pipeline, and the optimizer, which reads and writes memory.
        """
        times = self.cost.times
        found = {"compute": times.compute}
        for traffic in self.traffic:
            found[traffic.what] = found.get(traffic.what, 0.0) + traffic.time_s
        if self.layout.pp > 1:
            found["bubble"] = times.bubble
        return found | {"optimizer": times.optimizer}

    @property
    def step_time_s(self) -> float:
        """Modelled seconds of a step, its pieces one after the other."""
        return self.cost.times.total  # type: ignore[no-any-return]

    @property
    def tokens_per_s(self) -> float:
        """Modelled tokens of all groups in a second."""
        return self.cost.tokens_per_s  # type: ignore[no-any-return]

    # ------------------------------------------------------------ showing
    def notes(self) -> Iterator[str]:
        """Yield what to know before the run is started."""
        shape = tuple(self.settings.device_config.mesh_shape)
        if turned := opens_transposed(self.system.shape, shape):
            yield f"{turned}; mesh_shape {list(shape[::-1])} is as the cables are"
        if not self.fits:
            size, dram = sum(self.memory.values()) / 1e9, self.system.chip.dram_bytes / 1e9
            yield f"it does not fit: {size:.2f} of {dram:.2f} GB on each chip"
            yield (
                "with precision: bfloat16 and optimizer: {type: AdamW, master_weights: false} it "
                "takes less; `ttkit plan --model FILE` lists the layouts that fit"
            )

    def reports(self) -> list:
        """Return the tables: parameters, memory, communication, times."""
        from ttkit.visualize.charts.plans import plan_tables

        return plan_tables(self)


def training_plan(settings: Settings, system: System | str | None = None) -> TrainingPlan:
    """Return the cost of a training run on a machine.

    Args:
        settings: from `ttkit.train.read_settings`.
        system: a name or a `System`; the machine in use unless given.

    Raises:
        TTKitError: the mesh does not fit the machine, or the strategies or sizes do not fit the
            mesh.

    Example:
        >>> from ttkit.train import read_settings
        >>> settings = read_settings("configs/training/training_llama8b_tp_ddp_galaxy.yaml")
        >>> plan = training_plan(settings, "galaxy")
        >>> plan.parameters, plan.layout.axes, str(plan.layout)
        (8030261248, (('dp', 0), ('tp', 1)), 'DP4 TP8 recompute')
    """
    machine = system_named(system) if isinstance(system, str) else system or current_system()
    device = settings.device_config
    topology(machine, tuple(device.mesh_shape))  # type: ignore[arg-type]
    model, layout = settings.transformer_config, Layout.of(settings)
    first = range(layout.stages_of(model)[0])
    on_one_mesh = layout.along(device.mesh_shape)
    plan = TrainingPlan(settings, machine, create_model(model, on_one_mesh, first))
    layout.check(model, settings.training_config.batch_size, model.max_sequence_length)
    return plan

"""What a training run takes, before it starts: memory of a chip, bytes between chips, modelled
times. Nothing is opened or allocated.

It costs the layout of one configuration as `ttkit.layouts` costs all layouts of a machine: the
model's own code runs on tensors without values. The modelled times assume no overlap of
communication with compute."""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ttkit.hardware import System, current_system
from ttkit.hardware.device_order import transposed_warning
from ttkit.hardware.systems import system_named
from ttkit.plans import topology
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import Settings
from ttkit.words import Tables


@dataclass(frozen=True, repr=False)
class TrainingPlan(Tables):
    """The cost of a training run; prints as tables. Made by `training_plan`.

    Args:
        settings: the run.
        system: the machine.
    """

    settings: Settings
    system: System

    @property
    def parameters(self) -> int:
        """How many numbers the model learns."""
        from ttkit.layouts.costs import parameters_of

        return parameters_of(self.settings.transformer_config)  # type: ignore[no-any-return]

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
        place = Place(
            shape, self.layout.axes or (), layout.dp // self.layout.along(shape).dp, hosts
        )
        job = Job(
            replace(model, experimental=None),
            training.batch_size,
            model.max_sequence_length,
            training,
            self.settings.layout.bucket_mb,
        )
        # What does not fit is costed, too.
        return evaluate(job, layout, place, Machine(self.system, headroom=-math.inf))

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
        """Modelled tokens of all replicas in a second."""
        return self.cost.tokens_per_s  # type: ignore[no-any-return]

    def notes(self) -> Iterator[str]:
        """Yield what to know before the run is started."""
        shape = tuple(self.settings.device_config.mesh_shape)
        axes = [f"{name.upper()} along axis {axis}" for name, axis in self.layout.axes or ()]
        mesh = f"on a {'x'.join(map(str, shape))} mesh of {self.system.name}"
        yield f"{self.parameters:,} parameters {mesh}: {', '.join(axes) or 'replicated'}"
        if turned := transposed_warning(self.system.shape, shape):
            yield f"{turned}; mesh_shape {list(shape[::-1])} is as the cables are"
        if not self.fits:
            yield (
                "it does not fit; with precision: bfloat16 and optimizer: {type: AdamW, "
                "master_weights: false} it takes less; `ttkit plan --model FILE` lists the layouts "
                "that fit"
            )

    def reports(self) -> list:
        """Return the tables: memory, communication, times."""
        from ttkit.visualize.charts.plans import explanation

        return list(explanation(self.cost, self.system.chip.dram_bytes))


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
    topology(machine, tuple(settings.device_config.mesh_shape))  # type: ignore[arg-type]
    plan, model = TrainingPlan(settings, machine), settings.transformer_config
    plan.layout.check(model, settings.training_config.batch_size, model.max_sequence_length)
    return plan

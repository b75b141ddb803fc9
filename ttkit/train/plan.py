"""The cost of a training run before it starts: memory of a chip, bytes between chips, modelled
times. Nothing is opened or allocated.

The plan computes the cost of one configuration in the same way as `ttkit.layouts` does for all
layouts of a machine: the model's own code runs on tensors without values. The modelled times assume
that communication does not overlap with compute."""

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
    """The cost of a training run, which prints as tables. `training_plan` makes one.

    Args:
        settings: the configuration of the run.
        system: the machine.
    """

    settings: Settings
    system: System

    @property
    def parameters(self) -> int:
        """The number of weights of the model."""
        from ttkit.layouts.costs import parameters_of

        return parameters_of(self.settings.transformer_config)  # type: ignore[no-any-return]

    @property
    def layout(self) -> Layout:
        """How the training step is sharded over the chips."""
        return Layout.of(self.settings)

    @functools.cached_property
    def cost(self):
        """Memory, traffic and times, as a `ttkit.layouts.search.Candidate`. The stages of a
        pipeline are placed on as many hosts as they need.
        """
        from ttkit.layouts.dry_run import Job
        from ttkit.layouts.places import Machine, Place, room_for
        from ttkit.layouts.search import evaluate

        training = self.settings.training_config
        model = self.settings.transformer_config
        layout = replace(self.layout, axes=None)
        shape: Any = self.settings.device_config.mesh_shape
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
        # With this headroom, a run that does not fit in memory gets a cost, too.
        return evaluate(job, layout, place, Machine(self.system, headroom=-math.inf))

    @property
    def memory(self) -> dict[str, int]:
        """The peak memory of a chip in bytes: weights, gradients, optimizer, activations, buffers.
        In a pipeline, the chip is one of the stage that needs the most memory.
        """
        return self.cost.memory._asdict()  # type: ignore[no-any-return]

    @property
    def fits(self) -> bool:
        """Whether the peak memory fits in the DRAM of a chip."""
        return sum(self.memory.values()) <= self.system.chip.dram_bytes

    @property
    def traffic(self) -> list:
        """The collectives of a step, a `ttkit.layouts.costs.Traffic` for each kind. In a pipeline
        they are those of the slowest stage.
        """
        return self.cost.traffic  # type: ignore[no-any-return]

    @property
    def times_s(self) -> dict[str, float]:
        """Modelled seconds of the parts of a step: all operations of forward and backward
        ("compute"), each kind of communication, the bubble of a pipeline, and the optimizer, which
        reads and writes memory.
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
        """Modelled seconds of a step, whose parts run one after the other."""
        return self.cost.times.total  # type: ignore[no-any-return]

    @property
    def tokens_per_s(self) -> float:
        """Modelled tokens per second, of all replicas together."""
        return self.cost.tokens_per_s  # type: ignore[no-any-return]

    def notes(self) -> Iterator[str]:
        """Yield sentences that a user should know before the run starts."""
        shape = self.settings.device_config.mesh_shape
        axes = [f"{name.upper()} along axis {axis}" for name, axis in self.layout.axes or ()]
        mesh = f"on a {'x'.join(map(str, shape))} mesh of {self.system.name}"
        yield f"{self.parameters:,} parameters {mesh}: {', '.join(axes) or 'replicated'}"
        if turned := transposed_warning(self.system.shape, shape):
            yield f"{turned}; mesh_shape {list(shape[::-1])} follows the cables"
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
        settings: the settings of the run, as `ttkit.train.read_settings` returns them.
        system: the name of a machine, or a `System`; by default the machine in use.

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
    machine = current_system() if system is None else system_named(system)
    topology(machine, settings.device_config.mesh_shape)  # type: ignore[arg-type]
    plan = TrainingPlan(settings, machine)
    model = settings.transformer_config
    sizes = settings.training_config.batch_size, model.max_sequence_length
    shape = settings.device_config.mesh_shape
    plan.layout.check(model, *sizes, plan.layout.dp // plan.layout.along(shape).dp)
    return plan

"""What a training run takes, before it starts: memory of a chip, bytes between chips, modelled
times. Nothing is opened or allocated.

It is the layout of one configuration, read off as `ttkit.layouts` reads off all of a machine's: by
the model's own code, on tensors without values. A step's parts do not overlap."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ttkit.errors import fail
from ttkit.hardware import System, current_system
from ttkit.hardware.device_order import opens_transposed
from ttkit.hardware.systems import system_named
from ttkit.plans import Topology, topology
from ttkit.train.config import Settings, TransformerConfig
from ttkit.train.layout import Layout
from ttkit.train.memory import DTYPES, tiled
from ttkit.train.models import Transformer, create_model
from ttkit.train.parallel import check_divisible


class Part(NamedTuple):
    """Parameters of one part of the model: of all chips together, and on each of them."""

    name: str
    parameters: int
    on_a_chip: int
    bytes_on_a_chip: int


@dataclass(frozen=True)
class TrainingPlan:
    """The cost of a training run; prints as tables. Made by `training_plan`.

    Args:
        settings: the run.
        system: the machine.
        axes: {"ddp": mesh axis, "tp": mesh axis} of the strategies that are on.
        model: without values.
    """

    settings: Settings
    system: System
    axes: dict[str, int]
    model: Transformer

    # ------------------------------------------------------------ sizes
    @property
    def dtype(self) -> str:
        """Of weights, gradients and activations: `precision`."""
        return self.settings.training_config.precision

    @property
    def config(self) -> TransformerConfig:
        """The model's sizes."""
        return self.settings.transformer_config

    @property
    def ddp(self) -> int:
        """Groups that share the batch."""
        return self.model.layout.ddp_size

    @property
    def tp(self) -> int:
        """Chips that share each layer."""
        return self.model.layout.tp_size

    @functools.cached_property
    def topology(self) -> Topology:
        """The chips of the mesh and their cables."""
        shape: Any = self.settings.device_config.mesh_shape
        return topology(self.system, shape)

    @property
    def passes(self) -> int:
        """How often a step goes forward and backward: once for each micro-batch."""
        return self.settings.training_config.gradient_accumulation_steps

    @property
    def tokens(self) -> int:
        """Tokens of one pass on each chip."""
        batch = self.settings.training_config.batch_size // (self.ddp * self.passes)
        return batch * self.config.max_sequence_length

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
            nbytes = tiled(local) * DTYPES[self.dtype]
            numbers = math.prod(parameter.global_shape), math.prod(local), nbytes
            found[key] = [a + b for a, b in zip(found.get(key, [0, 0, 0]), numbers)]
        return [Part(key, *numbers) for key, numbers in found.items()]

    @property
    def parameters(self) -> int:
        """How many numbers the model learns."""
        return sum(part.parameters for part in self.parts)

    # ------------------------------------------------------------ a step
    @property
    def layout(self) -> Layout:
        """How the step is cut."""
        return Layout.of(self.settings)

    @property
    def _step(self) -> tuple[Any, Layout, Any]:
        from ttkit.layouts.step import Job, Stage

        training, mb = self.settings.training_config, self.settings.layout.bucket_mb
        job = Job(self.config, training.batch_size, self.config.max_sequence_length, training, mb)
        return job, self.layout, Stage(blocks=self.config.num_blocks)

    @functools.cached_property
    def memory(self) -> dict[str, int]:
        """Bytes on each chip when it holds most: weights, gradients, optimizer, activations,
        buffers.
        """
        from ttkit.layouts.memory import memory_of

        return memory_of(*self._step)._asdict()

    @property
    def fits(self) -> bool:
        """Whether a chip's DRAM holds all that."""
        return sum(self.memory.values()) <= self.system.chip.dram_bytes

    @property
    def flops(self) -> int:
        """Floating-point operations of the products of a step on each chip."""
        from ttkit.layouts.times import flops

        return flops(*self._step)

    @functools.cached_property
    def traffic(self) -> list[Any]:
        """The collectives of a step: `ttkit.layouts.traffic.Traffic`."""
        from ttkit.layouts.traffic import traffic

        axes = {"dp" if name == "ddp" else name: axis for name, axis in self.axes.items()}
        return traffic(*self._step, self.topology, axes)

    @functools.cached_property
    def times_s(self) -> dict[str, float]:
        """Modelled seconds of a step: products, each kind of communication, and the optimizer,
        which reads and writes memory.
        """
        from ttkit.layouts.memory import Memory
        from ttkit.layouts.times import optimizer_s, products_s

        chip = self.system.chip
        found = {"products": self.passes * sum(products_s(*self._step, chip))}
        for traffic in self.traffic:
            found[traffic.what] = found.get(traffic.what, 0.0) + traffic.time_s
        return found | {"optimizer": optimizer_s(Memory(**self.memory), chip)}

    @property
    def step_time_s(self) -> float:
        """Modelled seconds of a step, its pieces one after the other."""
        return sum(self.times_s.values())

    @property
    def tokens_per_s(self) -> float:
        """Modelled tokens of all groups in a second."""
        training = self.settings.training_config
        return training.batch_size * self.config.max_sequence_length / self.step_time_s

    # ------------------------------------------------------------ showing
    def notes(self) -> Iterator[str]:
        """Yield what to know before the run is started."""
        shape = tuple(self.settings.device_config.mesh_shape)
        turned = opens_transposed(self.system.shape, shape)
        if turned and 1 not in shape:
            yield f"{turned}; mesh_shape {list(shape[::-1])} is as the cables are"
        if not self.fits:
            dram = f"{self.system.chip.dram_bytes / 1e9:.2f} GB"
            yield f"it does not fit: {self._size()} of {dram} on each chip"
            for what, other in self._smaller():
                fits = "fits" if other.fits else "does not fit either"
                yield f"with {what} it would take {other._size()}, which {fits}"

    def _size(self) -> str:
        return f"{sum(self.memory.values()) / 1e9:.2f} GB"

    def _smaller(self) -> Iterator[tuple[str, TrainingPlan]]:
        """Yield the same run with less memory, first with what changes its results least."""
        narrow = {"precision": "bfloat16"}
        steps: list[tuple[str, dict[str, Any]]] = [
            ("runner_type: memory_efficient", {}),
            ("precision: bfloat16", narrow),
            (
                "optimizer: {type: AdamW, master_weights: false}",
                narrow | {"optimizer": {"type": "AdamW", "master_weights": False}},
            ),
        ]
        for stage in range(self.layout.zero + 1, 4) if self.ddp > 1 else ():
            shared = replace(self.settings.layout, zero=stage)  # type: ignore[arg-type]
            settings = replace(self.settings, layout=shared)
            yield f"layout: {{zero: {stage}}}", replace(self, settings=settings)
        before = self
        lean = replace(self.config, runner_type="memory_efficient")
        for what, changes in steps:
            training = replace(self.settings.training_config, **changes)
            settings = replace(self.settings, training_config=training, transformer_config=lean)
            if settings != before.settings:
                label = what if before is self else f"that and {what}"
                before = replace(self, settings=settings)
                yield label, before

    def reports(self) -> list[Any]:
        """Return the tables: parameters, memory, communication, times."""
        from ttkit.visualize.training import tables

        return tables(self)

    def __repr__(self) -> str:
        tables = [repr(report) for report in self.reports()]
        return "\n\n".join([*tables, *(f"note: {note}" for note in self.notes())])

    def _repr_html_(self) -> str:
        from html import escape

        tables = "".join(report._repr_html_() for report in self.reports())
        return tables + "".join(f"<p>note: {escape(note)}</p>" for note in self.notes())


def training_plan(settings: Settings, system: System | str | None = None) -> TrainingPlan:
    """Return the cost of a training run on a machine.

    Args:
        settings: from `ttkit.train.read_settings`.
        system: a name or a `System`; the machine in use unless given.

    Raises:
        TTKitError: the mesh does not fit the machine, the strategies or sizes do not fit the mesh,
            or a pipeline.

    Example:
        >>> from ttkit.train import read_settings
        >>> settings = read_settings("configs/training/training_llama8b_tp_ddp_galaxy.yaml")
        >>> plan = training_plan(settings, "galaxy")
        >>> plan.parameters, plan.axes, plan.ddp, plan.tp
        (8030261248, {'ddp': 0, 'tp': 1}, 4, 8)
    """
    machine = system_named(system) if isinstance(system, str) else system or current_system()
    device, axes = settings.device_config, settings.device_config.axes()
    if device.enable_pp:
        rule = "a plan is of one mesh, and the stages of a pipeline have one each"
        cure = "enable_pp: false to plan the model on one mesh"
        fail("plan a run with enable_pp", rule, cure)
    topology(machine, tuple(device.mesh_shape))  # type: ignore[arg-type]  # or refuse the mesh
    config, layout = settings.training_config, settings.mesh_layout()
    parts = layout.ddp_size * config.gradient_accumulation_steps
    by = "the DDP size times gradient_accumulation_steps"
    check_divisible("batch_size", config.batch_size, by, parts)
    return TrainingPlan(settings, machine, axes, create_model(settings.transformer_config, layout))

"""The cost of a training run: memory of a chip, bytes between chips, modelled times. Nothing is
opened or allocated.

The model is constructed without values, and each of its parameters knows how it is sharded. The
products and the collectives of a step follow. Bytes and times of collectives are those of plans
(`ttkit.plans`), times of products those of the roofline; steps do not overlap. Elementwise
operations, norms, and a card's losses against its peak are left out."""

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
from ttkit.plans import Plan, Topology, all_gather, all_reduce, cost, topology
from ttkit.roofline import default_fidelity, roofline
from ttkit.train.config import Settings, TransformerConfig
from ttkit.train.memory import DTYPES, activation_elements, state_bytes, tiled
from ttkit.train.models import Transformer, create_model
from ttkit.train.parallel import check_divisible


class Product(NamedTuple):
    """Matrix products of one shape on each chip: `times` a step, [rows, inner] times [inner,
    columns], `batch` at once.
    """

    rows: int
    inner: int
    columns: int
    times: int
    batch: int = 1

    @property
    def flops(self) -> int:
        """Of one product."""
        return 2 * self.batch * self.rows * self.inner * self.columns

    @property
    def elements(self) -> int:
        """Read and written by one product."""
        rows, inner, columns = self.rows, self.inner, self.columns
        return self.batch * (rows * inner + inner * columns + rows * columns)


class Traffic(NamedTuple):
    """One kind of collective of a step: its purpose, its count, and its plan."""

    what: str
    times: int
    plan: Plan

    @property
    def bytes_sent(self) -> int:
        """By the chip that sends most, in a step."""
        return self.times * max(self.plan.bytes_sent.values())

    @property
    def time_s(self) -> float:
        """Modelled, in a step."""
        return self.times * cost(self.plan).time_s


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

    # ------------------------------------------------------------ memory
    @functools.cached_property
    def memory(self) -> dict[str, int]:
        """Bytes on each chip: weights, gradients, optimizer, activations (an estimate)."""
        state = state_bytes(self.model.parameters().values(), self.settings.training_config)
        padded = self.model.vocabulary.padded
        elements = activation_elements(self.config, self.tokens, self.tp, padded)
        return state | {"activations": elements * DTYPES[self.dtype]}

    @property
    def fits(self) -> bool:
        """Whether a chip's DRAM holds all that."""
        return sum(self.memory.values()) <= self.system.chip.dram_bytes

    # ------------------------------------------------------------ work
    @functools.cached_property
    def products(self) -> list[Product]:
        """The matrix products of a step on each chip.

        Each weight has one forward, each head two, of queries, keys and values; each of them has
        two backward, and blocks one more forward with runner_type memory_efficient. The token table
        has one forward and one backward: tokens need no gradient."""
        found, config = [], self.config
        again = config.runner_type == "memory_efficient"
        tied = self.model.vocabulary.tied  # the table is the head's weight too
        for name, parameter in self.model.parameters().items():
            if parameter.global_shape[2] == 1 or name == "position":
                continue
            times = 3 + (again and name.startswith("blocks."))
            if name == "vocabulary.table":
                times = 5 if tied else 2
            _, _, out, into = parameter.local_shape
            found.append(Product(self.tokens, into, out, self.passes * times))
        length, head = config.max_sequence_length, config.embedding_dim // config.num_heads
        batch = self.tokens // length * config.num_heads // self.tp
        each = self.passes * config.num_blocks * (3 + again)
        return [
            *found,
            Product(length, head, length, each, batch),
            Product(length, length, head, each, batch),
        ]

    @property
    def flops(self) -> int:
        """Floating-point operations of the products of a step on each chip."""
        return sum(product.times * product.flops for product in self.products)

    @functools.cached_property
    def traffic(self) -> list[Traffic]:
        """The collectives of a step.

        Tensor parallel, in each pass: forward one all-reduce of [B, 1, S, E] behind the token table
        and behind each product that is sharded by rows, and in the loss a gather and two sums of
        one number a token; backward one all-reduce before the head and before each of a block's two
        groups of products that are sharded by columns. Data parallel: one all-reduce of each
        gradient, once a step."""
        size, passes, found = DTYPES[self.dtype], self.passes, []
        again = self.config.runner_type == "memory_efficient"
        parameters = self.model.parameters().values()
        if self.tp > 1:
            axis, length = self.axes["tp"], self.config.max_sequence_length
            batch, width = self.tokens // length, self.config.embedding_dim
            rows = sum(p.shard_dim == 3 and p.global_shape[2] > 1 for p in parameters)
            hidden = all_reduce(self.topology, tiled((batch, 1, length, width)) * size, axis)
            number = tiled((batch, 1, length, 1)) * size
            highest = all_gather(self.topology, number, axis)
            sums = all_reduce(self.topology, number, axis)
            found += [
                Traffic("TP forward", passes * (rows * (1 + again) + 1), hidden),
                Traffic("TP backward", passes * (rows + 1), hidden),
                Traffic("TP loss: highest logits", passes, highest),
                Traffic("TP loss: sums", 2 * passes, sums),
            ]
        if self.ddp > 1:
            sizes = [tiled(p.local_shape) * size for p in parameters]
            for nbytes in sorted(set(sizes), reverse=True):
                plan = all_reduce(self.topology, nbytes, self.axes["ddp"])
                found.append(Traffic("DDP gradients", sizes.count(nbytes), plan))
        return found

    # ------------------------------------------------------------ time
    @functools.cached_property
    def times_s(self) -> dict[str, float]:
        """Modelled seconds of a step: products, each kind of communication, and the optimizer,
        which reads and writes memory.
        """
        chip, size = self.system.chip, DTYPES[self.dtype]
        fidelity = default_fidelity(chip, [self.dtype.upper()] * 2)
        found = {"products": 0.0}
        for product in self.products:
            once = roofline(chip, product.flops, product.elements * size, fidelity)
            found["products"] += product.times * once.time_s
        for traffic in self.traffic:
            kind = traffic.what.split(":")[0]
            found[kind] = found.get(kind, 0.0) + traffic.time_s
        # read and written; gradients read
        moved = 2 * (self.memory["weights"] + self.memory["optimizer"]) + self.memory["gradients"]
        return found | {"optimizer": roofline(chip, 0, moved, fidelity).time_s}

    @property
    def step_time_s(self) -> float:
        """Modelled seconds of a step, its pieces one after the other."""
        return sum(self.times_s.values())

    @property
    def tokens_per_s(self) -> float:
        """Modelled tokens of all groups in a second."""
        return self.tokens * self.passes * self.ddp / self.step_time_s

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

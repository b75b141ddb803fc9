"""What a training run would take: memory of a chip, bytes between chips, modelled times; nothing
is opened or allocated.

The model is constructed without values, and each of its parameters says how it is cut. From that
follow the products and the collectives of a step. Bytes and times of collectives are those of plans
(`ttkit.plans`), times of products those of the roofline; steps do not overlap. Left out:
elementwise operations and norms, and what a card loses against its peak."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ttkit.errors import fail
from ttkit.hardware import System, current_system
from ttkit.hardware.device_order import opens_transposed
from ttkit.hardware.systems import system_named
from ttkit.plans import Plan, Topology, all_gather, all_reduce, cost, topology
from ttkit.roofline import default_fidelity, roofline
from ttkit.train.axes import check_divisible
from ttkit.train.config import Settings, TrainingConfig, TransformerConfig
from ttkit.train.models import Transformer, create_model, llama_width
from ttkit.train.modules import Layout, Parameter

TILE = 32
DTYPES = {"bfloat16": 2, "float32": 4}  # bytes of an element
MASTER_BYTES = 4  # of a float32 copy of a weight
# Tensors of a parameter's size that an optimizer remembers.
REMEMBERED = {"AdamW": 2, "SGD": 1}


class Product(NamedTuple):
    """Matrix products of one shape:

    `times` a step on each chip, [rows, inner] times [inner, columns], `batch` of them at once.
    """

    rows: int
    inner: int
    columns: int
    times: int
    batch: int = 1

    @property
    def flops(self) -> int:
        """Of one of them."""
        return 2 * self.batch * self.rows * self.inner * self.columns

    @property
    def elements(self) -> int:
        """Read and written by one of them."""
        return self.batch * (
            self.rows * self.inner + self.inner * self.columns + self.rows * self.columns
        )


class Traffic(NamedTuple):
    """One kind of collective of a step: what for, how often, and its plan."""

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


def tiled(shape: Sequence[int]) -> int:
    """Elements of a tensor in whole tiles: its last two dimensions are filled up to multiples of
    32.

    Example:
        >>> tiled((1, 1, 1, 384)), tiled((1, 1, 384, 96))
        (12288, 36864)
    """
    *front, rows, columns = shape
    return math.prod(front) * -(-rows // TILE) * TILE * -(-columns // TILE) * TILE


def local_shape(parameter: Parameter) -> tuple[int, ...]:
    """A parameter's shape on a chip, the rows that fill a vocabulary up included."""
    shape = list(parameter.global_shape)
    shape[2] = parameter.placed_rows
    if parameter.shard_dim is not None:
        shape[parameter.shard_dim] //= parameter.layout.tp_size
    return tuple(shape)


def state_bytes(parameters: Iterable[Parameter], training: TrainingConfig) -> dict[str, int]:
    """Bytes of weights, of gradients and of what the optimizer remembers on each chip."""
    numbers, size = sum(tiled(local_shape(p)) for p in parameters), DTYPES[training.precision]
    asked = training.optimizer or {}
    kind = asked.get("type", "AdamW")
    master = kind == "AdamW" and size < MASTER_BYTES and bool(asked.get("master_weights", True))
    remembered = 0 if kind == "SGD" and not asked.get("momentum") else REMEMBERED[kind]
    optimizer = numbers * (remembered * (MASTER_BYTES if master else size) + MASTER_BYTES * master)
    return {"weights": numbers * size, "gradients": numbers * size, "optimizer": optimizer}


@dataclass(frozen=True)
class TrainingPlan:
    """What a training run would take; prints as tables. Made by `training_plan`.

    Args:
        settings: the run.
        system: the machine.
        axes: {"ddp": mesh axis, "tp": mesh axis} of the strategies that are on.
        model: constructed, without values.
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
        return topology(self.system, tuple(self.settings.device_config.mesh_shape))  # type: ignore[arg-type]

    @property
    def chips(self) -> int:
        """How many chips the mesh has."""
        return len(self.topology.chips)

    @property
    def passes(self) -> int:
        """How often a step goes forward and backward: once for each part of the batch, whose
        gradients it accumulates.
        """
        return self.settings.training_config.gradient_accumulation_steps

    @property
    def tokens(self) -> int:
        """Tokens of one pass on each chip."""
        return (
            self.settings.training_config.batch_size
            // (self.ddp * self.passes)
            * self.config.max_sequence_length
        )

    @functools.cached_property
    def parts(self) -> list[Part]:
        """The parameters by part of the model, blocks together, in the order of the model."""
        found: dict[str, list[int]] = {}
        for name, parameter in self.model.parameters().items():
            words = name.split(".")
            key = (
                f"blocks, {words[2]}"
                if words[0] == "blocks"
                else " ".join(words[:2])
                if words[0] == "vocabulary"
                else words[0]
            )
            local = local_shape(parameter)
            numbers = (
                math.prod(parameter.global_shape),
                math.prod(local),
                tiled(local) * DTYPES[self.dtype],
            )
            found[key] = [a + b for a, b in zip(found.get(key, [0, 0, 0]), numbers)]
        return [Part(key, *numbers) for key, numbers in found.items()]

    @property
    def parameters(self) -> int:
        """How many numbers the model learns."""
        return sum(part.parameters for part in self.parts)

    # ------------------------------------------------------------ memory
    @functools.cached_property
    def memory(self) -> dict[str, int]:
        """Bytes on each chip: weights, gradients, optimizer, activations (an estimate: see
        `activation_elements`).
        """
        state = state_bytes(self.model.parameters().values(), self.settings.training_config)
        return state | {"activations": self.activation_elements() * DTYPES[self.dtype]}

    def activation_elements(self) -> int:
        """Values that a chip keeps from forward to backward, counted as in Korthikanti 2022,
        section 4, without dropout's masks.

        A block keeps for each token: the inputs of two norms and of the two groups of products
        behind them, 4 E; and cut over the tensor-parallel chips: queries and attention's result, 2
        E; keys and values, 2 G; a probability for each token that each head may look at, heads x S;
        and the MLP's inner width twice (GPT: into and out of GELU) or four times (SwiGLU). With
        runner_type memory_efficient a block keeps only its input, and one block at a time is
        computed again. The ends keep the last norm's input and result, and the logits twice
        (probabilities, and what the loss compares them with)."""
        config, tp = self.config, self.tp
        width, llama = config.embedding_dim, config.model_type == "llama"
        keys = width // config.num_heads * (config.num_groups if llama else config.num_heads)
        inner = (
            4 * (config.intermediate_dim or llama_width(width))
            if llama
            else 2 * (config.intermediate_dim or 4 * width)
        )
        block = (
            4 * width
            + (2 * width + 2 * keys + config.num_heads * config.max_sequence_length + inner) // tp
        )
        blocks = (
            config.num_blocks * width + block
            if config.runner_type == "memory_efficient"
            else config.num_blocks * block
        )
        return self.tokens * (blocks + 2 * width + 2 * self.model.vocabulary.padded // tp)

    @property
    def fits(self) -> bool:
        """Whether a chip's DRAM holds all that."""
        return sum(self.memory.values()) <= self.system.chip.dram_bytes

    # ------------------------------------------------------------ work
    @functools.cached_property
    def products(self) -> list[Product]:
        """The matrix products of a step on each chip.

        Forward one for each weight, and two of every head's queries, keys and values; backward two
        for each of them; blocks forward once more with runner_type memory_efficient. The token
        table has one forward and one backward: tokens need no gradient."""
        found, config = [], self.config
        again = config.runner_type == "memory_efficient"
        for name, parameter in self.model.parameters().items():
            _, _, out, into = local_shape(parameter)
            if parameter.global_shape[2] > 1 and name != "position":
                # tied: it is the head's weight too
                ends = {"vocabulary.table": 5 if self.model.vocabulary.tied else 2}
                found.append(
                    Product(
                        self.tokens,
                        into,
                        out,
                        self.passes * ends.get(name, 3 + (again and name.startswith("blocks."))),
                    )
                )
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

        Tensor parallel, for each pass: forward one all-reduce of [B, 1, S, E] behind the token
        table and behind each product that is cut by rows, and a gather and two sums of one number a
        token in the loss; backward one all-reduce in front of each group of products that is cut by
        columns, of which a block has two, and in front of the head. Data parallel: one all-reduce
        of each gradient, once a step."""
        size, found = DTYPES[self.dtype], []
        batch, length, width = (
            self.tokens // self.config.max_sequence_length,
            self.config.max_sequence_length,
            self.config.embedding_dim,
        )
        again = self.config.runner_type == "memory_efficient"
        if self.tp > 1:
            axis, hidden, number = (
                self.axes["tp"],
                tiled((batch, 1, length, width)) * size,
                tiled((batch, 1, length, 1)) * size,
            )
            rows = [
                name
                for name, p in self.model.parameters().items()
                if p.shard_dim == 3 and p.global_shape[2] > 1
            ]
            whole = all_reduce(self.topology, hidden, axis)
            found += [
                Traffic("TP forward", self.passes * (len(rows) * (1 + again) + 1), whole),
                Traffic("TP backward", self.passes * (len(rows) + 1), whole),
                Traffic(
                    "TP loss: highest logits", self.passes, all_gather(self.topology, number, axis)
                ),
                Traffic("TP loss: sums", 2 * self.passes, all_reduce(self.topology, number, axis)),
            ]
        if self.ddp > 1:
            sizes = [tiled(local_shape(p)) * size for p in self.model.parameters().values()]
            for nbytes in sorted(set(sizes), reverse=True):
                found.append(
                    Traffic(
                        "DDP gradients",
                        sizes.count(nbytes),
                        all_reduce(self.topology, nbytes, self.axes["ddp"]),
                    )
                )
        return found

    # ------------------------------------------------------------ time
    @functools.cached_property
    def times_s(self) -> dict[str, float]:
        """Modelled seconds of a step: products, each kind of communication, and the optimizer,
        which reads and writes memory.
        """
        chip, size = self.system.chip, DTYPES[self.dtype]
        fidelity = default_fidelity(chip, [self.dtype.upper()] * 2)
        found = {
            "products": sum(
                p.times * roofline(chip, p.flops, p.elements * size, fidelity).time_s
                for p in self.products
            )
        }
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
        """What to know before the run is started."""
        shape = tuple(self.settings.device_config.mesh_shape)
        turned = opens_transposed(self.system.shape, shape)
        if turned and 1 not in shape:
            yield f"{turned}; mesh_shape {list(shape[::-1])} is as the cables are"
        if not self.fits:
            yield (
                f"it does not fit: {self._size()} of {self.system.chip.dram_bytes / 1e9:.2f} GB "
                "on each chip"
            )
            for what, other in self._smaller():
                yield (
                    f"with {what} it would take {other._size()}, which "
                    f"{'fits' if other.fits else 'does not fit either'}"
                )

    def _size(self) -> str:
        return f"{sum(self.memory.values()) / 1e9:.2f} GB"

    def _smaller(self) -> Iterator[tuple[str, TrainingPlan]]:
        """The same run with less memory, first with what changes its results least."""
        training = self.settings.training_config
        lean = replace(self.config, runner_type="memory_efficient")
        if self.config != lean:
            yield (
                "runner_type: memory_efficient",
                replace(self, settings=replace(self.settings, transformer_config=lean)),
            )
        for what, changes in (
            (
                "that and precision: bfloat16" if self.config != lean else "precision: bfloat16",
                {"precision": "bfloat16"},
            ),
            (
                "that and optimizer: {type: AdamW, master_weights: false}",
                {"precision": "bfloat16", "optimizer": {"type": "AdamW", "master_weights": False}},
            ),
        ):
            smaller = replace(training, **changes)  # type: ignore[arg-type]
            if smaller != training:
                yield (
                    what,
                    replace(
                        self,
                        settings=replace(
                            self.settings, training_config=smaller, transformer_config=lean
                        ),
                    ),
                )

    def reports(self) -> list[Any]:
        """The tables: parameters, memory, communication, times."""
        from ttkit.visualize.training import tables

        return tables(self)

    def __repr__(self) -> str:
        return "\n\n".join(
            [*map(repr, self.reports()), *(f"note: {note}" for note in self.notes())]
        )

    def _repr_html_(self) -> str:
        from html import escape

        return "".join(report._repr_html_() for report in self.reports()) + "".join(
            f"<p>note: {escape(note)}</p>" for note in self.notes()
        )


def training_plan(settings: Settings, system: System | str | None = None) -> TrainingPlan:
    """What a training run would take on a machine.

    Args:
        settings: from `ttkit.train.read_settings`.
        system: a name or a `System`; the machine in use unless given.

    Raises:
        TTKitError: the mesh does not fit on the machine, the strategies or sizes do not fit on the
        mesh, a pipeline.

    Example:
        >>> from ttkit.train import read_settings
        >>> plan = training_plan(read_settings("configs/training/training_llama8b_tp_ddp_galaxy.yaml"), "galaxy")
        >>> plan.parameters, plan.axes, plan.ddp, plan.tp
        (8030261248, {'ddp': 0, 'tp': 1}, 4, 8)
    """
    machine = system_named(system) if isinstance(system, str) else system or current_system()
    device = settings.device_config
    if device.enable_pp:
        fail(
            "plan a run with enable_pp",
            "a plan is of one mesh, and the stages of a pipeline have one each",
            "enable_pp: false to plan the model on one mesh",
        )
    topology(machine, tuple(device.mesh_shape))  # type: ignore[arg-type]  # refuses a mesh that the machine has not
    axes, training = device.axes(), settings.training_config
    check_divisible(
        "batch_size",
        training.batch_size,
        "the DDP size times gradient_accumulation_steps",
        device.size("ddp") * training.gradient_accumulation_steps,
    )
    layout = Layout(
        tp_axis=axes.get("tp"),
        tp_size=device.size("tp"),
        ddp_axis=axes.get("ddp"),
        ddp_size=device.size("ddp"),
    )
    return TrainingPlan(settings, machine, axes, create_model(settings.transformer_config, layout))

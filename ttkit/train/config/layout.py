"""The description of how a model and its batch are divided over chips. The trainer,
`ttkit train --plan` and `ttkit.plan_layouts` all take it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

# `backend` loads ttnn on first use, because a check of configuration files does not need ttnn.
from ttkit import backend
from ttkit.backend import Array, constant, from_numpy
from ttkit.errors import fail
from ttkit.train.config.settings import (
    STRATEGIES,
    Axes,
    Settings,
    TransformerConfig,
    enabled_strategies,
    parallel_axes,
    split_blocks,
)

TILE = 32
Axis = int | None  # This is a mesh axis. Each function says what None means for it.
SHARED_ALONG = {
    # Without ZeRO, the chips along the axes of DDP and CP hold equal values. ZeRO shards these.
    "zero": ("enable_ddp", "enable_cp"),
    "expert_parallel": ("enable_ddp",),
    "sequence_parallel": ("enable_tp",),
}


def check_divisible(what: str, size: int, by: str, parts: int) -> None:
    """Raise unless `parts` divides `size`.

    Args:
        what, by: the names of `size` and `parts` for the message.

    Raises:
        TTKitError: `parts` does not divide `size`; the message has the equation and the nearest
            sizes that are divisible.

    Example:
        >>> check_divisible("batch_size", 8, "the DDP size", 4)
        >>> check_divisible("batch_size", 6, "the DDP size", 4)
        Traceback (most recent call last):
        ttkit.errors.TTKitError: cut batch_size into 4: batch_size 6 is not divisible by the DDP ...
          try: batch_size 4 or 8
    """
    if size % parts:
        near = [n for n in (size // parts * parts, (size // parts + 1) * parts) if n]
        fail(
            f"cut {what} into {parts}",
            f"{what} {size} is not divisible by {by} {parts}: {size} % {parts} = {size % parts}",
            f"{what} {' or '.join(map(str, near))}",
        )


def in_tiles(size: int, tile: int = TILE) -> int:
    """Return a number of rows or columns, rounded up to whole tiles.

    Example:
        >>> in_tiles(1), in_tiles(64), in_tiles(65)
        (32, 64, 96)
    """
    return -(-size // tile) * tile


def tiled(shape: Sequence[int]) -> int:
    """Return how many elements a tensor has when its last two dimensions fill whole tiles of 32.

    Example:
        >>> tiled((1, 1, 1, 384)), tiled((1, 1, 384, 96))
        (12288, 36864)
    """
    *front, rows, columns = shape
    return math.prod(front) * in_tiles(rows) * in_tiles(columns)


def zigzag(length: int, parts: int) -> Array:
    """Return `length` positions in the order of the `parts` chips that share them, chip 0 first.

    The sequence is cut into 2 x parts chunks. Chip i has chunk i from the front and chunk
    2 x parts - 1 - i from the end, so causal attention costs the same on every chip.

    Example:
        >>> zigzag(8, 2)
        array([0, 1, 6, 7, 2, 3, 4, 5])
    """
    chunks = np.arange(length).reshape(2 * parts, -1)
    return np.concatenate([chunks[[i, 2 * parts - 1 - i]].ravel() for i in range(parts)])


@dataclass(frozen=True)
class Layout:
    """How a training step is sharded over chips; `on` returns the layout on an open mesh.

    Args:
        dp: data parallel: the number of replicas that share a batch.
        tp: tensor parallel: the number of chips that share each layer.
        pp: pipeline parallel: the number of stages that share the blocks, each on its own mesh.
        cp: context parallel: the number of chips that share each sequence.
        ep: expert parallel: the number of data-parallel chips that share the experts; 1, or all
            those of a mesh.
        zero: the stage of ZeRO: with 1 the optimizer's state is sharded, with 2 the gradients, too,
            with 3 the weights, too. The shards lie on the chips along the data-parallel and the
            context-parallel axis, so there are dp x cp of them.
        sequence_parallel: between the tensor-parallel matmuls, the sequence is sharded over `tp`
            chips.
        recompute: a block keeps only its input, and backward computes the rest again.
        micro_batches: the number of equal micro-batches of a batch, which run one after the other.
        schedule: the schedule of the pipeline, a name in `ttkit.plans.pipelines.SCHEDULES`.
        chunks: the number of parts of the model on each stage; the interleaved schedule needs more
            than 1.
        blocks: the number of blocks of each stage; they are divided evenly unless given.
        precision: the type of weights, gradients and activations.
        hosts: the number of ranks that have replicas and share the optimizer's state; only the
            planner of layouts sets it.
        axes: the mesh axis of each of "dp", "cp" and "tp" that has one; None until a mesh is known.
        device: the open mesh, set by `on`.

    Example:
        >>> Layout(dp=4, tp=8, zero=1).chips, str(Layout(dp=4, tp=8, zero=1))
        (32, 'DP4 TP8 ZeRO-1')
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    sequence_parallel: bool = False
    recompute: bool = False
    micro_batches: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    blocks: tuple[int, ...] = ()
    precision: str = "float32"
    hosts: int = 1
    axes: Axes | None = field(default=None, repr=False)
    device: Any = field(default=None, repr=False)

    @property
    def chips(self) -> int:
        """The number of chips that the layout takes."""
        return self.dp * self.tp * self.pp * self.cp

    @classmethod
    def of(cls, settings: Settings) -> Layout:
        """Return the layout of a training configuration.

        Raises:
            TTKitError: the strategies do not fit the mesh, an option of `layout` needs a strategy
                that is off, a pipeline or context parallelism does not fit `multihost_config`, or
                the sequence cannot be cut over the context-parallel chips.

        Example:
            >>> from ttkit.train.config.settings import DeviceConfig
            >>> device = DeviceConfig((4, 8), enable_ddp=True, enable_tp=True)
            >>> str(Layout.of(Settings(device)))
            'DP4 TP8'
        """
        device, shared = settings.device_config, settings.layout
        multihost, on = settings.multihost_config, enabled_strategies(device)
        axes = parallel_axes(device.mesh_shape, on) if on else ()
        blocks, workers = tuple(multihost.blocks_per_stage), multihost.num_workers
        stages = len(blocks) if device.enable_pp else 0
        has_replicas = settings.distributed.enabled or 0 < stages < workers
        for key, strategies in SHARED_ALONG.items():
            asked = getattr(shared, key)
            alone = not any(getattr(device, strategy) for strategy in strategies)
            if asked and alone and not (key == "zero" and has_replicas):
                fail(
                    f"layout: {{{key}: {str(asked).lower()}}}",
                    f"only where {' or '.join(strategies)} is on are there chips to share with",
                    f"{strategies[0]}: true",
                )
        training, model = settings.training_config, settings.transformer_config
        found = cls(
            zero=shared.zero,
            sequence_parallel=shared.sequence_parallel,
            recompute=model.runner_type == "memory_efficient",
            micro_batches=training.gradient_accumulation_steps,
            precision=training.precision,
            axes=axes,
        ).along(device.mesh_shape)
        found = replace(found, ep=found.dp if shared.expert_parallel else 1)
        if device.enable_pp:
            if not multihost.enabled:
                fail(
                    "enable_pp",
                    "Multihost is not enabled, but each stage of a pipeline needs a rank",
                    "multihost_config: with enabled: true",
                )
            pp = stages or workers
            check_divisible("num_workers", workers, "the number of stages", pp)
            dp, plan = found.dp * (workers // pp), multihost.pipeline
            found = replace(
                found, dp=dp, pp=pp, schedule=plan.schedule, chunks=plan.chunks_per_rank
            )
            if blocks != found.stages_of(model):
                found = replace(found, blocks=blocks)
        elif settings.distributed.enabled:
            found = replace(found, dp=found.dp * max(settings.distributed.ranks, 1))
        elif found.cp > 1 and multihost.enabled:
            fail(
                "enable_cp with hierarchical training",
                "a worker sends a replica's gradient; chips that share a sequence have parts of it",
                "enable_ddp or enable_tp",
            )
        if found.cp > 1:
            chunks = 2 * found.cp
            by = f"{chunks} chunks of whole tiles of {TILE}:"
            check_divisible("max_sequence_length", model.max_sequence_length, by, chunks * TILE)
        return found

    def __str__(self) -> str:
        sizes = ((name.upper(), getattr(self, name)) for name in "dp tp pp cp ep".split())
        words = [f"{name}{size}" for name, size in sizes if size > 1]
        more = {
            f"ZeRO-{self.zero}": self.zero,
            "SP": self.sequence_parallel,
            "recompute": self.recompute,
            f"interleaved-{self.chunks}": self.chunks > 1,
            f"blocks-{'+'.join(map(str, self.blocks))}": self.blocks,
            f"{self.micro_batches} micro-batches": self.micro_batches > 1,
        }
        words += [word for word, on in more.items() if on]
        return " ".join(words) or "one chip"

    def stages_of(self, model: TransformerConfig) -> tuple[int, ...]:
        """Return the number of a model's blocks on each stage."""
        parts = split_blocks(model, self.pp, self.blocks, self.chunks)
        return tuple(sum(map(len, parts[i :: self.pp])) for i in range(self.pp))

    # ------------------------------------------------------------ on a mesh
    def along(self, shape: Sequence[int]) -> Layout:
        """Return the layout of one mesh of this shape: dp, cp and tp become the numbers of chips
        along its axes. Replicas on other meshes do not count.

        Example:
            >>> Layout(dp=16, tp=8).along((4, 8)).dp
            4
        """
        axes = self.axes
        if axes is None:
            on = [name for name in STRATEGIES if getattr(self, name) > 1]
            axes = parallel_axes(shape, on) if on else ()
        sizes = dict.fromkeys(STRATEGIES, 1) | {name: shape[axis] for name, axis in axes}
        ep = sizes["dp"] if self.ep > 1 else 1
        return replace(self, **sizes, ep=ep, axes=axes)  # type: ignore[arg-type]

    def on(self, mesh) -> Layout:
        """Return the layout on an open mesh, so that it can place tensors there.

        Example:
            >>> from ttkit import ttnn
            >>> with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
            ...     layout = Layout(dp=2, tp=4).on(mesh)
            >>> layout.dp_axis, layout.tp_axis, layout.cp_axis
            (0, 1, None)
        """
        return replace(self.along(mesh.shape), device=mesh)

    def _axis(self, name: str) -> Axis:
        return dict(self.axes or ()).get(name)

    @property
    def dp_axis(self) -> Axis:
        """The mesh axis along which replicas of the model share a batch."""
        return self._axis("dp")

    @property
    def tp_axis(self) -> Axis:
        """The mesh axis along which chips share each layer."""
        return self._axis("tp")

    @property
    def cp_axis(self) -> Axis:
        """The mesh axis along which chips share each sequence."""
        return self._axis("cp")

    @property
    def zero_shards(self) -> int:
        """The number of chips that ZeRO shards over: those along `replica_axes`."""
        return self.dp * self.cp

    @property
    def replica_axes(self) -> list[int]:
        """The mesh axes along which chips have the same weights and different tokens."""
        return [axis for axis in (self.dp_axis, self.cp_axis) if axis is not None]

    @property
    def dtype(self):
        """The type of weights and activations."""
        return getattr(backend.load(), self.precision)

    def mapper(
        self, tp_dim: int | None = None, dp_dim: int | None = None, cp_dim: int | None = None
    ):
        """Return the mapper that shards `tp_dim` of a tensor over the tensor-parallel axis,
        `dp_dim` over the data-parallel axis, and `cp_dim` over the context-parallel axis.
        """
        ttnn = backend.load()
        placements: list = [ttnn.PlacementReplicate() for _ in self.device.shape]
        dims = {"tp": tp_dim, "dp": dp_dim, "cp": cp_dim}
        for name, axis in self.axes or ():
            if (dim := dims[name]) is not None:
                placements[axis] = ttnn.PlacementShard(dim)
        return ttnn.create_mesh_mapper(self.device, ttnn.MeshMapperConfig(placements))

    def place(self, array: Array, *, dtype=None, layout=None, **dims: int | None):
        """Put an array [any shape] on the mesh, by default in tiles and of the type `self.dtype`.

        Args:
            dims: the dimensions that are sharded, as `mapper` names them. Positions along `cp_dim`
                are sharded in `zigzag` order.
        """
        ttnn = backend.load()
        cp_dim = dims.get("cp_dim")
        if cp_dim is not None and self.cp > 1:
            array = np.take(array, zigzag(array.shape[cp_dim], self.cp), axis=cp_dim)
        return from_numpy(
            array,
            dtype=dtype or self.dtype,
            layout=layout or ttnn.TILE_LAYOUT,
            device=self.device,
            mesh_mapper=self.mapper(**dims),
        )

    def tokens(self, ids: Array):
        """Put tokens [B, 1, 1, S] on the mesh: shard the batch over the data-parallel axis, and the
        sequence over the context-parallel axis.
        """
        check_divisible("batch_size", ids.shape[0], "the number of replicas", self.dp)
        ttnn = backend.load()
        return self.place(
            ids.astype(np.uint32),
            dtype=ttnn.uint32,
            dp_dim=0,
            cp_dim=3,
            layout=ttnn.ROW_MAJOR_LAYOUT,
        )

    def numbers(self, size: int, tp_dim: int | None = None):
        """Put the numbers from 0 to size - 1 on the mesh, [1, 1, 1, size].

        Their type is float32, which is exact up to 2^24.
        """
        row = functools.partial(np.arange, size, dtype=np.float32)
        return self.place(
            constant((size,), row, self.device)[None, None, None],
            dtype=backend.load().float32,
            tp_dim=tp_dim,
        )

    # ------------------------------------------------------------ rules
    def zero_dim(self, shape: Sequence[int]) -> int | None:
        """Return the dimension along which ZeRO shards a weight in whole tiles, or None if ZeRO
        does not shard it.

        Args:
            shape: the weight's shape on a chip, [1, 1, out, in].

        Example:
            >>> layout = Layout(dp=8, zero=1)
            >>> layout.zero_dim((1, 1, 256, 64)), layout.zero_dim((1, 1, 1, 512))
            (2, 3)
            >>> layout.zero_dim((1, 1, 1, 64))
        """
        if not self.zero or self.zero_shards == 1:
            return None
        step = TILE * self.zero_shards
        return next((dim for dim in (2, 3) if shape[dim] % step == 0), None)

    def split(self, n: int, what: str) -> int:
        """Return how many of n rows, columns or heads each tensor-parallel chip has.

        Raises:
            TTKitError: the TP size does not divide n.

        Example:
            >>> Layout(tp=8).split(384, "embedding_dim")
            48
        """
        if n % self.tp:
            fail(
                "tensor parallelism",
                f"{what} must be divisible by the number of devices. {what} = {n}, "
                f"devices = {self.tp}",
                f"{what} a multiple of {self.tp}, or another mesh shape",
            )
        return n // self.tp

    def why_not(self, model: TransformerConfig, batch: int, sequence: int, meshes: int = 1) -> str:
        """Return the first rule that the layout breaks, or "". The arguments are as in `check`."""
        tp, cp, tokens, dp = self.tp, self.cp, sequence // self.cp, self.dp // meshes
        experts = model.num_experts
        rows = self.dp * self.micro_batches
        keys = "num_heads embedding_dim intermediate_dim num_groups".split()
        keys = keys[: 4 if model.model_type == "llama" else 3]
        rules = [
            (size and size % tp, f"tp {tp} does not divide {key} {size}")
            for key, size in ((key, getattr(model, key)) for key in keys)
        ]
        rules += [
            (model.num_blocks < self.pp * self.chunks, f"pp {self.pp} stages of {self.chunks} "
             f"chunks for {model.num_blocks} blocks"),
            (self.chunks > 1 and self.micro_batches % max(1, self.micro_batches // self.pp),
             f"{self.micro_batches} micro-batches do not fill rounds of pp {self.pp}"),
            (batch % rows, f"dp {self.dp} x micro_batches {rows // self.dp} do not divide batch "
             f"{batch}"),
            (cp > 1 and sequence % (2 * cp * TILE), f"cp {cp} does not cut sequence {sequence} "
             f"into {2 * cp} parts of whole tiles of {TILE}"),
            (self.sequence_parallel and tp == 1, "sequence_parallel needs tp above 1"),
            (self.sequence_parallel and tokens % (tp * TILE), f"sequence_parallel: tp {tp} does "
             f"not cut {tokens} tokens into whole tiles of {TILE}"),
            (self.zero and self.zero_shards == 1, f"zero {self.zero} needs dp, cp or ranks over 1"),
            (self.ep not in (1, dp), f"ep {self.ep} is neither 1 nor dp {dp}"),
            (self.ep > 1 and not experts, f"ep {self.ep} for a model without experts"),
            (experts and experts % self.ep, f"ep {self.ep} does not divide {experts} experts"),
            (experts and cp > 1, f"cp {cp} with experts, whose capacity counts whole sequences"),
        ]  # fmt: skip
        return next((rule for broken, rule in rules if broken), "")

    def check(self, model: TransformerConfig, batch: int, sequence: int, meshes: int = 1) -> None:
        """Raise unless the layout cuts a model and a batch of sequences evenly.

        Args:
            batch: the number of sequences of all replicas, on this many `meshes`, together.
            sequence: the number of tokens of each sequence.

        Raises:
            TTKitError: the layout breaks a rule; the message has the rule and its numbers.

        Example:
            >>> Layout(tp=4).check(TransformerConfig(num_heads=6), 8, 128)
            Traceback (most recent call last):
            ttkit.errors.TTKitError: layout TP4: tp 4 does not divide num_heads 6
              try: ...
        """
        if rule := self.why_not(model, batch, sequence, meshes):
            fail(f"layout {self}", rule, "another size: ttkit.plan_layouts lists those that run")
        self.stages_of(model)

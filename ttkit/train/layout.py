"""One description of how a model and its batch are cut over chips: trainer, plan and planner take
it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ttkit.errors import fail
from ttkit.train.config import (
    DeviceConfig,
    MultihostConfig,
    PipelineParallelConfig,
    Settings,
    TransformerConfig,
    shared_by_tp,
)
from ttkit.train.parallel import TILE
from ttkit.train.stage import split_blocks

TIED = "both ends of a pipeline would train the token table of tied embeddings"


@dataclass(frozen=True)
class Layout:
    """How a training step is cut; it names no device.

    Args:
        dp: data parallel: replicas that share a batch.
        tp: tensor parallel: chips that share each layer.
        pp: pipeline parallel: stages that share the blocks, each on a mesh of its own.
        cp: context parallel: chips that share each sequence.
        ep: expert parallel: chips of the data-parallel axis that share the experts; 1 or `dp`.
        zero: what data parallel shards: 1 the optimizer's state, 2 gradients too, 3 weights too.
        sequence_parallel: between the blocks' products, `tp` chips share the sequence.
        recompute: a block keeps only its input, and backward computes the rest again.
        micro_batches: parts of a batch, one after the other.
        schedule: of the pipeline's stages; a name of `ttkit.plans.pipelines.SCHEDULES`.
        precision: of weights, gradients and activations.

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
    precision: str = "float32"

    @property
    def chips(self) -> int:
        """How many chips it takes."""
        return self.dp * self.tp * self.pp * self.cp

    @classmethod
    def of(cls, settings: Settings) -> Layout:
        """Return the layout of a training configuration.

        Example:
            >>> device = DeviceConfig((4, 8), enable_ddp=True, enable_tp=True)
            >>> str(Layout.of(Settings(device)))
            'DP4 TP8'
        """
        device, multihost = settings.device_config, settings.multihost_config
        sizes: dict[str, Any] = {
            {"ddp": "dp"}.get(name, name): device.mesh_shape[axis]
            for name, axis in device.axes().items()
        }
        if device.enable_pp:
            stages, workers = len(multihost.shares), multihost.num_workers
            sizes["pp"] = stages or workers
            sizes["dp"] = sizes.get("dp", 1) * (workers // sizes["pp"])
            pipeline = multihost.pipeline_parallel_config or PipelineParallelConfig()
            sizes["schedule"] = pipeline.schedule
        shared = settings.layout
        sizes |= {"zero": shared.zero, "sequence_parallel": shared.sequence_parallel}
        sizes["ep"] = sizes.get("dp", 1) if shared.expert_parallel else 1
        lean = settings.transformer_config.runner_type == "memory_efficient"
        training = settings.training_config
        return cls(
            **sizes,
            recompute=lean,
            micro_batches=training.gradient_accumulation_steps,
            precision=training.precision,
        )

    def __str__(self) -> str:
        sizes = {"DP": self.dp, "TP": self.tp, "PP": self.pp, "CP": self.cp, "EP": self.ep}
        words = [f"{name}{size}" for name, size in sizes.items() if size > 1]
        words += [f"ZeRO-{self.zero}"] * bool(self.zero) + ["SP"] * self.sequence_parallel
        words += ["recompute"] * self.recompute
        words += [f"{self.micro_batches} micro-batches"] * (self.micro_batches > 1)
        return " ".join(words) or "one chip"

    def why_not(self, model: TransformerConfig, batch: int, sequence: int) -> str:
        """Return the first rule that the layout breaks for a model and a batch, or ""."""
        tp, cp, tokens = self.tp, self.cp, sequence // self.cp
        experts = model.num_experts
        rows = self.dp * self.micro_batches
        rules = [
            (size % tp, f"tp {tp} does not divide {key} {size}")
            for key, size in shared_by_tp(model)
        ]
        rules += [
            (model.num_blocks < self.pp, f"pp {self.pp} stages for {model.num_blocks} blocks"),
            (self.pp > 1 and model.is_tied, TIED),
            (batch % rows, f"dp {self.dp} x micro_batches {rows // self.dp} do not divide batch "
             f"{batch}"),
            (cp > 1 and sequence % (2 * cp * TILE), f"cp {cp} does not cut sequence {sequence} "
             f"into {2 * cp} parts of whole tiles of {TILE}"),
            (self.sequence_parallel and tp == 1, "sequence_parallel needs tp above 1"),
            (self.sequence_parallel and tokens % (tp * TILE), f"sequence_parallel: tp {tp} does "
             f"not cut {tokens} tokens into whole tiles of {TILE}"),
            (self.zero and self.dp == 1, f"zero {self.zero} needs dp above 1"),
            (self.ep not in (1, self.dp), f"ep {self.ep} is neither 1 nor dp {self.dp}"),
            (self.ep > 1 and not experts, f"ep {self.ep} for a model without experts"),
            (experts and experts % self.ep, f"ep {self.ep} does not divide {experts} experts"),
            (experts and cp > 1, f"cp {cp} with experts, whose capacity counts whole sequences"),
        ]  # fmt: skip
        return next((rule for broken, rule in rules if broken), "")

    def check(self, model: TransformerConfig, batch: int, sequence: int) -> None:
        """Raise unless the layout cuts this model and batch evenly.

        Args:
            model: its sizes.
            batch: sequences of a step, of all replicas together.
            sequence: tokens of a sequence.

        Raises:
            TTKitError: with the rule that it breaks and its numbers.

        Example:
            >>> Layout(tp=4).check(TransformerConfig(num_heads=6), 8, 128)
            Traceback (most recent call last):
            ttkit.errors.TTKitError: layout TP4: tp 4 does not divide num_heads 6
              try: ...
        """
        if rule := self.why_not(model, batch, sequence):
            fail(f"layout {self}", rule, "another size: ttkit.plan_layouts lists those that run")

    def to_settings(self, settings: Settings, mesh_shape: tuple[int, int]) -> Settings:
        """Return a training configuration with this layout.

        Args:
            settings: what else the run needs; of its layout nothing stays.
            mesh_shape: of the mesh of each stage; other replicas have meshes of their own.
        """
        replicas = self.chips // (math.prod(mesh_shape) * self.pp)
        on: dict[str, Any] = {
            "enable_ddp": self.dp > replicas,
            "enable_cp": self.cp > 1,
            "enable_tp": self.tp > 1,
        }
        training = replace(
            settings.training_config,
            gradient_accumulation_steps=self.micro_batches,
            precision=self.precision,  # type: ignore[arg-type]
        )
        runner: Any = "memory_efficient" if self.recompute else "default"
        shared: dict[str, Any] = {"zero": self.zero, "sequence_parallel": self.sequence_parallel}
        multihost, distributed = settings.multihost_config, settings.distributed
        if self.pp > 1:
            parts = enumerate(split_blocks(settings.transformer_config, self.pp))
            stages = PipelineParallelConfig(
                num_blocks=settings.transformer_config.num_blocks,
                blocks_per_rank={rank: len(blocks) for rank, (blocks,) in parts},
                schedule=self.schedule,  # type: ignore[arg-type]
            )
            multihost = MultihostConfig(
                enabled=True, num_workers=self.pp * replicas, pipeline_parallel_config=stages
            )
        elif replicas > 1:
            distributed = replace(distributed, enabled=True)
        return replace(
            settings,
            multihost_config=multihost,
            distributed=distributed,
            device_config=DeviceConfig(mesh_shape, enable_pp=self.pp > 1, **on),
            training_config=training,
            transformer_config=replace(settings.transformer_config, runner_type=runner),
            layout=replace(settings.layout, expert_parallel=self.ep > 1, **shared),
        )

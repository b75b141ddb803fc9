"""The sections of a training configuration, checked by pydantic.

Keys and defaults are those of ttml.common.config and of tt-train's nano_gpt. ttml ignores a key
that it does not know, so a setting whose key is misspelt silently keeps its default. Here such a
key is an error, and the message names the nearest key."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import (
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs
from typing_extensions import TypedDict

from ttkit.errors import fail
from ttkit.files import KeyPath, did_you_mean
from ttkit.plans.pipelines import SCHEDULES
from ttkit.words import counted

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
IN_A_FILE = "in a file"  # With this context `config/files.py` adds the line to a fault.
# Pydantic adds these to a fault's location; no key of a file has these names.
PYDANTIC_TAGS = ("AdamW", "SGD", "[key]")
# Files may also use these names: ttml in C++ writes "dropout", and tt-metal's 3-tier guide writes
# "steps".
ALIASES = {"dropout": "dropout_prob", "steps": "max_steps"}


def _number(value):
    """Return a number that YAML 1.1 reads as text, such as 3e-4, as a float."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Fraction = Annotated[StrictFloat, Field(ge=0, lt=1), BeforeValidator(_number)]
NonNegative = Annotated[StrictFloat, Field(ge=0), BeforeValidator(_number)]
Above0 = Annotated[StrictFloat, Field(gt=0), BeforeValidator(_number)]
Count = Annotated[StrictInt, Field(ge=1)]
Natural = Annotated[StrictInt, Field(ge=0)]


@dataclass(frozen=True, config=STRICT)
class Section:
    """The base class of all sections; it checks values from Python code like those of a file."""

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, value, handler: Callable, info):
        names = [field.name for field in fields(cls)]
        # Positional arguments become keywords, so that a fault names its field.
        if isinstance(value, ArgsKwargs) and len(value.args) <= len(names):
            value = ArgsKwargs((), dict(zip(names, value.args)) | (value.kwargs or {}))
        try:
            return handler(value)
        except ValidationError as error:
            if info.context == IN_A_FILE:
                raise
            where, rule, cure = next(faults(cls, error))
            fail(f"{cls.__name__}({'.'.join(map(str, where))})", rule, cure)


def faults(section: type[Section], error: ValidationError) -> Iterator[tuple[KeyPath, str, str]]:
    """Yield the place, the rule and the cure of each fault that pydantic found."""
    for fault in error.errors(include_url=False):
        kind = fault["type"]
        context = fault.get("ctx", {})
        value = fault["input"]
        where = tuple(part for part in fault["loc"] if part not in PYDANTIC_TAGS)
        key = str(where[-1] if where else "")
        expected = context.get("expected") or context.get("expected_tags")
        if kind in ("unexpected_keyword_argument", "extra_forbidden", "invalid_key"):
            rule = f"unknown key {key[:60]!r}: ttml ignores it"
            yield where, rule, did_you_mean(key, _keys(section, where[:-1]))
        elif expected:
            yield (
                where,
                f"Unknown {key}: {str(context.get('tag', value))[:40]}",
                f"one of {expected}",
            )
        else:
            name = str(where[0]) if where else ""
            default = getattr(section(), ALIASES.get(name, name), section)
            cure = "one line 'key: value' below it for each setting"
            if isinstance(default, str | int | float | tuple | None):
                cure = f"the default is {json.dumps(default)}"
            yield (
                where,
                f"got {repr(value)[:40]}: {fault['msg'][0].lower()}{fault['msg'][1:]}",
                cure,
            )


def _keys(section: type[Section], where: KeyPath) -> list[str]:
    """Return the keys that a place in a section may have."""
    kinds: list = [section]
    for part in where:
        hints = [get_type_hints(kind).get(str(part)) for kind in kinds]
        kinds = [each for hint in hints for each in (hint, *get_args(hint))]
        kinds = [kind for kind in kinds if hasattr(kind, "__annotations__")]
    return list(dict.fromkeys(key for kind in kinds for key in get_type_hints(kind)))


@dataclass(frozen=True)
class DeviceConfig(Section):
    """The mesh to open, and the parallel strategies that are on."""

    mesh_shape: tuple[Count, ...] = Field(default=(1, 1), min_length=1, max_length=2)
    device_ids: tuple[Natural, ...] | None = None
    enable_ddp: StrictBool = False
    enable_tp: StrictBool = False
    enable_pp: StrictBool = False  # Each stage is a rank, so a pipeline takes no mesh axis.
    enable_cp: StrictBool = False


@dataclass(frozen=True)
class LayoutConfig(Section):
    """Options that shard more along the axes of the strategies; ttml does not have this section."""

    # ZeRO shards along the axes of DDP and CP. From stage 1 on, ranks that have replicas share the
    # optimizer's state.
    zero: Literal[0, 1, 2, 3] = 0
    # Between the matmuls of tensor parallelism, activations are sharded along the axis of TP.
    sequence_parallel: StrictBool = False
    expert_parallel: StrictBool = False  # The experts are sharded along the axis of DDP.
    # A bucket of gradients has at most this many MB; with 0 each gradient is sent alone.
    bucket_mb: NonNegative = 0.0


@dataclass(frozen=True)
class RopeScaling(Section):
    """The stretching of rotary positions for long contexts."""

    scaling_factor: NonNegative = 0.0
    high_freq_factor: Above0 = 4.0
    low_freq_factor: Above0 = 1.0
    original_context_length: Natural = 0


@dataclass(frozen=True)
class TransformerConfig(Section):
    """The model."""

    model_type: Literal["gpt2", "llama"] = "gpt2"
    runner_type: Literal["default", "memory_efficient"] = "default"
    num_heads: Count = 6
    embedding_dim: Count = 384
    dropout_prob: Fraction = Field(
        default=0.2, validation_alias=AliasChoices("dropout_prob", "dropout")
    )
    num_blocks: Count = 6
    vocab_size: Count = 96
    max_sequence_length: Count = 128
    # This has no effect: a GPT has trainable positions, and a Llama has rotary ones.
    positional_embedding_type: str = "trainable"
    bias: StrictBool = True  # GPT's linear layers have biases; Llama's have none.
    weight_tying: Literal["disabled", "enabled", False, True] = "disabled"
    experimental: dict[str, Any] | None = None  # This has no effect.
    intermediate_dim: Count | None = None
    theta: Above0 = 10000.0
    num_groups: Count = 3
    rope_scaling: RopeScaling | None = None
    # ttml does not have the keys from here to balance_loss. With "flash" backward computes the
    # scores again, and with "stored" they are kept.
    attention: Literal["flash", "stored"] = "flash"
    # With 0 each block has one MLP and no experts.
    num_experts: Natural = 0
    experts_per_token: Count = 2
    capacity_factor: Above0 = 1.25  # An expert has this many times its even share of slots.
    # The total loss includes this many times Switch's balance loss.
    balance_loss: NonNegative = 0.01

    @property
    def is_tied(self) -> bool:
        """Whether the token table and the head are the same weight."""
        return self.weight_tying in ("enabled", True)


class AdamWKeys(TypedDict, total=False):
    """The keys of `optimizer` for AdamW; the defaults are those of training_config."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    type: Literal["AdamW"]
    lr: NonNegative
    beta1: Fraction
    beta2: Fraction
    epsilon: Above0
    weight_decay: NonNegative
    master_weights: StrictBool


class SGDKeys(TypedDict, total=False):
    """The keys of `optimizer` for SGD."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    type: Literal["SGD"]
    lr: NonNegative
    momentum: Fraction
    dampening: NonNegative
    weight_decay: NonNegative
    nesterov: StrictBool


OptimizerKeys = Annotated[
    Annotated[AdamWKeys, Tag("AdamW")] | Annotated[SGDKeys, Tag("SGD")],
    Discriminator(lambda given: given.get("type", "AdamW") if isinstance(given, dict) else "AdamW"),
]


@dataclass(frozen=True)
class TrainingConfig(Section):
    """The settings of training."""

    project_name: str = "tt_train_nano_gpt"
    seed: Natural = 42
    batch_size: Count = 64
    validation_batch_size: Count | None = None  # None means half of batch_size, at least 1.
    max_steps: Natural = Field(default=1000, validation_alias=AliasChoices("max_steps", "steps"))
    num_epochs: Count = 1
    eval_every: Natural = 200  # With 0 the run never evaluates.
    model_save_interval: Natural = 500  # With 0 only the end of the run saves.
    gradient_accumulation_steps: Count = 1
    learning_rate: NonNegative = 3e-4
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    eps: Above0 = 1e-8
    weight_decay: NonNegative = 0.01
    # Weights and activations have this type; ttml's default is bfloat16.
    precision: Literal["float32", "bfloat16"] = "float32"
    # The next two keys have no effect here.
    use_moreh_adamw: StrictBool = False
    use_kahan_summation: StrictBool = False
    use_clip_grad_norm: StrictBool = False
    clip_grad_norm_max_norm: Above0 = 1.0
    optimizer: OptimizerKeys | None = None
    scheduler_type: Literal["identity", "warmup_linear"] = "identity"
    tokenizer_type: Literal["bpe", "char", "byte"] = "bpe"
    tokenizer_path: str | None = None
    data_path: str | None = None
    checkpoint_dir: str = "checkpoints"
    model_config: str | None = None  # This path names a YAML file with the model's section.
    transformer_config: TransformerConfig | None = None


@dataclass(frozen=True)
class SchedulerConfig(Section):
    """The learning rate over time.

    It rises to max_lr in warmup_steps, stays there for hold_steps, and then falls to min_lr.
    """

    max_lr: NonNegative = 1e-3
    min_lr: NonNegative = 0.0
    warmup_steps: Natural = 100
    hold_steps: Natural = 0


@dataclass(frozen=True)
class PipelineParallelConfig(Section):
    """The blocks of the model on each rank, and the schedule of the stages.

    ttml does not have `schedule` and `chunks_per_rank`.
    """

    num_blocks: Count = 6  # This has no effect: num_blocks of transformer_config counts.
    blocks_per_rank: dict[Natural, Count] = Field(default_factory=dict)
    schedule: Literal[tuple(SCHEDULES)] = "1f1b"  # type: ignore[valid-type]
    chunks_per_rank: Count = 1  # The interleaved schedule needs more than 1.


@dataclass(frozen=True)
class MultihostConfig(Section):
    """Training over several ranks."""

    enabled: StrictBool = False
    num_workers: Count = 1
    # With "mpi" tensors travel between ranks through the hosts, with "fabric" from chip to chip.
    socket_type: Literal["mpi", "fabric"] = "mpi"
    pipeline_parallel_config: PipelineParallelConfig | None = None

    @property
    def pipeline(self) -> PipelineParallelConfig:
        """The configuration of the pipeline, or its defaults."""
        return self.pipeline_parallel_config or PipelineParallelConfig()

    @property
    def blocks_per_stage(self) -> list[int]:
        """The number of blocks of each stage, or [] if the blocks are divided evenly."""
        return [blocks for _, blocks in sorted(self.pipeline.blocks_per_rank.items())]


@dataclass(frozen=True)
class Distributed(Section):
    """Training on several hosts by plain MPI: each rank has its own mesh and part of the batch."""

    enabled: StrictBool = False
    hosts: str = "hosts.json"  # The file may also be a hostfile with lines 'NAME slots=N'.
    # A plan and the check of a file assume this many ranks, and 0 counts as 1. A run uses all ranks
    # that MPI started.
    ranks: Natural = 0


@dataclass(frozen=True)
class Settings(Section):
    """A training configuration; a section that is not given has its defaults."""

    device_config: DeviceConfig = DeviceConfig()
    training_config: TrainingConfig = TrainingConfig()
    multihost_config: MultihostConfig = MultihostConfig()
    scheduler_config: SchedulerConfig = SchedulerConfig()
    transformer_config: TransformerConfig = TransformerConfig()
    distributed: Distributed = Distributed()
    layout: LayoutConfig = LayoutConfig()


SECTIONS: dict[str, type[Section]] = get_type_hints(Settings)
# These strategies take a mesh axis, in the order of the axes; the values are ttml's names.
STRATEGIES = {"dp": "ddp", "cp": "cp", "tp": "tp"}
# Each pair is a strategy and its mesh axis.
Axes = tuple[tuple[str, int], ...]
# The training guide quotes this sentence, so users may search for it.
GUIDES_RULE = (
    "The number of parallelization axes must be equal to the number of mesh shape dimensions"
)
GUIDES_CURE = (
    "a line [1, N] or [N, 1]: only one of enable_ddp and enable_tp; a 2D mesh [M, N]: both; "
    "enable_cp can take the place of either"
)


def enabled_strategies(config) -> list[str]:
    """Return the strategies that a `DeviceConfig` or a `DistributedConfig` enables."""
    return [name for name, key in STRATEGIES.items() if getattr(config, f"enable_{key}")]


def parallel_axes(shape: Sequence[int], on: Sequence[str]) -> Axes:
    """Return the mesh axis of each strategy that is on, by ttml's newest rule.

    On a line of chips the only strategy gets the axis that is longer than 1, as the training guide
    promises for [1, 32].

    Args:
        shape: rows and columns of the mesh.
        on: those of "dp", "cp" and "tp" that are on, in this order.

    Raises:
        TTKitError: the number of strategies does not fit the shape; the message is ttml's.

    Example:
        >>> parallel_axes((4, 8), ["dp", "tp"]), parallel_axes((1, 32), ["tp"])
        ((('dp', 0), ('tp', 1)), (('tp', 1),))
    """
    mesh = f"MeshShape({list(shape)})"
    asked = " and ".join(f"enable_{STRATEGIES[name]}" for name in on) or "no parallelism"
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    if not wide and not on:  # One chip needs no strategy, and ttml makes no context for it.
        return ()
    got = ", ".join(f"{STRATEGIES[s]}={str(s in on).lower()}" for s in ("dp", "tp", "cp"))
    rule = (
        f"For line mesh topology (shape {mesh}), exactly one parallelism type must be enabled. "
        f"Got: {got}"
    )
    if len(wide) == 2:
        rule = (
            f"For 2D mesh (shape {mesh}), number of enabled parallelization axes ({len(on)}) must "
            "equal mesh dimensions (2)."
        )
    if len(on) != max(len(wide), 1):
        fail(f"{asked} on {mesh}", f"{rule} ({GUIDES_RULE})", GUIDES_CURE)
    return tuple(zip(on, wide or [0]))


def split_blocks(
    config: TransformerConfig, stages: int, per_stage: Sequence[int] = (), chunks: int = 1
) -> list[range]:
    """Return the blocks of each part of a pipeline: chunk c of stage s is part c * stages + s, as
    in `ttkit.plans.Schedule`.

    Unless `per_stage` is given, the parts have equal sizes. If the blocks cannot be divided evenly,
    each of the first parts has one block more.

    Args:
        per_stage: the number of blocks of each stage, which is the sum over its chunks.

    Raises:
        TTKitError: a part has no block, or the counts do not add up to the model's blocks.

    Example:
        >>> split_blocks(TransformerConfig(num_blocks=5), 2)
        [range(0, 3), range(3, 5)]
        >>> split_blocks(TransformerConfig(num_blocks=5), 2, per_stage=[4, 1])
        [range(0, 4), range(4, 5)]
        >>> split_blocks(TransformerConfig(num_blocks=6), 2, chunks=2)[::2]  # of the first stage
        [range(0, 2), range(4, 5)]
    """
    total = config.num_blocks
    parts = stages * chunks
    sizes = [total // parts + (i < total % parts) for i in range(parts)]
    if per_stage:
        sizes = [n // chunks + (i < n % chunks) for i in range(chunks) for n in per_stage]
    if sum(sizes) != total or not all(sizes) or len(sizes) != parts:
        fail(
            f"cut {total} blocks into {parts} parts",
            f"{stages} stages of {counted(chunks, 'chunk')} need at least one block in each part, "
            f"{total} in all; the parts have {sizes}",
            "fewer stages or chunks, or one line 'RANK: BLOCKS' for each stage",
        )
    ends = itertools.accumulate(sizes)
    return [range(end - size, end) for end, size in zip(ends, sizes)]

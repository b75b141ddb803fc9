"""The sections of a training configuration: device_config, training_config, multihost_config and what they name.

Keys and defaults are those of ttml.common.config and of tt-train's nano_gpt. ttml ignores a key that it does not know, so a misspelt
one silently keeps its default; here it is an error that names the nearest key.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from ttkit.cluster.axes import STRATEGIES, check_divisible, parallel_axes
from ttkit.cluster.documents import Document, Where, did_you_mean, fail_with, find_file, read_yaml
from ttkit.errors import TTKitError
from ttkit.hardware.findings import Finding
from ttkit.words import counted


@dataclass(frozen=True)
class DeviceConfig:
    """Which mesh to open, and what it is for; `axes` says which axis each strategy takes."""

    mesh_shape: tuple[int, ...] = (1, 1)
    device_ids: tuple[int, ...] | None = None
    enable_ddp: bool = False
    enable_tp: bool = False
    enable_pp: bool = False  # between ranks, so it takes no axis of the mesh
    enable_cp: bool = False  # ttml's name, refused by `axes`

    def axes(self) -> dict[str, int]:
        """The mesh axis of each strategy that is on, by the newest rule of `parallel_axes`; nothing where all are off."""
        on = [name for name in STRATEGIES if getattr(self, f"enable_{name}")]
        return parallel_axes(self.mesh_shape, on) if on else {}

    def size(self, strategy: str) -> int:
        """How many groups share a batch ("ddp"), or chips a layer ("tp"); 1 where that is off.

        Example:
            >>> galaxy = DeviceConfig((4, 8), enable_ddp=True, enable_tp=True)
            >>> galaxy.size("ddp"), galaxy.size("tp")
            (4, 8)
        """
        axes = self.axes()
        return self.mesh_shape[axes[strategy]] if strategy in axes else 1


@dataclass(frozen=True)
class RopeScaling:
    """How rotary positions are stretched for long contexts."""

    scaling_factor: float = 0.0
    high_freq_factor: float = 4.0
    low_freq_factor: float = 1.0
    original_context_length: int = 0


@dataclass(frozen=True)
class TransformerConfig:
    """The model."""

    model_type: str = field(default="gpt2", metadata={"one_of": ("gpt2", "llama")})
    runner_type: str = field(default="default", metadata={"one_of": ("default", "memory_efficient")})
    num_heads: int = 6
    embedding_dim: int = 384
    dropout_prob: float = field(default=0.2, metadata={"also": "dropout"})  # ttml's name in C++, and in Python
    num_blocks: int = 6
    vocab_size: int = 96
    max_sequence_length: int = 128
    positional_embedding_type: str = "trainable"
    bias: bool = True  # in the linear layers of GPT; Llama has none
    weight_tying: str | bool = "disabled"
    experimental: Mapping[str, Any] | None = None
    intermediate_dim: int | None = None
    theta: float = 10000.0
    num_groups: int = 3
    rope_scaling: RopeScaling | None = None

    @property
    def is_tied(self) -> bool:
        """Whether the token table is the head's weight too."""
        return str(self.weight_tying).lower() in ("enabled", "true")


@dataclass(frozen=True)
class TrainingConfig:
    """How to train."""

    project_name: str = "tt_train_nano_gpt"
    seed: int = 42
    batch_size: int = 64
    validation_batch_size: int | None = None  # half of batch_size, at least 1
    max_steps: int = field(default=1000, metadata={"also": "steps"})  # as the 3-tier guide has it
    num_epochs: int = 1
    eval_every: int = 200
    model_save_interval: int = 500
    gradient_accumulation_steps: int = 1
    learning_rate: float = 3e-4
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    precision: str = field(default="float32", metadata={"one_of": ("float32", "bfloat16")})  # of weights and activations; ttml's is bfloat16
    use_moreh_adamw: bool = False
    use_kahan_summation: bool = False
    use_clip_grad_norm: bool = False
    clip_grad_norm_max_norm: float = 1.0
    optimizer: Mapping[str, Any] | None = None
    scheduler_type: str = field(default="identity", metadata={"one_of": ("identity", "warmup_linear")})
    tokenizer_type: str = field(default="bpe", metadata={"one_of": ("bpe", "char", "byte"), "words": "Unknown tokenizer_type: "})
    tokenizer_path: str | None = None
    data_path: str | None = None
    checkpoint_dir: str = "checkpoints"
    model_config: str | None = field(default=None, metadata={"file": "Model configuration"})
    transformer_config: TransformerConfig | None = None


@dataclass(frozen=True)
class SchedulerConfig:
    """The learning rate over time: up to max_lr in warmup_steps, held, then down to min_lr."""

    max_lr: float = 1e-3
    min_lr: float = 0.0
    warmup_steps: int = 100
    hold_steps: int = 0


@dataclass(frozen=True)
class PipelineParallelConfig:
    """How many blocks the model has, which rank has how many of them, and who does what when; the last two keys are this kit's own."""

    num_blocks: int = 6
    blocks_per_rank: Mapping[int, int] = field(default_factory=dict)
    schedule: str = field(default="1f1b", metadata={"one_of": ("one_at_a_time", "gpipe", "1f1b", "interleaved", "zb_h1")})
    chunks_per_rank: int = 1  # above 1 for the interleaved schedule


@dataclass(frozen=True)
class MultihostConfig:
    """Training over several ranks."""

    enabled: bool = False
    num_workers: int = 1
    socket_type: str = field(default="mpi", metadata={"one_of": ("mpi", "fabric")})
    pipeline_parallel_config: PipelineParallelConfig | None = None


@dataclass(frozen=True)
class Distributed:
    """Training on several hosts without meshes: each is a rank of plain MPI and takes its part of the batch."""

    enabled: bool = False
    hosts: str = field(default="hosts.json", metadata={"file": "Hosts file"})  # or a hostfile, one 'NAME slots=N' a line


SECTIONS: dict[str, type] = {
    "device_config": DeviceConfig,
    "training_config": TrainingConfig,
    "multihost_config": MultihostConfig,
    "scheduler_config": SchedulerConfig,
    "transformer_config": TransformerConfig,
    "distributed": Distributed,
}


@dataclass(frozen=True)
class Settings:
    """A training configuration with the files that it names read in; a section that nobody wrote has its defaults."""

    device_config: DeviceConfig = DeviceConfig()
    training_config: TrainingConfig = TrainingConfig()
    multihost_config: MultihostConfig = MultihostConfig()
    scheduler_config: SchedulerConfig = SchedulerConfig()
    transformer_config: TransformerConfig = TransformerConfig()
    distributed: Distributed = Distributed()


def read_settings(path: str | os.PathLike[str]) -> Settings:
    """A training configuration, the files that it names (`multihost_config: PATH`, `model_config: PATH`) included.

    Raises:
        TTKitError: all that is wrong in it and in them, each with file and line.

    Example:
        >>> settings = read_settings("configs/training/training_llama8b_tp_ddp_galaxy.yaml")
        >>> settings.device_config.mesh_shape, settings.transformer_config.num_blocks
        ((4, 8), 32)
    """
    settings, findings = _read(read_yaml(find_file(path, "Configuration file"), "configuration file"))
    if any(finding.severity == "error" for finding in findings):
        fail_with(f"read {path}", lambda n: counted(n, "error"), findings)
    return settings


def check_settings(document: Document) -> list[Finding]:
    """What is wrong in a training configuration."""
    return _read(document)[1]


def _read(document: Document) -> tuple[Settings, list[Finding]]:
    findings: list[Finding] = []
    sections: dict[str, Any] = {}
    _read_sections(document, sections, findings, set())
    settings = Settings(**sections)
    _check_together(document, settings, findings)
    return settings, findings


def _read_sections(document: Document, sections: dict[str, Any], findings: list[Finding], chain: set[Path]) -> None:
    top = document.value
    if not isinstance(top, dict):
        findings.append(Finding("error", str(document.path), 1, "it has no sections", f"start with one of {', '.join(SECTIONS)}"))
        return
    for key, value in top.items():
        section = SECTIONS.get(str(key))
        if section is None:
            cure = did_you_mean(key, SECTIONS) or f"one of {', '.join(SECTIONS)}"
            findings.append(Finding("warning", str(document.path), document.at(str(key)), f"unknown section {str(key)[:60]!r}", cure))
        elif isinstance(value, str):
            _follow(document, (key,), value, sections, findings, chain)
        else:
            sections[key] = _section(document, (key,), section, value, findings)
    model = sections.get("training_config")
    if isinstance(model, TrainingConfig):
        if model.transformer_config is not None:
            sections.setdefault("transformer_config", model.transformer_config)
        if model.model_config and "training_config" in top:
            _follow(document, ("training_config", "model_config"), model.model_config, sections, findings, chain)


def _follow(document: Document, where: Where, named: str, sections: dict[str, Any], findings: list[Finding], chain: set[Path]) -> None:
    """Read the file that a value names; its sections count as if they stood here."""
    try:
        path = find_file(named, f"{where[-1]} file", document.path.parent)
        if path in chain or path == document.path.resolve():
            raise TTKitError(f"follow {named}: the files name each other in a circle\n  try: write the section out in one of them")
        _read_sections(read_yaml(path, f"{where[-1]} file"), sections, findings, chain | {document.path.resolve(), path})
    except TTKitError as error:
        rule, _, cure = str(error).partition("\n  try: ")
        findings.append(Finding("error", str(document.path), document.at(*where), f"{'.'.join(map(str, where))}: {rule}", cure))


def _section(document: Document, where: Where, section: type, value: Any, findings: list[Finding]) -> Any:
    """One mapping as its dataclass; what is wrong keeps its default and is noted."""

    def wrong(key: str, rule: str, cure: str) -> None:
        name = ".".join(map(str, (*where, key) if key else where))
        findings.append(Finding("error", str(document.path), document.at(*where, key), f"{name}: {rule}", cure))

    if value is None:
        value = {}
    if not isinstance(value, dict):
        wrong("", "it must be a mapping", "one line 'key: value' below it for each setting")
        return section()
    known = {name: each for each in fields(section) for name in (each.name, each.metadata.get("also")) if name}
    hints = get_type_hints(section)
    given: dict[str, Any] = {}
    for key, setting in value.items():
        if key not in known:
            wrong(str(key), f"unknown key {str(key)[:60]!r}: ttml ignores it", did_you_mean(key, known) or f"one of {', '.join(known)}")
            continue
        kind, rule = hints[known[key].name], known[key].metadata
        inner = next((part for part in (kind, *get_args(kind)) if isinstance(part, type) and hasattr(part, "__dataclass_fields__")), None)
        if inner is not None:
            given[known[key].name] = _section(document, (*where, key), inner, setting, findings)
        elif (converted := _converted(setting, kind)) is MISSING:
            wrong(key, f"got {str(setting)[:40]!r}", f"it is {_spoken(kind)}, such as {_example(known[key].default)}")
        elif "one_of" in rule and converted not in rule["one_of"]:
            wrong(key, f"{rule.get('words', '')}{str(setting)[:40]}", f"one of {', '.join(rule['one_of'])}")
        else:
            given[known[key].name] = converted
    return section(**given)


def _converted(value: Any, kind: Any) -> Any:
    """The value as the kind that a key has, MISSING when it is not of that kind. 3e-4 is text to YAML, a number here."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    for each in kinds:
        origin = get_origin(each) or each
        if each is NoneType and value is None:
            return None
        if origin is tuple and isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**31 for item in value):
            return tuple(value)
        if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, dict):
            return value
        if each in (bool, str) and isinstance(value, each):
            return value
        if each is int and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
            return value
        if each is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
            try:
                return float(value)
            except (ValueError, OverflowError):
                continue
    return MISSING


def _spoken(kind: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", tuple: "a list of whole numbers", NoneType: "nothing"}
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return " or ".join(words.get(get_origin(each) or each, "a mapping") for each in kinds)


def _example(default: Any) -> str:
    return "the default" if default in (MISSING, None) else str(list(default) if isinstance(default, tuple) else default).replace("False", "false")


def _check_together(document: Document, settings: Settings, findings: list[Finding]) -> None:
    """The rules that tie sections to each other."""
    device, training, multihost = settings.device_config, settings.training_config, settings.multihost_config

    def wrong(where: Where, rule: str, cure: str) -> None:
        findings.append(Finding("error", str(document.path), document.at(*where), rule, cure))

    if not device.mesh_shape or 0 in device.mesh_shape:
        wrong(("device_config", "mesh_shape"), f"mesh_shape {list(device.mesh_shape)} has no devices", "rows and columns of the mesh, such as [2, 4]")
    else:
        shape = f" of mesh_shape {list(device.mesh_shape)}"
        where: Where = ("device_config", "mesh_shape")
        try:
            sizes = {strategy: device.size(strategy) for strategy in ("ddp", "tp")}
            where = ("training_config", "batch_size")
            check_divisible("batch_size", training.batch_size, "the DDP size", sizes["ddp"], shape)
            where = ("device_config", "enable_tp")
            for key, value in shared_by_tp(settings.transformer_config) if not findings else ():
                check_divisible(key, value, "the TP size", sizes["tp"], shape)
        except TTKitError as error:
            rule, _, cure = str(error).partition("\n  try: ")
            wrong(where, rule.partition(": ")[2], cure)
    if device.enable_pp and not multihost.enabled:
        wrong(("device_config", "enable_pp"), "Multihost is not enabled, and the stages of a pipeline are ranks", "multihost_config: with enabled: true")
    if settings.distributed.enabled and "distributed" in (document.value if isinstance(document.value, dict) else {}):
        try:
            find_file(settings.distributed.hosts, "Hosts file", document.path.parent)
        except TTKitError as error:
            rule, _, cure = str(error).partition("\n  try: ")
            wrong(("distributed", "hosts"), rule, f"{cure}, or distributed: {{enabled: false}}")
    pipeline = multihost.pipeline_parallel_config
    if pipeline and pipeline.blocks_per_rank:
        shares = list(pipeline.blocks_per_rank.values())
        if not all(isinstance(share, int) and share > 0 for share in shares) or sum(shares) != pipeline.num_blocks:
            where = ("multihost_config", "pipeline_parallel_config", "blocks_per_rank")
            wrong(where, f"blocks_per_rank {str(shares)[:60]} does not add up to num_blocks {pipeline.num_blocks}", "one line 'RANK: BLOCKS' for each rank")


def shared_by_tp(model: TransformerConfig) -> list[tuple[str, int]]:
    """The sizes of a model that tensor parallelism cuts, by key: each must be divisible by the TP size.

    Example:
        >>> shared_by_tp(TransformerConfig(num_heads=12, embedding_dim=768))
        [('num_heads', 12), ('embedding_dim', 768)]
    """
    keys = ["num_heads", *["num_groups"] * (model.model_type == "llama"), "embedding_dim", "intermediate_dim"]
    return [(key, getattr(model, key)) for key in keys if getattr(model, key)]

"""Training configurations read from YAML files, each fault with its file, line and column."""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ttkit.errors import TTKitError, fail
from ttkit.files import (
    Document,
    Finding,
    Where,
    did_you_mean,
    fail_with,
    find_file,
    read_yaml,
)
from ttkit.train.config.layout import Layout, check_divisible
from ttkit.train.config.settings import IN_A_FILE, SECTIONS, Section, Settings, faults, shared_by_tp
from ttkit.words import counted


def read_settings(path: str | os.PathLike[str]) -> Settings:
    """Read a training configuration and the files that it names (`model_config: PATH`).

    Raises:
        TTKitError: all faults in them, each with file, line and column.

    Example:
        >>> settings = read_settings("configs/training/training_llama8b_tp_ddp_galaxy.yaml")
        >>> settings.device_config.mesh_shape, settings.transformer_config.num_blocks
        ((4, 8), 32)
    """
    reading = _Reading(read_yaml(find_file(path, "Configuration file"), "configuration file"))
    settings = reading.settings()
    if any(finding.severity == "error" for finding in reading.findings):
        fail_with(f"read {path}", lambda n: counted(n, "error"), reading.findings)
    return settings


def check_settings(document: Document) -> list[Finding]:
    """Return the faults of a training configuration."""
    reading = _Reading(document)
    reading.settings()
    return reading.findings


class _Reading:
    """Reads a configuration and the files that it names, and notes their faults."""

    def __init__(self, document: Document):
        self.document, self.sections, self.findings = document, dict[str, Any](), list[Finding]()

    def settings(self) -> Settings:
        self.read(self.document, frozenset())
        settings = Settings(**self.sections)
        self.check_together(settings)
        return settings

    def note(
        self, document: Document, where: Where, rule: str, cure: str, severity: str = "error"
    ) -> None:
        line, column = document.place(*where)
        self.findings.append(Finding(severity, str(document.path), line, rule, cure, column))

    def note_error(self, document: Document, where: Where, error: TTKitError) -> None:
        """Note an error of the kit: its rule, and what to try."""
        rule, _, cure = str(error).partition("\n  try: ")
        self.note(document, where, f"{'.'.join(map(str, where))}: {rule}", cure)

    def read(self, document: Document, chain: frozenset[Path]) -> None:
        """Read the sections of one file."""
        top = document.value
        if not isinstance(top, dict):
            self.note(
                document, (), "it has no sections", f"start with one of {', '.join(SECTIONS)}"
            )
            return
        for key, value in top.items():
            if key not in SECTIONS:
                cure = did_you_mean(key, SECTIONS) or f"one of {', '.join(SECTIONS)}"
                self.note(
                    document, (str(key),), f"unknown section {str(key)[:60]!r}", cure, "warning"
                )
            elif isinstance(value, str):
                self.follow(document, (key,), value, chain)
            else:
                self.sections[key] = self.section(document, key, {} if value is None else value)
        training = self.sections.get("training_config")
        if training and training.transformer_config is not None:
            self.sections.setdefault("transformer_config", training.transformer_config)
        if training and training.model_config and "training_config" in top:
            self.follow(document, ("training_config", "model_config"), training.model_config, chain)

    def follow(self, document: Document, where: Where, named: str, chain: frozenset[Path]) -> None:
        """Read the file that a value names, as if its sections were in this one."""
        chain |= {document.path.resolve()}
        try:
            path = find_file(named, f"{where[-1]} file", document.path.parent)
            if path in chain:
                rule = "the files name each other in a circle"
                fail(f"follow {named}", rule, "write the section out in one of them")
            self.read(read_yaml(path, f"{where[-1]} file"), chain)
        except TTKitError as error:
            self.note_error(document, where, error)

    def section(self, document: Document, key: str, value: Any) -> Section:
        """Read a mapping as its section; a wrong value is noted and replaced by the default."""
        kind = SECTIONS[key]
        try:
            return TypeAdapter(kind).validate_python(value, context=IN_A_FILE)
        except ValidationError as error:
            found = list(faults(kind, error))
        for where, rule, cure in found:
            self.note(document, (key, *where), f"{'.'.join(map(str, (key, *where)))}: {rule}", cure)
        wrong = {where[0] for where, _, _ in found if where}
        right = {k: each for k, each in value.items() if k not in wrong} if wrong else {}
        return TypeAdapter(kind).validate_python(right, context=IN_A_FILE)

    def check_together(self, settings: Settings) -> None:
        """Check the rules that tie sections to each other."""
        device, training = settings.device_config, settings.training_config
        multihost, distributed = settings.multihost_config, settings.distributed
        wrong = functools.partial(self.note, self.document)
        shape = f" of mesh_shape {list(device.mesh_shape)}"
        where: Where = ("device_config", "mesh_shape")
        try:
            layout = Layout.of(settings).along(device.mesh_shape)
            where = ("training_config", "batch_size")
            check_divisible("batch_size", training.batch_size, "the DDP size", layout.dp, shape)
            where, model = ("transformer_config", "num_experts"), settings.transformer_config
            layout.check_experts(model.num_experts, model.experts_per_token)
            where = ("device_config", "enable_tp")
            for key, value in (
                shared_by_tp(settings.transformer_config) if not self.findings else ()
            ):
                check_divisible(key, value, "the TP size", layout.tp, shape)
        except TTKitError as error:
            rule, _, cure = str(error).partition("\n  try: ")
            wrong(where, rule.partition(": ")[2], cure)
        takes, given = math.prod(device.mesh_shape), len(device.device_ids or ())
        if given not in (0, takes):
            where = ("device_config", "device_ids")
            rule = (
                f"device_ids has {counted(given, 'device')}, mesh_shape {list(device.mesh_shape)}"
            )
            wrong(where, f"{rule} takes {takes}", f"{takes} of them, or none")
        if device.enable_pp and not multihost.enabled:
            rule = "enable_pp: Multihost is not enabled, and the stages of a pipeline are ranks"
            wrong(("device_config", "enable_pp"), rule, "multihost_config: with enabled: true")
        if distributed.enabled and "distributed" in self.sections:
            try:
                find_file(distributed.hosts, "Hosts file", self.document.path.parent)
            except TTKitError as error:
                self.note_error(self.document, ("distributed", "hosts"), error)
        pipeline = multihost.pipeline_parallel_config
        shares = list(pipeline.blocks_per_rank.values()) if pipeline else []
        if pipeline and shares and sum(shares) != pipeline.num_blocks:
            where = ("multihost_config", "pipeline_parallel_config", "blocks_per_rank")
            rule = (
                f"blocks_per_rank {str(shares)[:60]} does not add up to num_blocks "
                f"{pipeline.num_blocks}"
            )
            wrong(where, rule, "one line 'RANK: BLOCKS' for each rank")

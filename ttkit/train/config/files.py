"""Read training configurations from YAML files; report each fault with file, line and column."""

from typing import Any

from pydantic import TypeAdapter, ValidationError

from ttkit.errors import TTKitError, warn
from ttkit.files import (
    AnyPath,
    Document,
    Finding,
    KeyPath,
    did_you_mean,
    errors_in,
    fail_with,
    find_file,
    read_yaml,
)
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import IN_A_FILE, SECTIONS, Section, Settings, faults
from ttkit.words import counted


def read_settings(path: AnyPath) -> Settings:
    """Read a training configuration and the files that it names (`model_config: PATH`).

    Raises:
        TTKitError: the files have errors; the message lists all, each with file, line and column.
            An unknown section gives only a warning, because ttml's files have some more.

    Example:
        >>> settings = read_settings("configs/training/training_llama8b_tp_ddp_galaxy.yaml")
        >>> settings.device_config.mesh_shape, settings.transformer_config.num_blocks
        ((4, 8), 32)
    """
    reading = _Reading(read_yaml(find_file(path, "Configuration file"), "configuration file"))
    settings = reading.settings()
    if errors := errors_in(reading.findings):
        fail_with(f"read {path}", counted(len(errors), "error"), errors)
    for finding in reading.findings:
        warn(str(finding))
    return settings


def check_settings(document: Document) -> list[Finding]:
    """Return the faults of a training configuration."""
    reading = _Reading(document)
    reading.settings()
    return reading.findings


class _Reading:
    """A reader of a configuration and of the files that it names; it notes their faults."""

    def __init__(self, document: Document):
        self.document = document
        self.sections = dict[str, Any]()
        self.findings = list[Finding]()
        self.followed = set[Any]()  # These are the paths of the files that were named.

    def settings(self) -> Settings:
        self.read(self.document)
        settings = Settings(**self.sections)
        if not errors_in(self.findings):
            self.check_together(settings)
        return settings

    def note(self, document: Document, *fault: Any) -> None:
        self.findings.append(document.finding(*fault))

    def read(self, document: Document) -> None:
        """Read the sections of one file."""
        top = document.value
        if not isinstance(top, dict):
            return self.note(
                document, (), "it has no sections", f"start with one of {', '.join(SECTIONS)}"
            )
        for key, value in top.items():
            if key not in SECTIONS:
                rule = f"unknown section {str(key)[:60]!r}"
                self.note(document, (str(key),), rule, did_you_mean(key, SECTIONS), "warning")
            elif isinstance(value, str):
                self.follow(document, (key,), value)
            else:
                self.sections[key] = self.section(document, key, {} if value is None else value)
        training = self.sections.get("training_config")
        if training and training.transformer_config is not None:
            self.sections.setdefault("transformer_config", training.transformer_config)
        if training and training.model_config and "training_config" in top:
            self.follow(document, ("training_config", "model_config"), training.model_config)

    def follow(self, document: Document, where: KeyPath, named: str) -> None:
        """Read the sections of the file that a value names into this configuration."""
        try:
            path = find_file(named, f"{where[-1]} file", document.path.parent)
            if path not in self.followed:
                self.followed.add(path)  # A file may name itself, and is then read only once more.
                self.read(read_yaml(path, f"{where[-1]} file"))
        except TTKitError as error:
            self.note(document, where, error.rule, error.cure)

    def section(self, document: Document, key: str, value) -> Section:
        """Return the section that a mapping describes; if it has faults, note them and return the
        defaults.
        """
        kind = SECTIONS[key]
        try:
            return TypeAdapter(kind).validate_python(value, context=IN_A_FILE)
        except ValidationError as error:
            for where, rule, cure in faults(kind, error):
                place = key, *where
                self.note(document, place, f"{'.'.join(map(str, place))}: {rule}", cure)
            return kind()

    def check_together(self, settings: Settings) -> None:
        """Check the rules that tie sections to each other."""
        model = settings.transformer_config
        if (
            settings.multihost_config.pipeline_parallel_config
            and not settings.device_config.enable_pp
        ):
            rule = "pipeline_parallel_config asks for stages, but enable_pp is off"
            self.note(self.document, ("multihost_config",), rule, "enable_pp: true")
        try:
            layout = Layout.of(settings)
            meshes = layout.dp // layout.along(settings.device_config.mesh_shape).dp
            layout.check(
                model, settings.training_config.batch_size, model.max_sequence_length, meshes
            )
        except TTKitError as error:
            self.note(self.document, ("device_config", "mesh_shape"), error.rule, error.cure)
        if settings.distributed.enabled:
            try:
                find_file(settings.distributed.hosts, "Hosts file", self.document.path.parent)
            except TTKitError as error:
                self.note(self.document, ("distributed", "hosts"), error.rule, error.cure)

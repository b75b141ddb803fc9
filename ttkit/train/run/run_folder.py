"""The folder of a run: its log, and the checkpoint that a run goes on from; and what a notebook
shows of them.

The log has a line of JSON for each step."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from pydantic import TypeAdapter, ValidationError

from ttkit.errors import fail
from ttkit.files import write_whole
from ttkit.train.run import checkpoint
from ttkit.words import counted, short, shows_progress

LOG = "log.jsonl"
META = {
    "optimizer_steps",
    "settings",
    "step",
    "tokenizer",
}  # A checkpoint holds these beside tensors.
# A resumed run may change these settings of the model, or the shapes of tensors show the change.
FREE = {
    "balance_loss",
    "capacity_factor",
    "dropout_prob",
    "max_sequence_length",
    "runner_type",
    "vocab_size",
}


@dataclass(frozen=True)
class Record:
    """The result of one step: a line of the log."""

    step: int  # A record is made after this many steps.
    loss: float  # The loss is the mean over the global batch.
    lr: float
    step_time_s: float
    tokens_per_s: float
    validation_loss: float | None = None

    def line(self) -> bytes:
        """Return the record as a line of JSON."""
        known = {key: value for key, value in asdict(self).items() if value is not None}
        return json.dumps(known).encode() + b"\n"


class History(list[Record]):
    """A list of records that shows itself in five lines.

    Args:
        checkpoint: where the state after the last of these steps is saved.

    Example:
        >>> history = History([Record(1, 4.2, 1e-3, 0.5, 100.0), Record(2, 3.1, 1e-3, 0.5, 100.0)])
        >>> history
        2 steps, 1 to 2
        loss 4.2 at first, 3.1 at last
        >>> history[-1].loss, len(history)
        (3.1, 2)
    """

    def __init__(self, records: Iterable[Record] = (), checkpoint: Path | None = None):
        super().__init__(records)
        self.checkpoint = checkpoint

    def lines(self) -> list[str]:
        """Return what is shown; without what was measured where outputs are compared."""
        if not self:
            return ["no steps"]
        first, last = self[0], self[-1]
        lines = [
            f"{counted(len(self), 'step')}, {first.step} to {last.step}",
            f"loss {first.loss:.3g} at first, {last.loss:.3g} at last",
        ]
        checked = [(r.validation_loss, r.step) for r in self if r.validation_loss is not None]
        if checked:
            lines.append("best validation loss {:.3g}, at step {}".format(*min(checked)))
        seconds = sum(record.step_time_s for record in self)
        if shows_progress() and seconds:
            tokens = sum(record.tokens_per_s * record.step_time_s for record in self)
            lines.append(f"{short(seconds, 's')}, {tokens / seconds:,.0f} tokens/s (measured)")
        if self.checkpoint:
            lines.append(f"checkpoint: {self.checkpoint}")
        return lines

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        head, *rest = (escape(line) for line in self.lines())
        return "<br>".join([f"<b>{head}</b>", *rest])


@dataclass(frozen=True)
class Saved:
    """A checkpoint to go on from, with the records of the steps up to it."""

    path: Path
    tensors: dict[str, np.ndarray]
    meta: dict[str, Any]
    history: list[Record]

    def part(self, prefix: str) -> dict[str, np.ndarray]:
        """Return the tensors whose names begin with a prefix, without it."""
        found = {name: array for name, array in self.tensors.items() if name.startswith(prefix)}
        return {name[len(prefix) :]: array for name, array in found.items()}

    def check_same(
        self, keys: Iterable[str], then: Mapping[str, Any], now: Mapping[str, Any]
    ) -> None:
        """Refuse settings that are not those of the checkpoint.

        Raises:
            TTKitError: the first key that has another value.
        """
        now = json.loads(json.dumps(now))
        for key in sorted(keys):
            if then.get(key) != now[key]:
                rule = f"its {key} is {then.get(key)}, the configuration says {now[key]}"
                cure = f"{key}: {then.get(key)}, or another checkpoint_dir"
                fail(f"load {self.path}", rule, cure)


class RunFolder:
    """The folder of one trainer; one trainer at a time writes into it.

    Args:
        path: created when the trainer first writes.
    """

    def __init__(self, path: Path):
        self.path = path
        self._has_log = False
        # The run continues from this step; with None it continues from the newest checkpoint.
        self._step: int | None = None

    def saved(self, step: int | None) -> Saved | None:
        """Return the checkpoint of a step, or the newest; None if there is none to choose from.

        Raises:
            TTKitError: no checkpoint of that step, or one that no trainer wrote.
        """
        there = {checkpoint.step_of(path): path for path in checkpoint.checkpoints(self.path)}
        asked = f"Trainer in {self.path}"
        if step is None:
            if not there:
                return None
            path = checkpoint.latest(self.path)
        elif step not in there:
            cure = f"one of the steps {', '.join(map(str, there))}"
            rule = f"it has no checkpoint of step {step}"
            fail(asked, rule, cure if there else "check checkpoint_dir")
        else:
            path, self._step = there[step], step
        tensors, meta = checkpoint.load(path)
        if missing := sorted(META - meta.keys()):
            rule = f"{path.name} was saved by another program than the Trainer: no {missing[0]}"
            fail(asked, rule, "another checkpoint_dir")
        return Saved(path, tensors, meta, self._history(meta["step"]))

    def earlier(self) -> str:
        """Say how to go on from the newest checkpoint; "" if there is none."""
        steps = [checkpoint.step_of(path) for path in checkpoint.checkpoints(self.path)]
        how = "step {0} again: Trainer(..., step={0}), or ttkit train --step {0}"
        return how.format(steps[0]) if steps else ""

    def _history(self, step: int) -> list[Record]:
        """Read the records of the steps up to one; lines that are no records are left out."""
        adapter, records = TypeAdapter(Record), dict[int, Record]()
        try:
            lines = (self.path / LOG).read_bytes().splitlines()
        except OSError:  # The checkpoint was moved without the log.
            return []
        for line in lines:
            with contextlib.suppress(ValidationError):
                record = adapter.validate_json(line)
                records[record.step] = record
        return [records[number] for number in sorted(records) if number <= step]

    def begin(self, history: Sequence[Record]) -> None:
        """Start the log with these records; set checkpoints aside that are above the step that was
        asked for.
        """
        if self._has_log:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for path in checkpoint.checkpoints(self.path):
                if self._step is not None and checkpoint.step_of(path) > self._step:
                    path.rename(path.with_name(f"{path.name}.set_aside"))
        except OSError as error:
            _refuse(f"train in {self.path}", error)
        text = b"".join(record.line() for record in history).decode()
        write_whole(self.path / LOG, text, f"write {self.path / LOG}")
        self._has_log = True

    def append(self, record: Record) -> None:
        """Add a step to the log."""
        try:
            with open(self.path / LOG, "ab") as file:
                file.write(record.line())
        except OSError as error:
            self._has_log = False
            _refuse(f"write {self.path / LOG}", error)

    def save(self, step: int, tensors: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Path:
        """Write a checkpoint.

        Raises:
            TTKitError: a tensor holds numbers that are not finite; it cannot be written.
        """
        finite = (np.isfinite(array).all() for array in tensors.values())
        if wrong := [name for name, is_finite in zip(tensors, finite) if not is_finite]:
            rule = f"the update of step {step} left numbers in {wrong[0]} that are not finite"
            again = self.earlier() or "no checkpoint is there yet"
            cure = f"a smaller learning rate or use_clip_grad_norm, from {again}"
            fail(f"save step {step} in {self.path}", f"{rule}, so it is not saved", cure)
        return checkpoint.save(self.path, step, tensors, meta)


def _refuse(asked: str, error: OSError) -> NoReturn:
    rule = f"{error.strerror or error}; checkpoints are untouched"
    fail(asked, rule, "a folder that you may write to, with space left")


def described(trainer: Any) -> str:
    """Return a trainer in a few lines: its run, model, mesh, batch and progress."""
    config, model = trainer.settings.training_config, trainer.model_config
    device = trainer.settings.device_config
    shape = "x".join(map(str, device.mesh_shape))
    axes = [f"{name} on axis {axis}" for name, axis, _ in trainer.layout.strategies()]
    count = sum(math.prod(parameter.global_shape) for parameter in trainer.parameters.values())
    size = f"{counted(model.num_blocks, 'block')}, {count:,} parameters"
    rank = f", rank {trainer.rank} of {trainer.world}" if trainer.world > 1 else ""
    loss = f", loss {trainer.history[-1].loss:.3g}" if trainer.history else ""
    return "\n".join(
        [
            f"{type(trainer).__name__} of {config.project_name}{rank}",
            f"  model: {model.model_type}, {size}",
            f"  mesh: {shape}, {'; '.join(axes) or 'one copy on each chip'}",
            f"  batch: {config.batch_size} sequences of {model.max_sequence_length} tokens",
            f"  step {trainer.steps} of {trainer.max_steps}{loss}; "
            f"checkpoints: {config.checkpoint_dir or 'none'}",
        ]
    )

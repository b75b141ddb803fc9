"""The folder of a run: a log with a line of JSON for each step, and checkpoints to resume from.

A checkpoint is one safetensors file, such as `step_00000100.safetensors`. Its header holds the
caller's `meta` as JSON beside the names, types and shapes of the tensors. The tensors are global
NumPy arrays, so a run may resume on another mesh."""

import contextlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from ttkit.errors import fail
from ttkit.files import AnyPath, write_whole
from ttkit.train.config.settings import Settings
from ttkit.words import counted, short, shows_progress

NAME = re.compile(r"step_(\d{8,})\.safetensors")
Arrays = dict[str, np.ndarray]
LOG = "log.jsonl"
META = "meta"  # This entry of a file's header holds `meta`.
TOKENIZER = {"tokenizer_path", "tokenizer_type"}
# `check_same` does not compare these settings of the model: either a resumed run may change them,
# or the shapes of the tensors show a change.
FREE = {
    *"attention balance_loss capacity_factor dropout_prob".split(),
    *"max_sequence_length runner_type vocab_size".split(),
}


def save(folder: AnyPath, step: int, tensors: Arrays, meta: dict[str, Any], keep: int = 3) -> Path:
    """Write a checkpoint and return its path.

    The file is written under another name and then renamed, so a checkpoint is never incomplete. Of
    the other checkpoints, the `keep` - 1 with the highest steps are kept, and the rest are deleted.
    Writing takes memory for one more copy of the tensors.

    Args:
        folder: created if necessary. One run at a time writes into it.
        step: at least 0; an earlier checkpoint of the same step is replaced.
        tensors: name to NumPy array; bfloat16 values are given as float32, which is exact.
        meta: values that JSON can hold; after loading, tuples are lists and keys are text.
        keep: how many checkpoints are kept, this one included.

    Raises:
        TTKitError: the file cannot be written, for example because the disk is full.

    Example:
        >>> import tempfile
        >>> weights = {"weight": np.ones((1, 1, 2, 2), np.float32)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save(folder, 100, weights, {"step": 100})
        ...     tensors, meta = load(path)
        >>> path.name, tensors["weight"].shape, meta
        ('step_00000100.safetensors', (1, 1, 2, 2), {'step': 100})
    """
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    data = safetensors.numpy.save(arrays, {META: json.dumps(meta)})
    target = Path(folder, f"step_{step:08d}.safetensors")
    for left in target.parent.glob(".step_*"):  # A killed process may have left a partial file.
        left.unlink()
    write_whole(target, data, f"save step {step} in {folder}")
    for path in [path for path in checkpoints(folder).values() if path != target][keep - 1 :]:
        path.unlink()
    return target


def checkpoints(folder: AnyPath) -> dict[int, Path]:
    """Return {step: path} of the files with names of checkpoints, the highest step first; {} if the
    folder does not exist.

    Example:
        >>> checkpoints("/nowhere")
        {}
    """
    matches = ((NAME.fullmatch(path.name), path) for path in Path(folder).glob("step_*"))
    found = {int(match[1]): path for match, path in matches if match}
    return dict(sorted(found.items(), reverse=True))


def load(path: AnyPath) -> tuple[Arrays, dict[str, Any]]:
    """Return the tensors and the meta of a checkpoint.

    Raises:
        TTKitError: the file cannot be read, is incomplete, or was written by another program.
    """
    try:
        with safetensors.safe_open(os.fspath(path), framework="np") as file:
            meta = (file.metadata() or {})[META]
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        fail(
            f"load {path}",
            f"it was cut short or is no checkpoint of ttkit: {error}",
            "another checkpoint: Trainer(..., step=N)",
        )
    return tensors, json.loads(meta)


class Record(NamedTuple):
    """The result of one step: a line of the log."""

    step: int  # The record was made after this many steps.
    loss: float  # The loss is the mean over the global batch.
    lr: float
    step_time_s: float
    tokens_per_s: float
    validation_loss: float | None = None

    def line(self) -> bytes:
        """Return the record as a line of JSON."""
        return json.dumps(self._asdict()).encode() + b"\n"


class History(list[Record]):
    """A list of records whose `repr` is a summary of at most five lines.

    Args:
        checkpoint: the path of the checkpoint after the last of these steps; None if there is none.

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

    def __repr__(self) -> str:
        if not self:
            return "no steps"
        first, last = self[0], self[-1]
        lines = [
            f"{counted(len(self), 'step')}, {first.step} to {last.step}",
            f"loss {first.loss:.3g} at first, {last.loss:.3g} at last",
        ]
        checked = [(r.validation_loss, r.step) for r in self if r.validation_loss is not None]
        if checked:
            lines.append("best validation loss {:.3g}, at step {}".format(*min(checked)))
        seconds = sum(record.step_time_s for record in self)
        if (
            shows_progress() and seconds
        ):  # Measured times vary, so they are not shown when outputs are compared.
            tokens = sum(record.tokens_per_s * record.step_time_s for record in self)
            lines.append(f"{short(seconds, 's')}, {tokens / seconds:,.0f} tokens/s (measured)")
        if self.checkpoint:
            lines.append(f"checkpoint: {self.checkpoint}")
        return "\n".join(lines)


class Saved(NamedTuple):
    """A checkpoint to resume from, with the records of the steps up to it."""

    path: Path
    tensors: Arrays
    meta: dict[str, Any]
    history: list[Record]

    def part(self, prefix: str) -> Arrays:
        """Return the tensors whose names begin with a prefix, by their names without the prefix."""
        return {
            name.removeprefix(prefix): array
            for name, array in self.tensors.items()
            if name.startswith(prefix)
        }

    def check_same(self, settings: Settings) -> None:
        """Raise if the settings have another model or tokenizer than the checkpoint.

        The shapes of the tensors do not show every difference, such as another number of heads.

        Raises:
            TTKitError: a setting differs; the message names the first one.
        """
        before = self.meta["settings"]
        now = json.loads(json.dumps(asdict(settings)))
        model = before["transformer_config"].keys() & now["transformer_config"].keys()
        fixed = {"training_config": TOKENIZER, "transformer_config": model - FREE}
        for section, keys in fixed.items():
            for key in sorted(keys):
                had = before[section].get(key)
                if had != now[section][key]:
                    fail(
                        f"load {self.path}",
                        f"its {key} is {had}, the configuration says {now[section][key]}",
                        f"{key}: {had}, or another checkpoint_dir",
                    )


def saved(folder: Path, step: int | None) -> Saved | None:
    """Return the checkpoint of a step. If `step` is None, return the newest one, or None if there
    is no checkpoint.

    Raises:
        TTKitError: there is no checkpoint of that step.
    """
    there = checkpoints(folder)
    if step is None and not there:
        return None
    if step is not None and step not in there:
        cure = f"one of the steps {', '.join(map(str, there))}" if there else "check checkpoint_dir"
        fail(f"Trainer in {folder}", f"it has no checkpoint of step {step}", cure)
    path = there[max(there) if step is None else step]
    tensors, meta = load(path)
    records: list[Record] = []
    # A checkpoint may have been moved without its log, and a log's last line may be incomplete.
    with contextlib.suppress(OSError, ValueError):
        lines = (folder / LOG).read_text().splitlines()
        records.extend(Record(**json.loads(line)) for line in lines)
    return Saved(path, tensors, meta, [each for each in records if each.step <= meta["step"]])


def begin_log(folder: Path, history: Sequence[Record], step: int) -> None:
    """Start the log with the records of the steps so far. Rename checkpoints of later steps, so
    that no run uses them.
    """
    for later, path in checkpoints(folder).items():
        if later > step:
            path.rename(path.with_name(f"{path.name}.set_aside"))
    write_whole(folder / LOG, b"".join(map(Record.line, history)), f"train in {folder}")


def log(folder: Path, record: Record) -> None:
    """Add a step to the log."""
    with open(folder / LOG, "ab") as file:
        file.write(record.line())

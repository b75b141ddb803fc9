"""The folder of a run: its lock, its log, and the checkpoint that a run goes on from.

One trainer at a time writes into it. The lock is the kernel's, so it ends with its process; the
locked file names the process. The log has a line of JSON for each step."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from pydantic import BaseModel, NonNegativeInt, TypeAdapter, ValidationError

from ttkit.errors import fail
from ttkit.files import write_whole
from ttkit.train.run import checkpoint

LOCK, LOG = ".trainer.lock", "log.jsonl"
# settings of a model that a resumed run may change, or whose change the shapes show
FREE = {
    "balance_loss",
    "capacity_factor",
    "dropout_prob",
    "max_sequence_length",
    "runner_type",
    "vocab_size",
}
_holders: dict[str, RunFolder] = {}  # by path: the folders that this process has locked
os.register_at_fork(after_in_child=_holders.clear)  # a child has none of these locks


@dataclass(frozen=True)
class Record:
    """The result of one step: a line of the log."""

    step: int  # how many steps are done
    loss: float  # the mean over the global batch
    lr: float
    step_time_s: float
    tokens_per_s: float
    validation_loss: float | None = None

    def line(self) -> bytes:
        """Return the record as a line of JSON."""
        known = {key: value for key, value in asdict(self).items() if value is not None}
        return json.dumps(known).encode() + b"\n"


class SavedSettings(BaseModel):
    """The sections that a resumed run is compared with."""

    training_config: dict[str, Any]
    transformer_config: dict[str, Any]


class Meta(BaseModel):
    """The contents of a trainer's checkpoint beside tensors."""

    settings: SavedSettings
    tokenizer: dict[str, Any]
    optimizer_steps: NonNegativeInt
    step: NonNegativeInt


@dataclass(frozen=True)
class Saved:
    """A checkpoint to go on from, with the records of the steps up to it."""

    path: Path
    tensors: dict[str, np.ndarray]
    meta: Meta
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
    """The folder of one trainer.

    Args:
        path: created when the trainer first writes.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock: int | None = None  # an open file
        self._taken_over = self._has_log = False
        self._seen = checkpoint.checkpoints(path)[:1]
        self._step: int | None = None  # to go on from

    def saved(self, step: int | None) -> Saved | None:
        """Return the checkpoint of a step, or the newest; None if there is none to choose from.

        Raises:
            TTKitError: no checkpoint of that step; one that no trainer wrote, or whose numbers are
                not finite.
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
        tensors, found = checkpoint.load(path)
        another = self.earlier(path) or "another checkpoint_dir"
        try:
            meta = Meta.model_validate(found)
        except ValidationError as error:
            first = error.errors()[0]
            where = f"meta {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
            rule = f"{path.name} was saved by another program than the Trainer: {where}"
            fail(asked, rule, another)
        if name := not_finite(tensors):
            fail(asked, f"{path.name} holds numbers that are not finite, in {name}", another)
        return Saved(path, tensors, meta, self._history(meta.step))

    def earlier(self, than: Path | None = None) -> str:
        """Say how to go on from the newest checkpoint, or from the newest below one; "" if there
        is none.
        """
        steps = [checkpoint.step_of(path) for path in checkpoint.checkpoints(self.path)]
        if than is not None:
            steps = [step for step in steps if step < checkpoint.step_of(than)]
        how = "step {0} again: Trainer(..., step={0}), or ttkit train --step {0}"
        return how.format(steps[0]) if steps else ""

    # ------------------------------------------------------------ the lock
    def take(self) -> None:
        """Lock the folder until `release` or the end of this process.

        If another trainer of this process has locked it, that one loses it. Checkpoints above the
        step that was asked for are set aside under another name.

        Raises:
            TTKitError: another process has locked it; its newest checkpoint is another one than
                when this trainer was made.
        """
        if self._lock is not None:
            return
        asked = f"train in {self.path}"
        if self._taken_over:
            rule = "another Trainer of this process has taken the folder over"
            fail(asked, rule, "go on with that one, or make a new one")
        key = os.path.realpath(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if before := _holders.get(key):
                self._lock, before._lock, before._taken_over = before._lock, None, True
            else:
                self._lock = _locked(self.path / LOCK, asked)
            _holders[key] = self
            there = checkpoint.checkpoints(self.path)
            if there[:1] != self._seen:
                now, then = (each[0].name if each else "none" for each in (there[:1], self._seen))
                self.release()
                rule = f"its newest checkpoint was {then} when this trainer was made, and is {now}"
                cure = "make the Trainer again: it goes on from there; or another checkpoint_dir"
                fail(asked, f"{rule}: another one has trained here", cure)
            for path in there:
                if self._step is not None and checkpoint.step_of(path) > self._step:
                    path.rename(path.with_name(f"{path.name}.set_aside"))
        except OSError as error:
            _refuse(asked, error)

    def release(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            del _holders[os.path.realpath(self.path)]
            os.close(self._lock)
            self._lock = None

    # ------------------------------------------------------------ the log
    def _history(self, step: int) -> list[Record]:
        """Read the records of the steps up to one; lines that are no records are left out."""
        adapter, records = TypeAdapter(Record), dict[int, Record]()
        try:
            lines = (self.path / LOG).read_bytes().splitlines()
        except OSError:  # the checkpoint was moved without it
            return []
        for line in lines:
            with contextlib.suppress(ValidationError):
                record = adapter.validate_json(line)
                records[record.step] = record
        return [records[number] for number in sorted(records) if number <= step]

    def begin(self, history: Sequence[Record]) -> None:
        """Lock the folder, and start the log with these records."""
        self.take()
        if not self._has_log:
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
        """Write a checkpoint, after the log of its steps.

        Raises:
            TTKitError: a tensor holds numbers that are not finite; it cannot be written.
        """
        self.take()
        if name := not_finite(tensors):
            rule = f"the update of step {step} left numbers in {name} that are not finite"
            again = self.earlier() or "no checkpoint is there yet"
            cure = f"a smaller learning rate or use_clip_grad_norm, from {again}"
            fail(f"save step {step} in {self.path}", f"{rule}, so it is not saved", cure)
        try:
            with open(self.path / LOG, "ab") as file:
                os.fsync(file.fileno())
        except OSError as error:
            _refuse(f"write {self.path / LOG}", error)
        return checkpoint.save(self.path, step, tensors, meta)


def _locked(path: Path, asked: str) -> int:
    """Open a file and lock it for this process; a forked child does not share the lock."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the two that POSIX names for a locked file
        owner = json.loads(os.read(file, 1000) or b"{}")
        os.close(file)
        rule = "process {} on {} trains there since {}".format(
            *(owner.get(key) for key in ("pid", "host", "since"))
        )
        fail(asked, rule, "another checkpoint_dir, or wait until that one has ended")
    except OSError as error:
        rule = f"no lock on this file system ({error.strerror}); see that one trainer writes there"
        warnings.warn(f"{asked}: {rule}", stacklevel=2)
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    owner = {"host": socket.gethostname(), "pid": os.getpid(), "since": since}
    os.ftruncate(file, 0)
    os.write(file, json.dumps(owner).encode())
    return file


def _refuse(asked: str, error: OSError) -> NoReturn:
    rule = f"{error.strerror or error}; checkpoints are untouched"
    fail(asked, rule, "a folder that you may write to, with space left")


def not_finite(tensors: Mapping[str, np.ndarray]) -> str:
    """Return the name of the first tensor that holds nan or infinity; "" if all are finite.

    Example:
        >>> not_finite({"a": np.ones(2), "b": np.array([1, np.nan])})
        'b'
    """
    return next((name for name, array in tensors.items() if not np.isfinite(array).all()), "")

"""The folder of a run: who trains there, its log, and the checkpoint that a run goes on from.

One trainer at a time writes into it. The lock is the kernel's (flock), so it ends with its process,
however that ends; the file beside it says who holds it. The log has a line of JSON for each step
and grows by one line a step."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from pydantic import BaseModel, NonNegativeInt, TypeAdapter, ValidationError

from ttkit.errors import fail
from ttkit.files import write_whole
from ttkit.train import checkpoint

LOCK, LOG = ".trainer.lock", "log.jsonl"
_holders: weakref.WeakValueDictionary[str, RunFolder] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Record:
    """What one step did: a line of the log."""

    step: int  # how many steps are done
    loss: float  # the mean over the global batch
    lr: float
    step_time_s: float
    tokens_per_s: float
    validation_loss: float | None = None

    def line(self) -> bytes:
        """It as JSON, and the end of the line."""
        known = {key: value for key, value in asdict(self).items() if value is not None}
        return json.dumps(known).encode() + b"\n"


class SavedSettings(BaseModel):
    """The sections that a resumed run is compared with."""

    training_config: dict[str, Any]
    transformer_config: dict[str, Any]


class Meta(BaseModel):
    """What a trainer's checkpoint holds beside tensors."""

    settings: SavedSettings
    tokenizer: dict[str, Any]
    optimizer_steps: NonNegativeInt
    step: NonNegativeInt
    history: list[Record] = []  # of an older ttkit, which had it here and not in the log alone


@dataclass(frozen=True)
class Saved:
    """A checkpoint to go on from, with the records of the steps up to it."""

    path: Path
    tensors: dict[str, np.ndarray]
    meta: Meta
    history: list[Record]


class RunFolder:
    """The folder of one trainer.

    Args:
        path: where; made when the trainer first writes.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock: int | None = None  # an open file
        self._unlock: Any = None  # closes it, also of a trainer that nobody closes
        self._taken_over = False
        self._seen = checkpoint.checkpoints(path)[:1]
        self._going_on_from: int | None = None
        # of a log that holds just the steps of this run; -1 where it must be written anew
        self._log_size = -1

    def saved(self, resume: bool, step: int | None) -> Saved | None:
        """The checkpoint to go on from: that of a step, or the newest;

        None where there is none to choose from.

        Raises:
            TTKitError: no checkpoint of that step; resume is False and there are checkpoints; one
            that no trainer
                wrote, or whose numbers are not finite.
        """
        there = checkpoint.checkpoints(self.path)
        asked = f"Trainer in {self.path}"
        if not there and step is None:
            return None
        if not resume:
            rule = (
                "resume=False, and there are checkpoints of another run, "
                "whose steps would come between the new ones"
            )
            fail(asked, rule, "another checkpoint_dir, or remove the old ones")
        if step is None:
            path = checkpoint.latest(self.path)
        else:
            named = [path for path in there if checkpoint.step_of(path) == step]
            steps = ", ".join(str(checkpoint.step_of(path)) for path in there)
            if not named:
                fail(
                    asked,
                    f"it has no checkpoint of step {step}",
                    f"one of the steps {steps}" if there else "check checkpoint_dir",
                )
            path = named[0]
            self._going_on_from = step
        tensors, found = checkpoint.load(path)
        try:
            meta = Meta.model_validate(found)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            rule = (
                f"{path.name} was saved by another program than the Trainer: meta {where}: "
                f"{first['msg'].lower()}"
            )
            fail(asked, rule, self.earlier(path) or "another checkpoint_dir")
        if name := not_finite(tensors):
            rule = f"{path.name} holds numbers that are not finite, in {name}"
            fail(asked, rule, self.earlier(path) or "another checkpoint_dir")
        return Saved(path, tensors, meta, meta.history or self._history(meta.step))

    def earlier(self, than: Path | None = None) -> str:
        """How to go on from the newest checkpoint, or from the newest below one; "" where there
        is none.
        """
        there = checkpoint.checkpoints(self.path)
        steps = [
            checkpoint.step_of(path)
            for path in there
            if than is None or checkpoint.step_of(path) < checkpoint.step_of(than)
        ]
        return (
            f"step {steps[0]} again: Trainer(..., step={steps[0]}), "
            f"or ttkit train --step {steps[0]}"
            if steps
            else ""
        )

    # ------------------------------------------------------------ the lock
    def take(self) -> None:
        """Hold the folder from now on, until `release` or the end of this process.

        Where a trainer of this process holds it, that one gives it up. Checkpoints above the step
        that was asked for are set aside: they get another name.

        Raises:
            TTKitError: another process holds it; its checkpoints are no longer those that this
            trainer has seen.
        """
        if self._lock is not None:
            return
        asked = f"train in {self.path}"
        if self._taken_over:
            fail(
                asked,
                "another Trainer of this process has taken the folder over",
                "go on with that one, or make a new one",
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            key = os.path.realpath(self.path)
            before = _holders.get(key)
            file = self._locked(asked) if before is None else before._give_up()
            self._lock, self._unlock = file, weakref.finalize(self, os.close, file)
            _holders[key] = self
            there = checkpoint.checkpoints(self.path)
            if there[:1] != self._seen:
                now, then = (each[0].name if each else "none" for each in (there[:1], self._seen))
                rule = (
                    f"its newest checkpoint was {then} when this trainer was made, "
                    f"and is {now}: another one has trained here"
                )
                self.release()
                fail(
                    asked,
                    rule,
                    "make the Trainer again: it goes on from there; or another checkpoint_dir",
                )
            for path in there:
                if (
                    self._going_on_from is not None
                    and checkpoint.step_of(path) > self._going_on_from
                ):
                    path.rename(path.with_name(f"{path.name}.set_aside"))
        except OSError as error:
            self._refuse(asked, error)

    def _locked(self, asked: str) -> int:
        path = self.path / LOCK
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                who = json.loads(os.read(file, 1000) or b"{}")
                os.close(file)
                rule = (
                    f"process {who.get('pid')} on {who.get('host')} trains there since "
                    f"{who.get('since')}"
                )
                fail(asked, rule, "another checkpoint_dir, or wait until that one has ended")
            except OSError as error:
                warnings.warn(
                    f"{asked}: no lock on this file system ({error.strerror}); "
                    "see that one trainer writes there",
                    stacklevel=2,
                )
            if path.exists() and os.path.samestat(os.fstat(file), os.stat(path)):
                break
            os.close(file)  # its holder removed it meanwhile
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        os.ftruncate(file, 0)
        os.write(
            file,
            json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": since}).encode(),
        )
        return file

    def _give_up(self) -> int:
        _, _, (file,), _ = self._unlock.detach()
        self._lock, self._taken_over = None, True
        return file

    def release(self) -> None:
        """Let others train here."""
        if self._lock is not None:
            (self.path / LOCK).unlink(missing_ok=True)
            self._unlock()
            self._lock = None
            _holders.pop(os.path.realpath(self.path), None)

    # ------------------------------------------------------------ the log
    def _history(self, step: int) -> list[Record]:
        """The records of the steps up to one, as the log has them; lines that are none are left
        out.
        """
        records: dict[int, Record] = {}
        try:
            lines = (self.path / LOG).read_bytes().splitlines(keepends=True)
        except OSError:  # the checkpoint was moved without it
            return []
        for line in lines:
            try:
                record = TypeAdapter(Record).validate_json(line)
            except ValidationError:
                continue
            if record.step <= step:
                records[record.step] = record
        found = [records[step] for step in sorted(records)]
        if len(found) == len(lines):
            self._log_size = sum(map(len, lines))
        return found

    def begin(self, history: Sequence[Record]) -> None:
        """Take the folder; make the log hold these records and no others."""
        self.take()
        log = self.path / LOG
        if not (log.is_file() and log.stat().st_size == self._log_size):
            text = b"".join(record.line() for record in history).decode()
            write_whole(log, text, f"write {log}")
            self._log_size = len(text)

    def append(self, record: Record) -> None:
        """Add a step to the log."""
        line = record.line()
        try:
            with open(self.path / LOG, "ab") as file:
                file.write(line)
        except OSError as error:
            self._refuse(f"write {self.path / LOG}", error)
        self._log_size += len(line)

    def save(self, step: int, tensors: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Path:
        """Write a checkpoint, after the log of its steps.

        Raises:
            TTKitError: a tensor holds numbers that are not finite; it cannot be written.
        """
        self.take()
        if name := not_finite(tensors):
            again = self.earlier() or "no checkpoint is there yet"
            rule = (
                f"the update of step {step} left numbers in {name} that are not finite, "
                "so it is not saved"
            )
            fail(
                f"save step {step} in {self.path}",
                rule,
                f"a smaller learning rate or use_clip_grad_norm, from {again}",
            )
        try:
            with open(self.path / LOG, "ab") as file:
                os.fsync(file.fileno())
        except OSError as error:
            self._refuse(f"write {self.path / LOG}", error)
        return checkpoint.save(self.path, step, tensors, meta)

    def _refuse(self, asked: str, error: OSError) -> NoReturn:
        rule = f"{error.strerror or error}; checkpoints are untouched"
        fail(asked, rule, "a folder that you may write to, with space left")


def not_finite(tensors: Mapping[str, np.ndarray]) -> str:
    """The name of the first tensor that holds nan or infinity; "" where all are finite.

    Example:
        >>> not_finite({"a": np.ones(2), "b": np.array([1, np.nan])})
        'b'
    """
    return next((name for name, array in tensors.items() if not np.isfinite(array).all()), "")


def _in_a_fork() -> None:
    """Close a child's copy of the lock: a child that lives on must not hold it for its parent."""
    for holder in list(_holders.values()):
        holder._unlock()
        holder._lock = None
    _holders.clear()


os.register_at_fork(after_in_child=_in_a_fork)

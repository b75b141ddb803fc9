"""Checkpoints: files of tensors, written atomically and checked by a digest.

A checkpoint is one safetensors file, `step_00000100.safetensors`. Beside the tensors' names, types
and shapes, its header holds the format version, the caller's `meta` as JSON and a digest of all of
it. So `load` recognizes a file that was truncated, changed or written by another program. Tensors
are the global NumPy arrays: a run may resume on another mesh."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import safetensors
import safetensors.numpy

from ttkit.errors import TTKitError, fail

MARK = "ttkit_checkpoint"  # This entry of the header names the format.
FORMAT = "1"  # It changes when an older ttkit cannot read what `save` writes.
NAME = re.compile(r"step_(\d{8,})\.safetensors")
SHOWN = 3  # A message lists at most so many names.


class DamagedCheckpoint(TTKitError):
    """A file that is no whole checkpoint of this kit."""


def save(
    folder: str | os.PathLike[str],
    step: int,
    tensors: Mapping[str, np.ndarray],
    meta: Mapping[str, Any],
    keep: int = 3,
) -> Path:
    """Write a checkpoint and return its path; when this returns, it is on the disk.

    The file is written under another name, flushed, and renamed: whenever the process or the
    machine stops, earlier checkpoints are untouched. Of the other checkpoints the `keep` - 1 with
    the highest steps stay. Writing takes memory for one more copy of the tensors.

    Args:
        folder: created if necessary. One run at a time writes into it.
        step: at least 0; an earlier checkpoint of the same step is replaced.
        tensors: name to NumPy array; bfloat16 as float32, which holds it exactly.
        meta: anything that JSON can hold; tuples come back as lists, keys as text.
        keep: how many checkpoints stay, this one included.

    Raises:
        TTKitError: it cannot be written (folder, permissions, full disk).

    Example:
        >>> import tempfile
        >>> weights = {"weight": np.ones((1, 1, 2, 2), np.float32)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save(folder, 100, weights, {"step": 100})
        ...     tensors, meta = load(latest(folder))
        >>> path.name, tensors["weight"].shape, meta
        ('step_00000100.safetensors', (1, 1, 2, 2), {'step': 100})
    """
    asked = f"save step {step} in {folder}"
    text = json.dumps(dict(meta))
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    marks = {MARK: FORMAT, "meta": text, "digest": _digest(arrays, text)}
    data = safetensors.numpy.save(arrays, marks)
    target = Path(folder, f"step_{step:08d}.safetensors")
    beside = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # A killed process may have left a partial file.
        for left in target.parent.glob(".step_*.safetensors.part"):
            left.unlink()
        try:
            _write(beside, data)
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # The new name must be on the disk before an old file is removed.
        finally:
            os.close(directory)
        for path in [path for path in checkpoints(folder) if path != target][keep - 1 :]:
            path.unlink()
    except OSError as error:
        rule = f"it cannot be written: {error.strerror or error}; earlier checkpoints are untouched"
        room = f"{len(data) / 1e6:,.1f} MB to spare"
        fail(asked, rule, f"a folder that you may write to, with {room}")
    return target


def checkpoints(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the files named like checkpoints, highest step first; none if there is no folder.

    Example:
        >>> checkpoints("/nowhere")
        []
    """
    found = [path for path in Path(folder).glob("step_*") if NAME.fullmatch(path.name)]
    return sorted(filter(Path.is_file, found), key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """Return the step in a checkpoint's name.

    Example:
        >>> step_of(Path("step_00000100.safetensors"))
        100
    """
    match = NAME.fullmatch(path.name)
    assert match
    return int(match[1])


def latest(folder: str | os.PathLike[str]) -> Path:
    """Return the whole checkpoint with the highest step; warn of damaged ones above it.

    Raises:
        TTKitError: no such folder, no checkpoint in it, or none that is whole.
    """
    asked = f"look for the latest checkpoint in {folder}"
    if not Path(folder).is_dir():
        cure = "check checkpoint_dir; relative paths start at the folder you are in"
        fail(asked, "there is no such folder", cure)
    reasons = []
    for path in checkpoints(folder):
        try:
            load(path)
        except DamagedCheckpoint as error:
            reasons.append(str(error).partition("\n")[0])
            continue
        for reason in reasons:
            warnings.warn(f"{reason}; passed over for {path.name}", stacklevel=2)
        return path
    if not reasons:
        fail(asked, "it holds no step_NNNNNNNN.safetensors", "the folder that save() was given")
    rule = f"none of {len(reasons)} is whole:\n  " + "\n  ".join(reasons)
    cure = "an older copy, or another checkpoint_dir to start again"
    fail(asked, rule, cure, DamagedCheckpoint)


def load(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors and the meta of a checkpoint, checked against its digest.

    Raises:
        DamagedCheckpoint: the file was truncated, changed, written by another program, or is no
            safetensors file.
        TTKitError: it does not exist or cannot be read.
    """
    asked = f"load {path}"

    def damaged(rule: str, cure: str = "an older checkpoint: latest(folder) finds it") -> NoReturn:
        fail(asked, rule, cure, DamagedCheckpoint)

    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        rule = f"it cannot be read: {getattr(error, 'strerror', None) or error}"
        fail(asked, rule, "latest(folder) finds one")
    tensors = {}
    try:
        with safetensors.safe_open(os.fspath(path), framework="np") as whole:
            marks = whole.metadata() or {}
            if marks.get(MARK) == FORMAT:
                tensors = {name: whole.get_tensor(name) for name in whole.keys()}
    except Exception as error:  # The library raises many types of errors for a wrong header.
        damaged(f"its {size:,} bytes were cut short or are no safetensors file: {error}")
    if MARK not in marks:
        cure = "safetensors.numpy.load_file(path) for the tensors alone"
        damaged("it is a safetensors file, but no checkpoint of ttkit", cure)
    if marks[MARK] != FORMAT:
        rule = f"its format is {marks[MARK][:20]}, this ttkit reads {FORMAT}"
        damaged(rule, "the ttkit that wrote it")
    meta = marks.get("meta", "")
    if marks.get("digest") != _digest(tensors, meta):
        damaged("its content does not agree with its digest: it was changed after it was written")
    return tensors, json.loads(meta)


def check_matches(
    expected: Mapping[str, Sequence[int]],
    tensors: Mapping[str, np.ndarray],
    asked: str = "load into the model",
) -> None:
    """Check that tensors have the names and shapes of a model's parameters.

    Args:
        expected: name to shape.
        tensors: those of a checkpoint.
        asked: the start of a message.

    Raises:
        TTKitError: with the first few tensors that differ.

    Example:
        >>> check_matches({"bias": (1, 1, 1, 4)}, {"bias": np.zeros((1, 1, 1, 4), np.float32)})
    """
    shapes = {name: list(array.shape) for name, array in tensors.items()}
    model = {name: list(shape) for name, shape in expected.items()}
    wrong = [
        f"{name} is {shapes.get(name, 'missing')}, the model has {model.get(name, 'none')}"
        for name in {**model, **shapes}
        if shapes.get(name) != model.get(name)
    ]
    if wrong:
        rule = "\n  ".join([f"{len(wrong)} tensors are not those of the model", *wrong[:SHOWN]])
        fail(asked, rule, "the model configuration that the checkpoint was made with")


def _digest(tensors: Mapping[str, np.ndarray], meta: str) -> str:
    """Return the SHA-256 of meta and of each tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(FORMAT.encode())
    for name, array in sorted(tensors.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    digest.update(meta.encode())
    return digest.hexdigest()


def _write(path: Path, data: bytes) -> None:
    """Write a new file; it is on the disk when this returns."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())

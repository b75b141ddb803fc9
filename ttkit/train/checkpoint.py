"""Checkpoints: files of tensors that are there whole or not at all, and that say so themselves.

A checkpoint is one safetensors file, `step_00000100.safetensors`. Its header holds, beside the
tensors' names, types and shapes, the format version, the caller's `meta` as JSON and a digest of
all of it, so that a file that was cut, mixed up or written by another program is told from a good
one. Tensors are the global ones, as NumPy has them: a run may resume on another mesh."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from ttkit.errors import TTKitError, fail

MARK = "ttkit_checkpoint"  # the entry of the header that says whose file it is
FORMAT = "1"  # of what `save` writes; another number where an older ttkit could not read it
NAME = re.compile(r"step_(\d{8,})\.safetensors")
DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
)
CHUNK = 1 << 26  # bytes for one write: a full disk shows early
# of a safetensors header, which ends at 100 MB and has the tensors' names too
META_BYTES = 90_000_000
SHOWN = 3  # names in a message


class DamagedCheckpoint(TTKitError):
    """A file that is no whole checkpoint of this kit."""


def save(
    folder: str | os.PathLike[str],
    step: int,
    tensors: Mapping[str, Any],
    meta: Mapping[str, Any],
    keep: int = 3,
) -> Path:
    """Write a checkpoint and return its path; when this returns, it is on the disk.

    The file is written under another name beside, flushed, and renamed: whenever the process or the
    machine stops, the checkpoints that were there are untouched. Of the other whole ones the `keep`
    - 1 with the highest steps stay, older ones are removed. Writing takes memory for one more copy
    of the tensors.

    Args:
        folder: where; made if it is not there. One run at a time writes into it.
        step: at least 0; an earlier checkpoint of the same step is replaced.
        tensors: name to NumPy array of whole numbers, bool or float16 to float64; bfloat16 as
        float32, which holds it exactly. meta: anything that JSON can hold, and as JSON gives it
        back: tuples as lists, keys as text. keep: how many checkpoints stay, this one included.

    Raises:
        TTKitError: it cannot be written (folder, permissions, full disk), or the tensors or meta
        are of another kind.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save(folder, 100, {"weight": np.ones((1, 1, 2, 2), np.float32)}, {"step": 100})
        ...     tensors, meta = load(latest(folder))
        >>> path.name, tensors["weight"].shape, meta
        ('step_00000100.safetensors', (1, 1, 2, 2), {'step': 100})
    """
    asked = f"save step {step} in {folder}"
    if step < 0 or keep < 1:
        fail(asked, f"step is at least 0 and keep at least 1, not {keep}", "keep=3", ValueError)
    data = _serialized(tensors, meta, asked)
    target = Path(folder, f"step_{step:08d}.safetensors")
    if target.is_dir():
        fail(asked, f"{target.name} is a folder there", "remove or rename it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent, asked) as directory:
            # of a process that was killed: ours is the only one
            for left in target.parent.glob(".step_*.safetensors.part"):
                left.unlink()
            beside = target.with_name(f".{target.name}.part")
            try:
                _write(beside, data)
                os.replace(beside, target)
            finally:
                beside.unlink(missing_ok=True)
            os.fsync(directory)  # the new name, too, is on the disk before an old file goes
            _remove_old(
                [path for path in checkpoints(folder) if path != target and _is_complete(path)][
                    keep - 1 :
                ]
            )
    except OSError as error:
        rule = (
            f"it cannot be written: {error.strerror or error}; "
            "checkpoints that were there are untouched"
        )
        fail(
            asked, rule, f"a folder that you may write to, with {len(data) / 1e6:,.1f} MB to spare"
        )
    return target


def checkpoints(folder: str | os.PathLike[str]) -> list[Path]:
    """The files in a folder that are named like checkpoints, highest step first; none where
    there is no folder.

    What has such a name and is no file, such as a folder or a dangling link, is left out.

    Example:
        >>> checkpoints("/nowhere")
        []
    """
    return [path for path in _named(folder) if os.path.isfile(path)]


def _named(folder: str | os.PathLike[str]) -> list[Path]:
    try:
        found = [path for path in Path(folder).iterdir() if NAME.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(found, key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """The step in a checkpoint's name.

    Example:
        >>> step_of(Path("step_00000100.safetensors"))
        100
    """
    match = NAME.fullmatch(path.name)
    if match is None:
        fail(
            f"read the step of {path.name}",
            "its name is not step_NNNNNNNN.safetensors",
            "checkpoints(folder) lists them",
        )
    return int(match[1])


def latest(folder: str | os.PathLike[str]) -> Path:
    """The whole checkpoint with the highest step; a damaged one above it is passed over with a
    warning that names it.

    Raises:
        TTKitError: no such folder, no checkpoint in it, or none that is whole.
    """
    asked = f"look for the latest checkpoint in {folder}"
    if not Path(folder).is_dir():
        fail(
            asked,
            "there is no such folder",
            "check checkpoint_dir; relative paths start at the folder you are in",
        )
    found = _named(folder)
    if not found:
        fail(asked, "it holds no step_NNNNNNNN.safetensors", "the folder that save() was given")
    reasons = []
    for path in found:
        try:
            load(path)
        except DamagedCheckpoint as error:
            reasons.append(str(error).partition("\n")[0])
            continue
        for reason in reasons:
            warnings.warn(f"{reason}; passed over for {path.name}", stacklevel=2)
        return path
    fail(
        asked,
        f"none of {len(found)} is whole:\n  " + "\n  ".join(reasons),
        "an older copy, or another checkpoint_dir to start again",
        DamagedCheckpoint,
    )


def load(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors and the meta of a checkpoint, checked against its digest.

    Raises:
        DamagedCheckpoint: cut short, changed, of another program, or no safetensors file at all.
        TTKitError: not there, or it cannot be read.
    """
    asked = f"load {path}"
    # to open a named pipe would wait for its writer
    if os.path.lexists(path) and not os.path.isfile(path):
        kind = (
            "a folder"
            if os.path.isdir(path)
            else "a link to nothing"
            if os.path.islink(path)
            else "no regular file"
        )
        fail(
            asked,
            f"it is {kind}",
            "a checkpoint file: checkpoints(folder) lists them",
            DamagedCheckpoint,
        )
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        fail(
            asked,
            f"it cannot be read: {getattr(error, 'strerror', None) or error}",
            "latest(folder) finds one",
        )
    try:
        with _opened(path) as whole:
            marks = whole.metadata() or {}
            tensors = (
                {name: whole.get_tensor(name) for name in whole.keys()}
                if marks.get(MARK) == FORMAT
                else {}
            )
    # all of them seen, for headers that lie
    except (
        safetensors.SafetensorError,
        OSError,
        TypeError,
        ValueError,
        AttributeError,
        KeyError,
    ) as error:
        fail(
            asked,
            f"its {size:,} bytes were cut short or are no safetensors file: {error}",
            "an older checkpoint: latest(folder) finds it",
            DamagedCheckpoint,
        )
    if MARK not in marks:
        rule = "it is a safetensors file, but no checkpoint of ttkit"
        fail(
            asked,
            rule,
            "safetensors.numpy.load_file(path) for the tensors alone",
            DamagedCheckpoint,
        )
    if marks[MARK] != FORMAT:
        fail(
            asked,
            f"its format is {marks[MARK][:20]}, this ttkit reads {FORMAT}",
            "the ttkit that wrote it",
            DamagedCheckpoint,
        )
    meta = marks.get("meta", "")
    if marks.get("digest") != _digest(tensors, meta):
        fail(
            asked,
            "its content does not agree with its digest: it was changed after it was written",
            "an older checkpoint",
            DamagedCheckpoint,
        )
    try:
        found = json.loads(meta)
    except ValueError as error:
        fail(asked, f"its meta is not JSON: {error}", "an older checkpoint", DamagedCheckpoint)
    if not isinstance(found, dict):
        fail(
            asked,
            f"its meta is a {type(found).__name__}, not a mapping",
            "an older checkpoint",
            DamagedCheckpoint,
        )
    return tensors, found


def check_matches(
    expected: Mapping[str, Sequence[int]],
    tensors: Mapping[str, np.ndarray],
    asked: str = "load into the model",
) -> None:
    """Check that tensors are those that a model has: the same names, each with its shape.

    Args:
        expected: name to shape.
        tensors: what a checkpoint holds.
        asked: how a message starts.

    Raises:
        TTKitError: with the first few names that are missing, in surplus, or of another shape.

    Example:
        >>> check_matches({"bias": (1, 1, 1, 4)}, {"bias": np.zeros((1, 1, 1, 4), np.float32)})
    """
    missing = [f"{name} {list(shape)}" for name, shape in expected.items() if name not in tensors]
    surplus = [
        f"{name} {list(array.shape)}" for name, array in tensors.items() if name not in expected
    ]
    other = [
        f"{name} is {list(tensors[name].shape)}, the model has {list(shape)}"
        for name, shape in expected.items()
        if name in tensors and tuple(tensors[name].shape) != tuple(shape)
    ]
    rules = [
        f"{len(names)} {called}: {'; '.join(names[:SHOWN])}"
        + ("; ..." if len(names) > SHOWN else "")
        for called, names in (
            ("missing", missing),
            ("too many", surplus),
            ("of another shape", other),
        )
        if names
    ]
    if rules:
        fail(
            asked,
            "the tensors are not those of the model\n  " + "\n  ".join(rules),
            "the model configuration that the checkpoint was made with",
        )


def _serialized(tensors: Mapping[str, Any], meta: Mapping[str, Any], asked: str) -> bytes:
    arrays = {}
    for name, value in tensors.items():
        array = np.asarray(value, order="C")
        if array.dtype.name not in DTYPES:
            fail(
                asked,
                f"{name} is of type {array.dtype}",
                "float32 for bfloat16, otherwise one of " + ", ".join(sorted(DTYPES)),
                TypeError,
            )
        arrays[name] = array.astype(array.dtype.newbyteorder("<"), copy=False)
    try:
        text = json.dumps(dict(meta))
    except (TypeError, ValueError) as error:
        fail(
            asked,
            f"meta cannot be written as JSON: {error}",
            "numbers, text, lists and dictionaries; int() and float() of NumPy's numbers",
            TypeError,
        )
    if len(text) > META_BYTES:
        rule = (
            f"meta takes {len(text) / 1e6:,.1f} MB as JSON, and a header holds "
            f"{META_BYTES / 1e6:,.0f} MB"
        )
        fail(
            asked,
            rule,
            "arrays as tensors, and what grows with each step in a file of its own",
            ValueError,
        )
    marks = {MARK: FORMAT, "meta": text, "digest": _digest(arrays, text)}
    return safetensors.numpy.save(arrays, marks)


def _digest(tensors: Mapping[str, np.ndarray], meta: str) -> str:
    """SHA-256 of meta and of each tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(FORMAT.encode())
    for name, array in sorted(tensors.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    digest.update(meta.encode())
    return digest.hexdigest()


def _opened(path: str | os.PathLike[str]) -> Any:
    """The file with its header read; the library refuses one whose length is not what its header
    says.
    """
    return safetensors.safe_open(os.fspath(path), framework="np")


def _is_complete(path: Path) -> bool:
    """Whether a file has the header of a checkpoint and the length that this header says; its
    content is not read.
    """
    try:
        with _opened(path) as file:
            return MARK in (file.metadata() or {})
    except (OSError, safetensors.SafetensorError):
        return False


@contextlib.contextmanager
def _locked(folder: Path, asked: str) -> Iterator[int]:
    """The open folder, with a lock that ends with this process, however that ends: no process
    writes where another one does.
    """
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(
                asked,
                "another process is writing a checkpoint into this folder just now",
                "a folder for each run; of several ranks, one saves",
            )
        except OSError:
            pass  # a file system without locks
        yield directory
    finally:
        os.close(directory)


def _write(path: Path, data: bytes) -> None:
    """A new file with this content, on the disk when this returns."""
    view = memoryview(data)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        while view:
            view = view[os.write(file, view[:CHUNK]) :]
        os.fsync(file)
    finally:
        os.close(file)


def _remove_old(paths: Sequence[Path]) -> None:
    for path in paths:
        try:
            path.unlink()
        except OSError as error:  # the new checkpoint is there: no reason to stop
            warnings.warn(
                f"the old checkpoint {path} cannot be removed: {error.strerror}", stacklevel=3
            )

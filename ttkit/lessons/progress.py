"""What a learner has predicted, tried and passed, kept in one file for all folders of lessons."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from ttkit.files import write_whole
from ttkit.words import in_notebook

PASSED = "passed"  # A passed exercise keeps this result when a later answer fails.


def place() -> Path | None:
    """Return the file: `TTKIT_LEARNER`, else lessons.json where the system keeps such things.

    Return None where `TTKIT_LEARNER` is empty: nothing is kept.
    """
    named = os.environ.get("TTKIT_LEARNER")
    if named is not None:
        return Path(named) if named else None
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "ttkit", "lessons.json")


def kept() -> dict[str, dict[str, Any]]:
    """Return what is kept: {"predictions": {name: guess}, "exercises": {name: word},
    "challenges": {name: the best entries, [score, words] each}}.
    """
    found: dict[str, dict[str, Any]] = {"predictions": {}, "exercises": {}, "challenges": {}}
    if path := place():
        with contextlib.suppress(OSError, ValueError):  # The file is not there yet, or is damaged.
            found |= json.loads(path.read_text(encoding="utf-8"))
    return found


def keep(kind: str, name: str, what) -> None:
    """Keep a learner's prediction or result; only notebooks keep any.

    A lesson goes on where the file cannot be written: progress is not worth an error.
    """
    path = place()
    if path is None or not in_notebook():
        return
    all_kept = kept()
    if all_kept[kind].get(name) == PASSED:
        return
    all_kept[kind][name] = what
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(all_kept, indent=1), f"keep your progress in {path}")
    except (OSError, RuntimeError):
        return

"""The progress of a learner: predictions, and results of exercises and challenges. One file keeps
it for all folders of lessons."""

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

from ttkit.files import write_whole
from ttkit.words import in_notebook

PREDICT, CHECK = (re.compile(rf'lessons\.{call}\(\s*"([^"]+)"') for call in ("predict", "check"))
PASSED = "passed"  # A passed exercise keeps this result when a later answer fails.


def file() -> Path | None:
    """Return the file: `TTKIT_LEARNER`, or else `ttkit/lessons.json` in the XDG state
    folder.

    Return None where `TTKIT_LEARNER` is empty: then no progress is kept.
    """
    named = os.environ.get("TTKIT_LEARNER")
    if named is not None:
        return Path(named) if named else None
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "ttkit", "lessons.json")


def saved() -> dict[str, dict[str, Any]]:
    """Return what is kept: {"predictions": {name: guess}, "exercises": {name: "tried" or PASSED},
    "challenges": {name: [[score, words], ...]}}.
    """
    found: dict[str, dict[str, Any]] = {"predictions": {}, "exercises": {}, "challenges": {}}
    if path := file():
        with contextlib.suppress(OSError, ValueError):  # The file is not there yet, or is damaged.
            found |= json.loads(path.read_text(encoding="utf-8"))
    return found


def save(kind: str, name: str, what) -> None:
    """Keep a learner's prediction or result. Outside a notebook nothing is kept.

    If the file cannot be written, no error is raised, so that the lesson can go on.
    """
    path = file()
    if path is None or not in_notebook():
        return
    all_kept = saved()
    if all_kept[kind].get(name) == PASSED:
        return
    all_kept[kind][name] = what
    with contextlib.suppress(RuntimeError):
        write_whole(path, json.dumps(all_kept, indent=1), f"keep your progress in {path}")


def contents(path: Path) -> list[list[str]]:
    """Return the names of a lesson's predictions, and those of its exercises."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return [list(dict.fromkeys(call.findall(code))) for call in (PREDICT, CHECK)]


def page_with_ticks(page: Path) -> str:
    """Return the text of the welcome page with a tick at each lesson whose exercises are passed.

    A lesson passed in part shows the count: "03 1/3". The page lies beside the lessons.
    """
    text = page.read_text(encoding="utf-8")
    results = saved()["exercises"]
    for path in page.parent.glob("[0-9]*.ipynb"):
        exercises = contents(path)[1]
        passed = sum(results.get(name) == PASSED for name in exercises)
        if passed:
            number = path.name[:2]
            mark = "✓" if passed == len(exercises) else f"{passed}/{len(exercises)}"
            text = text.replace(f"\n| {number} |", f"\n| {number}\xa0{mark} |")
    return text

"""A learner's folder: copies of the lessons, configurations and examples. A file that the learner
has changed is never overwritten."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import ttkit
from ttkit.errors import fail
from ttkit.files import write_whole
from ttkit.lessons.progress import page_with_ticks
from ttkit.words import in_notebook

PARTS = ("notebooks", "configs", "examples")
# This file in a learner's folder has {file: hash} for each file that was copied there.
RECORD = Path(".ttkit", "copied.json")
IGNORED = ("__pycache__", ".ipynb_checkpoints", "ruff.toml")


def course() -> Path:
    """Return the folder of the course: in the installed package, or a clone of the repository.

    Raises:
        TTKitError: this installation has no lessons.
    """
    package = Path(ttkit.__file__).parent
    for folder in (package / "course", package.parent):
        if (folder / "notebooks" / "welcome.md").is_file():
            return folder
    fail("the lessons", f"there are none beside {package}", "pip install --force-reinstall ttkit")


def course_map() -> None:
    """Show the lessons, with a tick at each lesson whose exercises you have all passed."""
    rows = page_with_ticks(course() / "notebooks" / "welcome.md").splitlines()
    table = "\n".join(row for row in rows if row.startswith("|"))
    if in_notebook():
        from IPython.display import display

        display({"text/markdown": table, "text/plain": table}, raw=True)
    else:
        print(table)


def files(source: Path) -> Iterator[Path]:
    """Yield every file of the course, relative to its folder."""
    for part in PARTS:
        for path in sorted((source / part).rglob("*")):
            if path.is_file() and not any(name in path.parts for name in IGNORED):
                yield path.relative_to(source)


def copy_course(folder: Path) -> list[str]:
    """Copy the course into a folder; return a line about each changed file with a newer version.

    Lessons are copied without outputs, so that a learner sees no answer before running a cell.
    A file that the learner has not changed is brought up to date. A file that the learner has
    changed stays; the newer one goes beside it, as 03_spmd_execution.0.2.0.ipynb.

    Raises:
        TTKitError: the folder cannot be written.
    """
    source = course()
    asked = f"copy the lessons to {folder}"
    if folder.resolve() == source.resolve():
        return []  # A clone of the repository has the lessons already.
    copied, lines = dict[str, str](), []
    # Nothing may have been copied here before, or the record may be damaged.
    with contextlib.suppress(OSError, ValueError):
        copied |= json.loads((folder / RECORD).read_text(encoding="utf-8"))
    try:
        for name in files(source):
            content = _content(source / name)
            target = folder / name
            new_hash = _hash(content)
            before = copied.get(str(name))
            if target.exists() and _hash(target.read_bytes()) not in (new_hash, before):
                if before == new_hash:
                    # The learner has changed the file, and the course has no newer version.
                    continue
                target = target.with_name(f"{name.stem}.{ttkit.__version__}{name.suffix}")
                if target.exists():
                    continue
                lines.append(f"{name} is yours, so it stays; the newer one is {target.name}")
            if not target.exists() or target.read_bytes() != content:
                write_whole(target, content, asked)
            copied[str(name)] = new_hash
    except OSError as error:
        fail(asked, f"{error.strerror}: {error.filename}", "a folder that you can write to")
    write_whole(folder / RECORD, json.dumps(copied, indent=1), asked)
    return lines


def _content(path: Path) -> bytes:
    """Return the content to copy of a file: a lesson without its outputs, the welcome page with
    ticks, any other file as it is."""
    if path.name == "welcome.md":
        return page_with_ticks(path).encode()
    if path.suffix != ".ipynb":
        return path.read_bytes()
    lesson = json.loads(path.read_bytes())
    for cell in lesson["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return json.dumps(lesson, indent=1, ensure_ascii=False).encode() + b"\n"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

"""The commands `ttkit lab` and `ttkit lessons`."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from ttkit.lessons import progress
from ttkit.lessons.folder import copy_course, course

SETTINGS = Path(__file__).with_name("jupyter")


def lab(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Copy lessons, configurations and examples to a folder and open JupyterLab there.

    A file that you have changed is never overwritten. The lessons are copied without outputs. Other
    options go to JupyterLab, such as --no-browser or --port 8899.
    """
    parser.usage = "ttkit lab [folder (ttkit-lessons)] [--copy-only] [options of JupyterLab]"
    parser.add_argument("--copy-only", action="store_true", help="do not open JupyterLab")
    # Only the first word may be the folder. Words after an option belong to JupyterLab, such as
    # "8899" in "--port 8899".
    named = words[:1] if words and not words[0].startswith("-") else []
    asked, others = parser.parse_known_args(words[len(named) :])
    if asked.copy_only and others:
        parser.error(f"the folder comes first: ttkit lab {others[-1]} --copy-only")
    folder = Path(*named or ["ttkit-lessons"]).expanduser()
    for line in copy_course(folder):
        print(line)
    if asked.copy_only:
        return 0
    command = [sys.executable, "-m", "jupyterlab", *options(folder.resolve()), *others]
    paths = [str(SETTINGS), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, paths))
    print(f"The lessons are in {folder.resolve() / 'notebooks'}.", flush=True)
    os.execv(sys.executable, command)


def options(folder: Path) -> list[str]:
    """Return JupyterLab's options for a learner's folder; prepare the window layout that JupyterLab
    opens."""
    windows = folder / ".ttkit" / "windows"
    windows.mkdir(parents=True, exist_ok=True)
    if not any(windows.iterdir()):  # A learner's own window layout must stay.
        from jupyterlab_server.workspaces_handler import WorkspacesManager

        text = (SETTINGS / "course.jupyterlab-workspace").read_text(encoding="utf-8")
        WorkspacesManager(str(windows)).save("default", text)
    return [
        f"--ServerApp.root_dir={folder / 'notebooks'}",
        "--LabApp.default_url=/lab/tree/00_start_here.ipynb",
        f"--LabApp.workspaces_dir={windows}",
        "--allow-root",  # This option has no effect for a user who is not root.
    ]


# ---------------------------------------------------------------- progress
def lessons(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Show what you have predicted, tried and passed, by lesson."""
    parser.parse_args(words)
    kept = progress.saved()
    guessed = {question.rpartition(".")[0] for question in kept["predictions"]}
    results = kept["exercises"]
    width = max(len(path.stem) for path in notebooks())
    print(f"{'lesson':{width}}  predicted  exercises")
    for path in notebooks():
        asked, exercises = progress.contents(path)
        done = sum(name in guessed for name in asked)
        marks = [f"{name.partition('.')[2]} {results.get(name, '-')}" for name in exercises]
        print(f"{path.stem:{width}}  {f'{done} of {len(asked)}':>9}  {', '.join(marks) or 'none'}")
    print(f"kept in {progress.file() or 'no file: TTKIT_LEARNER is empty'}")
    return 0


def notebooks() -> list[Path]:
    """Return the lessons in their order."""
    return sorted((course() / "notebooks").glob("[0-9]*.ipynb"))

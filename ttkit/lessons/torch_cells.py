"""Cells of a lesson that need torch:

`%%torch` runs a cell where torch is installed, and shows elsewhere what it printed when it was
recorded.

The record is torch_cells.json beside this file, made from a run by scripts/record_torch.py. A cell
is found by its text, so one that was changed since has no record, and is refused instead of shown
with the output of another."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from ttkit.errors import fail

RECORD = Path(__file__).with_name("torch_cells.json")


def installed() -> bool:
    """Whether torch is here, without importing it."""
    return importlib.util.find_spec("torch") is not None


@functools.lru_cache(maxsize=1)
def record() -> dict[str, Any]:
    """{"torch": the version that was used, "cells": {key of a cell: what it printed}}."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def key(cell: str) -> str:
    """By which a cell's output is found: a digest of its text.

    Example:
        >>> key("import torch") == key("import torch\\n"), key("import torch") == key("import jax")
        (True, False)
    """
    return hashlib.sha256(cell.strip().encode()).hexdigest()[:16]


def recorded(cell: str) -> str:
    """What a cell printed when it was recorded.

    Raises:
        TTKitError: there is no record of this text.
    """
    try:
        return str(record()["cells"][key(cell)])
    except KeyError:
        fail(
            "%%torch",
            "torch is not installed, and this cell is not as it was recorded, "
            "so there is nothing to show",
            "make .venv/with-torch, or the cell as it was",
        )


def run(shell: Any, line: str, cell: str) -> None:
    """Run a cell in the notebook, or with --ranks on the ranks of the cluster; without torch,
    print its record.
    """
    if line.strip() not in ("", "--ranks"):
        fail(
            f"%%torch {line}",
            "--ranks is all that it knows",
            "%%torch in the notebook, %%torch --ranks on the engines",
        )
    if not installed():
        print(recorded(cell), end="")
    elif line.strip():
        shell.run_cell_magic("px", "", cell)
    else:
        exec(compile(cell, "<%%torch>", "exec"), shell.user_ns)


def activate() -> None:
    """Make `%%torch` known to this notebook, and say whether its cells will run here or show
    their record.
    """
    from IPython import get_ipython
    from IPython.core.magic import no_var_expand

    shell: Any = get_ipython()

    @no_var_expand
    def torch(line: str, cell: str) -> None:
        """Run a cell that needs torch."""
        run(shell, line, cell)

    shell.register_magic_function(torch, "cell", "torch")
    if installed():
        print("torch is installed: the cells marked %%torch run here")
    else:
        print(
            "torch is not installed: the cells marked %%torch show what they printed when "
            f"recorded, with torch {record()['torch']}"
        )

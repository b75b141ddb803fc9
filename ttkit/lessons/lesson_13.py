"""Lesson 13, ttnn beside PyTorch; and the magic %%torch, which shows what torch prints without it.

%%torch runs a cell where torch is installed, and elsewhere prints what the cell printed when it was
recorded, by scripts/record_torch.py, in torch_cells.json. A cell is found by its text: one that was
changed since has no record, and fails.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.convert import from_numpy
from ttkit.errors import fail
from ttkit.lessons import device_difference, exercise, require, values_mean_something
from ttkit.lessons.answers import Answer, asks, numbers, row_of

PARTIAL = "Partial"
# (a, b) -> a @ b of two matrices, for placements that need no sending; all other pairs need some.
# As torch does it.
PRODUCTS = {
    ("Replicate", "Replicate"): "Replicate",
    ("Replicate", "Shard(1)"): "Shard(1)",
    ("Shard(0)", "Replicate"): "Shard(0)",
    ("Shard(1)", "Shard(0)"): "Partial",
    ("Replicate", "Shard(0)"): "Partial",  # each device takes its columns of the replica
    ("Shard(1)", "Replicate"): "Partial",
}
# (from, to) -> which collectives it takes; mesh_partition sends nothing.
MOVES = {
    ("Replicate", "Shard(0)"): [],
    ("Replicate", "Shard(1)"): [],
    ("Shard(0)", "Replicate"): ["all_gather"],
    ("Shard(1)", "Replicate"): ["all_gather"],
    ("Partial", "Replicate"): ["all_reduce"],
    ("Partial", "Shard(0)"): ["reduce_scatter"],
    ("Partial", "Shard(1)"): ["reduce_scatter"],
}
DIMS = {"Shard(0)": 0, "Shard(1)": 1, "Partial": 0}  # partial sums are placed one below the other
RECORD = Path(__file__).with_name("torch_cells.json")


@exercise(
    "13.product",
    "Which dimension of a and which of b does the product sum over?",
    "If a and b are both cut along the summed dimension, each device has its part of the sum.",
    "A replica beside a matrix that is cut along the summed dimension can be cut in the same way. "
    "That makes two more pairs.",
    'Six pairs have a placement: three of them "Partial". All others are None.',
)
@asks("product(a, b)")
def _product(product: Answer) -> str:
    placements = ("Replicate", "Shard(0)", "Shard(1)", "Partial")
    for a in placements:
        for b in placements:
            answer, right = product(a, b), PRODUCTS.get((a, b))
            why, yours = f"a is {a} and b is {b}", f"your answer is {answer!r}"
            if isinstance(answer, str):  # case and blanks do not matter
                answer = "".join(answer.split()).capitalize()
            text = f"{why}: a placement as text, or None, is asked for; {yours}"
            require(isinstance(answer, str | None) and answer != "None", text)
            hint = "each device would multiply numbers that do not belong together"
            if "Partial" in (a, b):
                hint = "a partial sum must be summed first"
                if {a, b} == {"Partial", "Replicate"} and answer == "Partial":
                    continue  # right, as torch does it; the exercise does not ask for it
            elif (a, b) == ("Shard(0)", "Shard(1)"):
                hint = "each device would multiply its rows by its columns only, not by all columns"
            if right is None:
                require(answer is None, f"{why}: {hint}, so None; {yours}")
            cut = ": each device has some of the products that an element sums" * (right == PARTIAL)
            if right == PARTIAL and "Replicate" in (a, b):
                cut = ": a replica can be cut where it lies"
            require(answer == right, f"{why}: a @ b is {right}, {yours}{cut}")
    return f"{len(PRODUCTS)} pairs need no sending, and all others are None"


@exercise(
    "13.redistribute",
    "From a partial sum to Shard(1): does each device need the whole sum?",
    "ttnn has all_gather, all_reduce, reduce_scatter and mesh_partition. Which is for which pair?",
    "All of them take cluster_axis=1; dim is int(target[6]), for all_gather int(source[6]).",
)
@asks("redistribute(x, source, target)", (1, 4), (1, 3), fabric=True)
def _redistribute(redistribute: Answer, mesh: Any) -> str:
    n = row_of(mesh)
    addends = numbers(n, 32 * n, 64 * n)
    for (source, target), collectives in MOVES.items():
        move = functools.partial(_moved, redistribute, addends, source, target)
        run = Answer(move, redistribute.asks).on(mesh)
        what = f"on {mesh!r}, from {source} to {target}"
        whole = addends.sum(axis=0)
        expected = [whole] * n if target == "Replicate" else np.split(whole, n, DIMS[target])
        have, want = list(run.tensor().shape), list(expected[0].shape)
        require(have == want, f"{what}: each device should have {want}, has {have}")
        if values_mean_something():
            atol = 1e-4 * float(np.abs(addends).sum(axis=0).max())
            found = device_difference(expected, run.tensor(), 1e-4, atol)
            own = [np.split(a, n, DIMS[target])[i] for i, a in enumerate(addends) if target in DIMS]
            mistakes = {
                "each device still has its partial sum": list(addends),
                "each device cut its own partial sum; nothing was added": own,
                f"that is the mean, 1/{n} of the sum": [each / n for each in expected],
                "each device has the part of the first one": expected[:1] * n,
            }
            for mistake, values in mistakes.items():
                same = found and values and not device_difference(values, run.tensor(), 1e-4, atol)
                require(not same, f"{what}: {mistake}")
            require(not found, f"{what}: {found}")
        run.computed("the move")
        reads = dict.fromkeys(call.operation for call in run.calls if call.kind == "read")
        read = ", ".join(reads)
        require(not read, f"{what}: {read} went through the host; the chips can do all of it")
        quiet = ("collective", "write", "deallocate")
        done = [call for call in run.calls if not {call.kind, call.operation} & {*quiet}]
        more = [call.operation for call in done]
        if not collectives and "mesh_partition" in more:
            more.remove("mesh_partition")
        rule = f"{what}: it is right, but one operation is enough: {', '.join(more)} can go"
        sent = run.sent()
        called = f"you called {', '.join(sent) or 'no collective'}"
        least = ", ".join(collectives) or "nothing sent: ttnn.mesh_partition"
        right_but = f"from {source} to {target} is right, but {called}; the budget is {least}"
        require(not run.calls or sent == collectives, right_but)
        require(not more, rule)
    return f"{len(MOVES)} ways to move a tensor, none sends more than it must"


def _moved(redistribute: Answer, addends: np.ndarray, source: str, target: str, mesh: Any) -> Any:
    """Return what an answer makes of a tensor that is placed as `source`."""
    ttnn = backend.load()
    array = np.concatenate(addends) if source == "Partial" else addends.sum(axis=0)
    mapper = ttnn.ReplicateTensorToMesh(mesh)
    if source in DIMS:
        mapper = ttnn.ShardTensorToMesh(mesh, dim=DIMS[source])
    x = from_numpy(array, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)
    return redistribute(x, source, target)


# ---------------------------------------------------------------- %%torch
def installed() -> bool:
    """Return whether torch is here, without importing it."""
    return importlib.util.find_spec("torch") is not None


def record() -> dict[str, Any]:
    """Return {"torch": the version that was used, "cells": {key of a cell: what it printed}}."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def key(cell: str) -> str:
    """Return the key of a cell's output: a digest of its text.

    Example:
        >>> key("import torch") == key("import torch\\n"), key("import torch") == key("import jax")
        (True, False)
    """
    return hashlib.sha256(cell.strip().encode()).hexdigest()[:16]


def run_torch_cell(shell: Any, line: str, cell: str) -> None:
    """Run a cell in the notebook, with --ranks on the ranks; without torch, print its record.

    Raises:
        TTKitError: another option than --ranks; without torch, no record of this text.
    """
    if line.strip() not in ("", "--ranks"):
        cure = "%%torch in the notebook, %%torch --ranks on the engines"
        fail(f"%%torch {line}", "the only option is --ranks", cure)
    if installed() and line.strip():
        shell.run_cell_magic("px", "", cell)
    elif installed():
        exec(compile(cell, "<%%torch>", "exec"), shell.user_ns)
    elif key(cell) in record()["cells"]:
        print(record()["cells"][key(cell)], end="")
    else:
        rule = "torch is not installed, and the cell was changed since its output was recorded"
        fail("%%torch", rule, "make .venv/with-torch, or the cell as it was")


def activate_torch_cells() -> None:
    """Register %%torch in this notebook, and print whether its cells run or show their record."""
    from IPython import get_ipython
    from IPython.core.magic import no_var_expand

    shell: Any = get_ipython()

    @no_var_expand
    def torch(line: str, cell: str) -> None:
        """Run a cell that needs torch."""
        run_torch_cell(shell, line, cell)

    shell.register_magic_function(torch, "cell", "torch")
    if installed():
        print("torch is installed: the cells marked %%torch run here")
    else:
        print(
            "torch is not installed: the cells marked %%torch show what they printed when "
            f"recorded, with torch {record()['torch']}"
        )

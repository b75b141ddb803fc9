"""Lesson 07, ttnn beside PyTorch: its exercises, and the cell magic %%torch.

If torch is installed, %%torch runs a cell. Otherwise it prints the recorded output of the cell.
scripts/record_torch.py records these outputs in torch_cells.json. A cell is found by its text, so
a cell that has changed since then has no record, and %%torch raises an error.
"""

import hashlib
import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from course.arrays import numbers, replicas, split
from course.common import place
from ttkit.errors import fail
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes

RECORD = Path(__file__).with_name("torch_cells.json")
# What a DTensor with a partial sum sends in an addition, and then in a gelu: for the guess
# 07.placement. A test compares it with torch.
DTENSOR_SENDS = "nothing", "all_reduce"

# ---------------------------------------------------------------- 07.product
# This maps the placements of two matrices (a, b) to the placement of a @ b, as torch chooses it.
# These pairs need no communication; all other pairs need some.
PRODUCTS = {
    ("Replicate", "Replicate"): "Replicate",
    ("Replicate", "Shard(1)"): "Shard(1)",
    ("Shard(0)", "Replicate"): "Shard(0)",
    ("Shard(1)", "Shard(0)"): "Partial",
    ("Replicate", "Shard(0)"): "Partial",  # Each device takes its columns of the replica.
    ("Shard(1)", "Replicate"): "Partial",
    ("Partial", "Replicate"): "Partial",  # A matmul of a sum is the sum of the matmuls.
    ("Replicate", "Partial"): "Partial",
}
PLACEMENTS = ("Replicate", "Shard(0)", "Shard(1)", "Partial")


def _why(a: str, b: str) -> str:
    """Explain the placement of the product of two placed matrices, or why there is none."""
    if "Partial" in (a, b):
        if "Replicate" in (a, b):
            return "each device multiplies its partial sum by the replica, and gets a partial sum"
        return "a partial sum must be summed first"
    if (a, b) == ("Shard(0)", "Shard(1)"):
        return "each device would multiply its rows by its columns only, not by all columns"
    if (a, b) not in PRODUCTS:
        return "each device would multiply numbers that do not belong together"
    if PRODUCTS[a, b] != "Partial":
        return "no device sums over what another one holds"
    if "Replicate" in (a, b):
        return "a replica can be cut without sending"
    return "each device has some of the terms of each element"


def _wrong(placement, a: str, b: str) -> str:
    right = PRODUCTS.get((a, b))
    return "" if placement == right else f"it is {right}, not {placement!r}: {_why(a, b)}"


Exercise(
    "07.product",
    asks="product(a, b)",
    cases=[(a, b) for a in PLACEMENTS for b in PLACEMENTS],
    rules=_wrong,
    praise="eight pairs need no sending, and all others are None",
    hints=[
        "Which dimension of a and which of b does the matmul sum over?",
        "If a and b are both cut along the summed dimension, each device has a partial sum.",
        "A replica beside a matrix that is cut along the summed dimension can be cut in the same "
        "way. That makes two more pairs. And is (a0 + a1) @ b the same as a0 @ b + a1 @ b?",
        'Eight pairs have a placement: five of them "Partial". All others are None.',
    ],
)


# ---------------------------------------------------------------- 07.redistribute
PAIRS = [
    ("Replicate", "Shard(0)"),
    ("Replicate", "Shard(1)"),
    ("Shard(0)", "Replicate"),
    ("Shard(1)", "Replicate"),
    ("Partial", "Replicate"),
    ("Partial", "Shard(0)"),
    ("Partial", "Shard(1)"),
]
# On the host the addends of a partial sum are concatenated along dimension 0, so a cut along
# dimension 0 gives each device one addend.
DIMS = {"Shard(0)": 0, "Shard(1)": 1, "Partial": 0}


def _redistributed(answer, mesh, addends: np.ndarray, source: str, target: str):
    """Call an answer with the tensor placed as `source`."""
    array = np.concatenate(addends) if source == "Partial" else addends.sum(axis=0)
    return answer(place(mesh, array, DIMS.get(source)), source, target)


def _enough(mesh, addends: np.ndarray, source: str, target: str) -> int:
    """Return the bytes that all links carry in the cheapest redistribution."""
    # An all_gather or a reduce_scatter sends this many bytes; an all_reduce sends twice as many.
    once = (mesh.get_num_devices() - 1) * addends[0].nbytes
    if source == "Replicate":
        return 0
    return 2 * once if (source, target) == ("Partial", "Replicate") else once


def _addends(rows: int, columns: int) -> list:
    n = rows * columns
    return [(numbers(n, 32 * n, 64 * n), None)]


def _moved(mesh, addends: np.ndarray, source: str, target: str) -> list[np.ndarray]:
    whole = addends.sum(axis=0)
    return split(mesh, whole, DIMS[target]) if target in DIMS else replicas(mesh, whole)


def _own(mesh, addends: np.ndarray, source: str, target: str) -> list[np.ndarray] | None:
    if target not in DIMS:
        return None
    return [split(mesh, addend, DIMS[target])[i] for i, addend in enumerate(addends)]


Exercise(
    "07.redistribute",
    asks="redistribute(x, source, target)",
    reference=_moved,
    cases=OnMeshes([(1, 4), (1, 3)], _addends, fabric=True, more=PAIRS, call=_redistributed),
    mistakes={
        "each device still has its partial sum": lambda mesh, addends, *_: list(addends),
        "each device cut its own partial sum; nothing was added": _own,
        "that is the mean; expected the sum": lambda mesh, *given: [
            each / mesh.get_num_devices() for each in _moved(mesh, *given)
        ],
        "each device has the first device's part": lambda mesh, *given: replicas(
            mesh, _moved(mesh, *given)[0]
        ),
    },
    budget=Budget(link_bytes=_enough),
    rtol=1e-4,
    praise="all seven changes are right, and none sends more than it must",
    hints=[
        "From a partial sum to Shard(1): does each device need the whole sum?",
        "ttnn has all_gather, all_reduce, reduce_scatter and mesh_partition. Which of them fits "
        "which pair?",
        "All of them take cluster_axis=1; dim is int(target[6]), or int(source[6]) for all_gather.",
    ],
)


# ---------------------------------------------------------------- torch on ranks
def join_ranks() -> tuple[int, int]:
    """Join this rank to a new process group of torch; return (rank, number of ranks)."""
    import torch
    import torch.distributed as dist
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    if dist.is_initialized():  # An earlier run of the cell has made a group.
        dist.destroy_process_group()
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    # The ranks find each other through this file.
    store = dist.FileStore(f"{folder}/store", comm.size)
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
    return comm.rank, comm.size


def counted(mode) -> str:
    """Return in words which collectives a CommDebugMode counted, and how many of each."""
    calls = mode.get_comm_counts().items()
    names = [f"{n} x {str(call).split('.')[-1].strip('_')}" for call, n in calls]
    return ", ".join(names) or "nothing"


# ---------------------------------------------------------------- %%torch
def installed() -> bool:
    """Return whether torch is installed, without importing it."""
    return importlib.util.find_spec("torch") is not None


def record() -> dict[str, Any]:
    """Return {"torch": the version of torch, "cells": {key of a cell: its recorded output}}."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def key(cell: str) -> str:
    """Return the key of a cell's output: a digest of its text.

    Example:
        >>> key("import torch") == key("import torch\\n"), key("import torch") == key("import jax")
        (True, False)
    """
    return hashlib.sha256(cell.strip().encode()).hexdigest()[:16]


def run_torch_cell(shell, line: str, cell: str) -> None:
    """Run a cell in the notebook. If torch is not installed, print the record of the cell.

    If `line` is not empty, as in `%%torch --ranks`, the cell runs on the ranks.

    Raises:
        TTKitError: torch is not installed, and this text has no record.
    """
    if installed() and line.strip():
        shell.run_cell_magic("px", "", cell)
    elif installed():
        exec(compile(cell, "<%%torch>", "exec"), shell.user_ns)
    elif key(cell) in record()["cells"]:
        print(record()["cells"][key(cell)], end="")
    else:
        rule = "torch is not installed, and the cell has changed since its output was recorded"
        fail("%%torch", rule, "run `make .venv/with-torch`, or restore the cell")


def activate_torch_cells() -> None:
    """Register %%torch in this notebook, and print whether its cells run or show a record."""
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

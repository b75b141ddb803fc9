"""Lesson 13, ttnn beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit import backend
from ttkit.convert import from_numpy
from ttkit.lessons import device_difference, exercise, require, values_mean_something
from ttkit.lessons.answers import Answer, asks, kind_of, numbers

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


@exercise("13.product")
@asks("product(a, b)")
def _product(product: Answer) -> str:
    placements = ("Replicate", "Shard(0)", "Shard(1)", "Partial")
    for a in placements:
        for b in placements:
            answer, right = product(a, b), PRODUCTS.get((a, b))
            if (a, b) in {("Partial", "Replicate"), ("Replicate", "Partial")}:
                # right as partial sums, which torch allows and the exercise does not ask for
                continue
            why = f"a is {a} and b is {b}"
            if right is None:
                hint = (
                    "each device would multiply numbers that do not belong together"
                    if "Partial" not in (a, b)
                    else "a partial sum must be summed first"
                )
                require(answer is None, f"{why}: {hint}, so None; you said {answer!r}")
            cut = (
                ": a replica can be cut where it lies"
                if right == "Partial" and "Replicate" in (a, b)
                else ""
            )
            require(answer == right, f"{why}: a @ b is {right}, you said {answer!r}{cut}")
    return f"{len(PRODUCTS)} pairs need no sending, and all others are None"


@exercise("13.redistribute")
@asks("redistribute(x, source, target)", (1, 4), (1, 3), fabric=True)
def _redistribute(redistribute: Answer, mesh: Any) -> str:
    rows, n = mesh.shape
    require(rows == 1, f"the exercise is for a mesh of one row, not {mesh!r}")
    ttnn = backend.load()
    addends = numbers(n, 32 * n, 64 * n)
    whole = addends.sum(axis=0)
    for (source, target), collectives in MOVES.items():
        array, dim = (
            (np.concatenate(addends), 0)
            if source == "Partial"
            else (whole, int(source[6]) if source[:5] == "Shard" else None)
        )
        mapper = (
            ttnn.ReplicateTensorToMesh(mesh)
            if dim is None
            else ttnn.ShardTensorToMesh(mesh, dim=dim)
        )

        def move(
            mesh: Any,
            mapper: Any = mapper,
            array: np.ndarray = array,
            source: str = source,
            target: str = target,
        ) -> Any:
            x = from_numpy(array, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)
            return redistribute(x, source, target)

        what = f"from {source} to {target}"
        run = Answer(move, redistribute.asks).on(mesh)
        expected = [whole] * n if target == "Replicate" else np.split(whole, n, axis=int(target[6]))
        have, want = list(run.tensor().shape), list(expected[0].shape)
        require(have == want, f"on {mesh!r}, {what}: each device should have {want}, has {have}")
        if values_mean_something():
            found = _wrong(expected, run.tensor(), addends)
            require(not found, f"on {mesh!r}, {what}: {found}")
        sent = [call["operation"] for call in run.calls if kind_of(call) == "collective"]
        least = ", ".join(collectives) or "nothing sent: ttnn.mesh_partition"
        require(
            not run.calls or sent == collectives,
            f"{what} is right, but you called {', '.join(sent) or 'no collective'}; "
            f"the budget is {least}",
        )
    return f"{len(MOVES)} ways to move a tensor, none sends more than it must"


def _wrong(expected: list[np.ndarray], tensor: Any, addends: np.ndarray) -> str:
    found = device_difference(
        expected, tensor, 1e-4, 1e-4 * float(np.abs(addends).sum(axis=0).max())
    )
    if found and not device_difference(list(addends), tensor):
        return "each device has its addend still"
    return found

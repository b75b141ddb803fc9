"""Lesson 05, engines and ranks. The answers run on the ranks of the learner's cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.lessons import difference, exercise, require
from ttkit.lessons.answers import numbers
from ttkit.lessons.on_ranks import on_ranks


@exercise("05.shift")
def _shift(shift: Any, cluster: Any) -> str:
    n = getattr(cluster, "n", 1)
    values = list(numbers(n, 3, 5))
    for rank, (result, sent, _) in enumerate(on_ranks(cluster, shift, "shift", values)):
        left, right = values[rank - 1], values[(rank + 1) % n]
        wrong = difference(left, result)
        require(
            not wrong or bool(difference(right, result)),
            f"rank {rank} has what rank {(rank + 1) % n} had: it should be sent the other way, "
            "to rank + 1",
        )
        require(
            not wrong or bool(difference(values[rank], result)),
            f"rank {rank} has its own values still",
        )
        require(not wrong, f"rank {rank} should have what rank {(rank - 1) % n} had: {wrong}")
        require(
            sent == values[rank].nbytes,
            f"rank {rank} sent {sent} bytes; one array of {values[rank].nbytes} is enough",
        )
    return f"each rank has what its left neighbour had, {values[0].nbytes} bytes sent by each"


@exercise("05.all_reduce")
def _all_reduce(all_reduce: Any, cluster: Any) -> str:
    n = getattr(cluster, "n", 1)
    values = list(numbers(n, 8 * n))
    budget = 2 * (n - 1) * values[0].nbytes // n
    total = np.sum(values, axis=0)
    for rank, (result, sent, _) in enumerate(on_ranks(cluster, all_reduce, "all_reduce", values)):
        require(
            np.shape(result) == total.shape,
            f"rank {rank} should give back {total.shape}, gave {np.shape(result)}",
        )
        chunks = [
            int(i)
            for i in range(n)
            if difference(total.reshape(n, -1)[i], np.asarray(result).reshape(n, -1)[i], 1e-5, 1e-5)
        ]
        require(
            not chunks,
            f"rank {rank} has a wrong sum in {'chunk' if len(chunks) == 1 else 'chunks'} "
            f"{', '.join(map(str, chunks))} of {n}",
        )
        require(
            sent <= budget,
            f"it is right, but rank {rank} sent {sent} bytes; the budget is {budget}: "
            f"2 x {n - 1} chunks of 1/{n} of the array",
        )
    return f"the same sum on every rank, {budget} bytes sent by each"

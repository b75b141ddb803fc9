"""Lesson 05, engines and ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.lessons import CheckFailed, difference, exercise, require
from ttkit.lessons.answers import numbers
from ttkit.lessons.ranks import on_ranks as on_ranks
from ttkit.lessons.ranks import ranks_of as ranks_of


# ---------------------------------------------------------------- the exercises
@exercise(
    "05.shift",
    "Which rank does rank 3 of 4 send to, and which rank does rank 0 receive from?",
    "The remainder by comm.size (the operator %) closes the ring: (comm.rank + 1) % comm.size.",
    "Make an empty array like x, then one call: "
    "comm.Sendrecv(x, dest=..., recvbuf=..., source=...).",
)
def _shift(shift: Any, cluster: Any) -> str:
    size = 0
    for n in _rings(cluster):
        kind = np.float32 if n < cluster.n else np.float64  # not the same on each ring
        values = list(numbers(n, n, 5).astype(kind))
        for rank, (result, sent, _) in enumerate(on_ranks(cluster, shift, "shift", values)):
            name, size = _name(rank, n, cluster), values[rank].nbytes
            left, right = (rank - 1) % n, (rank + 1) % n
            wrong = difference(values[left], result)
            if wrong and n > 2 and not difference(values[right], result):
                wrong_way = "it should be sent the other way, to rank + 1"
                raise CheckFailed(f"{name} has what rank {right} had: {wrong_way}")
            own = wrong and not difference(values[rank], result)
            require(not own, f"{name} still has its own values")
            of = next((k for k in range(n) if not difference(values[k], result)), left)
            require(of == left, f"{name} has what rank {of} had; it should have rank {left}'s")
            require(not wrong, f"{name} should have what rank {left} had: {wrong}")
            require(sent > 0, f"{name} sent nothing by the `comm` that it was given")
            require(sent == size, f"{name} sent {sent} bytes; one array of {size} is enough")
    return f"each rank has what its left neighbour had, {size} bytes sent by each"


@exercise(
    "05.all_reduce",
    "After n - 1 rounds each rank should have the finished sum of one chunk. Which chunk must "
    "rank k send first, so that the next rank adds its own to it?",
    "In round r rank k sends chunk (k - r) % n and adds what arrives to chunk (k - r - 1) % n.",
    "After these rounds rank k has the sum of chunk (k + 1) % n. Go round once more with the same "
    "numbers, r from n - 1 to 2n - 3, and replace the chunk instead of adding.",
)
def _all_reduce(all_reduce: Any, cluster: Any) -> str:
    for n in _rings(cluster):
        values = list(numbers(n, 2 * n * n))
        budget = 2 * (n - 1) * values[0].nbytes // n
        total = np.sum(values, axis=0)
        ranks = on_ranks(cluster, all_reduce, "all_reduce", values)
        for rank, (result, sent, _) in enumerate(ranks):
            name, shape = _name(rank, n, cluster), np.shape(result)
            require(shape == total.shape, f"{name} should give back {total.shape}, gave {shape}")
            usual = {
                "still has its own values": values[rank],
                "has the mean; the sum is asked for": total / n,
                "has its own values twice in the sum": total + values[rank],
                f"has {n} times the sum": n * total,
            }
            for words, array in usual.items():
                require(bool(difference(array, result, 1e-5, 1e-5)), f"{name} {words}")
            pairs = enumerate(zip(np.split(total, n), np.split(result, n), strict=True))
            chunks = [str(i) for i, (want, have) in pairs if difference(want, have, 1e-5, 1e-5)]
            where = f"{'chunk' if len(chunks) == 1 else 'chunks'} {', '.join(chunks)} of {n}"
            first = difference(total, result, 1e-5, 1e-5)
            require(not chunks, f"{name} has a wrong sum in {where}: {first}")
            require(
                sent <= budget,
                f"the sum is right, but {name} sent {sent} bytes; the budget is {budget}: "
                f"2 x {n - 1} chunks of 1/{n} of the array, in its dtype",
            )
            # each rank within the budget: then all need all of it
            other = f"by the `comm` that it was given, not {budget}: the rest went another way"
            require(sent == budget, f"{name} sent {sent} bytes {other}")
    n = ranks_of(cluster)
    budget = 2 * (n - 1) * numbers(n, 2 * n * n)[0].nbytes // n
    return f"the same sum on every rank, {budget} bytes sent by each"


def _rings(cluster: Any) -> list[int]:
    """Return how many ranks an answer is tried on: all of the cluster, then one fewer."""
    n = ranks_of(cluster)
    same = "of two ranks each is left and right of the other: ttkit.Cluster(4)"
    require(n > 2, f"the exercise needs three ranks or more, your cluster has {n}. {same}")
    return [n, n - 1]


def _name(rank: int, n: int, cluster: Any) -> str:
    """Return a rank in words; where it is one of fewer than there are, this is said."""
    return f"rank {rank}" if n == cluster.n else f"on {n} ranks, rank {rank}"

"""Lesson 05, engines and ranks. The answers run on the ranks of the learner's cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit import lessons
from ttkit.errors import TTKitError
from ttkit.exercises.answers import numbers
from ttkit.lessons import CheckFailed, NotDone, difference, exercise, require

TIME_S = 15.0  # what a rank waits for longer than this does not come


class Counted:
    """A communicator that sends and receives and counts the bytes that it sends; the builtin collectives are left out."""

    def __init__(self, comm: Any):
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self.sent = 0

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def __getattr__(self, name: str) -> Any:
        if name not in ("Send", "Isend", "Ssend", "Recv", "Irecv", "Sendrecv"):
            raise CheckFailed(f"comm.{name} is not for this exercise: Send, Recv and Sendrecv (capital letters, NumPy arrays) are")
        call = getattr(self.comm, name)

        def counted(buffer: Any, *arguments: Any, **keywords: Any) -> Any:
            self.sent += 0 if name.endswith("ecv") and not name.startswith("Send") else np.asarray(buffer).nbytes
            return call(buffer, *arguments, **keywords)

        return counted


def _try(answer: Callable[..., Any], values: list[np.ndarray]) -> tuple[Any, int, str]:
    """On a rank: what the answer gives for this rank's values, the bytes sent, and what was wrong with how it did so."""
    from mpi4py import MPI

    comm = Counted(MPI.COMM_WORLD.Dup())  # what one answer has left under way does not meet the next one
    mine = values[comm.rank].copy()
    for name, value in (("np", np), ("lessons", lessons)):  # which the notebook has
        getattr(answer, "__globals__", {}).setdefault(name, value)
    try:
        result = answer(comm, mine)
    except NotDone as hint:
        return None, -1, str(hint)
    except CheckFailed as why:
        return None, 0, str(why)
    if result is None:
        return None, 0, "it gave nothing back: does it end in `return`?"
    try:
        return np.asarray(result, np.float32), comm.sent, ""
    except (TypeError, ValueError):
        return None, 0, f"it gave a {type(result).__name__}, not an array"


def _on_ranks(cluster: Any, answer: Callable[..., Any], name: str, values: list[np.ndarray]) -> list[tuple[Any, int]]:
    require(callable(answer), f"{name} should be a function, is a {type(answer).__name__}")
    require(hasattr(cluster, "run"), "give the cluster, too: lessons.check(name, function, cluster)")
    before, cluster.timeout_s = cluster.timeout_s, TIME_S
    try:
        told = cluster.run(_try, answer, values)
    except TTKitError as error:
        message = str(error).partition("\n  try:")[0].partition(": ")[2]
        cluster.restart()
        raise CheckFailed(f"{message}\n(the engines were started anew)") from None
    finally:
        cluster.timeout_s = before
    for rank, (_, sent, wrong) in enumerate(told):
        if sent < 0:
            raise NotDone(wrong)
        require(not wrong, f"rank {rank}: {wrong}")
    return [(result, sent) for result, sent, _ in told]


@exercise("05.shift")
def _shift(shift: Any, cluster: Any) -> str:
    n = getattr(cluster, "n", 1)
    values = list(numbers(n, 3, 5))
    for rank, (result, sent) in enumerate(_on_ranks(cluster, shift, "shift", values)):
        left, right = values[rank - 1], values[(rank + 1) % n]
        wrong = difference(left, result)
        require(not wrong or bool(difference(right, result)), f"rank {rank} has what rank {(rank + 1) % n} had: it should be sent the other way, to rank + 1")
        require(not wrong or bool(difference(values[rank], result)), f"rank {rank} has its own values still")
        require(not wrong, f"rank {rank} should have what rank {(rank - 1) % n} had: {wrong}")
        require(sent == values[rank].nbytes, f"rank {rank} sent {sent} bytes; one array of {values[rank].nbytes} is enough")
    return f"each rank has what its left neighbour had, {values[0].nbytes} bytes sent by each"


@exercise("05.all_reduce")
def _all_reduce(all_reduce: Any, cluster: Any) -> str:
    n = getattr(cluster, "n", 1)
    values = list(numbers(n, 8 * n))
    budget = 2 * (n - 1) * values[0].nbytes // n
    total = np.sum(values, axis=0)
    for rank, (result, sent) in enumerate(_on_ranks(cluster, all_reduce, "all_reduce", values)):
        require(np.shape(result) == total.shape, f"rank {rank} should give back {total.shape}, gave {np.shape(result)}")
        chunks = [int(i) for i in range(n) if difference(total.reshape(n, -1)[i], np.asarray(result).reshape(n, -1)[i], 1e-5, 1e-5)]
        require(not chunks, f"rank {rank} has a wrong sum in {'chunk' if len(chunks) == 1 else 'chunks'} {', '.join(map(str, chunks))} of {n}")
        require(sent <= budget, f"it is right, but rank {rank} sent {sent} bytes; the budget is {budget}: 2 x {n - 1} chunks of 1/{n} of the array")
    return f"the same sum on every rank, {budget} bytes sent by each"

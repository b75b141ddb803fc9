"""Lesson 05, engines and ranks; and how an answer runs on the ranks of the learner's cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit import lessons
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed, NotDone, difference, exercise, require
from ttkit.lessons.answers import numbers

TIME_S = 15.0  # how long a rank may wait
MESSAGES = ("Send", "Isend", "Ssend", "Recv", "Irecv", "Sendrecv")
MESSAGES_ARE = "Send, Recv and Sendrecv (capital letters, NumPy arrays) are"


# ---------------------------------------------------------------- an answer on ranks
class Counted:
    """A communicator with some of MPI's calls; it counts them, and the bytes that it sends."""

    def __init__(self, comm: Any, allowed: tuple[str, ...], those_are: str):
        self.comm, self._allowed, self._those_are = comm, allowed, those_are
        self.rank, self.size = comm.rank, comm.size
        self.sent = self.calls = 0

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def __getattr__(self, name: str) -> Any:
        if name not in self._allowed:
            raise CheckFailed(f"comm.{name} is not for this exercise: {self._those_are}")
        call = getattr(self.comm, name)

        def counted(buffer: Any, *arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            self.sent += np.asarray(buffer).nbytes if "send" in name.lower() else 0
            return call(buffer, *arguments, **keywords)

        return counted


def _try(
    answer: Callable[..., Any], values: list[Any], allowed: tuple[str, ...], those_are: str
) -> tuple[str, Any]:
    """Call the answer on a rank with the rank's values.

    Returns:
        ("done", (result, bytes sent, calls made)), or ("to do" or "wrong", message).
    """
    from mpi4py import MPI

    # messages that one answer leaves behind do not reach the next one
    comm = Counted(MPI.COMM_WORLD.Dup(), allowed, those_are)
    given = values[comm.rank]
    several = isinstance(given, list)
    mine = [array.copy() for array in given] if several else given.copy()
    for name, value in (("np", np), ("lessons", lessons)):  # which the notebook has
        getattr(answer, "__globals__", {}).setdefault(name, value)
    try:
        result = answer(comm, mine)
    except NotDone as hint:
        return "to do", str(hint)
    except CheckFailed as why:
        return "wrong", str(why)
    if result is None:
        return "wrong", "it gave nothing back: does it end in `return`?"
    try:
        arrays = [np.asarray(each, np.float32) for each in (result if several else [result])]
    except (TypeError, ValueError):
        wanted = "a list of arrays" if several else "an array"
        return "wrong", f"it gave a {type(result).__name__}, not {wanted}"
    return "done", (arrays if several else arrays[0], comm.sent, comm.calls)


def ranks_of(cluster: Any) -> int:
    """Return the number of ranks of the learner's cluster, or raise `CheckFailed`."""
    missing = "give the cluster, too: lessons.check(name, function, cluster)"
    require(hasattr(cluster, "run"), missing)
    return int(cluster.n)


def on_ranks(
    cluster: Any,
    answer: Callable[..., Any],
    name: str,
    values: list[Any],
    allowed: tuple[str, ...] = MESSAGES,
    those_are: str = MESSAGES_ARE,
) -> list[tuple[Any, int, int]]:
    """Call `answer(comm, values[rank])` on every rank.

    Args:
        values: an array, or a list of arrays, for each rank.
        allowed: which calls `comm` has.
        those_are: the end of the message about another one.

    Returns:
        For each rank the result in float32, the bytes that it sent, and the calls of `comm` that it
        made.

    Raises:
        CheckFailed: naming the rank, and the line where ranks wait for each other.
        NotDone: the exercise has not been started.
    """
    require(callable(answer), f"{name} should be a function, is a {type(answer).__name__}")
    try:
        cluster.check(name)
    except TTKitError as error:  # it is not started, or an engine has died
        raise CheckFailed(str(error).removeprefix(f"{name}: ")) from None
    before, cluster.timeout_s = cluster.timeout_s, TIME_S
    try:
        outcomes = cluster.run(_try, answer, values, allowed, those_are)
    except TTKitError as error:
        message = str(error).partition("\n  try:")[0].partition(": ")[2]
        cluster.restart()
        raise CheckFailed(f"{message}\n(the engines were started anew)") from None
    finally:
        cluster.timeout_s = before
    for rank, (state, found) in enumerate(outcomes):
        if state == "to do":
            raise NotDone(found)
        require(state == "done", f"rank {rank}: {found}")
    return [found for _, found in outcomes]


# ---------------------------------------------------------------- the exercises
@exercise("05.shift")
def _shift(shift: Any, cluster: Any) -> str:
    n = ranks_of(cluster)
    values = list(numbers(n, 3, 5))
    for rank, (result, sent, _) in enumerate(on_ranks(cluster, shift, "shift", values)):
        left, right = (rank - 1) % n, (rank + 1) % n
        wrong = difference(values[left], result)
        if wrong and not difference(values[right], result):
            wrong_way = "it should be sent the other way, to rank + 1"
            raise CheckFailed(f"rank {rank} has what rank {right} had: {wrong_way}")
        own = wrong and not difference(values[rank], result)
        require(not own, f"rank {rank} has its own values still")
        require(not wrong, f"rank {rank} should have what rank {left} had: {wrong}")
        size = values[rank].nbytes
        require(sent == size, f"rank {rank} sent {sent} bytes; one array of {size} is enough")
    return f"each rank has what its left neighbour had, {values[0].nbytes} bytes sent by each"


@exercise("05.all_reduce")
def _all_reduce(all_reduce: Any, cluster: Any) -> str:
    n = ranks_of(cluster)
    values = list(numbers(n, 8 * n))
    budget = 2 * (n - 1) * values[0].nbytes // n
    total = np.sum(values, axis=0)
    for rank, (result, sent, _) in enumerate(on_ranks(cluster, all_reduce, "all_reduce", values)):
        shape = np.shape(result)
        wrong_shape = f"rank {rank} should give back {total.shape}, gave {shape}"
        require(shape == total.shape, wrong_shape)
        pairs = enumerate(zip(np.split(total, n), np.split(result, n), strict=True))
        chunks = [str(i) for i, (want, have) in pairs if difference(want, have, 1e-5, 1e-5)]
        where = f"{'chunk' if len(chunks) == 1 else 'chunks'} {', '.join(chunks)} of {n}"
        require(not chunks, f"rank {rank} has a wrong sum in {where}")
        require(
            sent <= budget,
            f"it is right, but rank {rank} sent {sent} bytes; the budget is {budget}: "
            f"2 x {n - 1} chunks of 1/{n} of the array",
        )
    return f"the same sum on every rank, {budget} bytes sent by each"

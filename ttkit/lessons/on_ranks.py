"""Answers that run on the ranks of the learner's cluster: with a communicator that counts, other
values on each rank, and an end to waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit import lessons
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed, NotDone, require

TIME_S = 15.0  # what a rank waits for longer than this does not come
MESSAGES = ("Send", "Isend", "Ssend", "Recv", "Irecv", "Sendrecv")
MESSAGES_ARE = "Send, Recv and Sendrecv (capital letters, NumPy arrays) are"


class Counted:
    """A communicator with some of MPI's calls, which counts its calls and the bytes that it
    sends from rank to rank.
    """

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
            self.sent += np.asarray(buffer).nbytes if name.lower().find("send") >= 0 else 0
            return call(buffer, *arguments, **keywords)

        return counted


def _try(
    answer: Callable[..., Any], values: list[Any], allowed: tuple[str, ...], those_are: str
) -> tuple[Any, tuple[int, int] | None, str]:
    """On a rank: what the answer gives for this rank's values, the bytes sent and calls made,
    and what was wrong with how it did so.
    """
    from mpi4py import MPI

    # what one answer has left under way does not meet the next one
    comm = Counted(MPI.COMM_WORLD.Dup(), allowed, those_are)
    given = values[comm.rank]
    mine = [array.copy() for array in given] if isinstance(given, list) else given.copy()
    for name, value in (("np", np), ("lessons", lessons)):  # which the notebook has
        getattr(answer, "__globals__", {}).setdefault(name, value)
    try:
        result = answer(comm, mine)
    except NotDone as hint:
        return None, None, str(hint)
    except CheckFailed as why:
        return None, (0, 0), str(why)
    if result is None:
        return None, (0, 0), "it gave nothing back: does it end in `return`?"
    try:
        read = (
            [np.asarray(each, np.float32) for each in result]
            if isinstance(given, list)
            else np.asarray(result, np.float32)
        )
    except (TypeError, ValueError):
        return (
            None,
            (0, 0),
            f"it gave a {type(result).__name__}, not "
            f"{'a list of arrays' if isinstance(given, list) else 'an array'}",
        )
    return read, (comm.sent, comm.calls), ""


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
        For each rank what came back, in float32, the bytes that it sent, and the calls of `comm`
        that it made.

    Raises:
        CheckFailed: naming the rank, and the line where ranks wait for each other.
        NotDone: the exercise has not been started.
    """
    require(callable(answer), f"{name} should be a function, is a {type(answer).__name__}")
    require(
        hasattr(cluster, "run"), "give the cluster, too: lessons.check(name, function, cluster)"
    )
    try:
        cluster.check(name)
    except TTKitError as error:  # it is not started, or an engine has died
        raise CheckFailed(str(error).removeprefix(f"{name}: ")) from None
    before, cluster.timeout_s = cluster.timeout_s, TIME_S
    try:
        told = cluster.run(_try, answer, values, allowed, those_are)
    except TTKitError as error:
        message = str(error).partition("\n  try:")[0].partition(": ")[2]
        cluster.restart()
        raise CheckFailed(f"{message}\n(the engines were started anew)") from None
    finally:
        cluster.timeout_s = before
    for rank, (_, counts, wrong) in enumerate(told):
        if counts is None:
            raise NotDone(wrong)
        require(not wrong, f"rank {rank}: {wrong}")
    return [(result, *counts) for result, counts, _ in told]

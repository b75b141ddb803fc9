"""How a learner's function runs on ranks: its messages are recorded, and every wait ends.

`watch` shows them as a picture; `OnRanks` is for exercises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from course.watched import MESSAGES, Stuck, Watched
from ttkit import lessons
from ttkit.cluster.engines.stacks import Frame, users_line
from ttkit.lessons import CheckFailed, NotDone
from ttkit.lessons.comparing import unlike
from ttkit.lessons.exercises import Run
from ttkit.plans.messages import ANY, Call, Exchange, exchange

LIMIT_S = 2.5  # how long one message of an answer may take


# ---------------------------------------------------------------- on a rank
@contextlib.contextmanager
def _among(ranks: int) -> Iterator[Any]:
    """Give the first ranks a communicator of their own, the others None.

    Messages that one answer leaves behind do not reach the next one.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    inside = world.rank < ranks
    comm = world.Split(0 if inside else MPI.UNDEFINED)
    yield comm if inside else None


def _run(
    function: Callable[..., Any],
    ranks: int,
    values: list[Any] | None,
    arguments: tuple[Any, ...] = (),
    calls: tuple[str, ...] = MESSAGES,
    limit_s: float = LIMIT_S,
) -> tuple[str, Any, list[Call], tuple[int, int]]:
    """Call the function on one of the ranks, with its own of the values before the arguments.

    Returns:
        "done", "to do", "wrong" or "stuck", or "away" where the rank takes no part; the result or
        the message; the messages of `comm`; how many bytes it sent, and how many calls it made.
    """
    with _among(ranks) as own:
        if own is None:
            return "away", None, [], (0, 0)
        comm = Watched(own, limit_s, calls)
        mine = () if values is None else (values[comm.rank],)
        for name, value in (("np", np), ("lessons", lessons)):  # which the notebook has
            getattr(function, "__globals__", {}).setdefault(name, value)
        own.Barrier()  # so that nobody waits for a rank that has not begun
        try:
            result = function(comm, *mine, *arguments)
        except NotDone as hint:
            return "to do", str(hint), [], (0, 0)
        except CheckFailed as why:
            return "wrong", str(why), [], (0, 0)
        except Stuck:
            return "stuck", None, comm.log, (0, 0)
        return "done", result, comm.log, (comm.sent, comm.calls)


# ---------------------------------------------------------------- in the notebook
def watch(
    cluster: Any, function: Callable[..., Any], *arguments: Any, limit_s: float = 2.0
) -> Exchange:
    """Call `function(comm, *arguments)` on every rank, and return the messages that they sent.

    `comm` has MPI's `Send`, `Isend`, `Recv`, `Irecv` and `Sendrecv`. Here `Send` waits until the
    other rank receives, as MPI does with large messages. A message that takes longer than `limit_s`
    ends the run, and the picture shows who waits for whom.

    Raises:
        TTKitError: a rank raised (the message names it).

    Example::

        def to_the_right(comm):
            arriving = np.empty(1)
            right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            comm.Sendrecv(np.ones(1), dest=right, recvbuf=arriving, source=left)

        watch(cluster, to_the_right)
    """
    ranks = cluster.run(_run, function, cluster.n, None, arguments, limit_s=limit_s)
    _tell(ranks, f"on {cluster.n} ranks")
    found = _recorded(cluster, [log for _, _, log, _ in ranks])
    stuck = {rank for rank, (state, *_) in enumerate(ranks) if state == "stuck"}
    waits = tuple(wait for wait in found.waits if wait.rank in stuck)
    return Exchange(cluster.n, found.messages, waits, tuple(result for _, result, *_ in ranks))


def _tell(outcomes: list[Any], where: str) -> None:
    """Raise what a rank has to say."""
    for rank, (state, said, *_) in enumerate(outcomes):
        if state == "to do":
            raise NotDone(said)
        if state == "wrong":
            raise CheckFailed(f"{where}, rank {rank}: {said}")


def _recorded(cluster: Any, logs: list[list[Call]]) -> Exchange:
    """Return the messages of recorded calls, with the text of their lines."""
    return exchange([[call._replace(line=_text(cluster, call)) for call in log] for log in logs])


def _text(cluster: Any, call: Call) -> str:
    if not call.line:
        return ""
    file, number, function = call.line.rsplit("|", 2)
    return users_line([Frame("", int(number), function, cluster.line(file, int(number)))])


@dataclass(frozen=True)
class RankBudget:
    """What an answer may use on each rank.

    Args:
        sends: from the values of a rank and the number of ranks to the bytes it sends, at most.
        calls: how many calls of `comm` it makes, at most.
    """

    sends: Callable[[Any, int], int]
    calls: int | None = None


@dataclass(frozen=True)
class OnRanks:
    """Calls of an answer as `f(comm, values)` on all ranks of a cluster, then on one fewer.

    Args:
        given: from the number of ranks to what each of them has.
        calls: what `comm` has.
    """

    given: Callable[[int], list[Any]]
    calls: tuple[str, ...] = MESSAGES

    def runs(self, answer: Any, asks: str, cluster: Any) -> Iterator[RankRun]:
        """Yield both calls. The reference and the mistakes get the list of all values."""
        if cluster is None:
            raise CheckFailed("give the cluster, too: lessons.check(name, function, cluster)")
        if cluster.n < 3:
            rule = "of two ranks each is left and right of the other: ttkit.Cluster(4)"
            raise CheckFailed(f"the exercise needs three ranks or more. {rule}")
        for n in (cluster.n, cluster.n - 1):
            values = self.given(n)
            found = cluster.run(_run, answer, n, values, calls=self.calls)[:n]
            where = f"on {n} ranks"
            _tell(found, where)
            states, results, logs, used = zip(*found)
            if "stuck" in states:
                raise CheckFailed(f"{where}: {why_stuck(_recorded(cluster, list(logs)))}")
            yield RankRun((values,), list(results), where, {"n": n}, used)


@dataclass
class RankRun(Run):
    """A call of an answer on ranks: for each the bytes that it sent, and its calls of `comm`."""

    on_each: tuple[tuple[int, int], ...] = field(default=())

    def unlike(self, expected: Any, rtol: float) -> str:
        """Compare rank by rank."""
        each = enumerate(zip(expected, self.result, strict=True))
        found = ((rank, unlike(want, have, rtol)) for rank, (want, have) in each)
        return next((f", rank {rank}: {words}" for rank, words in found if words), "")

    def over(self, budget: RankBudget) -> str:
        """Return which rank is over the budget, in words."""
        for rank, (sent, calls) in enumerate(self.on_each):
            most = self._most(budget, rank)
            if budget.calls is not None and calls > budget.calls:
                return f" it is right, but rank {rank} made {calls} calls; {budget.calls} would do"
            if sent > most:
                return f" it is right, but rank {rank} sent {sent} bytes; the budget is {most}"
            if not sent:
                return f", rank {rank} sent nothing by the `comm` that it was given"
        return ""

    def used(self, budget: RankBudget) -> str:
        """Return how many bytes a rank sent."""
        return f"{self.on_each[0][0]} of {self._most(budget, 0)} bytes sent by each"

    def _most(self, budget: RankBudget, rank: int) -> int:
        return budget.sends(self.arguments[0][rank], len(self.on_each))


def why_stuck(run: Exchange) -> str:
    """Return in words why ranks wait forever.

    Example:
        >>> from ttkit.plans.messages import ring_exchange
        >>> print(why_stuck(ring_exchange(2, "Recv, then Send")))
        a deadlock: every rank waits in Recv until its neighbour sends
          rank 0 waits in Recv for rank 1 to send
          rank 1 waits in Recv for rank 0 to send
          try: Sendrecv, which does both at once
    """
    calls = {(wait.call, wait.receives) for wait in run.waits}
    waiting = {wait.rank for wait in run.waits}
    if len(calls) == 1 and len(run.cycle) == run.ranks:
        ((call, receives),) = calls
        head = f"every rank waits in {call} until its neighbour"
        if receives:
            head = f"a deadlock: {head} sends"
        else:
            head += " receives: on large messages this deadlocks"
    elif run.cycle:
        head = f"a deadlock: ranks {', '.join(map(str, run.cycle))} wait for each other"
        if len(run.cycle) == 1:
            head = f"a deadlock: rank {run.cycle[0]} waits for itself"
    elif not run.waits:
        head = f"each send has its receive, but one took longer than {LIMIT_S} s"
        return f"{head}\n  try: the same tag on both ranks, or no tags"
    else:
        wait = next(each for each in run.waits if each.peer not in waiting)
        verb = "sends" if wait.receives else "receives"
        done = f"rank {wait.peer} is done, and never {verb} that"
        done = "all others are done or wait, too" if wait.peer == ANY else done
        head = f"rank {wait.rank} waits forever: {done}"
    cure = (
        "try: Sendrecv, which does both at once"
        if run.cycle
        else ("try: every message needs one send and one receive, with the same two ranks")
    )
    return "\n  ".join([head, *run.waiting, cure])

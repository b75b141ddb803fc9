"""Running a learner's function on ranks: its messages are recorded, and every wait ends.

`watch` returns the messages, which a notebook shows as a picture; `OnRanks` is for exercises.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ttkit.cluster.engines.stacks import Frame, is_library
from ttkit.lessons import CheckFailed
from ttkit.lessons.comparing import answer_difference
from ttkit.lessons.exercises import NotDone, Run
from ttkit.plans.messages import ANY_SOURCE, Call, Exchange, exchange
from ttkit.waiting import wait_until

LIMIT_S = 2.5  # One message of an answer may take this many seconds.
SHOWN = 2  # A picture shows the numbers in a message if there are at most this many.


# ---------------------------------------------------------------- on a rank
class Stuck(BaseException):
    """A message took too long. `except Exception` in an answer does not catch this exception."""


class Watched:
    """A communicator with `Send`, `Recv` and `Sendrecv`; it records calls and ends waits.

    `Send` waits until the other rank receives, as `Ssend` does. MPI may wait with any message, and
    does wait with large ones.

    Args:
        comm: a communicator of mpi4py.
        limit_s: how many seconds one message may take.
    """

    def __init__(self, comm, limit_s: float):
        self._comm, self._limit_s = comm, limit_s
        self.rank, self.size = comm.rank, comm.size
        self.log: list[Call] = []

    def Send(self, buf, dest: int, tag: int = 0) -> None:
        self._exchange("Send", buf, dest, tag)

    def Recv(self, buf, source: int = ANY_SOURCE, tag: int | None = None) -> None:
        self._exchange("Recv", into=buf, source=source, recvtag=tag)

    def Sendrecv(
        self,
        sendbuf,
        dest: int,
        sendtag: int = 0,
        recvbuf=None,
        source: int = ANY_SOURCE,
        recvtag: int | None = None,
    ) -> None:
        self._exchange("Sendrecv", sendbuf, dest, sendtag, recvbuf, source, recvtag)

    def _exchange(
        self,
        name: str,
        buf=None,
        dest: int | None = None,
        tag: int = 0,
        into=None,
        source: int | None = None,
        recvtag: int | None = None,
    ) -> None:
        """Record a call, start its messages, and wait until they are done.

        Raises:
            Stuck: the messages took longer than the limit.
        """
        from mpi4py import MPI

        requests: list = []
        nbytes, text = 0, ""
        if source is not None:
            sender = MPI.ANY_SOURCE if source == ANY_SOURCE else source
            requests.append(
                self._comm.Irecv(into, sender, MPI.ANY_TAG if recvtag is None else recvtag)
            )
        if dest is not None:
            array = np.asarray(buf)
            requests.append(self._comm.Issend(buf, dest, tag))
            nbytes = array.nbytes
            text = ", ".join(f"{x:g}" for x in array.ravel()) if array.size <= SHOWN else ""
        to, origin = (None if peer == MPI.PROC_NULL else peer for peer in (dest, source))
        self.log.append(Call(name, to, origin, nbytes, text, _line()))
        statuses = [MPI.Status() for _ in requests]
        ended, keep = MPI.Request.Testall, (requests, buf, into)
        if not wait_until(lambda: ended(requests, statuses), keep, self._limit_s):
            raise Stuck
        if source == ANY_SOURCE:  # The status names the rank that sent the message.
            self.log[-1] = self.log[-1]._replace(source=statuses[0].source)


def _line() -> str:
    """Return the learner's line that is running, as "file|number|function"."""
    frame: Any = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename == __file__ or is_library(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}|{frame.f_lineno}|{frame.f_code.co_name}" if frame else ""


class Outcome(NamedTuple):
    """The outcome of a function on a rank.

    Attributes:
        state: "done", "to do", "stuck", or "away" if the rank takes no part.
        result: the value that the function returned, or the message of `NotDone`.
        log: the recorded calls that the rank made on the communicator.
    """

    state: str
    result: Any = None
    log: tuple[Call, ...] = ()

    @property
    def sent(self) -> int:
        """The number of bytes that the rank sent."""
        return sum(call.nbytes for call in self.log)


def _run(function: Callable, ranks: int, values: list[tuple], limit_s: float = LIMIT_S) -> Outcome:
    """Call a function with a communicator of the first `ranks` ranks.

    The other arguments are this rank's element of `values`.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    # If an answer leaves a message behind, the next answer cannot receive it, because each answer
    # has a new communicator.
    own = world.Split(0 if world.rank < ranks else MPI.UNDEFINED)
    if world.rank >= ranks:
        return Outcome("away")
    # Arrays from the notebook are read-only here, but an answer may write into its values.
    comm, mine = Watched(own, limit_s), deepcopy(values[own.rank])
    # All ranks wait here, so that no time limit starts before every rank is ready.
    own.Barrier()
    try:
        result = function(comm, *mine)
    except NotDone as hint:
        return Outcome("to do", str(hint))
    except Stuck:
        return Outcome("stuck", log=tuple(comm.log))
    return Outcome("done", result, tuple(comm.log))


# ---------------------------------------------------------------- in the notebook
def watch(cluster, function: Callable, *arguments, limit_s: float = 2.0) -> Exchange:
    """Call `function(comm, *arguments)` on every rank, and return the messages that they sent.

    `comm` has MPI's `Send`, `Recv` and `Sendrecv`. Here `Send` waits until the other rank receives,
    as MPI does with large messages. A message that takes longer than `limit_s` ends the run, and
    the picture shows which rank waits for which.

    Raises:
        TTKitError: the function raised an error on a rank; the message names the rank.

    Example::

        def to_the_right(comm):
            arriving = np.empty(1)
            right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            comm.Sendrecv(np.ones(1), dest=right, recvbuf=arriving, source=left)

        watch(cluster, to_the_right)
    """
    outcomes = cluster.run(_run, function, cluster.n, [arguments] * cluster.n, limit_s)
    found = _recorded(outcomes)
    waits = tuple(wait for wait in found.waits if outcomes[wait.rank].state == "stuck")
    results = tuple(each.result for each in outcomes)
    return Exchange(cluster.n, found.messages, waits, results)


def _recorded(outcomes: list[Outcome]) -> Exchange:
    """Return the messages of the ranks, with the text of the lines that sent or received them."""
    return exchange([[call._replace(line=_text(call)) for call in each.log] for each in outcomes])


def _text(call: Call) -> str:
    if not call.line:
        return ""
    file, number, function = call.line.rsplit("|", 2)
    return str(Frame(file, int(number), function))


# Each order is a function from a rank, its send and its receive to the rank's calls in a round.
ORDERS = {
    "Sendrecv": lambda rank, send, receive: [send._replace(name="Sendrecv", source=receive.source)],
    "Send, then Recv": lambda rank, send, receive: [send, receive],
    "Recv, then Send": lambda rank, send, receive: [receive, send],
    "Isend, then Recv": lambda rank, send, receive: [send._replace(name="Isend"), receive],
    "even ranks send first": lambda rank, send, receive: (
        [receive, send] if rank % 2 else [send, receive]
    ),
    "rank 0 receives first": lambda rank, send, receive: (
        [send, receive] if rank else [receive, send]
    ),
}


def ring_exchange(ranks: int = 4, order: str = "Sendrecv", buffered: bool = False) -> Exchange:
    """Return the messages with which each rank's number goes round a ring to all ranks.

    Args:
        order: a key of `ORDERS`: the order of the calls of each rank in a round.
        buffered: as in `exchange`. A message has 8 bytes if this is true, else 1 MiB.

    Example:
        >>> [ring_exchange(4, order).steps for order in ("Sendrecv", "even ranks send first")]
        [3, 6]
        >>> ring_exchange(4, "Send, then Recv").cycle
        (0, 1, 2, 3)
    """
    programs, nbytes = [], 8 if buffered else 2**20
    for rank in range(ranks):
        send = Call("Send", to=(rank + 1) % ranks, nbytes=nbytes)
        receive = Call("Recv", source=(rank - 1) % ranks)
        programs.append(ORDERS[order](rank, send, receive) * (ranks - 1))
    return exchange(programs, buffered)


# ---------------------------------------------------------------- exercises
# A budget is a function from a rank's values and the number of ranks to the most bytes that the
# rank may send.
Budget = Callable[[Any, int], int]


@dataclass(frozen=True)
class OnRanks:
    """Cases of an exercise: `f(comm, values)` on all ranks of a cluster, then on one rank fewer.

    Args:
        given: a function from the number of ranks to the list of their values.
    """

    given: Callable[[int], list]

    def runs(self, answer, asks: str, cluster) -> Iterator[RankRun]:
        """Yield the run on all ranks and the run on one rank fewer.

        The reference and the mistakes get the list of the values of all ranks.
        """
        if cluster is None or cluster.n < 3:
            rule = "the check needs at least three ranks: with two, left and right are the same"
            raise CheckFailed(f"{rule}\n  try: ttkit.Cluster(4)")
        cluster.client[:].execute("import numpy as np\nfrom ttkit import lessons", block=True)
        for n in (cluster.n, cluster.n - 1):
            values = self.given(n)
            outcomes = cluster.run(_run, answer, n, [(value,) for value in values])[:n]
            states = [each.state for each in outcomes]
            if "to do" in states:
                raise NotDone
            if "stuck" in states:
                raise CheckFailed(f"on {n} ranks: {why_stuck(_recorded(outcomes))}")
            results = [each.result for each in outcomes]
            yield RankRun((values,), results, f"on {n} ranks", {"n": n}, outcomes)


@dataclass
class RankRun(Run):
    """A call of an answer on ranks."""

    outcomes: Sequence[Outcome] = ()

    def result_difference(self, expected, rtol: float) -> str:
        """Return in words the first difference, rank by rank, or ""."""
        for rank, (want, have) in enumerate(zip(expected, self.result, strict=True)):
            if words := answer_difference(want, have, rtol):
                return f", rank {rank}: {words}"
        return ""

    def over_budget(self, budget: Budget) -> str:
        """Return in words which rank exceeds the budget or sent nothing, or ""."""
        for rank, outcome in enumerate(self.outcomes):
            sent, most = outcome.sent, budget(self.arguments[0][rank], len(self.outcomes))
            if sent > most:
                return f" it is right, but rank {rank} sent {sent} bytes; the budget is {most}"
            if not sent:
                return f", rank {rank} sent nothing through the `comm` that it was given"
        return ""

    def budget_used(self, budget: Budget) -> str:
        """Return in words how many bytes a rank sent, and how many it may send."""
        most = budget(self.arguments[0][0], len(self.outcomes))
        return f"each rank sent {self.outcomes[0].sent} of at most {most} bytes"


def why_stuck(run: Exchange) -> str:
    """Return in words why ranks wait forever.

    Example:
        >>> print(why_stuck(ring_exchange(2, "Recv, then Send")))
        0 messages, then a deadlock: rank 0 waits for 1, 1 for 0
          rank 0 waits in Recv for rank 1 to send
          rank 1 waits in Recv for rank 0 to send
          try: Sendrecv, which does both at once
    """
    cure = "every message needs one send and one receive, between the same two ranks"
    if run.cycle:
        cure = "Sendrecv, which does both at once"
    head = run.title.partition(", ")[2] or run.title
    return "\n  ".join([head, *run.waiting, f"try: {cure}"])

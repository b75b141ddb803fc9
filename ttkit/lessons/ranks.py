"""How a learner's function runs on ranks: its messages are recorded, and every wait ends.

`watch` shows them as a picture; `on_ranks` is for the checks of exercises.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from ttkit import lessons
from ttkit.cluster.engines.stacks import Frame, is_library, users_line
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed, NotDone, require
from ttkit.plans.messages import ANY, Call, Exchange, exchange

TIME_S = 15.0  # how long an answer may take in all
LIMIT_S = 2.5  # how long one message of it may take; less than the cluster's patience
POLL_S = 0.0005
MESSAGES = ("Send", "Isend", "Ssend", "Recv", "Irecv", "Sendrecv")
MESSAGES_ARE = "Send, Recv and Sendrecv (capital letters, NumPy arrays) are"
SHOWN = 2  # numbers of a message that a picture shows
_kept: list[Any] = []  # requests that nobody completes: MPI still knows their buffers


# ---------------------------------------------------------------- on a rank
class Stuck(BaseException):
    """A message has taken too long; no `except Exception` of an answer hides it."""


class Watched:
    """A communicator with some of MPI's calls; it records messages and ends waits.

    `Send` waits until the other rank receives, as `Ssend` does: MPI may do so with any message, and
    does with large ones.

    Args:
        comm: of mpi4py.
        limit_s: how long one message may take.
        allowed: which calls it has.
        those_are: the end of the message about another one.
    """

    def __init__(
        self,
        comm: Any,
        limit_s: float,
        allowed: tuple[str, ...] = MESSAGES,
        those_are: str = MESSAGES_ARE,
    ):
        self._comm, self._limit_s = comm, limit_s
        self._allowed, self._those_are = allowed, those_are
        self.rank, self.size = comm.rank, comm.size
        self.sent = self.calls = 0
        self.log: list[Call] = []

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of Python, such as pickle's
            raise AttributeError(name)
        if name not in self._allowed:
            raise CheckFailed(f"comm.{name} is not for this exercise: {self._those_are}")
        if name in MESSAGES:
            return getattr(self, f"_{name.lower()}")
        call = getattr(self._comm, name)

        def counted(*arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            return call(*arguments, **keywords)

        return counted

    def _send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self._wait([self._sending("Send", buf, dest, tag)])

    def _ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        self._wait([self._sending("Ssend", buf, dest, tag)])

    def _isend(self, buf: Any, dest: int, tag: int = 0) -> Any:
        return self._request(self._sending("Isend", buf, dest, tag))

    def _recv(
        self, buf: Any, source: int | None = None, tag: int | None = None, status: Any = None
    ) -> None:
        self._wait([self._receiving("Recv", buf, source, tag)], status)

    def _irecv(self, buf: Any, source: int | None = None, tag: int | None = None) -> Any:
        return self._request(self._receiving("Irecv", buf, source, tag))

    def _sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int | None = None,
        recvtag: int | None = None,
        status: Any = None,
    ) -> None:
        receiving = self._receiving("Sendrecv", recvbuf, source, recvtag, note=False)
        sending = self._sending("Sendrecv", sendbuf, dest, sendtag, _any(source))
        self._wait([receiving, sending], status)

    def _sending(self, name: str, buf: Any, dest: int, tag: int, source: int | None = None) -> Any:
        array = np.asarray(buf[0] if isinstance(buf, (list, tuple)) else buf)
        start = self._comm.Isend if name == "Isend" else self._comm.Issend
        request = start(buf, dest=dest, tag=tag)
        self.calls += 1
        self.sent += array.nbytes
        text = ", ".join(f"{x:g}" for x in array.ravel()) if array.size <= SHOWN else ""
        peers = _peer(dest), _peer(source)
        self.log.append(Call(name, *peers, array.nbytes, text, _line()))
        return request

    def _receiving(
        self, name: str, buf: Any, source: int | None, tag: int | None, note: bool = True
    ) -> Any:
        from mpi4py import MPI

        source = _any(source)
        request = self._comm.Irecv(buf, source, MPI.ANY_TAG if tag is None else tag)
        self.calls += 1
        if note:
            self.log.append(Call(name, source=_peer(source), line=_line()))
        return request

    def _wait(self, requests: list[Any], status: Any = None) -> None:
        """Wait for requests; what is received comes first and fills the status."""
        from mpi4py import MPI

        end = time.monotonic() + self._limit_s
        left, status = list(enumerate(requests)), status or MPI.Status()
        while left:
            left = [(i, r) for i, r in left if not r.Test(status if i == 0 else None)]
            if left and time.monotonic() > end:
                _kept.extend(requests)
                raise Stuck
            if left:
                time.sleep(POLL_S)
        if self.log[-1].source == ANY:  # now it is known
            self.log[-1] = self.log[-1]._replace(source=status.source)

    def _request(self, request: Any) -> Any:
        """Return the request of a call that did not wait, with a `Wait` that ends."""
        from mpi4py import MPI

        watched, began = self, self.log[-1]

        class Request(MPI.Request):  # type: ignore[misc]
            def Wait(self, status: Any = None) -> Literal[True]:
                try:
                    watched._wait([request], status)
                except Stuck:
                    watched.log.append(began._replace(name="Wait", line=_line()))
                    raise
                return True

            wait = Wait

        return Request(request)


def _any(source: int | None) -> int:
    """Return MPI's number for any rank where none is named."""
    from mpi4py import MPI

    return MPI.ANY_SOURCE if source is None else source


def _peer(rank: int | None) -> int | None:
    """Return a rank as a picture has it: None for nobody, `ANY` for any."""
    from mpi4py import MPI

    if rank is None or rank == MPI.PROC_NULL:
        return None
    return ANY if rank == MPI.ANY_SOURCE else rank


def _line() -> str:
    """Return the learner's line that is running, as "file|number|function"."""
    frame: Any = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename == __file__ or is_library(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}|{frame.f_lineno}|{frame.f_code.co_name}" if frame else ""


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
    function: Callable[..., Any], arguments: tuple[Any, ...], limit_s: float
) -> tuple[Any, list[Call], bool]:
    """Call the function on a rank; return its result, its messages, and whether it is stuck."""
    from mpi4py import MPI

    with _among(MPI.COMM_WORLD.size) as own:
        comm = Watched(own, limit_s)
        getattr(function, "__globals__", {}).setdefault("np", np)
        own.Barrier()  # so that nobody waits for a rank that has not begun
        try:
            return function(comm, *arguments), comm.log, False
        except Stuck:
            return None, comm.log, True


def _try(
    answer: Callable[..., Any],
    values: list[Any],
    allowed: tuple[str, ...],
    those_are: str,
    limit_s: float,
) -> tuple[str, Any, list[Call]]:
    """Call the answer on a rank with the rank's values.

    Returns:
        ("done", (result, bytes sent, calls made), messages), or "to do", "wrong" or "stuck" with a
        message; "away" where the rank takes no part.
    """
    with _among(len(values)) as own:
        if own is None:
            return "away", None, []
        comm = Watched(own, limit_s, allowed, those_are)
        given = values[comm.rank]
        several = isinstance(given, list)
        mine = [array.copy() for array in given] if several else given.copy()
        for name, value in (("np", np), ("lessons", lessons)):  # which the notebook has
            getattr(answer, "__globals__", {}).setdefault(name, value)
        own.Barrier()
        try:
            result = answer(comm, mine)
        except NotDone as hint:
            return "to do", str(hint), []
        except CheckFailed as why:
            return "wrong", str(why), []
        except Stuck:
            return "stuck", "", comm.log
    if result is None:
        return "wrong", "it gave nothing back: does it end in `return`?", comm.log
    try:
        arrays = [np.asarray(each, np.float32) for each in (result if several else [result])]
    except (TypeError, ValueError):
        wanted = "a list of arrays" if several else "an array"
        return "wrong", f"it gave a {type(result).__name__}, not {wanted}", comm.log
    return "done", (arrays if several else arrays[0], comm.sent, comm.calls), comm.log


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
    ranks = cluster.run(_run, function, arguments, limit_s)
    found = _recorded(cluster, [log for _, log, _ in ranks])
    stuck = {rank for rank, (_, _, late) in enumerate(ranks) if late}
    waits = tuple(wait for wait in found.waits if wait.rank in stuck)
    return Exchange(cluster.n, found.messages, waits, tuple(result for result, _, _ in ranks))


def _recorded(cluster: Any, logs: list[list[Call]]) -> Exchange:
    """Return the messages of recorded calls, with the text of their lines."""
    return exchange([[call._replace(line=_text(cluster, call)) for call in log] for log in logs])


def _text(cluster: Any, call: Call) -> str:
    if not call.line:
        return ""
    file, number, function = call.line.rsplit("|", 2)
    return users_line([Frame("", int(number), function, cluster.line(file, int(number)))])


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
    """Call `answer(comm, values[rank])` on every rank that has values.

    Args:
        values: an array, or a list of arrays, for each rank; the ranks after them take no part.
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
        outcomes = cluster.run(_try, answer, values, allowed, those_are, LIMIT_S)
    except TTKitError as error:
        message = str(error).partition("\n  try:")[0].partition(": ")[2]
        if cluster.busy() or cluster.state != "running":
            cluster.restart()
            message += "\n(the engines were started anew)"
        raise CheckFailed(_few(values, cluster) + message) from None
    finally:
        cluster.timeout_s = before
    outcomes = outcomes[: len(values)]
    for rank, (state, found, _) in enumerate(outcomes):
        if state == "to do":
            raise NotDone(found)
        require(state != "wrong", f"rank {rank}: {found}")
    if any(state == "stuck" for state, _, _ in outcomes):
        run = _recorded(cluster, [log for _, _, log in outcomes])
        raise CheckFailed(_few(values, cluster) + why_stuck(run))
    return [found for _, found, _ in outcomes]


def _few(values: list[Any], cluster: Any) -> str:
    """Say that fewer ranks took part than the cluster has."""
    n = len(values)
    return "" if n == cluster.n else f"on {n} ranks (take comm.size, not {cluster.n}): "


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

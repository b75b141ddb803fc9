"""How a learner's function runs on ranks: its messages are recorded, and every wait ends.

`watch` shows them as a picture; `on_ranks` is for the checks of exercises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ttkit import lessons
from ttkit.cluster.engines.stacks import Frame, users_line
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed, NotDone, drawn, require
from ttkit.lessons.watched import MESSAGES, MESSAGES_ARE, Stuck, Watched
from ttkit.plans.messages import ANY, Call, Exchange, exchange

TIME_S = 15.0  # how long an answer may take in all
LIMIT_S = 2.5  # how long one message of it may take; less than the cluster's patience


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
        ("done", (result, bytes sent, calls made), messages), or "to do", "wrong", "begun" or
        "stuck" with a message; "away" where the rank takes no part. "-1" is "done" by a rank that
        asked to receive from rank -1.
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
            result = drawn(answer(comm, mine))
            if comm.stuck:
                raise Stuck
        except NotDone as hint:
            return "to do", str(hint), []
        except CheckFailed as why:
            return "wrong", str(why), []
        except Stuck:
            return "stuck", "", comm.log
    if result is None:
        return "wrong", "it gave nothing back: does it end in `return`?", comm.log
    try:
        arrays = [_reals(each) for each in (result if several else [result])]
    except (TypeError, ValueError, OverflowError):
        wanted = "a list of arrays" if several else "an array"
        given = f"it gave a {type(result).__name__}, not {wanted} of real numbers"
        return "wrong", given, comm.log
    if call := comm.unfinished:
        early = f"it returned before its {call} was done: the request needs a Wait"
        return "begun", early, comm.log
    state = "-1" if comm.minus_one else "done"
    return state, (arrays if several else arrays[0], comm.sent, comm.calls), comm.log


def _reals(value: Any) -> np.ndarray:
    """Return real numbers in float32; raise where they are text or complex."""
    array = np.asarray(value)
    if array.dtype.kind in lessons.NOT_REAL:
        raise TypeError
    return array.astype(np.float32)


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
        if " raised NameError: " in message:
            message += "\n  try: what the function needs, inside it: the ranks do not have the rest"
        raise CheckFailed(_few(values, cluster) + message) from None
    finally:
        cluster.timeout_s = before
    outcomes = outcomes[: len(values)]
    for rank, (state, found, _) in enumerate(outcomes):
        if state == "to do":
            raise NotDone(found)
        on = f"on {len(values)} ranks, " * (len(values) < cluster.n)
        require(state != "wrong", f"{on}rank {rank}: {found}")
    stuck = any(state == "stuck" for state, _, _ in outcomes)
    run = _recorded(cluster, [log for _, _, log in outcomes] if stuck else [])
    begun = any(state == "begun" for state, _, _ in outcomes)
    # a rank that has returned takes nothing in: another one may be stuck for its sake
    if stuck and (run.waits or not begun):
        raise CheckFailed(_few(values, cluster) + why_stuck(run))
    for rank, (state, found, _) in enumerate(outcomes):
        require(state != "begun", f"{on}rank {rank}: {found}")
    before_0 = "rank 0 receives from rank -1, which MPI takes for any rank; before rank 0 comes "
    before_0 += f"rank {len(outcomes) - 1}: (comm.rank - 1) % comm.size"
    require({state for state, *_ in outcomes} != {"-1", "done"}, before_0)
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

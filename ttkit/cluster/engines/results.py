"""Waiting for ranks: every wait ends.

With results, with an error that names the rank, or with the reason why the cluster has ended.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import ipyparallel
from ipyparallel.error import RemoteError

from ttkit.cluster.engines.engine import rank_and_pid
from ttkit.cluster.engines.stacks import (
    at_lines,
    name_ranks,
    places,
    raised_at,
    stacks,
    users_lines,
)
from ttkit.cluster.engines.status import progress, shows_waits
from ttkit.errors import fail, shown_plainly

Cluster = Any  # of engines.cluster, which imports this module
PATIENCE_S = 3.0  # that the others get after the first rank has raised
# between ipyparallel's report that an engine is gone and mpirun's reason; measured: 0.6 s
NOTICE_S = 3.0
INTERRUPT_S = 1.0  # for a rank to leave the line where it is interrupted; measured: 0.1 s
RAISED_S = 10.0  # for one that has left it to answer; measured: 1 s for a process's first error
OUTPUT_S = 10.0  # for what was printed to arrive after the result
WHERE_AFTER_S = 10.0  # then it is also shown where the ranks are
WHERE_EVERY_S = 5.0
LAST_LINES, MANY_RANKS = 3, 8  # of prints that are shown as they come: of many ranks one line
UNREADABLE = "an answer that cannot be read"  # in the place of the name of an engine's error
SENDABLE = "NumPy arrays, numbers, text, and lists and dicts of them; ttkit.to_numpy(tensor)"
BACKTRACE = "\nLocation: "  # what the real ttnn adds: where in its C++ code, and a backtrace

Answers = Mapping[int, Any]  # rank -> ipyparallel's AsyncResult


class Client(ipyparallel.Client):
    """ipyparallel's client, with an end to every wait."""

    def busy(self) -> list[int]:
        """Return the engines that have not finished all they were sent.

        Only here does ipyparallel know it without asking the hub.
        """
        engines = dict(self._engines)
        return [number for number in sorted(engines) if self._outstanding_dict.get(engines[number])]

    def fail_pending(self, why: str) -> None:
        """End every wait for an answer that cannot come, of ipyparallel's own views too."""
        for future in list(self._futures.values()):
            error = RemoteError("EngineError", why, "")
            for each, value in ((getattr(future, "output", None), None), (future, error)):
                if each is not None and not each.done():
                    with contextlib.suppress(Exception):  # it has come after all
                        each.set_result(value)

    def _handle_apply_reply(self, msg: Any) -> None:
        """Take an answer that cannot be read here as an error of the rank that sent it."""
        try:
            super()._handle_apply_reply(msg)
        except Exception as error:  # an answer is read by code of its own kind
            future = self._futures.get(msg["parent_header"]["msg_id"])
            if future is None or future.done():
                raise
            future.set_result(RemoteError(UNREADABLE, f"{type(error).__name__}: {error}", ""))


class Interrupted(KeyboardInterrupt):
    """The notebook's stop button. Jupyter shows one sentence and the learner's own line."""

    def _render_traceback_(self) -> list[str]:
        return shown_plainly(self)


Interrupted.__name__ = "KeyboardInterrupt"


def ask(
    cluster: Cluster, asked: str, send: Callable[[Any], Any], ranks: list[int] | None = None
) -> Answers:
    """Send each rank something to do.

    Args:
        send: given ipyparallel's view of one rank; returns an AsyncResult.

    Raises:
        TTKitError: an engine is gone, or what is to be sent cannot be pickled.
    """
    try:
        return {
            rank: send(cluster.view(rank))
            for rank in (range(cluster.n) if ranks is None else ranks)
        }
    # an engine is no longer registered, or the sockets are closed
    except (IndexError, OSError) as error:
        _await_failure(cluster, asked)
        fail(asked, f"an engine does not answer: {error}", "cluster.restart()")
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        fail(asked, f"an argument cannot be sent to the ranks: {error}", SENDABLE)


def connect(cluster: Cluster, until: float) -> list[int]:
    """Wait for an answer and output of every rank; return the process ids in rank order.

    Registered is not yet connected: ZeroMQ drops what is sent, or printed, before the other end is
    connected, and the cell that did it would wait forever. So it is sent until it is answered.
    """
    pids: dict[int, int] = {}
    while len(pids) < cluster.n:
        rest = [rank for rank in range(cluster.n) if rank not in pids]
        answers = ask(cluster, "start", lambda view: view.apply_async(rank_and_pid), rest)
        again = time.monotonic() + 1.0
        while time.monotonic() < again and len(pids) < cluster.n:
            cluster.still_starting(until)
            for rank in rest:
                answer = answers[rank]
                if rank not in pids and answer.wait(0.01) and answer.wait_for_output(0.01):
                    number, pids[rank] = answer.get()
                    if number != rank:
                        fail("start", f"engine {rank} is MPI rank {number}", "cluster.restart()")
    return [pids[rank] for rank in range(cluster.n)]


def results(cluster: Cluster, answers: Answers, asked: str) -> list[Any]:
    """Return what the ranks answered, in rank order.

    Raises:
        TTKitError: a rank raised, or the cluster failed.
        KeyboardInterrupt: the notebook's stop button; the ranks are interrupted too. Ranks that
            train stop after their step, and answer; only a second interrupt raises.
    """
    cluster.latest = answers
    try:
        try:
            _wait(cluster, answers, asked)
        except KeyboardInterrupt:
            if not stop_training(cluster):
                raise
            _wait(cluster, answers, asked)
    except KeyboardInterrupt:
        print(interrupt(cluster))
        raise Interrupted(f"{asked} was interrupted") from None
    raised = {
        rank: answer.exception()
        for rank, answer in answers.items()
        if answer.done() and answer.exception() is not None
    }
    waiting = [rank for rank, answer in answers.items() if not answer.done()]
    if not raised and not waiting:
        return [answer.get() for answer in answers.values()]
    lines: dict[str, list[int]] = {}
    for rank, error in raised.items():
        cluster.last_error[rank] = f"{error.ename}: {error.evalue.partition(BACKTRACE)[0].strip()}"
        verb = "returned" if error.ename == UNREADABLE else "raised"
        place = raised_at(error.traceback or "", cluster.line)
        text = f"{verb} {cluster.last_error[rank]}" + (f"\n    at {place}" if place else "")
        lines.setdefault(text, []).append(rank)
    parts = [f"{name_ranks(ranks)} of {cluster.n} {text}" for text, ranks in lines.items()]
    for text, ranks in places(cluster, waiting).items():
        parts.append(
            f"{name_ranks(ranks)} did not finish"
            + ("" if raised else f" in {cluster.timeout_s:g} s")
            + f"\n    at {text}"
        )
    read = any(error.ename != UNREADABLE for error in raised.values())
    fix = "fix that line" if read else SENDABLE
    if waiting:
        others = "the others" if raised else "they"
        fix = f"{fix}; first " * bool(raised) + f"cluster.interrupt(), because {others} still wait"
    fail(asked, "\n  ".join(parts), fix)


def _wait(cluster: Cluster, answers: Answers, asked: str) -> None:
    """Wait until all have answered, or one has raised and the others wait for it, or time is up."""
    begin = time.monotonic()
    first_error: float | None = None
    look, where = begin + (WHERE_AFTER_S if shows_waits() else math.inf), ""
    with progress(asked) as show:
        while waiting := [rank for rank, answer in answers.items() if not answer.done()]:
            answers[waiting[0]].wait(0.05)
            gone = [rank for rank, answer in answers.items() if answer.done() and _lost(answer)]
            if gone or cluster.failure:
                _await_failure(cluster, asked)
            if first_error is None and any(
                answer.done() and answer.exception() is not None for answer in answers.values()
            ):
                first_error = time.monotonic()
            if first_error is not None and time.monotonic() - first_error > PATIENCE_S:
                return
            if cluster.timeout_s is not None and time.monotonic() - begin > cluster.timeout_s:
                return
            if time.monotonic() > look:
                where = "".join(f"; {text}" for text in at_lines(places(cluster, waiting), "are"))
                look = time.monotonic() + WHERE_EVERY_S * (6 if any(cluster.hosts) else 1)
            done = f"{len(answers) - len(waiting)} of {len(answers)} ranks are done{where}"
            show(done, lambda: news(cluster, answers))
    if any(_lost(answer) for answer in answers.values()):
        _await_failure(cluster, asked)


def prints(answer: Any, count: int) -> list[str]:
    """Return the last lines that a rank has printed for an answer that may not be there yet."""
    lines = str(answer.metadata["stdout"] or "").splitlines()
    return lines[-count:]


def news(cluster: Cluster, answers: Answers) -> list[str]:
    """Return what ranks print while they work, and how far their training is."""
    count, found = (LAST_LINES if len(answers) <= MANY_RANKS else 1), []
    for rank, answer in answers.items():
        doing = cluster.report(rank).doing
        lines = [*prints(answer, count), *([doing] if doing else [])]
        found += [f"[rank {rank}] {line}" for line in lines]
    return found


def _lost(answer: Any) -> bool:
    """Whether ipyparallel reports that the engine ended with its task."""
    return getattr(answer.exception(), "ename", "") == "EngineError"


def _await_failure(cluster: Cluster, asked: str) -> None:
    """Raise why the cluster failed, as soon as it is known."""
    until = time.monotonic() + NOTICE_S
    while not cluster.failure and time.monotonic() < until:
        time.sleep(0.02)
    cluster.check(asked)


def stop_training(cluster: Cluster) -> bool:
    """Stop a training over the ranks after its step; return whether one goes on.

    One rank is interrupted: after each step the ranks tell each other (ttkit.train.replicas).
    """
    training = [rank for rank in cluster.busy() if cluster.report(rank).doing]
    if training:
        cluster.signal(training[0], signal.SIGINT)
        print("the training stops after this step; interrupt again to stop at once")
    return bool(training)


def interrupt(cluster: Cluster) -> str:
    """Interrupt the busy ranks and describe where each was; stop engines that do not react."""
    busy = cluster.busy()
    if not busy:
        return "no rank was busy"
    before = stacks(cluster, busy)
    lines = at_lines(users_lines(before), "were")
    for rank in busy:
        cluster.signal(rank, signal.SIGINT)
    _while_busy(cluster, INTERRUPT_S)
    now = stacks(cluster, cluster.busy())
    if all(now[rank] != before.get(rank) for rank in now):
        _while_busy(cluster, RAISED_S)
    stuck = cluster.busy()
    if stuck or cluster.failure:
        cluster.renew()
        lines.append(
            f"{name_ranks(stuck or busy)} waited inside MPI, where no interrupt arrives: "
            "the engines are stopped and their variables are gone; the next call starts new engines"
        )
    else:
        lines.append(
            "interrupted; after a collective, cluster.restart(): "
            "what some ranks have sent for it is still under way"
        )
    return "\n".join(lines)


def _while_busy(cluster: Cluster, seconds: float) -> None:
    """Wait until no rank is busy, at most some seconds."""
    until = time.monotonic() + seconds
    while cluster.busy() and time.monotonic() < until and not cluster.failure:
        time.sleep(0.02)

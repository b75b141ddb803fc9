"""Waiting for ranks: every wait ends.

With results, with an error that names the rank, or with the reason why the cluster has ended.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import ipyparallel
from ipyparallel.client.client import unpack_message
from ipyparallel.error import RemoteError

from ttkit.cluster.engines.engine import REPORT, REPORT_EVERY_S, Report, first_report
from ttkit.cluster.engines.page import progress
from ttkit.cluster.engines.stacks import at_lines, raised_at
from ttkit.errors import Interrupted, fail
from ttkit.words import numbered

Cluster = Any  # The class in engines.cluster, which imports this module.
PATIENCE_S = 3.0  # The others get so long after the first rank has raised.
# ipyparallel reports that an engine is gone before mpirun gives the reason, up to 0.6 s later.
NOTICE_S = 3.0
INTERRUPT_S = 1.5  # A rank has so long to leave its line, and to report it.
RAISED_S = 10.0  # One that has left its line has so long to answer.
OUTPUT_S = 10.0  # Prints may arrive so long after the result.
UNREADABLE = "an answer that cannot be read"  # It stands for the name of an engine's error.
SENDABLE = "NumPy arrays, numbers, text, and lists and dicts of them; ttkit.to_numpy(tensor)"
BACKTRACE = "\nLocation: "  # The real ttnn adds its C++ line and a backtrace.

Answers = Mapping[int, Any]  # They map a rank to ipyparallel's AsyncResult.


class Client(ipyparallel.Client):
    """ipyparallel's client, with an end to every wait, and the last report of each rank."""

    def __init__(self, *arguments: Any, **keywords: Any):
        self.reports: dict[int, Report] = {}
        super().__init__(*arguments, **keywords)

    @unpack_message
    def _dispatch_iopub(self, message: Any) -> None:
        """Take a report; all else is ipyparallel's."""
        if message["header"]["msg_type"] == REPORT:
            rank, report = pickle.loads(message["buffers"][0])
            self.reports[rank] = report
        else:
            ipyparallel.Client._dispatch_iopub.__wrapped__(self, message)

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
                    with contextlib.suppress(Exception):  # The answer has come after all.
                        each.set_result(value)

    def _handle_apply_reply(self, msg: Any) -> None:
        """Take an answer that cannot be read here as an error of the rank that sent it."""
        try:
            super()._handle_apply_reply(msg)
        except Exception as error:  # Unpickling an answer may raise anything.
            future = self._futures.get(msg["parent_header"]["msg_id"])
            if future is None or future.done():
                raise
            future.set_result(RemoteError(UNREADABLE, f"{type(error).__name__}: {error}", ""))


def ask(cluster: Cluster, asked: str, send: Callable[[Any], Any], ranks: Iterable[int]) -> Answers:
    """Send each rank a task.

    Args:
        send: given ipyparallel's view of one rank; returns an AsyncResult.

    Raises:
        TTKitError: an engine is gone, or what is to be sent cannot be pickled.
    """
    reports = cluster.client.reports
    for rank, report in list(reports.items()):
        reports[rank] = replace(report, line=None, doing="")  # The line is of an earlier call.
    try:
        return {rank: send(cluster.view(rank)) for rank in ranks}
    # These mean that an engine is no longer registered, or that the sockets are closed.
    except (IndexError, OSError) as error:
        _await_failure(cluster, asked)
        fail(asked, f"an engine does not answer: {error}", "cluster.restart()")
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        fail(asked, f"an argument cannot be sent to the ranks: {error}", SENDABLE)


def connect(cluster: Cluster, until: float) -> dict[int, int]:
    """Wait for an answer and output of every rank; return the process id of each.

    A registered engine may not be connected yet. ZeroMQ drops what is sent or printed before the
    other end is connected, and a cell would wait forever. So one sends until it is answered.
    """
    pids: dict[int, int] = {}
    while rest := [rank for rank in range(cluster.n) if rank not in pids]:
        answers = ask(cluster, "start", lambda view: view.apply_async(first_report), rest)
        again = time.monotonic() + 1.0
        while time.monotonic() < again and len(pids) < cluster.n:
            cluster.still_starting(until)
            for rank, answer in answers.items():
                if rank not in pids and answer.wait(0.01) and answer.wait_for_output(0.01):
                    pids[rank], report = answer.get()
                    cluster.client.reports.setdefault(rank, report)
    return pids


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
    lines = defaultdict[str, list[int]](list)
    for rank, error in raised.items():
        cluster.last_error[rank] = f"{error.ename}: {error.evalue.partition(BACKTRACE)[0].strip()}"
        verb = "returned" if error.ename == UNREADABLE else "raised"
        line = raised_at(error.traceback or "")
        at = f"\n    at {line}" if line else ""
        lines[f"of {cluster.n} {verb} {cluster.last_error[rank]}{at}"].append(rank)
    limit = "" if raised else f" in {cluster.timeout_s:g} s"
    for line, ranks in running_lines(cluster, waiting).items():
        lines[f"did not finish{limit}\n    at {line}"] = ranks
    rule = "\n  ".join(f"{numbered('rank', ranks)} {text}" for text, ranks in lines.items())
    read = any(error.ename != UNREADABLE for error in raised.values())
    cure = "fix that line" if read else SENDABLE
    if waiting and raised:
        cure += "; first cluster.interrupt(), because the others still wait"
    elif waiting:
        cure = "cluster.interrupt(), because they still wait"
    fail(asked, rule, cure)


def _wait(cluster: Cluster, answers: Answers, asked: str) -> None:
    """Wait until all have answered, or one has raised and the others wait for it, or time is up."""
    begin = time.monotonic()
    limits = [] if cluster.timeout_s is None else [begin + cluster.timeout_s]
    raised = False
    with progress(cluster, asked) as show:
        while waiting := [rank for rank, answer in answers.items() if not answer.done()]:
            answers[waiting[0]].wait(0.05)
            done = [answer for answer in answers.values() if answer.done()]
            if cluster.failure or any(map(_lost, done)):
                _await_failure(cluster, asked)
            if not raised and any(answer.exception() is not None for answer in done):
                raised = True
                limits.append(time.monotonic() + PATIENCE_S)
            if limits and time.monotonic() > min(limits):
                return
            show(f"{len(done)} of {len(answers)} ranks are done")
    if any(map(_lost, answers.values())):
        _await_failure(cluster, asked)


def running_lines(cluster: Cluster, ranks: list[int]) -> dict[str, list[int]]:
    """Return where ranks are now: {"line 2: comm.Barrier()": [0, 1]}."""
    found = defaultdict[str, list[int]](list)
    for rank in ranks:
        found[str(cluster.report(rank).line or "no line of yours")].append(rank)
    return found


def _lost(answer: Any) -> bool:
    """Whether ipyparallel reports that the engine ended with its task."""
    return getattr(answer.exception(), "ename", "") == "EngineError"


def _wait_until(done: Callable[[], object], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(0.02)


def _await_failure(cluster: Cluster, asked: str) -> None:
    """Raise why the cluster failed, as soon as it is known."""
    _wait_until(lambda: cluster.failure, NOTICE_S)
    cluster.check(asked)


def stop_training(cluster: Cluster) -> bool:
    """Stop the training that runs on the ranks after its step; return whether there is one.

    One rank is interrupted: after each step the ranks tell each other (ttkit.train.parallel.ranks).
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
    # A rank that has just begun may not have reported where it is.
    _wait_until(lambda: all(cluster.report(rank).line for rank in busy), 2 * REPORT_EVERY_S)
    lines = at_lines(running_lines(cluster, busy), were=True)
    before = {rank: cluster.report(rank).line for rank in busy}
    for rank in busy:
        cluster.signal(rank, signal.SIGINT)
    _wait_until(lambda: not cluster.busy(), INTERRUPT_S)
    if all(cluster.report(rank).line != before[rank] for rank in cluster.busy()):
        _wait_until(lambda: not cluster.busy(), RAISED_S)
    stuck = cluster.busy()
    if stuck or cluster.failure:
        cluster.renew()
        lines.append(
            f"{numbered('rank', stuck or busy)} waited inside MPI, where no interrupt arrives: "
            "the engines are stopped and their variables are gone; the next call starts new engines"
        )
    else:
        lines.append(
            "interrupted; after a collective, cluster.restart(): "
            "what some ranks have sent for it is still under way"
        )
    return "\n".join(lines)

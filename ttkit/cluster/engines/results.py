"""Send tasks to the ranks, wait for their answers, and show their output in rank order.

A wait ends with results, with an error that names the rank, or with the reason why the cluster has
ended. `%%px` in a notebook runs a cell on every rank.
"""

import contextlib
import pickle
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ipyparallel
from ipyparallel.client.client import unpack_message
from ipyparallel.error import RemoteError
from IPython.core.display_functions import publish_display_data
from IPython.core.getipython import get_ipython
from IPython.core.magic import no_var_expand

from ttkit.cluster.engines.engine import REPORT, REPORT_EVERY_S, Report, process_id
from ttkit.cluster.engines.page import progress
from ttkit.cluster.engines.stacks import raised_at
from ttkit.errors import Interrupted, TTKitError, fail
from ttkit.waiting import interrupts, wait_until
from ttkit.words import grouped, numbered

Cluster = Any  # The class is in engines.cluster, which imports this module.
PATIENCE_S = 3.0  # After the first rank has raised, the others have this long to answer.
# mpirun reports why an engine ended up to 0.6 s after ipyparallel reports that it is gone. A wait
# for the reason takes at most this long.
NOTICE_S = 3.0
INTERRUPT_S = 1.5  # An interrupted rank has this long to leave its line and to report that.
RAISED_S = 10.0  # A rank that has left its line has this long to answer.
OUTPUT_S = 10.0  # Output may arrive this long after the result.
UNREADABLE = "an answer that cannot be read"  # Such an answer becomes an error with this name.
SENDABLE = "NumPy arrays, numbers, text, and lists and dicts of them; ttkit.to_numpy(tensor)"
# In a message of the real ttnn, this text comes before the C++ line and a backtrace.
BACKTRACE = "\nLocation: "

Answers = Mapping[int, Any]  # The keys are ranks, the values are ipyparallel's AsyncResults.


class Client(ipyparallel.Client):
    """ipyparallel's client; it can also end every wait and keeps the last report of each rank."""

    def __init__(self, *arguments, **keywords):
        self.reports: dict[int, Report] = {}
        super().__init__(*arguments, **keywords)

    @unpack_message
    def _dispatch_iopub(self, message) -> None:
        """Keep a report; pass every other message on to ipyparallel."""
        if message["header"]["msg_type"] == REPORT:
            rank, report = pickle.loads(message["buffers"][0])
            self.reports[rank] = report
        else:
            ipyparallel.Client._dispatch_iopub.__wrapped__(self, message)

    def busy(self) -> list[int]:
        """Return the engines that have not finished all tasks that were sent to them.

        ipyparallel keeps this only in `_outstanding_dict`; its other ways send a request to the
        hub.
        """
        engines = dict(self._engines)
        return [number for number in sorted(engines) if self._outstanding_dict.get(engines[number])]

    def fail_pending(self, why: str) -> None:
        """End every wait for an answer that cannot come, also in ipyparallel's own views."""
        for future in list(self._futures.values()):
            error = RemoteError("EngineError", why, "")
            for each, value in ((getattr(future, "output", None), None), (future, error)):
                if each is not None and not each.done():
                    with contextlib.suppress(Exception):  # The answer may have come meanwhile.
                        each.set_result(value)

    def _handle_apply_reply(self, msg) -> None:
        """Turn an answer that cannot be unpickled here into an error of the rank that sent it."""
        try:
            super()._handle_apply_reply(msg)
        except Exception as error:  # Unpickling an answer may raise anything.
            future = self._futures[msg["parent_header"]["msg_id"]]
            future.set_result(RemoteError(UNREADABLE, f"{type(error).__name__}: {error}", ""))


# ---------------------------------------------------------------- ask and wait
def ask(cluster: Cluster, asked: str, send: Callable, ranks: Iterable[int]) -> Answers:
    """Send each rank a task.

    Args:
        send: a function that takes ipyparallel's view of one rank and returns an AsyncResult.

    Raises:
        TTKitError: an engine is gone, or an argument of the task cannot be pickled.
    """
    client = cluster.client
    for rank, report in list(client.reports.items()):
        # During this call the figure must not show the line or the progress of an earlier call.
        client.reports[rank] = report._replace(line=None, doing="")
    try:
        return {rank: send(client.direct_view(rank)) for rank in ranks}
    # These exceptions mean that an engine is no longer registered, or that the sockets are closed.
    except (IndexError, OSError) as error:
        _await_failure(cluster, asked)
        fail(asked, f"an engine does not answer: {error}", "cluster.restart()")
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        fail(asked, f"an argument cannot be sent to the ranks: {error}", SENDABLE)


def connect(cluster: Cluster, until: float) -> dict[int, int]:
    """Wait for an answer and output of every rank; return {rank: process id}.

    A registered engine may not be connected yet. ZeroMQ drops what is sent or printed before the
    other end is connected, and a cell would then wait forever. So this function repeats its request
    until each rank has answered.
    """
    pids: dict[int, int] = {}
    while rest := [rank for rank in range(cluster.n) if rank not in pids]:
        answers = ask(cluster, "start", lambda view: view.apply_async(process_id), rest)
        again = time.monotonic() + 1.0
        while time.monotonic() < again and len(pids) < cluster.n:
            cluster.poll_start(until)
            for rank, answer in answers.items():
                if rank not in pids and answer.wait(0.01) and answer.wait_for_output(0.01):
                    pids[rank] = answer.get()
    return pids


def results(cluster: Cluster, asked: str, send: Callable, together: bool = False) -> list:
    """Send every rank a task, show what they print, and return what they answer, in rank order.

    Args:
        together: if all ranks printed the same text, show it once.

    Raises:
        TTKitError: a rank raised, or the cluster failed.
        KeyboardInterrupt: the notebook's stop button was pressed; the ranks are interrupted, too.
            Ranks that train stop after their current step and answer; then only a second interrupt
            raises this.
    """
    cluster.ensure_running(asked)
    answers: Answers = {}
    try:
        # An interrupt may arrive while the ranks already work, but not all tasks are sent.
        cluster.last_answers = answers = ask(cluster, asked, send, range(cluster.n))
        if _wait(cluster, answers, asked) and (
            not _stop_training(cluster) or _wait(cluster, answers, asked)
        ):
            raise KeyboardInterrupt
        _raise_errors(cluster, answers, asked)
        return [answer.get() for answer in answers.values()]
    except KeyboardInterrupt:
        print(interrupt(cluster))
        raise Interrupted(f"{asked} was interrupted") from None
    finally:
        show_outputs(answers, cluster.state == "running", together)


def _wait(cluster: Cluster, answers: Answers, asked: str) -> bool:
    """Wait until all ranks have answered, the time is up, one raised PATIENCE_S seconds ago, or
    Ctrl-C or the stop button was pressed; return whether it was.

    Raises:
        TTKitError: the cluster failed.
    """
    until = time.monotonic() + (float("inf") if cluster.timeout_s is None else cluster.timeout_s)
    raised = False
    with interrupts() as interrupted, progress(cluster, asked) as show:
        while not interrupted():
            done = [answer for answer in answers.values() if answer.done()]
            # ipyparallel gives this name to the error of an engine that ended during its task.
            lost = "EngineError" in [getattr(each.exception(), "ename", "") for each in done]
            if lost or (cluster.failure and len(done) < len(answers)):
                _await_failure(cluster, asked)
            if len(done) == len(answers) or time.monotonic() > until:
                break
            if not raised and any(answer.exception() for answer in done):
                raised = True
                until = min(until, time.monotonic() + PATIENCE_S)
            show(f"{len(done)} of {len(answers)} ranks are done")
            next(answer for answer in answers.values() if answer not in done).wait(0.05)
    return interrupted()


def _raise_errors(cluster: Cluster, answers: Answers, asked: str) -> None:
    """Raise one error for all ranks that raised or did not finish, with their lines, if any did."""
    lines = defaultdict[str, list[int]](list)
    waiting = [rank for rank, answer in answers.items() if not answer.done()]
    cure = SENDABLE
    for rank, answer in answers.items():
        if rank in waiting or not (error := answer.exception()):
            continue
        cluster.last_error[rank] = f"{error.ename}: {error.evalue.partition(BACKTRACE)[0].strip()}"
        verb = "returned"
        line = raised_at(error.traceback or "")
        if error.ename != UNREADABLE:
            verb, cure = "raised", "fix that line"
        at = f"\n    at {line}" if line else ""
        lines[f"of {cluster.n} {verb} {cluster.last_error[rank]}{at}"].append(rank)
    if not lines and not waiting:
        return
    limit = "" if lines else f" in {cluster.timeout_s:g} s"
    if waiting:
        others, then = ("the others", f"; then {cure}") if lines else ("they", "")
        cure = f"cluster.interrupt(), because {others} are still waiting{then}"
    for line, ranks in _running_lines(cluster, waiting).items():
        lines[f"did not finish{limit}\n    at {line}"] = ranks
    rule = "\n  ".join(f"{numbered('rank', ranks)} {text}" for text, ranks in lines.items())
    fail(asked, rule, cure)


def _running_lines(cluster: Cluster, ranks: list[int]) -> dict[str, list[int]]:
    """Return where ranks are now: {"line 2: comm.Barrier()": [0, 1]}."""
    return grouped(ranks, lambda rank: str(cluster.report(rank).line or "no line of yours"))


def _await_failure(cluster: Cluster, asked: str) -> None:
    """Raise the reason why the cluster failed; return if no reason is known within NOTICE_S."""
    wait_until(lambda: cluster.failure, timeout_s=NOTICE_S)
    cluster.ensure_running(asked)


# ---------------------------------------------------------------- interrupt
def _stop_training(cluster: Cluster) -> bool:
    """If the ranks train, let them stop after the current step; return whether they train.

    It is enough to interrupt one rank, because after each step the ranks exchange whether one of
    them was interrupted (ttkit.train.parallel.ranks).
    """
    training = [rank for rank in cluster.busy() if cluster.report(rank).doing]
    if training:
        cluster.signal(training[0], signal.SIGINT)
        print("the training stops after this step; interrupt again to stop at once")
    return bool(training)


def interrupt(cluster: Cluster) -> str:
    """Interrupt the busy ranks and describe where each was; stop all engines if one is stuck."""
    busy = cluster.busy()
    if not busy:
        return "no rank was busy"
    # A rank that has just begun may not have reported where it is.
    wait_until(lambda: all(cluster.report(r).line for r in busy), timeout_s=2 * REPORT_EVERY_S)
    before = {rank: cluster.report(rank).line for rank in busy}
    found = [
        f"{numbered('rank', ranks)} {'were' if len(ranks) > 1 else 'was'} at {line}"
        for line, ranks in _running_lines(cluster, busy).items()
    ]
    for rank in busy:
        cluster.signal(rank, signal.SIGINT)
    wait_until(lambda: not cluster.busy(), timeout_s=INTERRUPT_S)
    if all(cluster.report(rank).line != before[rank] for rank in cluster.busy()):
        wait_until(lambda: not cluster.busy(), timeout_s=RAISED_S)
    stuck = cluster.busy()
    if stuck or cluster.failure:
        cluster.renew()
        found.append(
            f"{numbered('rank', stuck or busy)} waited inside MPI, where no interrupt arrives: "
            "the engines are stopped and their variables are gone; the next call starts new engines"
        )
    else:
        found.append(
            "interrupted; after a collective, cluster.restart(): "
            "what some ranks have sent for it is still under way"
        )
    return "\n".join(found)


# ---------------------------------------------------------------- what the ranks print
def show_outputs(answers: Answers, complete: bool, together: bool) -> None:
    """Show what each rank printed and displayed, in rank order.

    Args:
        complete: wait for output that has not arrived yet.
        together: if all ranks printed the same text, show it once.
    """
    for answer in answers.values():
        if answer.done() and complete:
            answer.wait_for_output(OUTPUT_S)
    shown = {f"rank {rank}": answer for rank, answer in answers.items()}
    texts = {(answer.stdout, answer.stderr) for answer in shown.values()}
    displays = any(answer.outputs for answer in shown.values())
    if together and len(shown) > 1 and len(texts) == 1 and not displays:
        shown = {"all ranks": answers[0]}
    for label, answer in shown.items():
        _show(label, answer.stdout, sys.stdout)
        _show(label, answer.stderr, sys.stderr)
        for content in filter(None, [*(answer.outputs or []), answer.execute_result]):
            data = content["data"]
            if set(data) <= {"text/plain"}:
                _show(label, data.get("text/plain"), sys.stdout)
            else:  # The rank is printed above its picture or table.
                print(f"[{label}]")
                sys.stdout.flush()
                publish_display_data(data=data, metadata=content.get("metadata") or {})


def _show(label: str, text: str | None, stream) -> None:
    for line in (text or "").splitlines():
        print(f"[{label}] {line}", file=stream)


# ---------------------------------------------------------------- %%px
_started: list[Cluster] = []  # These are this notebook's clusters, in the order of their starts.


class CellError(TTKitError):
    """The error of a cell that failed on the ranks."""


def activate(cluster: Cluster) -> None:
    """Make `%px` and `%%px` run on the cluster that was started last and is not stopped."""
    shell: Any = get_ipython()
    if shell is None:
        return
    for other in _started:
        if other is not cluster and other.config == cluster.config and other.state != "stopped":
            # The cell that starts this cluster was run again, so the user has lost the old one.
            other.stop()
            print(f"{other.name}, started before, is stopped: this one takes its place")
    running = [each for each in _started if each is not cluster and each.state != "stopped"]
    _started[:] = [*running, cluster]

    def px(line: str, cell: str | None = None) -> None:
        """Run a line or a cell on every rank."""
        if cell is not None and line.strip():
            fail(f"%%px {line}", "it takes no options", "%%px alone in the first line")
        last = [each for each in _started if each.state != "stopped"] or _started
        run_cell(last[-1], line if cell is None else cell)

    shell.register_magic_function(no_var_expand(px), "line_cell", "px")


def run_cell(cluster: Cluster, cell: str) -> None:
    """Run a cell on all ranks and show their output, rank by rank.

    Raises:
        CellError: a rank raised, or the cluster failed; what was printed until then is shown.
    """
    try:
        results(cluster, "%%px", lambda view: view.execute(cell, silent=False, block=False))
    except TTKitError as error:
        raise CellError(str(error)) from None

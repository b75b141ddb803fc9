"""Waiting for ranks: every wait ends.

With results, with an error that names the rank, or with why the cluster is gone.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ttkit.cluster import ssh
from ttkit.cluster.client import UNREADABLE
from ttkit.cluster.engine import far_folder, stack_file, who
from ttkit.cluster.stacks import Frame, frames_of, raised_at, users_line
from ttkit.errors import fail, shown_plainly
from ttkit.words import in_notebook

if TYPE_CHECKING:
    from ttkit.cluster.engines import Cluster

PATIENCE_S = 3.0  # that the others get after the first rank has raised
# between ipyparallel's word that an engine is gone and mpirun's why; measured: 0.6 s
NOTICE_S = 3.0
INTERRUPT_S = 1.0  # for a rank to leave the line where it is interrupted; measured: 0.1 s
RAISED_S = 10.0  # for one that has left it to answer; measured: 1 s for a process's first error
OUTPUT_S = 10.0  # for what was printed to arrive after the result
SHOW_AFTER_S = 2.0
WHERE_AFTER_S = 10.0  # then it is also shown where the ranks are
WHERE_EVERY_S = 5.0
STACK_S = 1.0  # for a rank to write where it is
FAR_S = 10.0  # for another host to say so
# The process and its file; the folder of Open MPI there, which only the process knows, comes before
# it: see engine.own_folder.
FAR_STACK = """kill -USR1 "$0" && sleep 0.3 && cat "$(tr '\\0' '\\n' < /proc/"$0"/environ | sed -n 's/^PMIX_SERVER_TMPDIR=//p')/$1\""""
SENDABLE = "NumPy arrays, numbers, text, and lists and dicts of them; ttkit.to_numpy(tensor)"
BACKTRACE = "\nLocation: "  # what the real ttnn adds: where in its C++ code, and a backtrace

Answers = Mapping[int, Any]  # rank -> ipyparallel's AsyncResult


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
            rank: send(cluster._client.direct_view(rank))
            for rank in (range(cluster.n) if ranks is None else ranks)
        }
    # an engine is no longer registered, or the sockets are closed
    except (IndexError, OSError) as error:
        _await_failure(cluster, asked)
        fail(asked, f"an engine does not answer: {error}", "cluster.restart()")
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        fail(asked, f"an argument cannot be sent to the ranks: {error}", SENDABLE)


def greet(cluster: Cluster, until: float) -> list[int]:
    """Hear from every rank once, on both ways that messages take, and return the process ids in
    rank order.

    Registered is not yet connected: ZeroMQ drops what is sent, or printed, before the other end is
    there, and the cell that did it would wait for ever. So it is said again until it is answered.
    """
    pids: dict[int, int] = {}
    printed: set[int] = set()
    while len(printed) < cluster.n:
        rest = [rank for rank in range(cluster.n) if rank not in printed]
        told = ask(
            cluster,
            "start",
            lambda view: view.apply_async(who),
            [rank for rank in rest if rank not in pids],
        )
        said = ask(
            cluster, "start", lambda view: view.execute("print()", silent=False, block=False), rest
        )
        again = time.monotonic() + 1.0
        while time.monotonic() < again and len(printed) < cluster.n:
            cluster.still_starting(until)
            for rank, answer in told.items():
                if answer.wait(0.01):
                    number, pids[rank] = answer.get()
                    if number != rank:
                        fail("start", f"engine {rank} is MPI rank {number}", "cluster.restart()")
            printed |= {rank for rank in rest if rank in pids and said[rank].wait_for_output(0.01)}
    return [pids[rank] for rank in range(cluster.n)]


def results(cluster: Cluster, answers: Answers, asked: str) -> list[Any]:
    """What the ranks answered, in rank order.

    Raises:
        TTKitError: a rank raised, or the cluster failed.
        KeyboardInterrupt: the notebook's stop button; the ranks are interrupted too.
    """
    try:
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
    said = [f"{name_ranks(ranks)} of {cluster.n} {text}" for text, ranks in lines.items()]
    for text, ranks in places(cluster, waiting).items():
        said.append(
            f"{name_ranks(ranks)} did not finish"
            + ("" if raised else f" in {cluster.timeout_s:g} s")
            + f"\n    at {text}"
        )
    read = any(error.ename != UNREADABLE for error in raised.values())
    fix = "fix that line" if read else SENDABLE
    if waiting:
        others = "the others" if raised else "they"
        fix = f"{fix}; first " * bool(raised) + f"cluster.interrupt(), because {others} still wait"
    fail(asked, "\n  ".join(said), fix)


def _wait(cluster: Cluster, answers: Answers, asked: str) -> None:
    """Until all have answered; or one has raised and the others do not come, because they wait
    for it; or the time is up.
    """
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
                where = "".join(f"; {text}" for text in said_at(places(cluster, waiting), "are"))
                look = time.monotonic() + WHERE_EVERY_S * (6 if any(cluster.hosts) else 1)
            show(f"{len(answers) - len(waiting)} of {len(answers)} ranks are done{where}")
    if any(_lost(answer) for answer in answers.values()):
        _await_failure(cluster, asked)


def _lost(answer: Any) -> bool:
    """True where ipyparallel says that the engine went away with its task."""
    return getattr(answer.exception(), "ename", "") == "EngineError"


def _await_failure(cluster: Cluster, asked: str) -> None:
    """Raise why the cluster failed, as soon as it is known."""
    until = time.monotonic() + NOTICE_S
    while not cluster.failure and time.monotonic() < until:
        time.sleep(0.02)
    cluster.check(asked)


def interrupt(cluster: Cluster) -> str:
    """Interrupt the ranks that are busy and return where each was; where one does not hear it, stop
    the engines until the next call.
    """
    busy = cluster.busy()
    if not busy:
        return "no rank was busy"
    before = stacks(cluster, busy)
    lines = said_at(users_lines(before), "were")
    for rank in busy:
        cluster.signal(rank, signal.SIGINT)
    _while_busy(cluster, INTERRUPT_S)
    now = stacks(cluster, cluster.busy())
    if all(now[rank] != before.get(rank) for rank in now):
        _while_busy(cluster, RAISED_S)
    deaf = cluster.busy()
    if deaf or cluster.failure:
        cluster.renew()
        lines.append(
            f"{name_ranks(deaf or busy)} waited inside MPI, which hears no interrupt: "
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


def said_at(places: Mapping[str, list[int]], verb: str) -> list[str]:
    """
    Example:
        >>> said_at({"line 2: comm.Barrier()": [0, 1], "line 1: x = 0": [2]}, "were")
        ['ranks 0 and 1 were at line 2: comm.Barrier()', 'rank 2 was at line 1: x = 0']
    """
    verbs = [verb, {"were": "was", "are": "is"}[verb]]
    found = ((name_ranks(ranks), verbs[len(ranks) == 1], text) for text, ranks in places.items())
    return [f"{ranks} {verb} at {text}" for ranks, verb, text in found]


def places(cluster: Cluster, ranks: list[int]) -> dict[str, list[int]]:
    """Where ranks are just now: {"line 2: comm.Barrier()": [0, 1]}."""
    return users_lines(stacks(cluster, ranks))


def users_lines(stacks: Mapping[int, list[Frame]]) -> dict[str, list[int]]:
    """The ranks at each line of the user's."""
    found: dict[str, list[int]] = {}
    for rank, frames in stacks.items():
        found.setdefault(users_line(frames) or "no line of yours", []).append(rank)
    return found


def stacks(cluster: Cluster, ranks: list[int]) -> dict[int, list[Frame]]:
    """What each rank does just now, innermost first; [] of one that does not say.

    Works for ranks that wait inside MPI.
    """
    if not ranks or not cluster._processes:
        return {}
    files = {
        rank: stack_file(cluster._processes.folder, rank)
        for rank in ranks
        if not cluster.hosts[rank]
    }
    sizes = {rank: file.stat().st_size for rank, file in files.items()}
    for rank in files:
        cluster.signal(rank, signal.SIGUSR1)
    found: dict[int, list[Frame]] = {rank: [] for rank in ranks}
    until = time.monotonic() + STACK_S
    while not all(found[rank] for rank in files) and time.monotonic() < until:
        time.sleep(0.02)
        for rank, file in files.items():
            with file.open() as text:
                text.seek(sizes[rank])
                found[rank] = frames_of(text.read(), cluster.line)
    far = [rank for rank in ranks if cluster.hosts[rank]]
    for rank, said in zip(far, ssh.for_all(lambda rank: _far_stack(cluster, rank), far)):
        found[rank] = frames_of(said.rpartition("(most recent call first)")[2], cluster.line)
    return found


def _far_stack(cluster: Cluster, rank: int) -> str:
    """What a rank on another host writes when it is asked where it is; "" where the host does
    not answer.
    """
    file = stack_file("", rank)
    folder = far_folder(cluster._processes.folder, rank)  # type: ignore[union-attr]
    words = ["sh", "-c", FAR_STACK, str(cluster.pid(rank)), str(folder / file)]
    try:
        return subprocess.run(
            ssh.command(cluster.hosts[rank], words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FAR_S,
        ).stdout
    except subprocess.TimeoutExpired:
        return ""


def name_ranks(ranks: list[int]) -> str:
    """
    Example:
        >>> name_ranks([2]), name_ranks([0, 1, 3])
        ('rank 2', 'ranks 0, 1 and 3')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Say how a wait of more than two seconds is going, and take it away at the end;

    TTKIT_PROGRESS=0 turns it off.

    What is yielded takes the state in words, as often as one likes.
    """
    begin = shown = time.monotonic()
    line: Any = None
    notebook = in_notebook()
    if not shows_waits():
        yield lambda state: None
        return

    def put(text: str) -> None:
        nonlocal line
        if not notebook:
            cut = text[: shutil.get_terminal_size().columns - 1]  # one line can be taken away
            print(f"\r\x1b[K{cut}", end="", file=sys.stderr, flush=True)
            line = True
        elif line is None:
            from IPython.display import display

            line = display({"text/plain": text}, raw=True, display_id=True)
        else:
            line.update({"text/plain": text}, raw=True)

    def show(state: str) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - begin >= SHOW_AFTER_S and now - shown >= 0.5:
            shown = now
            put(f"{what}: {state}, {now - begin:.0f} s")

    try:
        yield show
    finally:
        if line is not None:
            put("")


def shows_waits() -> bool:
    """Whether a long wait is shown: on a notebook's page or a terminal."""
    return shows_progress() and (in_notebook() or sys.stderr.isatty())


def shows_progress() -> bool:
    """Whether what goes on may be shown while it goes on: not where outputs are compared, since
    no two runs are the same.
    """
    return os.environ.get("TTKIT_PROGRESS") != "0"

"""The supervisor: no process of a launch outlives the one that started it.

    notebook or `ttkit run` -- supervisor -+- controller (of ipyparallel, for engines only)
                                           +- mpirun -+- rank 0
                                                      +- rank 1

Its standard input is a pipe from the owner: the first line is the order, a later one is input for a
command, and its end means that the owner stops or is gone. Then mpirun is asked to stop, and every
process below the supervisor is killed, orphans too: Linux gives them to the supervisor. It writes
lines of JSON: {"started": {name: pid}}, then an `Ended` for each command that ends by itself. The
owner's side is ttkit.cluster.processes.

It imports little, so that it starts fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's <sys/prctl.h>
LOOK_EVERY_S = 0.1
MPIRUN_S = 4.0  # for mpirun to report that a rank has ended, and why; measured: 0.3 s
GRACE_S = 2.0  # for mpirun to stop its ranks and to remove its own files; measured: 0.2 s
LAST_BYTES = 20_000  # of a log, kept when its process ends
STOP, RELEASE = b"stop\n", b"release\n"


def die_with_parent(number: int = signal.SIGKILL) -> Callable[[], None] | None:
    """Return what makes Linux send a child a signal when the thread that started it ends.

    To be run in the child before its program starts.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: nothing may be loaded between fork and exec
    return lambda: prctl(PR_SET_PDEATHSIG, number)


def exit_with_parent() -> None:
    """End this process when its parent ends: at once on Linux, within a second elsewhere.

    The parent of an engine on another host is Open MPI's daemon there. That one ends, and its ranks
    with it, when the connection to its mpirun does: at once when mpirun ends, by whatever signal,
    and 30 s after the network between them is gone (ACROSS_HOSTS in `launch.command`).

    The thread compares the parent's number, which changes when the parent ends: a killed parent
    whose own parent does not wait for it keeps its entry.
    """
    parent = os.getppid()
    protect = die_with_parent()
    if protect:
        protect()
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent death", daemon=True).start()


def pid_file(rank: int | str) -> str:
    """Return the file in the cluster's folder in which a rank writes its process id."""
    return f"rank{rank}.pid"


class Supervisor:
    """The supervisor's own side: start the commands of an order, watch them, stop them."""

    def __init__(self, order: Mapping[str, Any]):
        self.folder = Path(order["folders"][0])
        self.commands: dict[str, subprocess.Popen[bytes]] = {}
        self.reported: set[str] = set()
        self.ranks: dict[int, Any] = {}  # psutil.Process
        # the first rank that ended by itself, and when that was seen
        self.gone: tuple[int, float] | None = None
        for name, words in order["commands"].items():
            try:
                with open(self.folder / f"{name}.log", "wb") as log:
                    into, out, err = order["streams"] or (subprocess.PIPE, log, log)
                    self.commands[name] = subprocess.Popen(
                        words,
                        stdin=into,
                        stdout=out,
                        stderr=err,
                        env=order["environment"],
                        preexec_fn=die_with_parent(signal.SIGTERM),  # mpirun then stops its ranks
                    )
            except OSError as error:
                _report(name=name, code=127, error=str(error))
        for stream in order["streams"]:
            os.close(stream)  # only mpirun keeps them: their readers wait for their end
        _report(started={name: command.pid for name, command in self.commands.items()})

    def watch(self, owner: Any) -> bytes:
        """Wait until the owner stops or is gone; return its last line."""
        parent = os.getppid()
        while os.getppid() == parent:
            if select.select([owner], [], [], LOOK_EVERY_S)[0]:
                line = owner.readline()
                if line in (b"", STOP, RELEASE):
                    return line
                self.give_input(*json.loads(line))
            for name, command in self.commands.items():
                code = command.poll()
                if code is not None:
                    self.report(name, code)
            self.watch_ranks()
        return b""

    def give_input(self, name: str, text: str) -> None:
        """Write a line to the standard input of a command."""
        with contextlib.suppress(OSError, KeyError):
            pipe: Any = self.commands[name].stdin
            with pipe:
                pipe.write(text.encode() + b"\n")

    def report(self, name: str, code: int, rank: int | None = None) -> None:
        """Report to the owner, once, that a command has ended."""
        if name not in self.reported:
            self.reported.add(name)
            log = (self.folder / f"{name}.log").read_bytes()[-LAST_BYTES:]
            _report(name=name, code=code, rank=rank, log=log.decode(errors="replace"))

    def watch_ranks(self) -> None:
        """Notice that an engine has ended where mpirun does not.

        mpirun does, and knows why; but not always where the rank ends before it has joined MPI,
        while others do (seen in 1 of 4 starts), nor where it leaves with code 0.
        """
        if self.gone is not None:
            mpirun = self.commands["mpirun"]
            if time.monotonic() - self.gone[1] > MPIRUN_S and mpirun.poll() is None:
                self.report("mpirun", 1, self.gone[0])
                mpirun.terminate()
            return
        for file in self.folder.glob(pid_file("*")):
            import psutil  # late: mpirun is started sooner without it

            rank = int(file.name.removeprefix("rank").removesuffix(".pid"))
            try:
                if rank not in self.ranks:
                    self.ranks[rank] = psutil.Process(int(file.read_text()))
                process = self.ranks[rank]
                ended = not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
            except psutil.NoSuchProcess:
                ended = True
            if ended:
                self.gone = rank, time.monotonic()

    def stop(self) -> None:
        """Stop every process below this one: by mpirun's own way first, then for good."""
        running = [command for command in self.commands.values() if command.poll() is None]
        for command in running:
            command.terminate()
        until = time.monotonic() + GRACE_S
        while any(command.poll() is None for command in running) and time.monotonic() < until:
            time.sleep(0.02)
        import psutil

        this = psutil.Process()
        # orphans below us are our children: see main
        while left := this.children(recursive=True):
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=1.0)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0] > 0:
                    pass


def _report(**event: Any) -> None:
    """Write one line to the owner, who may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, (json.dumps(event) + "\n").encode())


def main() -> None:
    """Supervise what the order on standard input asks for."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    if sys.platform.startswith("linux"):
        # whatever loses its parent below this process becomes its child, not init's
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    owner = open(0, "rb", buffering=0)
    line = owner.readline()
    if not line.endswith(b"\n"):  # the owner has ended
        return
    order = json.loads(line)
    supervisor = Supervisor(order)
    last = b""
    try:
        last = supervisor.watch(owner)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if last != RELEASE:
            supervisor.stop()
        import shutil

        for folder in order["folders"]:
            shutil.rmtree(folder, ignore_errors=True)

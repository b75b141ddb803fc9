"""The supervisor: no process of a launch outlives the one that started it.

    notebook or `ttkit run` -- supervisor -+- controller (of ipyparallel, for engines only)
                                           +- mpirun -+- rank 0
                                                      +- rank 1

Its standard input is a pipe from the owner: the first line is the order, a later one is input for
mpirun, and null or its end means that the owner stops or is gone. Then, and as soon as one of its
processes ends by itself, mpirun is asked to stop, and every process below the supervisor is killed,
orphans too: Linux gives them to the supervisor. It writes lines of JSON: {"started": {name: pid}},
then an `Ended` for the process that ended by itself. The owner's side is ttkit.cluster.processes.

The ranks on other hosts are children of Open MPI's daemon there. It ends, and its ranks with it,
when the connection to its mpirun does: at once when mpirun ends, by whatever signal, and 30 s after
the network between them is gone (ACROSS_HOSTS in `launch.command`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # They are from Linux's <sys/prctl.h>.
LOOK_EVERY_S = 0.1
MPIRUN_S = 4.0  # mpirun reports why a rank has ended within 0.3 s.
GRACE_S = 2.0  # mpirun stops its ranks and removes its files in 0.2 s.
LAST_BYTES = 20_000  # So much of a log is kept when its process ends.


def pid_file(rank: int | str) -> str:
    """Return the file in the cluster's folder in which a rank writes its process id."""
    return f"rank{rank}.pid"


class Supervisor:
    """The supervisor process: it starts the commands of an order, watches and stops them."""

    def __init__(self, order: Mapping[str, Any]):
        self.folder = Path(order["folders"][0])
        self.commands: dict[str, subprocess.Popen[bytes]] = {}
        # It is looked up now: nothing may be loaded between fork and exec. Only Linux has it.
        prctl = getattr(ctypes.CDLL(None), "prctl", lambda option, value: None)
        # Orphans below this process become its children, not init's, so that it can stop them.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
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
                        # If the supervisor is killed, mpirun gets SIGTERM and stops its ranks.
                        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
                    )
            except OSError as error:
                self.report(name, 127, error=str(error))
        for stream in order["streams"]:
            os.close(stream)  # Readers see the end only when every copy is closed.
        _write(started={name: command.pid for name, command in self.commands.items()})

    def watch(self, owner: Any) -> None:
        """Wait until the owner stops or is gone, or a process has ended by itself; report that."""
        parent, lost = os.getppid(), None
        while os.getppid() == parent:
            if select.select([owner], [], [], LOOK_EVERY_S)[0]:
                text = json.loads(owner.readline() or "null")
                if text is None:
                    return
                pipe: Any = self.commands["mpirun"].stdin
                with contextlib.suppress(OSError), pipe:
                    pipe.write(text.encode() + b"\n")
            for name, command in self.commands.items():
                if (code := command.poll()) is not None:
                    self.report(name, code)
                    return
            if lost is None:
                lost, since = self.ended_rank(), time.monotonic()
            elif time.monotonic() > since + MPIRUN_S:
                self.report("mpirun", 1, rank=lost)
                return

    def report(self, name: str, code: int, **more: Any) -> None:
        """Report to the owner that a command has ended."""
        log = (self.folder / f"{name}.log").read_bytes()[-LAST_BYTES:]
        _write(name=name, code=code, log=log.decode(errors="replace"), **more)

    def ended_rank(self) -> int | None:
        """Return an engine that has ended; None while all run.

        mpirun notices it and knows why, but not always where the rank ends before it has joined
        MPI, while others do (seen in 1 of 4 starts), nor where it leaves with code 0.
        """
        import psutil  # It is imported late, so that mpirun starts sooner.

        for file in self.folder.glob(pid_file("*")):
            with contextlib.suppress(psutil.NoSuchProcess):
                if psutil.Process(int(file.read_text())).status() != psutil.STATUS_ZOMBIE:
                    continue
            return int(file.stem.removeprefix("rank"))
        return None

    def stop(self) -> None:
        """Stop every process below this one: by mpirun's own way first, then for good."""
        import psutil

        for command in self.commands.values():
            command.terminate()
        until = time.monotonic() + GRACE_S
        while any(each.poll() is None for each in self.commands.values()):
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        this = psutil.Process()
        while left := this.children(recursive=True):
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=1.0)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0] > 0:
                    pass


def _write(**event: Any) -> None:
    """Write one line to the owner, who may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, (json.dumps(event) + "\n").encode())


def main() -> None:
    """Supervise what the order on standard input asks for."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    owner = open(0, "rb", buffering=0)
    line = owner.readline()
    if not line.endswith(b"\n"):  # The owner has ended.
        return
    order = json.loads(line)
    supervisor = Supervisor(order)
    try:
        supervisor.watch(owner)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        supervisor.stop()
        for folder in order["folders"]:
            shutil.rmtree(folder, ignore_errors=True)

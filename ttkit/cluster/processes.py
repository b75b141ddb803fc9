"""The processes of one launch, under a supervisor: none of them outlives the launch's owner.

    notebook or `ttkit run` -- supervisor -+- controller (of ipyparallel, for engines only)
                                           +- mpirun -+- rank 0
                                                      +- rank 1

The owner (the notebook or `ttkit run`) uses `Supervised`; the supervisor process runs `Supervisor`.
The supervisor reads lines of JSON from the owner through a pipe, its standard input.
The first line is an order, which says what to start and how. A later line is a text for
mpirun, or null if the owner stops; if the owner is gone, the pipe ends. When the owner
stops or is gone, or when a command ends by itself, the supervisor asks all commands to
stop, and then kills every process below it. These include orphans, because Linux makes
them children of the supervisor. To its standard output the supervisor writes lines of
JSON: {"started": {name: pid}}, and an `Ended` for the process that ended by itself.

The ranks on other hosts are children of Open MPI's daemon there. The daemon and its ranks end when
the daemon loses its connection to mpirun: at once if mpirun ends or is killed, and after 30 s if
the network between them is gone (ACROSS_HOSTS in `launch.command`).
"""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

PREFIX = "ttkit-"
SHARED_MEMORY = Path("/dev/shm")
SHARED_BYTES = 32 << 20  # Open MPI 5.0 maps 16 MB for a rank at first, and more later.
# The folder of this ttkit comes first on sys.path. The working folder is removed: `-c` and
# PYTHONPATH, which tt-run sets to the working folder, put it before the standard library, so that a
# `json.py` there would replace Python's own. (Python 3.10 has no option -P.)
START = (
    "import os, sys; here = '', os.getcwd(); "
    "sys.path[:] = [{root!r}, *(folder for folder in sys.path if folder not in here)]; "
    "from ttkit.cluster.{module} import {function}; {function}()"
)


def python_command(module: str, function: str = "main") -> list[str]:
    """Return the command that runs a function of a module in `ttkit.cluster`."""
    root = str(Path(__file__).resolve().parents[2])
    return [sys.executable, "-c", START.format(root=root, module=module, function=function)]


class Ended(NamedTuple):
    """A process that ended by itself.

    Args:
        name: "controller", "mpirun" or "supervisor".
        code: its exit code; below 0, the signal that ended it.
        log: its last output, if that went into a file.
        rank: the rank that ended, if mpirun did not report it.
    """

    name: str
    code: int
    log: str = ""
    rank: int | None = None


OnEnd = Callable[[Ended], None]


class Supervised:
    """The processes of one launch, and the folder of their logs and keys."""

    def __init__(self, kind: str):
        # The folder holds keys, so no other user may read it; mkdtemp ensures that.
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        self.ended: Ended | None = None  # This is the first process that ended by itself.
        self.pids: dict[str, int] = {}
        self.folders = [self.folder]
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def shared_memory(self, ranks: int) -> Path:
        """Return the folder for the memory that the ranks share.

        It is in /dev/shm (RAM) if there is enough room; otherwise it is `self.folder`. A container
        may have only 64 MB in /dev/shm, and a process that writes more ends with SIGBUS.
        """
        free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0
        if free < ranks * SHARED_BYTES:
            return self.folder
        ram = SHARED_MEMORY / self.folder.name
        ram.mkdir(mode=0o700)
        self.folders.append(ram)
        return ram

    def start(
        self,
        commands: Mapping[str, Sequence[str]],
        environment: Mapping[str, str],
        on_end: OnEnd,
        streams: Sequence[int] = (),
    ) -> None:
        """Start the supervisor and its commands.

        Args:
            on_end: a function that is called, in a thread of its own, when the first
                process ends by itself; the supervisor then ends the others.
            streams: the commands' standard input, output and error, as file descriptors; without
                them a command gets a pipe and a log in the folder.
        """
        # The supervisor gets its own session, so that Ctrl-C on the owner's terminal does not reach
        # mpirun, which would then stop all ranks.
        self._process = subprocess.Popen(
            python_command("processes"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=streams,
        )
        self.pids["supervisor"] = self._process.pid
        threading.Thread(target=self._listen, args=(self._process, on_end), daemon=True).start()
        self.send(
            {
                "commands": commands,
                "environment": environment,  # It may have secrets, so it is not written to a file.
                "folders": list(map(str, self.folders)),
                "streams": [*streams],
            }
        )

    def send(self, value) -> None:
        """Send a value to the supervisor, unless the supervisor is gone.

        A text goes on to the standard input of mpirun, where no other user can read it."""
        pipe: Any = self._process and self._process.stdin
        with suppress(OSError):
            pipe.write(json.dumps(value).encode() + b"\n")
            pipe.flush()

    def _listen(self, process, on_end: OnEnd) -> None:
        with process.stdout as events:
            for line in events:
                event = json.loads(line)
                if "started" in event:
                    self.pids |= event["started"]
                else:
                    self._note(Ended(**event), on_end)
        self._note(Ended("supervisor", process.wait()), on_end)

    def _note(self, ended: Ended, on_end: OnEnd) -> None:
        if not self._stopping and self.ended is None:
            self.ended = ended
            on_end(ended)

    def stop(self) -> None:
        """Stop all processes, wait for their end, and remove the folders."""
        if self._stopping:
            return
        self._stopping = True
        if self._process is not None:
            # Closing the pipe is not enough if a forked child of this process has it open, too.
            self.send(None)
            with suppress(OSError):
                self._process.stdin.close()  # type: ignore[union-attr]
            self._process.wait()
        _remove(self.folders)  # The supervisor has removed them, unless it was killed.


def _remove(folders: Sequence[str | Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- the supervisor
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # Linux's <sys/prctl.h> defines these numbers.
LOOK_EVERY_S = 0.1
MPIRUN_S = 4.0  # mpirun has this long to report why a rank ended; it needs up to 0.3 s.
GRACE_S = 2.0  # mpirun has this long to stop its ranks and remove its files; it needs 0.2 s.
LAST_BYTES = 20_000  # The report of an ended process has this much of the end of its log.


def pid_file(rank: int | str) -> str:
    """Return the name of the file, in the rank's folder, to which a rank writes its process id."""
    return f"rank{rank}.pid"


class Supervisor:
    """The supervisor process, which starts, watches and stops the commands of an order."""

    def __init__(self, order: Mapping[str, Any]):
        self.folder = Path(order["folders"][0])
        self.commands: dict[str, subprocess.Popen[bytes]] = {}
        # prctl is loaded here, as nothing may be loaded between fork and exec. Only Linux has it.
        prctl = getattr(ctypes.CDLL(None), "prctl", lambda option, value: None)
        # Orphans below this process become its children, not init's, so that it can stop them.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        for name, words in order["commands"].items():
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
        for stream in order["streams"]:
            os.close(stream)  # A reader sees the end of a stream only when every copy is closed.
        _write(started={name: command.pid for name, command in self.commands.items()})

    def watch(self, owner) -> None:
        """Wait until the owner stops or is gone, or until a command or a rank ends by
        itself, and report such an end to the owner."""
        parent, lost = os.getppid(), None
        while os.getppid() == parent:
            if select.select([owner], [], [], LOOK_EVERY_S)[0]:
                text = json.loads(owner.readline() or "null")
                if text is None:
                    return
                pipe: Any = self.commands["mpirun"].stdin
                with suppress(OSError), pipe:
                    pipe.write(text.encode() + b"\n")
            for name, command in self.commands.items():
                if (code := command.poll()) is not None:
                    self.report(name, code)
                    return
            if lost is None:
                lost = self.ended_rank()
                since = time.monotonic()
            elif time.monotonic() > since + MPIRUN_S:
                self.report("mpirun", 1, rank=lost)
                return

    def report(self, name: str, code: int, **more) -> None:
        """Report to the owner that a command has ended."""
        log = (self.folder / f"{name}.log").read_bytes()[-LAST_BYTES:]
        _write(name=name, code=code, log=log.decode(errors="replace"), **more)

    def ended_rank(self) -> int | None:
        """Return the rank of an engine that has ended on this host; None while all run.

        mpirun usually notices the end and knows the reason. But it may not notice the end of a rank
        that has not yet joined MPI while others join (seen in 1 of 4 starts), or of a rank that
        exits with code 0.
        """
        import psutil  # This import comes late, so that mpirun starts sooner.

        for file in self.folder.glob(pid_file("*")):
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(int(file.read_text())).status() != psutil.STATUS_ZOMBIE:
                    continue
            return int(file.stem.removeprefix("rank"))
        return None

    def stop(self) -> None:
        """Stop every process below this one: ask the commands to end, then kill what is left."""
        import psutil

        for command in self.commands.values():
            command.terminate()
        until = time.monotonic() + GRACE_S
        for command in self.commands.values():
            with suppress(subprocess.TimeoutExpired):
                command.wait(max(0.0, until - time.monotonic()))
        this = psutil.Process()
        while left := this.children(recursive=True):
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=1.0)


def _write(**event) -> None:
    """Write one line to the owner, which may be gone."""
    with suppress(OSError):
        os.write(1, (json.dumps(event) + "\n").encode())


def main() -> None:
    """Read an order from standard input, and run and supervise its commands."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    owner = open(0, "rb", buffering=0)
    line = owner.readline()
    if not line.endswith(b"\n"):  # The owner ended before it had sent the whole order.
        return
    order = json.loads(line)
    supervisor = Supervisor(order)
    try:
        supervisor.watch(owner)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        supervisor.stop()
        _remove(order["folders"])

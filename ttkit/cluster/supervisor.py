"""No process outlives the one that started it, and no folder outlives its processes.

    notebook or `ttkit run` -- supervisor -+- controller (of ipyparallel, for engines only)
                                           +- mpirun -+- rank 0
                                                      +- rank 1

`Supervised` is the owner's side, `main` the supervisor, a small process whose standard input is a
pipe from the owner: the first line is the order, a later one is input for a command, and its end
means that the owner stops or is gone. Then mpirun is asked to stop, and every process below the
supervisor is killed, orphans too: Linux gives them to the supervisor. It writes lines of JSON:
{"started": {name: pid}}, then an `Ended` for each command that ends by itself.

A folder holds a lock that the owner and the supervisor keep; the kernel releases it when both have
ended, however they did. `sweep` removes the folders whose lock is free.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttkit.cluster import begin

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's <sys/prctl.h>
PREFIX, LOCK = "ttkit-", "lock"
SHARED_MEMORY = Path("/dev/shm")
SHARED_BYTES = 32 << 20  # of a rank; Open MPI 5.0 maps 16 MB and grows
LOOK_EVERY_S = 0.1
MPIRUN_S = 4.0  # for mpirun to report that a rank has ended, and why; measured: 0.3 s
GRACE_S = 2.0  # for mpirun to stop its ranks and to remove its own files; measured: 0.2 s
STOP_S = 10.0  # for the supervisor to stop everything; measured: 0.5 s
LAST_BYTES = 20_000  # of a log, kept when its process ends
STOP, RELEASE = b"stop\n", b"release\n"


def python_command(function: str) -> list[str]:
    """Return the command that runs a function of this room, as begin.py names it."""
    return [sys.executable, str(Path(begin.__file__).resolve()), function]


@dataclass(frozen=True)
class Ended:
    """A process that ended by itself.

    Args:
        name: "controller", "mpirun" or "supervisor".
        code: below 0: the signal that ended it.
        log: its last output, where that went into a file.
        rank: one that ended without a report of mpirun.
        error: why it could not be started.
    """

    name: str
    code: int
    log: str = ""
    rank: int | None = None
    error: str = ""


class Supervised:
    """The processes of one launch, and the folder of their logs and keys."""

    def __init__(self, kind: str):
        sweep()
        self.owner = os.getpid()
        # readable by nobody else: keys are in it
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        self.ended: list[Ended] = []
        self.pids: dict[str, int] = {}
        self._folders = {self.folder: _lock(self.folder)}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._stopping = False

    def shared_memory(self, ranks: int) -> Path:
        """Return where the ranks put the memory that they share.

        In RAM where there is room for it, or more than in the folder: a container may have 64 MB of
        it, and writing more than there is ends a process with SIGBUS.
        """
        ram = SHARED_MEMORY / self.folder.name
        try:
            free = shutil.disk_usage(SHARED_MEMORY).free
            if free >= min(ranks * SHARED_BYTES, shutil.disk_usage(self.folder).free):
                ram.mkdir(mode=0o700)
                self._folders[ram] = _lock(ram)
                return ram
        except OSError:
            pass
        return self.folder

    def start(
        self,
        commands: Mapping[str, Sequence[str]],
        environment: Mapping[str, str],
        on_end: Callable[[Ended], None],
        streams: Sequence[int] = (),
    ) -> None:
        """Start the supervisor and its commands.

        Args:
            on_end: called, in a thread of its own, for each process that ends by itself.
            streams: file descriptors for the standard streams; pipes and logs in the folder if not
                given.
        """
        order = {
            "commands": commands,
            "environment": environment,  # not in a file: it may hold secrets
            "folders": [str(folder) for folder in self._folders],
            "streams": [*streams],
        }
        end, self._pipe = os.pipe()
        try:
            # A session of its own: Ctrl-C on the owner's terminal must not reach mpirun, which
            # would then stop all ranks.
            self._process = subprocess.Popen(
                python_command("supervisor:main"),
                stdin=end,
                stdout=subprocess.PIPE,
                start_new_session=True,
                pass_fds=[*self._folders.values(), *streams],
            )
        finally:
            os.close(end)
        self.pids["supervisor"] = self._process.pid
        self._listener = threading.Thread(target=self._listen, args=(on_end,), daemon=True)
        self._listener.start()
        self.send(json.dumps(order).encode() + b"\n")

    def send(self, line: bytes) -> None:
        """Send the supervisor a line, unless it is gone."""
        with contextlib.suppress(OSError):
            while line:
                line = line[os.write(self._pipe, line) :]

    def give_input(self, name: str, text: str) -> None:
        """Write a line to the standard input of a command: nobody else can read it there."""
        self.send(json.dumps([name, text]).encode() + b"\n")

    def _listen(self, on_end: Callable[[Ended], None]) -> None:
        process: Any = self._process
        with process.stdout as events:
            for line in events:
                event = json.loads(line)
                if "started" in event:
                    self.pids |= event["started"]
                else:
                    self._note(Ended(**event), on_end)
        self._note(Ended("supervisor", process.wait()), on_end)

    def _note(self, ended: Ended, on_end: Callable[[Ended], None]) -> None:
        if not self._stopping:
            self.ended.append(ended)
            on_end(ended)

    def stop(self, last: bytes = STOP) -> None:
        """Stop all processes and remove the folders; done when this returns.

        Args:
            last: RELEASE leaves the processes that a launch that ended well has left behind.
        """
        if self._stopping:
            return
        self._stopping = True
        if self._process is not None:
            # closing alone has no effect where a forked child of ours has the pipe too
            self.send(last)
            os.close(self._pipe)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()  # its children end with it: see exit_with_parent
                self._process.wait()
            self._listener.join(1.0)
        for folder, lock in self._folders.items():
            shutil.rmtree(folder, ignore_errors=True)  # the supervisor has done so, if it could
            os.close(lock)


def _lock(folder: Path) -> int:
    """Lock a new folder; the lock is held as long as this file descriptor, or a copy, is open."""
    new = folder / "new"
    lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    new.rename(folder / LOCK)  # never there without being held
    return lock


def sweep() -> None:
    """Remove the folders of this user whose processes were all killed at once."""
    for base in {Path(tempfile.gettempdir()), SHARED_MEMORY}:
        for folder in base.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):  # no lock: not ours; or it is held
                if folder.lstat().st_uid == os.geteuid():
                    with open(folder / LOCK, "rb") as lock:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(folder, ignore_errors=True)


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
        self.folders = [Path(folder) for folder in order["folders"]]
        self.commands: dict[str, subprocess.Popen[bytes]] = {}
        self.reported: set[str] = set()
        self.ranks: dict[int, Any] = {}  # psutil.Process
        # the first rank that ended by itself, and when that was seen
        self.gone: tuple[int, float] | None = None
        for name, words in order["commands"].items():
            try:
                with open(self.log(name), "wb") as log:
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

    def log(self, name: str) -> Path:
        return self.folders[0] / f"{name}.log"

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
        with contextlib.suppress(OSError, KeyError), self.commands[name].stdin as pipe:  # type: ignore[union-attr]
            pipe.write(text.encode() + b"\n")

    def report(self, name: str, code: int, rank: int | None = None) -> None:
        """Report to the owner, once, that a command has ended."""
        if name not in self.reported:
            self.reported.add(name)
            log = self.log(name).read_bytes()[-LAST_BYTES:].decode(errors="replace")
            _report(name=name, code=code, rank=rank, log=log)

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
        for file in self.folders[0].glob(pid_file("*")):
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
    order = owner.readline()
    if not order.endswith(b"\n"):  # the owner has ended
        return
    supervisor = None
    last = b""
    try:
        supervisor = Supervisor(json.loads(order))
        last = supervisor.watch(owner)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if supervisor:
            if last != RELEASE:
                supervisor.stop()
            for folder in supervisor.folders:
                shutil.rmtree(folder, ignore_errors=True)

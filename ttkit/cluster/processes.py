"""The processes of one launch, under a supervisor, and their folder, which does not outlive them.

The owner and the supervisor hold a lock on each folder, which the kernel releases when both have
ended. `sweep` removes the folders whose lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttkit.cluster import begin
from ttkit.cluster.supervisor import STOP

PREFIX, LOCK = "ttkit-", "lock"
SHARED_MEMORY = Path("/dev/shm")
SHARED_BYTES = 32 << 20  # of a rank; Open MPI 5.0 maps 16 MB and grows
STOP_S = 10.0  # for the supervisor to stop everything; measured: 0.5 s


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

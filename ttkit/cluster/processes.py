"""The processes of one launch, under a supervisor, and its folders, which end with them."""

from __future__ import annotations

import contextlib
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

PREFIX = "ttkit-"
SHARED_MEMORY = Path("/dev/shm")
SHARED_BYTES = 32 << 20  # Open MPI 5.0 maps 16 MB for a rank, and grows.
# The ttkit that this file belongs to comes first. The working folder does not come before the
# standard library, where a `json.py` in it would take the place of Python's own: not from `-c`,
# nor from PYTHONPATH, which tt-run sets to it. (Python 3.10 has no -P.)
START = (
    "import os, sys; here = '', os.getcwd(); "
    "sys.path[:] = [{root!r}, *(folder for folder in sys.path if folder not in here)]; "
    "from ttkit.cluster.{module} import {function}; {function}()"
)


def python_command(module: str, function: str = "main") -> list[str]:
    """Return the command that runs a function of this room."""
    root = str(Path(__file__).resolve().parents[2])
    return [sys.executable, "-c", START.format(root=root, module=module, function=function)]


@dataclass(frozen=True)
class Ended:
    """A process that ended by itself.

    Args:
        name: "controller", "mpirun" or "supervisor".
        code: its exit code; below 0, the signal that ended it.
        log: its last output, if that went into a file.
        rank: a rank that ended without a report of mpirun.
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
        # The folder holds keys, so nobody else can read it.
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        self.ended: list[Ended] = []
        self.pids: dict[str, int] = {}
        self.folders = [self.folder]
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._stopping = False

    def shared_memory(self, ranks: int) -> Path:
        """Return where the ranks put the memory that they share.

        In RAM where there is room for it, or more than in the folder: a container may have 64 MB of
        it, and writing more than there is ends a process with SIGBUS.
        """
        free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0
        if free < min(ranks * SHARED_BYTES, shutil.disk_usage(self.folder).free):
            return self.folder
        ram = SHARED_MEMORY / self.folder.name
        ram.mkdir(mode=0o700)
        self.folders.append(ram)
        return ram

    def start(
        self,
        commands: Mapping[str, Sequence[str]],
        environment: Mapping[str, str],
        on_end: Callable[[Ended], None],
        streams: Sequence[int] = (),
    ) -> None:
        """Start the supervisor and its commands.

        Args:
            on_end: called, in a thread of its own, when the first process ends by itself; the
                supervisor then ends the others.
            streams: file descriptors for the standard streams; pipes and logs in the folder if not
                given.
        """
        order = {
            "commands": commands,
            "environment": environment,  # It may hold secrets, so it never goes into a file.
            "folders": [str(folder) for folder in self.folders],
            "streams": [*streams],
        }
        end, self._pipe = os.pipe()
        try:
            # It gets its own session, so that Ctrl-C on the owner's terminal does not reach mpirun,
            # which would then stop all ranks.
            self._process = subprocess.Popen(
                python_command("supervisor"),
                stdin=end,
                stdout=subprocess.PIPE,
                start_new_session=True,
                pass_fds=streams,
            )
        finally:
            os.close(end)
        self.pids["supervisor"] = self._process.pid
        self._listener = threading.Thread(target=self._listen, args=(on_end,), daemon=True)
        self._listener.start()
        self._send(json.dumps(order))

    def _send(self, line: str) -> None:
        """Send the supervisor a line, unless it is gone."""
        with contextlib.suppress(OSError), open(self._pipe, "w", closefd=False) as pipe:
            pipe.write(line + "\n")

    def give_mpirun(self, text: str) -> None:
        """Write a line to the standard input of mpirun: nobody else can read it there."""
        self._send(json.dumps(text))

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
        if not self._stopping and not self.ended:
            self.ended.append(ended)
            on_end(ended)

    def stop(self) -> None:
        """Stop all processes and remove the folders; done when this returns."""
        if self._stopping:
            return
        self._stopping = True
        if self._process is not None:
            # Closing alone has no effect where a forked child of ours has the pipe too.
            self._send(json.dumps(None))
            os.close(self._pipe)
            self._process.wait()
            self._listener.join(1.0)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)  # The supervisor has done so, if it could.

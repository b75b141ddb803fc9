"""The notebook's side of the keeper: start the processes of a cluster, hear how they end, stop
them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ttkit.cluster import begin, leftovers
from ttkit.cluster.keeper import ORDER, remove
from ttkit.cluster.launch import CLOSED, EPITAPHS, LOST, TAG, ended_first, ranks_on
from ttkit.cluster.report import MARK, Report, parsed, read_report

STOP_S = 10.0  # for the keeper to take everything down; measured: 0.5 s
LAST_LINES = 8
# about their own comings and goings
CHATTER = re.compile(rb"[\d-]+ [\d:.]+ \[(IPEngine|IPController|KernelNanny)[\d.]*\] (?!CRITICAL)")
REPORT = re.compile(TAG.pattern + MARK.encode() + rb"(.*)\n")


def python_command(module: str) -> list[str]:
    """The command that runs a module of this room."""
    return [sys.executable, str(Path(begin.__file__).resolve()), module]


@dataclass(frozen=True)
class Ended:
    """A process of the cluster that ended though nobody asked it to."""

    name: str  # "controller", "mpirun" or "keeper"
    code: int  # below 0: the signal that ended it
    said: str = field(default="", repr=False)
    rank: int | None = None  # that ended without mpirun's saying so
    hosts: tuple[str, ...] = ()  # of each rank, where some are not this one

    def why(self, ranks: int) -> str:
        """What happened, in one sentence, with the last lines of the process to blame below it.

        Example:
            >>> print(Ended("mpirun", 1, "[1,0]<stderr>: No module named 'numpy'\\n").why(ranks=2))
            mpirun ended with code 1; the last lines:
              rank 0: No module named 'numpy'
        """
        lost = LOST.search(self.said)
        if lost:
            return (
                f"host {lost['host']}{ranks_on(lost['host'], self.hosts)} does not answer any "
                "more; the ranks on the other hosts were stopped"
            )
        match = (
            next((found for pattern in EPITAPHS if (found := pattern.search(self.said))), None)
            if self.name == "mpirun"
            else None
        )
        blamed = int(match["rank"]) if match else self.rank
        noticed = {
            int(tag[1])
            for line in self.said.encode().splitlines()
            if CLOSED.encode() in line and (tag := TAG.search(line))
        }
        if blamed in noticed:
            return f"{ended_first(noticed, ranks)}; the others were stopped with it"
        if blamed is None:
            text = f"{self.name} {_how(self.code)}"
        else:
            how = match["how"] if match else ""
            how = (
                f"exited with code {how}"
                if how.lstrip("-").isdigit()
                else f"was killed by {how}"
                if how.startswith("signal")
                else how or "ended"
            )
            text = f"rank {blamed} of {ranks} {how}" + (
                "; the others were stopped with it" if ranks > 1 else ""
            )
        last = _last_lines(self.said.encode(), blamed)
        return "\n".join(
            [text + ("; the last lines:" if last else ""), *(f"  {line}" for line in last)]
        )


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    name = (
        signal.Signals(-code).name if -code in signal.Signals.__members__.values() else str(-code)
    )
    return f"was killed by signal {-code} ({name})"


def _last_lines(said: bytes, rank: int | None) -> list[str]:
    """The last lines of one rank in mpirun's output, without tags; of all where no rank is to
    blame.
    """
    lines = []
    for line in said.splitlines():
        match = TAG.search(line)
        text = line[match.end() :] if match else line
        if (
            not text.strip()
            or CHATTER.match(text)
            or text.startswith(MARK.encode())
            or (rank is not None and (match is None or int(match[1]) != rank))
        ):
            continue
        lines.append(
            (f"rank {int(match[1])}: " if match and rank is None else "")
            + text.decode(errors="replace").rstrip()
        )
    return lines[-LAST_LINES:]


class Processes:
    """The processes of one start of a cluster.

    Its folder holds their logs and keys, and is removed with them.
    """

    def __init__(
        self,
        prepare: Callable[[Path], tuple[Mapping[str, Sequence[str]], Mapping[str, str]]],
        on_end: Callable[[Ended], None],
        hosts: Sequence[str] = (),
        tell: Sequence[str] = (),
    ):
        """Start them.

        Args:
            prepare: given the folder, the command for each name and the environment of all.
            on_end: called, in a thread of its own, for each process that ends by itself.
            hosts: the host of each rank, where some are not this one.
            tell: the process that waits for a file, and that file: see the keeper.
        """
        self._on_end, self._hosts = on_end, tuple(hosts)
        self.owner = os.getpid()
        leftovers.sweep()
        # readable by nobody else: the keys are in it
        self.folder = Path(tempfile.mkdtemp(prefix=leftovers.PREFIX))
        self.ended: list[Ended] = []
        self.pids: dict[str, int] = {}
        self._reports: dict[int, bytes] = {}  # the last ones of ranks on other hosts
        self._read = 0  # of mpirun's log, in which they are
        self._stopping = False
        self._lease, at_keeper = os.pipe()[::-1]
        try:
            leftovers.record(self.folder, [self.owner])
            commands, environment = prepare(self.folder)
            (self.folder / ORDER).write_text(
                json.dumps({"commands": commands, "environment": environment, "tell": list(tell)})
            )
            # A session of its own: Ctrl-C on the owner's terminal must not reach mpirun, which
            # would then stop all ranks.
            words = [*python_command("keeper"), str(self.folder)]
            self._keeper = subprocess.Popen(
                words, stdin=at_keeper, stdout=subprocess.PIPE, start_new_session=True
            )
            leftovers.record(self.folder, [self.owner, self._keeper.pid])
        except BaseException:
            os.close(self._lease)
            remove(self.folder)
            raise
        finally:
            os.close(at_keeper)
        self.pids["keeper"] = self._keeper.pid
        self._listener = threading.Thread(target=self._listen, name="ttkit cluster", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        stdout: IO[bytes] = self._keeper.stdout  # type: ignore[assignment]
        for line in stdout:
            event = json.loads(line)
            if "started" in event:
                self.pids |= event["started"]
            else:
                self._note(
                    Ended(
                        event["ended"], event["code"], event["said"], event.get("rank"), self._hosts
                    )
                )
        stdout.close()
        self._note(Ended("keeper", self._keeper.wait()))

    def _note(self, ended: Ended) -> None:
        if not self._stopping:
            self.ended.append(ended)
            self._on_end(ended)

    def report(self, rank: int) -> Report:
        """What a rank last said of itself; an empty report where it has not yet."""
        if not self._hosts:
            return read_report(self.folder, rank)
        with contextlib.suppress(OSError), open(self.folder / "mpirun.log", "rb") as log:
            place = log.seek(self._read)
            for line in log:
                if line.endswith(b"\n"):  # whole
                    place += len(line)
                    if found := REPORT.search(line):
                        self._reports[int(found[1])] = found[2]
            self._read = place
        return (
            parsed(self._reports[rank]) if rank in self._reports else read_report(self.folder, rank)
        )

    def stop(self) -> None:
        """Stop all of them and remove the folder; done when this returns."""
        if self._stopping:
            return
        self._stopping = True
        with contextlib.suppress(OSError):
            # closing alone says nothing where a forked child of ours has the pipe too
            os.write(self._lease, b"stop")
        os.close(self._lease)
        try:
            self._keeper.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()  # its children go with it: see lease
            self._keeper.wait()
        self._listener.join(1.0)
        remove(self.folder)  # the keeper has done so, if it could

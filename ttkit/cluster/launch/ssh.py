"""Other hosts by ssh: which host is this one, commands there, many hosts at once.

A host's user, port and key are in ~/.ssh/config, the one place that ssh, rsync and mpirun all read.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ttkit.errors import fail

H = TypeVar("H")
T = TypeVar("T")

CONNECT_S = 5
AT_ONCE = 32  # hosts that are talked to at the same time
# A program comes over standard input, its length first, and its input behind it.
START = "import sys; exec(compile(sys.stdin.read(int(sys.stdin.readline())), 'sent', 'exec'))"
# The Python of this environment, at the same path there; any other where it is missing.
EITHER = 'if test -x "$0"; then exec "$0" "$@"; else exec python3 "$@"; fi'
# Never ask for a password; give up a host that does not answer, at the start or in the middle
# (after 3 * 5 s).
OPTIONS = (
    "-o",
    "BatchMode=yes",
    "-o",
    f"ConnectTimeout={CONNECT_S}",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
)
# Messages of ssh when it fails -> what to do.
CURES = {
    "Permission denied": "ssh-copy-id {host}, so that it lets you in without a password",
    "Host key verification failed": "ssh {host} once by hand, and accept its key",
    "Could not resolve hostname": "fix the name in the hosts file, or give its address in "
    "/etc/hosts or ~/.ssh/config",
    "Connection refused": "start sshd there: apt install openssh-server, systemctl start ssh",
    "": "is it switched on, and in the same network? ping {host}",
}


def address(host: str) -> str:
    """Return a host's name without its user and the brackets of an IPv6 address.

    Example:
        >>> address("ttuser@metal-wh-01"), address("[::1]")
        ('metal-wh-01', '::1')
    """
    return host.rpartition("@")[2].strip("[]")


def is_here(host: str) -> bool:
    """Whether a name means this machine: its own name, or an address of one of its sockets.

    Example:
        >>> is_here("localhost"), is_here("192.0.2.1")
        (True, False)
    """
    name = address(host)
    if name in ("localhost", socket.gethostname()):
        return True
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, _, _, place in found:
        try:
            with socket.socket(family, kind) as probe:
                probe.bind(place)
                return True
        except OSError:
            continue
    return False


def own_address(host: str) -> str:
    """Return the address of this machine on its way to a host; no packet is sent.

    Raises:
        TTKitError: the host's name has no address.

    Example:
        >>> own_address("127.0.0.1")
        '127.0.0.1'
    """
    try:
        name = address(host)
        if shutil.which("ssh"):  # the name may be one of ~/.ssh/config
            settings = subprocess.run(["ssh", "-G", host], capture_output=True, text=True).stdout
            name = dict(line.split(" ", 1) for line in settings.splitlines()).get("hostname", name)
        family, kind, _, _, place = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        fail(
            f"look for the way to {host}",
            f"{error.strerror}",
            "correct its name in the hosts file; ttkit doctor checks it",
        )


def command(
    host: str, words: Sequence[str], folder: str | os.PathLike[str] | None = None
) -> list[str]:
    """Return the command that runs another one on a host, each word unchanged.

    Example:
        >>> command("a", ["echo", "two  words"], "/home/me")[-2:]
        ['a', "cd /home/me && echo 'two  words'"]
    """
    there = shlex.join(words)  # ssh gives one text to the shell there
    return [
        "ssh",
        *OPTIONS,
        host.replace("[", "").replace("]", ""),
        f"cd {shlex.quote(os.fspath(folder))} && {there}" if folder else there,
    ]


def call(words: Sequence[str], seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command without input and return its output as text.

    Raises:
        subprocess.TimeoutExpired: it took longer than so many seconds.
    """
    return subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
    )


class Program:
    """A Python program that is sent to a host, and answers there line by line.

    Args:
        asked: the call, for messages.
        here: whether the host is this one.
        source: the program, which needs no package.
        limit_s: how long one answer may take.
    """

    def __init__(self, asked: str, host: str, here: bool, source: str, limit_s: float):
        self._first, self._limit_s = f"{len(source)}\n{source}", limit_s
        python, pipe = [sys.executable, "-c", START], subprocess.PIPE
        words = python if here else command(host, ["sh", "-c", EITHER, *python])
        try:
            self._process = subprocess.Popen(
                words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace"
            )
        except OSError as error:
            rule = f"{words[0]} cannot be started: {error.strerror}"
            fail(asked, rule, "apt install openssh-client")

    def exchange(self, text: str) -> str:
        """Send a text and return one line; "" where none comes in time."""
        text, self._first = self._first + text, ""
        watchdog = threading.Timer(self._limit_s, self._process.kill)
        watchdog.start()
        process: Any = self._process
        try:
            process.stdin.write(text)
            process.stdin.flush()
            return process.stdout.readline()
        except OSError:  # it has gone
            return ""
        finally:
            watchdog.cancel()

    def end(self) -> str:
        """End the program and return its errors."""
        self._process.kill()
        try:
            return self._process.communicate()[1]
        except (OSError, ValueError):  # its pipes are closed
            return ""


def complaint(output: str) -> str:
    """Return the most telling line of what ssh or rsync wrote before it failed.

    Example:
        >>> complaint("Warning: added\\nssh: connect to host a port 22: Connection timed out\\n")
        'connect to host a port 22: Connection timed out'
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    known = [line for line in lines if is_complaint(line)]
    return (known or lines or ["it gave no reason"])[0].removeprefix("ssh: ")


def is_complaint(output: str) -> bool:
    """Whether ssh has failed, by what it wrote."""
    return "ssh: " in output or any(words in output for words in CURES if words)


def cure(host: str, output: str) -> str:
    """Return what to do about a host that ssh cannot reach.

    Example:
        >>> cure("a", "me@a: Permission denied (publickey).")
        'ssh-copy-id a, so that it lets you in without a password'
    """
    return next(text for words, text in CURES.items() if words in output).format(host=host)


def for_all(function: Callable[[H], T], hosts: Iterable[H]) -> Iterable[T]:
    """Call a function for all hosts at once; yield the results in the order of the hosts."""
    hosts = list(hosts)
    if not hosts:
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(hosts))) as pool:
        yield from pool.map(function, hosts)


def here(hosts: Iterable[str]) -> dict[str, bool]:
    """Return for each host whether it is this one; "" is."""
    names = list(dict.fromkeys(hosts))
    return dict(zip(names, for_all(lambda name: not name or is_here(name), names)))

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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ttkit.errors import fail

H = TypeVar("H")
T = TypeVar("T")

CONNECT_S = 5
AT_ONCE = 32  # So many hosts are asked at the same time.
# The other host runs the Python at the same path as here, or python3 if there is none.
EITHER = 'if test -x "$0"; then exec "$0" "$@"; else exec python3 "$@"; fi'
# ssh must never ask for a password, and must give up a host that does not answer, at the start or
# later (after 3 * 5 s).
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
# The keys are messages of ssh when it fails, the values what to do.
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


def address_of(host: str) -> str:
    """Return the address of a host, whose name may be one of ~/.ssh/config.

    Raises:
        TTKitError: the name has no address.
    """
    name = address(host)
    if shutil.which("ssh"):
        settings = call(["ssh", "-G", host]).stdout.splitlines()
        name = dict(line.split(" ", 1) for line in settings).get("hostname", name)
    try:
        return str(socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)[0][4][0])
    except OSError as error:
        cure = "correct its name in the hosts file; ttkit doctor checks it"
        fail(f"look for the way to {host}", f"{error.strerror}", cure)


def own_address(other: str) -> str:
    """Return the address of this machine on its way to another address; no packet is sent.

    Example:
        >>> own_address("127.0.0.1")
        '127.0.0.1'
    """
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        way.connect((other, 9))
        return str(way.getsockname()[0])


def command(
    host: str, words: Sequence[str], folder: str | os.PathLike[str] | None = None
) -> list[str]:
    """Return the command that runs another one on a host, each word unchanged.

    Example:
        >>> command("a", ["echo", "two  words"], "/home/me")[-2:]
        ['a', "cd /home/me && echo 'two  words'"]
    """
    there = shlex.join(words)  # ssh gives one text to the shell there.
    return [
        "ssh",
        *OPTIONS,
        host.replace("[", "").replace("]", ""),
        f"cd {shlex.quote(os.fspath(folder))} && {there}" if folder else there,
    ]


def call(
    words: Sequence[str], seconds: float | None = None, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command with a text as its input and return its output as text.

    Raises:
        subprocess.TimeoutExpired: it took longer than so many seconds.
    """
    return subprocess.run(
        words,
        input=text,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
    )


def answer_of(host: str, here: bool, source: str, question: str, seconds: float) -> tuple[str, str]:
    """Run a Python program, which needs no package, on a host; return its output and its errors.

    Args:
        here: whether the host is this one.
        question: its argument.
        seconds: how long it may take; then there is no output.
    """
    words = [sys.executable, "-I", "-", question]
    try:
        done = call(words if here else command(host, ["sh", "-c", EITHER, *words]), seconds, source)
        return done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        return "", ""
    except OSError as error:
        fail(
            "ttkit doctor", f"ssh cannot be started: {error.strerror}", "apt install openssh-client"
        )


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

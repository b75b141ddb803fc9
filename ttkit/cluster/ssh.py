"""Other hosts by ssh: which host is this one, how a command is started there, many hosts at once.

What a host needs (user, port, key) stands in ~/.ssh/config, the one place that ssh, rsync and
mpirun all read."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ttkit.errors import fail

H = TypeVar("H")
T = TypeVar("T")

CONNECT_S = 5
AT_ONCE = 32  # hosts that are talked to at the same time
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
# What ssh says when it cannot come in -> what to do.
CURES = {
    "Permission denied": "ssh-copy-id {host}, so that it lets you in without a password",
    "Host key verification failed": "ssh {host} once by hand, and accept its key",
    "Could not resolve hostname": "mend the name in the hosts file, or give its address in /etc/hosts or ~/.ssh/config",
    "Connection refused": "start sshd there: apt install openssh-server, systemctl start ssh",
    "": "is it switched on, and in the same network? ping {host}",
}


def address(host: str) -> str:
    """A host's name without the user in front and the brackets of an IPv6 address.

    Example:
        >>> address("ttuser@metal-wh-01"), address("[::1]")
        ('metal-wh-01', '::1')
    """
    return host.rpartition("@")[2].strip("[]")


def is_here(host: str) -> bool:
    """Whether a host's name means this machine: its own name, or an address that a socket of
    this machine can have.

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
    """The address of this machine on its way to a host; no packet is sent.

    Raises:
        TTKitError: the host's name has no address.

    Example:
        >>> own_address("127.0.0.1")
        '127.0.0.1'
    """
    try:
        # The name may be one of ~/.ssh/config.
        said = (
            subprocess.run(["ssh", "-G", host], capture_output=True, text=True).stdout
            if shutil.which("ssh")
            else ""
        )
        name = next(
            (line.split()[1] for line in said.splitlines() if line.startswith("hostname ")),
            address(host),
        )
        family, kind, _, _, place = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        fail(
            f"look for the way to {host}",
            f"{error.strerror}",
            "correct its name in the hosts file; ttkit doctor says more",
        )


def command(
    host: str, words: Sequence[str], folder: str | os.PathLike[str] | None = None
) -> list[str]:
    """The command that runs another one on a host, each word as it is, whatever it holds.

    Example:
        >>> command("a", ["echo", "two  words"], "/home/me")[-2:]
        ['a', "cd /home/me && echo 'two  words'"]
    """
    there = shlex.join(words)  # ssh hands one text to the shell over there
    return [
        "ssh",
        *OPTIONS,
        host.replace("[", "").replace("]", ""),
        f"cd {shlex.quote(os.fspath(folder))} && {there}" if folder else there,
    ]


def complaint(said: str) -> str:
    """The line that tells most of what ssh or rsync wrote before it failed.

    Example:
        >>> complaint("Warning: added\\nssh: connect to host a port 22: Connection timed out\\nrsync: connection unexpectedly closed\\n")
        'connect to host a port 22: Connection timed out'
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    known = [
        line
        for line in lines
        if line.startswith("ssh: ") or any(words and words in line for words in CURES)
    ]
    return (known or lines or ["it gave no reason"])[0].removeprefix("ssh: ")


def cure(host: str, said: str) -> str:
    """What to do about a host that ssh cannot reach.

    Example:
        >>> cure("a", "me@a: Permission denied (publickey).")
        'ssh-copy-id a, so that it lets you in without a password'
    """
    return next(text for words, text in CURES.items() if words in said).format(host=host)


def for_all(function: Callable[[H], T], hosts: Iterable[H]) -> Iterable[T]:
    """Call a function for all hosts at once; the results come in the order of the hosts, each as
    soon as it and those before it are there.
    """
    hosts = list(hosts)
    if not hosts:
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(hosts))) as pool:
        yield from pool.map(function, hosts)

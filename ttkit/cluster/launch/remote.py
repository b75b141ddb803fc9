"""Other hosts: find which host is this one, run commands by ssh, copy the project by rsync.

Set a host's user, port and key in ~/.ssh/config, because ssh, rsync and mpirun all read it.
"""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from ttkit.errors import fail
from ttkit.files import AnyPath
from ttkit.words import counted

T = TypeVar("T")

AT_ONCE = 32  # At most this many hosts are asked at the same time.
# ssh must never ask for a password. It must give up a host that does not answer: after 5 s at the
# start, and after 3 * 5 s later.
SSH = (
    "ssh -o BatchMode=yes -o ConnectTimeout=5 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
).split()
# The keys are parts of the error messages of ssh and rsync; the values say what to do.
CURES = {
    "Permission denied": "ssh-copy-id {host}, so that it lets you in without a password",
    "Host key verification failed": "ssh {host} once by hand, and accept its key",
    "Could not resolve hostname": "fix the name in the hosts file, or give its address in "
    "/etc/hosts or ~/.ssh/config",
    "Connection refused": "start sshd there: apt install openssh-server, systemctl start ssh",
    "rsync: No such file": "apt install rsync, on every host",
    "rsync: command not found": "apt install rsync, on every host",
    "rsync: not found": "apt install rsync, on every host",
    "ssh: ": "is it switched on, and in the same network? ping {host}",
}


# ---------------------------------------------------------------- names and addresses
def host_name(host: str) -> str:
    """Return a host's name without its user and the brackets of an IPv6 address.

    Example:
        >>> host_name("ttuser@metal-wh-01"), host_name("[::1]")
        ('metal-wh-01', '::1')
    """
    return host.rpartition("@")[2].strip("[]")


def _addresses(name: str) -> list[tuple[int, Any]]:
    """Return the addresses of a name."""
    found = socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)
    return [(family, place) for family, _, _, _, place in found]


def is_here(host: str) -> bool:
    """Return whether a name means this machine: its own name, or the address of an interface.

    Example:
        >>> is_here("localhost"), is_here("192.0.2.1")
        (True, False)
    """
    name = host_name(host)
    if name in ("localhost", socket.gethostname()):
        return True
    with contextlib.suppress(OSError, UnicodeError):  # The name may have no address.
        for family, place in _addresses(name):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind(place)
                return True
    return False


def which_are_here(hosts: Iterable[str]) -> dict[str, bool]:
    """Return for each host whether it is this machine; "" means this machine."""
    names = list(dict.fromkeys(hosts))
    return dict(zip(names, for_all(lambda name: not name or is_here(name), names)))


def address_of(host: str) -> str:
    """Return the address of a host, whose name may be an alias in ~/.ssh/config.

    Raises:
        TTKitError: the name has no address.
    """
    name = host_name(host)
    if shutil.which("ssh"):
        settings = call(["ssh", "-G", host]).stdout.splitlines()
        # ssh leaves the brackets of an IPv6 address in its answer.
        name = host_name(dict(line.split(" ", 1) for line in settings).get("hostname", name))
    try:
        return str(_addresses(name)[0][1][0])
    except (OSError, UnicodeError) as error:  # A name with two dots in a row cannot be encoded.
        fail(
            f"find the address of {host}",
            f"{error}",
            "correct its name in the hosts file; ttkit doctor checks it",
        )


def own_address(other: str) -> str:
    """Return this machine's own address on the route to another machine, without sending a packet.

    Example:
        >>> own_address("127.0.0.1")
        '127.0.0.1'
    """
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        way.connect((other, 9))
        return str(way.getsockname()[0])


# ---------------------------------------------------------------- commands
def command(host: str, words: Sequence[str], folder: AnyPath = "") -> list[str]:
    """Return the ssh command that runs `words` on a host, with each word unchanged.

    Example:
        >>> command("a", ["echo", "two  words"], "/home/me")[-2:]
        ['a', "cd /home/me && echo 'two  words'"]
    """
    there = shlex.join(words)  # ssh passes one text to the shell of the host.
    if folder:
        there = f"cd {shlex.quote(os.fspath(folder))} && {there}"
    return [*SSH, host.replace("[", "").replace("]", ""), there]


def call(
    words: Sequence[str], seconds: float | None = None, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command with a text as its input and return its output as text.

    The exit code is 255 if the command takes longer than `seconds`, 127 if it cannot be started.
    """
    try:
        return subprocess.run(
            words, input=text, timeout=seconds, capture_output=True, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 255, "", "")
    except OSError as error:
        return subprocess.CompletedProcess(words, 127, "", f"{words[0]}: {error.strerror}")


def complaint(output: str) -> str:
    """Return the line of `output` in which ssh or rsync says why it failed; "" if there is none.

    Example:
        >>> complaint("Warning: added\\nssh: connect to host a port 22: Connection timed out\\n")
        'connect to host a port 22: Connection timed out'
    """
    lines = (line.strip() for line in output.splitlines())
    known = (line for line in lines if any(words in line for words in CURES))
    return next(known, "").removeprefix("ssh: ")


def cure(host: str, output: str) -> str:
    """Return what to do about the error output of ssh or rsync for a host.

    Example:
        >>> cure("a", "me@a: Permission denied (publickey).")
        'ssh-copy-id a, so that it lets you in without a password'
    """
    found = (text for words, text in CURES.items() if words in output)
    return next(found, "ttkit doctor, which checks {host}").format(host=host)


def for_all(function: Callable[[str], T], hosts: Iterable[str]) -> Iterator[T]:
    """Call a function for all hosts in parallel; yield the results in the order of the hosts."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(function, hosts)


# ---------------------------------------------------------------- ttkit sync
# Files and folders of these names, anywhere in the project, belong to one machine or are too big.
EXCLUDED = """.git .venv __pycache__ *.pyc *.egg-info .*_cache .hypothesis .ipynb_checkpoints
.jupyter .ipython checkpoints""".split()
SHOWN = 20  # At most this many files of a host are shown.
INSTALLATION = (
    "python{}.{} -m venv .venv".format(*sys.version_info),
    ".venv/bin/python -m pip --disable-pip-version-check install --quiet --editable .",
)


def rsync_command(folder: Path, host: str, apply: bool = False) -> list[str]:
    """Return the rsync command that copies a folder to a host; without `apply` it lists changes.

    Example:
        >>> rsync_command(Path("/home/me/project"), "node-2")[-2:]
        ['/home/me/project/', 'node-2:/home/me/project/']
    """
    words = "rsync --archive --compress --mkpath --out-format=%n".split()
    words += ["-e", " ".join(SSH), *(f"--exclude={pattern}" for pattern in EXCLUDED)]
    words += [] if apply else ["--dry-run"]
    return [*words, f"{folder}/", f"{host}:{folder}/"]


def sync(
    hosts: Iterable[str], apply: bool = False, install: bool = False
) -> Iterator[tuple[str, bool]]:
    """Copy the current folder to the same path on all hosts but this one, at the same time.

    Yields:
        for each of these hosts, in order: what was or would be done, and whether it failed.

    Args:
        apply: whether to change the hosts; otherwise this only lists what would be done.
        install: whether to also make .venv there, with a Python of this version, and to install the
            project into it.

    Raises:
        TTKitError: the folder is / or your home.
    """
    path = Path.cwd()
    if path in (Path("/"), Path.home()):
        fail(f"ttkit sync of {path}", "it is not the folder of a project", "cd into the project")

    def one(host: str) -> tuple[str, bool]:
        done = call(rsync_command(path, host, apply))
        if done.returncode:
            reason = (
                complaint(done.stderr) or f"rsync ended with code {done.returncode}: {done.stderr}"
            )
            return f"{host}: FAILED: {reason}\n  try: {cure(host, done.stderr)}", True
        # rsync also lists changed folders, but only files are counted.
        names = (name for name in done.stdout.splitlines() if not name.endswith("/"))
        files = [f"  {name}" for name in names]
        what = f"{counted(len(files), 'file')} {'updated' if apply else 'to update'}"
        text = f"{host}: {what if files else 'up to date'}"
        for step in INSTALLATION if install and apply else ():
            done = call(command(host, step.split(), path))
            if done.returncode:
                last = "\n    ".join((done.stderr or done.stdout).strip().splitlines()[-4:])
                return f"{text}; FAILED: {step}\n    {last}", True
        if install and apply:
            text += "; environment set up"
        more = [f"  ... and {len(files) - SHOWN} more"] if len(files) > SHOWN else []
        return "\n".join([text, *files[:SHOWN], *more]), False

    return for_all(one, [name for name, this in which_are_here(hosts).items() if not this])

"""`ttkit sync`: the code of a project, copied to the same path on every host by rsync."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ttkit.cluster.files.hosts import Host
from ttkit.cluster.launch import ssh
from ttkit.errors import fail
from ttkit.words import counted

# Names of files and folders, anywhere in the project, that belong to one machine or are too big.
EXCLUDED = (
    ".git",
    ".venv",
    "__pycache__",
    "*.pyc",
    "*.egg-info",
    ".*_cache",
    ".hypothesis",
    ".ipynb_checkpoints",
    ".jupyter",
    ".ipython",
    "checkpoints",
)
SHOWN = 20  # So many files of a host are shown.
RSYNC = "\n  try: apt install rsync, on every host"
PIP_INSTALL = "-m pip --disable-pip-version-check install --quiet --editable .".split()


@dataclass(frozen=True)
class Synced:
    """What was, or would be, copied to one host.

    Args:
        changes: ("new" | "changed" | "delete", file), in rsync's order.
        wrong: why it failed; "" where it did not.
        installed: whether the environment was set up too.
    """

    host: str
    changes: tuple[tuple[str, str], ...] = ()
    wrong: str = ""
    installed: bool = False

    def lines(self, applied: bool) -> list[str]:
        """Return what to print about it.

        Example:
            >>> host = Synced("a", (("new", "x.py"), ("changed", "y.py")))
            >>> print(*host.lines(applied=False), sep="\\n")
            a: 2 files to update
              new      x.py
              changed  y.py
        """
        if self.wrong:
            return f"{self.host}: FAILED: {self.wrong}".splitlines()
        done = "updated" if applied else "to update"
        files = f"{counted(len(self.changes), 'file')} {done}" if self.changes else "up to date"
        lines = [f"{self.host}: {files}" + ("; environment set up" if self.installed else "")]
        lines += [f"  {what:<7}  {file}" for what, file in self.changes[:SHOWN]]
        if len(self.changes) > SHOWN:
            lines.append(f"  ... and {len(self.changes) - SHOWN} more")
        return lines


def rsync_command(folder: Path, host: str, apply: bool = False, delete: bool = False) -> list[str]:
    """Return the rsync that copies a folder to a host; without `apply` it only lists changes.

    Example:
        >>> rsync_command(Path("/home/me/project"), "node-2")[-2:]
        ['/home/me/project/', 'node-2:/home/me/project/']
    """
    words = ["rsync", "--archive", "--compress", "--mkpath", "--out-format=%i %n"]
    words += ["-e", " ".join(["ssh", *ssh.OPTIONS])]
    words += [f"--exclude={pattern}" for pattern in EXCLUDED]
    if not apply:
        words.append("--dry-run")
    if delete:
        words.append("--delete")
    return [*words, f"{folder}/", f"{host}:{folder}/"]


def sync(
    hosts: Iterable[Host], apply: bool = False, delete: bool = False, install: bool = False
) -> Iterable[Synced]:
    """Copy the current folder to the same path on all hosts but this one, all at once.

    The results come in the order of the hosts.

    Args:
        apply: do it; otherwise only list what would be done.
        delete: also delete there what is not here, except what is excluded.
        install: also make .venv there, by a Python of this version, and install the project into
            it.

    Raises:
        TTKitError: the folder is / or your home, or it has no project to install.
    """
    path = Path.cwd()
    asked = f"ttkit sync of {path}"
    if path in (Path("/"), Path.home()):
        fail(asked, "it is not the folder of a project", "cd into the project")
    if install and not (path / "pyproject.toml").is_file():
        rule = "it has no pyproject.toml, so pip cannot install it"
        fail(asked, rule, "leave out --install, or add one")
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"

    def one(host: str) -> Synced:
        words = rsync_command(path, host, apply, delete)
        try:
            done = ssh.call(words)
        except FileNotFoundError:
            return Synced(host, wrong=f"there is no rsync on this host{RSYNC}")
        if done.returncode:
            return Synced(host, wrong=_why(host, done))
        changes = tuple(_changes(done.stdout))
        if not (install and apply):
            return Synced(host, changes)
        for words in ([python, "-m", "venv", ".venv"], [".venv/bin/python", *PIP_INSTALL]):
            done = ssh.call(ssh.command(host, words, path))
            if done.returncode:
                last = "\n    ".join((done.stderr or done.stdout).strip().splitlines()[-4:])
                wrong = f"{' '.join(words)} ended with code {done.returncode}\n    {last}"
                return Synced(host, changes, wrong)
        return Synced(host, changes, installed=True)

    here = ssh.here(host.name for host in hosts)
    return ssh.for_all(one, [name for name in here if not here[name]])


def _changes(output: str) -> Iterable[tuple[str, str]]:
    """Yield the files of rsync's itemized list.

    `<f+++++++++ new.py`, `<f.st...... old.py`, `*deleting   gone.py`.
    """
    for line in output.splitlines():
        flags, _, name = line.partition(" ")
        if flags == "*deleting":
            yield "delete", name.strip()
        # Only files and links count. A folder comes with its files; '.' marks a change of times.
        elif flags[1:2] in ("f", "L") and flags[0] in "<c":
            yield "new" if "+++" in flags else "changed", name


def _why(host: str, done: subprocess.CompletedProcess[str]) -> str:
    output = done.stderr
    if done.returncode == 127 or "command not found" in output:
        return f"there is no rsync on that host{RSYNC}"
    if done.returncode == 255 or ssh.is_complaint(output):
        return f"{ssh.complaint(output)}\n  try: {ssh.cure(host, output)}"
    rule = f"rsync ended with code {done.returncode}: {ssh.complaint(output)}"
    return f"{rule}\n  try: ttkit doctor, which checks that host"

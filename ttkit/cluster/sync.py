"""The code of a project, brought to the same path on every host: rsync says what differs, and
copies it when told to.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ttkit.cluster import ssh
from ttkit.cluster.hosts import Host
from ttkit.errors import fail
from ttkit.words import counted

# Each machine's own, or too big: names of files and folders, wherever they are in the project.
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
SHOWN = 20  # files of one host, unless all are asked for


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

    def lines(self, applied: bool, every: bool = False) -> list[str]:
        """What to print about it.

        Example:
            >>> print(*Synced("a", (("new", "x.py"), ("changed", "y.py"))).lines(applied=False), sep="\\n")
            a: 2 files to copy
              new      x.py
              changed  y.py
        """
        copied = sum(what != "delete" for what, _ in self.changes)
        words = ("copied", "deleted") if applied else ("to copy", "to delete")
        counts = [
            f"{counted(number, 'file')} {word}"
            for number, word in zip((copied, len(self.changes) - copied), words)
            if number
        ]
        shown = self.changes if every else self.changes[:SHOWN]
        lines = [
            f"{self.host}: {', '.join(counts) or 'up to date'}{'; environment set up' if self.installed else ''}"
        ]
        if self.wrong:
            head, _, rest = self.wrong.partition("\n")
            lines = [f"{self.host}: FAILED: {head}", *rest.splitlines()]
        lines += [f"  {what:<7}  {file}" for what, file in shown]
        return lines + (
            [f"  ... and {len(self.changes) - len(shown)} more; --verbose shows all"]
            if len(shown) < len(self.changes)
            else []
        )


def rsync_command(
    folder: Path, host: str, apply: bool = False, delete: bool = False, exclude: Sequence[str] = ()
) -> list[str]:
    """The rsync that makes a folder on a host like this one's; without `apply` it only says what
    it would do.

    Example:
        >>> rsync_command(Path("/home/me/project"), "node-2")[-2:]
        ['/home/me/project/', 'node-2:/home/me/project/']
    """
    words = [
        "rsync",
        "--archive",
        "--compress",
        "--mkpath",
        "--out-format=%i %n",
        "-e",
        " ".join(["ssh", *ssh.OPTIONS]),
    ]
    words += [f"--exclude={pattern}" for pattern in (*EXCLUDED, *exclude)]
    return [
        *words,
        *([] if apply else ["--dry-run"]),
        *(["--delete"] if delete else []),
        f"{folder}/",
        f"{host}:{folder}/",
    ]


def sync(
    hosts: Iterable[Host],
    folder: str | os.PathLike[str] = ".",
    *,
    apply: bool = False,
    delete: bool = False,
    exclude: Sequence[str] = (),
    install: str = "",
) -> Iterable[Synced]:
    """Bring a folder to the same path on all hosts but this one, all at once; the results come
    in the order of the hosts.

    Args:
        apply: do it; otherwise only say what would be done.
        delete: also delete there what is not here, except what is excluded.
        exclude: further names that stay here, as rsync has them.
        install: the Python there, such as "python3.12", that makes .venv in the folder and installs
        the project into it; "" for none.

    Raises:
        TTKitError: there is no such folder, it is / or your home, or it has no project to install.
    """
    path = Path(folder).resolve()
    asked = f"ttkit sync of {path}"
    if not path.is_dir() or path in (Path("/"), Path.home()):
        fail(asked, "it is not the folder of a project", "cd into the project, or --folder DIR")
    if install and not (path / "pyproject.toml").is_file():
        fail(
            asked,
            "it has no pyproject.toml, so pip cannot install it",
            "leave out --install, or add one",
        )

    def one(host: str) -> Synced:
        try:
            done = subprocess.run(
                rsync_command(path, host, apply, delete, exclude),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
            )
        except FileNotFoundError:
            return Synced(
                host,
                wrong="there is no rsync on this host\n  try: apt install rsync, on every host",
            )
        changes = tuple(_changes(done.stdout))
        if done.returncode:
            return Synced(host, wrong=_why(host, done))
        if not (install and apply):
            return Synced(host, changes)
        for words in (
            [install, "-m", "venv", ".venv"],
            [
                ".venv/bin/python",
                "-m",
                "pip",
                "--disable-pip-version-check",
                "install",
                "--quiet",
                "--editable",
                ".",
            ],
        ):
            done = subprocess.run(
                ssh.command(host, words, path),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
            )
            if done.returncode:
                last = "\n    ".join((done.stderr or done.stdout).strip().splitlines()[-4:])
                return Synced(
                    host,
                    changes,
                    f"{' '.join(words)} ended with code {done.returncode}\n    {last}\n  try: "
                    "--python PATH names another Python there",
                )
        return Synced(host, changes, installed=True)

    listed = [host.name for host in hosts]
    here = dict(zip(listed, ssh.for_all(ssh.is_here, listed)))
    return ssh.for_all(one, [name for name in listed if not here[name]])


def _changes(said: str) -> Iterable[tuple[str, str]]:
    """Files in rsync's list of what it did, itemized:

    `<f+++++++++ new.py`, `<f.st...... old.py`, `*deleting   gone.py`.
    """
    for line in said.splitlines():
        flags, _, name = line.partition(" ")
        if flags == "*deleting":
            yield "delete", name.strip()
        # a folder is made with its files; a leading '.' changes only its times
        elif flags[1:2] in ("f", "L") and flags[0] in "<c":
            yield "new" if "+++" in flags else "changed", name


def _why(host: str, done: subprocess.CompletedProcess[str]) -> str:
    said = done.stderr
    if done.returncode == 127 or "command not found" in said:
        return "there is no rsync on that host\n  try: apt install rsync, on every host"
    if (
        done.returncode == 255
        or "ssh: " in said
        or any(words and words in said for words in ssh.CURES)
    ):
        return f"{ssh.complaint(said)}\n  try: {ssh.cure(host, said)}"
    return (
        f"rsync ended with code {done.returncode}: {ssh.complaint(said)}\n  try: ttkit doctor, "
        "which says what is wrong with that host"
    )

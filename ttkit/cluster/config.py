"""A configuration is a folder of files: who the ranks are, which hosts there are, which rank
sits where.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ttkit.cluster.hosts import Host, read_hosts, read_rankfile
from ttkit.errors import TTKitError, fail

BINDINGS = "rank_bindings.yaml"
MAPPING = "rank_bindings_mapping.yaml"
HOSTS = ("hosts.txt", "hosts.json")
RANKFILES = ("rankfile.txt", "rankfile")


@dataclass(frozen=True)
class Config:
    """The files of a configuration folder; None where it has no such file."""

    folder: Path
    bindings: Path | None
    mapping: Path | None
    hosts: Path | None
    rankfile: Path | None


def find_config(folder: str | os.PathLike[str], or_else: bool = False) -> Config:
    """The files of a configuration folder.

    Args:
        or_else: also take a folder with neither bindings nor hosts.

    Raises:
        TTKitError: no folder, or one with neither bindings nor hosts.

    Example:
        >>> config = find_config("configs/3nodes")
        >>> config.bindings, config.hosts.name
        (None, 'hosts.json')
    """
    path = Path(os.path.expanduser(folder))
    if not os.path.isdir(path):
        beside = path.parent
        near = (
            sorted(each.name for each in beside.iterdir() if each.is_dir())[:12]
            if os.path.isdir(beside)
            else []
        )
        fail(
            f"open the configuration {folder}",
            "there is no such folder",
            f"one of {', '.join(near)}" if near else "check the path",
        )

    def first(*names: str) -> Path | None:
        return next((path / name for name in names if os.path.isfile(path / name)), None)

    config = Config(path, first(BINDINGS), first(MAPPING), first(*HOSTS), first(*RANKFILES))
    if config.bindings is None and config.mapping is None and config.hosts is None and not or_else:
        fail(
            f"open the configuration {folder}",
            f"it has neither {BINDINGS} nor hosts.txt or hosts.json",
            "add one; configs/README.md says what goes in",
        )
    return config


def place_words(
    hostfile: Path | None, hosts: Sequence[Host], rankfile: Path | None = None
) -> list[str]:
    """The words that tell mpirun which hosts there are, and which rank sits where.

    Example:
        >>> place_words(Path("hosts.json"), [Host("a"), Host("b")])
        ['--host', 'a:1,b:1']
    """
    place: list[str] = []
    if hostfile and hostfile.suffix == ".json":
        place = ["--host", ",".join(f"{host.name}:{host.slots}" for host in hosts)]
    elif hostfile:
        place = ["--hostfile", os.path.relpath(hostfile)]
    return place + (["--rankfile", os.path.relpath(rankfile)] if rankfile else [])


def placement(ranks: int, mpi_args: Sequence[str]) -> list[str]:
    """The host of each rank as far as the arguments of mpirun say; "" where they do not say.

    mpirun fills the slots of the hosts in order unless a rankfile or another mapping tells
    otherwise. What cannot be read is not an error here: mpirun says so itself.

    Example:
        >>> placement(3, ["--host", "a:2,b"])
        ['a', 'a', 'b']
    """
    words = [
        word for arg in mpi_args for word in (arg.split("=", 1) if arg.startswith("--") else [arg])
    ]
    hosts: list[str] = []
    try:
        for word, value in zip(words, [*words[1:], ""]):
            if "rankfile:file=" in value and word == "--map-by":
                value = value.split("rankfile:file=")[1].split(",")[0]
                word = "--rankfile"
            if word in ("--rankfile", "-rankfile", "-rf", "rmaps_rankfile_path"):
                entries = read_rankfile(value)
                return [entry.host for entry in entries[:ranks]] + [""] * (ranks - len(entries))
            if word in ("--map-by", "-map-by", "--rank-by", "--app"):
                return [""] * ranks
            if word in ("--host", "-host", "-H"):
                for part in value.split(","):
                    name, _, slots = part.partition(":")
                    hosts += [name] * (int(slots) if slots.isdigit() else 1)
            elif word in ("--hostfile", "-hostfile", "--machinefile"):
                hosts += [host.name for host in read_hosts(value) for _ in range(host.slots)]
    except TTKitError:
        return [""] * ranks
    if not hosts:
        return [socket.gethostname()] * ranks
    return hosts[:ranks] if len(hosts) >= ranks else [""] * ranks

"""The files of a launch: find them, and return the ranks and hosts that they describe."""

import os
import socket
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from ttkit.cluster.files.bindings import Bindings, plain_ranks, read_bindings
from ttkit.cluster.files.hosts import host_of_each_slot, read_hosts
from ttkit.errors import TTKitError, fail
from ttkit.files import AnyPath

BINDINGS = "rank_bindings.yaml"
HOSTS = ("hosts.txt", "hosts.json")


class Config(NamedTuple):
    """The files of a launch, such as those of a configuration folder; a missing file is None.

    Example:
        >>> find_config("configs/3nodes").mpi_words()
        ['--host', '10.85.100.220:1,10.85.100.221:1,10.85.100.222:1']
    """

    bindings: Path | None = None
    hosts: Path | None = None
    rankfile: Path | None = None

    def ranks(self) -> Bindings:
        """Return the ranks of the bindings file; without one, a plain MPI rank for each slot."""
        if self.bindings:
            return read_bindings(self.bindings)
        return plain_ranks(self.named_hosts().total())

    def named_hosts(self) -> Counter[str]:
        """Return {host: number of slots} from the hosts file, or without one from the rankfile."""
        path = self.hosts or self.rankfile
        return Counter(host_of_each_slot(path) if path else ())

    def hosts_of_ranks(self, ranks: int) -> list[str]:
        """Return the host of each rank; it is this host if no file names hosts.

        All hosts are "" if the file has fewer slots than ranks or cannot be read; mpirun reports
        that.
        """
        path = self.rankfile or self.hosts
        try:
            named = host_of_each_slot(path) if path else [socket.gethostname()] * ranks
        except TTKitError:
            named = []
        return named[:ranks] if len(named) >= ranks else [""] * ranks

    def mpi_words(self) -> list[str]:
        """Return the options of mpirun that name the hosts and place the ranks on them."""
        words: list[str] = []
        if self.hosts and self.hosts.suffix == ".json":
            named = (f"{name}:{slots}" for name, slots in read_hosts(self.hosts).items())
            words = ["--host", ",".join(named)]
        elif self.hosts:
            words = ["--hostfile", os.path.relpath(self.hosts)]
        return words + (["--rankfile", os.path.relpath(self.rankfile)] if self.rankfile else [])


def find_config(folder: AnyPath) -> Config:
    """Return the files of a configuration folder.

    Raises:
        TTKitError: the folder does not exist, or has neither bindings nor hosts.

    Example:
        >>> config = find_config("configs/3nodes")
        >>> config.bindings, config.hosts.name
        (None, 'hosts.json')
    """
    path = Path(folder).expanduser()
    asked = f"open the configuration {folder}"
    if not path.is_dir():
        fail(asked, "there is no such folder", "check the path")
    config = files_in(path)
    if not (config.bindings or config.hosts):
        fail(
            asked,
            f"it has neither {BINDINGS} nor hosts.txt nor hosts.json",
            "add one; configs/README.md describes these files",
        )
    return config


def files_in(folder: Path) -> Config:
    """Return the files of a launch that a folder has."""

    def first(*names: str) -> Path | None:
        return next((folder / name for name in names if (folder / name).is_file()), None)

    return Config(first(BINDINGS), first(*HOSTS), first("rankfile.txt", "rankfile"))

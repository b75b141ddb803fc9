"""Check what this host must have before a cluster starts: without it, processes end with a signal
or an error that names no cause.
"""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

from ttkit.errors import fail
from ttkit.words import short

# Measured: the controller of 1 engine has 113 files open, that of 4 engines 131.
FILES, FILES_OF_A_RANK = 110, 6
FOLDER_BYTES = 1_000_000  # of logs and mpirun's files; with 64 kB a write ends mpirun with SIGBUS
SHARED_BYTES = 18 << 20  # Open MPI 5.0 asks for 16 MiB and 5 % at the start of a rank


def check_host(asked: str, ranks: int) -> None:
    """Check the working folder and how many files a process may open.

    Raises:
        TTKitError: the folder is gone, or the limit is too low.
    """
    try:
        os.getcwd()
    except OSError:
        rule = "the working folder was deleted, and each rank starts in it"
        fail(asked, rule, "os.chdir to a folder that is there, or restart the kernel")
    limit, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], FILES + FILES_OF_A_RANK * ranks
    if limit != resource.RLIM_INFINITY and limit < needed:
        rule = f"a process may open {limit} files here, and the controller needs {needed}"
        fail(asked, rule, f"`ulimit -n {max(1024, needed)}` in the shell, then start Python anew")


def check_folder(asked: str, folder: Path, shared: Path | None) -> None:
    """Check that a cluster's folder, and the one for memory that its ranks share, have room.

    Args:
        shared: None where the ranks share memory elsewhere.

    Raises:
        TTKitError: one has not; says how much there is.
    """
    for place, needed, why in (
        (folder, FOLDER_BYTES, "a cluster keeps its logs and mpirun's files there"),
        (shared, SHARED_BYTES, "Open MPI keeps the memory there that ranks share"),
    ):
        if place is not None and (free := shutil.disk_usage(place).free) < needed:
            room = f"{short(free, 'B')} free of the {short(needed, 'B')} needed"
            fail(
                asked,
                f"{place.parent} has {room}: {why}",
                "free some, or name another folder in the variable TMPDIR",
            )

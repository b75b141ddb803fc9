"""Remove the folders of clusters whose processes were all killed at once.

A cluster's folder holds keys, and /dev/shm a second one. Its keeper removes both, unless it is
killed too; then the next start does. Only on Linux, where /proc says which processes live.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ttkit.cluster.guard import alive, started
from ttkit.cluster.keeper import SHARED_MEMORY, remove
from ttkit.files import write_whole

PREFIX = "ttkit-cluster-"
RECORD = "processes.json"


def record(folder: Path, pids: Iterable[int]) -> None:
    """Write into a cluster's folders which processes must be gone before others may remove them."""
    text = json.dumps({"where": _where(), "since": {pid: started(pid) for pid in pids}})
    for place in (folder, SHARED_MEMORY / folder.name):
        if place.is_dir():
            write_whole(place / RECORD, text, "start a cluster")


def sweep() -> None:
    """Remove what is left of this user's clusters whose processes are all gone."""
    for base in {Path(tempfile.gettempdir()), SHARED_MEMORY}:
        for folder in base.glob(f"{PREFIX}*"):
            if _is_left(folder):
                remove(folder)


def _is_left(folder: Path) -> bool:
    """Whether a folder is this user's, and the processes that it names are gone.

    A number that now belongs to another process started at another time. A folder of another
    container, host or boot is not judged: its processes cannot be seen from here.
    """
    try:
        if folder.lstat().st_uid != os.geteuid():
            return False
        noted = json.loads((folder / RECORD).read_text())
        since = {int(pid): start for pid, start in noted["since"].items()}
        return bool(since) and noted["where"] == _where() != "" and not alive(since)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no record: of nobody known
        return False


def _where() -> str:
    """The boot of the machine and the space of process numbers; "" where there is no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""

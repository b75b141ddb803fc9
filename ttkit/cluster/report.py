"""What a rank says of itself every half second: its open meshes and the memory in use.

Nobody has to ask it, so that it is known of a rank that is busy, too: a thread of the engine writes
it into a file, which the notebook reads; on another host it writes a line to its standard output,
which mpirun brings into its log here.

A rank that runs Python, NumPy or waits in MPI lets the thread run. Only on the simulator: ttnn on a
card does not count its bytes, and calling it from a second thread would disturb the first."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ttkit.errors import TTKitError
from ttkit.files import write_whole

EVERY_S = 0.5
MARK = "TTKIT-REPORT "  # begins the line of a rank on another host


@dataclass(frozen=True)
class Report:
    """One rank at one moment; what is not known is empty or None.

    Args:
        host: its name.
        meshes: the shapes of the meshes that are open.
        devices: the ids of their devices that this rank drives.
        dram_bytes: in use on the fullest of these devices.
        process_bytes: of the host's memory, in use by the process.
    """

    host: str = ""
    meshes: tuple[tuple[int, ...], ...] = ()
    devices: tuple[int, ...] = ()
    dram_bytes: int | None = None
    process_bytes: int | None = None


def report_file(folder: str | os.PathLike[str], rank: int) -> Path:
    """Where rank `rank` reports."""
    return Path(folder) / f"rank{rank}.report"


def read_report(folder: str | os.PathLike[str], rank: int) -> Report:
    """The last report of a rank; an empty one where there is none."""
    try:
        return parsed(report_file(folder, rank).read_text())
    except OSError:  # not there, on another host, or of a cluster that is being removed
        return Report()


def parsed(text: str | bytes) -> Report:
    """A report as it was written; an empty one where it is not whole."""
    try:
        return Report(**json.loads(text))
    except (ValueError, TypeError):
        return Report()


def keep_reporting(folder: str | os.PathLike[str], rank: int, far: bool = False) -> None:
    """Report from a thread until the process ends: into a file of the folder, or where nobody
    who asks can read that, to standard output.
    """
    output = os.dup(1) if far else -1  # a copy: the kernel will take 1 for what cells print

    def write(text: str) -> None:
        if far:
            os.write(output, f"{MARK}{text}\n".encode())
        else:
            write_whole(report_file(folder, rank), text, "report")

    threading.Thread(target=_report, args=(write,), name="report", daemon=True).start()


def _report(write: Callable[[str], None]) -> None:
    said = None
    while True:
        # a mesh or a tensor came while we counted: half a second later
        with contextlib.suppress(RuntimeError):
            now = json.dumps(asdict(look()))
            if now != said:
                try:
                    write(now)
                except (OSError, TTKitError):
                    return  # the cluster's folder is gone, and this process will be
                said = now
        time.sleep(EVERY_S)


def look() -> Report:
    """This process, now.

    Imports nothing: a rank that has not used the simulator has nothing open in it.
    """
    host, process = socket.gethostname(), _process_bytes()
    meshes = list(getattr(sys.modules.get("ttkit.sim.mesh"), "opened_meshes", ()))
    if not meshes:
        return Report(host, process_bytes=process)
    used = sys.modules["ttkit.sim.memory"].bytes_in_use()
    devices = tuple(device for mesh in meshes for device in mesh.get_device_ids())
    dram = max((used[device] for device in devices), default=0)
    return Report(host, tuple(tuple(mesh.shape) for mesh in meshes), devices, dram, process)


def _process_bytes() -> int:
    """What this process has in memory, in whole MB: a number that changes when it says
    something.
    """
    import psutil

    return psutil.Process().memory_info().rss // 1_000_000 * 1_000_000

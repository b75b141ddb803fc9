"""The programs of a cluster's processes: an engine, which is an MPI rank, and the controller.

An engine reports its open meshes and memory from a thread, so that they are known of a busy rank
too: into a file, or from another host to standard output, which mpirun brings into its log. Only on
the simulator: ttnn on a card does not count its bytes, and calling it from a second thread would
disturb the first.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ttkit.cluster.begin import put_working_folder
from ttkit.cluster.supervisor import exit_with_parent, pid_file
from ttkit.errors import Plain, TTKitError
from ttkit.files import write_whole

FOLDER = "TTKIT_CLUSTER_FOLDER"  # the variable that names the cluster's folder
# the host where that folder is, set only where ranks run on others too
OWNER = "TTKIT_CLUSTER_OWNER"
CONNECTION = Path("security/ipcontroller-engine.json")
PORTS = 32  # a controller takes 18
ALIVE_S = 60.0  # for the controller to write where to connect
REPORT_EVERY_S = 0.5
MARK = "TTKIT-REPORT "  # begins the line of a rank on another host


@dataclass(frozen=True)
class Report:
    """One rank at one moment; what is not known is empty or None.

    Args:
        host: its name.
        meshes: the shapes of the open meshes.
        devices: the ids of their devices that this rank drives.
        dram_bytes: in use on the fullest of these devices.
        process_bytes: of the host's memory, in use by the process.
        doing: how far its training is, in words; "" where none goes on.
        losses: of the training's steps, some of them.
    """

    host: str = ""
    meshes: tuple[tuple[int, ...], ...] = ()
    devices: tuple[int, ...] = ()
    dram_bytes: int | None = None
    process_bytes: int | None = None
    doing: str = ""
    losses: tuple[float, ...] = ()

    @classmethod
    def parsed(cls, text: str | bytes) -> Report:
        """Return a report as it was written; an empty one where it is not whole."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return cls()

    @classmethod
    def now(cls) -> Report:
        """Return this process's report, without importing the simulator."""
        import psutil

        # whole MB, so that it changes only when it matters
        process = psutil.Process().memory_info().rss // 1_000_000 * 1_000_000
        meshes = list(getattr(sys.modules.get("ttkit.sim.mesh"), "opened_meshes", ()))
        # while another thread imports a module, it has not all of its names
        lines = getattr(sys.modules.get("ttkit.visualize.live_training"), "Lines", None)
        doing, losses = getattr(lines, "now", ""), getattr(lines, "losses", ())
        if not meshes:
            return cls(socket.gethostname(), process_bytes=process, doing=doing, losses=losses)
        used = sys.modules["ttkit.sim.memory"].bytes_in_use()
        devices = tuple(device for mesh in meshes for device in mesh.get_device_ids())
        dram = max((used[device] for device in devices), default=0)
        shapes = tuple(tuple(mesh.shape) for mesh in meshes)
        return cls(socket.gethostname(), shapes, devices, dram, process, doing, losses)


def report_file(folder: str | os.PathLike[str], rank: int) -> Path:
    """Return where a rank reports."""
    return Path(folder) / f"rank{rank}.report"


def keep_reporting(write: Callable[[str], object]) -> None:
    """Report whenever something has changed, until the process ends or nobody can read it."""
    last = None
    while True:
        # a mesh or a tensor came while we counted: half a second later
        with contextlib.suppress(RuntimeError):
            now = json.dumps(asdict(Report.now()))
            if now != last:
                try:
                    write(now)
                except (OSError, TTKitError):
                    return  # the cluster's folder is gone, and this process will be
                last = now
        time.sleep(REPORT_EVERY_S)


def stack_file(folder: str | os.PathLike[str], rank: int) -> Path:
    """Return where a rank writes its stack when it gets SIGUSR1."""
    return Path(folder) / f"rank{rank}.stack"


def far_folder(folder: Path, rank: int) -> Path:
    """Return where a rank on another host keeps its files, below Open MPI's own folder there."""
    return Path(f"{folder.name}-{rank}")


def connection(folder: Path, name: Path = CONNECTION) -> str:
    """Return what the controller writes about where to connect, as soon as that is whole."""
    until = time.monotonic() + ALIVE_S
    while time.monotonic() < until:
        try:
            text = (folder / name).read_text()
            return json.dumps(json.loads(text))  # on one line
        except (OSError, ValueError):
            time.sleep(0.05)
    raise SystemExit(f"the controller did not write within {ALIVE_S:g} s where to connect")


def _own_folder(rank: str) -> Path:
    """Return where this rank keeps its files.

    The cluster's folder, or on another host one that Open MPI removes when its part there ends.
    """
    shared = Path(os.environ[FOLDER])
    if os.environ.get(OWNER, socket.gethostname()) == socket.gethostname():
        return shared
    base = Path(os.environ.get("PMIX_SERVER_TMPDIR") or tempfile.gettempdir())
    folder = base / far_folder(shared, int(rank))
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ["IPYTHONDIR"] = str(folder / "ipython")
    return folder


def rank_and_pid() -> tuple[int, int]:
    """Return this engine's rank, as MPI has it, and its process id; print a line."""
    from mpi4py import MPI

    print()
    return MPI.COMM_WORLD.rank, os.getpid()


def _initialize_mpi() -> None:
    """Initialize MPI now, in all ranks together: a later one would let the others wait.

    The real ttnn comes first: it brings an MPI of its own, and stops the process where mpi4py has
    started another before it.
    """
    from ttkit.backend import is_simulated, load

    if not is_simulated():
        load().init_distributed_context()
    from mpi4py import MPI

    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    if rank != MPI.COMM_WORLD.rank:
        raise SystemExit(
            f"this is rank {rank} for mpirun and rank {MPI.COMM_WORLD.rank} for mpi4py: "
            "they are of two MPI installations"
        )


def main() -> None:
    """Run engine number `rank` until it is stopped."""
    exit_with_parent()
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    folder = _own_folder(rank)
    write_whole(folder / pid_file(rank), str(os.getpid()), "engine")
    stacks = stack_file(folder, int(rank)).open("w")
    # Written by C code: it also works while this rank waits inside MPI, where Python handles no
    # signal.
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    output = os.dup(1)  # the kernel will take 1 for what cells print
    elsewhere = folder != Path(os.environ[FOLDER])

    def write(text: str) -> None:
        if elsewhere:
            os.write(output, f"{MARK}{text}\n".encode())
        else:
            write_whole(report_file(folder, int(rank)), text, "report")

    threading.Thread(target=keep_reporting, args=(write,), name="report", daemon=True).start()
    _initialize_mpi()
    from ipyparallel.engine import app
    from mpi4py import MPI

    delattr(Plain, "_render_traceback_")  # the notebook searches all frames for the user's line
    # Ranks on other hosts cannot read the controller's file: mpirun gives it to rank 0.
    if OWNER in os.environ:
        text = MPI.COMM_WORLD.bcast(sys.stdin.readline() if rank == "0" else "")
    else:
        text = connection(folder)
    os.environ["IPP_CONNECTION_INFO"] = text
    # No --mpi: it would take the rank from mpi4py and hide which variable sets it. No nanny, a
    # second process for each engine that reports its end: mpirun does, with the reason. The
    # supervisor, not a missed heartbeat, ends an engine whose controller is gone.
    options = [
        f"--profile-dir={folder}",
        f"--IPEngine.id={rank}",
        "--IPEngine.enable_nanny=False",
        "--IPEngine.timeout=30",
        "--IPEngine.max_heartbeat_misses=0",
        "--log-level=ERROR",
    ]

    class IPEngine(app.IPEngine):
        def to_work_dir(self) -> None:
            """Stay where we are: ipyparallel would put this folder first on sys.path."""

        def init_engine(self) -> None:
            super().init_engine()  # puts it first too
            put_working_folder(before_packages=True)

    IPEngine.launch_instance(options)


def own_ports() -> list[int]:
    """Return free ports for a controller, which binds them a little later.

    Meanwhile no other controller may take them: each has its own, by its process id. Nor may a
    connection: they lie below those that systems give to connections (on Linux from 32,768 on).
    """
    first, free = 16_000 + os.getpid() % 512 * PORTS, []
    for port in range(first, first + PORTS):
        with contextlib.suppress(OSError), socket.socket() as held:
            held.bind(("", port))
            free.append(port)
    return free


def controller() -> None:
    """Run ipyparallel's hub and schedulers until stopped; the arguments are ipcontroller's."""
    exit_with_parent()
    os.register_at_fork(after_in_child=exit_with_parent)  # the heart monitor is another process
    from ipyparallel.controller import app

    ports = iter(own_ports())

    class IPController(app.IPController):
        def to_work_dir(self) -> None:
            """Stay where we are: ipyparallel would put this folder first on sys.path."""

        def next_port(self, pool_name: str = "common") -> int:
            """Return a port that no other process takes before it is bound."""
            return next(ports, 0) or super().next_port(pool_name)

    IPController.launch_instance(sys.argv[1:])

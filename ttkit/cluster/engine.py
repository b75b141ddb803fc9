"""One engine: an MPI rank that runs what the notebook sends.

Started by mpirun, which has set the rank's environment.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

from ttkit.cluster.begin import put_working_folder
from ttkit.cluster.keeper import pid_file
from ttkit.cluster.lease import hold
from ttkit.cluster.report import keep_reporting
from ttkit.errors import Plain
from ttkit.files import write_whole

FOLDER = "TTKIT_CLUSTER_FOLDER"  # the variable that names the cluster's folder
# the host where that folder is, set only where ranks run on others too
OWNER = "TTKIT_CLUSTER_OWNER"
CONNECTION = Path("security/ipcontroller-engine.json")
ALIVE_S = 60.0  # for the controller to say where it is


def stack_file(folder: str | os.PathLike[str], rank: int) -> Path:
    """Where rank `rank` writes what it is doing, when it gets SIGUSR1."""
    return Path(folder) / f"rank{rank}.stack"


def connection(folder: Path, name: Path = CONNECTION) -> str:
    """What the controller says about where to connect, as soon as it has said all of it."""
    until = time.monotonic() + ALIVE_S
    while time.monotonic() < until:
        try:
            text = (folder / name).read_text()
            json.loads(text)  # half written: once more
            return text
        except (OSError, ValueError):
            time.sleep(0.05)
    raise SystemExit(f"the controller did not say within {ALIVE_S:g} s where to connect")


def far_folder(folder: Path, rank: int) -> Path:
    """Where a rank on another host than the cluster's folder keeps its files, below Open MPI's
    own folder there.
    """
    return Path(f"{folder.name}-{rank}")


def own_folder(rank: str) -> Path:
    """Where this rank keeps its files: the cluster's folder, or on another host one that Open
    MPI removes when its part there ends.
    """
    if os.environ.get(OWNER, socket.gethostname()) == socket.gethostname():
        return Path(os.environ[FOLDER])
    folder = Path(os.environ.get("PMIX_SERVER_TMPDIR") or tempfile.gettempdir()) / far_folder(
        Path(os.environ[FOLDER]), int(rank)
    )
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ["IPYTHONDIR"] = str(folder / "ipython")
    return folder


def told() -> str:
    """What the controller says about where to connect, for ranks that cannot see its file:
    mpirun hands it to rank 0, which tells all.
    """
    from mpi4py import MPI

    return MPI.COMM_WORLD.bcast(sys.stdin.readline() if MPI.COMM_WORLD.rank == 0 else "")


def who() -> tuple[int, int]:
    """This engine's rank, as MPI has it, and its process id."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.rank, os.getpid()


def join_the_world() -> None:
    """Initialize MPI now, in all ranks together: a rank that did so only when a cell needs it
    would let the others wait.

    The real ttnn comes first: it brings an MPI of its own, and stops the process where mpi4py has
    started another before it."""
    from ttkit.backend import is_simulated, load

    if not is_simulated():
        load().init_distributed_context()
    from mpi4py import MPI

    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    if rank != MPI.COMM_WORLD.rank:
        raise SystemExit(
            f"mpirun calls this rank {rank}, mpi4py calls it {MPI.COMM_WORLD.rank}: "
            "they are of two MPI installations"
        )


def main() -> None:
    """Be engine number `rank` until stopped."""
    hold()
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    folder = own_folder(rank)
    write_whole(folder / pid_file(rank), str(os.getpid()), "engine")
    stacks = stack_file(folder, int(rank)).open("w")
    # Written by C code: it also works while this rank waits inside MPI, where Python handles no
    # signal.
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    keep_reporting(folder, int(rank), far=folder != Path(os.environ[FOLDER]))
    join_the_world()
    from ipyparallel.engine import app

    delattr(Plain, "_render_traceback_")  # the notebook looks for the user's line in all frames

    os.environ["IPP_CONNECTION_INFO"] = told() if OWNER in os.environ else connection(folder)
    # No --mpi: it would take the rank from mpi4py and hide which variable says it. No nanny, a
    # second process for each engine that says when it dies: mpirun says so, with the reason. The
    # keeper, not a missed heartbeat, ends an engine whose controller is gone.
    options = [
        f"--profile-dir={folder}",
        f"--IPEngine.id={rank}",
        "--IPEngine.enable_nanny=False",
        "--log-level=ERROR",
    ]
    options += ["--IPEngine.timeout=30", "--IPEngine.max_heartbeat_misses=0"]

    class IPEngine(app.IPEngine):
        def to_work_dir(self) -> None:
            """Stay where we are: ipyparallel would put this folder first on sys.path."""

        def init_engine(self) -> None:
            super().init_engine()  # puts it first too
            put_working_folder(before_packages=True)

    IPEngine.launch_instance(options)


if __name__ == "__main__":
    main()

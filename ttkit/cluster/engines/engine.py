"""The programs of a cluster's processes: an engine, which is an MPI rank, and the controller.

An engine reports its open meshes, its memory and its current line from a second thread, so that the
notebook gets them while the rank is busy, too. The reports use the same socket as the output of the
engine. Meshes are reported only on the simulator: with the real ttnn, a call from a second thread
would disturb the first one.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from ttkit.cluster.engines.stacks import Frame, running_line
from ttkit.cluster.processes import pid_file
from ttkit.errors import Plain
from ttkit.files import write_whole

# This variable has the form HOST:FOLDER: the cluster's host, and the cluster's folder on that host.
FOLDER = "TTKIT_CLUSTER_FOLDER"
PORTS = 32  # A controller uses 18 of them.
REPORT_EVERY_S = 0.5
REPORT = "ttkit_report"  # The messages that carry reports have this type.


class Report(NamedTuple):
    """The state of a rank at one moment; a field that is not known is empty or None.

    Args:
        host: the name of the rank's host.
        meshes: the shapes of the open meshes.
        process_bytes: the host memory that the process uses.
        line: the line of the user's code that runs.
        doing: the progress of its training in words; "" if it trains nothing.
    """

    host: str = ""
    meshes: tuple[tuple[int, ...], ...] = ()
    process_bytes: int | None = None
    line: Frame | None = None
    doing: str = ""

    @classmethod
    def now(cls) -> Report:
        """Return this process's report, without importing the simulator."""
        import psutil

        # Each change sends a report, so the memory is rounded to whole MB, which change seldom.
        process = psutil.Process().memory_info().rss // 1_000_000 * 1_000_000
        # A module that another thread is still importing may lack these names, hence the defaults.
        lines = getattr(sys.modules.get("ttkit.visualize.widgets.live_training"), "Lines", None)
        meshes = list(getattr(sys.modules.get("ttkit.sim.mesh"), "opened_meshes", ()))
        return cls(
            host=socket.gethostname(),
            meshes=tuple(tuple(mesh.shape) for mesh in meshes),
            process_bytes=process,
            line=running_line(),
            doing=getattr(lines, "now", ""),
        )


def keep_reporting(kernel) -> None:
    """Report to the notebook while a line runs and after each change, until the process ends."""
    last = None
    while True:
        now = Report.now()
        if now != last or now.line:
            text = pickle.dumps((kernel.engine_id, now))
            kernel.session.send(kernel.iopub_socket, REPORT, ident=b"report", buffers=[text])
            last = now
        time.sleep(REPORT_EVERY_S)


def process_id() -> int:
    """Return this engine's process id, and print a line so that the client can check the output."""
    print()
    return os.getpid()


def _own_folder(rank: int) -> Path:
    """Return where this rank keeps its files.

    On the cluster's host this is the cluster's folder. On another host it is a new folder, which
    also becomes the home of IPython's files. It is inside Open MPI's own folder, which Open MPI
    removes when it ends there. If there is none, it is in the system's folder for temporary files.
    """
    host, _, folder = os.environ[FOLDER].partition(":")
    if host == socket.gethostname():
        return Path(folder)
    base = Path(os.environ.get("PMIX_SERVER_TMPDIR") or tempfile.gettempdir())
    own = base / f"{Path(folder).name}-{rank}"
    own.mkdir(mode=0o700, exist_ok=True)
    os.environ["IPYTHONDIR"] = str(own / "ipython")
    return own


def _initialize_mpi(rank: int):
    """Initialize MPI in all ranks at the start, since the other ranks would wait for a late one.

    The real ttnn is initialized first. It has its own MPI library, and it stops the process if
    mpi4py has already started another one.
    """
    from ttkit.backend import is_simulated, load

    if not is_simulated():
        load().init_distributed_context()
    from mpi4py import MPI

    if rank != MPI.COMM_WORLD.rank:
        raise SystemExit(
            f"this is rank {rank} for mpirun and rank {MPI.COMM_WORLD.rank} for mpi4py: "
            "they are of two MPI installations"
        )
    return MPI.COMM_WORLD


def main() -> None:
    """Run the engine of this MPI rank until it is stopped."""
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    folder = _own_folder(rank)
    write_whole(folder / pid_file(rank), str(os.getpid()), "engine")
    # Ranks on other hosts cannot read the controller's file, so mpirun passes its text to rank 0.
    text = sys.stdin.readline() if rank == 0 else ""
    world = _initialize_mpi(rank)
    os.environ["IPP_CONNECTION_INFO"] = world.bcast(text)
    # The first all-reduce of a communicator holds Python's global interpreter lock (GIL) while it
    # waits, and would block the reports. So it happens at the start.
    world.allreduce(0)
    from ipyparallel.engine import app
    from IPython.core.shellapp import InteractiveShellApp

    # An engine must send whole tracebacks: the notebook searches all frames for the user's line.
    delattr(Plain, "_render_traceback_")
    # The option --IPEngine.id replaces --mpi, which would take the rank from mpi4py and hide which
    # variable sets it. There is no nanny (a second process that reports the end of an engine),
    # because mpirun reports the end with its reason. Missed heartbeats are ignored, because the
    # supervisor ends an engine whose controller is gone.
    options = (
        f"--profile-dir={folder} --IPEngine.id={rank} --IPEngine.enable_nanny=False "
        "--IPEngine.timeout=30 --IPEngine.max_heartbeat_misses=0 --log-level=ERROR"
    )

    class IPEngine(app.IPEngine):
        def to_work_dir(self) -> None:
            """Do nothing: ipyparallel would put the working folder first on sys.path."""

        def init_engine(self) -> None:
            super().init_engine()  # This also puts the working folder first on sys.path.
            sys.path[:] = [folder for folder in sys.path if folder not in ("", os.getcwd())]
            # As in a notebook, Python then searches the working folder before installed packages.
            as_notebook: Any = SimpleNamespace(ignore_cwd=False)
            InteractiveShellApp.init_path(as_notebook)

        def redirect_output(self, iopub_socket) -> None:
            super().redirect_output(iopub_socket)  # ipyparallel calls this at the end of a start.
            shell = self.kernel.shell
            for formatter in (shell.InteractiveTB, shell.SyntaxTB):
                formatter.structured_traceback = plain_traceback
            threading.Thread(target=keep_reporting, args=[self.kernel], daemon=True).start()

    IPEngine.launch_instance(options.split())


def plain_traceback(kind: type, error: BaseException, *_, **__) -> list[str]:
    """Return a traceback as Python writes it: without colours, and with full paths."""
    return "".join(traceback.format_exception(error)).splitlines()


def controller() -> None:
    """Run ipyparallel's hub and schedulers until they are stopped.

    The command line has the arguments of ipcontroller.
    """
    from ipyparallel.controller import app

    # A controller chooses its ports some time before it binds them, and no other process may take
    # them in between. So the process id of a controller selects its ports, and they are below the
    # ports that the system gives to connections (on Linux 32,768 and above).
    first = 16_000 + os.getpid() % 512 * PORTS

    class IPController(app.IPController):
        def to_work_dir(self) -> None:
            """Do nothing: ipyparallel would put the working folder first on sys.path."""

    IPController.launch_instance([*sys.argv[1:], f"--ports={first}-{first + PORTS - 1}"])

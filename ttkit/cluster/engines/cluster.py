"""Engines in a notebook: MPI ranks, each with its own mesh or its part of one, on any hosts.

ipyparallel runs the cells. Open MPI starts the ranks and carries their messages. ttkit makes sure
that engine i is rank i and has the environment of its binding, that every wait ends, and that no
process is left behind.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ttkit.cluster.engines import results, start
from ttkit.cluster.engines.engine import Report
from ttkit.cluster.engines.page import progress, status_of
from ttkit.cluster.launch import remote, why_ended
from ttkit.cluster.launch.command import check_mpirun, find_mpirun
from ttkit.cluster.processes import Ended, Supervised
from ttkit.errors import fail
from ttkit.files import AnyPath

START_S = 60.0


class Cluster:
    """Engines that are MPI ranks: `cluster.run(f)` and `%%px` cells run on all of them at once.

    If the hosts file of the configuration names other hosts, their ranks start there by ssh, from
    the same paths as here (`ttkit sync` copies the code, `ttkit doctor` checks the hosts). The
    controller listens on the network in this case only. A client must sign its messages with the
    cluster's key, but neither these messages nor those of MPI are encrypted, so use a network that
    you trust. Ranks on other hosts end when mpirun on this host ends, or 30 s after the network to
    them is gone.

    Args:
        config: a configuration folder, or a number of ranks that share the cards of this machine
            equally.
        start_timeout_s: the seconds that a start may take.

    Raises:
        TTKitError: a file is wrong, the cards cannot be shared equally, or the start fails (the
            message has the rank and its last lines).

    Example:
        >>> from ttkit import Cluster
        >>> def size(factor):
        ...     from mpi4py import MPI
        ...     return MPI.COMM_WORLD.rank * factor, MPI.COMM_WORLD.size
        >>> with Cluster(2) as cluster:  # two ranks, two cards each
        ...     cluster.run(size, 10)
        [(0, 2), (10, 2)]
    """

    pids: dict[int, int]  # A process id is valid on the host of its rank.
    last_answers: results.Answers  # These belong to the last `run` or %%px.
    _processes: Supervised | None = None
    _client: Any = None

    def __init__(self, config: AnyPath | int, *, start_timeout_s: float = START_S):
        self.config = config
        self.start_timeout_s = start_timeout_s
        self.name = f"Cluster({config!r})"
        self.bindings, files = start.ranks_of(config)
        self.n = len(self.bindings.rank_bindings)
        names = files.hosts_of_ranks(self.n)
        here = remote.which_are_here(names)
        # `hosts` has the host of each rank; "" stands for this host.
        self.hosts = ["" if here[name] else name for name in names]
        self._words = files.mpi_words() if any(self.hosts) else []
        # `run` and %%px wait at most this many seconds; None means that there is no limit.
        self.timeout_s: float | None = None
        self._show: Callable[[str], None] = print
        self.stop()

    # ---- start and stop

    def start(self) -> Cluster:
        """Start the engines, unless they run already, and return the cluster."""
        if self._processes and not self.failure:
            return self
        self.stop()
        check_mpirun(find_mpirun())
        elsewhere = next(filter(None, self.hosts), "")
        address = remote.own_address(remote.address_of(elsewhere)) if elsewhere else "127.0.0.1"
        atexit.register(self.stop)
        self._processes = processes = Supervised("cluster")
        try:
            commands, environment = start.start_commands(
                processes, self.bindings, self._words, self.hosts, address
            )
            processes.start(commands, environment, self._fail_pending)
            with progress(self, f"starting {self.n} engines") as self._show:
                self._connect(processes, time.monotonic() + self.start_timeout_s)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the engines and every process that was started with them, and wait for their end."""
        self._renew = False  # If it is set, the next call starts new engines.
        atexit.unregister(self.stop)
        if self._client is not None:
            self._client.fail_pending("the cluster was stopped")
            with suppress(Exception):
                self._client.close(linger=0)
        if self._processes:
            self._processes.stop()
        self._client = None
        self._processes = None
        self.pids = {}
        self.last_answers = {}
        self.last_error = [""] * self.n  # A rank that raised nothing has "".

    def restart(self) -> Cluster:
        """Stop what is left and start new processes, without the variables of the old ones."""
        self.stop()
        return self.start()

    def renew(self) -> None:
        """Stop the engines now; the next call starts new ones."""
        self.stop()
        self._renew = True

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{self.name}: {self.n} engines, {self.state}>"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    @property
    def state(self) -> str:
        """The state of the cluster: "starting", "running", "failed", "stopped" or "interrupted".

        If it is "interrupted", the next call starts new engines.
        """
        if not self._processes:
            return "interrupted" if self._renew else "stopped"
        if self.failure:
            return "failed"
        return "running" if self.pids else "starting"

    @property
    def failure(self) -> Ended | None:
        """The first process of the cluster that ended by itself; None if there is none."""
        processes = self._processes  # Another thread may stop the cluster and set this to None.
        return processes.ended if processes else None

    @property
    def why_failed(self) -> str:
        """The reason for the failure in words; "" if nothing has failed."""
        hosts = self.hosts
        if self._words:
            hosts = [host or socket.gethostname() for host in hosts]
        return why_ended(self.failure, hosts) if self.failure else ""

    @property
    def client(self):
        """ipyparallel's Client, for tasks that Cluster has no method for."""
        self.ensure_running(f"{self.name}.client")
        return self._client

    # ---- use

    def run(self, function: Callable, *arguments, **keywords) -> list:
        """Call a function on every rank at once and return the results in rank order.

        The function runs in other processes, so it must import what it needs. The output of the
        ranks is shown in rank order at the end. If all ranks print the same text, it is shown once.

        Raises:
            TTKitError: a rank raised an exception (the message names the rank), an engine died, or
                `cluster.timeout_s` has passed.
        """
        name = getattr(function, "__name__", "function")
        asked = f"cluster.run({'lambda' if name == '<lambda>' else name})"

        def send(view):
            return view.apply_async(function, *arguments, **keywords)

        return results.results(self, asked, send, together=True)

    def interrupt(self) -> None:
        """Interrupt the busy ranks; print for each of them the line where it was.

        Each busy rank gets a KeyboardInterrupt, as from the stop button of a notebook. A rank that
        waits inside MPI does not react to it, because there Open MPI only looks for messages. In
        that case the engines are stopped, and the next call starts new ones.
        """
        self.ensure_running("cluster.interrupt()")
        print(results.interrupt(self))

    def status(self):
        """Return a figure of what each rank owns and does: cards, memory, line, last error.

        This sends nothing to the ranks: the client knows which ranks are busy, and each rank
        reports the rest by itself.
        """
        return status_of(self)

    def report(self, rank: int) -> Report:
        """Return the last report of a rank."""
        return self._client.reports.get(rank, Report()) if self._client else Report()

    def busy(self) -> list[int]:
        """Return the ranks that have not finished all tasks that were sent to them."""
        client = self._client
        return client.busy() if client is not None and self.state == "running" else []

    def pid(self, rank: int) -> int:
        """Return the process id of a rank on its host."""
        if self._renew:
            self.start()
        return self.pids[rank]

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to the process of a rank; do nothing if the process is gone."""
        with suppress(ProcessLookupError, KeyError):
            if host := self.hosts[rank]:
                words = ["kill", f"-{number:d}", str(self.pids[rank])]
                remote.call(remote.command(host, words), 10)
            else:
                os.kill(self.pids[rank], number)

    def ensure_running(self, asked: str) -> None:
        """Check that the cluster runs; start new engines if an interrupt has stopped the old ones.

        Raises:
            TTKitError: the cluster does not run; the message has the reason.
        """
        if self._renew:
            self.start()
        if not self._processes:
            fail(
                asked,
                "the cluster is not started",
                "cluster.start(), or: with Cluster(...) as cluster:",
            )
        if self.failure:
            fail(asked, self.why_failed, "cluster.restart()")

    def _connect(self, processes: Supervised, until: float) -> None:
        """Connect to the controller and to every engine."""
        folder = str(processes.folder)
        keys = [
            processes.folder / f"security/ipcontroller-{name}.json" for name in ("client", "engine")
        ]
        text = ""
        while not text:
            self.poll_start(until)
            # The controller may not have written the files yet, or only a part of them.
            with suppress(OSError, ValueError):
                text = [json.dumps(json.loads(key.read_text())) for key in keys][1]
        processes.send(text)  # Ranks on other hosts cannot read the file, so they get its text.
        with suppress(TimeoutError):  # The controller may have ended.
            self._client = results.Client(
                str(keys[0]), profile_dir=folder, ipython_dir=folder, timeout=30
            )
        while not self._client or len(self._client.ids) < self.n:
            self.poll_start(until)
        self.pids = results.connect(self, until)
        results.activate(self)

    def poll_start(self, until: float) -> None:
        """Check that the start has not failed and that there is time left; then wait 20 ms."""
        asked = f"start {self.name}"
        if self.failure:
            fail(asked, self.why_failed, "fix the cause in the last lines, then start again")
        connected = len(self._client.ids) if self._client else 0
        self._show(f"{connected} are connected")
        if time.monotonic() > until:
            fail(
                asked,
                f"{connected} of {self.n} engines connected within {self.start_timeout_s:g} s",
                "Cluster(..., start_timeout_s=120) on a busy machine",
            )
        time.sleep(0.02)

    def _fail_pending(self, ended: Ended) -> None:
        if self._client is not None:
            self._client.fail_pending(self.why_failed)

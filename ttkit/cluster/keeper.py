"""The keeper: a small process between a notebook and its cluster.

It starts the controller and mpirun, says when one of them ends and why, and takes everything down
when its owner says so or is gone, by whatever end: its standard input is the lease.

    notebook -- keeper -+- controller (ipyparallel's hub and schedulers)
                        +- mpirun -+- engine, rank 0
                                   +- engine, rank 1

It is given a folder with an order in it (see Keeping) and writes lines of JSON: {"started": {name:
pid}}, then for each part that ends {"ended": name, "code": 1, "said": "its last lines"}, a code
below 0 being a signal."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import psutil

from ttkit.cluster.lease import adopt_orphans, die_with_parent

ORDER = "order.json"
LOOK_EVERY_S = 0.1
# for mpirun to say that a rank has ended, and why; measured: 0.3 s on a quiet machine
MPIRUN_S = 4.0
GRACE_S = 2.0  # for mpirun to stop its ranks and to remove its own files; measured: 0.2 s
SHARED_BYTES = 32 << 20  # of a rank; Open MPI 5.0 maps 16 MB and grows
SHARED_MEMORY = Path("/dev/shm")
LAST_BYTES = 20_000  # of a log, said when its process ends


class Keeping:
    """What is kept: the order is {"commands": {name: [word, ...]}, "environment": {...}}; its
    folder is removed at the end.

    With {"tell": [name, file]} the process of that name gets the JSON file of that name, in one
    line, as soon as it is there: ranks on other hosts cannot read it, and a command line could be
    read by others."""

    def __init__(self, folder: Path):
        self.folder = folder
        order = json.loads((folder / ORDER).read_text())
        (folder / ORDER).unlink()  # the shell's variables may hold secrets
        self.parts: dict[str, subprocess.Popen[bytes]] = {}
        self.told: set[str] = set()
        self.ranks: dict[int, psutil.Process] = {}
        # the first rank that ended by itself, and when that was seen
        self.gone: tuple[int, float] | None = None
        self.tell_file: Path | None = None
        self.tell_pipe: IO[bytes] | None = None
        told, file = order.get("tell") or ("", "")
        started = {}
        for name, command in order["commands"].items():
            stdin = subprocess.PIPE if name == told else subprocess.DEVNULL
            with open(self.log(name), "wb") as log:
                try:
                    part = subprocess.Popen(
                        command,
                        stdin=stdin,
                        stdout=log,
                        stderr=log,
                        env=order["environment"],
                        preexec_fn=die_with_parent(),
                    )
                except OSError as error:
                    self.told.add(name)
                    tell(ended=name, code=127, said=str(error))
                    continue
            self.parts[name] = part
            if name == told:
                self.tell_file, self.tell_pipe = folder / file, part.stdin
            started[name] = part.pid
        tell(started=started)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def watch(self) -> None:
        """Until the owner writes to our standard input, closes it, or is gone."""
        owner = os.getppid()
        while os.getppid() == owner and not select.select([sys.stdin], [], [], LOOK_EVERY_S)[0]:
            for name, part in self.parts.items():
                code = part.poll()
                if code is not None:
                    self.report(name, code)
            self.watch_ranks()
            self.pass_on()

    def pass_on(self) -> None:
        """Give the file to the process that waits for it, once."""
        if self.tell_file is None or self.tell_pipe is None or not self.tell_file.exists():
            return
        try:
            line = json.dumps(json.loads(self.tell_file.read_text())) + "\n"
            self.tell_file = None
            with self.tell_pipe:
                self.tell_pipe.write(line.encode())
        except (OSError, ValueError):  # half written: once more; or the process has ended
            pass

    def report(self, name: str, code: int, rank: int | None = None) -> None:
        """Tell the owner, once, that a part has ended."""
        if name not in self.told:
            self.told.add(name)
            tell(
                ended=name,
                code=code,
                rank=rank,
                said=self.log(name).read_bytes()[-LAST_BYTES:].decode(errors="replace"),
            )

    def watch_ranks(self) -> None:
        """See to it that a rank that ends is noticed. mpirun does so, and knows why; but not
        always where the rank ends before it has joined MPI, while others do (seen in 1 of 4
        starts), nor where it leaves with code 0.
        """
        if self.gone is None:
            for file in self.folder.glob(pid_file("*")):
                rank = int(file.name.removeprefix("rank").removesuffix(".pid"))
                try:
                    process = self.ranks.get(rank) or self.ranks.setdefault(
                        rank, psutil.Process(int(file.read_text()))
                    )
                    ended = not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
                except psutil.NoSuchProcess:
                    ended = True
                if ended:
                    self.gone = rank, time.monotonic()
                    return
        elif time.monotonic() - self.gone[1] > MPIRUN_S and self.parts["mpirun"].poll() is None:
            self.report("mpirun", 1, self.gone[0])
            self.parts["mpirun"].terminate()

    def end(self) -> None:
        """Stop every process below this one: by mpirun's own way first, then for good."""
        for part in self.parts.values():
            if part.poll() is None:
                part.terminate()
        until = time.monotonic() + GRACE_S
        while any(part.poll() is None for part in self.parts.values()) and time.monotonic() < until:
            time.sleep(0.02)
        this = psutil.Process()
        # orphans below us are our children: see adopt_orphans
        while left := this.children(recursive=True):
            for process in left:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    pass
            psutil.wait_procs(left, timeout=1.0)
            while _reaped():
                pass
        remove(self.folder)


def pid_file(rank: int | str) -> str:
    """The file in the cluster's folder in which a rank writes its process id."""
    return f"rank{rank}.pid"


def shared_memory(folder: Path, ranks: int) -> Path:
    """Where the ranks of the cluster with that folder put the memory that they share: in RAM where
    there is room for it, or more than in the folder.

    A container may have 64 MB of it; writing more than there is ends a process with SIGBUS.
    """
    ram = SHARED_MEMORY / folder.name
    try:
        ram.mkdir(mode=0o700, exist_ok=True)
        free = shutil.disk_usage(ram).free
        if free >= min(ranks * SHARED_BYTES, shutil.disk_usage(folder).free):
            return ram
    except OSError:
        pass
    return folder


def remove(folder: Path) -> None:
    """Remove what a cluster keeps on disk and in shared memory."""
    for place in (folder, SHARED_MEMORY / folder.name):
        shutil.rmtree(place, ignore_errors=True)


def _reaped() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] > 0
    except ChildProcessError:
        return False


def tell(**what: Any) -> None:
    """Write one line to the owner, who may be gone."""
    try:
        os.write(1, (json.dumps(what) + "\n").encode())
    except OSError:
        pass


def main() -> None:
    """Keep what the folder on the command line says."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    adopt_orphans()
    keeping = None
    try:
        keeping = Keeping(Path(sys.argv[1]))
        keeping.watch()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if keeping:
            keeping.end()


if __name__ == "__main__":
    main()

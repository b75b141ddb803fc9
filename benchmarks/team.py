"""Eight processes as one worker: rank 0 talks to the runner and tells the others, over sockets,
what to do.

Between repetitions the others wait on their sockets, asleep. A rank that waited inside a collective
would keep a core busy, and the worker whose turn it is would pay for it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from worker import Bench, peak_mib, reset_peak, shared_mib, status_mib

RANKS = 8


def end_with_parent() -> None:
    """Ask the system to end this process when the one that started it is gone, however that
    ended (Linux only).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def listen() -> socket.socket:
    """Rank 0's socket, on a port that the system chose."""
    return socket.create_server(("127.0.0.1", 0), backlog=RANKS)


class Team:
    """One rank's view of the eight.

    Args:
        bench: what the worker gave the row; the answers are rank 0's.
        door: rank 0's `listen()`; the others give its port.
        barrier: returns when all ranks have called it.
    """

    def __init__(
        self, bench: Bench, rank: int, door: socket.socket | int, barrier: Callable[[], Any]
    ) -> None:
        self.bench, self.rank, self.barrier = bench, rank, barrier
        calls = (
            [socket.create_connection(("127.0.0.1", door))]
            if isinstance(door, int)
            else [door.accept()[0] for _ in range(RANKS - 1)]
        )
        self.lines = [call.makefile("rw") for call in calls]

    def serve(self, step: Callable[[], Any], read: Callable[[Any], Any]) -> None:
        """As `Bench.serve`, on every rank:

        `step` is this rank's part, `read` a collective too; rank 0's result is looked at.
        """
        reset_peak()  # the inputs were drawn for all ranks together; a rank keeps its own
        if self.rank == 0:
            vars(self.bench).update(times=self._slowest, memory=self._memory)
            self.bench.serve(step, read)
        read(step())
        (line,) = self.lines
        for request in line:
            calls = json.loads(request)
            print(
                json.dumps(self._own(step, calls) if calls else self._own_memory()),
                file=line,
                flush=True,
            )
        os._exit(0)  # rank 0 is gone

    def _own(self, step: Callable[[], Any], calls: int) -> list[float]:
        times = []
        for _ in range(calls):
            self.barrier()
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
        return times

    def _own_memory(self) -> float:
        return (status_mib("VmHWM") or peak_mib()) - shared_mib()

    def _slowest(self, step: Callable[[], Any], calls: int) -> list[float]:
        """For each call the time of the rank that took longest: a collective is done when all
        ranks have its result.
        """
        self._tell(calls)
        return [max(ranks) for ranks in zip(self._own(step, calls), *self._told(), strict=True)]

    def _memory(self) -> dict[str, float | None]:
        """All ranks' peaks together, pages that several share counted once; mpiexec's too."""
        self._tell(0)
        starter = (
            status_mib("VmHWM", os.getppid()) if "OMPI_COMM_WORLD_RANK" in os.environ else None
        )
        return {
            "peak_mib": self._own_memory() + sum(self._told()) + (starter or 0),
            "added_mib": None,
        }

    def _tell(self, calls: int) -> None:
        for line in self.lines:
            print(calls, file=line, flush=True)

    def _told(self) -> list[Any]:
        return [json.loads(line.readline()) for line in self.lines]

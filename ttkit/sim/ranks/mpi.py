"""MPI between ranks: calls are compared before data moves, waits can be interrupted.

mpi4py is imported at the first communication, never by one process on its own.
"""

from __future__ import annotations

import ctypes
import functools
import os
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ttkit.errors import CollectiveMismatch, fail
from ttkit.sim.ranks import binding, shared_mesh

if TYPE_CHECKING:
    from ttkit.sim.tensor.grid import Grid

TEXT = 512  # A call's description has this many bytes, few enough for MPI to send it at once.
CALL, SOCKET = 30801, 30803  # MPI messages carry these tags.
# A wait polls without sleep for `EAGER_S`, then sleeps up to `LONGEST_NAP_S` between polls.
EAGER_S, LONGEST_NAP_S = 200e-6, 1e-3


# Checks and time-out of the communication between ranks.
settings = SimpleNamespace(
    checks=os.environ.get("TTKIT_RANK_CHECKS", "1") not in ("0", "off", "false"),
    timeout_s=float(os.environ.get("TTKIT_RANK_TIMEOUT", "300")),
)


def rank_checks(on: bool | None = None, timeout_s: float | None = None) -> tuple[bool, float]:
    """Switch the checks between ranks on or off, set the time-out of waits; return both.

    With checks, each collective starts with a comparison of the calls, and every wait can be
    interrupted and ends in time. Without, data moves at MPI's own speed and a mistake may hang. All
    ranks must choose the same.

    Args:
        on: None leaves it; `TTKIT_RANK_CHECKS=0` starts without.
        timeout_s: seconds; None leaves it; `TTKIT_RANK_TIMEOUT` sets it at the start, else 300.

    Example:
        >>> rank_checks(timeout_s=60)
        (True, 60.0)
        >>> rank_checks(timeout_s=300)
        (True, 300.0)
    """
    if timeout_s is not None:
        settings.timeout_s = float(timeout_s)
    if on is not None:
        settings.checks = bool(on)
    return settings.checks, settings.timeout_s


class World:
    """All ranks that MPI started, as this one sees them; get it from `world()`."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi = MPI
        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self._broken = ""
        self._groups: dict[tuple[int, ...], Any] = {}
        given = binding()
        mine = "" if given is None else f"{given[0]} {given[1]}"
        bindings = self.swap(mine, range(self.size), "find the other ranks")
        self.rank_of: dict[int, int] = {}  # Each host rank of this rank's mesh has one rank.
        ours = str(given[0]) if given is not None and shared_mesh(*given) is not None else None
        for rank, text in sorted(bindings.items()):
            mesh_id, _, host_rank = text.partition(" ")
            if mesh_id == ours:
                taken = self.rank_of.setdefault(int(host_rank), rank)
                if taken != rank:
                    rule = f"ranks {taken} and {rank} have the same TT_MESH_ID={mesh_id} and"
                    rule += f" TT_MESH_HOST_RANK={host_rank}"
                    cure = "a binding of its own for each rank in rank_bindings.yaml"
                    fail("start of the ranks", rule, cure)
        # The communicator is a duplicate, so that mpi4py messages of the user's program never mix
        # with the kit's messages.
        self.comm = self.comm.Dup()

    def ranks(self, host_ranks: Sequence[int]) -> list[int]:
        """The ranks that have these host ranks of this rank's mesh."""
        for host_rank in host_ranks:
            if host_rank not in self.rank_of:
                rule = f"host rank {host_rank} is not running: {self.size} ranks were started, for"
                rule += f" {sorted(self.rank_of)}"
                cure = "one rank for each host of the descriptor"
                fail("use a mesh that ranks share", rule, cure)
        return [self.rank_of[host_rank] for host_rank in host_ranks]

    def group(self, ranks: Sequence[int]) -> Any:
        """A communicator of some ranks, in that order; all of them must ask."""
        key = tuple(ranks)
        if key not in self._groups:
            self._groups[key] = self.comm.Create_group(self.comm.Get_group().Incl(key))
        return self._groups[key]

    def swap(self, text: str, ranks: Sequence[int], asked: str) -> dict[int, str]:
        """Send `text` to these ranks and receive theirs: {rank: text}, this one's included."""
        self.in_step(asked)
        mine = encoded(text)
        others = [r for r in ranks if r != self.rank]
        theirs = np.empty((len(others), TEXT), np.uint8)
        receives = [self.comm.Irecv(theirs[i], r, CALL) for i, r in enumerate(others)]
        sends = [self.comm.Isend(mine, r, CALL) for r in others]
        self.wait(receives, others, asked, sends, (mine, theirs))
        return {r: decoded(theirs[i]) for i, r in enumerate(others)} | {self.rank: text}

    def in_step(self, asked: object) -> None:
        """Raise where an earlier wait was given up; called before a message is begun."""
        if self._broken:
            rule = f"this rank gave up a wait before ({self._broken}): the ranks are out of step"
            fail(str(asked), rule, "restart all ranks", CollectiveMismatch)

    def wait(
        self,
        requests: list[Any],
        ranks: Sequence[int],
        asked: object,
        more: Sequence[Any] = (),
        buffers: Any = None,
    ) -> None:
        """Wait until requests are done; Ctrl-C and the time-out end the wait.

        Args:
            requests: one for each of `ranks`, those that can be late; `more` are waited for too.
        """
        test, everything = self.mpi.Request.Testall, [*requests, *more]
        if test(everything):
            return
        start, nap, interrupted = time.perf_counter(), 20e-6, False
        # MPI may write into the memory of these messages until it is finalised, which is after
        # Python has ended, so this memory is only freed after a wait that ends well.
        kept = ctypes.py_object((everything, buffers))
        ctypes.pythonapi.Py_IncRef(kept)
        try:
            while (waited := time.perf_counter() - start) <= settings.timeout_s:
                if test(everything):
                    ctypes.pythonapi.Py_DecRef(kept)
                    return
                if waited < EAGER_S:
                    # There may be more ranks than cores, so another rank may need this core.
                    os.sched_yield()
                else:
                    time.sleep(nap)
                    nap = min(2 * nap, LONGEST_NAP_S)
        except KeyboardInterrupt:
            interrupted = True
        missing = [r for r, request in zip(ranks, requests, strict=True) if not request.Test()]
        names, waited = numbered(missing or [-1]), time.perf_counter() - start
        self._broken = f"for {names} in {asked}"
        rule = f"rank {self.rank} waited {waited:.1f} s for {names}"
        if interrupted:
            raise KeyboardInterrupt(f"{rule} in {asked}")
        cure = "look at what they do: an error there, another branch, or a longer"
        cure += " ttkit.rank_checks(timeout_s=...)"
        fail(asked, f"{rule}, which did not come", cure, CollectiveMismatch)

    def run(self, comm: Any, call: str, arguments: tuple[Any, ...], asked: str) -> None:
        """Move data by an MPI call, such as "Allreduce"; with checks, by its nonblocking form."""
        if self._broken:
            self.in_step(asked)
        if settings.checks:
            request = getattr(comm, f"I{call.lower()}")(*arguments)
            self.wait([request], [-1], asked, (), arguments)
        else:
            getattr(comm, call)(*arguments)


def encoded(text: str) -> np.ndarray:
    """Return a text as a message of TEXT bytes."""
    data = text.encode("utf-8", "replace")[:TEXT]
    return np.frombuffer(bytearray(data.ljust(TEXT, b"\0")), np.uint8)


def decoded(message: np.ndarray) -> str:
    """Return the text of a message.

    Example:
        >>> decoded(encoded("all_gather"))
        'all_gather'
    """
    return message.tobytes().rstrip(b"\0").decode("utf-8", "replace")


def numbered(ranks: Sequence[int]) -> str:
    """Name ranks in words.

    Example:
        >>> numbered([1]), numbered([0, 2]), numbered([-1])
        ('rank 1', 'ranks 0, 2', 'other ranks')
    """
    if any(r < 0 for r in ranks):
        return "other ranks"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"


@functools.cache
def world() -> World:
    """All ranks; the first time, every rank must ask."""
    return World()


def me() -> int:
    """This rank; 0 where the ranks have not found each other."""
    return world().rank if world.cache_info().currsize else 0


def members(grid: Grid) -> list[int]:
    """The ranks that drive chips of a grid, in the order of their host ranks."""
    return world().ranks(
        sorted({owner for c in grid.covers if (owner := grid.owner_of(c)) is not None})
    )


def agree(grid: Grid, call: object, *, all_hosts: bool = False) -> None:
    """Raise on every rank unless all that share a grid make the same call.

    Args:
        all_hosts: also ranks without a chip of the grid take part.

    Raises:
        CollectiveMismatch: a rank called something else, or did not arrive in time.
    """
    if not settings.checks:
        return
    here = world()
    owners: Any = grid.owners
    ranks = here.ranks(range(owners.hosts)) if all_hosts else members(grid)
    if here.rank in ranks:
        compare(str(call), ranks)


def compare(call: str, ranks: Sequence[int]) -> None:
    """Raise on each of these ranks unless all of them make the same call."""
    calls = world().swap(call, ranks, call)
    if len({text[:TEXT] for text in calls.values()}) == 1:
        return
    by_call: dict[str, list[int]] = {}
    for rank in sorted(calls):
        by_call.setdefault(calls[rank], []).append(rank)
    parts = [
        f"{numbered(ranks)} call{'s' * (len(ranks) == 1)} {text}" for text, ranks in by_call.items()
    ]
    cure = "the same calls in the same order on every rank of the mesh"
    fail(f"rank {world().rank} in {call}", "; ".join(parts), cure, CollectiveMismatch)

"""MPI between ranks: calls are compared before data moves, and waits can be interrupted.

A collective gathers what the local chips need, computes, and keeps the local shards. Along axes
that stay inside a rank's block of chips nothing is sent. Where the blocks are equal rectangles, the
ranks along the axes communicate, and the shards of large sums are not gathered: each rank adds up
its own chips, and shared memory or MPI adds up the ranks. In any other layout (such as a mesh
reshaped to a line) every rank gathers everything. mpi4py is imported at the first communication; a
process on its own never imports it.
"""

import math
import time
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from ttkit.errors import CollectiveMismatch, fail
from ttkit.sim import blocks, collectives
from ttkit.sim.arguments import describe
from ttkit.sim.ranks import SharedSystem, binding, machine
from ttkit.sim.tensor.grid import Grid, grid_over, restricted
from ttkit.sim.tensor.tensor import Array, Tensor
from ttkit.waiting import CURE, settings, wait_until
from ttkit.words import grouped, numbered

TEXT = 512  # The description of a call has this many bytes, so few that MPI sends it eagerly.
CALL, SOCKET = 30801, 30803  # MPI messages carry these tags.


class World:
    """All ranks that MPI started, as this one sees them; get it from `world()`."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi = MPI
        self.comm = MPI.COMM_WORLD
        self.rank = self.comm.Get_rank()
        self.size = self.comm.Get_size()
        self._broken = ""
        given = binding()
        mine = "" if given is None else f"{given[0]} {given[1]}"
        bindings = self.swap(mine, range(self.size), "find the other ranks")
        # For each host rank of this rank's mesh, this is the MPI rank.
        self.rank_of: dict[int, int] = {}
        ours = str(given[0]) if given and isinstance(machine(), SharedSystem) else None
        for rank, text in sorted(bindings.items()):
            mesh_id, _, host_rank = text.partition(" ")
            if mesh_id == ours:
                taken = self.rank_of.setdefault(int(host_rank), rank)
                if taken != rank:
                    fail(
                        "start of the ranks",
                        f"ranks {taken} and {rank} have the same TT_MESH_ID={mesh_id} and "
                        f"TT_MESH_HOST_RANK={host_rank}",
                        "a binding of its own for each rank in rank_bindings.yaml",
                    )
        # The communicator is a duplicate, so that mpi4py messages of the user's program never mix
        # with the kit's messages.
        self.comm = self.comm.Dup()

    def ranks(self, host_ranks: Sequence[int]) -> list[int]:
        """Return the ranks that have these host ranks of this rank's mesh."""
        for host_rank in host_ranks:
            if host_rank not in self.rank_of:
                fail(
                    "use a mesh that ranks share",
                    f"host rank {host_rank} is not running: {self.size} ranks were started, for "
                    f"host ranks {sorted(self.rank_of)}",
                    "one rank for each host of the descriptor",
                )
        return [self.rank_of[host_rank] for host_rank in host_ranks]

    @cache  # noqa: B019 - There is one `World`, which lasts as long as the process.
    def group(self, *ranks: int):
        """Return a communicator of some ranks, in that order; all must make the first call."""
        return self.comm.Create_group(self.comm.Get_group().Incl(ranks))

    def swap(self, text: str, ranks: Sequence[int], asked: str) -> dict[int, str]:
        """Send `text` to these ranks; return {rank: text}, with theirs and with this rank's own."""
        self.in_step(asked)
        mine = encoded(text)
        others = [r for r in ranks if r != self.rank]
        theirs = np.empty((len(others), TEXT), np.uint8)
        receives = [self.comm.Irecv(theirs[i], r, CALL) for i, r in enumerate(others)]
        sends = [self.comm.Isend(mine, r, CALL) for r in others]
        self.wait(receives, others, asked, (mine, theirs), sends)
        return {r: decoded(theirs[i]) for i, r in enumerate(others)} | {self.rank: text}

    def in_step(self, asked: object) -> None:
        """Raise if an earlier wait was given up; call this before each send and receive."""
        if self._broken:
            rule = f"this rank gave up a wait before ({self._broken}): the ranks are out of step"
            fail(str(asked), rule, "restart all ranks", CollectiveMismatch)

    def wait(
        self, requests: list, ranks: Sequence[int], asked: object, buffers, more: Sequence = ()
    ) -> None:
        """Wait until requests are done; Ctrl-C and the time-out end the wait.

        Args:
            requests: the requests that wait for other ranks, and that may be late.
            ranks: for each of `requests` the rank that it waits for; empty where that is not known.
            buffers: the memory of the messages, which is kept until all requests are done.
            more: other requests that must be done, too.
        """
        everything = [*requests, *more]
        interrupted = False
        start = time.perf_counter()
        try:
            if wait_until(lambda: self.mpi.Request.Testall(everything), (everything, buffers)):
                return
        except KeyboardInterrupt:
            interrupted = True
        missing = [r for r, request in zip(ranks, requests) if not request.Test()]
        names = numbered("rank", missing) if missing else "other ranks"
        self._broken = f"for {names} in {asked}"
        rule = f"rank {self.rank} waited {time.perf_counter() - start:.1f} s for {names}"
        if interrupted:
            raise KeyboardInterrupt(f"{rule} in {asked}")
        fail(asked, f"{rule}, which did not come", CURE, CollectiveMismatch)

    def run(self, comm, call: str, arguments: tuple, asked: str) -> None:
        """Move data by an MPI call, such as "Allreduce"; with checks, by its nonblocking form."""
        self.in_step(asked)
        if settings.checks:
            self.wait([getattr(comm, f"I{call.lower()}")(*arguments)], (), asked, arguments)
        else:
            getattr(comm, call)(*arguments)


def encoded(text: str) -> Array:
    """Return a text as a message of TEXT bytes."""
    data = text.encode("utf-8", "replace")[:TEXT]
    return np.frombuffer(bytearray(data.ljust(TEXT, b"\0")), np.uint8)


def decoded(message: Array) -> str:
    """Return the text of a message.

    Example:
        >>> decoded(encoded("all_gather"))
        'all_gather'
    """
    return message.tobytes().rstrip(b"\0").decode("utf-8", "replace")


@cache
def world() -> World:
    """Return all ranks; every rank must make the first call, which connects them."""
    return World()


def me() -> int:
    """Return the number of this rank; 0 where `world` has not been called."""
    return world().rank if world.cache_info().currsize else 0


@cache
def members(grid: Grid) -> list[int]:
    """Return the ranks that drive chips of a grid, in the order of their host ranks."""
    owners: Any = map(grid.owner_of, grid.covers)
    return world().ranks(sorted(set(owners)))


def compare(call: object, ranks: Sequence[int]) -> None:
    """Raise on each of these ranks unless all make the same call; with checks off, do nothing.

    Raises:
        CollectiveMismatch: a rank called something else, or did not arrive in time.
    """
    if not settings.checks or world().rank not in ranks:
        return
    shown = str(call)[:TEXT]
    calls = world().swap(shown, ranks, shown)
    if len(set(calls.values())) == 1:
        return
    parts = [
        f"{numbered('rank', ranks)} call{'s' * (len(ranks) == 1)} {text}"
        for text, ranks in grouped(sorted(calls), calls.__getitem__).items()
    ]
    cure = "the same calls in the same order on every rank of the mesh"
    fail(f"rank {world().rank} in {shown}", "; ".join(parts), cure, CollectiveMismatch)


# ---------------------------------------------------------------- collectives
# Up to this many bytes on each rank, a sum gathers the shards and adds them in mesh order. A single
# process does the same up to `collectives.ORDERED_UP_TO` elements, so both get the same bits.
EXACT_UP_TO = 1 << 14


class ProcessGroup(NamedTuple):
    """The ranks whose blocks lie on one line with this rank's, along the axes of a collective."""

    hosts: tuple[int, ...]  # The host ranks are in row-major order.
    blocks: tuple[int, ...]  # This is the number of blocks along each mesh axis.
    chips: Grid  # The grid covers the chips of all these ranks.


@cache
def group_along(grid: Grid, axes: tuple[int, ...]) -> ProcessGroup | None:
    """Return the process group along mesh axes; None where the blocks are no equal rectangles."""
    owners: Any = grid.owners
    if len(grid.covers) != len(owners.ranks) or owners.me not in owners.ranks:
        return None
    owner = np.reshape(owners.ranks, grid.mesh_shape)
    first = tuple(c for c in grid.covers if owner[c] == owner.flat[0])
    block = grid_over(grid.mesh_shape, first).shape
    if len(block) != owner.ndim:
        return None
    hosts = owner[tuple(slice(None, None, n) for n in block)]
    tiled = np.kron(hosts, np.ones(block, int))
    if len(set(hosts.flat)) != hosts.size or not np.array_equal(tiled, owner):
        return None
    mine = np.argwhere(hosts == owners.me)[0]
    line = hosts[tuple(slice(None) if a in axes else slice(i, i + 1) for a, i in enumerate(mine))]
    chips = tuple(c for c in grid.covers if owner[c] in line)
    return ProcessGroup(tuple(line.flat), line.shape, grid_over(grid.mesh_shape, chips))


@cache
def _communicator(hosts: tuple[int, ...]) -> tuple[Any, blocks.SharedSum | None]:
    """Return the communicator of a process group's ranks, and their shared memory.

    The memory is None where the ranks share no memory, for example on several hosts.
    """
    comm = world().group(*world().ranks(hosts))
    return comm, blocks.shared_sum(comm)


def move(tensor: Tensor, axes: list[int], into: int | None, cut: int | None, sums: bool) -> Array:
    """Return what `collectives.exchanged` returns, on a mesh that ranks share."""
    grid = tensor.grid
    group = group_along(tensor.grid, tuple(axes))
    values, chips = tensor.array, grid
    if group is None:
        values, chips = collected(tensor)
    elif len(group.hosts) > 1:
        chips = group.chips
        nbytes = chips.size * values.itemsize * math.prod(tensor.shard_shape)
        if sums and nbytes > EXACT_UP_TO * len(group.hosts):
            values = _added_up(tensor, axes, group)
            sums = False
        else:
            values = _gathered(tensor, axes, group)
    if sums:
        values = _without_replicas(values, axes)
    made = collectives.exchanged(values, chips.shape, axes, into, cut, sums=sums)
    own = restricted(made, chips, grid)
    return own if own.size == made.size else own.copy()  # A copy frees the values of other ranks.


def _without_replicas(values: Array, axes: list[int]) -> Array:
    """Return one replica where all shards along the axes are equal, else the values.

    The sum of equal shards is then computed as a multiple of one shard, as in a single process.
    """
    first = values[tuple(slice(1) if a in axes else slice(None) for a in range(values.ndim))]
    return first if (values == first).all() else values


def _gathered(tensor: Tensor, axes: list[int], group: ProcessGroup) -> Array:
    """Return the values of the group's chips; axes outside `axes` may keep length 1."""
    mine = collectives.expanded(tensor.array, tensor.grid.shape, axes)
    mine, (comm, _) = np.ascontiguousarray(mine), _communicator(group.hosts)
    lead = len(group.blocks)
    counts = group.blocks
    parts = np.empty(counts + mine.shape, mine.dtype)
    world().run(comm, "Allgather", (mine, parts), "all_gather")
    # Along each mesh axis the blocks come first, then the chips within a block.
    order = [axis for i in range(lead) for axis in (i, lead + i)]
    parts = parts.transpose([*order, *range(2 * lead, parts.ndim)])
    front = tuple(n * m for n, m in zip(counts, mine.shape))
    return parts.reshape(front + mine.shape[lead:])


def _added_up(tensor: Tensor, axes: list[int], group: ProcessGroup) -> Array:
    """Return the sum over the group; between hosts MPI chooses the order of the additions."""
    mine = np.ascontiguousarray(collectives.summed(tensor.array, tensor.grid.shape, axes))
    total = np.empty_like(mine)
    run = world().run
    comm, shared = _communicator(group.hosts)
    if shared is None:
        run(comm, "Allreduce", (mine, total), "all_reduce")
    else:
        shared.add_up(mine, total, partial(run, comm, "Barrier", (), "all_reduce"))
    return total


# ---------------------------------------------------------------- from everywhere
def everywhere(tensor: Tensor, name: str) -> tuple[Array, Grid]:
    """Return the values of all chips of a tensor, on every rank; every rank must call.

    Returns:
        An array over all chips, and the grid of all chips.
    """
    if tensor.grid.owners is None:
        return tensor._array, tensor.grid
    ranks = world().ranks(range(tensor.grid.owners.hosts))
    compare(describe(name, (tensor,)), ranks)
    return collected(tensor, ranks)


def collected(tensor: Tensor, ranks: list[int] | None = None) -> tuple[Array, Grid]:
    """Return every chip's values, from these ranks; zeros where this rank is not one of them.

    Args:
        ranks: the ranks that gather; by default those that drive chips of the tensor.
    """
    grid = tensor.grid
    here = world()
    shard = tensor.shard_shape
    ranks = members(grid) if ranks is None else ranks
    full = grid_over(grid.mesh_shape, grid.covers)
    if here.rank not in ranks:
        return np.broadcast_to(tensor.array.dtype.type(0), full.shape + shard), full
    owners: Any = map(grid.owner_of, grid.covers)
    sources = [ranks.index(here.rank_of[owner]) for owner in owners]
    counts = [sources.count(i) * math.prod(shard) for i in range(len(ranks))]
    mine = np.ascontiguousarray(tensor.full_array())
    flat = np.empty(sum(counts), mine.dtype)
    here.run(here.group(*ranks), "Allgatherv", (mine, [flat, counts]), "all_gather")
    # The values arrive in the order of the ranks, and must be put in mesh order.
    place = np.argsort(np.argsort(sources, kind="stable"))
    return flat.reshape((full.size,) + shard)[place].reshape(full.shape + shard), full

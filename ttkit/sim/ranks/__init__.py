"""This process's part of a mesh, by `TT_MESH_ID`, `TT_MESH_HOST_RANK` and the descriptor."""

import functools
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ttkit.hardware import System, current_machine, current_system
from ttkit.hardware.current import descriptor_in_use
from ttkit.hardware.systems import Coordinate, Ids

# Open MPI and MPICH set these variables for each rank.
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


class NamedInt(int):
    """A whole number whose `repr` has the name of its class, as in Rank(1)."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    __str__ = int.__repr__


class Rank(NamedInt):
    """The number of a rank.

    Example:
        >>> Rank(1), int(Rank(1)), f"rank {Rank(1)}"
        (Rank(1), 1, 'rank 1')
    """


class Size(NamedInt):
    """A number of ranks."""


@dataclass(frozen=True)
class SharedSystem(System):
    """A machine that several ranks drive, with the ids of this rank: its own chips are 0, 1, ...

    Args:
        host_rank: the host rank of this process.
        host_of: the host rank of each device id. The ids of other ranks' devices are never shown,
            because each rank numbers the devices differently.
    """

    host_rank: int = 0
    host_of: Mapping[int, int] = field(default_factory=dict, hash=False, compare=False)


def world_size() -> int:
    """Return how many ranks MPI started, or 1 if MPI did not start this process."""
    return next((int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdigit()), 1)


def binding() -> tuple[int, int] | None:
    """Return the mesh id and host rank of this process, or None for one rank or no TT_MESH_ID."""
    given = [os.environ.get(name, "").strip() for name in ("TT_MESH_ID", "TT_MESH_HOST_RANK")]
    if world_size() == 1 or not given[0]:
        return None
    return int(given[0]), int(given[1] or 0)


def machine() -> System:
    """Return the machine on which this process opens meshes, by TT_MESH_ID and the descriptor.

    Raises:
        TTKitError: the file, the mesh or the host rank does not exist, or the mesh does not fit on
            the machine.
    """
    given = binding()
    descriptor = descriptor_in_use() if given else None
    if given is None or descriptor is None:
        return current_system()
    mesh = descriptor.mesh(given[0])
    if mesh.num_hosts > 1:
        return shared(current_machine(), mesh, given[1])
    from ttkit.descriptors.placing import placed

    return placed(current_machine(), mesh)


def visible() -> System:
    """Return the machine of the mesh that this process shares, else all of its own machine."""
    given = machine()
    return given if isinstance(given, SharedSystem) else current_machine()


@functools.cache
def shared(system: System, mesh, host_rank: int) -> SharedSystem:
    """Return the machine of a mesh in the descriptor, with the device ids of one of its ranks.

    Args:
        system: the whole machine, or the part of it that this host has.

    Example:
        >>> from ttkit.descriptors.descriptor import MeshInstance
        >>> from ttkit.hardware import SYSTEMS
        >>> kind = "WORMHOLE_B0", (2, 4), ("LINE", "LINE"), (1, 2), 2, "STRICT"
        >>> shared(SYSTEMS["t3000"], MeshInstance(0, "M0", *kind), 1).ids  # 0 to 3 are ours
        ((6, 4, 0, 2), (7, 5, 1, 3))
    """
    dims = mesh.device_dims
    start, block = mesh.block_of_host(host_rank)
    places = list(itertools.product(*map(range, dims)))
    whole = system.shape == dims
    # These are the devices of `system`, with their coordinates in the mesh.
    there: dict[int, Coordinate] = {}
    if whole or system.shape == block:
        top, left = (0, 0) if whole else start
        there = {device: (top + r, left + c) for device, (r, c) in system.coordinate_of.items()}
    known = {c: device for device, c in there.items()}
    # The devices that this host rank drives get the first numbers.
    order = sorted(places, key=lambda c: (mesh.host_of(c) != host_rank, known.get(c, 0)))
    number = {c: i for i, c in enumerate(order)}
    ids = tuple(tuple(number[r, c] for c in range(dims[1])) for r in range(dims[0]))
    cards: Ids = ()
    if there:
        cards = tuple(tuple(number[there[device]] for device in chips) for chips in system.cards)
        cards += tuple((i,) for i in range(len(there), len(places)))
    wraps = mesh.rings
    if whole:
        wraps = tuple(a or b for a, b in zip(wraps, system.wraps))
    hosts = dict(enumerate(map(mesh.host_of, order)))
    links = mesh.channels or system.links_per_pair
    return SharedSystem(system.name, system.chip, ids, links, wraps, cards, host_rank, hosts)

"""This process's part of a mesh, by `TT_MESH_ID`, `TT_MESH_HOST_RANK` and the descriptor."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ttkit.errors import fail
from ttkit.hardware import System, current_machine, current_system

Coordinate = tuple[int, ...]
# Open MPI and MPICH set these variables for each rank.
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@dataclass(frozen=True)
class SharedSystem(System):
    """A machine that several ranks drive, as one of them sees it: its own devices are 0, 1, ...

    Args:
        host_rank: ours.
        host_of: the host rank of each device id. The ids of other ranks' devices are never shown:
            each rank has its own.
    """

    host_rank: int = 0
    host_of: Mapping[int, int] = field(default_factory=dict, hash=False, compare=False)


@dataclass(frozen=True)
class Block:
    """A rank's rectangle of a mesh.

    Args:
        mesh: rows and columns of the whole mesh.
        hosts: rows and columns of ranks.
        host_rank: which of them; row-major.

    Example:
        >>> block = Block((2, 4), (1, 2), 1)
        >>> block.shape, block.start, block.owner_of((1, 1))
        ((2, 2), (0, 2), 0)
    """

    mesh: Coordinate
    hosts: Coordinate
    host_rank: int
    links: int = 0
    wraps: tuple[bool, bool] = (False, False)

    @property
    def shape(self) -> Coordinate:
        """Rows and columns of the block."""
        return tuple(n // h for n, h in zip(self.mesh, self.hosts, strict=True))

    @property
    def start(self) -> Coordinate:
        """Its first chip."""
        return tuple(
            i * n for i, n in zip(divmod(self.host_rank, self.hosts[1]), self.shape, strict=True)
        )

    def owner_of(self, coordinate: Coordinate) -> int:
        """The host rank that drives a chip."""
        row, column = (c // n for c, n in zip(coordinate, self.shape, strict=True))
        return row * self.hosts[1] + column


def world_size() -> int:
    """How many ranks MPI started; 1 where it did not start this process."""
    return next((int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdigit()), 1)


def binding() -> tuple[int, int] | None:
    """Mesh id and host rank that this process was given; None for a process on its own."""
    given = [os.environ.get(name, "").strip() for name in ("TT_MESH_ID", "TT_MESH_HOST_RANK")]
    if world_size() == 1 or not given[0]:
        return None
    return int(given[0]), int(given[1] or 0)


def local_block(mesh_id: int, host_rank: int) -> Block | None:
    """Return this rank's part of a mesh by the descriptor; None where one rank drives all of it.

    Raises:
        TTKitError: no such file, mesh or host rank; no host rank where several share the mesh.
    """
    descriptor = _descriptor()
    if descriptor is None:
        return None
    mesh = descriptor.mesh(mesh_id)
    if mesh.num_hosts == 1:
        return None
    if not os.environ.get("TT_MESH_HOST_RANK", "").strip():
        rule = "Not specifying both TT_MESH_ID and TT_MESH_HOST_RANK is only supported for"
        rule += " single host systems."
        fail(f"TT_MESH_ID={mesh_id}", rule, "mesh_host_rank in rank_bindings.yaml")
    mesh.part_of(host_rank)  # This fails for a host rank that does not exist.
    return Block(mesh.device_dims, mesh.host_dims, host_rank, mesh.channels, mesh.rings)


def _descriptor() -> Any:
    path = os.environ.get("TT_MESH_GRAPH_DESC_PATH", "")
    if not path:
        return None
    try:
        changed = os.stat(path).st_mtime_ns
    except OSError:
        changed = 0  # The reader reports a file that is missing.
    return _read(path, changed)


@functools.lru_cache(maxsize=16)
def _read(path: str, changed: int) -> Any:
    # This imports protobuf, so it waits until a file is read.
    from ttkit.descriptors import read_descriptor

    return read_descriptor(path)


def machine() -> System:
    """Return the machine of new meshes: all of a mesh that ranks share, else this process's own."""
    given = binding()
    descriptor = _descriptor() if given else None
    if given is None or descriptor is None:
        return current_system()
    block = local_block(*given)
    if block is not None:
        return shared(current_machine(), block)
    from ttkit.descriptors import placed

    return placed(current_machine(), descriptor.mesh(given[0]))


def visible() -> System:
    """Return the mesh that this process shares, else all of its own machine."""
    given = machine()
    return given if isinstance(given, SharedSystem) else current_machine()


def check_fabric(fabric: str, asked: str) -> None:
    """Fail where a fabric would have to join the meshes of several ranks, and cannot."""
    descriptor = _descriptor() if binding() and fabric.startswith("FABRIC_1D") else None
    if descriptor and len(descriptor.meshes) > 1:
        rule = f"!is_1d_fabric || !is_multi_mesh: {fabric} does not join several meshes"
        fail(asked, rule, "ttnn.FabricConfig.FABRIC_2D")


@functools.lru_cache(maxsize=16)
def shared(system: System, block: Block) -> SharedSystem:
    """Return the machine of `block.mesh` as its rank sees it.

    Args:
        system: the whole machine, or what this host has.

    Example:
        >>> from ttkit.hardware import SYSTEMS
        >>> shared(SYSTEMS["t3000"], Block((2, 4), (1, 2), 1)).ids  # devices 0 to 3 are ours
        ((6, 4, 0, 2), (7, 5, 1, 3))
    """
    places, where = list(itertools.product(*map(range, block.mesh))), system.coordinate_of
    whole, part = system.shape == block.mesh, system.shape == block.shape
    known: dict[Coordinate, int] = {c: i for i, c in enumerate(places)}
    if whole:
        known = {c: device for device, c in where.items()}
    elif part:
        top, left = block.start
        known |= {(top + r, left + c): device - len(where) for device, (r, c) in where.items()}
    # The devices that this host rank drives get the first numbers.
    order = sorted(places, key=lambda c: (block.owner_of(c) != block.host_rank, known[c]))
    number = {c: i for i, c in enumerate(order)}
    ids = tuple(tuple(number[r, c] for c in range(block.mesh[1])) for r in range(block.mesh[0]))
    cards: tuple[tuple[int, ...], ...] = ()
    wraps: Any = block.wraps
    if whole:
        cards = tuple(tuple(number[where[device]] for device in chips) for chips in system.cards)
        wraps = tuple(a or b for a, b in zip(block.wraps, system.wraps, strict=True))
    elif part:
        cards = system.cards + tuple((i,) for i in range(len(where), len(places)))
    hosts = {i: block.owner_of(c) for c, i in number.items()}
    links = block.links or system.links_per_pair
    return SharedSystem(system.name, system.chip, ids, links, wraps, cards, block.host_rank, hosts)

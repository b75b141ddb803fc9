"""A descriptor on a machine: chips that are cabled as a mesh asks, and the fabric they allow."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

from ttkit.descriptors.descriptor import MeshGraphDescriptor, MeshInstance
from ttkit.descriptors.reading import load_text, read_text, refuse
from ttkit.errors import TTKitError, fail
from ttkit.hardware.chips import BLACKHOLE
from ttkit.hardware.systems import (
    SYSTEMS,
    Place,
    System,
    grid_ids,
    grid_links,
)

Cables = dict[int, set[int]]  # chip -> the chips that it is cabled to
Joins = list[tuple[Place, Place, int]]

VARIABLE = "TT_MESH_GRAPH_DESC_PATH"
STEPS = 20_000  # of the search, before it tries the grid as it is
TRAYS_FROM = 32  # chips of a machine that has trays, which pinnings name: a Galaxy
LARGEST = 1024  # chips in one process; the largest Galaxy clusters have that many


@lru_cache(maxsize=64)
def placed(machine: System, mesh: MeshInstance, pinned: bool = False) -> System:
    """Return the machine as a process sees it that opens it through a mesh of a descriptor.

    It has the mesh's shape, rings and links, on chips found for it. The real library puts a small
    mesh where most cables are, and starts a full one at a corner; so does this.

    Args:
        pinned: the descriptor pins chips to trays.

    Raises:
        TTKitError: the machine has too few chips, links, or rings.

    Example:
        >>> lines = ("LINE", "LINE")
        >>> line = MeshInstance(0, "M0", "WORMHOLE_B0", (1, 8), lines, (1, 1), 2, "STRICT")
        >>> placed(SYSTEMS["t3000"], line).ids
        ((4, 5, 1, 0, 2, 6, 7, 3),)
    """
    asked = (
        f"mesh {mesh.mesh_id} of the descriptor, {mesh.size_text} {mesh.arch}, "
        f"on a {machine.name} of {machine.shape[0]}x{machine.shape[1]} chips"
    )
    no_trays = pinned and machine.num_devices < TRAYS_FROM
    joins: Joins = []
    found = None
    if mesh.num_devices <= machine.num_devices and not no_trays:
        joins = list(grid_links(mesh.device_dims, mesh.rings))
        found = _search(machine, mesh.device_dims, joins)
    if found is None:
        rule = (
            f"Internal error: SAT placement: mesh '{mesh.name}' (mesh {mesh.mesh_id}) has no "
            "grouping in the provided valid-groupings map"
        )
        cure = (
            f"device_topology dims that fit into {machine.shape[0]}x{machine.shape[1]}, "
            "or TTKIT_SYSTEM for a larger machine"
        )
        if joins and any(mesh.rings):
            cure = "dim_types LINE where the machine has no cable that closes the ring"
        fail(asked, rule, "remove the pinnings: only a Galaxy has trays" if no_trays else cure)
    rows, columns = mesh.device_dims
    ids = tuple(tuple(found[r, c] for c in range(columns)) for r in range(rows))
    links = machine.links_per_pair
    if joins:
        # RELAXED matters to a fabric only: `check_fabric`
        if mesh.policy == "STRICT" and mesh.policy_given and mesh.channels > links:
            cure = f"channels {{ count: {links} }}: that many links join two chips of this machine"
            fail(asked, _no_mapping(mesh), cure)
        links = min(mesh.channels, links)
    return replace(machine, ids=ids, wraps=mesh.rings, links_per_pair=links)


def _no_mapping(mesh: MeshInstance) -> str:
    """The library's message where a machine has too few links."""
    n = mesh.num_devices
    return (
        "Graph specified in MGD could not fit in the discovered physical topology. "
        f"intra-mesh mapping failed: logical mesh {mesh.mesh_id} ({n} node(s))"
        f" -> physical mesh {mesh.mesh_id} ({n} asic(s)): TopologyMappingEnumerationSession: "
        "no new mapping found (all solutions exhausted or excluded)"
        f" [DFS required=0 preferred=0/0 n_target={n} n_global={n}] (seated as grouping "
        f"'{mesh.name}' type 'MESH' with {n} asic(s)). Either relax"
        " pinnings or modify the MGD. If this is unexpected, "
        "run ./build/test/tt_metal/tt_fabric/test_system_health to check connectivity."
    )


def _search(machine: System, shape: Place, joins: Joins) -> dict[Place, int] | None:
    """A chip for each place, so that all joins are cables; None where there is none."""
    cables: Cables = machine.neighbours
    # cards in PCIe order; on a card the chip without the PCIe connector comes first
    in_order = [device for chips in machine.cards for device in reversed(chips)]
    order = {device: number for number, device in enumerate(in_order)}
    small = math.prod(shape) < machine.num_devices
    grid = _rectangle(machine, cables, shape) if small and 1 not in shape else machine.ids
    try:
        if small:
            chips = {device for row in grid for device in row}
            if 1 in shape:
                best = _embedding(cables, shape, joins, lambda d: (-len(cables[d]), -order[d]))
                chips = set((best or {}).values())
            cables = {device: cables[device] & chips for device in chips}
        return _embedding(cables, shape, joins, lambda d: (len(cables[d]), order[d]))
    except TimeoutError:  # the chips as they are in the grid, or turned
        rows = grid if (len(grid), len(grid[0])) == shape else zip(*grid)
        places = itertools.product(range(shape[0]), range(shape[1]))
        found = dict(zip(places, itertools.chain.from_iterable(rows)))
        ends = ((found.get(a, -1), found.get(b)) for a, b, _ in joins)
        return found if all(b in cables.get(a, ()) for a, b in ends) else None


def _rectangle(machine: System, cables: Cables, shape: Place) -> tuple[tuple[int, ...], ...]:
    """The rectangle of chips of this shape, or turned, with the most cables; () without one."""
    rectangles = [
        tuple(row[c : c + columns] for row in machine.ids[r : r + rows])
        for rows, columns in (shape, shape[::-1])
        for r in range(machine.shape[0] - rows + 1)
        for c in range(machine.shape[1] - columns + 1)
    ]

    def weight(rows: tuple[tuple[int, ...], ...]) -> int:
        return sum(len(cables[device]) for row in rows for device in row)

    return max(reversed(rectangles), key=weight, default=())  # the last of several


def _embedding(
    cables: Cables, shape: Place, joins: Joins, rank: Callable[[int], tuple[int, int]]
) -> dict[Place, int] | None:
    """Depth first in row-major order, the best-ranked chip first; TimeoutError after `STEPS`."""
    places = list(itertools.product(range(shape[0]), range(shape[1])))
    beside: dict[Place, set[Place]] = {place: set() for place in places}
    for a, b, _ in joins:
        beside[a].add(b)
        beside[b].add(a)
    found: dict[Place, int] = {}
    used: set[int] = set()

    def choices(place: Place) -> Iterator[int]:
        around = [cables[found[other]] for other in beside[place] if other in found]
        free = (set.intersection(*around) if around else set(cables)) - used
        return iter(sorted((d for d in free if len(cables[d]) >= len(beside[place])), key=rank))

    trail = [choices(places[0])]
    for _ in range(STEPS):
        device = next(trail[-1], None)
        if device is None:
            trail.pop()
            if not trail:
                return None
            used.remove(found.popitem()[1])
            continue
        found[places[len(trail) - 1]] = device
        used.add(device)
        if len(trail) == len(places):
            return found
        trail.append(choices(places[len(trail)]))
    raise TimeoutError


def _the_mesh(descriptor: MeshGraphDescriptor, asked: str) -> MeshInstance:
    """The one mesh of a descriptor that one process can open alone."""
    if len(descriptor.meshes) > 1:
        rule = (
            "Multi-mesh-per-host systems are not supported by this algorithm, "
            "please use custom fabric topology via MetalContext::set_custom_fabric_topology"
            f": the descriptor has {len(descriptor.meshes)} meshes"
        )
        cure = "one process a mesh: TT_MESH_ID names its mesh, rank_bindings.yaml sets it"
        fail(asked, rule, cure)
    return descriptor.meshes[0]


def system_of(descriptor: MeshGraphDescriptor) -> System:
    """Return the machine that a descriptor of one mesh describes.

    It is one of `SYSTEMS` where that fits exactly, else chips numbered row by row.

    Raises:
        TTKitError: several meshes, or more chips than one process should simulate.
    """
    asked = f"use_system({descriptor!r})"
    mesh = _the_mesh(descriptor, asked)
    if mesh.num_devices > LARGEST:
        rule = f"the mesh has {mesh.num_devices} chips; a machine here may have {LARGEST}"
        fail(asked, rule, "a smaller device_topology")
    alike = [system for system in SYSTEMS.values() if system.chip.arch == mesh.arch]
    wanted = mesh.device_dims, mesh.rings, mesh.channels
    for system in alike:
        if (system.shape, system.wraps, system.links_per_pair) == wanted:
            return system
    # the chip of the smallest system that is as large, else of the largest
    alike.sort(key=lambda system: (system.num_devices < mesh.num_devices, system.num_devices))
    chip = alike[0].chip if alike else BLACKHOLE
    return System(descriptor.name, chip, grid_ids(*mesh.device_dims), mesh.channels, mesh.rings)


def chips_of(mesh: MeshInstance) -> dict[Place, tuple[int, int]]:
    """Return host rank and device id on that host of the chip at each (row, column).

    A host's part is on the machine of `SYSTEMS` that has as many chips of that architecture; where
    there is none, its chips are numbered row by row.

    Example:
        >>> lines = ("LINE", "LINE")
        >>> mesh = MeshInstance(0, "M0", "WORMHOLE_B0", (4, 4), lines, (2, 1), 2, "STRICT")
        >>> chips_of(mesh)[2, 1]
        (1, 0)
    """
    part, (rows, columns) = mesh, mesh.host_shape
    if mesh.num_hosts > 1:
        part = replace(mesh, device_dims=(rows, columns), dim_types=("LINE", "LINE"))
    ids = grid_ids(rows, columns)
    for system in SYSTEMS.values():
        if (system.chip.arch, system.num_devices) == (mesh.arch, part.num_devices):
            try:
                ids = placed(system, part).ids
                break
            except TTKitError:
                continue
    places = itertools.product(range(mesh.device_dims[0]), range(mesh.device_dims[1]))
    return {(r, c): (mesh.host_of((r, c)), ids[r % rows][c % columns]) for r, c in places}


# ---------------------------------------------------------------- the descriptor in use
def seen_through(path: str, machine: System) -> System:
    """Return the machine as a process sees it whose TT_MESH_GRAPH_DESC_PATH is `path`.

    Raises:
        TTKitError: the file is refused, or its mesh does not fit on the machine.
    """
    return placed(machine, *_mesh_in(path))


def _mesh_in(path: str) -> tuple[MeshInstance, bool]:
    """The mesh that this process opens, and whether chips of it are pinned to trays."""
    asked = f"{VARIABLE}={path!r}"
    text = read_text(path, asked)
    if not path.endswith(".textproto"):
        rule = (
            "Mesh graph descriptor file must use the .textproto format. "
            "The YAML format (MGD 1.0) has been deprecated."
        )
        fail(asked, rule, "ttkit convert old.yaml > mgd.textproto")
    return _parsed(path, text, asked)


@lru_cache(maxsize=64)
def _parsed(path: str, text: str, asked: str) -> tuple[MeshInstance, bool]:
    loaded = load_text(text, path)
    descriptor = loaded.descriptor or refuse(asked, loaded)
    mesh = _the_mesh(descriptor, asked)
    if mesh.num_hosts > 1:
        rule = f"Mesh {mesh.mesh_id} has {mesh.num_hosts} host ranks, expected 1"
        cure = (
            "one process a host rank (TT_MESH_HOST_RANK), or use_system(read_descriptor(...)) "
            "for the whole mesh in one process"
        )
        fail(asked, rule, cure)
    return mesh, bool(descriptor.pinnings)


def check_fabric(fabric: str, machine: System, asked: str) -> None:
    """Fail where a fabric cannot start on a machine under the descriptor in use.

    Raises:
        TTKitError: the descriptor has no ring where the fabric needs one, or asks for more links
            than the machine has.
    """
    mesh, pinned = _mesh_in(os.environ[VARIABLE])
    needs = fabric.partition("_TORUS_")[2]  # X, Y or XY; two chips are neighbours both ways round
    rings = zip("YX", mesh.rings, mesh.device_dims)
    if any(axis in needs and not ring and n > 2 for axis, ring, n in rings):
        has = "TORUS_X" if mesh.rings[1] else "TORUS_Y" if mesh.rings[0] else "MESH"
        rule = (
            f"FabricConfig {fabric} requests topology {fabric.removeprefix('FABRIC_2D_')} "
            f"which requires more connectivity than MGD provides {has}. "
            "FabricConfig can only restrict topology (e.g., torus→mesh), "
            "not create new connections."
        )
        cure = "FabricConfig.FABRIC_2D, or dim_types RING in the descriptor where the cables are"
        fail(asked, rule, cure)
    system, links = placed(machine, mesh, pinned), machine.links_per_pair
    if mesh.channels > links and mesh.num_devices > 1:
        a, b = min(system.links(), key=lambda pair: system.coordinate_of[pair[0]])
        rule = f"Expected {mesh.channels} eth links from physical chip {a} to physical chip {b}"
        cure = f"channels {{ count: {links} }} in the descriptor: that many links join two chips"
        fail(asked, rule, cure)

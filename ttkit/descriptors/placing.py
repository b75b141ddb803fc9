"""Where the meshes of a descriptor sit: the search for chips of a machine that are cabled as a
mesh asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NoReturn

from ttkit.descriptors.descriptor import MeshGraphDescriptor, MeshInstance
from ttkit.errors import TTKitError, fail
from ttkit.hardware.chips import BLACKHOLE, WORMHOLE, WORMHOLE_GALAXY, WORMHOLE_N150
from ttkit.hardware.systems import SYSTEMS, Place, System, grid_links, winding

Graph = dict[int, set[int]]
STEPS = 20_000  # of the search, before it takes a snake through the grid instead
TRAYS_FROM = 32  # chips of a machine whose boards are trays, which pinnings name: a Galaxy
LARGEST = 1024  # chips in one process; the largest Galaxy clusters have that many


def mesh_links(shape: Place, dim_types: Iterable[str]) -> Iterator[tuple[Place, Place, int]]:
    """Pairs of places of a mesh that a link joins, with the axis: see `grid_links`."""
    return grid_links(shape, [kind == "RING" for kind in dim_types])


def placed(machine: System, mesh: MeshInstance, pinned: bool = False) -> System:
    """The machine as a process sees it that opens it through a mesh of a descriptor: its shape,
    rings and links, on chips found for it.

    The real library seats a small mesh where most cables are, and starts a full one at a corner; so
    does this.

    Raises:
        TTKitError: the machine has too few chips, links, or rings.

    Example:
        >>> line = MeshInstance(0, "M0", "WORMHOLE_B0", (1, 8), ("LINE", "LINE"), (1, 1), 2, "STRICT")
        >>> placed(SYSTEMS["t3000"], line).ids
        ((4, 5, 1, 0, 2, 6, 7, 3),)
    """
    asked = (
        f"mesh {mesh.mesh_id} of the descriptor, {mesh.size_text} {mesh.arch}, "
        f"on a {machine.name} of {machine.shape[0]}x{machine.shape[1]} chips"
    )
    rows, columns = mesh.device_dims
    fits = mesh.num_devices <= machine.num_devices and not (
        pinned and machine.num_devices < TRAYS_FROM
    )
    joins = list(mesh_links((rows, columns), mesh.dim_types)) if fits else []
    found = _search(machine, (rows, columns), [(a, b) for a, b, _ in joins]) if fits else None
    if found is None:
        rule = (
            f"Internal error: SAT placement: mesh '{mesh.name}' (mesh {mesh.mesh_id}) has no "
            "grouping in the provided valid-groupings map"
        )
        unclosed = [
            f"dimension {axis}"
            for axis in (0, 1)
            if mesh.dim_types[axis] == "RING"
            and not machine.wraps[axis]
            and mesh.device_dims[axis] > 2
        ]
        cure = (
            f"dim_types LINE: the machine has no cable that closes {' and '.join(unclosed)}"
            if unclosed and fits
            else ""
        )
        cure = "remove the pinnings: only a Galaxy has trays" if pinned and not fits else cure
        fail(
            asked,
            rule,
            cure
            or f"device_topology dims that fit into {machine.shape[0]}x{machine.shape[1]}, "
            "or TTKIT_SYSTEM for a larger machine",
        )
    ids = tuple(tuple(found[r, c] for c in range(columns)) for r in range(rows))
    # RELAXED: only a fabric minds, `check_fabric`
    if (
        joins
        and mesh.policy == "STRICT"
        and mesh.policy_given
        and mesh.channels > machine.links_per_pair
    ):
        _too_few_links(asked, machine, mesh)
    wraps = (mesh.dim_types[0] == "RING", mesh.dim_types[1] == "RING")
    links = min(mesh.channels, machine.links_per_pair) if joins else machine.links_per_pair
    return replace(machine, ids=ids, wraps=wraps, links_per_pair=links)


def _too_few_links(asked: str, machine: System, mesh: MeshInstance) -> NoReturn:
    n = mesh.num_devices
    rule = (
        "Graph specified in MGD could not fit in the discovered physical topology. "
        f"intra-mesh mapping failed: logical mesh {mesh.mesh_id} ({n} node(s))"
    )
    rule += (
        f" -> physical mesh {mesh.mesh_id} ({n} asic(s)): TopologyMappingEnumerationSession: "
        "no new mapping found (all solutions exhausted or excluded)"
    )
    rule += (
        f" [DFS required=0 preferred=0/0 n_target={n} n_global={n}] (seated as grouping "
        f"'{mesh.name}' type 'MESH' with {n} asic(s)). Either relax"
    )
    rule += (
        " pinnings or modify the MGD. If this is unexpected, "
        "run ./build/test/tt_metal/tt_fabric/test_system_health to check connectivity."
    )
    fail(
        asked,
        rule,
        f"channels {{ count: {machine.links_per_pair} }}: that many links join two chips of this "
        "machine",
    )


def _search(
    machine: System, shape: Place, joins: list[tuple[Place, Place]]
) -> dict[Place, int] | None:
    """A chip for each place, so that all joins are cables; None where there is no such."""
    cables: Graph = {device: set() for device in machine.coordinate_of}
    for a, b in machine.links():
        cables[a].add(b)
        cables[b].add(a)
    # Boards in PCIe order; on a board the remote chip, the one without the connector, counts first.
    order = {
        device: (board, -place)
        for board, chips in enumerate(machine.boards)
        for place, device in enumerate(chips)
    }
    size = shape[0] * shape[1]
    if size < machine.num_devices:
        seat = (
            _line_seat(cables, order, shape, joins)
            if 1 in shape
            else _grid_seat(machine, cables, shape)
        )
        if seat is None:
            return None
        cables = {device: cables[device] & seat for device in seat}
    try:
        return _embedding(cables, shape, joins, lambda device: (len(cables[device]), order[device]))
    except TimeoutError:
        return _snake(machine, shape, joins) if size == machine.num_devices else None


def _line_seat(
    cables: Graph, order: dict[int, Place], shape: Place, joins: list[tuple[Place, Place]]
) -> set[int] | None:
    """Chips for a line that is shorter than the machine."""
    try:
        found = _embedding(
            cables, shape, joins, lambda d: (-len(cables[d]), (-order[d][0], -order[d][1]))
        )
    except TimeoutError:
        return None
    return set(found.values()) if found else None


def _grid_seat(machine: System, cables: Graph, shape: Place) -> set[int] | None:
    """Chips for a grid that is smaller than the machine: the rectangle with the most cables at
    its chips, the last of several.
    """
    best: tuple[int, set[int]] | None = None
    for rows, columns in (shape, shape[::-1]):
        for r, c in itertools.product(
            range(machine.shape[0] - rows + 1), range(machine.shape[1] - columns + 1)
        ):
            chips = {device for row in machine.ids[r : r + rows] for device in row[c : c + columns]}
            weight = sum(len(cables[device]) for device in chips)
            if best is None or weight >= best[0]:
                best = weight, chips
    return best and best[1]


def _embedding(
    cables: Graph,
    shape: Place,
    joins: list[tuple[Place, Place]],
    rank: Callable[[int], tuple[int, Place]],
) -> dict[Place, int] | None:
    """Depth first in row-major order, the best-ranked chip first; TimeoutError after `STEPS`."""
    places = [(r, c) for r in range(shape[0]) for c in range(shape[1])]
    beside: dict[Place, set[Place]] = {place: set() for place in places}
    for a, b in joins:
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
            used.remove(found.pop(places[len(trail) - 1]))
            continue
        found[places[len(trail) - 1]] = device
        used.add(device)
        if len(trail) == len(places):
            return found
        trail.append(choices(places[len(trail)]))
    raise TimeoutError


def _snake(
    machine: System, shape: Place, joins: list[tuple[Place, Place]]
) -> dict[Place, int] | None:
    """All chips of a grid as one line, back and forth; as one ring where the ends have to meet."""
    line = winding(machine.ids, ring=len(joins) == machine.num_devices) if 1 in shape else None
    return (
        None
        if line is None
        else {(i, 0) if shape[1] == 1 else (0, i): device for i, device in enumerate(line)}
    )


def the_mesh(descriptor: MeshGraphDescriptor, asked: str) -> MeshInstance:
    """The one mesh of a descriptor that one process can open alone."""
    if len(descriptor.meshes) == 1:
        return descriptor.meshes[0]
    rule = (
        "Multi-mesh-per-host systems are not supported by this algorithm, "
        "please use custom fabric topology via MetalContext::set_custom_fabric_topology"
    )
    fail(
        asked,
        f"{rule}: the descriptor has {len(descriptor.meshes)} meshes",
        "one process a mesh: TT_MESH_ID names its mesh, rank_bindings.yaml sets it",
    )


def system_of(descriptor: MeshGraphDescriptor) -> System:
    """A machine made to the measure of a descriptor of one mesh: one of `SYSTEMS` where it fits
    exactly, else chips numbered row by row.

    Raises:
        TTKitError: several meshes, or more chips than one process should simulate.
    """
    asked = f"use_system({descriptor!r})"
    mesh = the_mesh(descriptor, asked)
    if mesh.num_devices > LARGEST:
        fail(
            asked,
            f"the mesh has {mesh.num_devices} chips; a machine here may have {LARGEST}",
            "a smaller device_topology",
        )
    wraps = (mesh.dim_types[0] == "RING", mesh.dim_types[1] == "RING")
    for system in SYSTEMS.values():
        if (system.shape, system.chip.arch, system.wraps, system.links_per_pair) == (
            mesh.device_dims,
            mesh.arch,
            wraps,
            mesh.channels,
        ):
            return system
    kinds = {
        "WORMHOLE_B0": WORMHOLE_N150
        if mesh.num_devices == 1
        else WORMHOLE_GALAXY
        if mesh.num_devices >= 32
        else WORMHOLE
    }
    rows, columns = mesh.device_dims
    ids = tuple(tuple(range(r * columns, (r + 1) * columns)) for r in range(rows))
    return System(descriptor.name, kinds.get(mesh.arch, BLACKHOLE), ids, mesh.channels, wraps)


def chips_of(mesh: MeshInstance) -> dict[Place, tuple[int, int]]:
    """Host rank and device id on that host of the chip at each (row, column), as far as can be
    known without the machines.

    A host's part sits on the machine of `SYSTEMS` that has as many chips of that architecture; on
    none, its chips are numbered row by row.

    Example:
        >>> chips_of(MeshInstance(0, "M0", "WORMHOLE_B0", (4, 4), ("LINE", "LINE"), (2, 1), 2, "STRICT"))[2, 1]
        (1, 0)
    """
    types = tuple(
        kind if hosts == 1 else "LINE" for kind, hosts in zip(mesh.dim_types, mesh.host_dims)
    )
    part = replace(
        mesh, device_dims=mesh.host_shape, dim_types=(types[0], types[1]), host_dims=(1, 1)
    )
    rows, columns = mesh.host_shape
    ids = tuple(tuple(range(r * columns, (r + 1) * columns)) for r in range(rows))
    for system in SYSTEMS.values():
        if (system.chip.arch, system.num_devices) == (mesh.arch, part.num_devices):
            try:
                ids = placed(system, part).ids
                break
            except TTKitError:
                continue
    places = itertools.product(range(mesh.device_dims[0]), range(mesh.device_dims[1]))
    return {(r, c): (mesh.host_of((r, c)), ids[r % rows][c % columns]) for r, c in places}

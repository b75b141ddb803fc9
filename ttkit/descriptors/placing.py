"""Place a descriptor's mesh on a machine: find chips that are cabled as the mesh requires."""

import itertools
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cache

from ttkit.descriptors.descriptor import MeshGraphDescriptor, MeshInstance
from ttkit.descriptors.reading import FILE_KIND, ONLY_TEXTPROTO, fail_with_findings, load_text
from ttkit.errors import TTKitError, fail
from ttkit.files import read_text
from ttkit.hardware.systems import SYSTEMS, Ids, RowColumn, System, grid_ids, grid_links

Chips = dict[RowColumn, int]  # This is the chip at each place.
VARIABLE = "TT_MESH_GRAPH_DESC_PATH"
MAX_SEARCH_STEPS = 20_000  # The search gives up after this many steps.


@cache
def placed(machine: System, mesh: MeshInstance) -> System:
    """Return the machine as it looks to a process that opens it through a descriptor's mesh.

    The result has the mesh's shape and rings, chips that fit it, and at most its number of links.
    The real library puts a mesh that is smaller than the machine where most cables are, and starts
    one of full size at a corner. This function does the same.

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
    ids = _chips(machine, mesh)
    if ids is None:
        rule = (
            f"Internal error: SAT placement: mesh '{mesh.name}' (mesh {mesh.mesh_id}) has no "
            "grouping in the provided valid-groupings map"
        )
        cure = (
            f"device_topology dims that fit into {machine.shape[0]}x{machine.shape[1]}, "
            "or TTKIT_SYSTEM for a larger machine"
        )
        if any(mesh.rings):
            cure = "dim_types LINE where the machine has no cable that closes the ring"
        fail(asked, rule, cure)
    links = machine.links_per_pair
    if mesh.num_devices > 1:
        if mesh.policy == "STRICT" and mesh.channels > links:
            n = mesh.num_devices
            fail(
                asked,
                "Graph specified in MGD could not fit in the discovered physical topology. "
                f"intra-mesh mapping failed: logical mesh {mesh.mesh_id} ({n} node(s))"
                f" -> physical mesh {mesh.mesh_id} ({n} asic(s)): TopologyMappingEnumerationSession"
                ": no new mapping found (all solutions exhausted or excluded)"
                f" [DFS required=0 preferred=0/0 n_target={n} n_global={n}] (seated as grouping "
                f"'{mesh.name}' type 'MESH' with {n} asic(s)). Either relax"
                " pinnings or modify the MGD. If this is unexpected, "
                "run ./build/test/tt_metal/tt_fabric/test_system_health to check connectivity.",
                f"channels {{ count: {links} }}: that many links join two chips of this machine",
            )
        links = min(mesh.channels, links)
    return replace(machine, ids=ids, wraps=mesh.rings, links_per_pair=links)


def _chips(machine: System, mesh: MeshInstance) -> Ids | None:
    """Return chips that are cabled as the mesh requires; None if there are none."""
    cables = machine.neighbours
    # Cards come in PCIe order; within a card the chip with the connector comes last.
    chips: Collection[int] = [chip for card in machine.cards for chip in reversed(card)]
    order = {chip: number for number, chip in enumerate(chips)}
    if mesh.num_devices < machine.num_devices:
        # Among chips with the same number of cables, the real library takes the last one for a
        # line, and the first one for other meshes.
        sign = -1 if 1 in mesh.device_dims else 1
        chips = _search(mesh, cables, lambda c: (-len(cables[c]), sign * order[c])).values()
    inside = {chip: cables[chip] & set(chips) for chip in chips}
    found = _search(mesh, inside, lambda c: (len(inside[c]), order[c]))
    if not found:
        return None
    rows, columns = mesh.device_dims
    return tuple(tuple(found[r, c] for c in range(columns)) for r in range(rows))


def _search(
    mesh: MeshInstance, cables: dict[int, set[int]], order: Callable[[int], tuple[int, int]]
) -> Chips:
    """Return {place: chip} of the first solution of a depth-first search; {} if none is found.

    At each place the search tries the chips in the order of the key `order`. A place is filled
    after the places above it and to its left. Its chip must be cabled to the chips at all
    neighbouring places that are filled.
    """
    rows, columns = map(range, mesh.device_dims)
    places = sorted(itertools.product(rows, columns), key=sum)
    cabled = {*grid_links(mesh.device_dims, mesh.rings)}
    cabled |= {(b, a) for a, b in cabled}
    steps = iter(range(MAX_SEARCH_STEPS))

    def fill(found: Chips) -> Iterator[Chips]:
        """Yield the ways to fill the places that are left."""
        if len(found) == len(places):
            yield found
            return
        place = places[len(found)]
        near = [cables[chip] for other, chip in found.items() if (other, place) in cabled]
        free = set(cables).intersection(*near) - set(found.values())
        for _, chip in zip(steps, sorted(free, key=order)):
            yield from fill({**found, place: chip})

    return next(fill({}), {})


def chips_of(mesh: MeshInstance) -> dict[RowColumn, tuple[int, int]]:
    """Return for each (row, column) the host rank of its chip, and the device id on that host.

    The ids are those of a machine of `SYSTEMS`: the first one on which a host's part of the mesh
    fits and which has exactly as many chips, of the same architecture. If there is no such machine,
    the chips of a host are numbered row by row.

    Example:
        >>> lines = ("LINE", "LINE")
        >>> mesh = MeshInstance(0, "M0", "WORMHOLE_B0", (4, 4), lines, (2, 1), 2, "STRICT")
        >>> chips_of(mesh)[2, 1]
        (1, 0)
    """
    part = mesh
    rows, columns = mesh.host_shape
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
    places = itertools.product(*map(range, mesh.device_dims))
    return {(r, c): (mesh.host_of((r, c)), ids[r % rows][c % columns]) for r, c in places}


# ---------------------------------------------------------------- the descriptor in use
def read_in_use(path: str) -> MeshGraphDescriptor:
    """Return the descriptor of a process whose TT_MESH_GRAPH_DESC_PATH is `path`.

    Raises:
        TTKitError: the file is missing, or the real library refuses it.
    """
    asked = f"{VARIABLE}={path!r}"
    if not os.path.isfile(path):
        home = (
            ""
            if os.environ.get("TT_METAL_HOME")
            else "; TT_METAL_HOME is not set: does the path begin with it?"
        )
        fail(
            asked,
            f"{FILE_KIND} not found: {path}",
            f"an existing file{home}; for 8 or 32 devices ttkit.cluster.descriptor_path(n) is one",
        )
    text = read_text(path, FILE_KIND)
    if not path.endswith(".textproto"):
        fail(asked, ONLY_TEXTPROTO, "ttkit convert old.yaml > mgd.textproto")
    loaded = _loaded(text, path)
    return loaded.descriptor or fail_with_findings(asked, loaded)


# Each opening of a mesh needs the descriptor, so the cache keeps what was parsed before.
_loaded = cache(load_text)


def seen_through(descriptor: MeshGraphDescriptor, machine: System) -> System:
    """Return the machine as it looks to a single process that uses a descriptor.

    Raises:
        TTKitError: there are several meshes or hosts, or the mesh does not fit on the machine.
    """
    asked = f"{VARIABLE}={os.environ.get(VARIABLE)!r}"
    if len(descriptor.meshes) > 1:
        fail(
            asked,
            "Multi-mesh-per-host systems are not supported by this algorithm, "
            "please use custom fabric topology via MetalContext::set_custom_fabric_topology"
            f": the descriptor has {len(descriptor.meshes)} meshes",
            "one process per mesh: TT_MESH_ID names its mesh, rank_bindings.yaml sets it",
        )
    mesh = descriptor.meshes[0]
    if mesh.num_hosts > 1:
        fail(
            asked,
            f"Mesh {mesh.mesh_id} has {mesh.num_hosts} host ranks, expected 1",
            "one process per host rank (TT_MESH_HOST_RANK)",
        )
    return placed(machine, mesh)

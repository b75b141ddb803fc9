"""What ttnn 0.81.1 demands of a mesh graph descriptor: its rules in its order, with its
messages; and what it should have demanded.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ttkit.errors import nearest

REPORT = (
    "Failed to validate MeshGraphDescriptor textproto: \n=== MeshGraphDescriptor Validation "
    "Report ===\n\nErrors:"
)
OLD = "MGD 1.0 Compatibility requirement: "
MOST_PAIRS = 20_000  # that a graph topology may expand to; 200 meshes ALL_TO_ALL
WORMHOLE, KNOWN_ARCHS = 1, (1, 2, 3)
Where = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """A rule that is broken: the real library's message, the path of the field, the cure."""

    message: str
    where: Where
    cure: str
    severity: str = "error"


def check(descriptor: Any) -> tuple[bool, list[Problem]]:
    """What is wrong with a message, and whether the real library prints it as a report; warnings
    only where nothing is wrong.

    The library checks in stages and reports all problems of the first stage that has any; instances
    abort at the first."""
    stages: tuple[tuple[Callable[[Any], Iterator[Problem]], ...], ...] = (
        (_basics,),
        (_names, _channels, _architectures),
        (_topologies, _express, _graphs, _pinnings),
        (_two_dimensions, _one_graph),
    )
    for stage in stages:
        problems = [problem for rule in stage for problem in rule(descriptor)]
        if problems:
            return True, problems
    broken = next(itertools.chain(_instances(descriptor), _crashes(descriptor)), None)
    return False, [broken] if broken else list(_warnings(descriptor))


def _basics(descriptor: Any) -> Iterator[Problem]:
    if not descriptor.mesh_descriptors and not descriptor.switch_descriptors:
        yield Problem(
            "There must be at least one mesh descriptor or switch descriptor",
            (),
            'add mesh_descriptors { name: "M0" ... }',
        )
    if not descriptor.HasField("top_level_instance"):
        yield Problem(
            "Top level instance is required",
            (),
            'add top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }',
        )


def _names(descriptor: Any) -> Iterator[Problem]:
    for kind, letter in (("Mesh", "M"), ("Switch", "S"), ("Graph", "G")):
        seen = set()
        field = f"{kind.lower()}_descriptors"
        for i, part in enumerate(getattr(descriptor, field)):
            if not part.name:
                yield Problem(
                    f"{kind} descriptor {i + 1} has no name", (field, i), f'name: "{letter}{i}"'
                )
            elif part.name in seen:
                yield Problem(
                    f"{kind} descriptor name is not unique ({kind}: {part.name})",
                    (field, i, "name"),
                    f'another name, for example "{letter}{i}"',
                )
            seen.add(part.name)


def _boxes(descriptor: Any) -> Iterator[tuple[str, Where, Any]]:
    """Mesh and switch descriptors: how messages name them, where they are."""
    for kind, field in (("Mesh", "mesh_descriptors"), ("Switch", "switch_descriptors")):
        for i, part in enumerate(getattr(descriptor, field)):
            yield f"({kind}: {part.name})", (field, i), part


def _channels(descriptor: Any) -> Iterator[Problem]:
    for called, at, part in _boxes(descriptor):
        if part.channels.count <= 0:
            yield Problem(
                f"Channel count must be positive {called}",
                (*at, "channels", "count"),
                "channels { count: 2 policy: RELAXED }, the links between two chips",
            )
    for i, graph in enumerate(descriptor.graph_descriptors):
        called, at = f"(Graph: {graph.name})", ("graph_descriptors", i)
        if graph.HasField("graph_topology") and graph.graph_topology.channels.count <= 0:
            yield Problem(
                f"Graph topology channel count must be positive {called}",
                (*at, "graph_topology"),
                "channels { count: 2 } in graph_topology",
            )
        for k, connection in enumerate(graph.connections):
            if connection.channels.count <= 0:
                cure = "channels { count: 2 policy: RELAXED }"
                yield Problem(
                    f"Connection channel count must be positive {called}",
                    (*at, "connections", k, "channels"),
                    cure,
                )


def _architectures(descriptor: Any) -> Iterator[Problem]:
    archs = [part.arch for part in descriptor.mesh_descriptors]
    if len(set(archs)) > 1:
        odd = next(i for i, arch in enumerate(archs) if arch != archs[0])
        yield Problem(
            "All mesh descriptors must have the same architecture",
            ("mesh_descriptors", odd, "arch"),
            "one architecture for all meshes",
        )
        return
    for i, part in enumerate(descriptor.switch_descriptors):
        if archs and part.arch != archs[0]:
            message = "All switch descriptors must have the same architecture as meshes"
            yield Problem(
                message,
                ("switch_descriptors", i, "arch"),
                "one architecture for meshes and switches",
            )
            return
    for called, at, part in _boxes(descriptor):
        dims = part.device_topology.dims
        most = 2 if part.arch == WORMHOLE else 3
        if part.arch == 0:
            kind = "Mesh" if at[0] == "mesh_descriptors" else "Switch"
            yield Problem(
                f"{kind} descriptor must have a valid architecture {called}",
                (*at, "arch"),
                "arch: WORMHOLE_B0, or BLACKHOLE",
            )
        elif part.arch not in KNOWN_ARCHS:
            yield Problem(
                f"Invalid architecture {called}", (*at, "arch"), "arch: WORMHOLE_B0, or BLACKHOLE"
            )
        elif len(dims) > most:
            message = (
                f"Architecture devices allow a maximum of {most} dimensions, "
                f"but {len(dims)} were provided {called}"
            )
            yield Problem(
                message, (*at, "device_topology", "dims"), "rows and columns: dims: [ 2, 4 ]"
            )


def _topologies(descriptor: Any) -> Iterator[Problem]:
    for called, at, part in _boxes(descriptor):
        dims, types = part.device_topology.dims, part.device_topology.dim_types
        for n in dims:
            if n <= 0:
                yield Problem(
                    f"Device topology dimensions must be positive {called}",
                    (*at, "device_topology", "dims"),
                    f"a number from 1, not {n}",
                )
        if len(types) > len(dims):
            message = f"Device topology dimensions and types must be the same size {called}"
            yield Problem(
                message,
                (*at, "device_topology", "dim_types"),
                f"{len(dims)} of LINE and RING, one a dimension, not {len(types)}",
            )
            continue
        if at[0] == "switch_descriptors":
            continue
        hosts = part.host_topology.dims
        if len(hosts) != len(dims):
            message = f"Device and host topology dimensions must be the same size {called}"
            ones = ", ".join("1" * min(len(dims), 8))
            yield Problem(
                message,
                (*at, "host_topology"),
                f"host_topology {{ dims: [ {ones} ] }} for one host",
            )
            continue
        for n, h in zip(dims, hosts):
            if h > 0 and n % h:
                message = (
                    "Device topology dimensions must be divisible by host topology "
                    f"dimensions {called}"
                )
                yield Problem(
                    message,
                    (*at, "host_topology", "dims"),
                    f"a number of hosts that divides {n}, not {h}",
                )


def _express(descriptor: Any) -> Iterator[Problem]:
    for called, at, part in _boxes(descriptor):
        size = _size(part)
        for i, link in enumerate(part.express_connections):
            for end, device in (("source", link.src), ("destination", link.dst)):
                if not 0 <= device < size:
                    message = f"Express connection {end} is out of bounds {called}"
                    yield Problem(
                        message,
                        (*at, "express_connections", i),
                        "remove it: 0.81.1 supports no express connections",
                    )


def _size(part: Any) -> int:
    size = 1
    for n in part.device_topology.dims:
        size *= n
    return size


def _graphs(descriptor: Any) -> Iterator[Problem]:
    for i, graph in enumerate(descriptor.graph_descriptors):
        called, at = f"(Graph: {graph.name})", ("graph_descriptors", i)
        if not graph.instances:
            cure = 'instances { mesh { mesh_descriptor: "M0" mesh_id: 0 } }'
            yield Problem(f"Graph descriptor must have at least one instance {called}", at, cure)
        if not graph.type:
            yield Problem(
                f"Graph descriptor must have a type specified {called}", at, 'type: "FABRIC"'
            )
        if graph.type in ("MESH", "DEVICE", "SWITCH"):
            yield Problem(
                f"Graph descriptor type cannot be DEVICE, MESH, or SWITCH {called}",
                (*at, "type"),
                'type: "FABRIC"',
            )
        for k, connection in enumerate(graph.connections):
            if len(connection.nodes) < 2:
                cure = "two nodes { mesh { ... } }, one for each end"
                yield Problem(
                    f"Connection must have at least two nodes {called}",
                    (*at, "connections", k),
                    cure,
                )


def _pinnings(descriptor: Any) -> Iterator[Problem]:
    for i, pinning in enumerate(descriptor.pinnings):
        for field in ("logical_fabric_node_id", "physical_asic_position"):
            if not getattr(pinning, field):
                yield Problem(
                    f"Pinning entry has no {field}",
                    ("pinnings", i),
                    f"{field} {{ ... }}, or remove the pinning",
                )


def _two_dimensions(descriptor: Any) -> Iterator[Problem]:
    """What the newer form allows for a mesh and the library behind it does not yet."""
    meshes = [
        (called, at, part) for called, at, part in _boxes(descriptor) if at[0] == "mesh_descriptors"
    ]
    flat = f"{OLD}There can only be 2 dimensions in the device topology"
    for called, at, part in meshes:
        if len(part.device_topology.dims) != 2:
            yield Problem(
                f"{flat} {called}", (*at, "device_topology", "dims"), f"dims: [ 1, {_size(part)} ]"
            )
    for called, at, part in meshes:
        if part.express_connections:
            yield Problem(
                f"{OLD}Express connections are not supported {called}",
                (*at, "express_connections", 0),
                "remove them",
            )
    for called, at, part in meshes:
        if len(part.device_topology.dims) != 2:
            yield Problem(
                f"{flat} and host topology {called}",
                (*at, "host_topology", "dims"),
                "host_topology { dims: [ 1, 1 ] } for one host",
            )


def _one_graph(descriptor: Any) -> Iterator[Problem]:
    """What the newer form allows for graphs and the library behind it does not yet."""
    graphs = descriptor.graph_descriptors
    if len(graphs) > 1:
        cure = "one graph with all meshes as its instances"
        yield Problem(
            f"{OLD}There can only be one FABRIC level graph or less", ("graph_descriptors", 1), cure
        )
    for i, graph in enumerate(graphs):
        called, at = f"(Graph: {graph.name})", ("graph_descriptors", i)
        if graph.type != "FABRIC":
            yield Problem(
                f"{OLD}There can only be one FABRIC level graph {called}",
                (*at, "type"),
                'type: "FABRIC", with all meshes as its instances',
            )
        for k, connection in enumerate(graph.connections):
            if len(connection.nodes) != 2:
                message = f"{OLD}Connections must have exactly 2 nodes {called}"
                yield Problem(
                    message, (*at, "connections", k), "one connection for each pair of meshes"
                )
        policies = [connection.channels.policy == 2 for connection in graph.connections]
        if len(set(policies)) > 1:
            message = (
                f"{OLD}Cannot mix STRICT and RELAXED policies in the same graph. "
                f"All connections in a graph must use the same policy {called}"
            )
            k = policies.index(not policies[0])
            yield Problem(
                message,
                (*at, "connections", k, "channels"),
                "the same policy in each connection; one without is STRICT",
            )


def _instances(descriptor: Any) -> Iterator[Problem]:
    """Names and ids that lead nowhere.

    Only the first is reported: later ones may follow from it.
    """
    meshes = {part.name: part for part in descriptor.mesh_descriptors}
    top, at = descriptor.top_level_instance, ("top_level_instance",)
    kind = top.WhichOneof("node")
    if kind is None:
        yield Problem(
            "Invalid NodeRef: neither mesh, switch, nor graph set",
            at,
            'mesh { mesh_descriptor: "M0" mesh_id: 0 }',
        )
        return
    if kind == "switch":
        yield Problem(
            "the top level is a switch: no mesh can be opened on it",
            at,
            "a mesh, or a graph of meshes",
        )
        return
    if kind == "mesh":
        yield from _unknown(
            "Mesh", top.mesh.mesh_descriptor, meshes, (*at, "mesh", "mesh_descriptor")
        )
        return
    yield from _unknown(
        "Graph",
        top.graph.graph_descriptor,
        [g.name for g in descriptor.graph_descriptors],
        (*at, "graph", "graph_descriptor"),
    )
    i, graph = next(
        (i, g)
        for i, g in enumerate(descriptor.graph_descriptors)
        if g.name == top.graph.graph_descriptor
    )
    here: Where = ("graph_descriptors", i)
    ids: dict[int, str] = {}
    for k, node in enumerate(graph.instances):
        where = (*here, "instances", k)
        if not node.HasField("mesh"):
            yield from _not_a_mesh(node, where)
            continue
        yield from _unknown(
            "Mesh", node.mesh.mesh_descriptor, meshes, (*where, "mesh", "mesh_descriptor")
        )
        if node.mesh.mesh_id in ids:
            message = f"Graph instance id {node.mesh.mesh_id} already exists in this graph"
            yield Problem(
                message,
                (*where, "mesh", "mesh_id"),
                f"a mesh_id of its own, for example {max(ids) + 1}",
            )
        ids[node.mesh.mesh_id] = node.mesh.mesh_descriptor
    if graph.HasField("graph_topology"):
        if graph.graph_topology.layout_type == 0:
            message = (
                "Invalid graph topology type: GraphTopology_Type::GraphTopology_Type_INVALID_TYPE"
            )
            yield Problem(message, (*here, "graph_topology"), "layout_type: ALL_TO_ALL or RING")
        if len(ids) * (len(ids) - 1) // 2 > MOST_PAIRS and graph.graph_topology.layout_type == 1:
            yield Problem(
                f"{len(ids)} meshes ALL_TO_ALL are more than {MOST_PAIRS} connections",
                (*here, "graph_topology"),
                "fewer meshes, or RING",
            )
    for k, connection in enumerate(graph.connections):
        for n, node in enumerate(connection.nodes):
            yield from _end(node, (*here, "connections", k, "nodes", n), ids, meshes)


def _end(node: Any, where: Where, ids: dict[int, str], meshes: dict[str, Any]) -> Iterator[Problem]:
    """What is wrong with one end of a connection."""
    if node.HasField("graph") and ids:
        message = (
            f"Graph descriptor {node.graph.graph_descriptor} does not match referenced "
            f"instance {ids[min(ids)]}"
        )
        yield Problem(
            message, where, f'mesh {{ mesh_descriptor: "{ids[min(ids)]}" mesh_id: {min(ids)} }}'
        )
    if not node.HasField("mesh"):
        yield from _not_a_mesh(node, where)
        return
    mesh = node.mesh
    if mesh.mesh_id not in ids:
        yield Problem(
            f"Mesh instance id {mesh.mesh_id} not found in parent instance",
            (*where, "mesh", "mesh_id"),
            f"one of {sorted(ids)[:20]}",
        )
        return
    if mesh.mesh_descriptor != ids[mesh.mesh_id]:
        message = (
            f"Mesh descriptor {mesh.mesh_descriptor} does not match referenced instance "
            f"{ids[mesh.mesh_id]}"
        )
        yield Problem(
            message,
            (*where, "mesh", "mesh_descriptor"),
            f'mesh_descriptor: "{ids[mesh.mesh_id]}", as in the instance',
        )
    size = _size(meshes[ids[mesh.mesh_id]])
    if mesh.HasField("device_id") and not 0 <= mesh.device_id < size:
        yield Problem(
            f"Device id {mesh.device_id} not found in mesh instance",
            (*where, "mesh", "device_id"),
            f"0 to {size - 1}, row by row; or leave it out",
        )


def _unknown(kind: str, name: str, known: Iterable[str], where: Where) -> Iterator[Problem]:
    known = list(known)
    if name not in known:
        near = nearest(name, known)
        yield Problem(
            f"{kind} descriptor {name} not found in instance",
            where,
            f"""write {" or ".join(f'"{k}"' for k in ([near] if near else known))[:200]}""",
        )


def _not_a_mesh(node: Any, where: Where) -> Iterator[Problem]:
    if node.WhichOneof("node") is None:
        yield Problem(
            "Invalid NodeRef: neither mesh, switch, nor graph set",
            where,
            'mesh { mesh_descriptor: "M0" mesh_id: 0 }',
        )
    else:
        yield Problem(
            "a graph of graphs or of switches cannot be opened",
            where,
            "meshes only, in one graph of type FABRIC",
        )


def _crashes(descriptor: Any) -> Iterator[Problem]:
    """What the library passes here and then stops at, by an error of a later stage or by a
    crash.
    """
    for called, at, part in _boxes(descriptor):
        if at[0] != "mesh_descriptors":
            continue
        (rows, columns), hosts = part.device_topology.dims, list(part.host_topology.dims)
        if 0 in hosts:
            yield Problem(
                f"Host topology dimensions must be positive {called}",
                (*at, "host_topology", "dims"),
                "numbers from 1; 0.81.1 crashes on it",
            )
        elif min(hosts) < 0:
            seen = "x".join(str(h % 2**32) for h in hosts)
            message = (
                f"MeshGraph: Mesh shape {rows}x{columns} must be divisible by host shape {seen}"
            )
            yield Problem(message, (*at, "host_topology", "dims"), "numbers from 1")
        if part.arch == WORMHOLE and rows % 2 and columns % 2 and rows * columns > 1:
            message = (
                "MeshGraph: For WORMHOLE_B0 architecture, if both mesh dimensions are odd, "
                f"they must both be 1, got {rows}x{columns}"
            )
            yield Problem(
                message,
                (*at, "device_topology", "dims"),
                "an even number of rows or columns: Wormhole chips come in pairs",
            )
    ids = _mesh_ids(descriptor)
    if sorted(ids) != list(range(len(ids))):
        where = next(at for mesh_id, at in ids.items() if not 0 <= mesh_id < len(ids))
        yield Problem(
            f"mesh ids must be 0 to {len(ids) - 1}, not {sorted(ids)[:20]}",
            where,
            f"mesh_id: {min(set(range(len(ids))) - set(ids))}; 0.81.1 crashes on it",
        )


def _mesh_ids(descriptor: Any) -> dict[int, Where]:
    """Where each mesh id is given."""
    top = descriptor.top_level_instance
    if top.HasField("mesh"):
        return {top.mesh.mesh_id: ("top_level_instance", "mesh", "mesh_id")}
    i, graph = next(
        (i, g)
        for i, g in enumerate(descriptor.graph_descriptors)
        if g.name == top.graph.graph_descriptor
    )
    return {
        node.mesh.mesh_id: ("graph_descriptors", i, "instances", k, "mesh", "mesh_id")
        for k, node in enumerate(graph.instances)
    }


def topology_pairs(graph: Any) -> Iterator[tuple[int, int]]:
    """The pairs of mesh ids that a graph topology joins."""
    ids = [node.mesh.mesh_id for node in graph.instances if node.HasField("mesh")]
    if not graph.HasField("graph_topology"):
        return
    if graph.graph_topology.layout_type == 1:
        yield from itertools.combinations(ids, 2)
    elif len(ids) == 2:
        yield ids[0], ids[1]
    elif len(ids) > 2:
        yield from zip(ids, [*ids[1:], ids[0]])


def _warnings(descriptor: Any) -> Iterator[Problem]:
    """What the library passes over, and somebody will wonder about."""
    used = {descriptor.top_level_instance.mesh.mesh_descriptor}
    for i, graph in enumerate(descriptor.graph_descriptors):
        used |= {node.mesh.mesh_descriptor for node in graph.instances}
        at: Where = ("graph_descriptors", i)
        if len(graph.instances) > 1:
            joined = Counter(m for pair in topology_pairs(graph) for m in pair)
            joined.update(
                node.mesh.mesh_id for connection in graph.connections for node in connection.nodes
            )
            alone = sorted({node.mesh.mesh_id for node in graph.instances} - set(joined))
            if alone:
                which = (
                    "no links: its meshes"
                    if len(alone) == len(graph.instances)
                    else f"no link to mesh {', '.join(map(str, alone[:20]))}, which"
                )
                message = (
                    f"graph {graph.name} has {which} cannot send to one another"
                    if "its" in which
                    else f"graph {graph.name} has {which} can send to nobody"
                )
                yield Problem(
                    message,
                    at,
                    "connections { nodes ... nodes ... channels { count: 2 } }, "
                    "unless they are meant to work apart",
                    "warning",
                )
        for k, connection in enumerate(graph.connections):
            if len({node.mesh.mesh_id for node in connection.nodes}) == 1:
                yield Problem(
                    "a connection of a mesh with itself",
                    (*at, "connections", k),
                    "two different meshes",
                    "warning",
                )
            if connection.directional:
                message = (
                    "a directional connection binds no links in 0.81.1: "
                    "only the end that is written first knows of it"
                )
                yield Problem(message, (*at, "connections", k), "directional: false", "warning")
    for i, part in enumerate(descriptor.mesh_descriptors):
        at = ("mesh_descriptors", i)
        if part.name not in used:
            yield Problem(
                f"mesh descriptor {part.name} is not used by any instance",
                at,
                "remove it, or add an instance of it",
                "warning",
            )
        if part.express_links:
            yield Problem(
                "express links: the simulator does not follow them",
                (*at, "express_links", 0),
                "remove them",
                "warning",
            )
        types = part.device_topology.dim_types
        if 0 in types or (0 < len(types) < len(part.device_topology.dims)):
            yield Problem(
                "dim_types that are missing or invalid are taken as LINE",
                (*at, "device_topology", "dim_types"),
                "one LINE or RING a dimension",
                "warning",
            )
    if descriptor.switch_descriptors:
        yield Problem(
            "switches: the simulator has none", ("switch_descriptors", 0), "meshes only", "warning"
        )

"""The rules of ttnn 0.81.1 for a mesh graph descriptor: in its order, with its messages.

A rule is a tuple: whether it is broken, the message, the path of the field, what to try. The
library checks in stages and reports all broken rules of the first stage that has any.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from typing import Any

from ttkit.errors import nearest

Rule = tuple[object, str, str, str]

REPORT = (
    "Failed to validate MeshGraphDescriptor textproto: \n=== MeshGraphDescriptor Validation "
    "Report ===\n\nErrors:"
)
OLD = "MGD 1.0 Compatibility requirement: "
MOST_PAIRS = 20_000  # that a graph topology may expand to; 200 meshes ALL_TO_ALL
ARCHITECTURES = ("", "WORMHOLE_B0", "BLACKHOLE", "QUASAR")  # the schema's values, as below
WORMHOLE, ALL_TO_ALL = 1, 1
A_MESH = 'mesh { mesh_descriptor: "M0" mesh_id: 0 }'
CHANNELS = "channels { count: 2 policy: RELAXED }"


def check(descriptor: Any) -> tuple[bool, list[Rule]]:
    """Return the broken rules of a message, and whether the real library prints them as a report.

    The library stops at the first wrong reference, and at the first thing that makes it crash.
    """
    stages = (
        (_whole,),
        (_names, _channels, _architectures),
        (_topologies, _express_connections, _graphs, _pinnings),
        (_two_dimensions, _one_graph),
    )
    for stage in stages:
        broken = [rule for rules in stage for rule in rules(descriptor) if rule[0]]
        if broken:
            return True, broken
    rules = itertools.chain(_references(descriptor), _crashes(descriptor))
    first = next((rule for rule in rules if rule[0]), None)  # later ones may follow from it
    return False, [first] if first else []


def _parts(descriptor: Any, *kinds: str) -> Iterator[tuple[str, str, Any]]:
    """Descriptors of these kinds: how messages name them, their path, themselves."""
    for kind in kinds:
        field = f"{kind.lower()}_descriptors"
        for i, part in enumerate(getattr(descriptor, field)):
            yield f"({kind}: {part.name})", f"{field} {i}", part


def _connections(descriptor: Any) -> Iterator[tuple[str, str, Any]]:
    """The same of the connections of all graphs, which messages name by their graph."""
    for called, at, graph in _parts(descriptor, "Graph"):
        for k, connection in enumerate(graph.connections):
            yield called, f"{at} connections {k}", connection


# ---------------------------------------------------------------- stage 1
def _whole(descriptor: Any) -> Iterator[Rule]:
    none = not descriptor.mesh_descriptors and not descriptor.switch_descriptors
    message = "There must be at least one mesh descriptor or switch descriptor"
    yield none, message, "", 'add mesh_descriptors { name: "M0" ... }'
    none, cure = not descriptor.HasField("top_level_instance"), f"top_level_instance {{ {A_MESH} }}"
    yield none, "Top level instance is required", "", f"add {cure}"


# ---------------------------------------------------------------- stage 2
def _names(descriptor: Any) -> Iterator[Rule]:
    for kind in ("Mesh", "Switch", "Graph"):
        seen = [""]
        for i, (called, at, part) in enumerate(_parts(descriptor, kind)):
            cure = f'a name of its own: name: "{kind[0]}{i}"'
            yield not part.name, f"{kind} descriptor {i + 1} has no name", at, cure
            message = f"{kind} descriptor name is not unique {called}"
            yield part.name and part.name in seen, message, f"{at} name", cure
            seen.append(part.name)


def _channels(descriptor: Any) -> Iterator[Rule]:
    for called, at, part in _parts(descriptor, "Mesh", "Switch"):
        message = f"Channel count must be positive {called}"
        cure = f"{CHANNELS}, the links between two chips"
        yield part.channels.count <= 0, message, f"{at} channels count", cure
    for called, at, graph in _parts(descriptor, "Graph"):
        if graph.HasField("graph_topology"):
            message = f"Graph topology channel count must be positive {called}"
            count = graph.graph_topology.channels.count
            yield count <= 0, message, f"{at} graph_topology", f"{CHANNELS} in graph_topology"
    for called, at, connection in _connections(descriptor):
        message = f"Connection channel count must be positive {called}"
        yield connection.channels.count <= 0, message, f"{at} channels", CHANNELS


def _architectures(descriptor: Any) -> Iterator[Rule]:
    parts = list(_parts(descriptor, "Mesh", "Switch"))
    first = parts[0][2].arch
    for called, at, part in parts:
        if part.arch != first:
            message = "All mesh descriptors must have the same architecture"
            if called.startswith("(Switch"):
                message = "All switch descriptors must have the same architecture as meshes"
            yield True, message, f"{at} arch", "one architecture for all meshes and switches"
            return
    for called, at, part in parts:
        cure = "arch: WORMHOLE_B0, or BLACKHOLE"
        message = f"{called[1:].split(':')[0]} descriptor must have a valid architecture {called}"
        yield part.arch == 0, message, f"{at} arch", cure
        unknown = not 0 <= part.arch < len(ARCHITECTURES)
        yield unknown, f"Invalid architecture {called}", f"{at} arch", cure
        most, dims = 2 if part.arch == WORMHOLE else 3, len(part.device_topology.dims)
        message = (
            f"Architecture devices allow a maximum of {most} dimensions, "
            f"but {dims} were provided {called}"
        )
        cure = "rows and columns: dims: [ 2, 4 ]"
        yield part.arch and dims > most, message, f"{at} device_topology dims", cure


# ---------------------------------------------------------------- stage 3
def _topologies(descriptor: Any) -> Iterator[Rule]:
    for called, at, part in _parts(descriptor, "Mesh", "Switch"):
        dims, types = part.device_topology.dims, part.device_topology.dim_types
        for n in dims:
            message = f"Device topology dimensions must be positive {called}"
            yield n <= 0, message, f"{at} device_topology dims", f"a number from 1, not {n}"
        hosts = part.host_topology.dims if called.startswith("(Mesh") else dims
        if len(types) > len(dims):
            message = f"Device topology dimensions and types must be the same size {called}"
            cure = f"{len(dims)} of LINE and RING, one a dimension, not {len(types)}"
            yield True, message, f"{at} device_topology dim_types", cure
        elif len(hosts) != len(dims):
            message = f"Device and host topology dimensions must be the same size {called}"
            ones = ", ".join("1" * min(len(dims), 8))
            cure = f"host_topology {{ dims: [ {ones} ] }} for one host"
            yield True, message, f"{at} host_topology", cure
        else:
            rule = "Device topology dimensions must be divisible by host topology dimensions"
            for n, h in zip(dims, hosts):
                cure = f"a number of hosts that divides {n}, not {h}"
                yield h > 0 and n % h, f"{rule} {called}", f"{at} host_topology dims", cure


def _express_connections(descriptor: Any) -> Iterator[Rule]:
    for called, at, part in _parts(descriptor, "Mesh", "Switch"):
        devices = range(math.prod(part.device_topology.dims))
        for i, link in enumerate(part.express_connections):
            for end, device in (("source", link.src), ("destination", link.dst)):
                message = f"Express connection {end} is out of bounds {called}"
                cure = "remove it: 0.81.1 supports no express connections"
                yield device not in devices, message, f"{at} express_connections {i}", cure


def _graphs(descriptor: Any) -> Iterator[Rule]:
    for called, at, graph in _parts(descriptor, "Graph"):
        message = f"Graph descriptor must have at least one instance {called}"
        yield not graph.instances, message, at, f"instances {{ {A_MESH} }}"
        cure = 'type: "FABRIC"'
        message = f"Graph descriptor must have a type specified {called}"
        yield not graph.type, message, at, cure
        message = f"Graph descriptor type cannot be DEVICE, MESH, or SWITCH {called}"
        yield graph.type in ("DEVICE", "MESH", "SWITCH"), message, f"{at} type", cure
    for called, at, connection in _connections(descriptor):
        message = f"Connection must have at least two nodes {called}"
        cure = "two nodes { mesh { ... } }, one for each end"
        yield len(connection.nodes) < 2, message, at, cure


def _pinnings(descriptor: Any) -> Iterator[Rule]:
    for i, pinning in enumerate(descriptor.pinnings):
        for field in ("logical_fabric_node_id", "physical_asic_position"):
            cure = f"{field} {{ ... }}, or remove the pinning"
            missing = not getattr(pinning, field)
            yield missing, f"Pinning entry has no {field}", f"pinnings {i}", cure


# ---------------------------------------------------------------- stage 4: what MGD 1.0 could not
def _two_dimensions(descriptor: Any) -> Iterator[Rule]:
    meshes = list(_parts(descriptor, "Mesh"))
    flat = f"{OLD}There can only be 2 dimensions in the device topology"
    for called, at, part in meshes:
        dims = part.device_topology.dims
        cure = f"dims: [ 1, {math.prod(dims)} ]"
        yield len(dims) != 2, f"{flat} {called}", f"{at} device_topology dims", cure
    for called, at, part in meshes:
        message = f"{OLD}Express connections are not supported {called}"
        yield part.express_connections, message, f"{at} express_connections 0", "remove them"
    for called, at, part in meshes:
        cure = "host_topology { dims: [ 1, 1 ] } for one host"
        message = f"{flat} and host topology {called}"
        yield len(part.device_topology.dims) != 2, message, f"{at} host_topology dims", cure


def _one_graph(descriptor: Any) -> Iterator[Rule]:
    one = f"{OLD}There can only be one FABRIC level graph"
    cure = "one graph with all meshes as its instances"
    yield len(descriptor.graph_descriptors) > 1, f"{one} or less", "graph_descriptors 1", cure
    for called, at, graph in _parts(descriptor, "Graph"):
        cure = 'type: "FABRIC", with all meshes as its instances'
        yield graph.type != "FABRIC", f"{one} {called}", f"{at} type", cure
    for called, at, connection in _connections(descriptor):
        message = f"{OLD}Connections must have exactly 2 nodes {called}"
        cure = "one connection for each pair of meshes"
        yield len(connection.nodes) != 2, message, at, cure
    for called, at, graph in _parts(descriptor, "Graph"):
        message = (
            f"{OLD}Cannot mix STRICT and RELAXED policies in the same graph. "
            f"All connections in a graph must use the same policy {called}"
        )
        relaxed = [connection.channels.policy == 2 for connection in graph.connections]
        if len(set(relaxed)) > 1:
            where = f"{at} connections {relaxed.index(not relaxed[0])} channels"
            yield True, message, where, "the same policy in each connection; one without is STRICT"


# ---------------------------------------------------------------- references; at most one graph
def instances(descriptor: Any) -> list[tuple[str, Any]]:
    """Return the path and the NodeRef of each instance of the top level."""
    top = descriptor.top_level_instance
    if top.HasField("mesh"):
        return [("top_level_instance", top)]
    nodes = descriptor.graph_descriptors[0].instances
    return [(f"graph_descriptors 0 instances {k}", node) for k, node in enumerate(nodes)]


def _references(descriptor: Any) -> Iterator[Rule]:
    """Names and ids without a target. After a broken rule the generator is not continued."""
    meshes = {part.name: part for part in descriptor.mesh_descriptors}
    top, at = descriptor.top_level_instance, "top_level_instance"
    if not top.HasField("mesh"):
        if not top.HasField("graph"):
            yield _not_a_mesh(top, at)
        graphs, name = [g.name for g in descriptor.graph_descriptors], top.graph.graph_descriptor
        yield _unknown("Graph", name, graphs, f"{at} graph graph_descriptor")
    ids: dict[int, str] = {}
    for at, node in instances(descriptor):
        yield _not_a_mesh(node, at)
        name, mesh_id = node.mesh.mesh_descriptor, node.mesh.mesh_id
        yield _unknown("Mesh", name, meshes, f"{at} mesh mesh_descriptor")
        message = f"Graph instance id {mesh_id} already exists in this graph"
        cure = f"a mesh_id of its own, for example {max(ids, default=0) + 1}"
        yield mesh_id in ids, message, f"{at} mesh mesh_id", cure
        ids[mesh_id] = name
    if top.HasField("mesh"):
        return
    graph = descriptor.graph_descriptors[0]
    if graph.HasField("graph_topology"):
        at, kind = "graph_descriptors 0 graph_topology", graph.graph_topology.layout_type
        message = "Invalid graph topology type: GraphTopology_Type::GraphTopology_Type_INVALID_TYPE"
        yield kind == 0, message, at, "layout_type: ALL_TO_ALL or RING"
        message = f"{len(ids)} meshes ALL_TO_ALL are more than {MOST_PAIRS} connections"
        too_many = kind == ALL_TO_ALL and math.comb(len(ids), 2) > MOST_PAIRS
        yield too_many, message, at, "fewer meshes, or RING"
    for k, connection in enumerate(graph.connections):
        for n, node in enumerate(connection.nodes):
            at = f"graph_descriptors 0 connections {k} nodes {n}"
            yield from _end(node, at, ids, meshes)


def _end(node: Any, at: str, ids: dict[int, str], meshes: dict[str, Any]) -> Iterator[Rule]:
    """The rules for one end of a connection."""
    first = min(ids)
    name = node.graph.graph_descriptor
    message = f"Graph descriptor {name} does not match referenced instance {ids[first]}"
    cure = f'mesh {{ mesh_descriptor: "{ids[first]}" mesh_id: {first} }}'
    yield node.HasField("graph"), message, at, cure
    yield _not_a_mesh(node, at)
    mesh = node.mesh
    message = f"Mesh instance id {mesh.mesh_id} not found in parent instance"
    yield mesh.mesh_id not in ids, message, f"{at} mesh mesh_id", f"one of {sorted(ids)[:20]}"
    name = ids.get(mesh.mesh_id, "")
    message = f"Mesh descriptor {mesh.mesh_descriptor} does not match referenced instance {name}"
    cure = f'mesh_descriptor: "{name}", as in the instance'
    yield mesh.mesh_descriptor != name, message, f"{at} mesh mesh_descriptor", cure
    if mesh.HasField("device_id") and name in meshes:
        size = math.prod(meshes[name].device_topology.dims)
        message = f"Device id {mesh.device_id} not found in mesh instance"
        cure = f"0 to {size - 1}, row by row; or leave it out"
        yield not 0 <= mesh.device_id < size, message, f"{at} mesh device_id", cure


def _unknown(kind: str, name: str, known: Collection[str], at: str) -> Rule:
    near = nearest(name, known) or next(iter(known), "M0")
    message = f"{kind} descriptor {name} not found in instance"
    return name not in known, message, at, f'write "{near}"'


def _not_a_mesh(node: Any, at: str) -> Rule:
    if node.WhichOneof("node") is None:
        return True, "Invalid NodeRef: neither mesh, switch, nor graph set", at, A_MESH
    message = "a switch, or a graph of graphs or switches, cannot be opened"
    return not node.HasField("mesh"), message, at, "meshes only, in one graph of type FABRIC"


def _crashes(descriptor: Any) -> Iterator[Rule]:
    """What passes the rules and stops the library later, by an error or by a crash."""
    for called, at, part in _parts(descriptor, "Mesh"):
        (rows, columns), hosts = part.device_topology.dims, list(part.host_topology.dims)
        message = f"Host topology dimensions must be positive {called}"
        cure = "numbers from 1; 0.81.1 crashes on it"
        yield 0 in hosts, message, f"{at} host_topology dims", cure
        seen = "x".join(str(h % 2**32) for h in hosts)
        message = f"MeshGraph: Mesh shape {rows}x{columns} must be divisible by host shape {seen}"
        yield min(hosts) < 0, message, f"{at} host_topology dims", "numbers from 1"
        odd = rows % 2 and columns % 2 and rows * columns > 1
        message = (
            "MeshGraph: For WORMHOLE_B0 architecture, if both mesh dimensions are odd, "
            f"they must both be 1, got {rows}x{columns}"
        )
        cure = "an even number of rows or columns: Wormhole chips come in pairs"
        yield part.arch == WORMHOLE and odd, message, f"{at} device_topology dims", cure
    paths = {node.mesh.mesh_id: at for at, node in instances(descriptor)}
    message = f"mesh ids must be 0 to {len(paths) - 1}, not {sorted(paths)[:20]}"
    for mesh_id, at in paths.items():
        gap = mesh_id not in range(len(paths))
        yield gap, message, f"{at} mesh mesh_id", "another mesh_id; 0.81.1 crashes on it"


# ---------------------------------------------------------------- warnings
def doubts(descriptor: Any, joined: set[int]) -> Iterator[Rule]:
    """What the library accepts without a message and a reader should know.

    Args:
        joined: the meshes that have a connection.
    """
    nodes = instances(descriptor)
    names, ids = {n.mesh.mesh_descriptor for _, n in nodes}, {n.mesh.mesh_id for _, n in nodes}
    alone = sorted(ids - joined)
    for called, at, _ in _parts(descriptor, "Graph"):
        message = f"no link joins mesh {', '.join(map(str, alone[:20]))} to another mesh {called}"
        cure = "connections { ... }, unless the meshes are meant to work apart"
        yield len(ids) > 1 and alone, message, at, cure
    for _, at, connection in _connections(descriptor):
        ends = {node.mesh.mesh_id for node in connection.nodes}
        yield len(ends) == 1, "a connection of a mesh with itself", at, "two different meshes"
        message = "a directional connection binds no links in 0.81.1"
        yield connection.directional, message, at, "directional: false"
    for called, at, part in _parts(descriptor, "Mesh"):
        message = f"no instance uses the mesh descriptor {called}"
        yield part.name not in names, message, at, "remove it, or add an instance of it"
        types = part.device_topology.dim_types
        message = "dim_types that are missing or invalid are taken as LINE"
        where = f"{at} device_topology dim_types"
        yield 0 in types or len(types) == 1, message, where, "one LINE or RING a dimension"

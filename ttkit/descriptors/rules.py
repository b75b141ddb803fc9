"""The rules of ttnn 0.81.1 for a mesh graph descriptor, with its messages.

Each rule of `RULES` checks one part of a file. If a file breaks none of these rules,
its references from one part to another, by name or by id, are checked, too.
"""

import math
from collections.abc import Collection, Iterator
from typing import Any

from ttkit.errors import nearest

REPORT = (
    "Failed to validate MeshGraphDescriptor textproto: \n=== MeshGraphDescriptor Validation "
    "Report ===\n\nErrors:"
)
OLD = "MGD 1.0 Compatibility requirement: "
# These names and numbers are values of enums in the schema.
ARCHITECTURES = ("", "WORMHOLE_B0", "BLACKHOLE", "QUASAR")
WORMHOLE = 1
ALL_TO_ALL = 1
RELAXED = 2
A_MESH = 'mesh { mesh_descriptor: "M0" mesh_id: 0 }'
CHANNELS = "channels { count: 2 policy: RELAXED }"


# A broken rule is a tuple of what is wrong, the path of the field, and what to try.
Broken = tuple[str, str, str]
# A row has the kind of part that it checks ("File", "Mesh", "Graph" or "Connection"), the field,
# what is wrong, a function that returns true for a wrong part, and what to try.
RULES = (
    (
        "File",
        "",
        "Top level instance is required",
        lambda file: not file.HasField("top_level_instance"),
        f"add top_level_instance {{ {A_MESH} }}",
    ),
    (
        "File",
        "mesh_descriptors 1 name",
        "Mesh descriptor name is not unique",
        lambda file: (
            len({mesh.name for mesh in file.mesh_descriptors}) < len(file.mesh_descriptors)
        ),
        'a name of its own for each: name: "M1"',
    ),
    (
        "Mesh",
        "channels count",
        "Channel count must be positive",
        lambda mesh: mesh.channels.count <= 0,
        f"{CHANNELS}, the links between two chips",
    ),
    (
        "Connection",
        "channels",
        "Connection channel count must be positive",
        lambda connection: connection.channels.count <= 0,
        CHANNELS,
    ),
    (
        "Mesh",
        "arch",
        "Mesh descriptor must have a valid architecture",
        lambda mesh: not 0 < mesh.arch < len(ARCHITECTURES),
        "arch: WORMHOLE_B0, or BLACKHOLE",
    ),
    (
        "Mesh",
        "device_topology dims",
        "Device topology dimensions must be positive",
        lambda mesh: any(n <= 0 for n in mesh.device_topology.dims),
        "numbers from 1",
    ),
    (
        "Mesh",
        "device_topology dim_types",
        "Device topology dimensions and types must be the same size",
        lambda mesh: len(mesh.device_topology.dim_types) > len(mesh.device_topology.dims),
        "LINE or RING for each dimension",
    ),
    (
        "Mesh",
        "host_topology",
        "Device and host topology dimensions must be the same size",
        lambda mesh: len(mesh.host_topology.dims) != len(mesh.device_topology.dims),
        "host_topology { dims: [ 1, 1 ] } for one host",
    ),
    (
        "Mesh",
        "host_topology dims",
        "Device topology dimensions must be divisible by host topology dimensions",
        lambda mesh: any(
            h < 1 or n % h for n, h in zip(mesh.device_topology.dims, mesh.host_topology.dims)
        ),
        "numbers of hosts that divide the rows and the columns of chips",
    ),
    (
        "Mesh",
        "express_connections 0",
        "Express connection destination is out of bounds",
        lambda mesh: any(
            not 0 <= link.dst < math.prod(mesh.device_topology.dims)
            for link in mesh.express_connections
        ),
        "remove it: 0.81.1 supports no express connections",
    ),
    (
        "Graph",
        "",
        "Graph descriptor must have at least one instance",
        lambda graph: not graph.instances,
        f"instances {{ {A_MESH} }}",
    ),
    (
        "Graph",
        "",
        "Graph descriptor must have a type specified",
        lambda graph: not graph.type,
        'type: "FABRIC"',
    ),
    (
        "Graph",
        "type",
        "Graph descriptor type cannot be DEVICE, MESH, or SWITCH",
        lambda graph: graph.type in ("DEVICE", "MESH", "SWITCH"),
        'type: "FABRIC"',
    ),
    (
        "Mesh",
        "device_topology dims",
        f"{OLD}There can only be 2 dimensions in the device topology",
        lambda mesh: len(mesh.device_topology.dims) != 2,
        "rows and columns: dims: [ 2, 4 ]",
    ),
    (
        "Mesh",
        "express_connections 0",
        f"{OLD}Express connections are not supported",
        lambda mesh: mesh.express_connections,
        "remove them",
    ),
    (
        "File",
        "graph_descriptors 1",
        f"{OLD}There can only be one FABRIC level graph or less",
        lambda file: len(file.graph_descriptors) > 1,
        "one graph with all meshes as its instances",
    ),
    (
        "Graph",
        "type",
        f"{OLD}There can only be one FABRIC level graph",
        lambda graph: graph.type != "FABRIC",
        'type: "FABRIC", with all meshes as its instances',
    ),
    (
        "Connection",
        "",
        f"{OLD}Connections must have exactly 2 nodes",
        lambda connection: len(connection.nodes) != 2,
        "two nodes { mesh { ... } }, one for each end",
    ),
    (
        "Graph",
        "",
        f"{OLD}Cannot mix STRICT and RELAXED policies in the same graph. "
        "All connections in a graph must use the same policy",
        lambda graph: len({link.channels.policy == RELAXED for link in graph.connections}) > 1,
        "the same policy in each connection; one without is STRICT",
    ),
)


def check(file) -> tuple[list[Broken], bool]:
    """Return the broken rules of a file, and whether the real library prints them as a report.

    The library stops at the first wrong reference, so at most one of these is returned.
    """
    broken = [
        (f"{wrong}{name}", f"{at} {field}".strip(), cure)
        for kind, field, wrong, is_broken, cure in RULES
        for name, at, part in _parts(file, kind)
        if is_broken(part)
    ]
    return (broken, True) if broken else (list(_references(file))[:1], False)


def _parts(file, kind: str) -> Iterator[tuple[str, str, Any]]:
    """Yield all parts of a kind, each with its name in messages, its path, and the part itself."""
    if kind == "File":
        yield "", "", file
    elif kind == "Connection":  # Messages give a connection the name of its graph.
        for name, at, graph in _parts(file, "Graph"):
            for k, connection in enumerate(graph.connections):
                yield name, f"{at} connections {k}", connection
    else:
        field = f"{kind.lower()}_descriptors"
        for i, part in enumerate(getattr(file, field)):
            yield f" ({kind}: {part.name})", f"{field} {i}", part


def instances(file) -> list[tuple[str, Any]]:
    """Return the path and the mesh of each instance: the top-level mesh, or those of the graphs."""
    top = file.top_level_instance
    if top.HasField("mesh"):
        return [("top_level_instance mesh", top.mesh)]
    return [
        (f"{at} instances {k} mesh", node.mesh)
        for _, at, graph in _parts(file, "Graph")
        for k, node in enumerate(graph.instances)
    ]


def _references(file) -> Iterator[Broken]:
    """Yield errors for wrong names and ids, and for Wormhole meshes of a size that ttnn refuses."""
    templates = {mesh.name: mesh for mesh in file.mesh_descriptors}
    top = file.top_level_instance
    graphs = [g.name for g in file.graph_descriptors]
    name = top.graph.graph_descriptor
    if not top.HasField("mesh") and name not in graphs:
        yield _unknown("Graph", name, graphs, "top_level_instance graph graph_descriptor")
    known: dict[int, str] = {}
    for at, mesh in instances(file):
        if mesh.mesh_descriptor not in templates:
            yield _unknown("Mesh", mesh.mesh_descriptor, templates, f"{at} mesh_descriptor")
        if mesh.mesh_id in known:
            message = f"Graph instance id {mesh.mesh_id} already exists in this graph"
            cure = f"a mesh_id of its own, for example {max(known) + 1}"
            yield message, f"{at} mesh_id", cure
        known[mesh.mesh_id] = mesh.mesh_descriptor
    for _, at, connection in _parts(file, "Connection"):
        for n, node in enumerate(connection.nodes):
            yield from _end(node.mesh, f"{at} nodes {n} mesh", known, templates)
    for called, at, mesh in _parts(file, "Mesh"):
        rows, columns = mesh.device_topology.dims
        if mesh.arch == WORMHOLE and rows % 2 and columns % 2 and rows * columns > 1:
            message = (
                "MeshGraph: For WORMHOLE_B0 architecture, if both mesh dimensions are odd, "
                f"they must both be 1, got {rows}x{columns}{called}"
            )
            cure = "an even number of rows or columns: Wormhole chips come in pairs"
            yield message, f"{at} device_topology dims", cure


def _end(mesh, at: str, known: dict[int, str], templates: dict[str, Any]) -> Iterator[Broken]:
    """Yield what is wrong with one end of a connection."""
    name = known.get(mesh.mesh_id)
    if name is None:
        message = f"Mesh instance id {mesh.mesh_id} not found in parent instance"
        yield message, f"{at} mesh_id", f"one of {sorted(known)}"
    elif mesh.mesh_descriptor != name:
        message = (
            f"Mesh descriptor {mesh.mesh_descriptor} does not match referenced instance {name}"
        )
        cure = f'mesh_descriptor: "{name}", as in the instance'
        yield message, f"{at} mesh_descriptor", cure
    elif mesh.HasField("device_id") and name in templates:
        size = math.prod(templates[name].device_topology.dims)
        if not 0 <= mesh.device_id < size:
            message = f"Device id {mesh.device_id} not found in mesh instance"
            cure = f"0 to {size - 1}, row by row; or leave it out"
            yield message, f"{at} device_id", cure


def _unknown(kind: str, name: str, known: Collection[str], at: str) -> Broken:
    near = nearest(name, known) or next(iter(known), "M0")
    return f"{kind} descriptor {name} not found in instance", at, f'write "{near}"'

"""Descriptor files: read them, check them, write them."""

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from ttkit.descriptors import rules, textproto
from ttkit.descriptors.descriptor import Connection, MeshGraphDescriptor, MeshInstance
from ttkit.errors import fail
from ttkit.files import AnyPath, Document, Finding, errors_in, read_text

FILE_KIND = "Custom mesh graph descriptor file"  # Messages use this name for such a file.
ONLY_TEXTPROTO = (
    "Mesh graph descriptor file must use the .textproto format. "
    "The YAML format (MGD 1.0) has been deprecated."
)
DESCRIPTOR_FOLDER = Path(__file__).parent / "files"
# ttml's enable_fabric uses these files for 8 and 32 devices, and no file for other numbers.
FILE_FOR_DEVICES = {
    8: DESCRIPTOR_FOLDER / "t3000.textproto",
    32: DESCRIPTOR_FOLDER / "galaxy.textproto",
}


class Loaded(NamedTuple):
    """A file that was read: the descriptor, unless there are errors among the findings."""

    descriptor: MeshGraphDescriptor | None
    findings: list[Finding]
    report: bool = False  # The real library prints these errors as a report.


def load_text(text: str, path: str) -> Loaded:
    """Read and check the text of a file; the path's ending decides whether it is YAML."""
    file = Path(path)
    if file.suffix.lower() in (".yaml", ".yml"):
        # This import loads pydantic, which only the old form needs.
        from ttkit.descriptors.old_yaml import old_descriptor

        old, findings = old_descriptor(text, path)
        if old is None:
            return Loaded(None, findings)
        new = load_text(descriptor_text(old), f"{file.stem}.textproto")
        # The lines of the converted text are not those of this file, so the findings get line 0.
        findings = [finding._replace(path=path, line=0) for finding in new.findings]
        cure = f"ttkit convert {file.stem}.yaml > {file.stem}.textproto, and name that"
        refused = f"{ONLY_TEXTPROTO} ttnn 0.81.1 refuses it."
        findings.append(Finding("warning", path, 1, refused, cure))
        return new._replace(findings=findings)
    try:
        message = textproto.parse(text)
    except textproto.Unreadable as error:
        line, what, cure = error.args
        what = f"Failed to parse MeshGraphDescriptor textproto: {what}"
        return Loaded(None, [Finding("error", path, line, what, cure)])
    document, findings = Document(file), []
    for line, name, near in textproto.note_fields(document, text):
        what = f"unknown field '{name}': the real library skips it without a message"
        cure = f"write {near}, or remove it" if near else "remove it"
        findings.append(Finding("warning", path, line, what, cure))
    broken, report = rules.check(message)
    for what, where, cure in broken:
        findings.append(document.finding(tuple(where.split()), what, cure))
    if broken:
        return Loaded(None, findings, report)
    name = file.stem.removesuffix("_mesh_graph_descriptor").removesuffix("_graph_descriptor")
    return Loaded(_from_message(message, name), findings)


def read_descriptor(path: AnyPath) -> MeshGraphDescriptor:
    """Return the descriptor in a file: MGD 2.0 (.textproto), or MGD 1.0 (.yaml), converted.

    Raises:
        TTKitError: the file is missing, is not text, or the real library refuses it. In the last
            case the error has the library's messages, each with file, line and cure.

    Example:
        >>> read_descriptor(descriptor_path(32))
        MeshGraphDescriptor(galaxy: 8x4, 32 devices, 1 host)
    """
    loaded = load_text(read_text(path, FILE_KIND), os.fspath(path))
    return loaded.descriptor or fail_with_findings(f"read_descriptor({os.fspath(path)!r})", loaded)


def fail_with_findings(asked: str, loaded: Loaded) -> NoReturn:
    """Raise the errors of a file: the real library's messages, then the place and cure of each."""
    errors = errors_in(loaded.findings)
    if loaded.report:
        rule = rules.REPORT + "".join(f"\n  - {finding.message}" for finding in errors)
    else:
        rule = "; ".join(finding.message for finding in errors)
    cures = [f"{finding.place}: {finding.cure or finding.message}" for finding in errors]
    fail(asked, rule, "\n       ".join(cures))


def check_descriptor(path: AnyPath) -> list[Finding]:
    """Return what is wrong or doubtful in a descriptor file, in the order of its lines.

    Errors are mistakes that the real library refuses. Warnings are unknown fields, which it skips,
    and the YAML format of MGD 1.0, which it no longer reads.

    Raises:
        TTKitError: the file is missing or is not text.

    Example:
        >>> check_descriptor(descriptor_path(8))
        []
    """
    loaded = load_text(read_text(path, FILE_KIND), os.fspath(path))
    return sorted(loaded.findings, key=lambda finding: finding.line)


def descriptor_path(num_devices: int) -> Path | None:
    """Return the file that is used for a number of devices if TT_MESH_GRAPH_DESC_PATH is not set.

    It is None for numbers other than 8 and 32.

    Args:
        num_devices: the number of devices of the whole machine.

    Example:
        >>> descriptor_path(8).name, descriptor_path(16)
        ('t3000.textproto', None)
    """
    return FILE_FOR_DEVICES.get(num_devices)


# ---------------------------------------------------------------- from a message
def _from_message(message, name: str) -> MeshGraphDescriptor:
    """Return the descriptor of a message that passed the rules."""
    templates = {template.name: template for template in message.mesh_descriptors}
    meshes = []
    for _, node in rules.instances(message):
        template = templates[node.mesh_descriptor]
        rows, columns = template.device_topology.dims
        types = *template.device_topology.dim_types, 0, 0
        down, across, *_ = ("RING" if each == 2 else "LINE" for each in types)
        mesh = MeshInstance(
            node.mesh_id,
            template.name,
            rules.ARCHITECTURES[template.arch],
            (rows, columns),
            (down, across),
            tuple(template.host_topology.dims),
            *_links(template.channels),
        )
        meshes.append(mesh)
    connections = [] if message.top_level_instance.HasField("mesh") else _connections(message)
    return MeshGraphDescriptor(tuple(meshes), tuple(connections), name)


def _links(channels) -> tuple[int, str]:
    return channels.count, "RELAXED" if channels.policy == rules.RELAXED else "STRICT"


def _connections(message) -> Iterator[Connection]:
    """Yield the connections of the only graph: first those that its topology implies."""
    graph = message.graph_descriptors[0]
    ids = [node.mesh.mesh_id for node in graph.instances]
    topology = graph.graph_topology
    pairs: Iterable[tuple[int, int]] = ()
    if topology.layout_type == rules.ALL_TO_ALL:
        pairs = itertools.combinations(ids, 2)
    elif graph.HasField("graph_topology"):  # A ring of two meshes has one connection.
        pairs = itertools.pairwise(ids if len(ids) < 3 else [*ids, ids[0]])
    for pair in pairs:
        yield Connection(pair, *_links(topology.channels))
    for connection in graph.connections:
        a, b = (node.mesh for node in connection.nodes)
        chips = [end.device_id if end.HasField("device_id") else None for end in (a, b)]
        ends = a.mesh_id, b.mesh_id
        yield Connection(ends, *_links(connection.channels), (chips[0], chips[1]))


# ---------------------------------------------------------------- to text
def descriptor_text(descriptor: MeshGraphDescriptor) -> str:
    """Return a descriptor as the text of MGD 2.0; reading it gives an equal descriptor.

    Example:
        >>> print(descriptor_text(read_descriptor(descriptor_path(8))).splitlines()[-1])
        top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }
    """
    names = {mesh.mesh_id: json.dumps(mesh.name) for mesh in descriptor.meshes}

    def node(mesh_id: int, device: int | None = None) -> str:
        chip = "" if device is None else f" device_id: {device}"
        # A connection may have an id that no mesh has; the rules then refuse the text.
        name = names.get(mesh_id, '""')
        return f"mesh {{ mesh_descriptor: {name} mesh_id: {mesh_id}{chip} }}"

    parts = list(dict.fromkeys(map(_mesh_text, descriptor.meshes)))
    if len(descriptor.meshes) == 1 and not descriptor.connections:
        top = node(descriptor.meshes[0].mesh_id)
    else:
        lines = ["graph_descriptors {", '  name: "G0"', '  type: "FABRIC"']
        lines += [f"  instances {{ {node(mesh.mesh_id)} }}" for mesh in descriptor.meshes]
        for connection in descriptor.connections:
            ends = map(node, connection.meshes, connection.devices)
            lines += ["  connections {", *(f"    nodes {{ {end} }}" for end in ends)]
            channels = f"count: {connection.channels} policy: {connection.policy}"
            lines += [f"    channels {{ {channels} }}", "  }"]
        parts.append("\n".join([*lines, "}\n"]))
        top = 'graph { graph_descriptor: "G0" graph_id: 0 }'
    return "\n".join([*parts, f"top_level_instance {{ {top} }}\n"])


def _mesh_text(mesh: MeshInstance) -> str:
    rows, columns = mesh.device_dims
    return f"""mesh_descriptors {{
  name: {json.dumps(mesh.name)}
  arch: {mesh.arch}
  device_topology {{ dims: [ {rows}, {columns} ] dim_types: [ {", ".join(mesh.dim_types)} ] }}
  host_topology {{ dims: [ {", ".join(map(str, mesh.host_dims))} ] }}
  channels {{ count: {mesh.channels} policy: {mesh.policy} }}
}}
"""

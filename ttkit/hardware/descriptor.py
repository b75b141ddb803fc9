"""Mesh graph descriptors: the file that says which meshes there are, how many hosts share each,
and what joins them.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ttkit.errors import fail
from ttkit.hardware import mgd_rules, mgd_text
from ttkit.hardware.findings import Finding
from ttkit.hardware.mgd_schema import ENUMS
from ttkit.hardware.mgd_yaml import old_descriptor

LONGEST = 1 << 18  # bytes of a file; the largest one of the wheel has 12,000
OURS = Path(__file__).parent / "descriptors"  # the files that come with the kit
# Which file ttml's enable_fabric takes for a number of devices; for other numbers it takes none.
CHOSEN = {"newest": {8: "t3000", 32: "galaxy"}, "older": {8: "t3000_1x8", 32: "galaxy_1x32"}}
Coordinate = tuple[int, ...]


@dataclass(frozen=True)
class MeshInstance:
    """One mesh of a descriptor: a grid of chips, row-major, cut into equal blocks, one a host.

    Args:
        device_dims: rows and columns of chips.
        dim_types: "LINE" or "RING" (the last chip is cabled back to the first) for each dimension.
        host_dims: rows and columns of hosts.
        channels: ethernet links between two neighbours.
        policy: "STRICT" asks for all of them, "RELAXED" takes fewer.

    Example:
        >>> mesh = MeshInstance(0, "M0", "WORMHOLE_B0", (2, 4), ("LINE", "LINE"), (1, 2), 2, "STRICT")
        >>> mesh.num_devices, mesh.num_hosts, mesh.host_of((0, 3)), mesh.part_of(1)
        (8, 2, 1, ((0, 2), (2, 2)))
    """

    mesh_id: int
    name: str
    arch: str
    device_dims: tuple[int, int]
    dim_types: tuple[str, str]
    host_dims: tuple[int, int]
    channels: int
    policy: str
    # a file that is silent is STRICT, but the library then maps like RELAXED
    policy_given: bool = True

    @property
    def num_devices(self) -> int:
        """How many chips."""
        return math.prod(self.device_dims)

    @property
    def num_hosts(self) -> int:
        """How many hosts share the mesh."""
        return math.prod(self.host_dims)

    @property
    def size_text(self) -> str:
        """Rows x columns."""
        return "x".join(map(str, self.device_dims))

    @property
    def host_shape(self) -> tuple[int, int]:
        """Rows and columns of chips of one host."""
        return self.device_dims[0] // self.host_dims[0], self.device_dims[1] // self.host_dims[1]

    def host_of(self, coordinate: Coordinate) -> int:
        """The host rank of the chip at a (row, column)."""
        (rows, columns), (row, column) = self.host_shape, coordinate
        return row // rows * self.host_dims[1] + column // columns

    def part_of(self, host_rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Corner and shape of the block that a host rank drives."""
        if not 0 <= host_rank < self.num_hosts:
            rule = (
                f"Invalid TT_MESH_HOST_RANK: Local mesh binding host_rank {host_rank} not "
                "found in mesh graph descriptor"
            )
            fail(
                f"host rank {host_rank} of mesh {self.mesh_id}",
                rule,
                f"a rank of 0 to {self.num_hosts - 1}",
            )
        row, column = divmod(host_rank, self.host_dims[1])
        return (row * self.host_shape[0], column * self.host_shape[1]), self.host_shape


@dataclass(frozen=True)
class Connection:
    """Links between two meshes;

    `devices` are the chips at the ends, None where any may carry them.
    """

    meshes: tuple[int, int]
    channels: int
    policy: str
    devices: tuple[int | None, int | None] = (None, None)
    assign_z_direction: bool = False


@dataclass(frozen=True)
class Pinning:
    """Chips of meshes that have to sit on certain trays of the machine, as the file has them:
    field names and values.
    """

    nodes: tuple[tuple[tuple[str, int | str], ...], ...]
    positions: tuple[tuple[tuple[str, int | str], ...], ...]
    board_revision: str = ""


@dataclass(frozen=True)
class MeshGraphDescriptor:
    """What a descriptor file holds; get one from `read_descriptor`.

    Example:
        >>> descriptor = descriptor_for(8)
        >>> descriptor.total_devices, descriptor.total_hosts, descriptor.meshes[0].device_dims
        (8, 1, (2, 4))
    """

    meshes: tuple[MeshInstance, ...]
    connections: tuple[Connection, ...] = ()
    pinnings: tuple[Pinning, ...] = ()
    name: str = field(default="descriptor", compare=False)  # the file's, without its ending

    @property
    def total_devices(self) -> int:
        """Chips of all meshes."""
        return sum(mesh.num_devices for mesh in self.meshes)

    @property
    def total_hosts(self) -> int:
        """Hosts of all meshes; the ranks that a full start has."""
        return sum(mesh.num_hosts for mesh in self.meshes)

    def mesh(self, mesh_id: int) -> MeshInstance:
        """The mesh with that id.

        Raises:
            TTKitError: there is none.
        """
        for mesh in self.meshes:
            if mesh.mesh_id == mesh_id:
                return mesh
        rule = (
            f"Invalid TT_MESH_ID: Local mesh binding mesh_id {mesh_id} not found in mesh graph "
            "descriptor"
        )
        fail(
            f"mesh {mesh_id} of {self!r}",
            rule,
            f"one of {', '.join(str(mesh.mesh_id) for mesh in self.meshes)}",
        )

    def __repr__(self) -> str:
        sizes = [
            f"{count} of {size}"
            for size, count in Counter(mesh.size_text for mesh in self.meshes).most_common(4)
        ]
        what = (
            self.meshes[0].size_text
            if len(self.meshes) == 1
            else f"{len(self.meshes)} meshes: {', '.join(sizes)}"
        )
        return (
            f"MeshGraphDescriptor({self.name}: {what}, {self.total_devices} devices, "
            f"{self.total_hosts} {'host' if self.total_hosts == 1 else 'hosts'})"
        )

    def _repr_html_(self) -> str:
        from ttkit.visualize.descriptor import draw_descriptor

        return "".join(figure._repr_html_() for figure in draw_descriptor(self))


@dataclass(frozen=True)
class Loaded:
    """A file that was read: the descriptor, unless there are errors among the findings."""

    descriptor: MeshGraphDescriptor | None
    findings: tuple[Finding, ...]
    report: bool = False  # the real library prints these errors as a report
    lines: Callable[..., int] = lambda *path: 0  # the line of a field by its path
    templates: tuple[str, ...] = ()  # names of the mesh descriptors, in order


def read_text(
    path: str | os.PathLike[str], asked: str, textproto_only: tuple[str, str] | None = None
) -> str:
    """The text of a file; `textproto_only` is the rule and the cure where it must have that ending.

    Raises:
        TTKitError: there is no such file, or it is none that could be a descriptor.
    """
    file = Path(path)
    if not os.path.exists(file):
        home = (
            ""
            if os.environ.get("TT_METAL_HOME")
            else "; TT_METAL_HOME is not set, for a path that starts with it"
        )
        cure = (
            f"an existing file; the working directory is {Path.cwd()}{home}; "
            "for 8 or 32 devices ttkit.cluster.descriptor_path(n) is one"
        )
        fail(asked, f"Custom mesh graph descriptor file not found: {path}", cure)
    if textproto_only and file.suffix != ".textproto":
        fail(asked, *textproto_only)
    if not file.is_file():
        fail(asked, "that is not a file", "the path of a .textproto file")
    try:
        with file.open("rb") as stream:
            content = stream.read(LONGEST + 1)
    except OSError as error:
        fail(asked, f"it cannot be read: {error.strerror}", "its permissions")
    if len(content) > LONGEST:
        fail(
            asked,
            f"it has more than {LONGEST} bytes: that is no descriptor",
            "the path of a .textproto file",
        )
    # protobuf's own reader passes over a byte-order mark too
    return content.decode("utf-8-sig", "replace")


def load_text(text: str, path: str) -> Loaded:
    """Read and check the text of a file; the path's ending says whether it is YAML."""
    name = Path(path).stem.removesuffix("_mesh_graph_descriptor").removesuffix("_graph_descriptor")
    findings: list[Finding] = []
    old = Path(path).suffix.lower() in (".yaml", ".yml")
    if old:
        converted, findings = old_descriptor(text, path)
        if converted is None:
            return Loaded(None, tuple(findings))
        text = converted
    marks = mgd_text.marks_of(text)
    try:
        message = mgd_text.parse(text, marks)
    except mgd_text.Unreadable as error:
        findings.append(
            Finding(
                "error",
                path,
                0 if old else error.line,
                f"Failed to parse MeshGraphDescriptor textproto: {error.what}",
                error.cure,
            )
        )
        return Loaded(None, tuple(findings))
    for line, field_name, near in marks.unknown:
        cure = f"write {near}, or remove it" if near else "remove it"
        findings.append(
            Finding(
                "warning",
                path,
                line,
                f"unknown field '{field_name[:60]}': the real library passes over it without a "
                "word",
                cure,
            )
        )
    report, problems = mgd_rules.check(message)
    for problem in problems:
        line = 0 if old else marks.line(*problem.where)
        findings.append(Finding(problem.severity, path, line, problem.message, problem.cure))
    if any(problem.severity == "error" for problem in problems):
        return Loaded(None, tuple(findings), report)
    lines = (lambda *path: 0) if old else marks.line
    return Loaded(
        _from_message(message, name),
        tuple(findings),
        False,
        lines,
        tuple(part.name for part in message.mesh_descriptors),
    )


def read_descriptor(path: str | os.PathLike[str]) -> MeshGraphDescriptor:
    """The meshes and connections of a descriptor file:

    MGD 2.0 (.textproto), or MGD 1.0 (.yaml), which is converted.

    Args:
        path: the file.

    Raises:
        TTKitError: not there, not readable, or refused by the real library: its messages, each with
        file, line and cure.

    Example:
        >>> read_descriptor("nowhere.textproto")
        Traceback (most recent call last):
        ttkit.errors.TTKitError: read_descriptor('nowhere.textproto'): Custom mesh graph descriptor file not found: nowhere.textproto
          try: an existing file; the working directory is ...
    """
    asked = f"read_descriptor({os.fspath(path)!r})"
    loaded = load_text(read_text(path, asked), os.fspath(path))
    if loaded.descriptor is None:
        refuse(asked, loaded)
    return loaded.descriptor


def refuse(asked: str, loaded: Loaded) -> NoReturn:
    """Fail with the errors of a file: first as the real library words them, then where each is
    and its cure.
    """
    errors = [finding for finding in loaded.findings if finding.severity == "error"]
    messages = [finding.message for finding in errors]
    rule = (
        mgd_rules.REPORT + "".join(f"\n  - {message}" for message in messages)
        if loaded.report
        else "; ".join(messages)
    )
    fail(
        asked,
        rule,
        "\n       ".join(
            f"{finding.place}: {finding.cure or finding.message}" for finding in errors
        ),
    )


def descriptor_path(num_devices: int, generation: str = "newest") -> Path | None:
    """The file that is chosen for a number of devices where TT_MESH_GRAPH_DESC_PATH is not set;

    None for other numbers than 8 and 32.

    Args:
        num_devices: of the whole machine.
        generation: "newest" (grids: 2x4, 8x4) or "older" (lines: 1x8, 1x32), as ttml's
        `enable_fabric` of that time.

    Raises:
        TTKitError: no such generation.

    Example:
        >>> descriptor_path(8, "older").name, descriptor_path(16)
        ('t3000_1x8.textproto', None)
    """
    if generation not in CHOSEN:
        fail(
            f"descriptor_path({num_devices!r}, {generation!r})",
            "no such generation",
            "one of " + ", ".join(CHOSEN),
        )
    name = CHOSEN[generation].get(num_devices)
    return OURS / f"{name}.textproto" if name else None


def descriptor_for(num_devices: int, generation: str = "newest") -> MeshGraphDescriptor | None:
    """The descriptor that is chosen for a number of devices; arguments and None as in
    `descriptor_path`.

    Example:
        >>> descriptor_for(32), descriptor_for(32, "older").meshes[0].device_dims
        (MeshGraphDescriptor(galaxy: 8x4, 32 devices, 1 host), (1, 32))
    """
    path = descriptor_path(num_devices, generation)
    return None if path is None else read_descriptor(path)


def check_descriptor(
    path: str | os.PathLike[str], system: Any = None, mesh_shape: Any = None
) -> list[Finding]:
    """Everything that is wrong or doubtful in a descriptor file, in the order of its lines; an
    empty list is good news.

    Errors are what the real library refuses. Warnings are what it lets pass: unknown fields, graphs
    without links, an architecture that is not the machine's, shapes that open transposed or as a
    snake and may hang in a collective.

    Args:
        path: the file.
        system: the machine to compare with, as `use_system` takes it; the one in use when left out.
        mesh_shape: [rows, columns] that the program will open, when known.

    Example:
        >>> print(*[finding.message for finding in check_descriptor(descriptor_path(8), "t3000", (4, 2))])
        4x2 is opened as the transpose of the 2x4: a collective along an axis may find no route and hang
    """
    from ttkit.hardware.fitting import fit_findings

    asked = f"check_descriptor({os.fspath(path)!r})"
    loaded = load_text(read_text(path, asked), os.fspath(path))
    findings = list(loaded.findings)
    if loaded.descriptor is not None:
        findings += fit_findings(loaded.descriptor, loaded, os.fspath(path), system, mesh_shape)
    return sorted(findings, key=lambda finding: finding.line)


def _dims(message: Any) -> tuple[int, int]:
    rows, columns = message.dims
    return rows, columns


def _from_message(message: Any, name: str) -> MeshGraphDescriptor:
    """The descriptor of a message that passed the rules."""
    templates = {template.name: template for template in message.mesh_descriptors}
    top, graph = message.top_level_instance, None
    if top.HasField("mesh"):
        references = [top.mesh]
    else:
        graph = next(g for g in message.graph_descriptors if g.name == top.graph.graph_descriptor)
        references = [node.mesh for node in graph.instances if node.HasField("mesh")]
    meshes = tuple(
        _instance(reference.mesh_id, templates[reference.mesh_descriptor])
        for reference in references
    )
    pinnings = tuple(_pinning(pinning) for pinning in message.pinnings)
    return MeshGraphDescriptor(
        meshes, tuple(_connections(graph)) if graph is not None else (), pinnings, name
    )


def _instance(mesh_id: int, template: Any) -> MeshInstance:
    topology, channels = template.device_topology, template.channels
    types = [ENUMS["TorusTopology.Type"][t] for t in topology.dim_types]
    types += ["LINE"] * (2 - len(types))
    arch = ENUMS["Architecture"][template.arch]
    dims, hosts = _dims(topology), _dims(template.host_topology)
    return MeshInstance(
        mesh_id,
        template.name,
        arch,
        dims,
        (types[0], types[1]),
        hosts,
        channels.count,
        _policy(channels),
        channels.policy != 0,
    )


def _policy(channels: Any) -> str:
    return "RELAXED" if channels.policy == 2 else "STRICT"


def _connections(graph: Any) -> Iterator[Connection]:
    for pair in mgd_rules.topology_pairs(graph):
        topology = graph.graph_topology
        yield Connection(
            pair,
            topology.channels.count,
            _policy(topology.channels),
            (None, None),
            topology.assign_z_direction,
        )
    for connection in graph.connections:
        a, b = (node.mesh for node in connection.nodes)
        devices = tuple(ref.device_id if ref.HasField("device_id") else None for ref in (a, b))
        ends = (a.mesh_id, b.mesh_id)
        yield Connection(
            ends,
            connection.channels.count,
            _policy(connection.channels),
            devices,
            connection.assign_z_direction,
        )  # type: ignore[arg-type]


def _pinning(pinning: Any) -> Pinning:
    def plain(entries: Any) -> tuple[tuple[tuple[str, int | str], ...], ...]:
        return tuple(
            tuple((field.name, value) for field, value in entry.ListFields()) for entry in entries
        )

    revision = (
        ENUMS["AsicPinning.BoardRevision"][pinning.board_revision]
        if pinning.HasField("board_revision")
        else ""
    )
    return Pinning(
        plain(pinning.logical_fabric_node_id), plain(pinning.physical_asic_position), revision
    )

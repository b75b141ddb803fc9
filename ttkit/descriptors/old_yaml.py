"""Mesh graph descriptors of generation 1.0, in YAML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ttkit.descriptors.descriptor import Connection, MeshGraphDescriptor, MeshInstance
from ttkit.errors import nearest
from ttkit.files import Finding

TYPES = {
    "MESH": ("LINE", "LINE"),
    "TORUS": ("RING", "RING"),
    "TORUS_XY": ("RING", "RING"),
    "TORUS_X": ("LINE", "RING"),
    "TORUS_Y": ("RING", "LINE"),
}

DEEPEST = 50  # lists and mappings in one another; a scan takes the square of their depth

Upper = BeforeValidator(lambda text: str(text).upper())
Count = Annotated[int, Field(ge=0, lt=10**8)]
Pair = tuple[Count, Count]
# a mesh by its number; M0 is the same as 0
MeshId = Annotated[Count, BeforeValidator(lambda text: str(text).removeprefix("M"))]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Chip(_Part):
    arch: Annotated[Literal["WORMHOLE_B0", "BLACKHOLE", "QUASAR"], Upper]
    ethernet_ports: dict[Literal["N", "E", "S", "W"], Count]


class _Board(_Part):
    name: str
    type: Annotated[Literal[tuple(TYPES)], Upper] = "MESH"  # type: ignore[valid-type]
    topology: Pair


class _Mesh(_Part):
    id: MeshId
    board: str
    device_topology: Pair | None = None
    host_topology: Pair = (1, 1)
    host_ranks: Any = None


class _File(_Part):
    ChipSpec: _Chip
    Board: list[_Board] = []
    Mesh: Annotated[list[_Mesh], Field(min_length=1)]
    RelaxedGraph: list[tuple[MeshId, MeshId, Count]] = []


def old_descriptor(text: str, path: str) -> tuple[MeshGraphDescriptor | None, list[Finding]]:
    """Return the descriptor of a text of MGD 1.0, None where it is wrong, and what is wrong.

    MGD 2.0 has one number of links for all sides of a chip: the smallest of the four.

    Example:
        >>> text = '''ChipSpec: {arch: wormhole_b0, ethernet_ports: {N: 2, E: 2, S: 2, W: 2}}
        ... Board: [{name: lbox, type: Mesh, topology: [1, 8]}]
        ... Mesh: [{id: 0, board: lbox, device_topology: [1, 8], host_topology: [1, 1]}]'''
        >>> old_descriptor(text, "mgd.yaml")
        (MeshGraphDescriptor(descriptor: 1x8, 8 devices, 1 host), [])
    """
    root = None
    try:
        root, values = _tree(text)
        old = _File.model_validate(values)
        unknown = list(_unknown_boards(old))
        if not unknown:
            return _converted(old), []
        return None, [_finding(path, root, each) for each in unknown]
    except ValidationError as error:
        return None, [_finding(path, root, each) for each in error.errors()]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what, cure = error.problem or error.context, "look for a missing bracket, comma or quote"
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        line, what, cure = 1, f"{type(error).__name__}: {error}", "close every bracket"
    return None, [Finding("error", path, line, f"not YAML: {what}"[:300], cure)]


class _Loader(yaml.BaseLoader):
    """A loader of lists, mappings and text that refuses deep nesting before it is scanned."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"brackets nest more than {DEEPEST} deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _tree(text: str) -> tuple[Any, Any]:
    """The root node of a YAML text, which has the lines, and its value, where scalars are text.

    The base loader makes lists, mappings and text only, so nothing in a file is executed.
    """
    loader = _Loader(text)
    root = loader.get_single_node()
    return root, None if root is None else loader.construct_document(root)


def _finding(path: str, root: Any, error: Any) -> Finding:
    """One error of pydantic with the line of its key or item."""
    node, name = root, ""
    for name in error["loc"]:
        children: dict[Any, Any] = {}
        if isinstance(node, yaml.MappingNode):
            children = {key.value: value for key, value in node.value}
        elif isinstance(node, yaml.SequenceNode):
            children = dict(enumerate(node.value))
        node = children.get(name, node)
    line = node.start_mark.line + 1 if node is not None else 1
    cure = "add it" if error["type"] == "missing" else ""
    if error["type"] == "extra_forbidden":
        known = {name for part in (_File, _Chip, _Board, _Mesh) for name in part.model_fields}
        cure = (
            f"write {nearest(name, known)}"
            if nearest(name, known)
            else "remove it, or use .textproto"
        )
    where = ".".join(map(str, error["loc"]))[:200]
    return Finding("error", path, line, f"{where}: {error['msg']}", cure)


def _unknown_boards(old: _File) -> Iterator[dict[str, Any]]:
    """Errors, as pydantic has them, for boards that are not listed."""
    known = [board.name for board in old.Board]
    for i, mesh in enumerate(old.Mesh):
        if mesh.board not in known:
            rule = f"no board has the name {mesh.board[:60]!r}; known: {', '.join(known)[:200]}"
            yield {"loc": ("Mesh", i, "board"), "msg": rule, "type": "unknown"}


def _converted(old: _File) -> MeshGraphDescriptor:
    boards = {board.name: board for board in old.Board}
    kinds: list[tuple[Any, ...]] = []
    meshes = []
    channels = min(old.ChipSpec.ethernet_ports.values(), default=0)
    for mesh in old.Mesh:
        board = boards[mesh.board]
        kind = (mesh.device_topology or board.topology, TYPES[board.type], mesh.host_topology)
        kinds += [] if kind in kinds else [kind]
        name = f"M{kinds.index(kind)}"
        meshes.append(MeshInstance(mesh.id, name, old.ChipSpec.arch, *kind, channels, "STRICT"))
    connections = [Connection((a, b), count, "RELAXED") for a, b, count in old.RelaxedGraph]
    return MeshGraphDescriptor(tuple(meshes), tuple(connections))

"""Mesh graph descriptors in the YAML format of version 1.0 (MGD 1.0)."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from ttkit.descriptors.descriptor import Connection, MeshGraphDescriptor, MeshInstance
from ttkit.files import Finding, parse_yaml

TYPES = {
    "MESH": ("LINE", "LINE"),
    "TORUS": ("RING", "RING"),
    "TORUS_XY": ("RING", "RING"),
    "TORUS_X": ("LINE", "RING"),
    "TORUS_Y": ("RING", "LINE"),
}
CURE = "write it as MGD 1.0 has it, or use .textproto"

Upper = BeforeValidator(lambda text: str(text).upper())
Count = Annotated[int, Field(ge=0)]
Pair = tuple[Count, Count]
# A file may write the id 0 as M0.
MeshId = Annotated[Count, BeforeValidator(lambda text: str(text).removeprefix("M"))]


class _Part(BaseModel, extra="forbid"):
    """A part of a file. A key that is not a field of the part's class is an error."""


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
    """Return the descriptor that an MGD 1.0 text describes (None if it has errors), and its errors.

    Raises:
        TTKitError: the text is not YAML.

    MGD 1.0 has a number of links for each of the four sides of a chip. MGD 2.0 has one number for
    all sides, so the descriptor gets the smallest of the four.

    Example:
        >>> text = '''ChipSpec: {arch: wormhole_b0, ethernet_ports: {N: 2, E: 2, S: 2, W: 2}}
        ... Board: [{name: lbox, type: Mesh, topology: [1, 8]}]
        ... Mesh: [{id: 0, board: lbox, device_topology: [1, 8], host_topology: [1, 1]}]'''
        >>> old_descriptor(text, "mgd.yaml")
        (MeshGraphDescriptor(descriptor: 1x8, 8 devices, 1 host), [])
    """
    document = parse_yaml(text, path, "mesh graph descriptor")
    try:
        old = _File.model_validate(document.value)
    except ValidationError as error:
        return None, [
            document.finding(
                fault["loc"], f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}", CURE
            )
            for fault in error.errors()
        ]
    boards = {board.name: board for board in old.Board}
    kinds: dict[Any, str] = {}  # Meshes of the same kind share a name.
    meshes = []
    channels = min(old.ChipSpec.ethernet_ports.values(), default=0)
    for i, mesh in enumerate(old.Mesh):
        if mesh.board not in boards:
            return None, [
                document.finding(
                    ("Mesh", i, "board"),
                    f"no board has the name {mesh.board!r}; known: {', '.join(boards)}",
                    CURE,
                )
            ]
        board = boards[mesh.board]
        kind = (mesh.device_topology or board.topology, TYPES[board.type], mesh.host_topology)
        name = kinds.setdefault(kind, f"M{len(kinds)}")
        meshes.append(MeshInstance(mesh.id, name, old.ChipSpec.arch, *kind, channels, "STRICT"))
    connections = [Connection((a, b), count, "RELAXED") for a, b, count in old.RelaxedGraph]
    return MeshGraphDescriptor(tuple(meshes), tuple(connections)), []

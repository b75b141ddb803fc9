"""Mesh graph descriptors of generation 1.0, in YAML: turned into the text of MGD 2.0.

Only the tree of nodes is made, never Python objects, so that nothing in a file is executed, and
each node knows its line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from ttkit.errors import Finding, nearest

KEYS = ("ChipSpec", "Board", "Mesh", "RelaxedGraph", "Graph")
TYPES = {
    "MESH": ("LINE", "LINE"),
    "TORUS": ("RING", "RING"),
    "TORUS_XY": ("RING", "RING"),
    "TORUS_X": ("LINE", "RING"),
    "TORUS_Y": ("RING", "LINE"),
}
DEEPEST = 50


class Wrong(Exception):
    """Something in the file that cannot be converted: the node, what is wrong, the cure."""

    def __init__(self, node: Any, message: str, cure: str):
        super().__init__(message)
        self.line, self.message, self.cure = line_of(node), message, cure


def line_of(node: Any) -> int:
    """The line of a node, counted from 1."""
    return node.start_mark.line + 1 if node is not None else 1


def tree(text: str) -> Any:
    """The root node of a YAML text; None where it is empty.

    Raises:
        yaml.YAMLError, RecursionError, ValueError: not YAML.
    """
    depth = 0
    # the parser's time grows with the square of the depth
    for mark in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if mark in "[{" else max(0, depth - 1)
        if depth > DEEPEST:
            raise RecursionError(f"brackets nest more than {DEEPEST} deep")
    return yaml.compose(text, Loader=yaml.SafeLoader)


@dataclass(frozen=True)
class _Reader:
    path: str
    findings: list[Finding]

    def mapping(self, node: Any, what: str, known: tuple[str, ...]) -> dict[str, Any]:
        """The values of a mapping by key; unknown keys are reported."""
        if not isinstance(node, yaml.MappingNode):
            raise Wrong(
                node, f"{what} must be a mapping with {', '.join(known)}", f"{{ {known[0]}: ... }}"
            )
        values = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            if name in known:
                values[name] = value
            else:
                near = nearest(name, known)
                cure = f"write {near}" if near else "remove it"
                self.findings.append(
                    Finding(
                        "warning",
                        self.path,
                        line_of(key),
                        f"unknown key '{name[:60]}' in {what}",
                        cure,
                    )
                )
        return values

    @staticmethod
    def items(node: Any, what: str, length: int = 0) -> list[Any]:
        """The nodes of a list."""
        if not isinstance(node, yaml.SequenceNode) or (length and len(node.value) != length):
            raise Wrong(
                node,
                f"{what} must be a list" + (f" of {length}" if length else ""),
                "[" + ", ".join("..." * (length or 1)) + "]",
            )
        return node.value

    @staticmethod
    def word(node: Any, what: str) -> str:
        """A scalar's text."""
        if not isinstance(node, yaml.ScalarNode):
            raise Wrong(node, f"{what} must be a word", "one word")
        return node.value[:200]

    def number(self, node: Any, what: str) -> int:
        """A scalar that is a small whole number; a leading M, as in M0, is allowed."""
        text = self.word(node, what).removeprefix("M")
        if not (text.isascii() and text.isdigit() and len(text) < 9):
            raise Wrong(
                node,
                f"{what} must be a whole number, not {self.word(node, what)[:40]!r}",
                "0, 1, 2, ...",
            )
        return int(text)

    def pair(self, node: Any, what: str) -> tuple[int, int]:
        """Two numbers."""
        rows, columns = (self.number(n, what) for n in self.items(node, what, 2))
        return rows, columns


def old_descriptor(text: str, path: str) -> tuple[str | None, list[Finding]]:
    """The text of MGD 2.0 for a text of MGD 1.0, and what was found;

    None for the text where there are errors.

    Example:
        >>> text = '''ChipSpec: {arch: wormhole_b0, ethernet_ports: {N: 2, E: 2, S: 2, W: 2}}
        ... Board: [{name: lbox, type: Mesh, topology: [1, 8]}]
        ... Mesh: [{id: 0, board: lbox, device_topology: [1, 8], host_topology: [1, 1]}]'''
        >>> print(old_descriptor(text, "mgd.yaml")[0].splitlines()[3].strip())
        device_topology { dims: [ 1, 8 ] dim_types: [ LINE, LINE ] }
    """
    reader = _Reader(path, [])
    try:
        root = tree(text)
        converted = _convert(reader, root)
    except Wrong as wrong:
        reader.findings.append(Finding("error", path, wrong.line, wrong.message, wrong.cure))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        reader.findings.append(
            Finding(
                "error",
                path,
                line,
                f"not YAML: {error.problem or error.context}"[:300],
                "look for a missing bracket, comma or quote",
            )
        )
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reader.findings.append(
            Finding(
                "error",
                path,
                1,
                f"not YAML: {type(error).__name__}: {error}"[:300],
                "plain text; brackets that are closed",
            )
        )
    else:
        return converted, reader.findings
    return None, reader.findings


def _convert(reader: _Reader, root: Any) -> str:
    from ttkit.descriptors.write import descriptor_text, mesh_text

    parts = reader.mapping(root, "a descriptor of MGD 1.0", KEYS)
    for key in ("ChipSpec", "Mesh"):
        if key not in parts:
            raise Wrong(root, f"there is no {key}", f"add {key}, or use the .textproto format")
    arch, channels = _chip(reader, parts["ChipSpec"])
    boards = {}
    for node in reader.items(parts["Board"], "Board") if "Board" in parts else []:
        board = reader.mapping(node, "a board", ("name", "type", "topology"))
        boards[reader.word(board.get("name"), "a board's name") if "name" in board else ""] = board
    meshes = [_mesh(reader, node, boards) for node in reader.items(parts["Mesh"], "Mesh")]
    kinds = list(dict.fromkeys(shape for _, shape in meshes))
    names = {mesh_id: f"M{kinds.index(shape)}" for mesh_id, shape in meshes}
    texts = [
        mesh_text(f"M{i}", arch, dims, types, hosts, channels, "STRICT")
        for i, (dims, types, hosts) in enumerate(kinds)
    ]
    connections = [
        (names, pair, count, policy) for pair, count, policy in _connections(reader, parts)
    ]
    for _, pair, _, _ in connections:
        if not set(pair) <= set(names):
            raise Wrong(
                parts.get("RelaxedGraph", parts.get("Graph")),
                f"Mesh instance id {max(set(pair) - set(names))} not found",
                f"one of {sorted(names)}",
            )
    return descriptor_text(
        texts,
        [(mesh_id, names[mesh_id]) for mesh_id, _ in meshes],
        [(p, n, q, (None, None), False) for _, p, n, q in connections],
    )


def _chip(reader: _Reader, node: Any) -> tuple[str, int]:
    chip = reader.mapping(node, "ChipSpec", ("arch", "ethernet_ports"))
    if "arch" not in chip:
        raise Wrong(node, "ChipSpec has no arch", "arch: wormhole_b0")
    arch = reader.word(chip["arch"], "arch").upper()
    if arch not in ("WORMHOLE_B0", "BLACKHOLE", "QUASAR"):
        raise Wrong(
            chip["arch"],
            f"no architecture is called {arch.lower()[:40]!r}",
            "wormhole_b0 or blackhole",
        )
    if "ethernet_ports" not in chip:
        raise Wrong(
            node, "ChipSpec has no ethernet_ports", "ethernet_ports: {N: 2, E: 2, S: 2, W: 2}"
        )
    ports = {
        side: reader.number(n, "a count of ports")
        for side, n in reader.mapping(
            chip["ethernet_ports"], "ethernet_ports", tuple("NESW")
        ).items()
    }
    if len(set(ports.values())) > 1:
        message = (
            f"the sides have different numbers of ports: {ports}; MGD 2.0 has one number, "
            "the smallest is taken"
        )
        reader.findings.append(
            Finding(
                "warning",
                reader.path,
                line_of(chip["ethernet_ports"]),
                message,
                "the same number on each side",
            )
        )
    return arch, min(ports.values(), default=0)


def _mesh(
    reader: _Reader, node: Any, boards: dict[str, dict[str, Any]]
) -> tuple[int, tuple[Any, ...]]:
    mesh = reader.mapping(
        node, "a mesh", ("id", "board", "device_topology", "host_topology", "host_ranks")
    )
    for key in ("id", "board"):
        if key not in mesh:
            raise Wrong(node, f"a mesh has no {key}", f"add {key}")
    name = reader.word(mesh["board"], "board")
    if name not in boards:
        known = ", ".join(sorted(boards)) or "none"
        raise Wrong(
            mesh["board"],
            f"no board has the name {name[:60]!r}; known: {known[:200]}",
            f"add {{ name: {name[:60]}, type: Mesh, topology: [2, 4] }} to Board",
        )
    board = boards[name]
    kind = reader.word(board["type"], "a board's type").upper() if "type" in board else "MESH"
    if kind not in TYPES:
        raise Wrong(board["type"], f"no board has the type {kind[:40]!r}", "Mesh or Torus")
    dims = mesh.get("device_topology", board.get("topology"))
    hosts = (
        reader.pair(mesh["host_topology"], "host_topology") if "host_topology" in mesh else (1, 1)
    )
    return reader.number(mesh["id"], "id"), (
        reader.pair(dims, "device_topology"),
        TYPES[kind],
        hosts,
    )


def _connections(
    reader: _Reader, parts: dict[str, Any]
) -> Iterator[tuple[tuple[int, int], int, str]]:
    for node in (
        reader.items(parts["RelaxedGraph"], "RelaxedGraph") if "RelaxedGraph" in parts else []
    ):
        a, b, count = (
            reader.number(n, "a mesh and a count of links, as in [M0, M1, 2],")
            for n in reader.items(node, "a row of RelaxedGraph", 3)
        )
        yield (a, b), count, "RELAXED"
    # A row of Graph is one link seen from one end, [[0, E0], [1, W0]]; the other end's view is a
    # row of its own.
    seen: Counter[tuple[int, int]] = Counter()
    for node in reader.items(parts["Graph"], "Graph") if "Graph" in parts else []:
        a, b = (
            reader.number(reader.items(end, "an end of a link", 2)[0], "a mesh")
            for end in reader.items(node, "a row of Graph", 2)
        )
        seen[a, b] += 1
    for a, b in sorted({(min(pair), max(pair)) for pair in seen}):
        yield (a, b), max(seen[a, b], seen[b, a]), "STRICT"

"""YAML, JSON and text files that strangers wrote, read safely and with the line of everything in
them; files found by name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ttkit.errors import Finding, fail, nearest

# room for the bindings of 1,500 ranks; PyYAML takes 5 s for the worst file of this size
MAX_BYTES = 1 << 18
MAX_NODES = 50_000  # of YAML, with every alias counted as often as it is used
MAX_DEPTH = 50  # of YAML; a file of these kinds has four levels

Where = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A YAML file as plain Python values, with the line of each key and item.

    `at("rank_bindings", 1, "rank")` is the line of that key; where it is not there, the line of the
    nearest thing around it. `plain` holds what stands without quotes, as it is written: YAML 1.1
    reads 1:30 as 90 and 010 as 8. `twice` holds the keys that a mapping has more than once."""

    path: Path
    value: Any
    lines: Mapping[Where, tuple[int, int]]  # and columns, from 1
    plain: Mapping[Where, str]
    twice: tuple[tuple[int, str], ...]

    def at(self, *where: str | int) -> int:
        return self.place(*where)[0]

    def place(self, *where: str | int) -> tuple[int, int]:
        """The line of `at`, and the column."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, (1, 1))


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """The text of a small UTF-8 file.

    Raises:
        TTKitError: not there, not a file, too big, or not text.
    """
    asked = f"read {what} {path}"
    try:
        if not os.path.isfile(path):
            fail(
                asked,
                f"{what} not found: {path}",
                "check the path; relative paths start at the folder you are in",
            )
        if os.path.getsize(path) > MAX_BYTES:
            fail(
                asked,
                f"it has {os.path.getsize(path):,} bytes, more than {MAX_BYTES:,}",
                "is it the right file?",
            )
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        fail(asked, f"byte {error.start} is not UTF-8 text", "save it as plain text")
    except (OSError, ValueError) as error:
        fail(asked, f"it cannot be opened: {error}", "check the path and its permissions")


class _Loader(yaml.SafeLoader):
    """The safe loader, which stops at files made to keep it busy."""

    depth = nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        self.nodes += 1
        if self.depth > MAX_DEPTH or self.nodes > MAX_NODES:
            fail(
                f"line {self.get_mark().line + 1}",
                f"it is nested deeper than {MAX_DEPTH} levels or has more than {MAX_NODES:,} "
                "values",
                "is it the right file?",
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node.

        PyYAML lets a number, date or switch that is none end in errors that name no line.
        """
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, LookupError, ValueError) as error:
            if not isinstance(node, yaml.ScalarNode):
                raise
            kind = node.tag.rpartition(":")[2]
            rule = (
                f"{node.value[:40]!r} cannot be read as {kind}; put quotes around it if it is text"
            )
            raise yaml.constructor.ConstructorError(None, None, rule, node.start_mark) from error


def read_yaml(path: str | os.PathLike[str], what: str) -> Document:
    """A YAML file read with the safe loader: only numbers, text, lists and mappings come back,
    nothing is run.

    Raises:
        TTKitError: as read_text; not YAML; or aliases that unfold to more than MAX_NODES nodes.
    """
    text = read_text(path, what)
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return Document(Path(path), None, {}, {}, ())
        unfolded_size(node, {})
        twice = tuple(repeated_keys(node))
        value = loader.construct_document(node)
        lines: dict[Where, tuple[int, int]] = {}
        plain: dict[Where, str] = {}
        _note_places(node, (), lines, plain)
        return Document(Path(path), value, lines, plain, twice)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        fail(
            f"read {what} {place}",
            f"malformed YAML: {error.problem or error.context}",
            "look at that line and the one above it: indentation, colons, quotes",
        )
    # SafeLoader lets ValueError, IndexError and others through, for dates and numbers that are none
    except Exception as error:
        if getattr(error, "ours", False):
            rule, _, cure = str(error).partition("\n  try: ")
            fail(f"read {what} {path}", rule, cure)
        fail(
            f"read {what} {path}",
            f"malformed YAML: {error}",
            "put quotes around values that are text",
        )
    finally:
        if loader:
            loader.dispose()


def unfolded_size(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes a node holds when every alias is written out; refuses what holds itself or
    more than MAX_NODES.
    """
    if id(node) not in known:
        known[id(node)] = MAX_NODES  # until counted: a node that holds itself is too big
        size = 1
        for child in _children(node):
            size += unfolded_size(child, known)
            if size >= MAX_NODES:
                fail(
                    f"line {node.start_mark.line + 1}",
                    f"aliases unfold to {MAX_NODES:,} values or more",
                    "write the values out",
                )
        known[id(node)] = size
    return known[id(node)]


def _children(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def repeated_keys(node: yaml.Node, depth: int = 0) -> Iterable[tuple[int, str]]:
    """(line, key) of each key that its mapping has had before.

    Must run before the loader merges `<<` keys in.
    """
    seen = set()
    if isinstance(node, yaml.MappingNode):
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                    yield key.start_mark.line + 1, key.value
                seen.add(key.value)
    if depth < 4:
        for child in _children(node):
            yield from repeated_keys(child, depth + 1)


def _start(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _note_places(
    node: yaml.Node, where: Where, lines: dict[Where, tuple[int, int]], plain: dict[Where, str]
) -> None:
    lines.setdefault(where, _start(node))
    if isinstance(node, yaml.ScalarNode) and node.style is None:
        plain[where] = node.value
    if len(where) == 4:
        return
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            there = (*where, key.value if isinstance(key, yaml.ScalarNode) else "?")
            lines[there] = _start(key)
            _note_places(child, there, lines, plain)
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            _note_places(child, (*where, index), lines, plain)


def read_json(path: str | os.PathLike[str], what: str) -> Any:
    """A JSON file as plain Python values.

    Raises:
        TTKitError: as read_text, or not JSON.
    """
    text = read_text(path, what)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        fail(
            f"read {what} {path}:{error.lineno}",
            f"malformed JSON: {error.msg}",
            "look at that line and the one above it: commas, quotes, brackets",
        )
    except (ValueError, RecursionError) as error:
        fail(
            f"read {what} {path}",
            f"malformed JSON: {error}",
            "a file of this kind has three levels and small numbers",
        )


def did_you_mean(
    name: object, known: Iterable[str], renamed: Mapping[str, str] | None = None
) -> str:
    """ "did you mean 'x'?" for a name that is not known, or "" when nothing is near.

    Example:
        >>> did_you_mean("mesh_idd", ["rank", "mesh_id"])
        "did you mean 'mesh_id'?"
    """
    close = (renamed or {}).get(str(name)) or nearest(name, known)
    return f"did you mean '{close}'?" if close else ""


def find_file(
    path: str | os.PathLike[str],
    what: str,
    near: Path | None = None,
    must_exist: bool = True,
    asked: str = "",
) -> Path:
    """The absolute path of a file that a configuration names.

    An absolute path is taken as it is. A relative one is looked for where tt-run looks, in
    $TT_METAL_HOME and in the folder that the program was started in, and then, which tt-run does
    not, in the folder `near` (that of the file that names it) and the folders above it, so that a
    configuration works from anywhere.

    Raises:
        TTKitError: not found, with tt-run's words.
    """
    asked = asked or f"look for the {what[0].lower()}{what[1:]}"
    if len(str(path)) > 1000:
        fail(
            asked,
            f"{what} not found: {str(path)[:60]}..., a name of {len(str(path))} characters",
            "check the path",
        )
    try:
        wanted = Path(path).expanduser()
        home = os.environ.get("TT_METAL_HOME")
        places = [*([Path(home).expanduser()] if home else []), Path.cwd().resolve()]
        if wanted.is_absolute():
            if wanted.is_file() or not must_exist:
                return wanted.resolve()
            fail(asked, f"{what} not found: {wanted.resolve()}", "check the path")
        for place in [*places, *([near.resolve(), *near.resolve().parents] if near else [])]:
            if (place / wanted).is_file():
                return (place / wanted).resolve()
        if not must_exist:
            return (Path.cwd() / wanted).resolve()
    # a name that cannot be a path; ~ of a user who is not there
    except (OSError, ValueError, RuntimeError) as error:
        if getattr(error, "ours", False):
            raise
        fail(asked, f"{what} not found: {path}: {error}", "check the path")
    searched = [str(place) for place in places] + ([f"{near.resolve()} and above"] if near else [])
    tip = "Use an absolute path or ensure the file exists relative to the launch directory."
    fail(
        asked,
        f"{what} not found: {path}\nSearched in: {searched}\nTip: {tip}",
        f"cd to the folder that '{path}' starts from",
    )


def fail_with(asked: str, head: Callable[[int], str], findings: Iterable[Finding]) -> NoReturn:
    """Raise one error that holds all findings of severity error;

    `head` makes its first line from their number.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    lines = [f"\n{finding.place}: {finding.message}\n  try: {finding.cure}" for finding in errors]
    fail(asked, head(len(errors)) + "".join(lines))

"""Files of a cluster found by name, read safely, with the line and column of everything in them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ttkit.errors import fail, nearest
from ttkit.files import Finding

# room for the bindings of 1,500 ranks; PyYAML takes 5 s for the worst file of this size
MAX_BYTES = 1 << 18
MAX_NODES = 50_000  # of YAML, with every alias counted as often as it is used
MAX_DEPTH = 50  # of YAML; a file of these kinds has four levels

DEPTH = 4  # of keys and items whose places are noted
BINDINGS = "rank_bindings.yaml"
HOSTS = ("hosts.txt", "hosts.json")
RANKFILES = ("rankfile.txt", "rankfile")

Where = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A YAML file as plain Python values, with the line of each key and item.

    `at("rank_bindings", 1, "rank")` is the line of that key, or of the nearest value around it.
    `plain` holds what has no quotes, as it is written: YAML 1.1 reads 1:30 as 90 and 010 as 8.
    `twice` holds the keys that a mapping has more than once.
    """

    path: Path
    value: Any
    lines: dict[Where, tuple[int, int]]  # and columns, from 1
    plain: dict[Where, str]
    twice: list[tuple[int, str]]

    def at(self, *where: str | int) -> int:
        return self.place(*where)[0]

    def place(self, *where: str | int) -> tuple[int, int]:
        """Return the line of `at` and the column."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, (1, 1))


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """Read the text of a small UTF-8 file.

    Raises:
        TTKitError: not there, not a file, too big, or not text.
    """
    asked = f"read {what} {path}"
    try:
        if not os.path.isfile(path):
            cure = "check the path; relative paths start at the current folder"
            fail(asked, f"{what} not found: {path}", cure)
        if (size := os.path.getsize(path)) > MAX_BYTES:
            fail(asked, f"it has {size:,} bytes, more than {MAX_BYTES:,}", "is it the right file?")
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        fail(asked, f"byte {error.start} is not UTF-8 text", "save it as plain text")
    except (OSError, ValueError) as error:
        fail(asked, f"it cannot be opened: {error}", "check the path and its permissions")


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses files made to exhaust it."""

    depth = nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        self.nodes += 1
        if self.depth > MAX_DEPTH or self.nodes > MAX_NODES:
            rule = f"it is nested deeper than {MAX_DEPTH} levels or has more than {MAX_NODES:,} "
            fail(f"line {self.get_mark().line + 1}", rule + "values", "is it the right file?")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node; name its line where PyYAML cannot convert it."""
        try:
            if isinstance(node, yaml.ScalarNode):
                node.value.encode()  # an escape may be half of a character, which no text holds
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
    """Read a YAML file with the safe loader: nothing in it is run.

    Raises:
        TTKitError: as read_text; not YAML; or aliases that unfold to more than MAX_NODES nodes.
    """
    text = read_text(path, what)
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return Document(Path(path), None, {}, {}, [])
        unfolded_size(node, {})
        document = Document(Path(path), None, {}, {}, [])
        _note(document, node, ())  # before the loader merges `<<` keys in
        return replace(document, value=loader.construct_document(node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        cure = "look at that line and the one above it: indentation, colons, quotes"
        fail(f"read {what} {place}", f"malformed YAML: {error.problem or error.context}", cure)
    # SafeLoader lets ValueError, IndexError and others through, for dates and numbers that are none
    except Exception as error:
        rule, cure = f"malformed YAML: {error}", "put quotes around values that are text"
        if getattr(error, "ours", False):
            rule, _, cure = str(error).partition("\n  try: ")
        fail(f"read {what} {path}", rule, cure)
    finally:
        if loader:
            loader.dispose()


def unfolded_size(node: yaml.Node, known: dict[int, int]) -> int:
    """Count a node's nodes with every alias written out; refuse more than MAX_NODES."""
    if id(node) not in known:
        known[id(node)] = MAX_NODES  # until counted: a node that holds itself is too big
        size = 1
        for child in _children(node):
            size += unfolded_size(child, known)
            if size >= MAX_NODES:
                rule = f"aliases unfold to {MAX_NODES:,} values or more"
                fail(f"line {node.start_mark.line + 1}", rule, "write the values out")
        known[id(node)] = size
    return known[id(node)]


def _children(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _note(document: Document, node: yaml.Node, where: Where) -> None:
    """Note the places of a node and of what is in it, its plain values and repeated keys."""

    def place(node: yaml.Node) -> tuple[int, int]:
        return node.start_mark.line + 1, node.start_mark.column + 1

    document.lines.setdefault(where, place(node))
    if isinstance(node, yaml.ScalarNode) and node.style is None:
        document.plain[where] = node.value
    if len(where) == DEPTH:
        return
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            if (*where, name) in document.lines and name not in ("?", "<<"):
                document.twice.append((place(key)[0], name))
            document.lines[(*where, name)] = place(key)
            _note(document, child, (*where, name))
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            _note(document, child, (*where, index))


def read_json(path: str | os.PathLike[str], what: str) -> Any:
    """Read a JSON file as plain Python values.

    Raises:
        TTKitError: as read_text, or not JSON.
    """
    text = read_text(path, what)
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # refuses halves of characters
        return value
    except json.JSONDecodeError as error:
        cure = "look at that line and the one above it: commas, quotes, brackets"
        fail(f"read {what} {path}:{error.lineno}", f"malformed JSON: {error.msg}", cure)
    except (ValueError, RecursionError) as error:
        cure = "a file of this kind has three levels and small numbers"
        fail(f"read {what} {path}", f"malformed JSON: {error}", cure)


def did_you_mean(
    name: object, known: Iterable[str], renamed: Mapping[str, str] | None = None
) -> str:
    """Return "did you mean 'x'?" for an unknown name, or "" where no known name is near.

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
    asked: str = "",
) -> Path:
    """Return the absolute path of a file that a configuration names.

    A relative path is searched for where tt-run searches, in $TT_METAL_HOME and the current folder,
    and then, unlike tt-run, in the folder `near` (of the file that names it) and those above it, so
    that a configuration works from anywhere.

    Raises:
        TTKitError: not found, in tt-run's words.
    """
    asked = asked or f"look for the {what[0].lower()}{what[1:]}"
    try:
        wanted = Path(path).expanduser()
        if wanted.is_absolute():
            if wanted.is_file():
                return wanted.resolve()
            fail(asked, f"{what} not found: {wanted.resolve()}", "check the path")
        home = os.environ.get("TT_METAL_HOME")
        places = [*([Path(home).expanduser()] if home else []), Path.cwd().resolve()]
        for place in [*places, *([near.resolve(), *near.resolve().parents] if near else [])]:
            if (place / wanted).is_file():
                return (place / wanted).resolve()
    # a name that cannot be a path; ~ of an unknown user
    except (OSError, ValueError, RuntimeError) as error:
        if getattr(error, "ours", False):
            raise
        fail(asked, f"{what} not found: {str(path)[:60]}: {str(error)[:60]}", "check the path")
    searched = [str(place) for place in places] + ([f"{near.resolve()} and above"] if near else [])
    tip = "Use an absolute path or ensure the file exists relative to the launch directory."
    fail(
        asked,
        f"{what} not found: {path}\nSearched in: {searched}\nTip: {tip}",
        f"cd to the folder that '{path}' starts from",
    )


def fail_with(asked: str, head: Callable[[int], str], findings: Iterable[Finding]) -> NoReturn:
    """Raise one error with all findings that are errors, below a head made of their number."""
    errors = [finding for finding in findings if finding.severity == "error"]
    lines = [f"\n{finding.place}: {finding.message}\n  try: {finding.cure}" for finding in errors]
    fail(asked, head(len(errors)) + "".join(lines))


@dataclass(frozen=True)
class Config:
    """The files of a configuration folder; None where it has no such file."""

    folder: Path
    bindings: Path | None
    hosts: Path | None
    rankfile: Path | None


def find_config(folder: str | os.PathLike[str], or_else: bool = False) -> Config:
    """Return the files of a configuration folder.

    Args:
        or_else: accept a folder with neither bindings nor hosts.

    Raises:
        TTKitError: no folder, or one with neither bindings nor hosts.

    Example:
        >>> config = find_config("configs/3nodes")
        >>> config.bindings, config.hosts.name
        (None, 'hosts.json')
    """
    path = Path(os.path.expanduser(folder))
    asked = f"open the configuration {folder}"
    if not os.path.isdir(path):
        beside = path.parent.iterdir() if os.path.isdir(path.parent) else ()
        near = sorted(each.name for each in beside if each.is_dir())[:12]
        cure = f"one of {', '.join(near)}" if near else "check the path"
        fail(asked, "there is no such folder", cure)

    def first(*names: str) -> Path | None:
        return next((path / name for name in names if os.path.isfile(path / name)), None)

    config = Config(path, first(BINDINGS), first(*HOSTS), first(*RANKFILES))
    if not (config.bindings or config.hosts or or_else):
        rule = f"it has neither {BINDINGS} nor hosts.txt or hosts.json"
        fail(asked, rule, "add one; configs/README.md describes it")
    return config

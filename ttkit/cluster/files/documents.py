"""Files of a cluster found by name and read, with the line and column of everything in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ttkit.errors import fail, nearest
from ttkit.files import Finding

Where = tuple[str | int, ...]


@dataclass
class Document:
    """A YAML file as plain Python values, with the line and column of each key and item.

    `at("rank_bindings", 1, "rank")` is the line of that key, or of the nearest value around it.
    `twice` holds the places of keys that a mapping has more than once.
    """

    path: Path
    value: Any = None
    places: dict[Where, tuple[int, int]] = field(
        default_factory=dict
    )  # Lines and columns count from 1.
    twice: list[Where] = field(default_factory=list)

    def place(self, *where: str | int) -> tuple[int, int]:
        """Return line and column."""
        while where and where not in self.places:
            where = where[:-1]
        return self.places.get(where, (1, 1))

    def at(self, *where: str | int) -> int:
        return self.place(*where)[0]

    def finding(self, where: Where, rule: str, cure: str, severity: str = "error") -> Finding:
        line, column = self.place(*where)
        return Finding(severity, str(self.path), line, rule, cure, column)


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """Read the text of a UTF-8 file.

    Raises:
        TTKitError: not there, not a file, or not text.
    """
    asked = f"read {what} {path}"
    if not os.path.isfile(path):
        cure = "check the path; relative paths start at the current folder"
        fail(asked, f"{what} not found: {path}", cure)
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        fail(asked, f"byte {error.start} is not UTF-8 text", "save it as plain text")
    except OSError as error:
        fail(asked, f"it cannot be opened: {error.strerror}", "check its permissions")


def read_yaml(path: str | os.PathLike[str], what: str) -> Document:
    """Read a YAML file with the safe loader: nothing in it is run.

    Raises:
        TTKitError: as read_text, or not YAML.
    """
    document = Document(Path(path))
    asked, cure = f"read {what} {path}", "put quotes around values that are text"
    try:
        loader = yaml.SafeLoader(read_text(path, what))
        if node := loader.get_single_node():
            _note(document, node, ())  # The loader then merges `<<` keys in.
            document.value = loader.construct_document(node)
        return document
    except yaml.MarkedYAMLError as error:
        if mark := error.problem_mark or error.context_mark:
            asked += f":{mark.line + 1}"
        cure = "look at that line and the one above it: indentation, colons, quotes"
        fail(asked, f"malformed YAML: {error.problem or error.context}", cure)
    except (yaml.YAMLError, ValueError) as error:
        fail(asked, f"malformed YAML: {error}", cure)


def _note(document: Document, node: yaml.Node, where: Where) -> None:
    """Note the places of a node and of what is in it, and keys that repeat."""

    def place(node: yaml.Node) -> tuple[int, int]:
        return node.start_mark.line + 1, node.start_mark.column + 1

    document.places.setdefault(where, place(node))
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            inside = (*where, str(key.value))
            if inside in document.places and key.value != "<<":
                document.twice.append(inside)
            document.places[inside] = place(key)
            _note(document, child, inside)
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            _note(document, child, (*where, index))


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
    wanted = Path(path).expanduser()
    if wanted.is_absolute():
        if wanted.is_file():
            return wanted.resolve()
        fail(asked, f"{what} not found: {wanted.resolve()}", "check the path")
    home = os.environ.get("TT_METAL_HOME")
    folders = [*([Path(home).expanduser()] if home else []), Path.cwd().resolve()]
    searched = [str(folder) for folder in folders]
    if near:
        folders += [near.resolve(), *near.resolve().parents]
        searched.append(f"{near.resolve()} and above")
    for folder in folders:
        if (folder / wanted).is_file():
            return (folder / wanted).resolve()
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

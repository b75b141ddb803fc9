"""The text of a mesh graph descriptor: protobuf's text format read into messages, with the line
of every field.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import text_format

from ttkit.descriptors.schema import ENUMS, MESSAGES, message_classes
from ttkit.errors import nearest

Path = tuple[str | int, ...]
ROOT = "MeshGraphDescriptor"
DEEPEST = 50  # no descriptor nests deeper than ten; the parser recurses
_TOKEN = re.compile(
    r"""(?P<skip>[^\S\n]+|\#[^\n]*)|(?P<line>\n)|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<word>[\w.+-]+)|(?P<mark>.)""",
    re.X,
)


@dataclass
class Marks:
    """Where things stand in a text: the line of each field by its path, and the fields that the
    schema does not have.
    """

    lines: dict[Path, int] = field(default_factory=dict)
    # line, field, the nearest known field or ""
    unknown: list[tuple[int, str, str]] = field(default_factory=list)
    depth: int = 0

    def line(self, *path: str | int) -> int:
        """The line of the field at `path`, or of the nearest message around it that is there."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return 1


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "line":
            line += 1
        elif kind != "skip":
            yield kind, match[0], line


def marks_of(text: str) -> Marks:
    """Walk through a text without understanding its values; any text goes, also a broken one.

    Example:
        >>> marks = marks_of('mesh_descriptors {\\n  name: "M0"\\n  chanels { count: 2 }\\n}')
        >>> marks.line("mesh_descriptors", 0, "name"), marks.unknown
        (2, [(3, 'chanels', 'channels')])
    """
    marks = Marks()
    # message type ("" where unknown), path, repeated so far
    stack: list[tuple[str, Path, Counter[str]]] = [(ROOT, (), Counter())]
    name, brackets = "", 0  # the field whose value comes next; inside its list
    for kind, token, line in _tokens(text):
        message, path, seen = stack[-1]
        if token in ("{", "<"):
            kind_of_field = MESSAGES.get(message, {}).get(name, (0, ""))[1]
            inner = kind_of_field.lstrip("*?|")
            here = (*path, name, seen[name]) if kind_of_field.startswith("*") else (*path, name)
            seen[name] += 1
            marks.lines.setdefault(here, line)
            stack.append((inner if inner in MESSAGES else "", here, Counter()))
            marks.depth = max(marks.depth, len(stack))
            if len(stack) > DEEPEST:
                break
            name, brackets = "", 0
        elif token in ("}", ">"):
            if len(stack) > 1:
                stack.pop()
            name, brackets = "", 0
        elif token == "[":
            brackets += 1
        elif token == "]":
            name, brackets = "", 0
        elif kind == "word" and not name:
            name = token
            marks.lines.setdefault((*path, name), line)
            if message and name not in MESSAGES[message]:
                marks.unknown.append((line, name, nearest(name, MESSAGES[message])))
        elif kind in ("word", "text") and not brackets:
            name = ""
    return marks


class Unreadable(Exception):
    """A text that is not in protobuf's text format: line, what is wrong, what to do."""

    def __init__(self, line: int, what: str, cure: str):
        super().__init__(what)
        self.line, self.what, self.cure = line, what, cure


def parse(text: str, marks: Marks) -> Any:
    """The `MeshGraphDescriptor` message of a text; unknown fields are skipped, as the real
    library does.

    Raises:
        Unreadable: with the line.
    """
    if marks.depth > DEEPEST:
        raise Unreadable(
            1, f"messages are nested more than {DEEPEST} deep", "look for a missing brace"
        )
    try:
        return text_format.Parse(text, message_classes()[ROOT](), allow_unknown_field=True)
    except text_format.ParseError as error:
        line, what = error.GetLine() or 1, str(error).split(" : ", 1)[-1].replace("ttkit.mgd.", "")
        raise Unreadable(line, what, _cure(what)) from None
    # text that is not UTF-8 inside a string, for example
    except (ValueError, RecursionError) as error:
        raise Unreadable(1, str(error)[:200], "plain text in quotes") from None


def _cure(what: str) -> str:
    enum = re.search(r'Enum type "([\w.]+)" has no value (?:named|with number) (\w+)', what)
    if enum:
        values = next((v for name, v in ENUMS.items() if enum[1] == name), ())
        near = nearest(enum[2].upper(), values) or " or ".join(
            v for v in values if not v.startswith("INVALID")
        )
        return f"write {near}" if near else ""
    if "multiple times" in what or "already" in what:
        return "keep one of the two"
    return "look for a missing quote, colon or brace on this line or the one above"

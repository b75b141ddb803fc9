"""Protobuf's text format read into messages, with the line of every field.

Only this module imports protobuf. The messages (MGD 2.0) are a FileDescriptorProto in
`mgd_schema.json`, which needs no protoc; names and numbers are those of the descriptor inside
libtt_metal.so of ttnn 0.81.1. The package has another name, because the real library may register
its own in the same process.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from ttkit.errors import nearest

SCHEMA = Path(__file__).with_name("mgd_schema.json")
PACKAGE = "ttkit.mgd."
# The pattern matches, in this order: what is skipped (a comment or a string), a field with its
# opening bracket if it has one, an opening bracket alone, a closing bracket.
_FIELD = re.compile(
    r"""\#.*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"|(?P<name>\w+)\s*(?::(?!\s*[{<])|:?\s*(?P<open>[{<]))|(?P<bare>[{<])|(?P<close>[}>])"
)


@cache
def _pool():
    """The pool that holds the schema."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto(**json.loads(SCHEMA.read_text())))
    return pool


@cache
def descriptor_class():
    """Return the message class of a whole descriptor.

    Example:
        >>> descriptor_class()(mesh_descriptors=[{"name": "M0"}]).mesh_descriptors[0].name
        'M0'
    """
    kind = _pool().FindMessageTypeByName(f"{PACKAGE}MeshGraphDescriptor")
    return message_factory.GetMessageClass(kind)


@dataclass
class FieldLines:
    """The line of each field by its path, and the fields that the schema does not have.

    A path is field names, with the number of the message after a repeated one:
    "mesh_descriptors 0 channels count".
    """

    lines: dict[str, int] = field(default_factory=dict)
    # An entry has the line of the field, its name and the nearest known field, or "".
    unknown: list[tuple[int, str, str]] = field(default_factory=list)

    def line(self, path: str) -> int:
        """Return the line of the field at `path`, or of the nearest message around it."""
        while path and path not in self.lines:
            path = path.rpartition(" ")[0]
        return self.lines.get(path, 1)


def field_lines(text: str) -> FieldLines:
    """Find the line of every field of a text that `parse` accepts.

    Example:
        >>> marks = field_lines('mesh_descriptors {\\n  name: "M0"\\n  chanels { count: 2 }\\n}')
        >>> marks.line("mesh_descriptors 0 name"), marks.unknown
        (2, [(3, 'chanels', 'channels')])
    """
    marks = FieldLines()
    # An open message has its fields (none if it is unknown), its path, and the fields read so far.
    stack: list[tuple[Any, str, Counter[str]]] = [
        (descriptor_class().DESCRIPTOR.fields_by_name, "", Counter())
    ]
    for match in _FIELD.finditer(text):
        fields, path, seen = stack[-1]
        name, line = match["name"], text.count("\n", 0, match.start()) + 1
        if match["close"] and len(stack) > 1:
            stack.pop()
        elif match["bare"]:
            stack.append(({}, path, Counter()))
        elif name:
            known, here = fields.get(name), f"{path} {name}".strip()
            if fields and not known:
                marks.unknown.append((line, name, nearest(name, fields)))
            if match["open"]:
                if known and not known.has_presence:  # A repeated field needs its number.
                    here = f"{here} {seen[name]}"
                seen[name] += 1
                inside = known.message_type if known else None
                stack.append((inside.fields_by_name if inside else {}, here, Counter()))
            marks.lines.setdefault(here, line)
    return marks


class Unreadable(Exception):
    """A text that is not in protobuf's text format; its args: line, what is wrong, what to try."""


def parse(text: str):
    """Return the message of a text; unknown fields are skipped, as the real library does.

    Raises:
        Unreadable: it is not in protobuf's text format.
    """
    try:
        return text_format.Parse(text, descriptor_class()(), allow_unknown_field=True)
    except (text_format.ParseError, ValueError) as error:  # A number may be out of range.
        what = str(error).split(" : ", 1)[-1].replace(PACKAGE, "")
        line = error.GetLine() if isinstance(error, text_format.ParseError) else 1
        raise Unreadable(line or 1, what, _cure(what)) from None


def _cure(what: str) -> str:
    if enum := re.search(r'Enum type "([\w.]+)" has no value', what):
        values = _pool().FindEnumTypeByName(PACKAGE + enum[1]).values_by_name
        return f"write {' or '.join(name for name in values if not name.startswith('INVALID'))}"
    return "look for a missing quote, colon or brace on this line or the one above"

"""Read protobuf's text format into messages, and find the line of every field.

Only this module imports protobuf. `mgd_schema.json` defines the message types (MGD 2.0) as a
FileDescriptorProto, so protoc is not needed. Names and numbers are those of the descriptor inside
libtt_metal.so of ttnn 0.81.1. The protobuf package has another name, because the real library may
register its own package in the same process.
"""

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from ttkit.errors import nearest
from ttkit.files import Document, KeyPath

SCHEMA = Path(__file__).with_name("mgd_schema.json")
PACKAGE = "ttkit.mgd."
# The pattern matches, in this order: a comment or a string, which are skipped; a field, with its
# opening bracket if it has one; an opening bracket alone; a closing bracket.
_FIELD = re.compile(
    r"""\#.*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"|(?P<name>\w+)\s*(?::(?!\s*[{<])|:?\s*(?P<open>[{<]))|(?P<bare>[{<])|(?P<close>[}>])"
)


@cache
def _pool():
    """Return the protobuf pool that holds the schema."""
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


def note_fields(document: Document, text: str) -> list[tuple[int, str, str]]:
    """Note the line of every field in a text that `parse` accepts; return the unknown fields.

    A path has the names of fields, and after a repeated field the number of the message:
    ("mesh_descriptors", "0", "channels", "count"). An unknown field is returned as its line, its
    name and the nearest known name, or "" if none is near.

    Example:
        >>> document = Document(Path("mgd.textproto"))
        >>> note_fields(document, 'mesh_descriptors {\\n  name: "M0"\\n  chanels { count: 2 }\\n}')
        [(3, 'chanels', 'channels')]
        >>> document.position("mesh_descriptors", "0", "name")
        (2, 0)
    """
    unknown = []
    document.positions[()] = 1, 0  # 0 means that the column is not known.
    # An open message has its known fields (none if it is unknown), its path, and the number of each
    # field read so far.
    stack: list[tuple[Any, KeyPath, Counter[str]]] = [
        (descriptor_class().DESCRIPTOR.fields_by_name, (), Counter())
    ]
    for match in _FIELD.finditer(text):
        fields, path, seen = stack[-1]
        name = match["name"]
        line = text.count("\n", 0, match.start()) + 1
        if match["close"] and len(stack) > 1:
            stack.pop()
        elif match["bare"]:
            stack.append(({}, path, Counter()))
        elif name:
            known = fields.get(name)
            here = (*path, name)
            if fields and not known:
                unknown.append((line, name, nearest(name, fields)))
            if match["open"]:
                if known and not known.has_presence:  # A repeated field needs a number.
                    here = (*here, str(seen[name]))
                seen[name] += 1
                inside = known.message_type if known else None
                stack.append((inside.fields_by_name if inside else {}, here, Counter()))
            document.positions.setdefault(here, (line, 0))
    return unknown


class Unreadable(Exception):
    """A text that is not in protobuf's text format; its args: line, what is wrong, what to try."""


def parse(text: str):
    """Return the message that a text describes; skip unknown fields, as the real library does.

    Raises:
        Unreadable: the text is not in protobuf's text format.
    """
    try:
        return text_format.Parse(text, descriptor_class()(), allow_unknown_field=True)
    # A number that is out of range raises a ValueError.
    except (text_format.ParseError, ValueError) as error:
        what = str(error).split(" : ", 1)[-1].replace(PACKAGE, "")
        line = error.GetLine() if isinstance(error, text_format.ParseError) else 1
        raise Unreadable(line or 1, what, _cure(what)) from None


def _cure(what: str) -> str:
    if enum := re.search(r'Enum type "([\w.]+)" has no value', what):
        values = _pool().FindEnumTypeByName(PACKAGE + enum[1]).values_by_name
        return f"write {' or '.join(name for name in values if not name.startswith('INVALID'))}"
    return "look for a missing quote, colon or brace on this line or the one above"

"""Mesh graph descriptors: read, check and write them; find their chips on a machine.

protobuf is imported in this room and in no other.
"""

from ttkit.descriptors.descriptor import Connection, MeshGraphDescriptor, MeshInstance
from ttkit.descriptors.placing import chips_of, placed, seen_through
from ttkit.descriptors.reading import (
    check_descriptor,
    descriptor_path,
    descriptor_text,
    load_text,
    read_descriptor,
)

__all__ = [
    "Connection",
    "MeshGraphDescriptor",
    "MeshInstance",
    "check_descriptor",
    "chips_of",
    "descriptor_path",
    "descriptor_text",
    "load_text",
    "placed",
    "read_descriptor",
    "seen_through",
]

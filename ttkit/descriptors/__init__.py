"""Mesh graph descriptors: read, check and write them; find their chips on a machine.

protobuf is imported in this room and in no other.
"""

from ttkit.descriptors.descriptor import (
    Connection,
    MeshGraphDescriptor,
    MeshInstance,
    check_descriptor,
    descriptor_for,
    descriptor_path,
    load_text,
    read_descriptor,
)
from ttkit.descriptors.fitting import check_fabric, seen_through
from ttkit.descriptors.placing import chips_of, mesh_links, placed, system_of
from ttkit.descriptors.write import descriptor_text, mesh_text, text_of, write_descriptor

__all__ = [
    "Connection",
    "MeshGraphDescriptor",
    "MeshInstance",
    "check_descriptor",
    "check_fabric",
    "chips_of",
    "descriptor_for",
    "descriptor_path",
    "descriptor_text",
    "load_text",
    "mesh_links",
    "mesh_text",
    "placed",
    "read_descriptor",
    "seen_through",
    "system_of",
    "text_of",
    "write_descriptor",
]

"""Files that describe a cluster, and what starts it: mesh graph descriptors so far."""

from ttkit.hardware.descriptor import (
    Connection,
    MeshGraphDescriptor,
    MeshInstance,
    check_descriptor,
    descriptor_for,
    descriptor_path,
    read_descriptor,
)
from ttkit.hardware.findings import Finding
from ttkit.hardware.mgd_write import write_descriptor

__all__ = [
    "Connection",
    "Finding",
    "MeshGraphDescriptor",
    "MeshInstance",
    "check_descriptor",
    "descriptor_for",
    "descriptor_path",
    "read_descriptor",
    "write_descriptor",
]

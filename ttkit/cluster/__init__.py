"""From a folder of files to running ranks: bindings, hosts and settings read and checked, mpirun's command, its launch.

Example:
    >>> from ttkit import cluster
    >>> [mesh.device_dims for mesh in cluster.read_descriptor("configs/2loudboxes/mgd.textproto").meshes]
    [(1, 8), (1, 8)]
    >>> cluster.lint_path("configs/2loudboxes")
    []
"""

from importlib import import_module as _import_module
from typing import Any as _Any

# What is loaded when it is first asked for: name -> module that holds it. A rank that reads its settings need not load protobuf.
_LATER = {
    "Bindings": "ttkit.cluster.bindings",
    "Config": "ttkit.cluster.config",
    "Connection": "ttkit.hardware.descriptor",
    "Finding": "ttkit.hardware.findings",
    "Host": "ttkit.cluster.hosts",
    "MeshGraphDescriptor": "ttkit.hardware.descriptor",
    "MeshInstance": "ttkit.hardware.descriptor",
    "RankBinding": "ttkit.cluster.bindings",
    "RankSlot": "ttkit.cluster.hosts",
    "Settings": "ttkit.cluster.settings",
    "check_descriptor": "ttkit.hardware.descriptor",
    "descriptor_for": "ttkit.hardware.descriptor",
    "descriptor_path": "ttkit.hardware.descriptor",
    "examine": "ttkit.cluster.doctor",
    "find_config": "ttkit.cluster.config",
    "lint_path": "ttkit.cluster.lint",
    "mpirun_command": "ttkit.cluster.command",
    "plain_ranks": "ttkit.cluster.bindings",
    "rank_environment": "ttkit.cluster.command",
    "read_bindings": "ttkit.cluster.bindings",
    "read_descriptor": "ttkit.hardware.descriptor",
    "read_hosts": "ttkit.cluster.hosts",
    "read_mapping": "ttkit.cluster.bindings",
    "read_rankfile": "ttkit.cluster.hosts",
    "read_settings": "ttkit.cluster.settings",
    "write_descriptor": "ttkit.hardware.mgd_write",
}
__all__ = list(_LATER)


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise AttributeError(f"module 'ttkit.cluster' has no attribute {name!r}")
    value = getattr(_import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

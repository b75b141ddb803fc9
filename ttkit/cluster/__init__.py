"""Clusters: files of bindings and hosts read and checked, mpirun's command, engines.

Example:
    >>> from ttkit import cluster
    >>> meshes = cluster.read_descriptor("configs/2loudboxes/mgd.textproto").meshes
    >>> [mesh.device_dims for mesh in meshes]
    [(1, 8), (1, 8)]
    >>> cluster.lint_path("configs/2loudboxes")
    []
"""

from importlib import import_module as _import_module
from typing import Any as _Any

# What is loaded when it is first asked for: module -> the names that it holds.
_NAMES = {
    "cluster.files.bindings": "Bindings RankBinding plain_ranks read_bindings",
    "cluster.files.documents": "Config find_config",
    "cluster.files.hosts": "Host RankSlot read_hosts read_rankfile",
    "cluster.files.lint": "lint_path",
    "cluster.launch.command": "mpirun_command rank_environment",
    "cluster.launch.doctor": "examine",
    "hardware.descriptor": "Connection MeshGraphDescriptor MeshInstance check_descriptor "
    "descriptor_for descriptor_path read_descriptor",
    "hardware.findings": "Finding",
    "hardware.mgd_write": "write_descriptor",
}
_LATER = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_LATER)


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise AttributeError(f"module 'ttkit.cluster' has no attribute {name!r}")
    value = getattr(_import_module(f"ttkit.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

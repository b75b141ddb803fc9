"""ttkit: learn and try distributed programming on Tenstorrent device meshes, with or without a
card.

One line decides what the rest runs on: `from ttkit import ttnn` is the real library where a
Tenstorrent device is found, and a simulator with the same names, shapes, placements and messages
elsewhere.

Example:
    >>> from ttkit import ttnn
    >>> with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
    ...     mesh.get_num_devices()
    8
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from ttkit.dialect import DialectWarning, is_strict, strict
from ttkit.errors import CollectiveMismatch, OutOfMemoryError, TTKitError

__version__ = "0.1.0"

# What is loaded when it is first asked for: module -> the names that it holds.
_NAMES = {
    "backend": "about",
    "calltape": "tape",
    "cluster.engines.cluster": "Cluster",
    "convert": "assert_with_pcc from_numpy pcc to_numpy",
    "hardware": "use_system",
    "plans.recorded": "last_plan",
    "profiler": "profile",
    "sim.fabric": "rank_checks",
    "visualize": "memory step_through visualize_descriptor visualize_memory visualize_mesh_device "
    "visualize_plan visualize_schedule "
    "visualize_system_mesh visualize_tensor",
}
_LATER = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [
    "CollectiveMismatch",
    "DialectWarning",
    "OutOfMemoryError",
    "TTKitError",
    "cluster",
    "is_strict",
    "lessons",
    "plans",
    "strict",
    "train",
    "ttnn",
    *_LATER,
]


def __getattr__(name: str) -> _Any:
    if name == "ttnn":
        value = _import_module("ttkit.backend").load()
    elif name in ("cluster", "lessons", "plans", "train"):
        value = _import_module(f"ttkit.{name}")
    elif name in _LATER:
        value = getattr(_import_module(f"ttkit.{_LATER[name]}"), name)
    else:
        raise AttributeError(f"module 'ttkit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

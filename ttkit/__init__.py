"""ttkit: learn and try distributed programming on Tenstorrent device meshes, with or without a card.

One line decides what the rest runs on: `from ttkit import ttnn` is the real library where a Tenstorrent device is found, and a
simulator with the same names, shapes, placements and messages elsewhere.

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

# What is loaded when it is first asked for: name -> module that holds it.
_LATER = {
    "Cluster": "ttkit.cluster.engines",
    "about": "ttkit.backend",
    "assert_with_pcc": "ttkit.convert",
    "from_numpy": "ttkit.convert",
    "last_plan": "ttkit.plans.recorded",
    "memory": "ttkit.visualize",
    "pcc": "ttkit.convert",
    "profile": "ttkit.profiler",
    "rank_checks": "ttkit.sim.fabric",
    "step_through": "ttkit.visualize",
    "tape": "ttkit.calltape",
    "to_numpy": "ttkit.convert",
    "use_system": "ttkit.hardware",
    "visualize_descriptor": "ttkit.visualize",
    "visualize_memory": "ttkit.visualize",
    "visualize_mesh_device": "ttkit.visualize",
    "visualize_plan": "ttkit.visualize",
    "visualize_schedule": "ttkit.visualize",
    "visualize_system_mesh": "ttkit.visualize",
    "visualize_tensor": "ttkit.visualize",
}
__all__ = [
    "CollectiveMismatch", "DialectWarning", "OutOfMemoryError", "TTKitError", "cluster", "is_strict", "lessons", "plans", "strict", "train", "ttnn", *_LATER
]  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name == "ttnn":
        value = _import_module("ttkit.backend").load()
    elif name in ("cluster", "lessons", "plans", "train"):
        value = _import_module(f"ttkit.{name}")
    elif name in _LATER:
        value = getattr(_import_module(_LATER[name]), name)
    else:
        raise AttributeError(f"module 'ttkit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

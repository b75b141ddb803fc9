"""Methods and operators of a tensor that are operations; they stand above `Tensor`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.sim.mesh.mesh import MeshDevice
from ttkit.sim.ops import movement, shaping
from ttkit.sim.ops.operation import OPERATIONS
from ttkit.sim.tensor import creation
from ttkit.sim.tensor.enums import DataType, Layout
from ttkit.sim.tensor.sharding import MemoryConfig
from ttkit.sim.tensor.tensor import Tensor

ARITHMETIC = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide"}
OTHERS = ("eq", "ne", "lt", "le", "gt", "ge", "matmul")


def __new__(cls: type[Tensor], data: Any, *args: Any, **kwargs: Any) -> Tensor:
    make: Any = _of_list if isinstance(data, (list, tuple)) else creation.tensor_from
    return make(data, *args, **kwargs)  # type: ignore[no-any-return]


def _of_list(
    data: Any,
    shape: Any,
    data_type: DataType,
    layout: Layout,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    return creation.from_buffer(data, shape, data_type, device, layout, memory_config)


def cpu(self: Tensor, blocking: bool = True, cq_id: Any = None) -> Tensor:
    """Return the tensor on the host."""
    return movement.from_device(self, blocking)


def to(
    self: Tensor,
    target: MeshDevice | Layout,
    mem_config: MemoryConfig | None = None,
    cq_id: Any = None,
) -> Tensor:
    """Return the tensor on a mesh, or in another layout."""
    if isinstance(target, Layout):
        return movement.to_layout(self, target)
    return movement.to_device(self, target, mem_config)


def to_numpy(self: Tensor, mesh_composer: Any = None) -> np.ndarray:
    """Return the values as a NumPy array; several shards need a composer."""
    return creation.to_numpy(self, mesh_composer=mesh_composer)


def to_torch(self: Tensor, mesh_composer: Any = None) -> Any:
    """Return the values as a torch tensor; several shards need a composer."""
    return creation.to_torch(self, mesh_composer=mesh_composer)


def reshape(self: Tensor, *shape: Any) -> Tensor:
    """Return the same elements in another shape."""
    return shaping.reshape(self, shape[0] if len(shape) == 1 else list(shape))


def add_to_tensor() -> None:
    """Give `Tensor` these methods and Python's operators."""
    for method in (__new__, cpu, to, to_numpy, to_torch, reshape):
        setattr(Tensor, method.__name__, method)
    setattr(Tensor, "__getitem__", shaping.get_item)  # noqa: B010
    for field in ("dtype", "layout", "tile"):
        setattr(Tensor, f"get_{field}", lambda tensor, f=field: getattr(tensor, f))
    for word, name in ARITHMETIC.items():
        call = OPERATIONS[name].call
        setattr(Tensor, f"__{word}__", lambda a, b, f=call: f(a, b))
        setattr(Tensor, f"__r{word}__", lambda a, b, f=call: f(b, a))
    for word in OTHERS:
        setattr(Tensor, f"__{word}__", lambda a, b, f=OPERATIONS[word].call: f(a, b))

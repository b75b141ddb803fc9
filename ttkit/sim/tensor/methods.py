"""Methods and operators of a tensor that are operations; they stand above `Tensor`."""

from __future__ import annotations

from typing import Any

from ttkit.sim.mesh import MeshDevice
from ttkit.sim.ops import movement, shaping
from ttkit.sim.ops.operation import OPERATIONS
from ttkit.sim.tensor import creation
from ttkit.sim.tensor.enums import DataType, Layout
from ttkit.sim.tensor.sharding import MemoryConfig
from ttkit.sim.tensor.tensor import Tensor

ARITHMETIC = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide"}
OPERATORS = ARITHMETIC | {name: name for name in ("eq", "ne", "lt", "le", "gt", "ge", "matmul")}


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


def reshape(self: Tensor, *shape: Any) -> Tensor:
    """Return the same elements in another shape."""
    return shaping.reshape(self, shape[0] if len(shape) == 1 else list(shape))


def to_torch(self: Tensor, mesh_composer: Any = None) -> Any:
    """Return the values as a torch tensor; several shards need a composer."""
    return creation.to_torch(self, mesh_composer=mesh_composer)


def add_to_tensor() -> None:
    """Give `Tensor` these methods and Python's operators."""
    for field in ("dtype", "layout", "tile"):
        setattr(Tensor, f"get_{field}", lambda tensor, f=field: getattr(tensor, f))
    for method in (__new__, to, reshape, creation.to_numpy, to_torch):
        setattr(Tensor, method.__name__, method)
    for name, call in (("cpu", movement.from_device), ("__getitem__", shaping.get_item)):
        setattr(Tensor, name, call)
    for word, name in OPERATORS.items():
        setattr(Tensor, f"__{word}__", OPERATIONS[name].call)
    for word in ARITHMETIC:
        call = OPERATIONS[OPERATORS[word]].call
        setattr(Tensor, f"__r{word}__", lambda a, b, f=call: f(b, a))

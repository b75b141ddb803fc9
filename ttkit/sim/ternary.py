"""Operations on the elements of three: limits, choice, multiply-add."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.binary import aligned, binary, check_broadcast, is_number
from ttkit.sim.dispatch import merged, on_mesh, operation, result
from ttkit.sim.tensor import Tensor

Array = np.ndarray
F = np.float32


def _clip(name: str, tensor: Any, low: Any, high: Any, memory_config: Any, output: Tensor | None) -> Tensor:
    if low is None and high is None:
        fail(describe(name, (tensor,)), "Only one of 'min' or 'max' can be None. Please provide one value", "min=0.0, for example")
    limits: tuple[tuple[Any, Callable[[Array, Array], Array]], ...] = ((low, np.maximum), (high, np.minimum))
    for value, function in limits:
        if value is not None:
            tensor = binary(name, tensor, value, function, None, memory_config, None)
    return tensor if output is None else result(tensor, tensor.array, owned=False, output=output)


@operation("clamp")
def clamp(input_tensor: Tensor, min: Any = None, max: Any = None, *, memory_config: Any = None, output_tensor: Tensor | None = None) -> Tensor:
    """Each element kept between `min` and `max`, numbers or tensors; one of them may be left out."""
    return _clip("clamp", input_tensor, min, max, memory_config, output_tensor)


@operation("clip")
def clip(input_tensor: Tensor, min: Any = None, max: Any = None, *, memory_config: Any = None) -> Tensor:
    """Each element kept between `min` and `max`, numbers or tensors; one of them may be left out."""
    return _clip("clip", input_tensor, min, max, memory_config, None)


@operation("where")
def where(
    predicate: Tensor, true_value: Tensor | float, false_value: Tensor | float, *, memory_config: Any = None, output_tensor: Tensor | None = None,
    sub_core_grids: Any = None,
) -> Tensor:  # fmt: skip
    """`true_value` where the predicate is not zero, `false_value` elsewhere; both may be numbers or tensors."""
    asked = lambda: describe("where", (predicate, true_value, false_value))  # noqa: E731
    for value in (true_value, false_value):
        if not isinstance(value, Tensor) and not is_number(value):
            fail(asked(), f"incompatible function arguments: {type(value).__name__} is neither a ttnn.Tensor nor a number", kind=TypeError)
    tensors = tuple(t for t in (predicate, true_value, false_value) if isinstance(t, Tensor))
    on_mesh("where", *tensors)
    for t in tensors[1:]:
        check_broadcast(predicate.shard_shape, t.shard_shape, asked())
    like, arrays = aligned(tensors, asked)
    taken = iter(arrays[1:])
    yes, no = (next(taken) if isinstance(v, Tensor) else v for v in (true_value, false_value))
    dtype = next((v.dtype for v in (true_value, false_value) if isinstance(v, Tensor)), predicate.dtype)
    values: Array = np.where(arrays[0] != 0, yes, no).astype(dtypes.numpy_dtype(dtype), copy=False)
    topology = merged(like.mesh.grid, *(t.topology for t in tensors))
    return result(like, values, dtype=dtype, topology=topology, memory_config=memory_config, output=output_tensor)


def _ternary(name: str, function: Callable[..., Array], tensors: tuple[Tensor, ...], memory_config: Any, output: Tensor | None) -> Tensor:
    asked = lambda: describe(name, tensors)  # noqa: E731
    on_mesh(name, *tensors)
    for other in tensors[1:]:
        check_broadcast(tensors[0].shard_shape, other.shard_shape, asked())
    like, arrays = aligned(tensors, asked)
    topology = merged(like.mesh.grid, *(t.topology for t in tensors))
    return result(like, function(*arrays), dtype=tensors[0].dtype, topology=topology, memory_config=memory_config, output=output)


@operation("addcmul")
def addcmul(input_a: Tensor, input_b: Tensor, input_c: Tensor, *, value: float = 1.0, memory_config: Any = None, output_tensor: Tensor | None = None) -> Tensor:
    """a + value * b * c."""
    return _ternary("addcmul", lambda a, b, c: a + F(value) * b * c, (input_a, input_b, input_c), memory_config, output_tensor)


@operation("addcdiv")
def addcdiv(input_a: Tensor, input_b: Tensor, input_c: Tensor, *, value: float = 1.0, memory_config: Any = None, output_tensor: Tensor | None = None) -> Tensor:
    """a + value * b / c."""
    return _ternary("addcdiv", lambda a, b, c: a + F(value) * b / c, (input_a, input_b, input_c), memory_config, output_tensor)

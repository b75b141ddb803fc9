"""Operations on the elements of two tensors, or of a tensor and a number: arithmetic, comparison, logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.dispatch import common_grid, merged, on_mesh, result
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.promotion import as_number, type_of_pair, type_with_number
from ttkit.sim.tensor import Tensor
from ttkit.sim.unary import activation, gelu_erf, named

Array = np.ndarray
F = np.float32
NONE: list[Any] = []  # ttnn's own default for activations; never written to


def _truth(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: function(a, b).astype(np.result_type(a) if isinstance(a, Array) else b.dtype)


def _bits(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Shifts take their count from a number's lowest bits, and a right shift can bring in zeros."""
    return lambda a, b: function(a, b & a.dtype.type(8 * a.dtype.itemsize - 1))


def _logical_right(a: Array, b: Array) -> Array:
    unsigned = np.uint32 if a.dtype.itemsize == 4 else a.dtype
    return np.right_shift(a.view(unsigned), b.astype(unsigned)).view(a.dtype)


# name -> function of the values; with each of these a number may stand for the second tensor
FUNCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "rsub": lambda a, b: np.subtract(b, a),
    "eq": _truth(np.equal), "ne": _truth(np.not_equal), "lt": _truth(np.less), "le": _truth(np.less_equal), "gt": _truth(np.greater),
    "ge": _truth(np.greater_equal),
    "logical_and": _truth(np.logical_and), "logical_or": _truth(np.logical_or), "logical_xor": _truth(np.logical_xor),
    "squared_difference": lambda a, b: np.square(a - b), "bias_gelu": lambda a, b: gelu_erf(a + b), "logaddexp": np.logaddexp, "logaddexp2": np.logaddexp2,
    "ldexp": lambda a, b: a * np.exp2(b), "xlogy": lambda a, b: np.where(a == 0, F(0), a * np.log(b)),
    "remainder": np.remainder, "logical_right_shift": _bits(_logical_right),
}  # fmt: skip
EXTREMES: dict[str, Callable[[Array, Array], Array]] = {"maximum": np.maximum, "minimum": np.minimum}
BITWISE: dict[str, Callable[[Array, Array], Array]] = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "bitwise_left_shift": _bits(np.left_shift), "logical_left_shift": _bits(np.left_shift), "bitwise_right_shift": _bits(np.right_shift),
}  # fmt: skip
# those of two tensors only
PAIRS: dict[str, Callable[[Array, Array], Array]] = {"atan2": np.arctan2, "hypot": np.hypot}


def check_broadcast(a: tuple[int, ...], b: tuple[int, ...], asked: object) -> None:
    """Two shard shapes must agree in each dimension, counted from the last, or be 1 there."""
    check_tiles(a, b, asked)
    check_sizes(a, b, asked)


def check_tiles(a: tuple[int, ...], b: tuple[int, ...], asked: object) -> None:
    """The first half of `check_broadcast`, which ttnn does before it looks at types: the last two dimensions."""
    last, other = ((1, 1) + a)[-2:], ((1, 1) + b)[-2:]
    if last != other and 1 not in last + other:
        rule = f"Invalid subtile broadcast type: the last two dimensions {list(last)} and {list(other)} differ and none is 1"
        fail(asked, rule, "equal shapes, or 1 where one repeats")


def check_sizes(a: tuple[int, ...], b: tuple[int, ...], asked: object) -> None:
    """The second half of `check_broadcast`, after the types: all dimensions."""
    rank = max(len(a), len(b), 2)
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    for dim in range(-1, -rank - 1, -1):
        if a[dim] != b[dim] and 1 not in (a[dim], b[dim]):
            rule = f"Broadcasting rule violation at dimension index {dim} (output rank {rank}), dim a: {a[dim]}, dim b: {b[dim]}"
            fail(asked, rule, "equal sizes, or 1 where one repeats")


def aligned(tensors: tuple[Tensor, ...], asked: Callable[[], object]) -> tuple[Tensor, list[Array]]:
    """The operands' arrays, ready for NumPy to broadcast: same grid, same number of shard axes."""
    like, arrays = common_grid(tensors, asked)
    rank = max(len(t.shard_shape) for t in tensors)
    lead = len(like.grid.shape)
    for i, tensor in enumerate(tensors):
        missing = rank - len(tensor.shard_shape)
        if missing:
            shape = arrays[i].shape
            arrays[i] = arrays[i].reshape(shape[:lead] + (1,) * missing + shape[lead:])
    return like, arrays


def is_number(value: Any) -> bool:
    """True for what ttnn takes as a scalar operand."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, np.ndarray)


def binary(
    name: str, a: Any, b: Any, function: Callable[[Array, Array], Array], dtype: DataType | None, memory_config: Any, output: Tensor | None,
    before_a: Any = (), before_b: Any = (), after: Any = (),
) -> Tensor:  # fmt: skip
    """The body of every operation of two operands, one of which may be a number."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        on_mesh(name, a, b)
        if a.shard_shape == b.shard_shape:
            given = type_of_pair(name, a, b)
        else:
            check_tiles(a.shard_shape, b.shard_shape, describe(name, (a, b)))
            given = type_of_pair(name, a, b)
            check_sizes(a.shard_shape, b.shard_shape, describe(name, (a, b)))
        if a.grid is b.grid and len(a.shard_shape) == len(b.shard_shape):
            like, (x, y) = a, (a.array, b.array)
        else:
            like, (x, y) = aligned((a, b), lambda: describe(name, (a, b)))
        topology = a.topology if a.topology is b.topology else merged(like.mesh.grid, a.topology, b.topology)
        layout = a.layout if a.layout is b.layout else Layout.TILE
        if x.dtype != y.dtype or (given is DataType.FLOAT32 and x.dtype != F):
            x, y = x.astype(F, copy=False), y.astype(F, copy=False)
    else:
        like, other = (a, b) if isinstance(a, Tensor) else (b, a)
        if not is_number(other):
            fail(
                describe(name, (a, b)),
                f"incompatible function arguments: {type(other).__name__} is neither a ttnn.Tensor nor a number",
                "ttnn.from_torch(...) it first",
                TypeError,
            )
        on_mesh(name, like)  # type: ignore[arg-type]
        given, layout = type_with_number(name, like, other, like is a), like.layout  # type: ignore[arg-type, union-attr]
        values = like.array if given is like.dtype else like.array.astype(dtypes.numpy_dtype(given), copy=False)  # type: ignore[union-attr]
        number = as_number(values.dtype, other)
        x, y = (values, number) if like is a else (number, values)
        topology = like.topology  # type: ignore[union-attr]
    for which in before_a:
        x = activation(which, name)(x)
    for which in before_b:
        y = activation(which, name)(y)
    values = function(x, y)
    for which in after:
        values = activation(which, name)(values)
    return result(like, values, dtype=dtype or given, layout=layout, topology=topology, memory_config=memory_config, output=output)  # type: ignore[arg-type]


DOC = "{} of two tensors, or of a tensor and a number; sizes of 1 repeat."


def _enter_binary(name: str, function: Callable[[Array, Array], Array], fast: bool = False) -> Callable[..., Tensor]:
    def call(
        input_tensor_a: Tensor, input_tensor_b: Tensor | float, *, fast_and_approximate_mode: bool = fast, dtype: DataType | None = None,
        memory_config: Any = None, output_tensor: Tensor | None = None, activations: Any = NONE, input_tensor_a_activations: Any = NONE,
        input_tensor_b_activations: Any = NONE, sub_core_grids: Any = None, sub_device_id: Any = None,
    ) -> Tensor:  # fmt: skip
        return binary(
            name, input_tensor_a, input_tensor_b, function, dtype, memory_config, output_tensor,
            input_tensor_a_activations, input_tensor_b_activations, activations,
        )  # fmt: skip

    if name in NUMBER_FIRST:
        call.__annotations__["input_tensor_a"] = "Tensor | float"
    return named(name, call, DOC.format(name))


def _enter_small(name: str, function: Callable[[Array, Array], Array]) -> Callable[..., Tensor]:
    def call(
        input_tensor_a: Tensor, input_tensor_b: Tensor | float, *, dtype: DataType | None = None, memory_config: Any = None,
        output_tensor: Tensor | None = None, activations: Any = NONE, input_tensor_a_activations: Any = NONE, input_tensor_b_activations: Any = NONE,
    ) -> Tensor:  # fmt: skip
        return binary(
            name, input_tensor_a, input_tensor_b, function, dtype, memory_config, output_tensor,
            input_tensor_a_activations, input_tensor_b_activations, activations,
        )  # fmt: skip

    return named(name, call, DOC.format(name))


def _enter_bitwise(name: str, function: Callable[[Array, Array], Array]) -> Callable[..., Tensor]:
    def call(
        input_tensor_a: Tensor, input_tensor_b: Tensor | int, *, memory_config: Any = None, output_tensor: Tensor | None = None, activations: Any = NONE,
        input_tensor_a_activations: Any = NONE, input_tensor_b_activations: Any = NONE, sub_core_grids: Any = None, sub_device_id: Any = None,
    ) -> Tensor:  # fmt: skip
        return binary(
            name, input_tensor_a, input_tensor_b, function, None, memory_config, output_tensor,
            input_tensor_a_activations, input_tensor_b_activations, activations,
        )  # fmt: skip

    return named(name, call, f"{name} of the bits of two tensors of whole numbers, or of a tensor and a whole number.")


def _enter_pair(name: str, function: Callable[[Array, Array], Array]) -> Callable[..., Tensor]:
    def call(input_tensor_a: Tensor, input_tensor_b: Tensor, *, memory_config: Any = None) -> Tensor:
        return binary(name, input_tensor_a, input_tensor_b, function, None, memory_config, None)

    return named(name, call, f"{name} of two tensors; sizes of 1 repeat.")


NUMBER_FIRST = ("add", "subtract", "multiply")
BINARY = {name: _enter_binary(name, f, fast=name in ("add", "subtract")) for name, f in FUNCTIONS.items()}
BINARY |= {name: _enter_small(name, f) for name, f in EXTREMES.items()} | {name: _enter_bitwise(name, f) for name, f in BITWISE.items()}
BINARY |= {name: _enter_pair(name, f) for name, f in PAIRS.items()}


def _enter_in_place(name: str, function: Callable[[Array, Array], Array]) -> Callable[..., Tensor]:
    def call(
        input_tensor_a: Tensor, input_tensor_b: Tensor | float, *, activations: Any = NONE, input_tensor_a_activations: Any = NONE,
        input_tensor_b_activations: Any = NONE, sub_core_grids: Any = None, fast_and_approximate_mode: bool = False,
    ) -> Tensor:  # fmt: skip
        return binary(
            name, input_tensor_a, input_tensor_b, function, None, None, input_tensor_a, input_tensor_a_activations, input_tensor_b_activations, activations
        )  # fmt: skip

    return named(name, call, f"{name[:-1]} whose result replaces the first tensor's values.")


# ttnn has no form in place of these
IN_PLACE = {f"{name}_": _enter_in_place(f"{name}_", f) for name, f in FUNCTIONS.items() if name not in ("remainder", "logical_right_shift", "xlogy")}

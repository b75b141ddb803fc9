"""Operations that rearrange the elements of each chip's shard: shapes, order, copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.enums import Layout
from ttkit.sim.memory import would_fit
from ttkit.sim.operation import moved, on_mesh, operation
from ttkit.sim.tensor import Tensor
from ttkit.sim.types import Shape, integer, integers

BOUNDS = "Index is out of bounds for the rank, should be between 0 and {last} however is {dim}"
RANGE = "Dimension out of range (expected to be in range of [{least}, {last}], but got {dim})"


def axis_of(tensor: Tensor, dim: int, asked: object, rule: str = BOUNDS) -> int:
    """`dim` as a number from 0, counted from the end where negative."""
    rank, dim = len(tensor.shard_shape), integer(dim, asked)
    if not -rank <= dim < rank:
        numbers = {"least": -rank, "last": rank - 1, "dim": dim}
        fail(asked, rule.format(**numbers), f"a dim from {-rank} to {rank - 1}")
    return dim % rank


def shards(name: str, tensor: Any, host: bool = False) -> tuple[np.ndarray, int]:
    """The array and how many leading axes run over chips."""
    if not (host and tensor.mesh is None):
        on_mesh(name, tensor)
    return tensor.array, len(tensor.grid.shape)


@operation(
    "reshape",
    "arrange",
    moves="shape",
    hints="memory_config pad_value reshape_tile_mode sub_core_grids skip_padding_fill",
)
def reshape(input_tensor: Tensor, shape: Any, padded_shape: Any = None) -> Tensor:
    """The same elements, row by row, in another shape; one size may be -1.

    Raises:
        TTKitError: another number of elements.
    """
    array, lead = shards("reshape", input_tensor, host=True)
    asked = describe("reshape", (input_tensor, shape))
    wanted = list(integers(shape, asked, -1))
    if wanted.count(-1) > 1:
        rule = "Shape cannot have more than 1 elements that is set to -1! Shape used:"
        rule += f" {tuple(wanted)}"
        fail(asked, rule)
    have = input_tensor.logical_volume()
    if -1 in wanted:
        rest = -math.prod(wanted)
        if rest == 0 or have % rest:
            rule = f"Invalid arguments to reshape: {have} elements do not fill {wanted}"
            fail(asked, rule, "sizes whose product divides the elements")
        wanted[wanted.index(-1)] = have // rest
    if math.prod(wanted) != have:
        rule = "Invalid arguments to reshape"
        if isinstance(shape, Shape):
            rule = "Attempting to reshape between two shapes with different volumes"
        rule = f"{rule}: {list(input_tensor.shard_shape)} has {have} elements, {wanted} has"
        rule += f" {math.prod(wanted)}"
        fail(asked, rule, "a shape with as many elements")
    return moved(input_tensor, array.reshape(array.shape[:lead] + tuple(wanted)))


@operation("view", "arrange", moves="shape")
def view(input_tensor: Tensor, shape: Any) -> Tensor:
    """`reshape` of a tensor on a device."""
    if input_tensor.mesh is None:
        rule = "View requires the tensor be stored on device, use reshape instead"
        fail(describe("view", (input_tensor, shape)), rule, "ttnn.reshape")
    return reshape(input_tensor, shape)


@operation("permute", "arrange", hints="memory_config")
def permute(input_tensor: Tensor, dims: Sequence[int], pad_value: float = 0.0) -> Tensor:
    """The dimensions in the order of `dims`; placements keep their numbers, as in ttnn."""
    array, lead = shards("permute", input_tensor)
    asked = describe("permute", (input_tensor, dims))
    order = [axis_of(input_tensor, d, asked) for d in integers(dims, asked)]
    if len(order) != len(input_tensor.shard_shape):
        rule = "The number of dimensions in the tensor input does not match the length of the"
        rule += " desired ordering"
        fail(asked, f"{rule}: {len(input_tensor.shard_shape)} and {len(order)}")
    if sorted(order) != list(range(len(order))):
        fail(asked, f"each dimension must come once in the ordering, got {list(dims)}")
    return moved(input_tensor, array.transpose([*range(lead), *(lead + d for d in order)]))


@operation("transpose", "arrange", hints="memory_config")
def transpose(input_tensor: Tensor, dim1: int, dim2: int, pad_value: float = 0.0) -> Tensor:
    """Two dimensions swapped; placements keep their numbers, as in ttnn."""
    array, lead = shards("transpose", input_tensor)
    asked = describe("transpose", (input_tensor, dim1, dim2))
    first, second = axis_of(input_tensor, dim1, asked), axis_of(input_tensor, dim2, asked)
    return moved(input_tensor, array.swapaxes(lead + first, lead + second))


@operation("pad", "arrange", hints="use_multicore memory_config sub_core_grids")
def pad(
    input_tensor: Tensor, padding: Sequence[Any], value: Any = 0.0, fill: float | None = None
) -> Tensor:
    """Put `value` around the shard: a (before, after) pair for each of the last dimensions."""
    array, lead = shards("pad", input_tensor)
    asked = describe("pad", (input_tensor, padding, value))
    rank = len(input_tensor.shard_shape)
    if fill is not None:  # the form with an output shape
        start = integers(value, asked, 0)
        padding = [
            (s, total - s - size)
            for total, s, size in zip(
                integers(padding, asked, 0), start, input_tensor.shard_shape, strict=True
            )
        ]
        value = fill
    pairs = [integers(p, asked) for p in padding]
    if len(pairs) > rank:
        rule = f"ttnn.pad: padding len can't be larger than input tensor rank: {len(pairs)} and"
        rule += f" {rank}"
        fail(asked, rule)
    if any(len(p) != 2 or min(p) < 0 for p in pairs):
        fail(asked, "each padding must be a pair (before, after) of numbers from 0 on")
    if input_tensor.layout is Layout.TILE and any(before for before, _ in pairs[-2:]):
        rule = "ttnn.pad: on device tile padding does not support front padding"
        fail(asked, rule, "a row-major tensor, or padding after")
    widths = [(0, 0)] * (lead + rank - len(pairs)) + pairs  # type: ignore[operator]
    would_fit(
        input_tensor,
        tuple(n + sum(w) for n, w in zip(input_tensor.shard_shape, widths[lead:], strict=True)),
    )
    border = dtypes.convert(np.array([value]), input_tensor.dtype)[0]
    return moved(input_tensor, np.pad(array, widths, constant_values=border))


@operation("repeat", "arrange", hints="memory_config optional_output_tensor")
def repeat(input_tensor: Tensor, repeat_dims: Sequence[int]) -> Tensor:
    """The shard repeated that often along each dimension."""
    array, lead = shards("repeat", input_tensor)
    asked = describe("repeat", (input_tensor, repeat_dims))
    times = integers(repeat_dims, asked, 0)
    rank = max(len(times), len(input_tensor.shard_shape))
    times = (1,) * (rank - len(times)) + times
    shape = (1,) * (rank - len(input_tensor.shard_shape)) + input_tensor.shard_shape
    would_fit(input_tensor, tuple(n * t for n, t in zip(shape, times, strict=True)))
    return moved(
        input_tensor,
        np.tile(array.reshape(array.shape[:lead] + shape), (1,) * lead + times),
    )


@operation("repeat_interleave", "arrange", hints="memory_config")
def repeat_interleave(input_tensor: Tensor, repeats: int, dim: int) -> Tensor:
    """Each slice along `dim` repeated `repeats` times, one after the other."""
    array, lead = shards("repeat_interleave", input_tensor)
    asked = describe("repeat_interleave", (input_tensor, repeats, dim))
    axis, times = axis_of(input_tensor, dim, asked), integer(repeats, asked, 0)
    shape = list(input_tensor.shard_shape)
    shape[axis] *= times
    would_fit(input_tensor, tuple(shape))
    return moved(input_tensor, np.repeat(array, times, lead + axis))


@operation("squeeze", "arrange", moves="shape")
def squeeze(input_tensor: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Dimensions of size 1 taken away: all, or those named (others are left as they are)."""
    shards("squeeze", input_tensor, host=True)
    asked, shape = describe("squeeze", (input_tensor, dim)), input_tensor.shard_shape
    wanted: Any = (
        range(len(shape)) if dim is None else dim if isinstance(dim, (list, tuple)) else [dim]
    )
    axes = {axis_of(input_tensor, d, asked, RANGE) for d in wanted}
    return reshape(input_tensor, [n for i, n in enumerate(shape) if i not in axes or n != 1])


@operation("unsqueeze", "arrange", moves="shape")
def unsqueeze(input_tensor: Tensor, dim: int) -> Tensor:
    """A new dimension of size 1 at `dim`."""
    shards("unsqueeze", input_tensor, host=True)
    asked, shape = describe("unsqueeze", (input_tensor, dim)), list(input_tensor.shard_shape)
    at = integer(dim, asked)
    if not -len(shape) - 1 <= at <= len(shape):
        rule = "Dimension out of range (expected to be in range of"
        rule += f" [{-len(shape) - 1},{len(shape)}], but got {at})"
        fail(asked, rule)
    shape.insert(at % (len(shape) + 1), 1)
    return reshape(input_tensor, shape)


@operation("unsqueeze_to_4D", "arrange", moves="shape")
def unsqueeze_to_4D(tensor: Tensor) -> Tensor:
    """The tensor with ones in front up to rank 4."""
    if len(tensor.shard_shape) > 4:
        fail(describe("unsqueeze_to_4D", (tensor,)), "Tensor rank is greater than 4")
    return reshape(tensor, [1] * (4 - len(tensor.shard_shape)) + list(tensor.shard_shape))


@operation("expand", "arrange", hints="memory_config")
def expand(input_tensor: Tensor, output_shape: Sequence[int]) -> Tensor:
    """Repeat dimensions of size 1 up to `output_shape`, where -1 keeps a size."""
    array, lead = shards("expand", input_tensor)
    asked = describe("expand", (input_tensor, output_shape))
    wanted, have = list(integers(output_shape, asked, -1)), input_tensor.shard_shape
    extra = len(wanted) - len(have)
    if extra < 0:
        rule = f"Output rank must be >= input rank for expand: {len(wanted)} and {len(have)}"
        fail(asked, rule, "a size for each dimension")
    for i, size in enumerate(have):
        if wanted[extra + i] == -1:
            wanted[extra + i] = size
        elif size not in (1, wanted[extra + i]):
            rule = "Only size 1 dimensions can be expanded in the output shape, but dimension"
            fail(asked, f"{rule} {i} has {size}", f"{size} or -1 there")
    would_fit(input_tensor, tuple(wanted))
    shaped = array.reshape(array.shape[:lead] + (1,) * extra + have)
    return moved(input_tensor, np.broadcast_to(shaped, array.shape[:lead] + tuple(wanted)))


def _enter(name: str, keep: Any, side: str) -> None:
    def call(input_tensor: Tensor, *, diagonal: int = 0) -> Tensor:
        array, lead = shards(name, input_tensor)
        matrix = (1,) * (2 - len(input_tensor.shard_shape)) + input_tensor.shard_shape
        kept = keep(array.reshape(array.shape[:lead] + matrix), diagonal)
        return moved(input_tensor, kept.reshape(array.shape), layout=Layout.TILE)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Return the part of each matrix on and {side} a diagonal; zeros elsewhere."
    operation(name, "arrange", hints="memory_config")(call)


_enter("tril", np.tril, "below")
_enter("triu", np.triu, "above")

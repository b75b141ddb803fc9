"""Operations that rearrange the elements of each chip's shard: shapes, order, pieces, copies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.enums import Layout
from ttkit.sim.memory import would_fit
from ttkit.sim.operation import moved, on_mesh, operation, together
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


def _shards(name: str, tensor: Any, host: bool = False) -> tuple[np.ndarray, int]:
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
    array, lead = _shards("reshape", input_tensor, host=True)
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
    array, lead = _shards("permute", input_tensor)
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
    array, lead = _shards("transpose", input_tensor)
    asked = describe("transpose", (input_tensor, dim1, dim2))
    first, second = axis_of(input_tensor, dim1, asked), axis_of(input_tensor, dim2, asked)
    return moved(input_tensor, array.swapaxes(lead + first, lead + second))


@operation("concat", "arrange", hints="memory_config groups sub_core_grids")
def concat(
    tensors: Sequence[Tensor], dim: int = 0, *, output_tensor: Tensor | None = None
) -> Tensor:
    """Tensors joined along `dim`, on each chip its own shards.

    Raises:
        TTKitError: other dimensions differ, or dtypes do.
    """
    tensors = list(tensors)
    if not tensors:
        fail("concat([])", "ttnn.concat: expected a non-empty list of Tensors!")
    for tensor in tensors:
        if isinstance(tensor, Tensor) and tensor.mesh is None:
            rule = "Input tensor must be on device"
            fail(describe("concat", tuple(tensors)), rule, "ttnn.to_device(tensor, mesh)")
    on_mesh("concat", *tensors, letters="A" * len(tensors))
    asked = describe("concat", tuple(tensors), {"dim": dim})
    first = tensors[0]
    axis = axis_of(first, dim, asked)
    for tensor in tensors:
        a, b = list(first.shard_shape), list(tensor.shard_shape)
        if len(a) != len(b) or a[:axis] + a[axis + 1 :] != b[:axis] + b[axis + 1 :]:
            rule = "All dimensions must be the same size except for the dimension along which"
            rule += f" the concat is taking place: {a} and {b}"
            fail(asked, rule, "the same sizes elsewhere")
        if tensor.dtype is not first.dtype:
            rule = f"All tensors must have the same dtype: {first.dtype.name} and"
            rule += f" {tensor.dtype.name}"
            fail(asked, rule, "ttnn.typecast")
    like, arrays, topology = together("concat", tensors)
    lead = len(like.grid.shape)
    shape = list(first.shard_shape)
    shape[axis] = sum(t.shard_shape[axis] for t in tensors)
    would_fit(like, tuple(shape))
    lengths = np.broadcast_shapes(*(a.shape[:lead] for a in arrays))
    arrays = [np.broadcast_to(a, lengths + a.shape[lead:]) for a in arrays]
    joined = np.concatenate(arrays, lead + axis)
    return moved(like, joined, topology=topology, output=output_tensor)


@operation("stack", "arrange")
def stack(input_tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Tensors of one shape joined along a new dimension."""
    return concat([unsqueeze(tensor, dim) for tensor in input_tensors], dim)


@operation(
    "slice",
    "arrange",
    moves="part",
    hints="memory_config pad_value sub_core_grids slice_start slice_end",
)
def slice_(
    input_tensor: Tensor,
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int] | None = None,
    *,
    output_tensor: Tensor | None = None,
    slice_step: Sequence[int] | None = None,
) -> Tensor:
    """Elements from `starts` up to `ends` in each dimension of the shard, in `steps`.

    Raises:
        TTKitError: a range leaves the shape or runs backwards.
    """
    array, lead = _shards("slice", input_tensor, host=True)
    asked = describe("slice", (input_tensor, starts, ends))
    rank, by = len(input_tensor.shard_shape), steps if steps is not None else slice_step
    begin, end = integers(starts, asked), integers(ends, asked)
    stride = integers(by, asked) if by is not None else (1,) * rank
    for what, values in (("begins", begin), ("ends", end), ("steps", stride)):
        if len(values) != rank:
            rule = f"Input rank {rank} and {what} {len(values)} must have the same size"
            fail(asked, rule, "one number for each dimension")
    pieces = []
    for size, lo, hi, step in zip(input_tensor.shard_shape, begin, end, stride, strict=True):
        lo, hi = (n + size if n < 0 else n for n in (lo, hi))
        if step <= 0:
            fail(asked, f"Step {step} must be positive")
        if hi > size:
            fail(asked, f"Ends {hi} must be less than or equal to the shape of the tensor {size}")
        if hi < lo or lo < 0:
            fail(asked, f"End {hi} must be greater than or equal to start {lo}")
        pieces.append(slice(lo, hi, step))
    picked = array[(slice(None),) * lead + tuple(pieces)]
    return moved(input_tensor, picked, output=output_tensor)


def get_item(tensor: Tensor, index: Any) -> Tensor:
    """`tensor[...]` with whole numbers, slices and an ellipsis, on each chip's shard."""
    rank = len(tensor.shard_shape)
    asked = f"{describe('tensor', (tensor,))}[{index!r}]"
    parts = list(index) if isinstance(index, tuple) else [index]
    at = next((i for i, part in enumerate(parts) if part is Ellipsis), None)
    if at is not None:
        parts[at : at + 1] = [slice(None)] * (rank - len(parts) + 1)
    if len(parts) > rank:
        fail(asked, f"Too many indices for tensor of dimension {rank}", kind=IndexError)
    starts, ends, steps, gone = [], [], [], []
    for dim, size in enumerate(tensor.shard_shape):
        part = parts[dim] if dim < len(parts) else slice(None)
        if isinstance(part, slice):
            lo, hi, step = (
                part.start or 0,
                size if part.stop is None else part.stop,
                1 if part.step is None else part.step,
            )
            if not all(isinstance(n, (int, np.integer)) for n in (lo, hi, step)):
                fail(asked, f"Invalid slice type: {part}", kind=TypeError)
            if step < 1:
                fail(asked, f"Step {step} must be positive")
        elif isinstance(part, (int, np.integer)) and not isinstance(part, bool):
            if not -size <= part < size:
                rule = f"Index {part} (converted to {part % size if size else part}) is out of"
                rule += f" bounds for dimension {dim} of size {size}"
                fail(asked, rule, kind=IndexError)
            lo, hi, step = int(part) % size, int(part) % size + 1, 1
            gone.append(dim)
        else:
            fail(asked, f"Invalid slice type: {part!r}", "numbers, slices and ...", TypeError)
        starts.append(lo)
        ends.append(hi)
        steps.append(step)
    picked = slice_(tensor, starts, ends, steps)
    if not gone:
        return picked
    return reshape(picked, [n for dim, n in enumerate(picked.shard_shape) if dim not in gone])


@operation("split", "arrange", hints="memory_config")
def split(input_tensor: Tensor, split_size: int | Sequence[int], dim: int = 0) -> list[Tensor]:
    """Cut the shard along `dim` into pieces of `split_size`, or of the sizes listed."""
    array, lead = _shards("split", input_tensor)
    asked = describe("split", (input_tensor, split_size, dim))
    axis = axis_of(input_tensor, dim, asked)
    size = input_tensor.shard_shape[axis]
    if isinstance(split_size, (list, tuple)):
        sizes = list(integers(split_size, asked, 0))
        if sum(sizes) != size:
            rule = f"split_sizes must sum exactly to the size of dimension {axis} ({size}), but"
            rule += f" sizes {sizes} sum to {sum(sizes)}"
            fail(asked, rule)
    else:
        each = integer(split_size, asked)
        if each <= 0:
            fail(asked, f"split_size must be greater than 0, but got: {each}")
        sizes = [min(each, size - start) for start in range(0, size, each)]
    cuts = np.cumsum([0, *sizes])
    return [
        moved(input_tensor, array[(slice(None),) * (lead + axis) + (slice(int(a), int(b)),)])
        for a, b in itertools.pairwise(cuts)
    ]  # fmt: skip


@operation("chunk", "arrange")
def chunk(input_tensor: Tensor, chunks: int, dim: int) -> list[Tensor]:
    """Cut the shard along `dim` into `chunks` pieces; the last may be smaller."""
    asked = describe("chunk", (input_tensor, chunks, dim))
    axis, count = axis_of(input_tensor, dim, asked), integer(chunks, asked)
    if count <= 0:
        fail(asked, f"chunks must be greater than 0, but got: {count}")
    return split(input_tensor, -(-input_tensor.shard_shape[axis] // count), axis)


@operation("pad", "arrange", hints="use_multicore memory_config sub_core_grids")
def pad(
    input_tensor: Tensor, padding: Sequence[Any], value: Any = 0.0, fill: float | None = None
) -> Tensor:
    """Put `value` around the shard: a (before, after) pair for each of the last dimensions."""
    array, lead = _shards("pad", input_tensor)
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
    array, lead = _shards("repeat", input_tensor)
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
    array, lead = _shards("repeat_interleave", input_tensor)
    asked = describe("repeat_interleave", (input_tensor, repeats, dim))
    axis, times = axis_of(input_tensor, dim, asked), integer(repeats, asked, 0)
    shape = list(input_tensor.shard_shape)
    shape[axis] *= times
    would_fit(input_tensor, tuple(shape))
    return moved(input_tensor, np.repeat(array, times, lead + axis))


@operation("squeeze", "arrange", moves="shape")
def squeeze(input_tensor: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Dimensions of size 1 taken away: all, or those named (others are left as they are)."""
    _shards("squeeze", input_tensor, host=True)
    asked, shape = describe("squeeze", (input_tensor, dim)), input_tensor.shard_shape
    wanted: Any = (
        range(len(shape)) if dim is None else dim if isinstance(dim, (list, tuple)) else [dim]
    )
    axes = {axis_of(input_tensor, d, asked, RANGE) for d in wanted}
    return reshape(input_tensor, [n for i, n in enumerate(shape) if i not in axes or n != 1])


@operation("unsqueeze", "arrange", moves="shape")
def unsqueeze(input_tensor: Tensor, dim: int) -> Tensor:
    """A new dimension of size 1 at `dim`."""
    _shards("unsqueeze", input_tensor, host=True)
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
    array, lead = _shards("expand", input_tensor)
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
        array, lead = _shards(name, input_tensor)
        matrix = (1,) * (2 - len(input_tensor.shard_shape)) + input_tensor.shard_shape
        kept = keep(array.reshape(array.shape[:lead] + matrix), diagonal)
        return moved(input_tensor, kept.reshape(array.shape), layout=Layout.TILE)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Return the part of each matrix on and {side} a diagonal; zeros elsewhere."
    operation(name, "arrange", hints="memory_config")(call)


_enter("tril", np.tril, "below")
_enter("triu", np.triu, "above")

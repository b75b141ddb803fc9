"""Shards joined and cut into pieces: concat, stack, slice, split, chunk, and tensor[...]."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.memory import would_fit
from ttkit.sim.operation import moved, on_mesh, operation, together
from ttkit.sim.shaping import axis_of, reshape, shards, unsqueeze
from ttkit.sim.tensor import Tensor
from ttkit.sim.types import integer, integers


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
    array, lead = shards("slice", input_tensor, host=True)
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
    array, lead = shards("split", input_tensor)
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
    ]


@operation("chunk", "arrange")
def chunk(input_tensor: Tensor, chunks: int, dim: int) -> list[Tensor]:
    """Cut the shard along `dim` into `chunks` pieces; the last may be smaller."""
    asked = describe("chunk", (input_tensor, chunks, dim))
    axis, count = axis_of(input_tensor, dim, asked), integer(chunks, asked)
    if count <= 0:
        fail(asked, f"chunks must be greater than 0, but got: {count}")
    return split(input_tensor, -(-input_tensor.shard_shape[axis] // count), axis)

"""Rearrange each chip's shard: reshape, permute, pad, repeat, concat, slice."""

import itertools
import math
import operator
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.sim.arguments import refuse
from ttkit.sim.ops import (
    Operands,
    axis_of,
    checked,
    in_whole_tiles,
    moved,
    on_mesh,
    operation,
    shaped,
    spread,
    with_rank,
)
from ttkit.sim.tensor import Layout, Shape, dtypes, integers
from ttkit.sim.tensor.tensor import Tensor, check_room


def axes_of(tensor: Tensor, dims) -> list[int]:
    """Return `dims` (one dimension, several, or None for all) as numbers from 0."""
    if dims is None or dims == []:
        return list(range(len(tensor.shard_shape)))
    several = dims if isinstance(dims, (list, tuple)) else [dims]
    return [axis_of(tensor, dim) for dim in several]


def shards(tensor: Tensor, host: bool = False) -> tuple[np.ndarray, int]:
    """Return a tensor's array, and how many of its leading axes run over chips.

    Args:
        host: the tensor may be on the host.
    """
    if not (host and tensor.mesh is None):
        on_mesh(tensor)
    return tensor.array, tensor.grid.lead


def reshape(input_tensor: Tensor, shape, padded_shape=None) -> Tensor:
    """Return the same elements, row by row, in another shape; one size may be -1.

    As in ttnn, a `ttnn.Shape` whose tiles are those of the tensor may have another number of
    elements.

    Args:
        padded_shape: the shape of all stored elements with tile padding; the result is the corner
            of size `shape`.

    Raises:
        TTKitError: `shape` has another number of elements.
    """
    array, lead = shards(input_tensor, host=True)
    wanted = integers(shape, None, -1)
    if padded_shape is None and isinstance(shape, Shape):
        new = dtypes.padded(wanted, input_tensor.layout)
        old = input_tensor.padded
        if new[-1] == old[-1] and math.prod(new) == math.prod(old):
            padded_shape = new
    if padded_shape is not None and math.prod(wanted) != input_tensor.logical_volume():
        tiled = input_tensor.layout is Layout.TILE
        stored = in_whole_tiles(with_rank(array, lead, 2)) if tiled else array
        first: Any = (..., *map(slice, wanted))
        return moved(input_tensor, shaped(stored, lead, *padded_shape)[first])
    try:
        made = moved(input_tensor, shaped(array, lead, *wanted))
    except ValueError:
        rule = f"Invalid arguments to reshape: {list(input_tensor.shard_shape)} and {list(wanted)}"
        refuse(f"{rule} differ in elements", "a shape with as many elements; one -1 at most")
    given = input_tensor._allocation
    if made._allocation is not None and given is not None and keeps_rows(input_tensor, made):
        made._allocation.made_of = (*given.made_of, weakref.ref(input_tensor))
    return made


operation("reshape", "arrange", moves="shape")(reshape)


@operation("view", "arrange", moves="shape")
def view(input_tensor: Tensor, shape) -> Tensor:
    """Return the elements in another shape, which must leave every element at its place in memory.

    Raises:
        TTKitError: rows would change length, or move within the tiles of a tiled tensor.
    """
    made = reshape(input_tensor, shape)
    if not keeps_rows(input_tensor, made):
        refuse(
            f"a view from {list(input_tensor.shape)} to {list(made.shape)} needs the same last "
            "dimension, and in tiles also the same second last one, or 32 must divide both",
            "ttnn.reshape",
        )
    return made


def keeps_rows(before, after) -> bool:
    """Return whether a reshape leaves all elements in the buffer where they are: no row is cut."""
    (*_, rows, columns), (*_, height, width) = ((1, 1, *t.shard_shape) for t in (before, after))
    whole = before.layout is not Layout.TILE or rows == height or rows % 32 == height % 32 == 0
    return columns == width and whole


@operation("permute", "arrange")
def permute(input_tensor: Tensor, dims: Sequence[int]) -> Tensor:
    """Return the tensor with its dimensions in the order of `dims`.

    As in ttnn, the topology still names the dimensions of the input.
    """
    array, lead = shards(input_tensor)
    order = [axis_of(input_tensor, d) for d in dims]
    return moved(input_tensor, array.transpose([*range(lead), *(lead + d for d in order)]))


@operation("transpose", "arrange")
def transpose(input_tensor: Tensor, dim1: int, dim2: int) -> Tensor:
    """Swap two dimensions; as in ttnn, the topology still names the dimensions of the input."""
    array, lead = shards(input_tensor)
    first = axis_of(input_tensor, dim1)
    second = axis_of(input_tensor, dim2)
    swapped = array.swapaxes(lead + first, lead + second)
    # BLAS multiplies small matrices at half its speed if the right one is stored transposed, so a
    # swap of the last two dimensions is copied.
    inner = {first, second} == {array.ndim - lead - 2, array.ndim - lead - 1}
    return moved(input_tensor, swapped.copy() if inner else swapped)


@operation("pad", "arrange")
def pad(input_tensor: Tensor, padding: Sequence, value=0.0) -> Tensor:
    """Put `value` around the shard.

    `padding` has a (before, after) pair for each of the last dimensions.
    """
    array, _ = shards(input_tensor)
    pairs: Any = [(0, 0)] * (array.ndim - len(padding)) + list(padding)
    if input_tensor.layout is Layout.TILE and any(before for before, _ in pairs[-2:]):
        rule = "ttnn.pad: on device tile padding does not support front padding"
        refuse(rule, "a row-major tensor, or padding after")
    border = dtypes.convert(np.array([value]), input_tensor.dtype)[0]
    return moved(input_tensor, np.pad(array, pairs, constant_values=border))


@operation("repeat", "arrange")
def repeat(input_tensor: Tensor, repeat_dims: Sequence[int]) -> Tensor:
    """Repeat the shard `repeat_dims[i]` times along dimension i."""
    array, lead = shards(input_tensor)
    times = integers(repeat_dims, None, 0)
    array = with_rank(array, lead, len(times))
    times = (1,) * (array.ndim - len(times)) + times
    check_room(input_tensor, tuple(map(operator.mul, array.shape, times))[lead:])
    return moved(input_tensor, np.tile(array, times))


@operation("repeat_interleave", "arrange")
def repeat_interleave(input_tensor: Tensor, repeats: int, dim: int) -> Tensor:
    """Repeat each slice along `dim` `repeats` times, one after the other."""
    array, lead = shards(input_tensor)
    return moved(input_tensor, np.repeat(array, repeats, lead + axis_of(input_tensor, dim)))


@operation("squeeze", "arrange", moves="shape")
def squeeze(input_tensor: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Remove dimensions of size 1: all of them, or those in `dim`. Longer ones stay."""
    axes = axes_of(input_tensor, dim)
    return reshape(
        input_tensor, [n for i, n in enumerate(input_tensor.shard_shape) if i not in axes or n != 1]
    )


@operation("unsqueeze", "arrange", moves="shape")
def unsqueeze(input_tensor: Tensor, dim: int) -> Tensor:
    """Insert a dimension of size 1 at `dim`."""
    shape = list(input_tensor.shard_shape)
    shape.insert(axis_of(input_tensor, dim, more=1), 1)
    return reshape(input_tensor, shape)


@operation("unsqueeze_to_4D", "arrange", moves="shape")
def unsqueeze_to_4D(tensor: Tensor) -> Tensor:
    """Insert dimensions of size 1 in front, up to rank 4."""
    return reshape(tensor, tensor.shape.to_rank(4))


@operation("expand", "arrange")
def expand(input_tensor: Tensor, output_shape: Sequence[int]) -> Tensor:
    """Repeat dimensions of size 1 up to `output_shape`, where -1 keeps a size."""
    array, lead = shards(input_tensor)
    array = with_rank(array, lead, len(output_shape))
    have = array.shape[lead:]
    sizes = [m if n == -1 else n for n, m in zip(output_shape, have, strict=True)]
    return moved(input_tensor, np.broadcast_to(array, (*array.shape[:lead], *sizes)))


def _register(name: str, keep, side: str) -> None:
    def call(input_tensor: Tensor, *, diagonal: int = 0) -> Tensor:
        array, lead = shards(input_tensor)
        kept = keep(with_rank(array, lead, 2), diagonal)
        return moved(input_tensor, kept.reshape(array.shape), layout=Layout.TILE)

    call.__doc__ = f"Return the part of each matrix on and {side} a diagonal; zeros elsewhere."
    operation(name, "arrange")(call)


_register("tril", np.tril, "below")
_register("triu", np.triu, "above")


# ---------------------------------------------------------------- join and cut
@operation("concat", "arrange")
def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join tensors along `dim`; each chip joins its own shards.

    Raises:
        TTKitError: the tensors differ in another dimension or in dtype.
    """
    on, first = Operands(*tensors), tensors[0]
    axis = axis_of(first, dim)
    shapes = [list(t.shard_shape) for t in tensors]
    kinds = [t.dtype.name for t in tensors]
    if len({(*shape[:axis], ..., *shape[axis + 1 :]) for shape in shapes}) > 1:
        rule = "All dimensions must be the same size except for the dimension along which"
        refuse(f"{rule} the concat is taking place: {shapes}")
    if len(set(kinds)) > 1:
        refuse(f"All tensors must have the same dtype: {', '.join(kinds)}", "ttnn.typecast")
    whole = np.concatenate(spread(on.arrays, on.lead), on.lead + axis)
    return moved(on.like, whole, topology=on.topology)


@operation("stack", "arrange")
def stack(input_tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Join tensors of one shape along a new dimension."""
    return concat([unsqueeze(tensor, dim) for tensor in input_tensors], dim)


@operation("slice", "arrange", moves="part")
def slice_(
    input_tensor: Tensor,
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int] | None = None,
) -> Tensor:
    """Return elements of the shard from `starts` to before `ends` in each dimension, `steps` apart.

    Raises:
        TTKitError: a range leaves the shape or runs backwards.
    """
    array, lead = shards(input_tensor, host=True)
    have = input_tensor.shard_shape
    steps = (1,) * len(have) if steps is None else steps
    picked = [slice(None)] * lead
    for size, lo, hi, step in zip(have, starts, ends, steps, strict=True):
        lo, hi = (n + size if n < 0 else n for n in (lo, hi))
        if not (0 <= lo <= hi <= size and step > 0):
            rule = f"Ends {hi} must be less than or equal to the shape of the tensor {size} and not"
            refuse(f"{rule} less than start {lo}, Step {step} must be positive")
        picked.append(slice(lo, hi, step))
    return moved(input_tensor, array[tuple(picked)])


def get_item(tensor: Tensor, index) -> Tensor:
    """Return `tensor[...]` with whole numbers, slices and an ellipsis, on each chip's shard."""
    rank = len(tensor.shard_shape)
    parts = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    at = parts.index(Ellipsis)
    parts[at : at + 1] = [slice(None)] * (rank + 1 - len(parts))
    if len(parts) > rank:
        refuse(f"Too many indices for tensor of dimension {rank}", kind=IndexError)
    starts, ends, steps, kept = [], [], [], []
    for dim, (part, size) in enumerate(zip(parts, tensor.shard_shape)):
        if isinstance(part, slice):
            kept.append(dim)
        elif isinstance(part, (int, np.integer)) and -size <= part < size:
            part = slice(int(part) % size, int(part) % size + 1)
        else:
            rule = f"Index {part!r} is out of bounds for dimension {dim} of size {size}"
            refuse(rule, "whole numbers, slices and ...", IndexError)
        starts.append(part.start or 0)
        ends.append(size if part.stop is None else part.stop)
        steps.append(1 if part.step is None else part.step)
    picked = slice_(tensor, starts, ends, steps)
    if len(kept) == rank:
        return picked
    return reshape(picked, [picked.shard_shape[dim] for dim in kept])


@operation("split", "arrange")
def split(input_tensor: Tensor, split_size, dim: int = 0) -> list[Tensor]:
    """Cut the shard along `dim` into parts of `split_size`, or of the sizes listed."""
    array, lead = shards(input_tensor)
    axis = axis_of(input_tensor, dim)
    size = input_tensor.shard_shape[axis]
    if isinstance(split_size, (list, tuple)):
        ends = [*itertools.accumulate(integers(split_size, None, 0), initial=0)]
        if ends[-1] != size:
            rule = f"split_sizes must sum exactly to the size of dimension {axis} ({size}), but"
            refuse(f"{rule} sizes {list(split_size)} sum to {ends[-1]}")
    else:
        (each,) = integers([split_size], None, 1)
        ends = [*range(0, size, each), size]
    front = (slice(None),) * (lead + axis)
    cuts = itertools.starmap(slice, itertools.pairwise(ends))
    return [moved(input_tensor, array[(*front, cut)]) for cut in cuts]


@operation("chunk", "arrange")
def chunk(input_tensor: Tensor, chunks: int, dim: int) -> list[Tensor]:
    """Cut the shard along `dim` into at most `chunks` parts; the last part may be smaller."""
    axis = axis_of(input_tensor, dim)
    return split(input_tensor, -(-input_tensor.shard_shape[axis] // chunks), axis)


# ---------------------------------------------------------------- methods of a tensor
def _reshape(tensor: Tensor, *shape) -> Tensor:
    """Return the same elements in another shape."""
    return reshape(tensor, shape[0] if len(shape) == 1 else list(shape))


def _pad_to_tile(tensor: Tensor, pad_value: float) -> Tensor:
    """Return a tensor on the host with room for whole tiles; padding has no values here."""
    made = moved(tensor, tensor.array)
    made.padded = dtypes.padded(made.shard_shape, Layout.TILE)
    return made


Tensor.reshape = _reshape
Tensor.__getitem__ = checked(get_item, "tensor[...]")
Tensor.pad_to_tile = _pad_to_tile  # type: ignore[attr-defined]
Tensor.unpad_from_tile = (  # type: ignore[attr-defined]
    lambda tensor, shape: slice_(tensor, [0] * len(shape), shape)
)

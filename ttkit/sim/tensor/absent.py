"""Arrays without values: they have a type and a shape of any size, and the memory of one element.

All strides are 0, so NumPy itself makes views (a reshape, a transpose, a slice). An operation
that would compute gives another array without values, with the shape and type of NumPy's result.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

# All arrays without values share this memory, which has room for an element of any type.
ELEMENT = np.ones(4, np.float32).tobytes()
Lengths = Sequence[int]


class Absent(np.ndarray):
    """An array without values."""

    def __array_ufunc__(self, ufunc, method: str, *inputs, **how):
        """Return an array of the result's shape and type; one element is computed for the type."""
        if method == "at":
            return None
        kinds = tuple([each.dtype if isinstance(each, np.ndarray) else each for each in inputs])
        dtype = _result_type(ufunc, method, kinds, how.get("dtype"))
        shapes = [each.shape for each in inputs if isinstance(each, np.ndarray)]
        if method == "reduce":
            return absent(_reduced(shapes[0], how["axis"], how.get("keepdims", False)), dtype)
        if method == "accumulate":
            return absent(shapes[0], dtype)
        if ufunc is np.matmul:
            (*batch, rows, _), (*others, _, columns) = shapes
            return absent((*broadcast(tuple(batch), tuple(others)), rows, columns), dtype)
        return absent(broadcast(*shapes), dtype)

    def __array_function__(self, function, types, args: Iterable, kwargs: Mapping[str, Any]):
        """Apply the function's rule in `RULES`; without a rule, return NumPy's own view."""
        if function in RULES:
            return RULES[function](*args, **kwargs)
        return super().__array_function__(function, types, args, kwargs)

    def __setitem__(self, index, values) -> None:
        """Write nothing."""

    def astype(self, dtype, *args, **kwargs):
        """Return an array without values of the same shape and of another type."""
        return absent(self.shape, dtype)

    def copy(self, *args):
        """Return this array itself, because it has no values to copy."""
        return self


def absent(shape: Lengths, dtype) -> Absent:
    """Return an array without values.

    Example:
        >>> (absent((1 << 20, 1 << 20), np.float32) @ absent((1 << 20, 3), np.float32)).shape
        (1048576, 3)
    """
    return _array(tuple(shape), dtype)


@functools.cache
def _array(shape: tuple[int, ...], dtype) -> Absent:
    return Absent(shape, dtype, ELEMENT, strides=(0,) * len(shape))


broadcast = functools.cache(np.broadcast_shapes)


@functools.cache
def _result_type(ufunc, method: str, kinds: tuple, dtype):
    """Return the type of NumPy's result for operands of these types; a number stands for itself."""
    ones = (np.ones((1, 1), kind) if isinstance(kind, np.dtype) else kind for kind in kinds)
    how = {} if method == "__call__" else {"axis": 0, "dtype": dtype}
    with np.errstate(all="ignore"):
        return getattr(ufunc, method)(*ones, **how).dtype


def _reduced(shape: Lengths, axis, keepdims: bool) -> list[int]:
    axes = range(len(shape)) if axis is None else np.atleast_1d(axis) % len(shape)
    kept = [1 if i in axes else n for i, n in enumerate(shape)]
    return kept if keepdims else [n for i, n in enumerate(kept) if i not in axes]


# ---------------------------------------------------------------- rules of NumPy's functions
def _joined(arrays: Sequence, axis: int = 0) -> Absent:
    shape = list(arrays[0].shape)
    shape[axis] = sum(each.shape[axis] for each in arrays)
    return absent(shape, np.result_type(*(each.dtype for each in arrays)))


def _where(condition, yes, no) -> Absent:
    return absent(broadcast(*map(np.shape, (condition, yes, no))), np.result_type(yes, no))


def _taken(array, indices, axis: int) -> Absent:
    at = axis % array.ndim
    return absent(array.shape[:at] + np.shape(indices) + array.shape[at + 1 :], array.dtype)


def _taken_along(array, indices, axis: int) -> Absent:
    one = list(array.shape)
    one[axis] = 1
    return absent(broadcast(tuple(one), indices.shape), array.dtype)


def _each(array, by, size: Callable[[int, Any], int]) -> Absent:
    """Return an array of sizes `size(n, item)`, for each size n of `array` and its item of `by`."""
    sizes = [size(n, item) for n, item in zip(array.shape, by, strict=True)]
    return absent(sizes, array.dtype)


RULES: dict[Any, Callable] = {
    np.argsort: lambda array, *how, **more: absent(array.shape, np.int64),
    np.broadcast_to: lambda array, shape: absent(shape, array.dtype),
    np.concatenate: _joined,
    np.copyto: lambda into, values: None,
    np.may_share_memory: lambda one, other: False,
    np.roll: lambda array, shift, axis: array,
    np.pad: lambda array, widths, **how: _each(array, widths, lambda n, ends: n + sum(ends)),
    np.take: _taken,
    np.take_along_axis: _taken_along,
    np.tile: lambda array, times: _each(array, times, lambda n, many: n * many),
    np.where: _where,
}

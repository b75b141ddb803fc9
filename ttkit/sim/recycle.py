"""Memory of big results that nobody needs any more, kept for the next ones.

malloc takes a big array's memory from the system anew and gives it back when it is freed. Filling fresh pages costs as much as adding
two arrays, and was 5 to 10 % of a tensor-parallel MLP step. At most KEPT bytes are held back, the oldest go first.
"""

from __future__ import annotations

import math
import weakref
from collections import OrderedDict

import numpy as np

SMALLEST = 4 << 20  # bytes; malloc has smaller ones at hand
KEPT = 128 << 20
_free: OrderedDict[int, np.ndarray] = OrderedDict()  # by identity, oldest first


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """A float32 array with arbitrary values, like np.empty, in used memory where there is some of that size.

    Example:
        >>> first = empty((1024, 2048))
        >>> address = first.ctypes.data
        >>> del first
        >>> empty((2048, 1024)).ctypes.data == address
        True
    """
    size = 4 * math.prod(shape)
    if not SMALLEST <= size <= KEPT:
        return np.empty(shape, np.float32)
    block = None
    for key, kept in list(_free.items())[::-1]:
        if kept.nbytes == size and _free.pop(key, None) is not None:
            block = kept
            break
    if block is None:
        block = np.empty(size, np.uint8)
    # Views of `array` keep `array` alive, not `block`: NumPy follows bases only from array to array, and a memoryview lies between.
    array = np.frombuffer(memoryview(block), np.float32)  # type: ignore[arg-type]
    weakref.finalize(array, _keep, block).atexit = False
    return array.reshape(shape)


def _keep(block: np.ndarray) -> None:
    _free[id(block)] = block
    while sum(kept.nbytes for kept in list(_free.values())) > KEPT:
        try:
            _free.popitem(last=False)
        except KeyError:  # another thread took it
            break

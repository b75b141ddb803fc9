"""Calls on a mesh without values, cached: a call runs once for the same shapes and types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from ttkit.sim.ops import blocks
from ttkit.sim.tape import Event, Tape, tensors_in
from ttkit.sim.tensor.enums import DataType, Layout
from ttkit.sim.tensor.grid import Grid, TensorTopology
from ttkit.sim.tensor.sharding import DRAM_MEMORY_CONFIG
from ttkit.sim.tensor.tensor import Tensor, new_tensor

# At most this many calls are remembered; a search over layouts needs a few thousand.
MOST = 1 << 15
Place = tuple[np.ndarray, DataType, Layout, Grid, TensorTopology]
PLAIN = (int, float, str, NoneType, Enum)


class Known(NamedTuple):
    """The cached result of a call.

    Attributes:
        event: on the tape.
        made: what `new_tensor` takes for each tensor; or the number of the operand that it was.
    """

    event: Event
    made: list[Place | int]

    def again(self, given: Sequence[Any], mesh: Any) -> Any:
        """Return such a result on a mesh, for other operands of the same shapes and types."""
        if type(self.event.result) is not list and isinstance(self.made[0], tuple):
            return new_tensor(*self.made[0], mesh)
        operands = tensors_in(list(given))
        found = [
            new_tensor(*each, mesh) if isinstance(each, tuple) else operands[each]
            for each in self.made
        ]
        return found if type(self.event.result) is list else found[0]


_known: dict[Any, Known] = {}


class NotPlain(Exception):
    """An argument may have a state, so that the same call may give another result."""


def _key(value: Any) -> Any:
    """Return the part of an argument on which a result without values depends, as a cache key."""
    if type(value) is Tensor:
        if value._array is None or value.plain_memory_config is not DRAM_MEMORY_CONFIG:
            raise NotPlain
        chips = value.grid, value.topology, value._array.shape
        return value.shard_shape, value.dtype, value.layout, chips
    if type(value) is float:  # No shape depends on the value of a float.
        return float
    if isinstance(value, PLAIN):
        return value
    if type(value) in (list, tuple):
        return tuple(map(_key, value))
    if hasattr(value, "has_values"):
        return value.grid
    raise NotPlain


def called(
    tape: Tape, name: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the result of a call on the mesh of a tape, which has no values."""
    given = [*args, *kwargs.values()] if kwargs else args
    try:
        key = (name, *kwargs, *map(_key, given))
    except NotPlain:
        key = None
    known = _known.get(key)
    if known is None:
        event = tape.begin(name, args, kwargs)
        blocks.idle[0] = True
        try:
            result = call(*args, **kwargs)
        finally:
            blocks.idle[0] = False
        tape.end(event, result)
        if key is not None:
            _learn(key, event, result, tensors_in(list(given)))
        return result
    result = known.again(given, tape.mesh)
    tape.repeat(known.event)  # The tape reads the memory in use, so the result must exist first.
    return result


def _learn(key: Any, event: Event, result: Any, operands: list[Tensor]) -> None:
    tensors = tensors_in(result)
    if not tensors or any(t.plain_memory_config is not DRAM_MEMORY_CONFIG for t in tensors):
        return
    made: list[Place | int] = []
    for tensor in tensors:
        number = next((i for i, other in enumerate(operands) if other is tensor), None)
        place = tensor.array, tensor.dtype, tensor.layout, tensor.grid, tensor.topology
        made.append(place if number is None else number)
    while len(_known) >= MOST:
        del _known[next(iter(_known))]
    _known[key] = Known(event, made)

"""The tape: what a program did, call by call. There is one recorder; all others are readers.

Traces, the profile, the report of a program, the exercises and the planner read the same events. A
call that another operation makes is part of that operation, and no event of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ttkit.plans import recorded
from ttkit.sim.tensor import memory
from ttkit.sim.tensor.enums import DataType, Layout
from ttkit.sim.tensor.grid import Grid, TensorTopology
from ttkit.sim.tensor.tensor import Tensor


class Held(NamedTuple):
    """A tensor as it was when a call began or returned: all but its values.

    The names are those of `Tensor`, so that a function of shapes and types takes either.

    Attributes:
        tensor, memory, array: weak references, by which a reader knows the same one again in other
            events; nothing is kept alive.
    """

    shard_shape: tuple[int, ...]
    padded: tuple[int, ...]
    dtype: DataType
    layout: Layout
    grid: Grid
    topology: TensorTopology
    mesh: Any  # This is a MeshDevice, or None on the host.
    tensor: ref[Any]
    memory: ref[Any] | None
    array: ref[Any] | None

    @classmethod
    def of(cls, tensor: Tensor) -> Held:
        """Describe a tensor."""
        memory, array = tensor._allocation, tensor._array
        return cls(
            tensor.shard_shape,
            tensor.padded,
            tensor.dtype,
            tensor.layout,
            tensor.grid,
            tensor.topology,
            tensor.mesh,
            ref(tensor),
            None if memory is None else ref(memory),
            None if array is None else ref(array),
        )


class HostArray(NamedTuple):
    """A NumPy array or torch tensor among the arguments of a call: all but its values."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(slots=True)
class Event:
    """One call.

    Attributes:
        name: of the operation, a key of `OPERATIONS`, or of a call that manages meshes.
        args, kwargs, result: as the program gave and got them, but with a `Held` in place of each
            tensor and a `HostArray` in place of each array.
        part: what the program was doing, by `Tape.part`.
        returned: the call has not failed.
        last_before: the collective that ran last before the call.
        sent: the collectives that the call ran, in order.
        in_use: bytes in use when it returned, of the chip that holds most.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    part: str
    last_before: recorded.Record | None = None
    result: Any = None
    returned: bool = False
    sent: list[recorded.Record] = field(default_factory=list)
    in_use: int = 0

    @property
    def operands(self) -> list[Any]:
        """The tensors among the arguments, in order."""
        return tensors_in([*self.args, *self.kwargs.values()])

    @property
    def results(self) -> list[Any]:
        """The tensors of the result, in order."""
        return tensors_in(self.result)


class Tape:
    """Events in the order of their calls.

    Args:
        keeps: operations whose events have the tensors themselves, so that the calls can be
            repeated, or the values read.
        before: sees each event when its call begins, and may raise to refuse the call.
        mesh: without values, on which alone the program runs; `in_use` is of its chips.

    Attributes:
        part: what the program is doing now; a program that has parts sets it.
    """

    def __init__(
        self,
        keeps: Container[str] = (),
        before: Callable[[Event], None] | None = None,
        mesh: Any = None,
    ):
        self.events: list[Event] = []
        self.part, self.keeps, self.before, self.mesh = "", keeps, before, mesh

    def begin(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Event:
        """Write down a call that begins."""
        enter = kept if name in self.keeps else described
        named = {key: enter(value) for key, value in kwargs.items()}
        before = recorded.latest[-1] if recorded.latest else None
        event = Event(name, tuple(map(enter, args)), named, self.part, before)
        if self.before:
            self.before(event)
        self.events.append(event)
        return event

    def end(self, event: Event, result: Any) -> None:
        """Complete the event of a call that returns."""
        event.result = kept(result) if event.name in self.keeps else described(result)
        event.returned = True
        event.sent = since(event.last_before)
        event.in_use = memory.most_in_use(self.mesh)

    def repeat(self, event: Event) -> None:
        """Write down a call that is like another one."""
        self.events.append(
            Event(
                event.name,
                event.args,
                event.kwargs,
                self.part,
                None,
                event.result,
                True,
                event.sent,
                memory.most_in_use(self.mesh),
            )
        )


running: list[Tape] = []  # These tapes are recording.


@contextmanager
def tape(**how: Any) -> Iterator[Tape]:
    """Record the calls of a `with` block.

    Args:
        how: what `Tape` takes.

    Example:
        >>> from ttkit import ttnn
        >>> with tape() as calls:
        ...     t = ttnn.zeros([2, 2])
        >>> [(event.name, event.results[0].shard_shape) for event in calls.events]
        [('zeros', (2, 2))]
    """
    new = Tape(**how)
    running.append(new)
    try:
        yield new
    finally:
        running.remove(new)


def since(last: recorded.Record | None) -> list[recorded.Record]:
    """Return the collectives that have run after one, in order."""
    newer = itertools.takewhile(lambda each: each is not last, reversed(recorded.latest))
    return list(newer)[::-1]


# ---------------------------------------------------------------- arguments and results
def described(value: Any) -> Any:
    """Return a value with a description in place of each tensor and array in it."""
    if isinstance(value, Tensor):
        return Held.of(value)
    # `isinstance` would take a `CoreCoord`, a tuple that cannot be iterated.
    if type(value) in (list, tuple):
        return type(value)(map(described, value))
    if isinstance(value, np.ndarray):
        return HostArray(value.shape, value.dtype.name)
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "shape"):
        return HostArray(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return value


def kept(value: Any) -> Any:
    """Return a value as it is now: a list may be changed after the call."""
    return [kept(each) for each in value] if isinstance(value, list) else value


def tensors_in(value: Any) -> list[Any]:
    """Return the tensors in an argument or a result, in order, or their descriptions."""
    if isinstance(value, (Tensor, Held)):
        return [value]
    if type(value) in (list, tuple):
        return [tensor for each in value for tensor in tensors_in(each)]
    return []


def stored_bytes(tensors: Sequence[Any]) -> int:
    """Return the bytes of tensors on a chip, as the memory accounting counts them."""
    return sum(memory.bytes_of(tensor.padded, tensor.dtype) for tensor in tensors)

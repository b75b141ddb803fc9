"""The tape records what a program did, call by call. It is the only recorder; others read it.

Traces, the profile, the report of a program, the exercises and the planner read the same events. A
call that another operation makes is part of that operation and does not get its own event.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple
from weakref import ref

from ttkit.plans import Plan, collectives, topology
from ttkit.sim import blocks
from ttkit.sim.tensor import DataType, Layout, Sizes, TensorTopology
from ttkit.sim.tensor.dtypes import bytes_of
from ttkit.sim.tensor.grid import Grid
from ttkit.sim.tensor.sharding import DRAM_MEMORY_CONFIG
from ttkit.sim.tensor.tensor import Allocation, Tensor, most_in_use


class DescribedTensor(NamedTuple):
    """A description of a tensor when a call began or returned: everything except the values.

    The fields have the names of `Tensor`, so a function that needs only shapes and types takes both
    classes.

    Attributes:
        tensor, memory, array: weak references to the tensor, its allocation and its array, so that
            a reader can recognise a tensor in several events without keeping it alive.
        lead: the lengths of the array's axes over the chips; along an axis of length 1 all chips
            have the same values.
    """

    shard_shape: Sizes
    padded: Sizes
    dtype: DataType
    layout: Layout
    grid: Grid
    topology: TensorTopology
    mesh: Any  # This is a MeshDevice, or None on the host.
    tensor: ref[Any]
    memory: ref[Any] | None
    array: ref[Any] | None
    lead: Sizes

    @classmethod
    def of(cls, tensor: Tensor) -> DescribedTensor:
        """Describe a tensor."""
        kept = (tensor, tensor._allocation, tensor._array)
        refs = (None if each is None else ref(each) for each in kept)
        lead = () if tensor._array is None else tensor._array.shape[: tensor.grid.lead]
        return cls(*DESCRIBED(tensor), *(*refs, lead))


DESCRIBED = attrgetter(*DescribedTensor._fields[:7])


class HostArray(NamedTuple):
    """A description of an array or a torch tensor in a call: everything except the values."""

    shape: Sizes
    dtype: str


class CollectiveRecord(NamedTuple):
    """A collective that ran: the arguments from which its plan can be built."""

    collective: str  # This is the name of its builder in `ttkit.plans`.
    mesh: Any
    shard_bytes: int  # The size of each chip's shard includes tile padding.
    how: tuple[tuple[str, Any], ...]  # These are the other arguments of the builder, by name.

    @property
    def axis(self) -> int | None:
        """The mesh axis, or None if the collective is over all chips or between two chips."""
        return dict(self.how).get("axis")

    @property
    def plan(self) -> Plan:
        """The transfers that cards would make."""
        build = getattr(collectives, self.collective)
        there = topology(self.mesh)
        return build(there, self.shard_bytes, **dict(self.how))  # type: ignore[no-any-return]


@dataclass(slots=True)
class Event:
    """One call.

    Attributes:
        name: a key of `OPERATIONS`, or the name of a call that manages meshes.
        args, kwargs, result: the arguments and the result of the call, with a `DescribedTensor` in
            place of each tensor and a `HostArray` in place of each array.
        part: the value of `Tape.part` when the call began.
        returned: True once the call has returned without an error.
        sent: the collectives that the call ran, in order.
        in_use: the bytes in use when the call returned, on the chip that holds most.
        where: the file and line of the program that made the call, if `Tape.before` writes it.
    """

    name: str
    args: tuple
    kwargs: dict[str, Any]
    part: str
    result: Any = None
    returned: bool = False
    sent: list[CollectiveRecord] = field(default_factory=list)
    in_use: int = 0
    where: str = ""

    @property
    def operands(self) -> list:
        """The tensors among the arguments, in order."""
        return tensors_in([*self.args, *self.kwargs.values()])

    @property
    def results(self) -> list:
        """The tensors of the result, in order."""
        return tensors_in(self.result)


@dataclass(eq=False, repr=False)
class Tape:
    """Events in the order of their calls.

    Args:
        keeps: the names of operations whose events keep the tensors themselves, so that a reader
            can repeat the calls or read the values.
        before: a function that gets each event when its call begins; it may raise an error to
            refuse the call.
        after: a function that gets each event and the result when the call has returned.

    Attributes:
        part: a name for what the program is doing now; a program that has parts sets it.
    """

    keeps: Container[str] = ()
    before: Callable[[Event], None] | None = None
    after: Callable[[Event, Any], None] | None = None
    events: list[Event] = field(default_factory=list)
    part: str = ""
    mesh: Any = None  # This is the mesh without values on which the calls run, if there is one.

    def record(self, name: str, call: Callable, /, *args, **kwargs):
        """Make a call, write it down, and return its result."""
        enter = snapshot if name in self.keeps else described
        named = {key: enter(value) for key, value in kwargs.items()}
        event = Event(name, tuple(map(enter, args)), named, self.part)
        if self.before:
            self.before(event)
        self.events.append(event)
        result = call(*args, **kwargs)
        event.result = enter(result)
        event.returned = True
        event.in_use = most_in_use(self.mesh)
        if self.after:
            self.after(event, result)
        return result


running: list[Tape] = []  # These tapes are recording.


@contextmanager
def tape(**how) -> Iterator[Tape]:
    """Record the calls of a `with` block.

    Args:
        how: the arguments of `Tape`.

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


# ---------------------------------------------------------------- arguments and results
def described(value):
    """Return a value with a description in place of each tensor and array in it."""
    if isinstance(value, Tensor):
        return DescribedTensor.of(value)
    # A named tuple, such as a `CoreCoord`, stays as it is, because its class does not take an
    # iterable. So the tensors of a `ComplexTensor` stay, too.
    if type(value) in (list, tuple):
        return type(value)(map(described, value))
    # An array without dimensions is one number. It may be a parameter of the call, so it stays.
    if getattr(value, "ndim", 0):
        return HostArray(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return value


def snapshot(value):
    """Return a value as it is now; a list is copied, because it may change after the call."""
    return list(map(snapshot, value)) if isinstance(value, list) else value


def tensors_in(value) -> list:
    """Return the tensors, or their descriptions, in an argument or a result, in order."""
    if isinstance(value, (Tensor, DescribedTensor)):
        return [value]
    if type(value) in (list, tuple):
        return [tensor for each in value for tensor in tensors_in(each)]
    return []


def stored_bytes(tensors: Sequence) -> int:
    """Return the bytes of tensors on a chip, as the memory accounting counts them."""
    return sum(bytes_of(tensor.padded, tensor.dtype) for tensor in tensors)


# ---------------------------------------------------------------- calls without values
# At most this many calls are remembered; a search over layouts needs a few thousand.
MAX_KNOWN_CALLS = 1 << 15
KEYABLE = (int, float, str, NoneType, Enum)
# A repeated call gives its results the same values of these fields. The results get the mesh of the
# tape, and an allocation of their own.
REUSED_FIELDS = attrgetter("_array", "dtype", "layout", "grid", "topology", "shard_shape", "padded")


class Known(NamedTuple):
    """A call that has run on a mesh without values.

    Attributes:
        event: the event of the first such call.
        results: for each result the fields and bytes of a new tensor, or the index of the operand
            that was returned.
    """

    event: Event
    results: list[tuple[Any, int] | int]


_known: dict[Any, Known] = {}


class TapeWithoutValues(Tape):
    """A tape of a mesh without values; calls with the same shapes and types run only once.

    Attributes:
        held: for each event, the bytes in use by each owner, in the order of `mesh.used`.
    """

    def __init__(self, mesh):
        super().__init__()
        self.mesh, self.held = mesh, []

    def record(self, name: str, call: Callable, /, *args, **kwargs):
        """Make a call, or repeat a known one without computing; record it; return its result."""
        given = [*args, *kwargs.values()]
        try:
            key = name, *kwargs, *map(_key, given)
        except NotPlain:
            key = None
        known = _known.get(key)
        if known:
            return self._repeat(known, given)
        blocks.idle[0] = True
        try:
            result = super().record(name, call, *args, **kwargs)
        finally:
            blocks.idle[0] = False
        self.held.append([*self.mesh.used.values()])
        if key is not None:
            _learn(key, self.events[-1], tensors_in(result), tensors_in(given))
        return result

    def _repeat(self, known: Known, given: list):
        """Record a known call, and return its result for these operands."""
        event, made = known.event, []
        for result in known.results:
            if isinstance(result, int):
                made.append(tensors_in(given)[result])
                continue
            fields, nbytes = result
            # `new_tensor` would take three times as long, so the fields are set here.
            tensor = object.__new__(Tensor)
            tensor._array, tensor.dtype, tensor.layout, tensor.grid, *rest = fields
            tensor.topology, tensor.shard_shape, tensor.padded = rest
            tensor.mesh = self.mesh
            tensor.plain_memory_config = DRAM_MEMORY_CONFIG
            tensor._allocation = Allocation(self.mesh, tensor.grid, nbytes)
            made.append(tensor)
        held = [*self.mesh.used.values()]  # These bytes include the results.
        self.held.append(held)
        again = event.name, event.args, event.kwargs, self.part, event.result, True, event.sent
        self.events.append(Event(*again, sum(held)))
        result_type = type(event.result)
        return result_type(made) if result_type in (list, tuple) else made[0]


class NotPlain(Exception):
    """An argument may have a state, so the same call may give another result the next time."""


def _key(value):
    """Return a cache key: the part of an argument that a result without values depends on."""
    if type(value) is Tensor:
        array = value._array
        if array is None or value.plain_memory_config is not DRAM_MEMORY_CONFIG:
            raise NotPlain
        return value.shard_shape, value.dtype, value.layout, value.grid, value.topology, array.shape
    if type(value) is float:  # No shape depends on the value of a float.
        return float
    if isinstance(value, KEYABLE):
        return value
    if type(value) in (list, tuple):
        return tuple(map(_key, value))
    if hasattr(value, "has_values"):
        return value.grid
    raise NotPlain


def _learn(key, event: Event, results: list[Tensor], operands: list[Tensor]) -> None:
    """Remember a call if all its results are interleaved over the DRAM of a mesh."""
    made: list[tuple[Any, int] | int] = []
    for tensor in results:
        if tensor._allocation is None or tensor.plain_memory_config is not DRAM_MEMORY_CONFIG:
            return
        number = next((i for i, other in enumerate(operands) if other is tensor), None)
        made.append(
            (REUSED_FIELDS(tensor), tensor._allocation.nbytes) if number is None else number
        )
    if made:
        if len(_known) >= MAX_KNOWN_CALLS:
            _known.clear()
        _known[key] = Known(event, made)

"""What a profile knows of a call, in numbers and in words, and which calls it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import ref

from ttkit.sim.tensor.memory import bytes_of
from ttkit.words import short

HOST = "host"


class Shard(NamedTuple):
    """What each chip holds of a tensor."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Record:
    """One outermost call: what it did on each of its chips, and its modelled time.

    Args:
        name: the operation's key in `ttkit.sim.ops.operation.OPERATIONS`, without ttnn in front.
        kind: "compute", "communication" (a collective) or "host" (to or from it, not timed).
        mesh: its number in the profile, counted from 1.
        chips: device ids of the chips that took part; the others idle.
        operands, results: on each of the chips.
        flops: on each of the chips, of the values alone; the time is that of whole tiles.
        fidelity: passes of the matrix engine.
        bytes_read, bytes_written: of each chip's DRAM.
        bytes_on_links: over all cables, once for each hop.
        time_s: modelled.
        bound: what limits the time: "compute", "memory", "links", or "" where there is none.
        after: the calls that it waits for, by number, the profile's first call being 1.
    """

    name: str
    kind: str
    mesh: int
    chips: tuple[int, ...]
    operands: tuple[Shard, ...]
    results: tuple[Shard, ...]
    flops: int
    fidelity: str
    bytes_read: int
    bytes_written: int
    bytes_on_links: int
    time_s: float
    bound: str
    after: tuple[int, ...]


# ---------------------------------------------------------------- reading a call
def stored_bytes(tensors: Any) -> int:
    """Return the bytes of tensors on a chip, as the memory accounting counts them."""
    return sum(bytes_of(t.padded, t.dtype) for t in tensors)


def nothing_done(operation: Any, operands: Sequence[Any], results: Sequence[Any]) -> bool:
    """Return whether a call neither computes nor moves anything."""
    if operation.moves == "none" or not results:
        return True
    if not operands:
        return False
    if results[0] is operands[0] and not operation.name.endswith(("_", "_in_place")):
        return True
    before, after = operands[0], results[0]
    same_layout = before.layout is after.layout
    return operation.moves == "shape" and same_layout and _keeps_rows(before, after.shard_shape)


def _keeps_rows(tensor: Any, shape: Sequence[int]) -> bool:
    """Return whether a reshape moves no element: rows keep their length, and tiles their rows."""
    old, new = ((1, 1, *sizes) for sizes in (tensor.shard_shape, shape))
    whole_tiles = old[-2] % 32 == new[-2] % 32 == 0
    rows_stay = tensor.layout.name != "TILE" or old[-2] == new[-2] or whole_tiles
    return old[-1] == new[-1] and rows_stay


# ---------------------------------------------------------------- what a call waits for
class Order:
    """Which earlier calls a call waits for: those that made what it reads, or read what it writes.

    A tensor is known by its identity, by its memory (the shards of `get_device_tensors` lie in it)
    or by its array (which a replay of a trace puts into another tensor). None is kept alive.
    """

    def __init__(self) -> None:
        # by id: the call that made the values (0: before the profile), then those that read them
        self._known: dict[int, tuple[ref[Any], list[int]]] = {}

    def enter(self, number: int, operands: Sequence[Any], made: Sequence[Any]) -> tuple[int, ...]:
        """Return the numbers of the calls that a call waits for, in order.

        Args:
            operands: the tensors that it reads; of a receive the socket's queue too.
            made: the tensors that it made or wrote, of a send the queue; one that is an operand,
                too, was overwritten.
        """
        waits = set()
        for tensor in operands:
            calls = self._calls(tensor)
            waits.add(max(self._calls(thing)[0] for thing in _parts(tensor)))
            if any(tensor is other for other in made):
                waits.update(calls)
            else:
                calls.append(number)
        for tensor in made:
            for thing in _parts(tensor):
                calls = self._calls(thing)
                # an array may be an operand's
                if thing is not getattr(tensor, "_array", None) or not calls[0]:
                    calls[:] = [number]
        return tuple(sorted(waits - {0}))

    def _calls(self, thing: Any) -> list[int]:
        known = self._known.get(id(thing))
        if not known or known[0]() is not thing:  # an id is given again
            known = self._known[id(thing)] = ref(thing), [0]
        return known[1]


def _parts(tensor: Any) -> list[Any]:
    found = (getattr(tensor, name, None) for name in ("_allocation", "_array"))
    return [tensor, *(thing for thing in found if thing is not None)]


# ---------------------------------------------------------------- in words
def last_name(name: str) -> str:
    """Return an operation's name without the module that it is in."""
    return name.rpartition(".")[2]


def time_text(record: Record, time_s: float) -> str:
    """Return a time, where times of such calls are modelled."""
    return "not modelled" if record.kind == HOST else short(time_s, "s")


def bound_text(record: Record) -> str:
    """Return what limits a call, of products with the passes of the matrix engine."""
    return f"{record.bound}, {record.fidelity}" if record.bound == "compute" else record.bound


def chips_text(chips: Sequence[int]) -> str:
    """Return the ids of a few chips, or how many there are."""
    return f"all {len(chips)}" if len(chips) > 4 else ", ".join(map(str, sorted(chips)))


def shapes_text(shards: Sequence[Shard]) -> str:
    """Return shapes and types; a type that all share stands once, at the end."""
    # no spaces in a shape, so that lines break between shapes
    shapes = [f"[{','.join(map(str, s.shape))}]" for s in shards]
    kinds = list(dict.fromkeys(s.dtype for s in shards))
    if len(kinds) == 1:
        return f"{', '.join(shapes)} {kinds[0]}"
    return ", ".join(f"{shape} {s.dtype}" for shape, s in zip(shapes, shards, strict=True))

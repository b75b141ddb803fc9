"""A collective as data: which chip sends which chunk to which neighbour in which step.

A chunk is a numbered piece of the data. What a chip holds of it says whose contributions are in it,
so that a copy, a partial sum and a finished sum can be told apart. Everything else reads this one
object: it is run on arrays, checked, counted, priced, drawn and graded."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.plans.topology import Topology

Chunks = int | tuple[int, ...]
Holdings = dict[int, dict[int, Any]]  # chip -> chunk -> what it holds of it

GATHERS = ("all_gather", "broadcast", "point_to_point", "all_to_all")
REDUCES = ("reduce_scatter", "all_reduce")


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message over one cable.

    Args:
        source, destination: device ids of two chips that are cabled.
        chunk: the number of a chunk, or several that travel as one message.
        bytes: size of the message; a plan fills it in where it is left out.
        reduce: the destination adds what arrives to what it holds; else it keeps what arrives.
    """

    source: int
    destination: int
    chunk: Chunks
    bytes: int | None = None
    reduce: bool = False

    @property
    def chunks(self) -> tuple[int, ...]:
        """The chunks of the message."""
        return tuple(self.chunk) if isinstance(self.chunk, (tuple, list)) else (self.chunk,)


@dataclass(frozen=True, slots=True)
class Step:
    """Transfers that happen at the same time; each reads what its source held before the step."""

    transfers: tuple[Transfer, ...]

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self.transfers)

    def __len__(self) -> int:
        return len(self.transfers)


@dataclass(frozen=True)
class Plan:
    """A collective on a topology, step by step; built by the functions of `ttkit.plans`, or
    written by hand.

    A chip's shard is `shard_bytes` long. The chunks are numbered so:

    - all_gather, broadcast, point_to_point: chunk k is the shard of the chip at place k of the mesh
      (row by row);
    - reduce_scatter, all_reduce: each shard is cut into as many parts as there are chips in a
      group, and chunk k is the part of the chip at place k;
    - all_to_all: with n chips in a group, chunk k * n + j is what the chip at place k has for the
      j-th chip of its group.

    With `pieces` > 1 each of those is cut again, and chunk k's pieces have the numbers k * pieces
    to (k + 1) * pieces - 1. A message goes over `links` of the cables between two chips at once, an
    equal part over each.

    Args:
        collective: one of the six names above.
        topology: chips and cables.
        steps: the transfers; lists of lists will do.
        shard_bytes: what each chip brings, in bytes.
        axis: the mesh axis along which chips work together, None for all of them.
        root: the sender of a broadcast (one chip for each group, the chip's place in its group) or
        of a point_to_point (a device id). destination: the receiver of a point_to_point (a device
        id). algorithm: a name for pictures and tables.

    Example:
        >>> from ttkit.plans import topology
        >>> n300 = topology("n300")
        >>> plan = Plan("all_gather", n300, [[Transfer(0, 1, chunk=0), Transfer(1, 0, chunk=1)]], shard_bytes=1024)
        >>> plan.validate().bytes_per_link
        {(0, 1): 1024, (1, 0): 1024}
    """

    collective: str
    topology: Topology
    steps: tuple[Step, ...]
    shard_bytes: int
    axis: int | None = None
    pieces: int = 1
    links: int = 1
    root: int | None = None
    destination: int | None = None
    algorithm: str = "by hand"

    def __post_init__(self) -> None:
        if self.collective not in GATHERS + REDUCES:
            fail(
                f"a plan for {self.collective!r}",
                f"the collectives are {', '.join(GATHERS + REDUCES)}",
            )
        self._check_numbers()
        steps = tuple(
            step if isinstance(step, Step) else Step(tuple(self._transfers(i, step)))
            for i, step in enumerate(self.steps, 1)
        )
        if any(t.bytes is None for step in steps for t in step):
            steps = tuple(
                Step(
                    tuple(
                        t if t.bytes is not None else replace(t, bytes=self._size(t)) for t in step
                    )
                )
                for step in steps
            )
        object.__setattr__(self, "steps", steps)

    def _check_numbers(self) -> None:
        asked = f"a plan for {self.collective} on {self.topology!r}"
        for name in ("shard_bytes", "pieces", "links"):
            if not isinstance(getattr(self, name), (int, np.integer)) or getattr(self, name) < 1:
                fail(asked, f"{name}={getattr(self, name)!r} must be a whole number of at least 1")
        if self.links > max(1, self.topology.links):
            fail(
                asked,
                f"a message over {self.links} links; two chips are joined by {self.topology.links}",
                f"links=1 to {self.topology.links}",
            )
        if self.collective == "broadcast" and self.root not in range(self.group_size):
            fail(
                asked,
                f"root={self.root!r} must be the sender's number in its group, "
                f"0 to {self.group_size - 1}",
                "root=0",
            )
        ends = (
            {"root": self.root, "destination": self.destination}
            if self.collective == "point_to_point"
            else {}
        )
        for name, chip in ends.items():
            if chip not in self.topology.chips:
                fail(
                    asked,
                    f"{name}={chip!r} must be the id of a chip: {list(self.topology.chips)}",
                    f"{name}={self.topology.chips[0]}",
                )

    def _transfers(self, number: int, step: Any) -> list[Transfer]:
        transfers = list(step) if isinstance(step, Iterable) else [step]
        if not isinstance(step, Iterable) or not all(isinstance(t, Transfer) for t in transfers):
            fail(
                f"step {number} of a plan for {self.collective}",
                f"a step is a list of Transfer, this is {step!r}",
                "steps=[[Transfer(...), ...], ...]",
            )
        return transfers

    def __repr__(self) -> str:
        along = "" if self.axis is None else f" along axis {self.axis}"
        rows, columns = self.topology.shape
        return (
            f"Plan({self.collective}{along} on {self.topology.name} {rows}x{columns}: "
            f"{self.algorithm}, {len(self.steps)} steps)"
        )

    def _repr_html_(self) -> str:
        from ttkit.visualize.plan import draw_plan

        return draw_plan(self)._repr_html_()

    # ------------------------------------------------------------ chunks
    @functools.cached_property
    def groups(self) -> list[tuple[int, ...]]:
        """The chips that work together, in order."""
        return self.topology.groups(self.axis)

    @functools.cached_property
    def seat(self) -> dict[int, tuple[tuple[int, ...], int]]:
        """For each chip its group and its number in the group."""
        return {chip: (group, i) for group in self.groups for i, chip in enumerate(group)}

    @property
    def group_size(self) -> int:
        """Chips in a group."""
        return len(self.groups[0])

    @functools.cached_property
    def parts(self) -> int:
        """Into how many parts a shard is cut before it is cut into pieces."""
        return (
            1
            if self.collective in ("all_gather", "broadcast", "point_to_point")
            else self.group_size
        )

    def chunk(self, chip: int, part: int = 0, piece: int = 0) -> int:
        """The number of a chunk: that of a chip (by id); for all_to_all the part of it that is
        for the group's chip `part`.
        """
        owner = self.topology.place[chip]
        return (
            (owner * self.parts + part) if self.collective == "all_to_all" else owner
        ) * self.pieces + piece

    def chunks_of(self, chip: int, part: int = 0) -> tuple[int, ...]:
        """All pieces of a chunk, by number."""
        first = self.chunk(chip, part)
        return tuple(range(first, first + self.pieces))

    @functools.cached_property
    def sizes(self) -> list[int]:
        """The bytes of every chunk, by number."""
        parts = _cut(self.shard_bytes, self.parts)
        if self.collective == "all_to_all":
            each = [size for _ in self.topology.chips for size in parts]
        else:
            each = [
                parts[self.seat[chip][1] if self.parts > 1 else 0] for chip in self.topology.chips
            ]
        return [size for whole in each for size in _cut(whole, self.pieces)]

    def _size(self, transfer: Transfer) -> int:
        known = range(len(self.sizes))
        # an unknown chunk is reported by `validate`
        return sum(self.sizes[c] for c in transfer.chunks if c in known)

    def before(self, piece: Callable[[int, int], Any]) -> Holdings:
        """What every chip holds at the start: {chip: {chunk: piece(chip, chunk)}}."""
        return {chip: {c: piece(chip, c) for c in chunks} for chip, chunks in self._starts()}

    @functools.cached_property
    def _whole(self) -> dict[tuple[int, ...], list[int]]:
        """The chunks of all chips of a group; kept, because on a big mesh each of many chips
        holds all of many chunks.
        """
        return {group: [c for chip in group for c in self.chunks_of(chip)] for group in self.groups}

    def _starts(self) -> Iterator[tuple[int, Iterable[int]]]:
        for group in self.groups:
            for i, chip in enumerate(group):
                if self.collective in REDUCES:
                    yield chip, self._whole[group]
                elif self.collective == "all_to_all":
                    yield (
                        chip,
                        [c for part in range(len(group)) for c in self.chunks_of(chip, part)],
                    )
                elif self.collective == "broadcast":
                    yield chip, self.chunks_of(chip) if i == self.root else ()
                elif self.collective == "point_to_point":
                    yield chip, self.chunks_of(chip) if chip == self.root else ()
                else:
                    yield chip, self.chunks_of(chip)

    def goal(self, chip: int) -> list[int]:
        """The chunks that a chip must hold, whole, after the last step."""
        group, number = self.seat[chip]
        if self.collective in ("all_gather", "all_reduce"):
            return self._whole[group]
        if self.collective == "reduce_scatter":
            return list(self.chunks_of(chip))
        if self.collective == "all_to_all":
            return [c for other in group for c in self.chunks_of(other, number)]
        if self.collective == "broadcast":
            return list(self.chunks_of(group[self.root or 0]))
        return list(self.chunks_of(self.root)) if chip == self.destination else []  # type: ignore[arg-type]

    # ------------------------------------------------------------ reading the steps
    def _play(self, held: Holdings, add: Callable[[Any, Any], Any]) -> Iterator[Holdings]:
        """Move what is held, step by step; the same dicts are given after every step."""
        for step in self.steps:
            sent = [(t.destination, c, held[t.source][c], t.reduce) for t in step for c in t.chunks]
            for chip, c, value, reduce in sent:
                held[chip][c] = add(held[chip][c], value) if reduce else value
            yield held

    def states(self) -> Iterator[dict[int, dict[int, frozenset[int]]]]:
        """For each moment, before the first step and after every one: {chip: {chunk: the chips
        whose contributions are in it}}.
        """
        held = self.before(lambda chip, c: frozenset([chip]))
        for state in itertools.chain([held], self._play(held, frozenset.union)):
            yield {chip: dict(chunks) for chip, chunks in state.items()}

    def validate(self) -> Plan:
        """This plan, if it does what it is for.

        Raises:
            TTKitError: a cable that is not there, a chunk that is not held, a part that is added
            twice or lost, more
                messages than links, or a chip without its result; the message names chip, chunk and
                step.
        """
        from ttkit.plans.validate import validate

        validate(self)
        return self

    def run(self, shards: Sequence[np.ndarray], dim: int = 0) -> list[np.ndarray]:
        """Move real data, chunk by chunk.

        Args:
            shards: one array for each chip, in the order of the mesh, all of one shape.
            dim: where shards are joined or cut.

        Returns:
            One array for each chip: joined along `dim` (all_gather), its part of the sum
            (reduce_scatter), the sum (all_reduce), the root's shard (broadcast), the source's shard
            at the destination and its own elsewhere (point_to_point), or the parts for it, joined
            (all_to_all).

        Raises:
            TTKitError: as `validate`; a wrong number of shards; a dimension that cannot be cut
            evenly.

        Example:
            >>> from ttkit.plans import all_reduce, topology
            >>> [out.tolist() for out in all_reduce(topology("n300"), 8).run([np.array([1, 2]), np.array([10, 20])])]
            [[11, 22], [11, 22]]
        """
        from ttkit.plans.run import run

        return run(self.validate(), shards, dim)

    # ------------------------------------------------------------ counting
    @property
    def transfers(self) -> Iterator[tuple[int, Transfer]]:
        """Every transfer with the number of its step, counted from 1."""
        return ((number, t) for number, step in enumerate(self.steps, 1) for t in step)

    @functools.cached_property
    def bytes_per_link(self) -> dict[tuple[int, int], int]:
        """Bytes from each chip to each of its neighbours: {(source, destination): bytes}, over
        `links` cables together.
        """
        counted: Counter[tuple[int, int]] = Counter()
        for _, t in self.transfers:
            counted[t.source, t.destination] += t.bytes or 0
        return dict(sorted(counted.items()))

    @property
    def bytes_sent(self) -> dict[int, int]:
        """Bytes that each chip sends: {chip: bytes}."""
        counted = dict.fromkeys(self.topology.chips, 0)
        for (source, _), size in self.bytes_per_link.items():
            counted[source] += size
        return counted

    @property
    def bytes_per_step(self) -> list[int]:
        """Bytes that all chips together send in each step."""
        return [sum(t.bytes or 0 for t in step) for step in self.steps]

    @property
    def total_bytes(self) -> int:
        """Bytes over all cables, counted once for each hop."""
        return sum(self.bytes_per_link.values())

    @functools.cached_property
    def peak_extra_bytes(self) -> int:
        """The most that any chip holds beside its own shard: what it has gathered, and the parts
        that arrive to be added.
        """
        held = self.before(lambda chip, c: True)
        own = {chip: sum(self.sizes[c] for c in chunks) for chip, chunks in held.items()}
        now, peak = dict(own), 0
        for step, _ in zip(self.steps, self._arrivals(held, now), strict=True):
            landing: Counter[int] = Counter()
            for t in step:
                if t.reduce:
                    landing[t.destination] += t.bytes or 0
            peak = max([peak] + [now[chip] - own[chip] + landing[chip] for chip in now])
        return peak

    def _arrivals(self, held: Holdings, now: dict[int, int]) -> Iterator[None]:
        for step in self.steps:
            for t in step:
                for c in t.chunks:
                    if c not in held[t.destination]:
                        held[t.destination][c] = True
                        now[t.destination] += self.sizes[c]
            yield


def _cut(total: int, parts: int) -> list[int]:
    """Sizes of `parts` pieces of `total`, as equal as can be, the longer ones first."""
    size, rest = divmod(total, parts)
    return [size + (i < rest) for i in range(parts)]

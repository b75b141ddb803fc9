"""A collective as data: which chip sends which chunk to which neighbour in which step.

A chunk is a numbered part of the data. A chip holds it with the contributions of certain chips, so
that a copy, a partial sum and a finished sum differ. Everything else reads this one
object: it is run on arrays, checked, counted, timed, drawn and graded."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from ttkit.errors import check_counts, fail
from ttkit.lazy import drawn_by
from ttkit.plans.topology import Topology

Array = np.ndarray
# The keys are chips and then chunks; the values are what the chip holds of the chunk.
Holdings = dict[int, dict[int, Any]]
Parts = dict[int, dict[int, int]]  # The values have a bit for each chip whose part is added in.

GATHERS = ("all_gather", "all_to_all", "broadcast", "point_to_point", "shift")
# In these, every chip sends to every other one of its group.
ALL = ("all_gather", "all_to_all")
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
    chunk: int | tuple[int, ...]
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
    """A collective on a topology, step by step.

    Chunk k belongs to the chip at place k of the mesh, row by row. It is that chip's shard. For
    reduce_scatter and all_reduce each shard is cut into as many parts as a group has chips, and
    chunk k is the chip's part of the sum. A message goes over `links` of the cables between two
    chips at once, an equal part over each.

    Args:
        collective: all_gather, all_to_all, broadcast, point_to_point, shift, reduce_scatter or
            all_reduce. Of an all_to_all a message has only the parts for chips farther on.
        topology: chips and cables.
        steps: the transfers; lists of lists will do.
        shard_bytes: the size of the shard of each chip.
        axis: the mesh axis along which chips work together, None for all of them.
        root: the sender: of a broadcast its number in each group, of a point_to_point a device id.
        destination: the receiver of a point_to_point, a device id.
        algorithm: a name for pictures and tables.
        backwards: in a shift, each chip gets the shard of the chip after it, not before it.

    Example:
        >>> from ttkit.plans import topology
        >>> there_and_back = [Transfer(0, 1, chunk=0), Transfer(1, 0, chunk=1)]
        >>> plan = Plan("all_gather", topology("n300"), [there_and_back], shard_bytes=1024)
        >>> plan.validate().bytes_per_link
        {(0, 1): 1024, (1, 0): 1024}
    """

    collective: str
    topology: Topology
    steps: tuple[Step, ...]
    shard_bytes: int
    axis: int | None = None
    links: int = 1
    root: int | None = None
    destination: int | None = None
    algorithm: str = "by hand"
    backwards: bool = False

    def __post_init__(self) -> None:
        if self.collective not in GATHERS + REDUCES:
            rule = f"the collectives are {', '.join(GATHERS + REDUCES)}"
            fail(f"a plan for {self.collective!r}", rule)
        asked, links = f"a plan for {self.collective} on {self.topology!r}", self.topology.links
        check_counts(asked, shard_bytes=self.shard_bytes, links=self.links)
        if self.links > max(1, links):
            rule = f"a message over {self.links} links; two chips are joined by {links}"
            fail(asked, rule, f"links=1 to {links}")
        if self.collective == "broadcast" and self.root not in range(self.group_size):
            rule = f"root={self.root!r} must be the sender's number in its group"
            fail(asked, f"{rule}, 0 to {self.group_size - 1}", "root=0")
        object.__setattr__(self, "steps", tuple(map(self._sized, self.steps)))

    def _sized(self, step: Iterable[Transfer]) -> Step:
        """A step of transfers that all have their size."""
        if isinstance(step, Step) and all(t.bytes is not None for t in step):
            return step
        if not all(isinstance(t, Transfer) for t in step):
            rule = f"a step is a list of Transfer, this is {step!r}"
            fail(f"a plan for {self.collective}", rule, "steps=[[Transfer(...), ...], ...]")
        known = range(len(self.sizes))  # `validate` reports an unknown chunk.
        return Step(
            tuple(
                replace(t, bytes=sum(self.sizes[c] for c in t.chunks if c in known))
                if t.bytes is None
                else t
                for t in step
            )
        )

    def __repr__(self) -> str:
        along = "" if self.axis is None else f" along axis {self.axis}"
        rows, columns = self.topology.shape
        how = f"{self.algorithm}, {len(self.steps)} steps"
        return f"Plan({self.collective}{along} on {self.topology.name} {rows}x{columns}: {how})"

    _repr_html_ = drawn_by("plan.draw_plan")

    @property
    def adds(self) -> bool:
        """True where chips add up what they hold of a chunk."""
        return self.collective in REDUCES

    # ------------------------------------------------------------ chunks
    @functools.cached_property
    def groups(self) -> list[tuple[int, ...]]:
        """The chips that work together, in order."""
        return self.topology.groups(self.axis)

    @functools.cached_property
    def group_of(self) -> dict[int, tuple[tuple[int, ...], int]]:
        """For each chip its group and its number in the group."""
        return {chip: (group, i) for group in self.groups for i, chip in enumerate(group)}

    @property
    def group_size(self) -> int:
        """Chips in a group."""
        return len(self.groups[0])

    @functools.cached_property
    def sizes(self) -> list[int]:
        """The bytes of every chunk, by number."""
        if not self.adds:
            return [self.shard_bytes] * len(self.topology.chips)
        # The parts are as equal as can be, the longer ones first.
        size, rest = divmod(self.shard_bytes, self.group_size)
        return [size + (self.group_of[chip][1] < rest) for chip in self.topology.chips]

    @functools.cached_property
    def _chunks(self) -> dict[tuple[int, ...], list[int]]:
        """The chunks of all chips of a group; kept, because each of many chips may hold them."""
        return {group: [self.topology.place[chip] for chip in group] for group in self.groups}

    def before(self, part: Callable[[int, int], Any]) -> Holdings:
        """Return what every chip holds at the start: {chip: {chunk: part(chip, chunk)}}."""
        return {chip: {c: part(chip, c) for c in chunks} for chip, chunks in self._starts()}

    def _starts(self) -> Iterator[tuple[int, Iterable[int]]]:
        for group in self.groups:
            for number, (chip, own) in enumerate(zip(group, self._chunks[group], strict=True)):
                if self.adds:
                    yield chip, self._chunks[group]
                elif self.collective in (*ALL, "shift"):
                    yield chip, [own]
                else:
                    sender = number if self.collective == "broadcast" else chip
                    yield chip, [own] if sender == self.root else []

    def goal(self, chip: int) -> list[int]:
        """Return the chunks that a chip must hold, whole, after the last step."""
        group, number = self.group_of[chip]
        if self.collective in (*ALL, "all_reduce"):
            return self._chunks[group]
        if self.collective == "reduce_scatter":
            return self._chunks[group][number : number + 1]
        if self.collective == "shift":
            before = number + 1 if self.backwards else number - 1
            return [self._chunks[group][before % len(group)]]
        if self.collective == "broadcast":
            return [self._chunks[group][self.root or 0]]
        return [self.topology.place[self.root or 0]] if chip == self.destination else []

    # ------------------------------------------------------------ reading the steps
    def _play(self, held: Holdings, add: Callable[[Any, Any], Any]) -> Iterator[Holdings]:
        """Move what is held, step by step; the same dicts are given after every step."""
        for step in self.steps:
            sent = [(t.destination, c, held[t.source][c], t.reduce) for t in step for c in t.chunks]
            for chip, c, value, reduce in sent:
                held[chip][c] = add(held[chip][c], value) if reduce else value
            yield held

    def states(self) -> Iterator[dict[int, dict[int, frozenset[int]]]]:
        """Yield, before the first step and after each, {chip: {chunk: contributing chips}}."""
        held = self.before(lambda chip, c: frozenset([chip]))
        for state in itertools.chain([held], self._play(held, frozenset.union)):
            yield {chip: dict(chunks) for chip, chunks in state.items()}

    def validate(self) -> Plan:
        """Return this plan if it is correct.

        Raises:
            TTKitError: a cable that is not there, a chunk that is not held, a part that is added
                twice or lost, more messages than links, or a chip without its result; the message
                names chip, chunk and step.
        """
        validate(self)
        return self

    def run(self, shards: Sequence[Array], dim: int = 0) -> list[Array]:
        """Move real data, chunk by chunk.

        Args:
            shards: one array for each chip, in the order of the mesh, all of one shape.
            dim: the dimension along which shards are joined or cut.

        Returns:
            One array for each chip: joined along `dim` (all_gather), its part of each shard
            (all_to_all), its part of the sum (reduce_scatter), the sum (all_reduce), the root's
            shard (broadcast), its neighbour's (shift), or the source's shard at the destination and
            its own elsewhere (point_to_point).

        Raises:
            TTKitError: as `validate`; other shards, or a dimension that cannot be cut evenly.

        Example:
            >>> from ttkit.plans import all_reduce, topology
            >>> plan = all_reduce(topology("n300"), 8)
            >>> [out.tolist() for out in plan.run([np.array([1, 2]), np.array([10, 20])])]
            [[11, 22], [11, 22]]
        """
        chips, arrays = self.validate().topology.chips, [np.asarray(shard) for shard in shards]
        if len(arrays) != len(chips) or len({array.shape for array in arrays}) > 1:
            rule = f"there must be {len(chips)} shards of one shape, in the order of the mesh"
            fail(f"{self!r}.run", f"{rule}; these have {[array.shape for array in arrays]}")
        n, size = self.group_size, arrays[0].shape[dim]
        if self.collective in ("reduce_scatter", "all_to_all") and size % n:
            rule = f"{n} chips do not divide {size}, the size of dimension {dim}"
            fail(f"{self!r}.run", rule, "another dim, or pad first")
        parts = {chip: self._parts(array, dim) for chip, array in zip(chips, arrays, strict=True)}
        # A sum's chunk is the shard's part with its owner's number; else a shard is one part.
        number = [self.group_of[chip][1] if self.adds else 0 for chip in chips]
        held = self.before(lambda chip, c: parts[chip][number[c]])
        for _ in self._play(held, operator.add):
            pass
        return [self._result(chip, held[chip], own, dim) for chip, own in zip(chips, arrays)]

    def _parts(self, array: Array, dim: int) -> list[Array]:
        """A shard as flat chunks."""
        if self.collective == "reduce_scatter":
            return [part.ravel() for part in np.split(array, self.group_size, dim)]
        # The sum of an all_reduce has the shard's shape, so it may be cut anywhere.
        return np.array_split(array.ravel(), self.group_size if self.adds else 1)

    def _result(self, chip: int, held: dict[int, Array], own: Array, dim: int) -> Array:
        goal = self.goal(chip)
        if not goal:
            return own.copy()
        if self.collective in ALL:
            shards = [held[c].reshape(own.shape) for c in goal]
            if self.collective == "all_to_all":
                n, number = self.group_size, self.group_of[chip][1]
                shards = [np.split(shard, n, dim)[number] for shard in shards]
            return np.concatenate(shards, dim)
        shape = list(own.shape)
        if self.collective == "reduce_scatter":
            shape[dim] //= self.group_size
        return np.concatenate([held[c] for c in goal]).reshape(shape)

    # ------------------------------------------------------------ counting
    @property
    def transfers(self) -> Iterator[tuple[int, Transfer]]:
        """Every transfer with the number of its step, counted from 1."""
        return ((number, t) for number, step in enumerate(self.steps, 1) for t in step)

    @functools.cached_property
    def bytes_per_link(self) -> dict[tuple[int, int], int]:
        """Bytes of each pair of chips, one way, over its links together.

        {(source, destination): bytes}. Each link that a transfer uses carries an equal part of it.
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
        """The most that any chip holds beyond its local shard, chunks to be added included."""
        held = {chip: set(chunks) for chip, chunks in self._starts()}
        extra, peak = dict.fromkeys(held, 0), 0
        for step in self.steps:
            landing: Counter[int] = Counter()
            for t in step:
                there = held[t.destination]
                if self.collective == "all_to_all":  # Its messages are parts of shards.
                    extra[t.destination] += t.bytes or 0
                elif not there.issuperset(t.chunks):
                    extra[t.destination] += sum(self.sizes[c] for c in set(t.chunks) - there)
                    there.update(t.chunks)
                if t.reduce:
                    landing[t.destination] += t.bytes or 0
            peak = max([peak] + [extra[chip] + landing[chip] for chip in extra])
        return peak


# ---------------------------------------------------------------- checking
def validate(plan: Plan) -> None:
    """Raise at the first thing that is wrong in a plan, naming chip, chunk and step."""
    bit = {chip: 1 << i for i, chip in enumerate(plan.topology.chips)}
    # `parts` says whose contributions are in a chunk on a chip, with one bit for each chip.
    parts = plan.before(lambda chip, c: bit[chip]) if plan.adds else {}
    held = {chip: set(chunks) for chip, chunks in plan.before(lambda chip, c: True).items()}
    for number, step in enumerate(plan.steps, 1):
        for t in step:
            _check_transfer(plan, number, t, held)
        _check_load(plan, number, step)
        if plan.adds:
            _add_up(plan, number, step, parts)
        for t in step:
            held[t.destination].update(t.chunks)
    _check_goal(plan, held, parts, bit)


def _check_transfer(plan: Plan, number: int, t: Transfer, held: dict[int, set[int]]) -> None:
    """Fail where no cable leads there, or the chip does not have what it sends."""
    topology = plan.topology
    if strangers := {t.source, t.destination} - topology.place.keys():
        rule = f"{_sends(t, t.chunk)}, but there is no chip {strangers.pop()}"
        _wrong(plan, number, rule, f"one of {list(topology.chips)}")
    if not topology.joined(t.source, t.destination):
        rule = f"{_sends(t, t.chunk)}, but no cable joins them"
        near = ", ".join(map(str, topology.neighbours(t.source)))
        _wrong(plan, number, rule, f"a neighbour of chip {t.source}: {near}")
    if not held[t.source].issuperset(t.chunks):
        missing = next(c for c in t.chunks if c not in held[t.source])
        rule = f"{_sends(t, missing)}, but does not hold it yet"
        _wrong(plan, number, rule, "send it in an earlier step to this chip first")
    if t.reduce and not plan.adds:
        rule = f"{_sends(t, t.chunk)} with reduce=True, but {plan.collective} adds nothing"
        _wrong(plan, number, rule, "reduce=False")


def _check_load(plan: Plan, number: int, step: Step) -> None:
    links, room = plan.topology.links, plan.topology.links // plan.links
    for (source, destination), n in Counter((t.source, t.destination) for t in step).items():
        if n > room:
            rule = (
                f"chip {source} sends {n} messages to chip {destination}; "
                f"{links} links carry {room} at a time, each over {plan.links}"
            )
            _wrong(plan, number, rule, "another step for some, or one message with several chunks")


def _add_up(plan: Plan, number: int, step: Step, parts: Parts) -> None:
    """Add what a step brings: no contribution twice, none lost."""
    # Every chip reads what it sends before any chip adds.
    arrives = [(t, [parts[t.source][c] for c in t.chunks]) for t in step]
    written: dict[tuple[int, int], int] = {}
    for t, masks in arrives:
        have = parts[t.destination]
        for c, mask in zip(t.chunks, masks, strict=True):
            old = have.get(c, 0)
            rule = cure = ""
            if t.reduce and old & mask:
                rule = f"which would add the part of {_chips(plan, old & mask)} a second time"
            elif not t.reduce and old & ~mask:
                rule = f"where it would overwrite the part of {_chips(plan, old & ~mask)}"
                cure = "reduce=True adds it"
            elif not t.reduce and written.setdefault((t.destination, c), t.source) != t.source:
                rule = f"and so does chip {written[t.destination, c]}: one overwrites the other"
                cure = "reduce=True adds both"
            if rule:
                _wrong(plan, number, f"{_sends(t, c)}, {rule}", cure)
            have[c] = old | mask


def _check_goal(plan: Plan, held: dict[int, set[int]], parts: Parts, bit: dict[int, int]) -> None:
    last = len(plan.steps)
    for group in plan.groups:
        everyone = sum(bit[chip] for chip in group)
        for chip in group:
            for c in plan.goal(chip):
                if c not in held[chip]:
                    rule = f"after the last step chip {chip} does not hold chunk {c}"
                    _wrong(plan, last, f"{rule}, which {plan.collective} should give it")
                if missing := everyone & ~parts[chip][c] if parts else 0:
                    rule = f"after the last step chunk {c} on chip {chip} lacks the part of"
                    _wrong(plan, last, f"{rule} {_chips(plan, missing)}")


def _sends(t: Transfer, c: object) -> str:
    return f"chip {t.source} sends chunk {c} to chip {t.destination}"


def _chips(plan: Plan, mask: int) -> str:
    chips = [chip for i, chip in enumerate(plan.topology.chips) if mask >> i & 1]
    return ("chip " if len(chips) == 1 else "chips ") + ", ".join(map(str, chips))


def _wrong(plan: Plan, number: int, rule: str, cure: str = "") -> NoReturn:
    asked = f"step {number} of {len(plan.steps)} of {plan.collective} on {plan.topology!r}"
    fail(asked, rule, cure)

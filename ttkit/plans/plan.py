"""A collective as data: which chip sends which chunk to which neighbour in which step.

A chunk is a numbered part of the data. For each chunk that a chip holds, the code follows which
chips have contributed to it, so it can tell partial sums from finished ones. All other code reads
this one object: a plan is run on arrays, checked, counted, timed, drawn and graded."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ttkit.errors import check_counts, fail
from ttkit.lazy import drawn_by
from ttkit.plans.topology import Line, Pair, Topology
from ttkit.words import numbered

Array = np.ndarray
Bundle = tuple[int, ...]  # Chunks that travel together are a bundle.
# The outer keys are chips, the inner keys are chunks. A value is what a chip holds of a chunk.
Holdings = dict[int, dict[int, Any]]


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message between two chips that are cabled, over one or more of their links.

    Args:
        source, destination: device ids of two chips that are cabled.
        chunk: the number of a chunk, or of several chunks that travel as one message.
        bytes: the size of the message; if it is 0, the plan computes it from the chunks.
        reduce: whether the destination adds what arrives to what it holds; else it replaces that.
    """

    source: int
    destination: int
    chunk: int | Bundle
    bytes: int = 0
    reduce: bool = False

    @property
    def chunks(self) -> Bundle:
        """The chunks of the message."""
        return tuple(self.chunk) if isinstance(self.chunk, (tuple, list)) else (self.chunk,)


# The transfers of a step happen at the same time; each sends what its source held before the step.
Step = Sequence[Transfer]


@dataclass(frozen=True)
class Plan:
    """A collective on a topology, step by step.

    Chunk k belongs to the chip at place k of the mesh, row by row. In most collectives it is the
    shard of that chip. In reduce_scatter and all_reduce each shard is cut into as many parts as a
    group has chips, and chunk k is that chip's part of the sum. A message goes over `links` of the
    cables between two chips at once, an equal part over each.

    Args:
        collective: all_gather, all_to_all, broadcast, point_to_point, shift, reduce_scatter or
            all_reduce. A message of `ttkit.plans.all_to_all` counts the bytes of only the parts
            that its receiver and the chips after it need.
        topology: the chips and cables.
        steps: the transfers of each step, as tuples or lists.
        shard_bytes: the size of the shard of each chip.
        axis: the mesh axis along which chips work together; None if all chips do.
        links: the number of links that each message uses.
        root: the sender: in a broadcast its number in each group, in a point_to_point its id.
        destination: the receiver of a point_to_point, a device id.
        algorithm: a name for pictures and tables.
        backwards: whether in a shift each chip gets the shard of the chip after it, not before it.

    Example:
        >>> from ttkit.plans import topology
        >>> there_and_back = [Transfer(0, 1, chunk=0), Transfer(1, 0, chunk=1)]
        >>> plan = Plan("all_gather", topology("n300"), [there_and_back], shard_bytes=1024)
        >>> plan.validate().bytes_per_link
        {(0, 1): 1024, (1, 0): 1024}
    """

    collective: str
    topology: Topology
    steps: Sequence[Step]
    shard_bytes: int
    axis: int | None = None
    links: int = 1
    root: int = 0
    destination: int | None = None
    algorithm: str = "by hand"
    backwards: bool = False

    def __post_init__(self) -> None:
        if self.collective not in COLLECTIVES:
            fail(f"a plan for {self.collective!r}", f"the collectives are {', '.join(COLLECTIVES)}")
        asked = f"a plan for {self.collective} on {self.topology!r}"
        links = self.topology.links
        check_counts(asked, shard_bytes=self.shard_bytes, links=self.links)
        if self.links > max(1, links):
            fail(
                asked,
                f"a message uses {self.links} links, but two chips are joined by {links}",
                f"links=1 to {links}",
            )
        if self.destination is None and not 0 <= self.root < self.group_size:
            fail(asked, f"root {self.root} is none of 0 to {self.group_size - 1}")
        object.__setattr__(self, "steps", tuple(map(self._sized, self.steps)))

    def _sized(self, step: Iterable[Transfer]) -> Step:
        """Return the transfers of a step, with the sizes of their messages filled in."""
        known = range(len(self.sizes))  # `validate` reports an unknown chunk.
        return tuple(
            t if t.bytes else replace(t, bytes=sum(self.sizes[c] for c in t.chunks if c in known))
            for t in step
        )

    @property
    def title(self) -> str:
        """The collective, the mesh axis and the system, in words."""
        along = "" if self.axis is None else f" along axis {self.axis}"
        rows, columns = self.topology.shape
        return f"{self.collective}{along} on {self.topology.name} {rows}x{columns}"

    def __repr__(self) -> str:
        return f"Plan({self.title}: {self.algorithm}, {len(self.steps)} steps)"

    _repr_html_ = drawn_by("plan:draw_plan")

    @property
    def adds(self) -> bool:
        """Whether the chips of this collective add up their parts of a chunk."""
        return COLLECTIVES[self.collective].adds

    # ------------------------------------------------------------ chunks
    @cached_property
    def groups(self) -> list[Line]:
        """The groups of chips that work together, each group in its order."""
        return self.topology.groups(self.axis)

    @cached_property
    def group_of(self) -> dict[int, tuple[Line, int]]:
        """The group of each chip, and its number there: {chip: (group, number)}."""
        return {chip: (group, i) for group in self.groups for i, chip in enumerate(group)}

    @property
    def group_size(self) -> int:
        """The number of chips in a group."""
        return len(self.groups[0])

    @cached_property
    def sizes(self) -> list[int]:
        """The bytes of every chunk, by number."""
        if not self.adds:
            return [self.shard_bytes] * len(self.topology.chips)
        # The parts differ by at most one byte, and the longer parts come first.
        size, rest = divmod(self.shard_bytes, self.group_size)
        return [size + (self.group_of[chip][1] < rest) for chip in self.topology.chips]

    @property
    def sender(self) -> int:
        """The sender's number in its group, in a collective with only one sender."""
        return self.topology.place[self.root] if self.destination is not None else self.root

    def _chunks(self, chip: int, owners: str) -> list[int]:
        group, number = self.group_of[chip]
        return [self.topology.place[group[n]] for n in OWNERS[owners](self, number)]

    def holdings_at_start(self, part: Callable[[int, int], Any]) -> Holdings:
        """Return what every chip holds at the start: {chip: {chunk: part(chip, chunk)}}."""
        held = COLLECTIVES[self.collective].held
        return {
            chip: {c: part(chip, c) for c in self._chunks(chip, held)} for chip in self.group_of
        }

    def _parts_at_start(self) -> Holdings:
        """Return holdings where each chunk has only the contribution of the chip that holds it."""
        return self.holdings_at_start(lambda chip, c: frozenset([chip]))

    def goal(self, chip: int) -> list[int]:
        """Return the chunks that a chip must hold completely after the last step."""
        return self._chunks(chip, COLLECTIVES[self.collective].goal)

    # ------------------------------------------------------------ reading the steps
    def _play(self, held: Holdings, add: Callable[[Any, Any], Any]) -> Iterator[Holdings]:
        """Carry out the steps on `held`, and yield it after each step; it is the same object."""
        for step in self.steps:
            sent = [(t.destination, c, held[t.source][c], t.reduce) for t in step for c in t.chunks]
            for chip, c, value, reduce in sent:
                held[chip][c] = add(held[chip][c], value) if reduce else value
            yield held

    def states(self) -> Iterator[dict[int, dict[int, frozenset[int]]]]:
        """Yield, before the first step and after each, {chip: {chunk: contributing chips}}."""
        held = self._parts_at_start()
        for state in itertools.chain([held], self._play(held, frozenset.union)):
            yield {chip: dict(chunks) for chip, chunks in state.items()}

    def validate(self) -> Plan:
        """Return this plan if it is correct.

        Raises:
            TTKitError: a cable or a chunk is missing, a part is added twice or lost, links cannot
                carry all messages, or a chip lacks its result. The message names the step.
        """
        held, adds = self._parts_at_start(), self.adds
        for number, step in enumerate(self.steps, 1):
            for t in step:
                cabled = self.topology.joined(t.source, t.destination)
                is_held = cabled and all(map(held[t.source].__contains__, t.chunks))
                if not is_held or (t.reduce and not adds):
                    _refuse(self, number, t, held)
            _check_load(self, number, step)
            if adds:
                _add_up(self, number, step, held)
            else:
                for t in step:
                    held[t.destination].update(dict.fromkeys(t.chunks))
        last = len(self.steps)
        for chip, (group, _) in self.group_of.items():
            everyone, has = frozenset(group), held[chip]
            for c in self.goal(chip):
                if c not in has:
                    _fail_at_step(
                        self,
                        last,
                        f"after the last step chip {chip} does not hold chunk {c}, "
                        f"which {self.collective} should give it",
                    )
                if adds and (missing := everyone - has[c]):
                    _fail_at_step(
                        self,
                        last,
                        f"after the last step chunk {c} on chip {chip} lacks the part of "
                        f"{_chips(self, missing)}",
                    )
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
            TTKitError: `validate` fails, or the shards are not one for each chip, all of one shape.
            ValueError: `dim` cannot be cut evenly.

        Example:
            >>> from ttkit.plans import all_reduce, topology
            >>> plan = all_reduce(topology("n300"), 8)
            >>> [out.tolist() for out in plan.run([np.array([1, 2]), np.array([10, 20])])]
            [[11, 22], [11, 22]]
        """
        chips = self.validate().topology.chips
        arrays = list(map(np.asarray, shards))
        if len(arrays) != len(chips) or len({array.shape for array in arrays}) > 1:
            fail(
                f"{self!r}.run",
                f"there must be {len(chips)} shards of one shape, in the order of the mesh; "
                f"these have {[array.shape for array in arrays]}",
            )
        number = {self.topology.place[chip]: i for chip, (_, i) in self.group_of.items()}
        parts = {chip: self._parts(array, dim) for chip, array in zip(chips, arrays)}
        held = self.holdings_at_start(lambda chip, c: parts[chip][number[c] if self.adds else 0])
        for _ in self._play(held, np.add):
            pass
        return [self._result(chip, held[chip], own, dim) for chip, own in zip(chips, arrays)]

    def _parts(self, array: Array, dim: int) -> list[Array]:
        """Return a shard's chunks: one for each chip of the group if chips add, else the shard."""
        if self.collective == "reduce_scatter":
            return np.split(array, self.group_size, dim)
        # The sum of an all_reduce has the shard's shape, so it may be cut anywhere.
        return np.array_split(array.ravel(), self.group_size) if self.adds else [array]

    def _result(self, chip: int, held: dict[int, Array], own: Array, dim: int) -> Array:
        got = [held[c] for c in self.goal(chip)] or [own]
        if self.collective == "all_reduce":
            return np.concatenate(got).reshape(own.shape)
        if self.collective == "all_to_all":
            got = [np.split(x, self.group_size, dim)[self.group_of[chip][1]] for x in got]
        return np.concatenate(got, dim)

    # ------------------------------------------------------------ counting
    @property
    def transfers(self) -> Iterator[tuple[int, Transfer]]:
        """Every transfer with the number of its step, counted from 1."""
        return ((number, t) for number, step in enumerate(self.steps, 1) for t in step)

    @cached_property
    def bytes_per_link(self) -> dict[Pair, int]:
        """The bytes that each chip sends to each neighbour: {(source, destination): bytes}.

        All links of the pair count together. Each link of a transfer carries an equal part of it.
        """
        counted = Counter[Pair]()
        for _, t in self.transfers:
            counted[t.source, t.destination] += t.bytes
        return dict(sorted(counted.items()))

    @property
    def bytes_sent(self) -> dict[int, int]:
        """Bytes that each chip sends: {chip: bytes}."""
        counted = dict.fromkeys(self.topology.chips, 0)
        for (source, _), size in self.bytes_per_link.items():
            counted[source] += size
        return counted

    @property
    def total_bytes(self) -> int:
        """Bytes over all cables, counted once for each hop."""
        return sum(self.bytes_per_link.values())

    @cached_property
    def peak_extra_bytes(self) -> int:
        """The most bytes that a chip holds beyond those at the start, with arrivals to be added."""
        first, *later = self.states()
        parts = Counter[int]()  # The messages of an all_to_all are parts of chunks.
        peak = 0
        for step, state in zip(self.steps, later):
            landing = Counter[int]()
            for t in step:
                if self.collective == "all_to_all":
                    parts[t.destination] += t.bytes
                elif t.reduce:
                    landing[t.destination] += t.bytes
            for chip, chunks in state.items():
                extra = parts[chip] or sum(self.sizes[c] for c in chunks.keys() - first[chip])
                peak = max(peak, extra + landing[chip])
        return peak


# ---------------------------------------------------------------- the collectives
# A rule takes a plan and a chip's number in its group. It returns whose chunks this chip has.
OWNERS = {
    "own": lambda plan, n: [n],
    "all": lambda plan, n: range(plan.group_size),
    "sender": lambda plan, n: [plan.sender],
    "own at sender": lambda plan, n: [n] if n == plan.sender else [],
    "sender at destination": lambda plan, n: (
        [plan.sender] if plan.topology.chips[n] == plan.destination else []
    ),
    "neighbour": lambda plan, n: [(n + (1 if plan.backwards else -1)) % plan.group_size],
}


class Collective(NamedTuple):
    """The chunks of a collective: whose chunks a chip holds before the first step, and whose
    chunks it must hold after the last. Both are keys of `OWNERS`."""

    held: str
    goal: str
    adds: bool = False


COLLECTIVES = {
    "all_gather": Collective("own", "all"),
    "all_to_all": Collective("own", "all"),
    "broadcast": Collective("own at sender", "sender"),
    "point_to_point": Collective("own at sender", "sender at destination"),
    "shift": Collective("own", "neighbour"),
    "reduce_scatter": Collective("all", "own", adds=True),
    "all_reduce": Collective("all", "all", adds=True),
}


# ---------------------------------------------------------------- checking
def _refuse(plan: Plan, number: int, t: Transfer, held: Holdings) -> NoReturn:
    """Fail: a chip or cable is missing, the plan adds nothing, or the source lacks the chunk."""
    topology, rule = plan.topology, _sends(t, t.chunk)
    if strangers := {t.source, t.destination} - topology.place.keys():
        rule += f", but there is no chip {strangers.pop()}"
        cure = f"one of {list(topology.chips)}"
    elif not topology.joined(t.source, t.destination):
        near = ", ".join(f"chip {chip}" for chip in topology.neighbours(t.source))
        rule += ", but no cable joins them"
        cure = f"a neighbour of chip {t.source}: {near}"
    elif t.reduce and not plan.adds:
        rule += f" with reduce=True, but {plan.collective} adds nothing"
        cure = "reduce=False"
    else:
        missing = next(c for c in t.chunks if c not in held[t.source])
        rule = f"{_sends(t, missing)}, but does not hold it yet"
        cure = "send it to this chip in an earlier step"
    _fail_at_step(plan, number, rule, cure)


def _check_load(plan: Plan, number: int, step: Step) -> None:
    room = plan.topology.links // plan.links
    for (source, destination), n in Counter((t.source, t.destination) for t in step).items():
        if n > room:
            _fail_at_step(
                plan,
                number,
                f"chip {source} sends {n} messages to chip {destination}; {plan.topology.links} "
                f"links carry {room} at a time, each over {plan.links} of them",
                "another step for some, or one message with several chunks",
            )


def _add_up(plan: Plan, number: int, step: Step, held: Holdings) -> None:
    """Add the contributions that arrive in a step; fail if one arrives twice or is lost."""
    # Every chip reads what it sends before any chip adds.
    arrives = [(t, c, held[t.source][c]) for t in step for c in t.chunks]
    copied: dict[tuple[int, int], int] = {}
    for t, c, brought in arrives:
        have = held[t.destination]
        old, rule, cure = have.get(c, frozenset()), "", ""
        if t.reduce and old & brought:
            rule = f"which would add the part of {_chips(plan, old & brought)} a second time"
        elif not t.reduce and old - brought:
            rule = f"where it would overwrite the part of {_chips(plan, old - brought)}"
            cure = "reduce=True adds it"
        elif not t.reduce:
            first = copied.setdefault((t.destination, c), t.source)
            if first != t.source:
                rule = f"and so does chip {first}: one overwrites the other"
                cure = "reduce=True adds both"
        if rule:
            _fail_at_step(plan, number, f"{_sends(t, c)}, {rule}", cure)
        have[c] = old | brought


def _sends(t: Transfer, chunk: object) -> str:
    return f"chip {t.source} sends chunk {chunk} to chip {t.destination}"


def _chips(plan: Plan, some: frozenset[int]) -> str:
    return numbered("chip", [chip for chip in plan.topology.chips if chip in some])


def _fail_at_step(plan: Plan, number: int, rule: str, cure: str = "") -> NoReturn:
    fail(f"step {number} of {len(plan.steps)}, {plan.title}", rule, cure)

"""The algorithms: functions that build plans.

All of them come from one picture. Chunks *spread* from their owners over neighbours, one hop a
step, both ways along a line or around a ring. Every chip's chunks spreading at once is an
all-gather; one chip's alone, a broadcast. The same film run backwards, with every copy made an
addition, is a reduce-scatter, or a sum at one chip. In a mesh of rows and columns the chunks spread
along the rows first, and then, as bigger bundles, along the columns. The ring algorithms are those
of Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ttkit.errors import fail
from ttkit.plans.plan import Plan, Step, Transfer
from ttkit.plans.topology import Topology

Bundle = tuple[int, ...]  # chunks that travel together
Steps = list[list[Transfer]]
Line = tuple[int, ...]  # chips in order
ALGORITHMS = ("line", "ring", "one_way_ring", "snake")


def all_gather(
    topology: Topology,
    shard_bytes: int,
    axis: int | None = None,
    *,
    algorithm: str | None = None,
    links: int | None = None,
) -> Plan:
    """Every chip gets the shards of all chips along `axis`.

    Args:
        shard_bytes: what each chip brings.
        axis: 0 along columns, 1 along rows, None for all chips: along the rows, then, with what
        they have, the columns. algorithm: "line" or "ring" (both ways), "one_way_ring", "snake"
        (all chips as one line, axis=None only); by
            default a ring where the last chip is cabled to the first, else a line.
        links: how many of the cables between two chips a message uses; all of them by default.

    Raises:
        TTKitError: neighbours that are not cabled, a ring where there is a line, more links than
        there are.

    Example:
        >>> from ttkit.plans import topology
        >>> all_gather(topology("t3000"), 1024, axis=1).bytes_per_link[0, 2]
        2048
    """
    draft = _draft("all_gather", topology, shard_bytes, axis, links)
    return _finished(draft, *_spread_all(draft, algorithm))


def reduce_scatter(
    topology: Topology,
    shard_bytes: int,
    axis: int | None = None,
    *,
    algorithm: str | None = None,
    links: int | None = None,
) -> Plan:
    """The shards of all chips along `axis` added; each chip keeps its part of the sum.

    An all-gather run backwards.

    Args:
        shard_bytes: what each chip brings: as many parts as there are chips in a group.
        axis, algorithm, links: as for `all_gather`; without an axis the columns come first, then
        the rows.

    Raises:
        TTKitError: as `all_gather`.

    Example:
        >>> from ttkit.plans import topology
        >>> len(reduce_scatter(topology("t3000"), 4096, axis=1).steps)
        3
    """
    draft = _draft("reduce_scatter", topology, shard_bytes, axis, links)
    steps, name = _spread_all(draft, algorithm)
    return _finished(draft, _backwards(steps), name)


def all_reduce(
    topology: Topology,
    shard_bytes: int,
    axis: int | None = None,
    *,
    algorithm: str | None = None,
    links: int | None = None,
) -> Plan:
    """The shards of all chips along `axis` added, the sum on each of them.

    Args:
        algorithm: "tree" adds everything up at the chip in the middle, which sends the sum back:
        few steps, many bytes.
            Any other is a reduce-scatter and an all-gather by the algorithm of that name: more
            steps, fewer bytes.

    Raises:
        TTKitError: as `all_gather`.

    Example:
        >>> from ttkit.plans import topology
        >>> [len(all_reduce(topology("t3000"), 4096, axis=1, algorithm=a).steps) for a in ("line", "tree")]
        [6, 4]
    """
    draft = _draft("all_reduce", topology, shard_bytes, axis, links)
    if algorithm == "tree":
        rows, columns = topology.shape if axis is None else (1, draft.group_size)
        middles = [group[(rows - 1) // 2 * columns + (columns - 1) // 2] for group in draft.groups]
        whole = {
            chip: tuple(c for other in draft.seat[chip][0] for c in draft.chunks_of(other))
            for chip in middles
        }
        steps, _ = _spread_all(draft, None, whole)
        return _finished(draft, _backwards(steps) + steps, "tree")
    steps, name = _spread_all(draft, algorithm)
    return _finished(draft, _backwards(steps) + steps, name)


def broadcast(
    topology: Topology,
    shard_bytes: int,
    root: int = 0,
    axis: int | None = None,
    *,
    algorithm: str | None = None,
    links: int | None = None,
    waves: int = 1,
) -> Plan:
    """One chip's shard on all chips of its group.

    Args:
        root: the sender's number in its group; without an axis, its place in the mesh.
        algorithm: "line" or "ring"; by default a ring where the last chip is cabled to the first.
        waves: into how many pieces the shard is cut that follow each other, so that all cables on
        the way are busy at once.

    Raises:
        TTKitError: as `all_gather`; no such root.

    Example:
        >>> from ttkit.plans import topology
        >>> len(broadcast(topology("t3000"), 1 << 20, axis=1).steps), len(broadcast(topology("t3000"), 1 << 20, axis=1, waves=8).steps)
        (3, 10)
    """
    draft = _draft("broadcast", topology, shard_bytes, axis, links, root=root, waves=waves)
    roots = [group[root] for group in draft.groups]
    steps = _staggered(
        draft,
        waves,
        lambda of_wave: _spread_all(draft, algorithm, {chip: of_wave(chip) for chip in roots})[0],
    )
    return _finished(draft, steps, "both ways" if waves == 1 else f"both ways in {waves} waves")


def point_to_point(
    topology: Topology,
    shard_bytes: int,
    source: int,
    destination: int,
    *,
    links: int | None = None,
    waves: int = 1,
) -> Plan:
    """One chip's shard on another chip, along a shortest route; source and destination are
    device ids.

    Args:
        waves: into how many pieces the shard is cut that follow each other along the route.

    Raises:
        TTKitError: no such chips, no route.

    Example:
        >>> from ttkit.plans import topology
        >>> [(t.source, t.destination) for _, t in point_to_point(topology("t3000"), 1024, 4, 2).transfers]
        [(4, 0), (0, 2)]
    """
    route = topology.route(source, destination)
    draft = _draft(
        "point_to_point",
        topology,
        shard_bytes,
        None,
        links,
        root=source,
        destination=destination,
        waves=waves,
    )
    steps = _staggered(
        draft,
        waves,
        lambda of_wave: [
            [_message(draft, a, b, of_wave(source))] for a, b in itertools.pairwise(route)
        ],
    )
    return _finished(draft, steps, f"{len(route) - 1} hop" + "s" * (len(route) != 2))


def all_to_all(
    topology: Topology,
    shard_bytes: int,
    axis: int | None = None,
    *,
    algorithm: str | None = None,
    links: int | None = None,
) -> Plan:
    """Part j of every shard on the j-th chip of the group; in a mesh along the rows to the right
    column, then along the columns.

    Raises:
        TTKitError: as `all_gather`.

    Example:
        >>> from ttkit.plans import topology
        >>> all_to_all(topology("n300"), 1024).bytes_per_link
        {(0, 1): 512, (1, 0): 512}
    """
    draft = _draft("all_to_all", topology, shard_bytes, axis, links)
    bound = {
        chip: {to: draft.chunks_of(chip, i) for i, to in enumerate(draft.seat[chip][0])}
        for chip in topology.chips
    }
    steps, names = [], []
    for along, lines in _phases(draft, algorithm):
        moved = []
        for line in lines:
            seat = {
                to: topology.coordinate(to)[along] if along is not None else line.index(to)
                for to in bound[line[0]]
            }
            parcels = [
                [
                    tuple(c for to, own in bound[chip].items() if seat[to] == j for c in own)
                    for j in range(len(line))
                ]
                for chip in line
            ]
            way = _way(topology, line, algorithm)
            moved.append(_spread(draft, line, way, parcels=parcels))
            names.append(way)
            arrived = [
                {
                    to: tuple(c for chip in line for c in bound[chip][to])
                    for to in seat
                    if seat[to] == j
                }
                for j in range(len(line))
            ]
            bound |= dict(zip(line, arrived, strict=True))
        steps += _together(moved)
    return _finished(draft, steps, _named(names))


# ---------------------------------------------------------------- the picture that they come from
def _spread_all(
    draft: Plan, algorithm: str | None, start: dict[int, Bundle] | None = None
) -> tuple[Steps, str]:
    """Steps in which what chips hold at the start (their own chunks, if not said) spreads
    through their groups; the algorithm's name.
    """
    has = {chip: draft.chunks_of(chip) for chip in draft.topology.chips} if start is None else start
    steps: Steps = []
    names = []
    for _, lines in _phases(draft, algorithm):
        moved = []
        for line in lines:
            loads = [has.get(chip, ()) for chip in line]
            way = _way(draft.topology, line, algorithm)
            moved.append(_spread(draft, line, way, loads))
            names.append(way)
            has |= dict.fromkeys(line, tuple(itertools.chain.from_iterable(loads)))
        steps += _together(moved)
    return steps, _named(names)


def _phases(draft: Plan, algorithm: str | None) -> list[tuple[int | None, list[Line]]]:
    """The lines along which chunks spread, one phase after the other, and the mesh axis that
    each phase follows.
    """
    topology = draft.topology
    if algorithm is not None and algorithm not in ALGORITHMS:
        fail(
            f"{draft.collective} by {algorithm!r}",
            f"the algorithms are {', '.join(ALGORITHMS)}"
            + ", tree" * (draft.collective == "all_reduce"),
        )
    if algorithm == "snake":
        if draft.axis is not None:
            fail(
                f"{draft.collective} by 'snake' along axis {draft.axis}",
                "a snake goes through all chips of the mesh",
                "axis=None",
            )
        return [(None, [topology.snake()])]
    if draft.axis is not None or min(topology.shape) == 1:
        return [(None, draft.groups)]
    return [(1, topology.groups(1)), (0, topology.groups(0))]


def _way(topology: Topology, line: Line, algorithm: str | None) -> str:
    """How chunks go along a line of chips, after a look at its cables: "line", "ring" or
    "one_way_ring".
    """
    for a, b in itertools.pairwise(line):
        if not topology.joined(a, b):
            fail(
                f"a line over chips {list(line)} of {topology!r}",
                f"no cable joins chip {a} and chip {b}",
                "algorithm='snake', or another mesh shape",
            )
    closed = topology.closes(line)
    if algorithm in ("ring", "one_way_ring") and not closed:
        fail(
            f"algorithm={algorithm!r} over chips {list(line)}",
            f"no cable leads from chip {line[-1]} back to chip {line[0]}: LINE",
            "algorithm='line'",
        )
    return (
        algorithm if algorithm in ("line", "ring", "one_way_ring") else "ring" if closed else "line"
    )


def _spread(
    draft: Plan,
    line: Line,
    way: str,
    loads: Sequence[Bundle] = (),
    parcels: Sequence[Sequence[Bundle]] = (),
) -> Steps:
    """One line's steps: in step t the chunks of chip i make their t-th hop, each way as far as
    they go.

    Args:
        loads: what each chip has for all others.
        parcels: or what each chip has for each of the others; what goes on is what the chips not
        yet reached are to get.
    """
    n = len(line)
    reach = {
        "line": lambda i: (n - 1 - i, i),
        "ring": lambda i: (n // 2, (n - 1) // 2),
        "one_way_ring": lambda i: (n - 1, 0),
    }[way]
    steps: Steps = [[] for _ in range(max((max(reach(i)) for i in range(n)), default=0))]
    for i in range(n):
        for far, towards in zip(reach(i), (1, -1), strict=True):
            seats = [(i + towards * hop) % n for hop in range(far + 1)]
            for hop in range(far):
                bundle = (
                    tuple(c for j in seats[hop + 1 :] for c in parcels[i][j])
                    if parcels
                    else loads[i]
                )
                if bundle:
                    steps[hop].append(
                        _message(draft, line[seats[hop]], line[seats[hop + 1]], bundle)
                    )
    return [step for step in steps if step]  # a broadcast from the middle is done early


def _message(draft: Plan, source: int, destination: int, bundle: Bundle) -> Transfer:
    sizes = draft.sizes
    if len(bundle) == 1:
        return Transfer(source, destination, bundle[0], sizes[bundle[0]])
    return Transfer(source, destination, bundle, sum([sizes[c] for c in bundle]))


def _together(parts: Iterable[Steps]) -> Steps:
    """Lines of chips that work at the same time."""
    steps = (
        list(itertools.chain.from_iterable(step))
        for step in itertools.zip_longest(*parts, fillvalue=())
    )
    return [step for step in steps if step]


def _staggered(
    draft: Plan, waves: int, steps_of: Callable[[Callable[[int], Bundle]], Steps]
) -> Steps:
    """Waves of pieces, each a step behind the one before."""
    late: list[Steps] = []
    for wave in range(waves):
        steps = steps_of(lambda chip, wave=wave: draft.chunks_of(chip)[wave : wave + 1])  # type: ignore[misc]
        late.append([[] for _ in range(wave)] + steps)
    return _together(late)


def _backwards(steps: Steps) -> Steps:
    """The film run backwards: what was copied from a chip is added up at it."""
    return [
        [Transfer(t.destination, t.source, t.chunk, t.bytes, True) for t in step]
        for step in reversed(steps)
    ]


def _named(ways: list[str]) -> str:
    return " and ".join(dict.fromkeys(ways)).replace("_", " ") or "alone"


def _draft(
    collective: str,
    topology: Topology,
    shard_bytes: int,
    axis: int | None,
    links: int | None,
    *,
    waves: int = 1,
    **ends: Any,
) -> Plan:
    """A plan without steps, which numbers the chunks."""
    if waves < 1:
        fail(f"{collective} in {waves} waves", "there must be at least 1 wave")
    return Plan(
        collective,
        topology,
        (),
        shard_bytes,
        axis,
        waves,
        max(1, topology.links) if links is None else links,
        **ends,
    )


def _finished(draft: Plan, steps: Steps, algorithm: str) -> Plan:
    return replace(draft, steps=tuple(Step(tuple(step)) for step in steps), algorithm=algorithm)

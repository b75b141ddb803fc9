"""The algorithms: functions that build plans.

All of them come from one idea. Chunks *spread* from their owners over neighbours, one hop in each
step, in both directions along a line or around a ring. If the chunks of all chips spread at the
same time, the plan is an all-gather; if only one chip's chunk spreads, it is a broadcast. The same
steps in reverse, with an addition in place of each copy, are a reduce-scatter, or a sum at one
chip. In a mesh of rows and columns the chunks spread along the rows first, and then, in larger
bundles, along the columns. The ring algorithm is that of Patarasu and Yuan, "Bandwidth optimal
all-reduce algorithms for clusters of workstations", 2009, in both directions.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

from ttkit.errors import fail
from ttkit.plans.plan import Bundle, Plan, Transfer
from ttkit.plans.topology import Line, Topology
from ttkit.words import counted

Steps = list[list[Transfer]]
ALGORITHMS = ("line", "ring")


def _along_an_axis(arrange: Callable[[Steps], Steps]) -> Callable[..., Plan]:
    """Return a function that builds plans. `arrange` makes the steps of a plan from the steps in
    which all chunks spread."""

    def build(
        topology: Topology,
        shard_bytes: int,
        axis: int | None = None,
        *,
        algorithm: str | None = None,
        links: int | None = None,
    ) -> Plan:
        draft = _draft(arrange.__name__, topology, shard_bytes, axis, links)
        steps, name = _spread(draft, algorithm)
        return replace(draft, steps=arrange(steps), algorithm=name)

    build.__name__ = build.__qualname__ = arrange.__name__
    build.__doc__ = arrange.__doc__
    return build


@_along_an_axis
def all_gather(spread: Steps) -> Steps:
    """Plan an all-gather: every chip gets the shards of all chips along `axis`.

    Args:
        shard_bytes: the size of each chip's shard.
        axis: 0 along columns, 1 along rows, None for all chips: first the shards spread along the
            rows, then those of whole rows spread along the columns.
        algorithm: one of `ALGORITHMS`; by default "ring" where the last chip is cabled to the
            first, else "line".
        links: how many of the cables between two chips a message uses; all of them by default.

    Raises:
        TTKitError: neighbours are not cabled, `algorithm` is "ring" and no cable closes the ring,
            or there are not so many links.

    Example:
        >>> from ttkit.plans import topology
        >>> all_gather(topology("t3000"), 1024, axis=1).bytes_per_link[0, 2]
        2048
    """
    return spread


@_along_an_axis
def all_to_all(spread: Steps) -> Steps:
    """Plan an all-to-all: every chip gets its part of the shard of every chip along `axis`.

    It has the steps of an all-gather, but each message has only the parts for its receiver and for
    the chips after the receiver.

    Example:
        >>> from ttkit.plans import topology
        >>> all_to_all(topology("n300"), 1024).bytes_per_link
        {(0, 1): 512, (1, 0): 512}
    """
    return spread


@_along_an_axis
def reduce_scatter(spread: Steps) -> Steps:
    """Plan a reduce-scatter: each chip gets its part of the sum of the shards along `axis`.

    It has the steps of an all-gather in reverse, with additions in place of copies.

    Args:
        shard_bytes: the size of each chip's shard, which has a part for each chip of a group.
        axis, algorithm, links: as for `all_gather`; without an axis the columns come first, then
            the rows.

    Raises:
        TTKitError: as `all_gather`.

    Example:
        >>> from ttkit.plans import topology
        >>> len(reduce_scatter(topology("t3000"), 4096, axis=1).steps)
        3
    """
    return _backwards(spread)


@_along_an_axis
def all_reduce(spread: Steps) -> Steps:
    """Plan an all-reduce: every chip gets the sum of the shards of all chips along `axis`.

    Args:
        algorithm: "tree" adds all shards at the chip in the middle, which sends the sum back: it
            takes few steps and many bytes. With any other algorithm of `all_gather` the plan is a
            reduce-scatter and then an all-gather: it takes more steps and fewer bytes.

    Raises:
        TTKitError: as `all_gather`.

    Example:
        >>> from ttkit.plans import topology
        >>> t3000 = topology("t3000")
        >>> [len(all_reduce(t3000, 4096, axis=1, algorithm=a).steps) for a in ("line", "tree")]
        [6, 4]
    """
    return _backwards(spread) + spread


def broadcast(
    topology: Topology,
    shard_bytes: int,
    root: int = 0,
    axis: int | None = None,
    *,
    algorithm: str | None = None,
    links: int | None = None,
) -> Plan:
    """Plan a broadcast: every chip gets the shard of one chip of its group.

    Args:
        root: the sender's number in its group; without an axis, its place in the mesh.
        algorithm, links: as for `all_gather`.

    Raises:
        TTKitError: as `all_gather`.

    Example:
        >>> from ttkit.plans import topology
        >>> len(broadcast(topology("t3000"), 1 << 20, axis=1).steps)
        3
    """
    draft = _draft("broadcast", topology, shard_bytes, axis, links, root=root)
    roots = {group[root]: (topology.place[group[root]],) for group in draft.groups}
    steps, _ = _spread(draft, algorithm, roots)
    return replace(draft, steps=steps, algorithm="both ways")


def point_to_point(
    topology: Topology, shard_bytes: int, source: int, destination: int, *, links: int | None = None
) -> Plan:
    """Plan a transfer of one chip's shard to another chip, along a shortest route.

    Args:
        source, destination: device ids.

    Example:
        >>> from ttkit.plans import topology
        >>> plan = point_to_point(topology("t3000"), 1024, 4, 2)
        >>> [(t.source, t.destination) for _, t in plan.transfers]
        [(4, 0), (0, 2)]
    """
    route = topology.route(source, destination)
    ends = {"root": source, "destination": destination}
    draft = _draft("point_to_point", topology, shard_bytes, None, links, **ends)
    steps = [[Transfer(a, b, topology.place[source])] for a, b in itertools.pairwise(route)]
    return replace(draft, steps=steps, algorithm=counted(len(steps), "hop"))


def shift(
    topology: Topology,
    shard_bytes: int,
    axis: int | None = None,
    *,
    links: int | None = None,
    backwards: bool = False,
) -> Plan:
    """Plan a shift: every chip gets the shard of the chip before it, the first gets the last's.

    On a ring, the last chip's shard goes to the first chip over the cable that closes the ring, in
    one step. On a line it goes back hop by hop, in the other direction than all other shards.

    Args:
        backwards: whether every chip gets the shard of the chip after it, not before it.

    Raises:
        TTKitError: as `all_gather`.

    Example:
        >>> from ttkit.plans import topology
        >>> [len(shift(topology(name), 1024, axis=1).steps) for name in ("t3000", "galaxy_torus")]
        [3, 1]
    """
    draft = _draft("shift", topology, shard_bytes, axis, links, backwards=backwards)
    moved = []
    for line in draft.groups:
        _check_cables(topology, line)
        hops = [(1, 0)] * len(line)
        if not topology.closes(line):
            hops[-1] = (0, len(line) - 1)
        line = line[::-1] if backwards else line
        moved.append(_hops(draft, line, [(topology.place[chip],) for chip in line], hops))
    name = "ring" if topology.closes(draft.groups[0]) else "line"
    name += ", backwards" if backwards else ""
    return replace(draft, steps=_together(moved), algorithm=name)


# ---------------------------------------------------------------- how chunks spread along a line
def _line_steps(draft: Plan, algorithm: str, line: Line, loads: list[Bundle]) -> Steps:
    """Return the steps along one line of chips. In step t the chunks of each chip make their t-th
    hop, in both directions.

    On a line the chunks go to both ends. Around a ring half of the hops go in each direction.
    """
    n = len(line)
    if algorithm == "line":
        return _hops(draft, line, loads, [(n - 1 - i, i) for i in range(n)])
    if not draft.topology.closes(line):
        fail(
            f"algorithm='ring' over chips {list(line)}",
            f"no cable leads from chip {line[-1]} back to chip {line[0]}: LINE",
            "algorithm='line'",
        )
    return _hops(draft, line, loads, [(n // 2, (n - 1) // 2)] * n)


def _hops(draft: Plan, line: Line, loads: list[Bundle], reach: list[tuple[int, int]]) -> Steps:
    """Return the steps in which the load of each chip makes its hops: `reach` has for each chip how
    many hops its load makes forwards, and how many backwards."""
    steps: Steps = [[] for _ in range(max(map(max, reach)))]
    for i, (load, far) in enumerate(zip(loads, reach)):
        chunk = load[0] if len(load) == 1 else load
        size = sum([draft.sizes[c] for c in load])
        for hops, towards in zip(far if load else (), (1, -1)):
            way = [line[(i + towards * hop) % len(line)] for hop in range(hops + 1)]
            for hop, (a, b) in enumerate(itertools.pairwise(way)):
                if draft.collective == "all_to_all":  # A message has only a part of each chunk.
                    size = -(-draft.shard_bytes * (hops - hop) // len(line))
                steps[hop].append(Transfer(a, b, chunk, size))
    # Some steps may have no transfers, such as the last ones of a broadcast from the middle.
    return [step for step in steps if step]


# ---------------------------------------------------------------- from lines to a mesh
def _spread(
    draft: Plan, algorithm: str | None, start: Mapping[int, Bundle] | None = None
) -> tuple[Steps, str]:
    """Return the steps in which chunks reach all chips of a group, and the name of the algorithm.

    `start` has the chunks that each chip has before the first step; by default a chip has its own.
    """
    topology = draft.topology
    if algorithm == "tree" and draft.collective == "all_reduce":
        return _spread(draft, None, _in_the_middle(draft))[0], "tree"
    if algorithm not in (None, *ALGORITHMS):
        known = [*ALGORITHMS, "tree"] if draft.collective == "all_reduce" else ALGORITHMS
        fail(f"{draft.collective} by {algorithm!r}", f"the algorithms are {', '.join(known)}")
    has = dict(start) if start else {chip: (place,) for chip, place in topology.place.items()}
    phases = [draft.groups]
    if draft.axis is None and min(topology.shape) > 1:
        phases = [topology.groups(1), topology.groups(0)]
    steps: Steps = []
    names = {}
    for lines in phases:
        moved = []
        for line in lines:
            _check_cables(topology, line)
            name = algorithm or ("ring" if topology.closes(line) else "line")
            names[name] = True
            loads = [has.get(chip, ()) for chip in line]
            moved.append(_line_steps(draft, name, line, loads))
            has |= dict.fromkeys(line, tuple(itertools.chain.from_iterable(loads)))
        steps += _together(moved)
    return steps, " and ".join(names)


def _in_the_middle(draft: Plan) -> dict[int, Bundle]:
    """Return {the chip in the middle of a group: all chunks of the group}."""
    rows, columns = draft.topology.shape if draft.axis is None else (1, draft.group_size)
    middle = (rows - 1) // 2 * columns + (columns - 1) // 2
    return {
        group[middle]: tuple(draft.topology.place[chip] for chip in group) for group in draft.groups
    }


def _check_cables(topology: Topology, line: Line) -> None:
    for a, b in itertools.pairwise(line):
        if not topology.joined(a, b):
            fail(
                f"a line over chips {list(line)} of {topology!r}",
                f"no cable joins chip {a} and chip {b}",
                "another mesh shape",
            )


def _together(lines: list[Steps]) -> Steps:
    """Return the steps of all lines of chips together: the lines work at the same time."""
    steps = itertools.zip_longest(*lines, fillvalue=[])
    return [list(itertools.chain.from_iterable(step)) for step in steps]


def _backwards(steps: Steps) -> Steps:
    """Return the steps in reverse: each copy from a chip becomes an addition at that chip."""
    return [
        [Transfer(t.destination, t.source, t.chunk, t.bytes, True) for t in step]
        for step in reversed(steps)
    ]


def _draft(
    collective: str,
    topology: Topology,
    shard_bytes: int,
    axis: int | None,
    links: int | None,
    **ends,
) -> Plan:
    """Return a plan without steps. Its groups and the sizes of its chunks are used to make them."""
    links = max(1, topology.links) if links is None else links
    return Plan(collective, topology, (), shard_bytes, axis, links, **ends)

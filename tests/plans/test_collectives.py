"""Every collective on every topology: what a plan moves equals NumPy, its bytes equal the
textbook's formulas.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import grid

from ttkit.errors import TTKitError
from ttkit.plans import (
    RING,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    point_to_point,
    reduce_scatter,
    shift,
    topology,
)


@st.composite
def topologies(draw):
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    return grid(rows, columns, (draw(st.booleans()), draw(st.booleans())), draw(st.integers(1, 4)))


@st.composite
def cases(draw, *ways):
    """A topology, an axis, and an algorithm that fits both."""
    mesh = draw(topologies())
    axis = draw(st.sampled_from([None, 0, 1]))
    phases = [int(mesh.shape[0] == 1)] if axis is None else [axis]
    if axis is None and min(mesh.shape) > 1:
        phases = [0, 1]
    fits = [None, "line", *ways]
    if all(mesh.kind(a) == RING for a in phases):
        fits.append("ring")
    return mesh, axis, draw(st.sampled_from(fits)), draw(st.integers(1, mesh.links))


def shards_for(mesh, shape, dtype=np.float32):
    rng = np.random.default_rng(7)
    return [rng.integers(-9, 10, shape).astype(dtype) for _ in mesh.chips]


def members(plan):
    """Places in the mesh of the chips of each group."""
    return [[plan.topology.place[chip] for chip in group] for group in plan.groups]


# what the chip with this number in its group must have of the group's shards
WANTED = {
    all_gather: lambda group, number, dim: np.concatenate(group, dim),
    all_to_all: lambda group, number, dim: np.concatenate(
        [np.split(shard, len(group), dim)[number] for shard in group], dim
    ),
    reduce_scatter: lambda group, number, dim: np.split(sum(group), len(group), dim)[number],
    all_reduce: lambda group, number, dim: sum(group),
}


@pytest.mark.parametrize("build", WANTED, ids=lambda build: build.__name__)
@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(0, 1), st.sampled_from([np.float32, np.int32]))
def test_among_all(build, data, dim, dtype):
    case = data.draw(cases("tree") if build is all_reduce else cases())
    mesh, axis, algorithm, links = case
    n = len(mesh.groups(axis)[0])
    plan = build(mesh, 48 * n, axis, algorithm=algorithm, links=links)
    # an all_reduce may cut its shards anywhere, the others need sizes that the chips divide
    shape = (data.draw(st.integers(1, 50)), 3) if build is all_reduce else (2 * n, 3 * n)
    shards = shards_for(mesh, shape, dtype)
    got = plan.run(shards, dim)
    for group in members(plan):
        for number, place in enumerate(group):
            want = WANTED[build]([shards[p] for p in group], number, dim)
            np.testing.assert_array_equal(got[place], want, strict=True)


@settings(max_examples=30, deadline=None)
@given(topologies(), st.data())
def test_broadcast(mesh, data):
    axis = data.draw(st.sampled_from([None, 0, 1]))
    root = data.draw(st.integers(0, len(mesh.groups(axis)[0]) - 1))
    plan = broadcast(mesh, 20, root, axis)
    shards = shards_for(mesh, (5,))
    got = plan.run(shards)
    for group in members(plan):
        for place in group:
            np.testing.assert_array_equal(got[place], shards[group[root]], strict=True)


@settings(max_examples=30, deadline=None)
@given(topologies(), st.data())
def test_point_to_point(mesh, data):
    source, destination = (data.draw(st.sampled_from(mesh.chips)) for _ in range(2))
    plan = point_to_point(mesh, 20, source, destination)
    shards = shards_for(mesh, (5,))
    got = plan.run(shards)
    for chip, place in mesh.place.items():
        want = shards[mesh.place[source] if chip == destination else place]
        np.testing.assert_array_equal(got[place], want, strict=True)
    hops = len(mesh.route(source, destination)) - 1
    assert len(plan.steps) == hops
    assert plan.total_bytes == hops * 20


@settings(max_examples=40, deadline=None)
@given(topologies(), st.sampled_from([0, 1]), st.booleans(), st.data())
def test_shift(mesh, axis, backwards, data):
    links = data.draw(st.integers(1, mesh.links))
    plan = shift(mesh, 20, axis, links=links, backwards=backwards)
    shards = shards_for(mesh, (5,))
    got, n = plan.run(shards), plan.group_size
    for group in members(plan):
        for number, place in enumerate(group):
            source = group[(number + (1 if backwards else -1)) % n]
            np.testing.assert_array_equal(got[place], shards[source], strict=True)
    ring = mesh.closes(plan.groups[0])
    assert len(plan.steps) == (1 if ring else n - 1)
    # on a line all shards make one hop, but the last chip's, which makes them all
    assert plan.total_bytes == 20 * len(plan.groups) * (n if ring else 2 * (n - 1))
    assert all(n == 20 for n in plan.bytes_per_link.values())
    assert plan.peak_extra_bytes <= 2 * 20
    assert plan.backwards is backwards and plan.links == links


@settings(max_examples=25, deadline=None)
@given(cases())
def test_bytes_of_an_all_to_all(case):
    """Each part makes as many hops as its way has, along the row, then along the column."""
    mesh, axis, algorithm, links = case
    plan = all_to_all(mesh, 60 * 36, axis, algorithm=algorithm, links=links)
    n, hops = plan.group_size, 0
    for group in plan.groups:
        for a in group:
            for b in group:
                for along, (i, j) in enumerate(zip(mesh.coordinate(a), mesh.coordinate(b))):
                    far, line = abs(i - j), mesh.groups(along)[0]
                    ring = mesh.kind(along) == RING and algorithm != "line"
                    hops += min(far, len(line) - far) if ring else far
    if 36 % n == 0:  # no message is rounded up
        assert plan.total_bytes == 60 * 36 // n * hops
    else:
        assert plan.total_bytes * n >= 60 * 36 * hops  # in whole numbers: no rounding


# ---------------------------------------------------------------- bytes, as the textbooks have them
S = 5040  # divisible by every group size below


@pytest.mark.parametrize("n", range(2, 9))
def test_bytes_on_a_line(n):
    line = grid(1, n)
    gather, scatter = all_gather(line, S), reduce_scatter(line, S)
    exchange = all_to_all(line, n * S)
    for i, (a, b) in enumerate(zip(line.chips, line.chips[1:], strict=False), 1):
        assert gather.bytes_per_link[a, b] == i * S and gather.bytes_per_link[b, a] == (n - i) * S
        assert scatter.bytes_per_link[a, b] == (n - i) * S // n
        assert scatter.bytes_per_link[b, a] == i * S // n
        # of each of the i shards behind a link, a part for each of the n - i chips beyond it
        for way in ((a, b), (b, a)):
            assert exchange.bytes_per_link[way] == i * (n - i) * S
    # a part of each other chip's shard, and on the way those for the chips beyond: fewer bytes than
    # an all-gather of the same shards has
    through = max(i * (n - 1 - i) for i in range(n))
    assert exchange.peak_extra_bytes == (n - 1 + 2 * through) * S
    assert len(gather.steps) == len(scatter.steps) == n - 1
    assert gather.peak_extra_bytes == (n - 1) * S
    assert gather.total_bytes == n * (n - 1) * S


@pytest.mark.parametrize("n", range(3, 9))
def test_bytes_on_a_ring(n):
    ring = grid(1, n, (False, True))
    both = all_gather(ring, S)
    assert len(both.steps) == n // 2
    ways = list(zip(ring.chips, ring.chips[1:] + ring.chips[:1], strict=True))
    assert {both.bytes_per_link[a, b] for a, b in ways} == {n // 2 * S}
    assert {both.bytes_per_link[b, a] for a, b in ways} == {(n - 1) // 2 * S}
    scatter = reduce_scatter(ring, S)
    assert len(scatter.steps) == n // 2
    assert set(scatter.bytes_sent.values()) == {(n - 1) * S // n}
    reduce = all_reduce(ring, S)
    assert set(reduce.bytes_sent.values()) == {2 * (n - 1) * S // n}
    assert len(reduce.steps) == 2 * (n // 2)


@pytest.mark.parametrize(("rows", "columns"), [(2, 4), (4, 2), (3, 5), (8, 4)])
def test_bytes_in_a_mesh(rows, columns):
    mesh = grid(rows, columns)
    gather = all_gather(mesh, S)
    assert len(gather.steps) == rows - 1 + columns - 1
    # every chip is sent every other chip's shard exactly once
    assert gather.total_bytes == rows * columns * (rows * columns - 1) * S
    back = reduce_scatter(mesh, S * rows * columns)
    assert {(b, a): n for (a, b), n in back.bytes_per_link.items()} == gather.bytes_per_link


@pytest.mark.parametrize(("n", "tree", "scattered"), [(2, 2, 2), (4, 4, 6), (8, 8, 14)])
def test_steps_of_an_all_reduce_on_a_line(n, tree, scattered):
    assert len(all_reduce(grid(1, n), S, algorithm="tree").steps) == tree
    assert len(all_reduce(grid(1, n), S).steps) == scattered
    assert max(all_reduce(grid(1, n), S, algorithm="tree").bytes_per_link.values()) == S


@settings(max_examples=25, deadline=None)
@given(cases(), st.integers(1, 400))
def test_odd_sizes_lose_no_byte(case, size):
    mesh, axis, algorithm, links = case
    plan = all_reduce(mesh, size, axis, algorithm=algorithm, links=links).validate()
    n = plan.group_size
    assert plan.total_bytes == 2 * (n - 1) * size * len(plan.groups)


# ---------------------------------------------------------------- what is refused
T3000 = topology("t3000")


@pytest.mark.parametrize(
    ("ask", "phrase"),
    [
        (lambda: all_gather(T3000, 8, 1, algorithm="ring"), "no cable leads from chip 6 back to"),
        (lambda: all_gather(T3000, 8, 1, algorithm="tree"), "the algorithms are line, ring"),
        (lambda: all_gather(T3000, 8, 1, links=3), "joined by 2"),
        (lambda: all_gather(T3000, 8, 1, links=0), "links=0"),
        (lambda: all_gather(T3000, 0, 1), "at least 1"),
        (lambda: all_gather(T3000, 8, 2), "axes 0 (down a column) and 1"),
        (lambda: shift(T3000, 8), "no cable joins chip 6 and chip 5"),
        (lambda: shift(T3000, 8, 2), "axis 2 of"),
        (lambda: topology("t4000"), "no system has that name"),
        (lambda: topology(7), "known only for systems"),
        (lambda: all_gather(topology("n300"), 8).run([np.zeros(2)]), "must be 2 shards of one"),
        (lambda: all_gather(topology("n300"), 8).run([np.zeros(2), np.zeros(3)]), "of one shape"),
    ],
)
def test_bad_input(ask, phrase):
    with pytest.raises(TTKitError, match=phrase.replace("(", r"\(").replace(")", r"\)")):
        ask()

"""The cost model against the figures that Tenstorrent published, and against itself."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttkit import plans
from ttkit.errors import TTKitError
from ttkit.hardware import SYSTEMS
from ttkit.plans import (
    Plan,
    Transfer,
    all_gather,
    all_reduce,
    all_to_all,
    cost,
    crossover,
    point_to_point,
    shift,
    topology,
)
from ttkit.plans.cost import HOP_S, hop_time_s

# GB/s of one link, with packets of 4096 bytes: tests/tt_metal/tt_metal/perf_microbenchmark/routing/golden of
# tenstorrent/tt-metal.
RATES = [
    ("t3000", "line", 1, 11.78), ("t3000", "line multicast", 1, 11.68),
    ("t3000", "ring multicast", 1, 5.75), ("t3000", "ring", 1, 5.18), ("t3000", "half ring", 1, 6.09),
    ("t3000", "mesh multicast", 1, 7.86), ("t3000", "mesh", 1, 6.51), ("galaxy", "line", 1, 11.77),
    ("galaxy", "line multicast", 1, 11.66), ("galaxy", "line multicast", 4, 10.06), ("galaxy", "ring multicast", 2, 8.34),
    ("galaxy", "ring multicast", 4, 6.0), ("quietbox_bh", "neighbours", 1, 33.29),
    ("quietbox_bh", "line multicast", 1, 29.46), ("quietbox_bh", "line", 1, 28.07),
    ("p300", "line", 1, 23.55), ("p300", "line", 2, 15.66),
]  # fmt: skip
# Nanoseconds a hop: 16 bytes, 4096 bytes; the same source.
LATENCIES = [
    ("t3000", "line", 801, 1443), ("t3000", "ring", 805, 1481), ("t3000", "mesh", 929, 1547), ("galaxy", "line", 853, 1375),
    ("galaxy", "mesh", 991, 1488), ("quietbox_bh", "line", 679, 813), ("quietbox_bh", "mesh", 715, 902),
]  # fmt: skip


def neighbours(name):
    there = topology(name)
    return there, there.chips[0], there.neighbours(there.chips[0])[0]


@pytest.mark.parametrize(("system", "traffic", "links", "published"), RATES, ids=str)
def test_a_long_message_runs_at_the_published_rate(system, traffic, links, published):
    there, a, b = neighbours(system)
    size = 1 << 28
    seconds = cost(point_to_point(there, size, a, b, links=links), traffic).time_s
    assert size / links / seconds / 1e9 == pytest.approx(published, rel=0.05)


@pytest.mark.parametrize(("system", "traffic", "smallest", "packet"), LATENCIES, ids=str)
def test_a_packet_takes_the_published_time(system, traffic, smallest, packet):
    link = topology(system).link
    assert hop_time_s(link, 16, traffic) == pytest.approx(smallest * 1e-9)
    assert hop_time_s(link, 4096, traffic) == pytest.approx(packet * 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(SYSTEMS)), st.integers(4, 24), st.integers(0, 23))
def test_more_bytes_never_take_less_time_and_more_links_never_more(name, power, less):
    there = topology(name)
    size = 1 << power
    small, large = (cost(all_reduce(there, n)).time_s for n in (max(1, size >> less), size))
    assert small <= large
    times = [cost(all_gather(there, size, links=n)).time_s for n in range(1, there.links + 1)]
    assert all(b <= a for a, b in itertools.pairwise(times))


def test_a_card_names_its_inputs_and_says_modelled():
    text = str(cost(all_gather(topology("t3000"), 1 << 20, axis=1)))
    for phrase in ("modelled", "5.75 GB/s", "805 ns", "published", "4096-byte packets", "15 µs of"):
        assert phrase in text
    assert "busiest pair             3,145,728 bytes, chip 0 to chip 4, " in text
    assert ", 1,572,864 over each of 2 links\n" in text


def test_bandwidths_are_those_of_nccls_tests():
    there = topology("galaxy_torus")
    size = 1 << 20
    card = cost(all_gather(there, size, axis=1))
    assert card.bus_bandwidth_gb_per_s == pytest.approx(4 * size / card.time_s / 1e9 * 3 / 4)
    card = cost(all_reduce(there, size, axis=0))
    assert card.bus_bandwidth_gb_per_s == pytest.approx(size / card.time_s / 1e9 * 2 * 7 / 8)
    card = cost(all_to_all(there, size, axis=0))
    assert card.bus_bandwidth_gb_per_s == pytest.approx(size / card.time_s / 1e9 * 7 / 8)
    card = cost(shift(there, size, axis=0))
    assert card.bus_bandwidth_gb_per_s == pytest.approx(size / card.time_s / 1e9)
    one_hop = cost(point_to_point(there, size, 0, there.neighbours(0)[0]), "ring multicast")
    assert card.time_s == one_hop.time_s  # all chips send at once, each over its own cable


def test_messages_that_share_a_link_share_its_rate():
    n300, size = topology("n300"), 1 << 26
    one, both, three = (
        Plan("all_reduce", n300, [[Transfer(0, 1, chunk, reduce=True) for chunk in chunks]], size)
        for chunks in ([0], [0, 1], [0, 1, 1])
    )
    # two cables, a message each
    assert cost(both).time_s == pytest.approx(cost(one).time_s, rel=1e-3)
    assert cost(three).time_s == pytest.approx(1.5 * cost(one).time_s, rel=1e-2)


def test_a_message_streams_through_the_hops_on_its_way():
    row, size = topology("t3000", (1, 4)), 1 << 26
    first, second, third, last = row.chips
    near, far = (cost(point_to_point(row, size, first, end)).time_s for end in (second, last))
    assert near < far < near + 3e-6  # two hops more: two more packets, not two more messages
    ring, line = (
        cost(shift(there, size, axis=1)).time_s for there in (topology("t3000", (1, 8)), row)
    )
    assert ring < line < ring + 5e-6
    # the middle of four chips carries 2 x 2 of the 4 parts of a shard each way: one shard in all
    one_hop = cost(point_to_point(row, size, second, third), "ring multicast").time_s
    assert one_hop < cost(all_to_all(row, size)).time_s < one_hop + 3e-6


@pytest.mark.parametrize("name", HOP_S)
def test_a_collective_takes_the_chips_own_time_for_each_chip_after_the_first(name):
    """A row of four is a line, a row of eight a ring."""
    for chips in (4, 8):
        plan = getattr(plans, name)(topology("t3000", (1, chips)), 4096, 1)
        own = cost(plan).time_s - cost(plan, "ring multicast").time_s
        assert own == pytest.approx((chips - 1) * HOP_S[name].value)


def test_a_tree_takes_it_for_each_of_its_steps():
    tree = all_reduce(topology("t3000"), 4096, algorithm="tree")
    assert len(tree.steps) == 6
    own = cost(tree).time_s - cost(tree, "ring multicast").time_s
    assert own == pytest.approx(3 * HOP_S["all_reduce"].value)


def test_the_cross_over_is_where_the_times_cross():
    there = topology("t3000")
    tree, line = (lambda n, a=a: all_reduce(there, n, 1, algorithm=a) for a in ("tree", "line"))
    size = crossover(tree, line)
    assert cost(tree(size - 1)).time_s < cost(line(size - 1)).time_s
    assert cost(line(size)).time_s <= cost(tree(size)).time_s
    assert crossover(line, tree) is None


def test_what_was_not_measured_is_not_made_up():
    with pytest.raises(TTKitError, match="not measured"):
        cost(all_gather(topology("galaxy"), 64), "ring")

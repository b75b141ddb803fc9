"""The chart of bytes over links."""

import pytest
from matplotlib.figure import Figure

from ttkit.plans import all_gather, all_reduce, broadcast, point_to_point, topology
from ttkit.visualize.links import KINDS, MOST, link_chart, link_use


@pytest.mark.parametrize("name", ["n300", "t3000", "galaxy"])
def test_bars_are_the_bytes_of_the_busiest_links(name):
    plan = all_gather(topology(name), 1 << 20)
    chart, uses = link_chart(plan), link_use(plan)
    ax = chart.plot(Figure().subplots())
    (drawn,) = ax.containers
    assert (
        list(drawn.datavalues) == [bar.bytes for bar in chart.bars]
        and len(chart.bars) <= MOST + KINDS
    )
    assert list(drawn.datavalues)[:MOST] == [use.bytes for use in uses[:MOST] if use.bytes]
    assert [label.get_text() for label in ax.get_yticklabels()] == [bar.name for bar in chart.bars]
    assert [text.get_text() for text in ax.texts] == [bar.words for bar in chart.bars]
    assert ax.get_title() == chart.title and ax.get_xlabel() == "\n".join(chart.foot)
    assert ax.yaxis_inverted()  # the busiest on top


def test_ways_that_carry_the_same_share_a_bar():
    chart = link_chart(all_gather(topology("galaxy"), 1 << 12))
    assert [bar.many for bar in chart.bars] == [False] * MOST + [True] * (len(chart.bars) - MOST)
    assert all(bar.name.endswith("more") for bar in chart.bars[MOST:])
    assert "1 way carries nothing." in repr(link_chart(broadcast(topology("n300"), 4096)))


@pytest.mark.parametrize(
    "plan",
    [
        all_gather(topology("t3000"), 1024),
        all_reduce(topology("galaxy_torus"), 1 << 20),
        point_to_point(topology("t3000"), 7, 4, 2),
    ],
)
def test_every_way_of_every_link_is_counted(plan):
    uses = link_use(plan)
    assert {(use.source, use.destination) for use in uses} == plan.topology.pairs
    assert {
        (use.source, use.destination): use.bytes for use in uses if use.bytes
    } == plan.bytes_per_link
    assert [use.bytes for use in uses] == sorted((use.bytes for use in uses), reverse=True)
    for use in uses:
        assert use.steps == tuple(
            n
            for n, step in enumerate(plan.steps, 1)
            if any((t.source, t.destination) == (use.source, use.destination) for t in step)
        )
    chart = link_chart(plan)
    assert sum(int(bar.name.split()[0]) if bar.many else 1 for bar in chart.bars) == len(
        plan.bytes_per_link
    )
    assert f"Busiest: from chip {uses[0].source} to chip {uses[0].destination}" in chart.foot[
        0
    ] and chart.foot[0] in repr(chart)

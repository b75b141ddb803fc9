"""Pictures of ranks and their cards."""

import re

import pytest

import ttkit
from ttkit.hardware import SYSTEMS
from ttkit.visualize.machines import RankBox, boxes_of, draw_ranks

T3000 = SYSTEMS["t3000"]


@pytest.fixture(autouse=True)
def _t3000():
    ttkit.use_system("t3000")


def test_every_chip_has_one_owner():
    boxes = boxes_of(ttkit.Cluster(4), T3000)
    chips = [chip for box in boxes for card in box.cards.values() for chip in card]
    assert sorted(chips) == list(range(8)) and [len(box.cards) for box in boxes] == [1] * 4
    page = draw_ranks(boxes, "t3000")._repr_html_()
    assert all(len(re.findall(f">{chip}</text>", page)) == 1 for chip in range(8))


def test_a_mesh_that_ranks_share():
    first, second = boxes_of(ttkit.Cluster("configs/t3000_2ranks"), T3000)
    assert str(first) == "rank 0: cards 0, 1 (4 chips: 0, 1, 4, 5), mesh 0, part 0"
    assert (set(second.cards), second.place) == ({2, 3}, "mesh 0, part 1")


def test_two_hosts_are_two_drawings_and_each_rank_has_all_cards():
    figure = draw_ranks(boxes_of(ttkit.Cluster("configs/2loudboxes"), T3000), "t3000")
    assert [drawing.title for drawing in figure.drawings] == [
        "host metal-wh-01",
        "host metal-wh-04",
    ]
    assert "2 ranks on 2 hosts" in repr(figure) and "rank 1 on metal-wh-04" in repr(figure)


def test_many_cards_and_many_ranks_fit_the_page():
    many = [RankBox(0, "", {card: (card,) for card in range(32)})]
    eight = [RankBox(rank, "", {rank: (rank,)}) for rank in range(32)]
    for boxes in (many, eight):
        (drawing,) = draw_ranks(boxes, "galaxy").drawings
        sizes = re.findall(r'font-size="([\d.]+)"', drawing.svg())
        assert drawing.width <= 760 and min(map(float, sizes)) >= 11
    assert ">cards 0-31</text>" in draw_ranks(many, "galaxy")._repr_html_()

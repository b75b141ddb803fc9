"""Pictures of ranks and their cards."""

import re

import pytest

import ttkit
from ttkit.hardware import SYSTEMS
from ttkit.visualize.drawing import tone
from ttkit.visualize.mesh import draw_ranks

T3000 = SYSTEMS["t3000"]


@pytest.fixture(autouse=True)
def _t3000():
    ttkit.use_system("t3000")


def filled(drawing):
    (machine,) = drawing.cells
    return [int(box.texts[0]) for box in machine.boxes if box.fill]


def test_every_chip_has_one_owner():
    drawings = draw_ranks(ttkit.Cluster(4), T3000).drawings
    assert [sorted(filled(drawing)) for drawing in drawings] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    svg = drawings[0].svg()
    assert re.findall(r">(\d)</text>", svg) == ["4", "0"]
    (chips,) = re.findall(f'd="([^"]*)" fill="{tone(0)}"', svg)
    assert chips.count("M") == 2


def test_a_mesh_that_ranks_share():
    first, second = draw_ranks(ttkit.Cluster("configs/t3000_2ranks"), T3000).drawings
    assert first.title == "rank 0: cards 0, 1 (4 chips: 0, 1, 4, 5), mesh 0, part 0"
    assert sorted(filled(second)) == [2, 3, 6, 7]


def test_ranks_on_two_hosts_have_all_their_cards():
    figure = draw_ranks(ttkit.Cluster("configs/2loudboxes"), T3000)
    assert all(len(filled(drawing)) == 8 for drawing in figure.drawings)
    assert "2 ranks on 2 hosts" in repr(figure)
    assert "rank 1 on metal-wh-04: cards 0-3 (8 chips: 0-7), mesh 0" in repr(figure)

"""Who the ranks of a Cluster are: boards shared in PCIe order, or what a folder says."""

import pathlib

import pytest

import ttkit
from ttkit.cluster.ranks import equal_boards, ranks_of
from ttkit.errors import TTKitError

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "number, boards", [(1, ["0,1,2,3"]), (2, ["0,1", "2,3"]), (4, ["0", "1", "2", "3"])]
)
def test_ranks_share_the_boards_in_pcie_order(number, boards):
    assert [
        binding.env_overrides["TT_VISIBLE_DEVICES"]
        for binding in equal_boards(number).rank_bindings
    ] == boards


def test_ranks_share_the_visible_boards(monkeypatch):
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "2,3")
    assert [
        binding.env_overrides["TT_VISIBLE_DEVICES"] for binding in equal_boards(2).rank_bindings
    ] == ["2", "3"]


@pytest.mark.parametrize("number", [-1, 0, 3, 8])
def test_boards_that_cannot_be_shared(number):
    with pytest.raises(
        TTKitError,
        match=rf"Cluster\({number}\): a t3000 has 4 boards, which {number} ranks cannot share equally",
    ):
        ttkit.Cluster(number)


def test_boards_that_are_no_mesh():
    ttkit.use_system("galaxy")
    try:
        assert len(ranks_of(8).rank_bindings) == 8
        with pytest.raises(TTKitError, match="Cluster"):
            ranks_of(5)
    finally:
        ttkit.use_system(None)

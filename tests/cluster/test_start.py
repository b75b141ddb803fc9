"""What a Cluster starts: cards shared in PCIe order, or the ranks of a folder."""

import pytest

import ttkit
from ttkit.cluster.engines.start import equal_cards, ranks_of
from ttkit.errors import TTKitError


@pytest.mark.parametrize(
    "number, cards", [(1, ["0,1,2,3"]), (2, ["0,1", "2,3"]), (4, ["0", "1", "2", "3"])]
)
def test_ranks_share_the_cards_in_pcie_order(number, cards):
    assert [
        binding.env_overrides["TT_VISIBLE_DEVICES"] for binding in equal_cards(number).rank_bindings
    ] == cards


def test_ranks_share_the_visible_cards(monkeypatch):
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "2,3")
    assert [
        binding.env_overrides["TT_VISIBLE_DEVICES"] for binding in equal_cards(2).rank_bindings
    ] == ["2", "3"]


@pytest.mark.parametrize("number", [-1, 0, 3, 8])
def test_cards_that_cannot_be_shared(number):
    with pytest.raises(
        TTKitError,
        match=rf"Cluster\({number}\): a t3000 has 4 cards, which {number} ranks cannot share equally",
    ):
        ttkit.Cluster(number)


def test_cards_that_are_no_mesh():
    ttkit.use_system("galaxy")
    try:
        assert len(ranks_of(8).rank_bindings) == 8
        with pytest.raises(TTKitError, match="Cluster"):
            ranks_of(5)
    finally:
        ttkit.use_system(None)

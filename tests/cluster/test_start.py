"""What a Cluster starts: cards shared in PCIe order, or the ranks of a folder."""

from types import SimpleNamespace

import pytest

import ttkit
from ttkit.cluster.engines.start import ranks_sharing_cards, start_commands
from ttkit.errors import TTKitError


@pytest.mark.parametrize(
    "visible, cards",
    [("", ["0,1,2,3"]), ("", ["0,1", "2,3"]), ("", ["0", "1", "2", "3"]), ("2,3", ["2", "3"])],
)
def test_ranks_share_the_visible_cards_in_pcie_order(monkeypatch, visible, cards):
    monkeypatch.setenv("TT_VISIBLE_DEVICES", visible)
    ranks = ranks_sharing_cards(len(cards)).rank_bindings
    assert [binding.env_overrides["TT_VISIBLE_DEVICES"] for binding in ranks] == cards


@pytest.mark.parametrize("number", [0, 3, 8])
def test_cards_that_cannot_be_shared(number):
    rule = rf"Cluster\({number}\): a t3000 has 4 cards, which {number} ranks cannot share equally"
    with pytest.raises(TTKitError, match=rule):
        ttkit.Cluster(number)


def test_cards_of_a_galaxy():
    ttkit.use_system("galaxy")
    try:
        assert len(ranks_sharing_cards(8).rank_bindings) == 8
        with pytest.raises(TTKitError, match="Cluster"):
            ranks_sharing_cards(5)
    finally:
        ttkit.use_system(None)


def test_engines_use_the_notebooks_machine_and_the_bindings_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("TTKIT_SYSTEM", "t3000")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    ttkit.use_system("galaxy")
    try:
        bindings = ranks_sharing_cards(2)
        bindings.global_env["OMP_NUM_THREADS"] = "7"
        folder = SimpleNamespace(folder=tmp_path, shared_memory=lambda ranks: tmp_path)
        commands, _ = start_commands(folder, bindings, [], ["localhost"] * 2, "127.0.0.1")
    finally:
        ttkit.use_system(None)
    words = [word for word in commands["mpirun"] if word.startswith(("TTKIT_SYSTEM=", "OMP_"))]
    # For each rank mpirun sets the first of a name, and the engine's own command the last one.
    assert {word.split("=")[0]: word for word in words} == {
        "TTKIT_SYSTEM": "TTKIT_SYSTEM=galaxy",
        "OMP_NUM_THREADS": "OMP_NUM_THREADS=7",
    }

"""The chart of the chips' memory."""

import math

import pytest
from matplotlib.figure import Figure

import ttkit
from ttkit.visualize.memory import MemoryReport

TOTAL = 12 * 10**9


@pytest.mark.parametrize("chips", [1, 8, 32])
@pytest.mark.parametrize("used", [0, 1, 3 * 10**6, 11 * 10**9])
def test_a_bar_for_each_chip(used, chips):
    report = MemoryReport("a mesh", TOTAL, dict.fromkeys(range(chips), used))
    ax = report.plot(Figure().subplots())
    (drawn,) = ax.containers
    assert list(drawn.datavalues) == [used] * chips
    assert [label.get_text() for label in ax.get_xticklabels()] == [
        str(chip) for chip in range(chips)
    ]
    assert ax.get_title() == "DRAM in use on a mesh: of 12 GB on each chip"
    whole = not used or used > TOTAL / 50
    assert (ax.get_ylim() == (0, TOTAL)) == whole and ax.get_ylim()[1] > used


def test_on_a_card_the_chart_says_so():
    report = MemoryReport("a mesh", math.nan, dict.fromkeys(range(8), math.nan))
    ax = report.plot(Figure().subplots())
    assert not ax.containers and not ax.axison and "not known on a card" in ax.get_title()


def test_into_an_axes_of_mine(mesh, capsys):
    ax = Figure().subplots()
    assert ttkit.visualize_memory(mesh, ax=ax) is ax and len(ax.containers[0]) == 8
    assert capsys.readouterr().out == ""

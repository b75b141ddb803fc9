"""The ways out of a host: times from the facts of the hardware."""

import pytest
from visualize.test_chart import svg_of

from ttkit.hardware import SYSTEMS
from ttkit.visualize.charts.speeds import ways_out

T3000 = SYSTEMS["t3000"]


def test_the_rates_are_those_of_the_hardware_and_are_shared():
    dram, link, cable, network = ways_out(system=T3000).ways
    assert dram.gb_per_s == T3000.chip.dram_bandwidth.value
    rate = T3000.chip.link.rates[0].gb_per_s
    assert link.gb_per_s == 2 * rate and cable.gb_per_s == pytest.approx(2 * rate / 8)
    assert network.gb_per_s == pytest.approx(100 / 8 / 8)
    assert dram.ms(288e9) == pytest.approx(1000)


def test_sixteen_links_between_hosts_of_eight_chips_are_as_fast_as_two_between_chips():
    _, link, cable, _ = ways_out(links_between_hosts=16, system=T3000).ways
    assert link.gb_per_s == cable.gb_per_s


def test_a_single_chip_has_no_links():
    names = [way.name for way in ways_out(system=SYSTEMS["n150"]).ways]
    assert names == [
        "its own DRAM",
        "to the other host, 2 chip links",
        "to the other host, network",
    ]


def test_the_text_says_where_each_number_comes_from():
    text = repr(ways_out(network_gbit_per_s=1, mib_a_chip=1024, system=T3000))
    assert "published" in text and "measured by Tenstorrent" in text
    assert "68.7 s at 0.0156 GB/s (assumed 1 Gbit/s, shared by 8 chips)" in text
    assert round(ways_out(system=T3000).slower()) == 184


def test_the_picture_has_the_words():
    page = svg_of(ways_out(system=T3000)._repr_html_())
    assert ">10 ms<" in page and "assumed 100" in page and "mathdefault" not in page

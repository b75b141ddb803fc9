"""Systems: what must hold for each of them, and the part that TT_VISIBLE_DEVICES leaves."""

import pathlib
import re

import pytest

import ttkit
from ttkit.hardware import SYSTEMS
from ttkit.hardware.systems import ALIASES, visible_part


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_system(name):
    system = SYSTEMS[name]
    ids = sorted(system.coordinate_of)
    assert system.name == name and ids == list(range(system.num_devices))
    assert sorted(chip for card in system.cards for chip in card) == ids
    links = [frozenset(pair) for pair in system.links()]
    assert len(set(links)) == len(links) and all(system.linked(*pair) for pair in links)
    assert bool(links) == bool(system.links_per_pair), "links_per_pair says how many a pair has"
    # all chips are reached over links
    reached = {0}
    for _ in ids:
        reached |= {chip for pair in links if pair & reached for chip in pair}
    assert len(reached) == system.num_devices
    assert ttkit.use_system(name) is system
    ttkit.use_system(None)


def test_the_readme_lists_every_system():
    readme = pathlib.Path(__file__).resolve().parents[2] / "README.md"
    rows = re.findall(r"^\| (Wormhole|Blackhole) \| (.*) \|$", readme.read_text(), re.MULTILINE)
    listed = {(chip, name) for chip, names in rows for name in re.findall(r"`(\w+)`", names)}
    archs = {name: system.chip.arch.partition("_")[0] for name, system in SYSTEMS.items()}
    assert listed == {(arch.capitalize(), name) for name, arch in archs.items()}


def test_aliases_lead_to_systems():
    assert set(ALIASES.values()) <= set(SYSTEMS) and not set(ALIASES) & set(SYSTEMS)


@pytest.mark.parametrize(
    "system, visible, cure",
    [
        ("t3000", "0,9", ", or a larger system: TTKIT_SYSTEM=galaxy"),
        ("galaxy", "99", ", or a larger system: TTKIT_SYSTEM=galaxy"),
    ],
)
def test_a_device_that_the_machine_has_not(system, visible, cure):
    with pytest.raises(
        ttkit.TTKitError, match=f"PCIe devices, numbered 0 to .*\n  try: only those numbers{cure}$"
    ):
        visible_part(SYSTEMS[system], visible)

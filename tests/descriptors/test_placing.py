"""Descriptors on machines: chips that are cabled as the mesh asks, the fabric, `use_system` and
other machines than a T3000.
"""

import itertools
import json
import pathlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from machine import describe

import ttkit
from ttkit import ttnn
from ttkit.cluster import MeshInstance
from ttkit.descriptors.placing import chips_of, placed
from ttkit.hardware import SYSTEMS, current_system
from ttkit.hardware.systems import grid_links

HERE = pathlib.Path(__file__).resolve().parent
CHIPS = [name for name, system in SYSTEMS.items() if system.num_devices > 1]


def mesh_of(dims, types=("LINE", "LINE"), links=1, arch="WORMHOLE_B0", hosts=(1, 1)):
    return MeshInstance(0, "M0", arch, dims, types, hosts, links, "STRICT")


def neighbours(dims, types):
    """The pairs that are joined in a mesh, in the plainest way."""
    places = list(itertools.product(*map(range, dims)))
    for a, b in itertools.combinations(places, 2):
        axes = [axis for axis in (0, 1) if a[axis] != b[axis]]
        if len(axes) == 1:
            step, size = abs(a[axes[0]] - b[axes[0]]), dims[axes[0]]
            if step == 1 or (types[axes[0]] == "RING" and step == size - 1):
                yield a, b


@settings(deadline=None, max_examples=80)
@example("galaxy_torus", 4, 8, ("LINE", "LINE"))
@example("galaxy_torus", 3, 7, ("LINE", "LINE"))
@given(
    st.sampled_from(CHIPS),
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from(list(itertools.product(["LINE", "RING"], repeat=2))),
)
def test_neighbours_in_the_mesh_are_cabled(name, rows, columns, types):
    machine, mesh = SYSTEMS[name], mesh_of((rows, columns), types)
    grid = any(rows <= h and columns <= w for h, w in (machine.shape, machine.shape[::-1]))
    try:
        seen = placed(machine, mesh)
    except ttkit.TTKitError as error:
        assert "has no grouping in the provided valid-groupings map" in str(error)
        assert not grid or "RING" in types, "a grid that fits was refused"
        return
    assert seen.shape == (rows, columns)
    assert len(seen.coordinate_of) == rows * columns <= machine.num_devices
    for a, b in neighbours((rows, columns), types):
        ids = seen.ids[a[0]][a[1]], seen.ids[b[0]][b[1]]
        assert machine.linked(*ids) and seen.linked(*ids)
    assert {frozenset(pair) for pair in grid_links((rows, columns), mesh.rings)} == {
        frozenset(pair) for pair in neighbours((rows, columns), types)
    }


@pytest.mark.parametrize("name", CHIPS)
def test_every_machine_is_a_line_and_a_ring(name):
    machine = SYSTEMS[name]
    open_line = 1 in machine.shape and machine.num_devices > 2 and not any(machine.wraps)
    kinds = ("LINE",) if open_line else ("LINE", "RING")
    for dims, kind in itertools.product(
        ((1, machine.num_devices), (machine.num_devices, 1)), kinds
    ):
        seen = placed(machine, mesh_of(dims, (kind, kind)))
        assert sorted(seen.coordinate_of) == sorted(machine.coordinate_of)
        assert all(machine.linked(*pair) for pair in seen.links())


def test_a_line_on_a_galaxy_through_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TTKIT_SYSTEM", "galaxy")
    describe(monkeypatch, tmp_path, 32, 1, 32)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 32)) as mesh:
        ids = mesh.get_device_ids()
        assert all(SYSTEMS["galaxy"].linked(a, b) for a, b in itertools.pairwise(ids))
        assert len(set(ids)) == 32
    assert ttnn._ttnn.multi_device.SystemMeshDescriptor().shape() == ttnn.MeshShape(1, 32)
    with pytest.raises(ttkit.TTKitError, match="too big and is not rotatable"):
        ttnn.open_mesh_device(ttnn.MeshShape(8, 4))


def test_no_environment_no_descriptor(tmp_path, monkeypatch):
    describe(monkeypatch, tmp_path, 8, 1, 8)
    assert current_system().shape == (1, 8) and current_system().cards == SYSTEMS["t3000"].cards
    monkeypatch.delenv("TT_MESH_GRAPH_DESC_PATH")
    assert current_system() is SYSTEMS["t3000"]


def test_a_changed_file_is_read_again(tmp_path, monkeypatch):
    describe(monkeypatch, tmp_path, 8, 2, 4)
    assert current_system().shape == (2, 4)
    describe(monkeypatch, tmp_path, 8, 4, 2)
    assert current_system().shape == (4, 2)


def test_visible_devices_and_a_descriptor(tmp_path, monkeypatch):
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "0,1")
    describe(monkeypatch, tmp_path, 8, 1, 4)
    assert sorted(current_system().ids[0]) == [0, 1, 2, 3]


def test_chips_of_hosts():
    chips = chips_of(mesh_of((4, 4), hosts=(2, 1), links=2))
    assert [chips[0, c] for c in range(4)] == [(0, d) for d in SYSTEMS["t3000"].ids[0]]
    assert [chips[3, c] for c in range(4)] == [(1, d) for d in SYSTEMS["t3000"].ids[1]]
    # The chips of a number that no machine has are numbered row by row.
    taken = {system.num_devices for system in SYSTEMS.values()}
    rows = next(n for n in itertools.count(2) if 2 * n not in taken)
    assert chips_of(mesh_of((rows, 2)))[rows - 1, 1] == (0, 2 * rows - 1)


def test_all_chips_stay_visible_beside_a_small_descriptor(tmp_path, monkeypatch):
    """Asked of the real library, as the messages of the next test."""
    describe(monkeypatch, tmp_path, 8, 2, 2)
    assert (ttnn.get_num_devices(), ttnn.get_device_ids(), ttnn.get_num_pcie_devices()) == (
        8,
        list(range(8)),
        4,
    )
    assert ttnn._ttnn.multi_device.SystemMeshDescriptor().shape() == ttnn.MeshShape(2, 2)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2), physical_device_ids=[4, 5]) as mesh:
        assert mesh.get_device_ids() == [4, 5] and "device 4" in mesh._repr_html_()


def test_a_chip_beside_the_descriptor_with_a_fabric(tmp_path, monkeypatch):
    describe(monkeypatch, tmp_path, 8, 2, 2)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with pytest.raises(ttkit.TTKitError, match="Physical chip id 6 not found in control plane"):
        ttnn.open_device(6)
    with pytest.raises(ttkit.TTKitError, match=r"Device 4 is not active\. This may"):
        ttnn.open_mesh_device(ttnn.MeshShape(2, 2))


def test_a_fabric_wants_all_chips_awake():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with pytest.raises(ttkit.TTKitError, match="Fabric is being used but Device 4 is not active"):
        ttnn.open_mesh_device(ttnn.MeshShape(2, 2), offset=ttnn.MeshCoordinate(0, 1))
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 2), offset=ttnn.MeshCoordinate(0, 2)) as mesh:
        assert mesh.get_device_ids() == [2, 6, 3, 7]
    ttkit.use_system("n300")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)  # closing the last mesh turned it off
    with pytest.raises(ttkit.TTKitError, match="Fabric is being used but Device 1 is not active"):
        ttnn.open_device(0)


@pytest.mark.parametrize("path", ["nothing.textproto", "./a//b c.textproto"])
def test_a_missing_descriptor_is_named_as_it_was_given(monkeypatch, path):
    monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", path)
    with pytest.raises(ttkit.TTKitError) as error:
        ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    assert f": Custom mesh graph descriptor file not found: {path}\n" in str(error.value)


def test_an_inactive_device_is_reported_in_full():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with pytest.raises(ttkit.TTKitError) as error:
        ttnn.open_device(0)
    rows = json.loads((HERE / "more_opens.json").read_text())["opens"]
    (recorded,) = {row["message"] for row in rows if "Device 1 is not" in row.get("message", "")}
    assert f": {recorded}\n" in str(error.value)

"""Guide, section 2: the system mesh, opening and closing, pictures, visibility."""

import pytest

import ttkit
from ttkit import ttnn


def test_system_mesh_of_an_n300(capsys):
    ttkit.use_system("n300")
    ttnn.visualize_system_mesh()
    text = capsys.readouterr().out
    assert "SystemMesh Global Shape: MeshShape([1, 2])" in text
    assert "SystemMesh Local Shape: MeshShape([1, 2])" in text
    assert "Dev. ID: 0" in text and "Dev. ID: 1" in text and "(0, 1)" in text


def test_open_and_print_a_1x2_mesh(capsys):
    ttkit.use_system("n300")
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    assert repr(mesh_device) == "MeshDevice(1x2 grid, 2 devices)"
    ttnn.visualize_mesh_device(mesh_device)
    text = capsys.readouterr().out
    assert "MeshDevice(rows=1, cols=2)" in text and "Dev. ID: 1" in text
    ttnn.close_mesh_device(mesh_device)
    ttnn.close_mesh_device(mesh_device)  # a second close is silent


@pytest.mark.parametrize(
    ("visible", "shape", "ids"),
    [("0", (1, 2), [0, 1]), ("0,1", (2, 2), [0, 2, 1, 3]), ("2,3", (2, 2), [0, 2, 1, 3])],
)
def test_visible_devices(monkeypatch, visible, shape, ids):
    monkeypatch.setenv("TT_VISIBLE_DEVICES", visible)
    mesh_device = ttnn.open_mesh_device()
    assert (tuple(mesh_device.shape), mesh_device.get_device_ids()) == (shape, ids)
    assert ttnn.get_num_pcie_devices() == len(visible.split(","))

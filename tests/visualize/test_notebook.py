"""In a notebook there is a figure, with ttnn's table for pages that cannot show it; elsewhere
the table; and it costs nothing to import.
"""

import subprocess
import sys

import numpy as np

import ttkit
import ttkit.visualize
from ttkit import ttnn


def test_figures_in_a_notebook(shown, capsys, mesh):
    tensor = ttkit.from_numpy(
        np.zeros((8, 4), np.float32), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0)
    )
    ttkit.visualize_mesh_device(mesh)
    ttkit.visualize_system_mesh()
    ttkit.visualize_tensor(tensor)
    ttkit.visualize_memory(mesh)
    assert all(
        set(bundle) == {"text/html", "text/plain"} and "<svg" in bundle["text/html"]
        for bundle in shown
    )
    firsts = [bundle["text/plain"].strip().splitlines()[0].strip() for bundle in shown]
    assert firsts[0] == "MeshDevice(rows=2, cols=4)"
    assert firsts[1].startswith("SystemMesh Global Shape")
    assert "Placement Configuration" in firsts[2]
    assert firsts[3].startswith("DRAM in use on MeshDevice(2x4")
    assert capsys.readouterr().out == ""


def test_a_memory_report_is_a_table_and_a_figure(mesh):
    tensor = ttkit.from_numpy(np.zeros((32, 32), np.float32), device=mesh, layout=ttnn.TILE_LAYOUT)
    report = ttkit.memory(mesh)
    assert set(report.used) == set(range(8)) and all(n >= 4096 for n in report.used.values())
    assert report.total == mesh.system.chip.dram_bytes
    assert "device 4: 4.1 kB" in repr(report) and "<svg" in report._repr_html_()
    del tensor


def test_on_a_card_the_bytes_are_not_known_and_nothing_stops(monkeypatch, capsys, mesh):
    monkeypatch.setattr(ttkit.backend, "is_simulated", lambda: False)
    report = ttkit.memory(mesh)
    assert set(report.used) == set(mesh.get_device_ids())
    assert str(report.used[4] - report.used[4]) == "nan"
    assert "<svg" in report._repr_html_()
    ttkit.visualize_memory(mesh)
    assert capsys.readouterr().out.startswith("DRAM in use on MeshDevice(2x4")


def test_matplotlib_is_imported_only_when_a_chart_is_drawn():
    code = """
import importlib, pkgutil, sys, ttkit.visualize
heavy = {"matplotlib", "IPython", "ipywidgets", "rich", "torch"}
assert not heavy & set(sys.modules)  # The room alone costs nothing.
for module in pkgutil.iter_modules(ttkit.visualize.__path__):
    importlib.import_module("ttkit.visualize." + module.name)
from ttkit.visualize.charts import Curves
chart = Curves("loss", {"a": [(1, 2.0)]})
repr(chart)
before = sorted({"matplotlib", "IPython", "ipywidgets"} & set(sys.modules))
chart._repr_html_()
print(before, "matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "[] True False"

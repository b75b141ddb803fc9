"""Descriptors are read on the default machine, unless a test says otherwise."""

import pytest

import ttkit
from ttkit import ttnn


@pytest.fixture(autouse=True)
def default_machine(monkeypatch):
    monkeypatch.delenv("TT_MESH_GRAPH_DESC_PATH", raising=False)
    yield
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttkit.strict(False)
    ttkit.use_system(None)


@pytest.fixture
def written(tmp_path):
    """written(text, name="mgd.textproto"): the path of a file with that text."""

    def write(text, name="mgd.textproto"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write

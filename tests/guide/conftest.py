"""The guide is written in the older dialect: its forms are taken by the default one, each with one warning."""

import pytest

import ttkit
from ttkit import dialect
from ttkit.sim import mesh as sim_mesh


@pytest.fixture(autouse=True)
def default_dialect():
    """Each test starts in the default dialect, having warned of nothing, and leaves no mesh open."""
    ttkit.strict(False)
    dialect._warned.clear()
    yield
    for opened in list(sim_mesh.opened_meshes):
        opened.close()
    ttkit.use_system(None)
    ttkit.strict(False)

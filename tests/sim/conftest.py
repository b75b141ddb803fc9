"""Tests of the simulator run strict, with a fabric, and leave no mesh open."""

import pytest

import ttkit
from ttkit import ttnn
from ttkit.sim import mesh as sim_mesh


@pytest.fixture(autouse=True)
def clean_machine():
    ttkit.strict()
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    yield
    for opened in list(sim_mesh._opened):
        opened.close()
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttkit.use_system(None)
    ttkit.strict(False)

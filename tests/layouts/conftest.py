"""What the tests of layouts share: no mesh is left open, and the machine in use is the default."""

import pytest
from machine import close_all

import ttkit
from ttkit.train import AutoContext


@pytest.fixture(autouse=True)
def clean_machine():
    yield
    AutoContext.get_instance().close_device()
    close_all()
    ttkit.use_system(None)

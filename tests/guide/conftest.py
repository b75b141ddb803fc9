"""The guide is written in the older dialect: its forms are taken by the default one, each with
one warning.
"""

import pytest
from machine import close_all

import ttkit
from ttkit import errors


@pytest.fixture(autouse=True)
def default_dialect():
    """Each test starts in the default dialect, having warned of nothing, and leaves no mesh
    open.
    """
    ttkit.strict(False)
    errors._warned.clear()
    yield
    close_all()
    ttkit.strict(False)

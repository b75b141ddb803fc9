"""What the training tests share: strict, with a fabric, on systems big enough for their meshes;
no mesh is left open.
"""

import pytest
from machine import strict_with_fabric

from ttkit import ttnn
from ttkit.train import AutoContext


@pytest.fixture(autouse=True)
def clean_machine():
    with strict_with_fabric():
        yield
        AutoContext.get_instance().close_device()


@pytest.fixture
def mesh():
    """Eight chips in two rows."""
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        yield mesh


@pytest.fixture
def one():
    """One chip."""
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        yield mesh

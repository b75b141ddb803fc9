"""Tests of the training room run strict, with a fabric, on systems big enough for their meshes, and leave no mesh open."""

import pytest
from machine import strict_with_fabric

from ttkit import ttnn
from ttkit.train.autograd import GradMode, set_gradient_mode


@pytest.fixture(autouse=True)
def clean_machine():
    with strict_with_fabric():
        yield
    set_gradient_mode(GradMode.ENABLED)


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

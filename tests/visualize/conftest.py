"""Pictures are tested on the simulator's default machine, unless a test says otherwise."""

import pytest
from machine import mapper_over

import ttkit
from ttkit import ttnn


@pytest.fixture(autouse=True)
def default_machine():
    yield
    ttkit.use_system(None)


@pytest.fixture
def shown(monkeypatch):
    """What is displayed, in order, as in a notebook."""
    things = []
    for room in ("visualize", "visualize.widgets", "visualize.widgets.play"):
        monkeypatch.setattr(f"ttkit.{room}.in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda thing, **_: things.append(thing))
    return things


@pytest.fixture
def mesh():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


@pytest.fixture
def place(mesh):
    """place(array, "R S1"): a tensor cut over the mesh as the letters say."""

    def place(array, kinds, **options):
        dims = [None if kind == "R" else int(kind[1:]) for kind in kinds.split()]
        mapper = mapper_over(mesh, dims)
        return ttkit.from_numpy(array, device=mesh, mesh_mapper=mapper, **options)

    return place

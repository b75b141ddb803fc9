"""Pictures are tested on the simulator's default machine, unless a test says otherwise."""

import pytest

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
    """place(array, "R S1", over=None, at=None, to=mesh): a tensor cut as the letters say;

    `to=None` leaves it on the host.
    """

    def place(array, kinds, over=None, at=None, to=mesh, **options):
        placements = [
            ttnn.PlacementReplicate() if k == "R" else ttnn.PlacementShard(int(k[1:]))
            for k in kinds.split()
        ]
        config = [
            placements,
            *([ttnn.MeshShape(list(over))] if over else []),
            *([ttnn.MeshCoordinate(list(at))] if at else []),
        ]
        mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(*config))
        return ttkit.from_numpy(array, device=to, mesh_mapper=mapper, **options)

    return place

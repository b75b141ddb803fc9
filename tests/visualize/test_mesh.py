"""Pictures of meshes: no cable that there is not, none missing, each chip once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttkit
from ttkit import ttnn
from ttkit.hardware import SYSTEMS
from ttkit.visualize.mesh import draw_chips, draw_mesh, mesh_grid, system_grid

SHAPES = {
    "t3000": [(2, 4), (4, 2), (1, 8), (8, 1), (2, 2), (1, 3)],
    "galaxy": [(8, 4), (4, 8), (2, 4), (1, 16)],
    "galaxy_torus": [(8, 4), (1, 4)],
    "n300": [(1, 2)],
}


def check(picture, system):
    rows, columns = picture.shape
    assert len(set(picture.devices)) == len(picture.devices) == rows * columns
    drawn = {frozenset((picture.devices[a], picture.devices[b])) for a, b in picture.pairs}
    linked = {frozenset(pair) for pair in system.links()}
    assert drawn == {pair for pair in linked if pair <= set(picture.devices)}
    assert picture.links == system.links_per_pair


@pytest.mark.parametrize("name", SYSTEMS)
def test_whole_systems(name):
    picture = system_grid(SYSTEMS[name])
    check(picture, SYSTEMS[name])
    assert draw_chips(picture)._repr_html_().count(">device ") == SYSTEMS[name].num_devices


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_meshes_and_submeshes(data):
    name = data.draw(st.sampled_from(sorted(SHAPES)))
    ttkit.use_system(name)
    with ttnn.open_mesh_device(ttnn.MeshShape(*data.draw(st.sampled_from(SHAPES[name])))) as mesh:
        check(mesh_grid(mesh), mesh.system)
        rows, columns = mesh.shape
        height, width = data.draw(st.integers(1, rows)), data.draw(st.integers(1, columns))
        top, left = (
            data.draw(st.integers(0, rows - height)),
            data.draw(st.integers(0, columns - width)),
        )
        submesh = mesh.create_submesh(ttnn.MeshShape(height, width), ttnn.MeshCoordinate(top, left))
        check(mesh_grid(submesh), mesh.system)


def test_a_picture_is_the_same_text_each_time_and_follows_the_theme():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        first = mesh._repr_html_()
        assert first == mesh._repr_html_()
        assert "prefers-color-scheme:dark" in first and 'data-jp-theme-light="false"' in first


class OnCards:
    """A 2x2 mesh as the real library has it, of which this rank drives some columns."""

    shape = ttnn.MeshShape(2, 2)

    def __init__(self, columns):
        self.columns = columns

    def get_device_ids(self):
        return list(range(2 * len(self.columns)))

    def get_view(self):
        return self

    def is_local(self, coordinate):
        return coordinate[1] in self.columns


def test_without_a_known_system_no_cable_is_drawn():
    picture = mesh_grid(OnCards((0, 1)))
    assert picture.devices == (0, 1, 2, 3)
    assert not picture.pairs and "not known" in draw_chips(picture)._repr_html_()


def test_chips_of_other_ranks_on_cards():
    mesh = OnCards((1,))
    svg = draw_mesh(mesh)._repr_html_()
    assert svg.count(">other rank<") == 2 and svg.count(">device ") == 2

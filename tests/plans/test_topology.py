"""Cables, kinds of axes, routes: compared with networkx where that knows better."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttkit import ttnn
from ttkit.hardware import SYSTEMS
from ttkit.plans import LINE, RING, topology

networkx = pytest.importorskip("networkx")


@pytest.mark.parametrize("name", SYSTEMS)
def test_routes_are_shortest(name):
    mesh = topology(name)
    graph = networkx.Graph({chip: mesh.neighbours(chip) for chip in mesh.chips})
    for a in mesh.chips:
        far = networkx.single_source_shortest_path_length(graph, a)
        for b in mesh.chips:
            route = mesh.route(a, b)
            assert (route[0], route[-1]) == (a, b)
            assert len(route) - 1 == far[b]
            assert all(mesh.joined(x, y) for x, y in itertools.pairwise(route))


def test_kinds_of_axes():
    assert [topology("galaxy").kind(a) for a in (0, 1)] == [LINE, LINE]
    assert [topology("galaxy_torus").kind(a) for a in (0, 1)] == [RING, RING]
    assert topology("t3000").kind(0) == LINE  # two chips are no ring


def test_a_line_of_eight_around_a_t3000_is_a_ring():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        there = topology(mesh)
        assert there.kind(1) == RING and there.chips == tuple(mesh.get_device_ids())


def test_a_row_of_a_torus_is_still_a_ring_and_half_a_row_is_not():
    from ttkit import use_system

    use_system("galaxy_torus")
    try:
        with ttnn.open_mesh_device(ttnn.MeshShape(8, 4)) as mesh:
            rows = mesh.create_submeshes(ttnn.MeshShape(1, 4))
            assert topology(rows[3]).kind(1) == RING
            assert topology(mesh.create_submeshes(ttnn.MeshShape(1, 2))[0]).kind(1) == LINE
    finally:
        use_system(None)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(SYSTEMS)), st.data())
def test_a_route_prefers_the_row(name, data):
    mesh = topology(name)
    a, b = data.draw(st.sampled_from(mesh.chips)), data.draw(st.sampled_from(mesh.chips))
    turns = [
        mesh.coordinate(x)[0] == mesh.coordinate(y)[0]
        for x, y in zip(mesh.route(a, b), mesh.route(a, b)[1:], strict=False)
    ]
    if not any(SYSTEMS[name].wraps):
        assert turns == sorted(turns, reverse=True)

"""Pictures of tensors: the slices are the data's own, replicas share a colour, everything else
does not.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import mapper_over

import ttkit
from ttkit import ttnn
from ttkit.visualize.cells import MAP, WHOLE
from ttkit.visualize.tensor import covered, draw_tensor, mapped, placed, slice_text


def test_chips_without_a_shard_are_said_to_be_empty(mesh):
    how = {"device": mesh, "mesh_mapper": ttnn.ShardTensorToMesh(mesh, dim=0)}
    tensor = ttkit.from_numpy(np.zeros((6, 4), np.float32), **how)
    assert draw_tensor(tensor)._repr_html_().count("no shard") == 2
    assert [c.group for c in placed(tensor).cells] == [0, 1, 2, 3, 4, 5, -1, -1]


def maps(figure):
    """What each chip's small map shows as held: left, top, width, height of the whole."""
    return [cell.boxes[0].part for cell in figure.drawings[0].cells]


# ---------------------------------------------------------------- where the shards lie
def check(picture, whole, places, shards):
    """Each shard is where and what its cell says; cells without a shard say so."""
    assert picture.whole == whole.shape
    cells = {cell.coordinate: cell for cell in picture.cells}
    assert len(cells) == len(picture.cells) == np.prod(picture.mesh_shape)
    held = {}
    for place, shard in zip(places, shards, strict=True):
        cell = cells.pop(place)
        inside = whole[tuple(slice(a, b) for a, b in cell.ranges)]
        np.testing.assert_array_equal(inside, ttkit.to_numpy(shard))
        assert held.setdefault(cell.group, cell.ranges) == cell.ranges
    assert sorted(held) == list(range(len(held))) and len(set(held.values())) == len(held)
    assert all((cell.ranges, cell.group) == (None, -1) for cell in cells.values())
    assert not picture.unequal


@settings(max_examples=60)
@given(st.data())
def test_every_placement_with_overrides_and_offsets(data):
    meshes = [("t3000", shape) for shape in ((2, 4), (1, 8), (2, 3))]
    meshes += [("galaxy", shape) for shape in ((8, 4), (1, 32))]
    name, mesh_shape = data.draw(st.sampled_from(meshes))
    ttkit.use_system(name)
    with ttnn.open_mesh_device(ttnn.MeshShape(*mesh_shape)) as mesh:
        over = tuple(data.draw(st.integers(1, n)) for n in mesh_shape)
        at = tuple(data.draw(st.integers(0, m - n)) for n, m in zip(over, mesh_shape))
        line = data.draw(st.booleans())
        if line:
            over = (data.draw(st.integers(1, int(np.prod(mesh_shape)))),)
        rank = data.draw(st.integers(len(over), 4))
        dims = data.draw(st.permutations([*range(rank), *[None] * len(over)]))[: len(over)]
        signed = [None if d is None else d - rank * data.draw(st.booleans()) for d in dims]
        sizes = [data.draw(st.integers(1, 3)) for _ in range(rank)]
        for n, d in zip(over, dims):
            if d is not None:
                sizes[d] *= n
        whole = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
        where = [ttnn.MeshShape(list(over)), *([] if line else [ttnn.MeshCoordinate(list(at))])]
        mapper = mapper_over(mesh, signed, *where)
        on_host = ttkit.from_numpy(whole, mesh_mapper=mapper)
        layout = data.draw(st.sampled_from([ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT]))
        on_device = ttkit.from_numpy(whole, mesh_mapper=mapper, device=mesh, layout=layout)
        places = [tuple(c) for c in on_device.device_coords()]
        for tensor in (on_host, on_device, on_device.cpu()):
            assert covered(tensor) == places
            check(placed(tensor), whole, places, ttnn.get_device_tensors(tensor))
            draw_tensor(tensor)._repr_html_()


def test_a_negative_dimension_is_counted_from_the_end(place):
    picture = placed(place(np.zeros((4, 16), np.float32), "R S-1"))
    told = [slice_text(c.ranges, picture.whole) for c in picture.cells[:4]]
    assert told == ["[:, 0:4]", "[:, 4:8]", "[:, 8:12]", "[:, 12:16]"]


def recorded_as(tensor, placement):
    """The tensor, whose topology says this placement along both axes."""
    topology = tensor.tensor_topology()
    where = topology.distribution_shape(), [placement] * 2, topology.mesh_coords()
    tensor.topology = ttnn.TensorTopology(*where)
    return tensor


def test_a_dimension_cut_along_both_axes(place):
    tensor = place(np.zeros((64, 16), np.float32), "S0 R")
    tensor = recorded_as(tensor, ttnn.PlacementShard(0))
    picture = placed(tensor)
    assert picture.whole == (256, 16)
    assert [slice_text(c.ranges, picture.whole) for c in picture.cells] == [
        f"[{i}:{i + 32}, :]" for i in range(0, 256, 32)
    ]


def test_copies_that_differ_are_hatched(mesh, place):
    rng = np.random.default_rng(0)
    sharded = place(rng.random((8, 4), dtype=np.float32), "S0 R", layout=ttnn.TILE_LAYOUT)
    honest = placed(sharded)
    assert not honest.unequal and "Hatched" not in draw_tensor(sharded)._repr_html_()
    picture = placed(recorded_as(sharded, ttnn.PlacementReplicate()))
    assert {cell.group for cell in picture.cells} == {0} and picture.unequal == {0}
    assert "Hatched: recorded as replicas" in draw_tensor(sharded)._repr_html_()


def test_replicas_with_nan_are_still_replicas(place):
    assert not placed(place(np.full((8, 4), np.nan, np.float32), "R S0")).unequal


@pytest.mark.parametrize("shape", [(), (5,), (0, 4), (1, 2, 1, 3, 4, 2, 6, 7)])
def test_any_rank_and_no_elements(mesh, shape):
    for device in (None, mesh):
        tensor = ttkit.from_numpy(np.zeros(shape, np.float32), device=device)
        picture = placed(tensor)
        assert picture.whole == shape and {cell.group for cell in picture.cells} == {0}
        assert str(list(shape)) in draw_tensor(tensor)._repr_html_()


def test_submeshes_show_their_own_devices(mesh):
    row = mesh.create_submesh(ttnn.MeshShape(1, 4), ttnn.MeshCoordinate(1, 0))
    how = {"device": row, "mesh_mapper": ttnn.ShardTensorToMesh(row, dim=0)}
    tensor = ttkit.from_numpy(np.zeros((4, 4), np.float32), **how)
    assert [cell.device for cell in placed(tensor).cells] == [5, 1, 3, 7]


def test_a_deallocated_tensor_says_so(mesh):
    tensor = ttkit.from_numpy(np.zeros((8, 4), np.float32), device=mesh)
    ttnn.deallocate(tensor)
    assert "deallocated" in tensor._repr_html_()


def test_a_closed_mesh_still_has_a_picture():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    mesh.close()
    assert "device 4" in mesh._repr_html_()


CUTS = [
    ((4, 1, 32, 64), 0, (0, 3)), ((1, 4, 32, 64), 1, (1, 3)), ((1, 1, 32, 64), 2, (2, 3)),
    ((4, 64), 0, (0, 1)), ((64,), 0, (0,)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "dim", "shown"), CUTS)
def test_the_map_shows_the_dimension_that_is_cut(shape, dim, shown):
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
        mapper = ttnn.ShardTensorToMesh(mesh, dim=dim)
        whole = np.zeros(shape, np.float32)
        tensor = ttkit.from_numpy(whole, device=mesh, mesh_mapper=mapper)
        figure, picture = draw_tensor(tensor), placed(tensor)
    assert mapped(picture) == shown
    assert WHOLE not in maps(figure)  # no chip looks as if it held all
    said = f"The small maps show dimension {shown[0]} downwards" in "".join(figure.notes)
    assert said == (shown[0] < len(shape) - 2)


def test_the_map_shows_the_last_dimensions_where_nothing_is_cut():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        whole, everywhere = np.zeros((2, 1, 32, 64), np.float32), ttnn.ReplicateTensorToMesh(mesh)
        tensor = ttkit.from_numpy(whole, device=mesh, mesh_mapper=everywhere)
        figure = draw_tensor(tensor)
    assert mapped(placed(tensor)) == (2, 3)
    assert maps(figure) == [WHOLE] * 2


@pytest.mark.parametrize(
    ("dim", "boxes"),
    [
        (0, [(0, n / 4, 1, 1 / 4) for n in range(4)]),  # rows: one below the other
        (1, [(n / 4, 0, 1 / 4, 1) for n in range(4)]),  # columns: side by side
    ],
)
def test_rows_lie_across_the_map_and_columns_down(place, dim, boxes):
    tensor = place(np.zeros((64, 128), np.float32), f"R S{dim}")  # alike on both rows of the mesh
    assert maps(draw_tensor(tensor)) == boxes * 2
    assert f'fill="{MAP}"' in draw_tensor(tensor)._repr_html_()  # light, also on a dark page

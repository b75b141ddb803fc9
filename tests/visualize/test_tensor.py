"""Pictures of tensors: the slices are the data's own, replicas share a colour, everything else
does not.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttkit
from ttkit import ttnn
from ttkit.visualize.placement import colour, placed
from ttkit.visualize.tensor import draw_tensor


@pytest.fixture(autouse=True)
def back_to_the_default():
    yield
    ttkit.use_system(None)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([("t3000", (2, 4)), ("t3000", (1, 8)), ("galaxy", (8, 4)), ("t3000", (2, 3))]),
    st.permutations([None, 0, 1, 2]),
    st.booleans(),
)
def test_cells_hold_what_they_say(where, dims, on_device):
    ttkit.use_system(where[0])
    with ttnn.open_mesh_device(ttnn.MeshShape(*where[1])) as mesh:
        whole = np.arange(24 * 24 * 24, dtype=np.float32).reshape(24, 24, 24)
        placements = [
            ttnn.PlacementReplicate() if d is None else ttnn.PlacementShard(d) for d in dims[:2]
        ]
        mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(placements))
        tensor = ttkit.from_numpy(whole, device=mesh if on_device else None, mesh_mapper=mapper)
        picture = placed(tensor)
        assert picture.whole == whole.shape
        contents = {}
        for cell, shard in zip(picture.cells, ttnn.get_device_tensors(tensor)):
            inside = whole[tuple(slice(a, b) for a, b in cell.ranges)]
            np.testing.assert_array_equal(inside, ttkit.to_numpy(shard))
            contents.setdefault(cell.group, set()).add(inside.tobytes())
            assert (cell.device is not None) == on_device
        assert all(len(c) == 1 for c in contents.values())
        assert len({next(iter(c)) for c in contents.values()}) == len(contents) == picture.groups
        assert "ttkit-picture" in draw_tensor(tensor).html()


def test_colours_differ_up_to_32_groups():
    for groups in range(1, 33):
        assert len({colour(g, groups) for g in range(groups)}) == groups


def test_chips_without_a_shard_are_said_to_be_empty():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        tensor = ttkit.from_numpy(
            np.zeros((6, 4), np.float32),
            device=mesh,
            mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0),
        )
        assert draw_tensor(tensor).svg().count("no shard") == 2
        assert [c.group for c in placed(tensor).cells] == [0, 1, 2, 3, 4, 5, None, None]


def test_text_on_a_terminal(capsys):
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        tensor = ttkit.from_numpy(
            np.zeros((8, 4), np.float32),
            device=mesh,
            mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0),
        )
        ttkit.visualize_tensor(tensor)
        ttkit.visualize_mesh_device(mesh)
        ttkit.visualize_system_mesh()
        ttkit.visualize_memory(mesh)
    text = capsys.readouterr().out
    assert (
        "[PlacementShard(0)]" in text
        and "MeshDevice(rows=2, cols=4)" in text
        and "SystemMesh Global Shape" in text
        and "DRAM of" in text
    )

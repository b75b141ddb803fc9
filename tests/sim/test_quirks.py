"""What ttnn 0.81.1 does oddly, as it was seen on the real library."""

import json
import pathlib
import re

import numpy as np
import pytest

import ttkit
from ttkit import TTKitError, ttnn
from ttkit.sim import quirks

RECORDED = pathlib.Path(__file__).resolve().parent.parent / "conformance"


def test_the_cases_that_are_named_are_there():
    known = "".join(path.read_text() for path in RECORDED.glob("*.json"))
    named = re.findall(r"#[0-9a-f]{5}\b", pathlib.Path(quirks.__file__).read_text())
    assert len(named) >= 2 and all(f'{name}"' in known for name in named)
    assert json.loads((RECORDED / "op.json").read_text())["meta"]["source"].startswith(
        "ttnn 0.81.1"
    )


def test_a_product_of_nothing_is_a_new_tensor():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), (None, 0))
        a = ttkit.from_numpy(np.zeros((0, 32), np.float32), device=mesh, layout=ttnn.TILE_LAYOUT)
        b = ttkit.from_numpy(
            np.zeros((128, 32), np.float32),
            device=mesh,
            layout=ttnn.TILE_LAYOUT,
            mesh_mapper=mapper,
        )
        made = ttnn.matmul(a, b)
        assert list(made.shape) == [0, 32]
        assert made.tensor_topology().placements() == [ttnn.PlacementReplicate()]
        assert list(made.tensor_topology().distribution_shape()) == [8]


@pytest.mark.parametrize(
    ("values", "dtype", "wanted"),
    [
        ([300.0] * 8, ttnn.uint8, [255] * 8),  # a whole vector saturates
        ([300.0] * 9, ttnn.uint8, [255] * 8 + [300 - 256]),  # the rest of a row-major shard wraps
        ([70000.0] * 5, ttnn.uint16, [65535] * 4 + [70000 - 65536]),
        ([3e9, -1.0], ttnn.int32, [-(2**31), -1]),
    ],
)
def test_numbers_out_of_range(values, dtype, wanted):
    assert ttkit.to_numpy(ttkit.from_numpy(np.float32(values), dtype=dtype)).tolist() == wanted


def test_sums_of_whole_tiles_take_every_type():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        whole, part = (
            ttkit.from_numpy(np.ones((n, 32), np.uint32), device=mesh, layout=ttnn.TILE_LAYOUT)
            for n in (32, 31)
        )
        assert ttnn.all_reduce(whole, cluster_axis=0).dtype is ttnn.uint32
        with pytest.raises(TTKitError, match="moreh_sum"):
            ttnn.all_reduce(part, cluster_axis=0)


def test_what_is_converted_on_the_device_names_every_device():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        mapper = ttnn.create_mesh_mapper(
            mesh, ttnn.MeshMapperConfig([ttnn.PlacementShard(0)], ttnn.MeshShape([2]))
        )
        given = {"device": mesh, "mesh_mapper": mapper}
        tiles = ttkit.from_numpy(np.ones((2, 32), np.float32), layout=ttnn.TILE_LAYOUT, **given)
        rows = ttkit.from_numpy(np.ones((2, 32), np.float32), **given)
        assert [len(t.tensor_topology().mesh_coords()) for t in (tiles, rows)] == [8, 2]

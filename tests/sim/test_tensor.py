"""How tensors print: every chip under its own heading; and that they stay in their process."""

import copy
import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from places import ROWS, laid, many, parts, places

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError


def shown(text):
    """The numbers between the outer brackets."""
    inside = text[text.index("(") : text.rindex(", shape=")]
    return list(map(float, re.findall(r"-?\d+\.?\d*(?:e[-+]\d+)?", inside)))


@many(60)
@given(places(most=4, sizes=(1, 2, 5)))
def test_every_chip_shows_its_own_shard(place):
    with laid(place) as (mesh, t):
        texts = re.split(r"\n(?=device_id)", str(t))
        for text, (at, values) in zip(texts, parts(t).items(), strict=True):
            heading, _, rest = text.partition("\n")
            device = mesh.get_device_id(ttnn.MeshCoordinate(at))
            assert heading == f"device_id: {device}, MeshCoordinate({list(at)})"
            tail = f"shape=Shape({place.shape}), dtype=DataType::{place.dtype.name}, "
            assert f"{tail}layout=Layout::{t.layout.name})" in rest
            edges = ([0, 1, n - 2, n - 1] if n > 4 else range(n) for n in values.shape)
            edges = values[np.ix_(*edges)]
            np.testing.assert_allclose(shown(rest), edges.ravel(), atol=6e-5, rtol=6e-5)


ROW = [
    ([1.0, 2e9], "[ 1.0000e+00,  2.0000e+09]"),
    ([0.0, np.inf, np.nan], "[ 0.0000,     inf,     nan]"),
    ([1, -2], "[    1,    -2]"),
    ([], "([], shape"),
]


@pytest.mark.parametrize(("values", "text"), ROW)
def test_forms(values, text):
    array = np.array(values)
    array = array.astype(np.int32 if array.dtype.kind == "i" else np.float32)
    assert text in str(ttkit.from_numpy(array))


def test_freed():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        t = ttnn.ones([2], ttnn.float32, ROWS, mesh)
        ttnn.deallocate(t)
        what = "shape=Shape([2]), dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR"
        assert str(t) == f"ttnn.Tensor(<buffer is not allocated>, {what})"


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("on_mesh", [False, True])
def test_a_tensor_cannot_be_copied_out(take, on_mesh):
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        device = mesh if on_mesh else None
        mapper = ttnn.ReplicateTensorToMesh(mesh) if on_mesh else None
        tensor = ttkit.from_numpy(np.zeros((32, 32), np.float32), device=device, mesh_mapper=mapper)
        with pytest.raises(TTKitError) as caught:
            take(tensor)
    assert str(caught.value) == (
        "pickle or deepcopy a FLOAT32 tensor of shape [32, 32]: "
        "a tensor belongs to the process that made it, as its mesh does\n"
        "  try: ttkit.to_numpy(tensor), whose array may go anywhere; ttnn.clone(tensor)"
    )


def test_padding_on_the_host(cut, wide):
    values = np.arange(8 * 30 * 5, dtype=np.float32).reshape(8, 30, 5)
    host = ttnn.from_torch(values, mesh_mapper=ttnn.ShardTensorToMesh(wide, 0))
    padded = host.pad_to_tile(0.0)
    assert (padded.shape, padded.padded_shape) == ([1, 30, 5], [1, 32, 32])
    assert host.padded_shape == [1, 30, 5] and padded.layout is ttnn.ROW_MAJOR_LAYOUT
    there = padded.to(ttnn.TILE_LAYOUT).to(wide).cpu().to(ttnn.ROW_MAJOR_LAYOUT)
    first = there.unpad_from_tile((1, 20, 3))
    joined = ttkit.to_numpy(first, mesh_composer=ttnn.ConcatMeshToTensor(wide, 0))
    assert np.array_equal(joined, values[:, :20, :3])

"""Bad input gets an error of the kit's form, never a NumPy traceback."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import mapper_over
from places import many

import ttkit
from ttkit import TTKitError, ttnn


@pytest.fixture
def tensor(wide):
    return ttkit.from_numpy(np.ones((32, 64), np.float32), device=wide, layout=ttnn.TILE_LAYOUT)


BAD = [
    ("float64", lambda m, t: ttkit.from_numpy(np.zeros(2)), TTKitError, "unsupported host type float64"),
    ("unequal pieces", lambda m, t: ttkit.from_numpy(np.ones((9, 16), np.float32), mesh_mapper=ttnn.ShardTensorToMesh(m, dim=0)), TTKitError, "try: a multiple of 8"),
    ("a list", lambda m, t: ttnn.from_torch([1, 2]), TypeError, "list"),
    ("a string as dtype", lambda m, t: ttkit.from_numpy(np.ones(2, np.float32), dtype="x"), TypeError, "dtype='x'"),
    ("array operand", lambda m, t: ttnn.add(t, np.ones((32, 64))), TypeError, "ndarray"),
    ("float size", lambda m, t: ttnn.zeros([1.5, 2], device=m), TypeError, "1.5"),
    ("huge size", lambda m, t: ttnn.zeros([2**40, 2**20], device=m), TTKitError, "Out of Memory"),
    ("beyond 64 bits", lambda m, t: ttnn.zeros([2**70], device=m), TypeError, "must be an integer"),
    ("keyword", lambda m, t: ttnn.all_gather(t, 0, axis=1), TypeError, "axis"),
    ("no index", lambda m, t: ttnn.embedding(ttkit.from_numpy(np.full((1, 4), 99, np.uint32), device=m), ttnn.typecast(t, ttnn.bfloat16)), TTKitError, "index 99"),
    ("tuple coordinate", lambda m, t: m.get_device_id((0, 0)), TypeError, "MeshCoordinate"),
    ("slice", lambda m, t: ttnn.slice(t, [0, 0], [99, 1]), TTKitError, "Ends 99 must be less than or equal"),
    ("fabric while open", lambda m, t: ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D), TTKitError, "not allowed while devices are still open"),
    ("system", lambda m, t: ttkit.use_system("t9000"), TTKitError, "no system has that name"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "phrase"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_the_error_says_what_and_why(wide, tensor, make, kind, phrase):
    with pytest.raises(kind) as error:
        make(wide, tensor)
    assert phrase in str(error.value)
    assert "Traceback" not in str(error.value)


def test_closed_meshes_and_foreign_tensors(wide, tensor):
    row, other = wide.create_submeshes(ttnn.MeshShape(1, 4))
    ones, tiles = np.ones((32, 32), np.float32), ttnn.TILE_LAYOUT
    a, b = (ttkit.from_numpy(ones, device=m, layout=tiles) for m in (row, other))
    with pytest.raises(TTKitError, match="different meshes"):
        ttnn.add(a, b)
    wide.close()
    for call in (
        lambda: ttnn.add(tensor, tensor),
        lambda: wide.create_submesh(ttnn.MeshShape(1, 1)),
        lambda: wide.reshape(ttnn.MeshShape(1, 8)),
        lambda: ttkit.from_numpy(np.ones(2, np.float32), device=wide),
    ):
        with pytest.raises(TTKitError, match="is closed"):
            call()


placements = st.one_of(st.none(), st.integers(-4, 4))


@many(300)
@given(
    st.sampled_from([(1, 1), (1, 4), (2, 2), (2, 4), (4, 2), (2, 3)]),
    st.lists(st.integers(0, 9), min_size=0, max_size=4),
    st.lists(placements, min_size=0, max_size=3),
    st.one_of(st.none(), st.lists(st.integers(1, 9), min_size=1, max_size=3)),
)
def test_a_mapper_places_or_says_why_not(shape, size, dims, override):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    wide = ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    try:
        array = np.arange(int(np.prod(size)), dtype=np.float32).reshape(size)
        try:
            mapper = mapper_over(wide, dims, ttnn.MeshShape(override) if override else None)
            tensor = ttkit.from_numpy(array, device=wide, mesh_mapper=mapper)
        except TTKitError as error:
            assert ": " in str(error)
            return
        shards = [ttkit.to_numpy(t) for t in ttnn.get_device_tensors(tensor)]
        assert len({s.shape for s in shards}) == 1 and tuple(tensor.shape) == shards[0].shape
        if array.size:
            placed = np.concatenate([s.ravel() for s in shards])
            assert set(placed.tolist()) == set(array.ravel().tolist())
    finally:
        wide.close()

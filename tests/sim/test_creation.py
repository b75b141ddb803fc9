"""Tensors from and to NumPy and torch: types, copies, refusals."""

import pathlib
import tempfile

import formulas
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROWS, T3000, laid, many, numbers, opened, parts, places, refused

import ttkit
from ttkit import ttnn
from ttkit.sim.tensor import dtypes

# What becomes of a host type when no dtype is given.
KEPT = {name: name for name in ("float32", "int32", "int8", "uint8")}
KEPT |= {"float16": "bfloat16", "int64": "uint32", "int16": "uint16", "bool": "uint8"}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_types_of_the_host(request, library, name):
    values = np.array([[0, 1, 5], [7, 3, 2]]).astype(name)
    of = request.getfixturevalue("torch").from_numpy if library == "torch" else np.asarray
    tensor = ttnn.from_torch(of(values))
    assert tensor.dtype is getattr(ttnn, KEPT[name])
    assert tensor.layout is ROWS and tensor.device() is None
    np.testing.assert_array_equal(ttkit.to_numpy(tensor), values)


def test_bfloat16_of_torch(torch):
    bfloat = ttnn.from_torch(torch.tensor([1.5, -0.0], dtype=torch.bfloat16))
    assert bfloat.dtype is ttnn.bfloat16 and ttnn.to_torch(bfloat).dtype is torch.bfloat16


@many(60)
@given(st.lists(st.floats(width=32), max_size=40))
def test_bfloat16_is_the_nearest(values):
    values = np.array(values, np.float32)
    have = ttkit.to_numpy(ttkit.from_numpy(values, dtype=ttnn.bfloat16))
    np.testing.assert_array_equal(have, formulas.bfloat16(values))
    assert np.array_equal(np.signbit(have), np.signbit(values)) or np.isnan(values).any()


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat4_b])
@pytest.mark.parametrize("source", ["float32", "bfloat16"])
def test_big_weights_lie_in_two_bytes(monkeypatch, torch, wide, dtype, source):
    """What is computed with them, and read, has the same bits."""
    values = np.random.default_rng(3).standard_normal((160, 256), np.float32)
    values[0, :3] = np.inf, np.nan, -0.0
    given = torch.from_numpy(values).to(getattr(torch, source))
    x = ttkit.from_numpy(values[1:33, :160], device=wide, layout=ttnn.TILE_LAYOUT)
    rows = ttkit.from_numpy(np.array([[3, 0, 159]], np.uint32), device=wide)
    bits = []
    for least in (1 << 20, 1):
        monkeypatch.setattr(dtypes, "NARROW_FROM", least)
        found = []
        for mapper in (ttnn.ShardTensorToMesh(wide, 1), ttnn.ReplicateTensorToMesh(wide)):
            how = {"dtype": dtype, "layout": ttnn.TILE_LAYOUT, "mesh_mapper": mapper}
            weight = ttnn.from_torch(given, device=wide, **how)
            assert weight._array.itemsize == (4 if least > 1 else 2)
            turned = ttnn.matmul(x, ttnn.transpose(weight, 0, 1), transpose_b=True)
            results = [weight, ttnn.matmul(x, weight), ttnn.add(weight, 1.0), turned]
            results += [ttnn.embedding(rows, weight), ttnn.from_torch(given, **how).to(device=wide)]
            found += [
                np.stack(list(map(ttkit.to_numpy, ttnn.get_device_tensors(t)))) for t in results
            ]
        bits.append([each.view(np.uint32) for each in found])
    for before, narrow in zip(*bits, strict=True):
        np.testing.assert_array_equal(narrow, before)


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16, ttnn.int32])
def test_values_are_copies_both_ways(dtype):
    with opened(T3000) as mesh:
        values = numbers((8, 4), dtype).astype(np.int32 if dtype is ttnn.int32 else np.float32)
        kept = values.copy()
        tensors = [ttkit.from_numpy(values, dtype=dtype)]
        for mapper in (None, ttnn.ShardTensorToMesh(mesh, 0)):
            how = {"device": mesh, "mesh_mapper": mapper}
            tensors.append(ttkit.from_numpy(values, dtype=dtype, **how))
        values[:] = 0
        for tensor in tensors:
            join = None if tensor.device() is None else ttnn.ConcatMeshToTensor(mesh, dim=0)
            ttkit.to_numpy(tensor, mesh_composer=join)[:] = 99
            again = ttkit.to_numpy(tensor, mesh_composer=join)[:8].reshape(8, 4)
            np.testing.assert_array_equal(again, kept)


def test_refused():
    with opened(T3000) as mesh:
        refused(lambda: ttkit.from_numpy(np.zeros(2, complex)), "unsupported host type complex128")
        neither = "neither a torch tensor nor a NumPy array"
        refused(lambda: ttnn.from_torch([1.0]), neither, TypeError)
        wrong = {"device": mesh, "mesh_mapper": 3}
        refused(lambda: ttkit.from_numpy(numbers(2), **wrong), "mesh_mapper=3", TypeError)


def test_to_torch_of_fewer_dimensions(wide):
    values = numbers((1, 1, 2, 3))
    tensor = ttkit.from_numpy(values)
    for rank, shape in ((2, (2, 3)), (3, (1, 2, 3)), (5, (1, 1, 2, 3)), (None, (1, 1, 2, 3))):
        made = np.asarray(ttnn.to_torch(tensor, torch_rank=rank, device=wide, cq_id=0))
        assert made.shape == shape
        np.testing.assert_array_equal(made, values.reshape(shape))
    refused(lambda: ttnn.to_torch(tensor, torch_rank=1), "Unable to squeeze to desired rank!")


@pytest.mark.parametrize("on_mesh", [False, True])
def test_a_tensor_of_a_list(wide, on_mesh):
    where = (wide, ttnn.L1_MEMORY_CONFIG) if on_mesh else ()
    for values, dtype, want, size in (
        ([1.5, 2, 3, 4], ttnn.bfloat16, [[1.5, 2], [3, 4]], 2),
        ([1.5, 2, 3, 4], ttnn.int32, [[1, 2], [3, 4]], 4),
        ((1, 2, 3, 4), ttnn.float32, [[1, 2], [3, 4]], 4),
    ):
        made = ttnn.Tensor(values, [1, 1, 2, 2], dtype, ttnn.TILE_LAYOUT, *where)
        assert (made.dtype, made.layout, made.element_size()) == (dtype, ttnn.TILE_LAYOUT, size)
        assert made.device() is (wide if on_mesh else None)
        assert not on_mesh or made.memory_config() == ttnn.L1_MEMORY_CONFIG
        for shard in parts(made).values():
            np.testing.assert_array_equal(shard, [[want]])
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = ttnn.Tensor(given, ttnn.bfloat16, wide, ttnn.TILE_LAYOUT, ttnn.L1_MEMORY_CONFIG)
    assert (made.device(), made.dtype) == (wide, ttnn.bfloat16)
    assert (made.layout, made.memory_config()) == (ttnn.TILE_LAYOUT, ttnn.L1_MEMORY_CONFIG)
    np.testing.assert_array_equal(parts(made)[1, 3], given)
    wrong = [1, 2, 3], [2, 2], ttnn.int32, ROWS
    refused(lambda: ttnn.Tensor(*wrong), "3 values for the shape [2, 2]")
    for dtype in (ttnn.int32, ttnn.bfloat16, ttnn.uint16):
        made = ttnn.from_buffer([1, 2, 3, 4], ttnn.Shape([2, 2]), dtype, wide, ttnn.TILE_LAYOUT)
        assert made.dtype == dtype and made.layout == ttnn.TILE_LAYOUT
        for shard in parts(made).values():
            np.testing.assert_array_equal(shard, [[1, 2], [3, 4]])


def test_typecast_of_experimental(wide, put, parts):
    x = put(wide, (32, 64), "S0R")
    out = ttnn.zeros_like(x, dtype=ttnn.bfloat16)
    made = ttnn.experimental.typecast(x, ttnn.bfloat16, ttnn.L1_MEMORY_CONFIG)
    assert made.memory_config().buffer_type == ttnn.BufferType.L1
    assert ttnn.experimental.typecast(x, ttnn.bfloat16, None, out) is out
    for a, b in zip(parts(made), parts(out)):
        np.testing.assert_array_equal(a, b)
        assert a.any()


# ---------------------------------------------------------------- in files
@many(25)
@given(places(least=1))
def test_files_keep_values_type_layout_and_shards(place):
    with laid(place) as (mesh, t), tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "x.tensorbin")
        ttnn.dump_tensor(path, t)
        for again in (ttnn.load_tensor(str(path)), ttnn.load_tensor(path, device=mesh)):
            assert (again.dtype, again.layout) == (t.dtype, t.layout)
            assert again.tensor_topology() == t.tensor_topology()
            assert again.shape == t.shape
        assert ttnn.load_tensor(path).storage_type() is ttnn.StorageType.HOST
        have = parts(again)
        for at, values in parts(t).items():
            np.testing.assert_array_equal(have[at], values)


def test_files_that_are_refused(tmp_path):
    tensor, path = ttkit.from_numpy(numbers((4, 4))), tmp_path / "x.tensorbin"
    refused(lambda: ttnn.load_tensor(path), "No such file")
    refused(lambda: ttnn.dump_tensor(tmp_path / "no" / path.name, tensor), "cannot be written")
    ttnn.dump_tensor(path, tensor)
    path.write_bytes(path.read_bytes()[:-40])
    refused(lambda: ttnn.load_tensor(path), "Unable to load the tensor from")
    path.write_text("not of ttkit")
    refused(lambda: ttnn.load_tensor(path), "Unable to load the tensor from")
    path.unlink()
    path.mkdir()
    refused(lambda: ttnn.load_tensor(path), "Unable to load the tensor from")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]  # no half of a file


# ---------------------------------------------------------------- caches
def cached(mesh, path, values, mapper, **how):
    how = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": mesh} | how
    return ttnn.as_tensor(values, mesh_mapper=mapper, cache_file_name=path / "w", **how)


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.bfloat8_b, ttnn.float32])
@pytest.mark.parametrize("least", [1, 1 << 20])
@pytest.mark.parametrize("dims", [None, (1, 0), (None, 1)])
def test_a_second_call_reads_the_cache(tmp_path, monkeypatch, wide, parts, dtype, least, dims):
    monkeypatch.setattr(dtypes, "NARROW_FROM", least)
    values = np.random.default_rng(1).standard_normal((256, 128), np.float32)
    if dims is None:
        mapper = ttnn.ReplicateTensorToMesh(wide)
    else:
        mapper = ttnn.ShardTensor2dMesh(wide, mesh_shape=(2, 4), dims=dims)
    how = {"dtype": dtype, "memory_config": ttnn.L1_MEMORY_CONFIG}
    wanted = cached(wide, tmp_path, values, mapper, **how, preprocess=lambda x: 2 * x)
    placed = {"layout": ttnn.TILE_LAYOUT, "device": wide, "mesh_mapper": mapper}
    direct = ttnn.from_torch(2 * values, **placed, **how)
    (path,) = tmp_path.iterdir()
    assert path.name == f"w_dtype_{dtype.name}_layout_TILE.tensorbin"

    def never(values):
        raise AssertionError("converted again")

    again = cached(wide, tmp_path, values, mapper, **how, preprocess=never)
    for made in (wanted, again, cached(wide, tmp_path, None, mapper, **how)):
        assert made.memory_config() == ttnn.L1_MEMORY_CONFIG and made.dtype is dtype
        assert made.tensor_topology() == direct.tensor_topology()
        for new, old in zip(parts(made), parts(direct), strict=True):
            np.testing.assert_array_equal(new, old)


def test_a_replicated_cache_is_for_every_mesh(tmp_path, wide, parts, recwarn):
    values = numbers((64, 64))
    cached(wide, tmp_path, values, ttnn.ReplicateTensorToMesh(wide))
    small = wide.create_submesh(ttnn.MeshShape(1, 2))
    read = cached(small, tmp_path, values, ttnn.ReplicateTensorToMesh(small))
    wanted = ttnn.from_torch(values, ttnn.bfloat16, device=small)
    np.testing.assert_array_equal(parts(read), parts(wanted), strict=True)
    assert not recwarn.list  # no warning that the file is written anew


def test_names_of_caches(tmp_path):
    values = numbers((4, 4))
    made = ttnn.as_tensor(values, cache_file_name=f"{tmp_path}/a/b")
    assert made.device() is None
    ttnn.as_tensor(values, ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, cache_file_name=tmp_path / "c")
    assert sorted(each.name for each in tmp_path.rglob("*.tensorbin")) == [
        "b_dtype_None_layout_ROW_MAJOR.tensorbin",
        "c_dtype_BFLOAT8_B_layout_TILE.tensorbin",
    ]


def test_a_stale_cache_is_written_anew(tmp_path, wide):
    values, replicate = numbers((64, 64)), ttnn.ReplicateTensorToMesh(wide)
    cached(wide, tmp_path, values, replicate)
    for other, mapper in (
        (values + 1, replicate),
        (values[:32], replicate),
        (numbers((256, 64)), ttnn.ShardTensorToMesh(wide, 0)),
    ):
        with pytest.warns(UserWarning, match="made of another tensor or for another mesh") as seen:
            made = cached(wide, tmp_path, other, mapper)
        assert seen[0].filename == __file__
        direct = ttnn.from_torch(other, ttnn.bfloat16, device=wide, mesh_mapper=mapper)
        np.testing.assert_array_equal(parts(made)[0, 1], parts(direct)[0, 1])
        cached(wide, tmp_path, other, mapper)  # no warning


def test_a_foreign_cache_stays(tmp_path, wide):
    path = tmp_path / "w_dtype_BFLOAT16_layout_TILE.tensorbin"
    path.write_bytes(b"of a card")
    with pytest.raises(ttkit.TTKitError, match="another cache_file_name"):
        cached(wide, tmp_path, numbers((32, 32)), None)
    assert cached(wide, tmp_path / "other", None, None) is None
    assert path.read_bytes() == b"of a card"


def test_no_cache_without_values(tmp_path):
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    mesh.has_values = False
    cached(mesh, tmp_path, numbers((32, 32)), None)
    assert not list(tmp_path.iterdir())
    mesh.has_values = True
    ttnn.close_mesh_device(mesh)

"""Tensors moved between interleaved and sharded memory: values stay, slices come together."""

import numpy as np
import pytest
from shards import back, spread

import ttkit
from ttkit import ttnn

L1, ML = ttnn.L1_MEMORY_CONFIG, ttnn.TensorMemoryLayout
ROWS, GRID = ttnn.ShardOrientation.ROW_MAJOR, ttnn.CoreCoord(4, 1)


def put(wide, shape, **how):
    return spread(wide, shape, **{"dtype": ttnn.float32} | how)


def config(wide, scheme, x, y):
    strategy, grid = ttnn.ShardStrategy[scheme], ttnn.CoreGrid(x=x, y=y)
    return ttnn.create_sharded_memory_config((1, 1, 128, 128), grid, strategy)


def test_there_and_back(wide):
    tensor = put(wide, (1, 1, 128, 128))
    values, height = back(wide, tensor), config(wide, "HEIGHT", 4, 1)
    cut = ttnn.interleaved_to_sharded(tensor, height)
    again = ttnn.interleaved_to_sharded(tensor, GRID, [32, 128], ML.HEIGHT_SHARDED, ROWS)
    assert cut.memory_config() == height == again.memory_config()
    block = ttnn.reshard(cut, config(wide, "BLOCK", 2, 2))
    whole = ttnn.sharded_to_interleaved(block, L1)
    narrow = ttnn.sharded_to_interleaved(block, output_dtype=ttnn.bfloat16)
    assert block.memory_config().shard_spec.shape == [64, 64] and whole.memory_config() == L1
    assert narrow.dtype is ttnn.bfloat16 and not narrow.is_sharded()
    for moved in (cut, again, block, whole, ttnn.to_memory_config(block, height)):
        np.testing.assert_array_equal(back(wide, moved), values)
    assert ttnn.to_memory_config(whole, L1) is whole
    into = put(wide, (1, 1, 128, 128), memory_config=height)
    assert ttnn.reshard(block, height, into) is into
    np.testing.assert_array_equal(back(wide, into), values)


def test_a_moved_tensor_leaves_its_memory(wide):
    tensor = put(wide, (1, 1, 64, 64))
    values, before = back(wide, tensor), ttkit.memory(wide).used
    moved = ttnn.move(tensor, memory_config=L1)
    assert not tensor.is_allocated() and moved.memory_config() == L1
    assert all(n == before[d] - 64 * 64 * 4 for d, n in ttkit.memory(wide).used.items())
    np.testing.assert_array_equal(back(wide, moved), values)


@pytest.mark.parametrize("shape", [(1, 1, 512, 64), (1, 2, 256, 64)])
@pytest.mark.parametrize("slices", [2, 4])
def test_slices_of_rows_computed_one_by_one_come_together(wide, shape, slices):
    tensor, cache = put(wide, shape), put(wide, shape, dtype=ttnn.float32)
    rows = 512 // slices
    for i in range(slices):
        shard = [rows // 4, 64]
        how = (GRID, shard, slices, i, ML.HEIGHT_SHARDED, ROWS)
        part = ttnn.interleaved_to_sharded_partial(tensor, *how)
        assert part.shape == [1, 1, rows, 64] and part.memory_config().shard_spec.shape == shard
        done = ttnn.sharded_to_interleaved_partial(ttnn.neg(part), cache, slices, i)
        assert done is cache and not done.is_sharded()
    np.testing.assert_array_equal(back(wide, cache), -back(wide, tensor))


def test_what_is_not_sharded_so_is_refused(wide):
    tensor, height = put(wide, (1, 1, 128, 128)), config(wide, "HEIGHT", 4, 1)
    cut = ttnn.interleaved_to_sharded(tensor, height)
    part, slices = ttnn.interleaved_to_sharded_partial, ttnn.sharded_to_interleaved_partial
    for call, phrase in (
        (lambda: part(tensor, GRID, [32, 128], 3, 0, ML.HEIGHT_SHARDED, ROWS), "must divide"),
        (lambda: slices(cut, tensor, 2, 0), "Invalid arguments to sharded_to_interleaved_partial"),
        (lambda: ttnn.move(ttnn.from_device(cut)), "StorageType::HOST"),
    ):
        with pytest.raises((ttkit.TTKitError, TypeError)) as error:
            call()
        assert phrase in str(error.value), phrase


def test_allocated_memory_is_counted_on_every_chip(wide):
    before = ttkit.memory(wide).used
    shape = ttnn.Shape([1, 1, 32, 64])
    made = ttnn.allocate_tensor_on_device(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, wide)
    assert all(n == before[d] + 4096 for d, n in ttkit.memory(wide).used.items())
    assert list(made.tensor_topology().distribution_shape()) == [2, 4]


@pytest.mark.parametrize("scheme", ["WIDTH", "HEIGHT"])
def test_a_specification_gives_type_layout_and_place(wide, scheme):
    like = spread(wide, (1, 1, 128, 128), memory_config=config(wide, scheme, 2, 2))
    spec = like.spec
    assert list(spec.shape) == [1, 1, 128, 128] and spec == like.spec
    half = wide.create_submesh(ttnn.MeshShape(1, 4))
    values = np.ones((1, 1, 128, 128), np.float32)
    made = ttnn.from_torch(values, spec=spec, device=half)
    for tensor in (made, ttnn.allocate_tensor_on_device(spec, half)):
        assert tensor.spec == spec and tensor.device() is half
        assert (tensor.dtype, tensor.layout) == (ttnn.bfloat16, ttnn.TILE_LAYOUT)
        assert tensor.memory_config() == config(wide, scheme, 2, 2)

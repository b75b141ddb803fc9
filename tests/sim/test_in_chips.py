"""Tensors in L1 and in shards: values stay, what does not fit is refused, results follow."""

import gc

import numpy as np
import pytest
from shards import back, spread

import ttkit
from ttkit import ttnn

L1, ML = ttnn.L1_MEMORY_CONFIG, ttnn.TensorMemoryLayout
ROWS = ttnn.ShardOrientation.ROW_MAJOR


def sharded(scheme, x, y, shard, buffer=ttnn.BufferType.L1):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (x - 1, y - 1))])
    return ttnn.MemoryConfig(ML[f"{scheme}_SHARDED"], buffer, ttnn.ShardSpec(cores, shard, ROWS))


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.float32, ttnn.bfloat8_b])
@pytest.mark.parametrize("scheme", ["HEIGHT", "WIDTH", "BLOCK"])
def test_values_and_shapes_are_those_of_dram(box, scheme, dtype):
    grid, strategy = ttnn.CoreGrid(x=4, y=2), ttnn.ShardStrategy[scheme]
    config = ttnn.create_sharded_memory_config((1, 1, 256, 256), grid, strategy)
    plain = spread(box, (1, 1, 256, 256), dtype=dtype)
    there = spread(box, (1, 1, 256, 256), memory_config=config, dtype=dtype)
    assert there.memory_config() == config and there.is_sharded() and not plain.is_sharded()
    assert there.shape == plain.shape and there.padded_shape == plain.padded_shape
    np.testing.assert_array_equal(back(box, there), back(box, plain))
    total = ttnn.add(there, plain, memory_config=L1)
    assert total.memory_config() == L1
    np.testing.assert_array_equal(back(box, total), back(box, ttnn.add(plain, plain)))


@pytest.mark.parametrize(
    "config",
    [sharded("HEIGHT", 7, 1, [32, 64]), ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG],
    ids=["more shards than cores", "no shard"],
)
def test_shards_that_do_not_fit_take_no_memory(box, config):
    """The recorded cases hold what is said."""
    shape = (256, 64)
    gc.collect()
    before = ttkit.memory(box).used
    for call in (
        lambda: spread(box, (1, 1, *shape), memory_config=config),
        lambda: ttnn.to_memory_config(spread(box, (1, 1, *shape)), config),
        lambda: ttnn.zeros([1, 1, *shape], ttnn.bfloat16, ttnn.TILE_LAYOUT, box, config),
    ):
        with pytest.raises(ttkit.TTKitError, match="try:"):
            call()
    gc.collect()
    assert ttkit.memory(box).used == before


def test_results_lie_where_the_first_operand_does(box):
    config = sharded("HEIGHT", 8, 1, [32, 64])
    shards, near, far = (spread(box, (1, 1, 256, 64), memory_config=c) for c in (config, L1, None))
    assert ttnn.relu(shards).memory_config() == config
    assert ttnn.softmax(near, dim=-1).memory_config() == L1 == ttnn.add(near, far).memory_config()
    assert ttnn.neg(input_tensor=near).memory_config() == L1
    hint = ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG
    noted = ttnn.relu(far, memory_config=hint)
    assert noted.memory_config() == ttnn.neg(noted).memory_config() == hint
    assert ttnn.add(far, near).memory_config() == ttnn.DRAM_MEMORY_CONFIG
    product = ttnn.matmul(near, far, transpose_b=True)
    assert product.memory_config() == ttnn.DRAM_MEMORY_CONFIG
    assert ttnn.relu(shards, memory_config=ttnn.DRAM_MEMORY_CONFIG).is_sharded() is False
    assert ttnn.get_device_tensors(shards)[1].memory_config() == config


def test_operations_in_place_stay_where_they_are(box):
    tensor = spread(box, (1, 1, 64, 64), memory_config=L1)
    other = spread(box, (1, 1, 64, 64))
    assert ttnn.copy(tensor, other).memory_config() == ttnn.DRAM_MEMORY_CONFIG
    out = ttnn.add(other, other, output_tensor=tensor)
    assert out is tensor and out.memory_config() == L1

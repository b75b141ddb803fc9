"""Shard specifications and memory configurations: arithmetic, equality, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ttkit
from ttkit import ttnn

STRATEGIES = list(ttnn.ShardStrategy)
WAYS = list(ttnn.ShardOrientation)


@given(
    st.lists(st.integers(1, 6), max_size=2), *[st.integers(1, 8)] * 3, st.integers(1, 9),
    st.sampled_from(STRATEGIES), st.sampled_from(WAYS),
)  # fmt: skip
def test_shards_of_an_even_cut_cover_the_shape_exactly(batch, rows, columns, x, y, strategy, way):
    height, width = rows * x * y * 32, columns * x * y * 32
    shape, grid = [*batch, height, width], ttnn.CoreGrid(x=x, y=y)
    config = ttnn.create_sharded_memory_config(shape, grid, strategy, way)
    spec, total = config.shard_spec, math.prod(shape)
    assert config.memory_layout.name == f"{strategy.name}_SHARDED" and config.is_sharded()
    assert config.buffer_type is ttnn.BufferType.L1 and spec.orientation is way
    assert spec.num_cores() == x * y and math.prod(spec.shape) * x * y == total
    full = (math.prod(batch) * height, width)
    assert spec.shape[0] == full[0] or strategy is not ttnn.ShardStrategy.WIDTH
    assert spec.shape[1] == full[1] or strategy is not ttnn.ShardStrategy.HEIGHT
    if x * y > 1 and strategy is not ttnn.ShardStrategy.BLOCK:
        uneven = [height + 1, width + 1]  # one more than a multiple of the cores
        with pytest.raises(ttkit.TTKitError, match="Invalid sharding core_grid"):
            ttnn.create_sharded_memory_config(uneven, grid, strategy, way)


def test_configurations_compare_by_what_they_say():
    cores = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (7, 0))])
    kind = ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1
    specs = [ttnn.ShardSpec(cores, [32, 64], way) for way in (WAYS[0], WAYS[0], WAYS[1])]
    made = [ttnn.MemoryConfig(*kind, spec) for spec in specs]
    assert made[0] == made[1] != made[2] and hash(made[0]) == hash(made[1])
    nd = ttnn.MemoryConfig(ttnn.BufferType.L1, ttnn.NdShardSpec([32, 64], cores))
    assert nd != made[0] and nd.memory_layout is ttnn.TensorMemoryLayout.ND_SHARDED
    assert ttnn.MemoryConfig() == ttnn.DRAM_MEMORY_CONFIG != ttnn.L1_MEMORY_CONFIG
    with pytest.raises(AttributeError):
        made[0].buffer_type = ttnn.BufferType.DRAM


def test_a_specification_of_a_tensor_says_where_it_goes(wide):
    L1, cores = ttnn.BufferType.L1, ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (7, 7))])
    spec = ttnn.TensorSpec((2, 3, 40, 50), ttnn.float32, ttnn.TILE_LAYOUT, buffer_type=L1)
    assert spec.tile == ttnn.Tile((32, 32))
    even = {"height": [32, 64], "width": [384, 32], "block": [64, 32]}  # as ttnn 0.81.1 cuts it
    made = {name: getattr(spec, f"{name}_sharded")(cores) for name in even}
    for name, one in made.items():
        config = one.memory_config
        assert config.shard_spec.shape == even[name] and config.buffer_type is L1
        assert config.memory_layout.name == f"{name.upper()}_SHARDED"
    nd = spec.sharded_across_dims([-1], cores), spec.sharded_across_dims_except([0], cores)
    nd += (spec.sharded((1, 37, 37), cores, ttnn.ShardShapeAlignment.RECOMMENDED),)
    cut = [tuple(one.memory_config.nd_shard_spec.shard_shape) for one in nd]
    assert cut == [(2, 3, 64, 32), (2, 1, 32, 32), (1, 64, 64)]
    values = np.arange(12000, dtype=np.float32).reshape(2, 3, 40, 50)
    for one in (spec, *made.values(), *nd):
        t = ttnn.from_torch(values, spec=one, device=wide)
        assert t.spec == one and (t.to_numpy(ttnn.ConcatMeshToTensor(wide, 0))[:2] == values).all()
    whole = ttnn.ShardSpec(cores, [32, 64], WAYS[0])
    scheme = ttnn.TensorMemoryLayout.HEIGHT_SHARDED
    assert ttnn.TensorSpec(*spec[:3], scheme, whole, buffer_type=L1) == made["height"]

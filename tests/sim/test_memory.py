"""Memory of the chips: taken, counted with padding, given back, and refused with the numbers."""

import gc

import numpy as np
import pytest

import ttkit
from ttkit import ttnn


def used(wide):
    return list(ttkit.memory(wide).used.values())


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "nbytes"),
    [
        ((32, 32), "float32", "TILE_LAYOUT", 4096),
        ((33, 1), "bfloat16", "TILE_LAYOUT", 4096),
        ((3, 5, 7), "float32", "ROW_MAJOR_LAYOUT", 420),
        ((64, 64), "bfloat8_b", "TILE_LAYOUT", 4 * 1088),
        ((64, 64), "bfloat4_b", "TILE_LAYOUT", 4 * 576),
        ((10,), "uint8", "ROW_MAJOR_LAYOUT", 10),
    ],
)
def test_replicas_count_on_every_chip_with_padding(wide, shape, dtype, layout, nbytes):
    how = {"dtype": getattr(ttnn, dtype), "layout": getattr(ttnn, layout)}
    tensor = ttkit.from_numpy(np.zeros(shape, np.float32), device=wide, **how)
    assert used(wide) == [nbytes] * 8
    ttnn.deallocate(tensor)
    assert used(wide) == [0] * 8 and not tensor.is_allocated()


def test_given_back_when_nothing_refers_to_it(wide):
    how = {"device": wide, "mesh_mapper": ttnn.ShardTensorToMesh(wide, dim=0)}
    tensor = ttkit.from_numpy(np.zeros((64, 64), np.float32), **how)
    total = ttnn.add(tensor, tensor)
    assert used(wide) == [2 * 2048] * 8
    del tensor, total
    gc.collect()
    assert used(wide) == [0] * 8


def test_a_closed_mesh_holds_nothing():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as first:
        kept = ttkit.from_numpy(np.zeros((32, 32), np.float32), device=first)
        assert used(first) == [4096] * 8
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as second:
        assert used(second) == [0] * 8
    del kept


def test_a_submesh_shares_its_chips_memory(wide):
    right = wide.create_submesh(ttnn.MeshShape(2, 2), ttnn.MeshCoordinate(0, 2))
    kept = ttkit.from_numpy(np.zeros((32, 32), np.float32), device=right)
    assert ttkit.memory(wide).used == {4: 0, 0: 0, 2: 4096, 6: 4096, 5: 0, 1: 0, 3: 4096, 7: 4096}
    assert kept.is_allocated()


def test_too_much_is_refused_before_the_host_allocates(wide):
    with pytest.raises(ttkit.OutOfMemoryError) as error:
        ttnn.zeros([400_000, 400_000], dtype=ttnn.float32, device=wide)
    text = str(error.value)
    for part in ("chip 4", "640,000,000,000", "12,000,000,000", "0 of", "are free", "try:"):
        assert part in text
    a = ttkit.from_numpy(np.zeros((200_000, 1), np.float32), device=wide, layout=ttnn.TILE_LAYOUT)
    with pytest.raises(ttkit.OutOfMemoryError):
        ttnn.matmul(a, a, transpose_b=True)
    with pytest.raises(ttkit.OutOfMemoryError):
        ttnn.repeat(a, [1, 200_000])


def test_memory_adds_up_to_full(wide):
    kept = [ttnn.zeros([1000, 1024, 1024], dtype=ttnn.float32, device=wide) for _ in range(2)]
    assert used(wide) == [2 * 1000 * 1024 * 1024 * 4] * 8
    with pytest.raises(ttkit.OutOfMemoryError, match="are free"):
        ttnn.zeros([1000, 1000, 1001], dtype=ttnn.float32, device=wide)
    kept.pop()
    gc.collect()
    assert ttnn.zeros([1000, 1000, 1001], dtype=ttnn.float32, device=wide).is_allocated()


def test_a_result_moved_to_l1_leaves_dram(wide):
    tensor = ttnn.zeros([32, 64], ttnn.bfloat16, ttnn.TILE_LAYOUT, wide)
    near = ttnn.relu(tensor, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert used(wide) == [4096] * 8
    far = ttnn.to_memory_config(near, ttnn.DRAM_MEMORY_CONFIG)
    assert used(wide) == [8192] * 8 and not far.is_sharded()

"""Memory of the chips: taken, counted with padding, given back, and refused with the numbers."""

import gc

import numpy as np
import pytest

import ttkit
from ttkit import ttnn
from ttkit.sim.memory import bytes_in_use


@pytest.fixture
def mesh():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


def used(mesh):
    return list(ttkit.memory(mesh).used.values())


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
def test_replicas_count_on_every_chip_with_padding(mesh, shape, dtype, layout, nbytes):
    tensor = ttkit.from_numpy(
        np.zeros(shape, np.float32),
        dtype=getattr(ttnn, dtype),
        layout=getattr(ttnn, layout),
        device=mesh,
    )
    assert used(mesh) == [nbytes] * 8
    ttnn.deallocate(tensor)
    assert used(mesh) == [0] * 8 and not tensor.is_allocated()


def test_given_back_when_nothing_refers_to_it(mesh):
    tensor = ttkit.from_numpy(
        np.zeros((64, 64), np.float32), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0)
    )
    total = ttnn.add(tensor, tensor)
    assert used(mesh) == [2 * 2048] * 8
    del tensor, total
    gc.collect()
    assert used(mesh) == [0] * 8


def test_a_closed_mesh_holds_nothing():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as first:
        kept = ttkit.from_numpy(np.zeros((32, 32), np.float32), device=first)
        assert used(first) == [4096] * 8
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as second:
        assert used(second) == [0] * 8
    del kept


def test_a_submesh_shares_its_chips_memory(mesh):
    right = mesh.create_submesh(ttnn.MeshShape(2, 2), ttnn.MeshCoordinate(0, 2))
    kept = ttkit.from_numpy(np.zeros((32, 32), np.float32), device=right)
    assert ttkit.memory(mesh).used == {4: 0, 0: 0, 2: 4096, 6: 4096, 5: 0, 1: 0, 3: 4096, 7: 4096}
    assert kept.is_allocated()


def test_too_much_is_refused_before_the_host_allocates(mesh):
    with pytest.raises(ttkit.OutOfMemoryError) as error:
        ttnn.zeros([400_000, 400_000], dtype=ttnn.float32, device=mesh)
    text = str(error.value)
    for part in ("chip 4", "640,000,000,000", "12,000,000,000", "0 of", "are free", "try:"):
        assert part in text
    a = ttkit.from_numpy(np.zeros((200_000, 1), np.float32), device=mesh, layout=ttnn.TILE_LAYOUT)
    with pytest.raises(ttkit.OutOfMemoryError):
        ttnn.matmul(a, a, transpose_b=True)
    with pytest.raises(ttkit.OutOfMemoryError):
        ttnn.repeat(a, [1, 200_000])


def test_memory_adds_up_to_full(mesh):
    kept = [ttnn.zeros([1000, 1024, 1024], dtype=ttnn.float32, device=mesh) for _ in range(2)]
    assert used(mesh) == [2 * 1000 * 1024 * 1024 * 4] * 8
    with pytest.raises(ttkit.OutOfMemoryError, match="are free"):
        ttnn.zeros([1000, 1000, 1001], dtype=ttnn.float32, device=mesh)
    kept.pop()
    gc.collect()
    assert ttnn.zeros([1000, 1000, 1001], dtype=ttnn.float32, device=mesh).is_allocated()


# ---------------------------------------------------------------- L1
def in_l1(mesh):
    counted = bytes_in_use("used_l1")
    return [counted[device] for device in mesh.get_device_ids()]


def sharded(x, shard):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange((x, 0), (x, 0))])
    spec = ttnn.ShardSpec(cores, shard, ttnn.ShardOrientation.ROW_MAJOR)
    layout = ttnn.TensorMemoryLayout.HEIGHT_SHARDED
    return ttnn.MemoryConfig(layout, ttnn.BufferType.L1, spec)


def zeros(mesh, shape, config, layout=ttnn.TILE_LAYOUT, dtype=ttnn.bfloat16):
    return ttnn.zeros(shape, dtype, layout, mesh, config)


@pytest.mark.parametrize(
    ("shape", "layout", "dtype", "each"),
    [
        ((32, 32), ttnn.TILE_LAYOUT, ttnn.bfloat16, 2048),  # a page is a tile: one core has it
        ((32, 32 * 64), ttnn.TILE_LAYOUT, ttnn.bfloat16, 2048),
        ((32, 32 * 65), ttnn.TILE_LAYOUT, ttnn.bfloat16, 2 * 2048),
        ((64, 64), ttnn.TILE_LAYOUT, ttnn.bfloat8_b, 1088),
        ((65, 250), ttnn.ROW_MAJOR_LAYOUT, ttnn.bfloat16, 2 * 512),  # 500 bytes, aligned to 16
    ],
)
def test_interleaved_l1_is_counted_by_the_fullest_core(mesh, shape, layout, dtype, each):
    kept = zeros(mesh, list(shape), ttnn.L1_MEMORY_CONFIG, layout, dtype)
    assert in_l1(mesh) == [each] * 8 and used(mesh) == [0] * 8
    ttnn.deallocate(kept)
    assert in_l1(mesh) == [0] * 8


def test_shards_take_the_same_addresses_on_all_cores_as_in_ttnn(mesh):
    first = zeros(mesh, [512, 1024], sharded(0, [512, 1024]))
    assert in_l1(mesh) == [2**20] * 8
    with pytest.raises(ttkit.OutOfMemoryError) as error:
        zeros(mesh, [512, 1024], sharded(1, [512, 1024]))
    text = str(error.value)
    for part in (
        "Out of Memory: Not enough space to allocate 1048576 B L1 buffer across 1 banks",
        "each bank needs to store 1048576 B, but bank size is 1393312 B",
        "(allocated: 1048576 B, free: 344736 B)",
        "core of chip 4",
        "try:",
    ):
        assert part in text
    del error
    gc.collect()
    assert in_l1(mesh) == [2**20] * 8
    del first
    gc.collect()
    assert zeros(mesh, [512, 1024], sharded(1, [512, 1024])).is_sharded()


def test_l1_of_other_chips_does_not_matter(mesh):
    left, right = mesh.create_submeshes(ttnn.MeshShape(2, 2))
    kept = zeros(left, [512, 1024], sharded(0, [512, 1024]))
    also = zeros(right, [512, 1024], sharded(0, [512, 1024]))
    with pytest.raises(ttkit.OutOfMemoryError):
        zeros(mesh, [512, 1024], sharded(0, [512, 1024]))
    assert kept.is_allocated() and also.is_allocated()


def test_l1_shrinks_by_what_a_mesh_is_opened_with():
    for how, size in (({"l1_small_size": 1000}, 1392288), ({"worker_l1_size": 10**6}, 10**6)):
        with ttnn.open_mesh_device(ttnn.MeshShape(1, 2), **how) as small:
            with pytest.raises(ttkit.OutOfMemoryError, match=f"bank size is {size} B"):
                zeros(small, [8192, 8192], ttnn.L1_MEMORY_CONFIG)


def test_a_result_moved_to_l1_leaves_dram(mesh):
    tensor = zeros(mesh, [32, 64], None)
    near = ttnn.relu(tensor, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert used(mesh) == [4096] * 8 and in_l1(mesh) == [2048] * 8
    with pytest.raises(ttkit.OutOfMemoryError):
        ttnn.repeat(near, [2000, 2000])
    assert in_l1(mesh) == [2048] * 8

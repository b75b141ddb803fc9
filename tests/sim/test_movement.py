"""Tensors moved between host and mesh, kept in another layout or type, written into one another;
device by device.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from places import (
    FLOATS,
    INTEGERS,
    KINDS,
    ROWS,
    T3000,
    TILE,
    Place,
    compare,
    laid,
    many,
    numbers,
    opened,
    parts,
    places,
    put,
    refused,
)

import ttkit
from ttkit import ttnn

BLOCK = ttnn.bfloat8_b


@many(120)
@given(places(), st.sampled_from(FLOATS + INTEGERS), st.sampled_from([TILE, ROWS]))
def test_values_stay_wherever_they_go(place, dtype, layout):
    with laid(place) as (mesh, t):
        host = ttnn.from_device(t)
        assert host.device() is None and host.tensor_topology() == t.tensor_topology()
        again = ttnn.to_device(host, mesh)
        assert again.tensor_topology() == t.tensor_topology() and again.layout is t.layout
        turned = ttnn.to_layout(t, layout)
        assert turned.layout is layout
        assert turned.dtype is (ttnn.bfloat16 if t.dtype is BLOCK and layout is ROWS else t.dtype)
        for same in (again, turned, ttnn.clone(t), ttnn.to_memory_config(t, ttnn.L1_MEMORY_CONFIG)):
            compare(same, lambda x: x, t)
        # a negative number has no place in an unsigned type
        small = ttnn.abs(t) if place.dtype in FLOATS else t
        cast = ttnn.typecast(small, dtype)
        assert cast.dtype is dtype and cast.layout is (TILE if dtype is BLOCK else t.layout)
        if place.dtype not in (ttnn.int32, ttnn.int8):
            compare(cast, lambda x: x if dtype in FLOATS else np.trunc(x), small)
        into = ttnn.zeros(place.shape, t.dtype, t.layout, mesh)
        if into.grid is t.grid:
            assert ttnn.copy(t, into) is into
            compare(into, lambda x: x, t)
            into = ttnn.zeros(place.shape, t.dtype, t.layout, mesh)
            assert ttnn.assign(t, into) is into
            compare(into, lambda x: x, t)
        compare(ttnn.assign(t, memory_config=ttnn.L1_MEMORY_CONFIG), lambda x: x, t)


def test_a_reallocated_tensor_leaves_its_buffer():
    with opened(T3000) as mesh:
        t = ttnn.ones([64, 64], ttnn.bfloat16, TILE, mesh)
        used = ttkit.memory(mesh).used
        moved = ttnn.reallocate(t)
        assert not t.is_allocated() and moved.memory_config() == ttnn.DRAM_MEMORY_CONFIG
        assert ttkit.memory(mesh).used == used
        assert ttkit.to_numpy(ttnn.get_device_tensors(moved)[5]).sum() == 64 * 64
        wide = {"memory_config": ttnn.L1_MEMORY_CONFIG, "dtype": ttnn.float32}
        assert ttnn.assign(moved, **wide).dtype is ttnn.float32


@many(40)
@given(st.sampled_from(KINDS), st.sampled_from([ttnn.float32, BLOCK, ttnn.int32]))
def test_refreshed_in_place(kind, dtype):
    place = Place(T3000, kind, [3, 5], dtype, TILE, 1)
    with laid(place) as (mesh, t):
        other = put(mesh, place, seed=20)
        before = ttkit.memory(mesh).used
        ttnn.copy_host_to_device_tensor(ttnn.from_device(other), t)
        compare(t, lambda x: x, other)
        assert ttkit.memory(mesh).used == before


def test_a_large_tensor_is_refreshed_without_memory_for_two():
    with opened(T3000) as mesh:
        shape = [1 << 15, 1 << 16]  # 8 GiB of 12 GB on each chip; zeros take none on the host
        big = ttnn.zeros(shape, ttnn.float32, TILE, mesh)
        ttnn.copy_host_to_device_tensor(ttnn.zeros(shape, ttnn.float32, TILE), big)
        assert big.is_allocated()


def test_tiles_with_more_room_or_less():
    with opened(T3000) as mesh:
        t = put(mesh, Place(T3000, "whole", [3, 20, 50], ttnn.bfloat16, ROWS, 1))
        wide = ttnn.tilize_with_val_padding(t, [3, 64, 64], 7.0)
        assert (wide.layout, wide.shape, wide.padded_shape) == (TILE, t.shape, (3, 32, 64))
        compare(wide, lambda x: x, t)
        block = ttnn.tilize_with_zero_padding(t, output_dtype=BLOCK)
        assert block.dtype is BLOCK
        corner = ttnn.untilize_with_unpadding(block, [1, 31, 29])
        assert (corner.layout, corner.dtype) == (ROWS, ttnn.bfloat16)
        compare(corner, lambda x: np.pad(x[:2, :, :30], [(0, 0), (0, 12), (0, 0)]), block)


def test_refused():
    with opened(T3000) as mesh:
        host = ttkit.from_numpy(numbers((2, 6)), layout=TILE)
        t = ttnn.to_device(host, mesh)
        part = put(mesh, Place(T3000, "corner", [2, 6], ttnn.float32, TILE, 0))
        small, whole = ttnn.slice(t, [0, 0], [1, 6]), ttnn.typecast(t, ttnn.int32)
        freed = ttnn.clone(t)
        ttnn.deallocate(freed)
        submesh = mesh.create_submesh(ttnn.MeshShape(1, 2))
        refused(lambda: ttnn.to_device(t, submesh), "already lies on")
        refused(lambda: ttnn.to_layout(t, ROWS, ttnn.bfloat16), "dtype cannot be different")
        refused(lambda: ttnn.copy(t, small), "the result has shape [2, 6]")
        refused(lambda: ttnn.copy(t, part), "on 8 chips")
        refused(lambda: ttnn.copy(t, freed), "not allocated")
        refused(lambda: ttnn.copy_host_to_device_tensor(host, freed), "not allocated")
        for other in (whole, part):
            refused(lambda other=other: ttnn.copy_host_to_device_tensor(host, other), "different")


@many(80)
@given(places())
def test_apart_and_together(place):
    with laid(place) as (mesh, t):
        shards = ttnn.get_device_tensors(t)
        assert [s.device_coords() for s in shards] == [[c] for c in t.device_coords()]
        for s in shards:
            assert s.device() is mesh
            assert (s.shape, s.dtype, s.layout) == (t.shape, t.dtype, t.layout)
        again = ttnn.combine_device_tensors(tensors=shards[::-1])
        assert again.grid is t.grid
        compare(again, lambda x: x, t)
        hosts = ttnn.get_device_tensors(ttnn.from_device(t))
        for host, values in zip(hosts, parts(t).values()):
            np.testing.assert_array_equal(ttkit.to_numpy(host), values)
        if t.grid is mesh.grid:
            compare(ttnn.to_device(ttnn.from_host_shards(hosts, mesh.shape), mesh), lambda x: x, t)
        if place.dtype is ttnn.float32:  # a shard is a tensor of its own
            for shard, at in zip(shards, t.grid.coords):
                assert list(parts(ttnn.add(shard, 1.0))) == [at]
                compare(ttnn.add(shard, t), lambda x, y: x + y, shard, t)


def test_shards_refused():
    with opened(T3000) as mesh:
        host = ttkit.from_numpy(numbers((1, 2)))
        t = ttnn.to_device(host, mesh)
        shards = ttnn.get_device_tensors(t)
        sizes = "must match mesh size: 3 and 8"
        refused(lambda: ttnn.from_host_shards([host] * 3, mesh.shape), sizes)
        other = ttnn.to_device(host, mesh.create_submesh(ttnn.MeshShape(1, 1)))
        mixed = [shards[1], other]
        refused(lambda: ttnn.combine_device_tensors(tensors=mixed), "different meshes")

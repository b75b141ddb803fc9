"""Tensors taken apart and put together."""

import numpy as np
from hypothesis import given
from places import T3000, compare, laid, many, numbers, opened, parts, places, refused

import ttkit
from ttkit import ttnn


@many(80)
@given(places())
def test_apart_and_together(place):
    with laid(place) as (mesh, t):
        shards = ttnn.get_device_tensors(t)
        assert [s.device_coords() for s in shards] == [[c] for c in t.device_coords()]
        assert all(s.device() is mesh and s.shape == t.shape and s.dtype is t.dtype and s.layout is t.layout for s in shards)
        again = ttnn.combine_device_tensors(tensors=shards[::-1])
        assert again.grid is t.grid
        compare(again, lambda x: x, t)
        hosts = ttnn.get_device_tensors(ttnn.from_device(t))
        for host, values in zip(hosts, parts(t).values()):
            np.testing.assert_array_equal(ttkit.to_numpy(host), values)
        if t.grid.whole:
            compare(ttnn.to_device(ttnn.from_host_shards(hosts, mesh.shape), mesh), lambda x: x, t)
        if place.dtype is ttnn.float32:  # a shard is a tensor of its own
            for shard, at in zip(shards, t.grid.coords):
                assert list(parts(ttnn.add(shard, 1.0))) == [at]
                compare(ttnn.add(shard, t), lambda x, y: x + y, shard, t)


def test_refused():
    with opened(T3000) as mesh:
        host = ttkit.from_numpy(numbers((1, 2)))
        t = ttnn.to_device(host, mesh)
        shards = ttnn.get_device_tensors(t)
        refused(lambda: ttnn.from_host_shards([host] * 3, mesh.shape), "must match mesh size: 3 and 8")
        refused(lambda: ttnn.from_host_shards([host] * 7 + shards[:1], mesh.shape), "All tensor shards must be on host")
        refused(lambda: ttnn.combine_device_tensors(tensors=[shards[0]] * 2), "duplicate coordinate")
        other = mesh.create_submesh(ttnn.MeshShape(1, 1))
        refused(lambda: ttnn.combine_device_tensors(tensors=[shards[1], ttnn.to_device(host, other)]), "on the same mesh")

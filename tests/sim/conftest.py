"""Tests of the simulator run strict, with a fabric, and leave no mesh open; meshes to compute on, and the comparison of each chip with torch."""

import functools
import itertools

import pytest
from machine import strict_with_fabric
from started import start

from ttkit import ttnn

MAPPINGS = {"RR": (None, None), "S0R": (0, None), "RS0": (None, 0)}


@pytest.fixture(autouse=True)
def clean_machine():
    with strict_with_fabric():
        yield


@pytest.fixture
def run(tmp_path):
    """run(mesh, hosts, script, *arguments): the finished mpiexec, one rank for each host."""
    return functools.partial(start, tmp_path)


@pytest.fixture(params=[(1, 1), (2, 4)], ids=["1x1", "2x4"])
def mesh(request):
    """One chip, and eight."""
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*request.param))
    yield mesh
    ttnn.close_mesh_device(mesh)


@pytest.fixture
def wide():
    """Eight chips in two rows."""
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    yield mesh
    ttnn.close_mesh_device(mesh)


@pytest.fixture
def put(torch):
    """put(mesh, shape, "S0R", ...) gives a tensor of random values, every shard of which has `shape`."""
    numbers = torch.Generator().manual_seed(7)

    def make(mesh, shape, kind="RR", dtype=ttnn.float32, low=None, layout=ttnn.TILE_LAYOUT):
        dims = MAPPINGS[kind]
        whole = list(shape)
        for length, dim in zip(mesh.shape, dims):
            if dim is not None:
                whole[dim] *= length
        if dtype is ttnn.uint32:
            values = torch.randint(0, low, whole, generator=numbers)
        else:
            values = torch.randn(whole, generator=numbers)
            values = values if low is None else values.abs() + low
        placements = [ttnn.PlacementReplicate() if d is None else ttnn.PlacementShard(d) for d in dims]
        mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(placements))
        return ttnn.from_torch(values, dtype=dtype, layout=layout, device=mesh, mesh_mapper=mapper)

    return make


@pytest.fixture
def check(torch):
    """check(result, reference, *inputs) compares each chip's results with `reference` of that chip's inputs; lists go element by element."""

    def shards(tensor):
        return [ttnn.to_torch(t) for t in ttnn.get_device_tensors(tensor)]

    def compare(result, reference, *inputs, atol=2e-5):
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        count = max(len(shards(t)) for t in [*results, *inputs] if t is not None)
        exact = all(t is None or t.dtype is ttnn.float32 for t in results)
        for chip in range(count):
            wanted = reference(*(t if t is None else whole(shards(t)[chip]) for t in inputs))
            wanted = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
            assert len(wanted) == len(results)
            for ours, theirs in zip(results, wanted):
                assert (ours is None) == (theirs is None)
                if ours is None:
                    continue
                got = shards(ours)[chip]
                assert tuple(got.shape) == tuple(theirs.shape)
                torch.testing.assert_close(got.float(), theirs.detach().float(), atol=atol if exact else max(atol, 2e-2), rtol=1e-4 if exact else 1.6e-2)

    def whole(values):
        return values.float() if values.is_floating_point() else values.long()

    return compare


@pytest.fixture
def distinct():
    """distinct(tensor): the number of different shards, to show that a test is about chips that differ."""

    def count(tensor):
        parts = [ttnn.to_torch(t) for t in ttnn.get_device_tensors(tensor)]
        return len(parts) - len({j for i, j in itertools.combinations(range(len(parts)), 2) if parts[i].equal(parts[j])})

    return count

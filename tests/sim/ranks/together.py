"""Run by every rank: programs on a mesh that the ranks share, compared with the same programs on
a mesh of this process alone.

python together.py ROWSxCOLUMNS NAME...   prints one line for each named check that passed on this rank.
"""

import functools
import os
import sys
from contextlib import contextmanager

import numpy as np
from machine import mapper_over

import ttkit
from ttkit import ttnn
from ttkit.sim import blocks
from ttkit.sim.ranks import mpi

RANK = int(os.environ["OMPI_COMM_WORLD_RANK"])
os.environ.setdefault("TT_MESH_ID", "0")
os.environ.setdefault("TT_MESH_HOST_RANK", str(RANK))
SHAPE = tuple(map(int, sys.argv[1].split("x"))) if len(sys.argv) > 1 else (2, 4)
CORE = ttnn.CoreCoord(0, 0)
# the dimension that each mesh axis cuts
EVERY = [(None, None), (0, None), (None, 1), (1, 0), (0, 1)]


@contextmanager
def alone():
    """In the block this process is one on its own, with all chips."""
    kept = {
        name: os.environ.pop(name)
        for name in list(os.environ)
        if name.startswith(("TT_MESH", "OMPI_COMM_WORLD_SIZE"))
    }
    try:
        yield
    finally:
        os.environ.update(kept)


def meshes(shape=SHAPE):
    """The mesh that ranks share, and one of our own."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    shared = ttnn.open_mesh_device(ttnn.MeshShape(shape))
    ttkit.about()  # It has one line about the machine, in which this rank drives a part.
    with alone():
        whole = ttnn.open_mesh_device(ttnn.MeshShape(shape))
    assert whole.get_num_devices() == len(whole.get_device_ids()) == len(shared.chips)
    return shared, whole


def values(shape, seed, whole_numbers=False):
    drawn = np.random.default_rng(seed)
    found = drawn.integers(-8, 8, shape) if whole_numbers else drawn.standard_normal(shape)
    return found.astype(np.float32)


def put(mesh, shape, dims, seed=0, dtype=ttnn.float32, layout=ttnn.ROW_MAJOR_LAYOUT):
    """Shards of `shape`, cut along `dims` for each axis."""
    whole = [
        n * np.prod([m for m, d in zip(mesh.shape, dims) if d == dim], dtype=int)
        for dim, n in enumerate(shape)
    ]
    drawn = values(whole, seed, dtype is ttnn.int32)
    if dtype is ttnn.int32:
        drawn = drawn.astype(np.int32)
    how = {"device": mesh, "mesh_mapper": mapper_over(mesh, dims)}
    return ttkit.from_numpy(drawn, dtype=dtype, layout=layout, **how)


def shards(tensor):
    return dict(zip(tensor.grid.coords, tensor.shards()))


def same(ours, theirs, near=0.0):
    """Our chips hold what they hold where one process has them all; what is said of the tensors
    is the same.
    """
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            same(a, b, near)
        return
    if not hasattr(theirs, "grid"):
        np.testing.assert_allclose(ours, theirs, atol=near, rtol=near)
        return
    have, want = shards(ours), shards(theirs)
    own = int(os.environ["TT_MESH_HOST_RANK"])
    assert set(have) == {c for c in want if ours.grid.owner_of(c) == own}
    for at, got in have.items():
        assert got.shape == want[at].shape, (at, got.shape, want[at].shape)
        np.testing.assert_allclose(got, want[at], atol=near, rtol=near, err_msg=f"chip {at}")
    assert (ours.shape, ours.dtype, ours.layout) == (theirs.shape, theirs.dtype, theirs.layout)
    a, b = (
        (t.placements(), t.distribution_shape(), t.mesh_coords())
        for t in (ours.tensor_topology(), theirs.tensor_topology())
    )
    assert a == b
    assert [tuple(c) for c in ours.device_coords()] == [tuple(c) for c in theirs.device_coords()]


def both(program, near=0.0, shape=SHAPE):
    """A program of a mesh, on both kinds of mesh."""
    shared, whole = meshes(shape)
    try:
        ours = program(shared)
        with alone():
            theirs = program(whole)
            read = [
                [ttkit.to_numpy(s) for s in ttnn.get_device_tensors(t.cpu())]
                for t in theirs
                if hasattr(t, "grid")
            ]
        same(ours, theirs, near)
        # host shards come from all ranks
        for tensor, wanted in zip([t for t in ours if hasattr(t, "grid")][:3], read):
            for got, want in zip(ttnn.get_device_tensors(tensor.cpu()), wanted, strict=True):
                np.testing.assert_allclose(ttkit.to_numpy(got), want, atol=near, rtol=near)
    finally:
        ttnn.close_mesh_device(shared)
        ttnn.close_mesh_device(whole)


def each_collective(mesh, t, axis, along):
    wide = ttnn.all_gather(t, 1, cluster_axis=axis)
    made = [wide, ttnn.all_gather(t, 0, cluster_axis=axis), *ttnn.all_broadcast(t)]
    made += ttnn.all_broadcast(t, cluster_axis=axis)
    dims = [dim for dim in (0, 1) if wide.shape[dim] % along == 0]
    made += [ttnn.reduce_scatter(wide, dim, cluster_axis=axis) for dim in dims]
    made += [ttnn.all_reduce(t, cluster_axis=axis), ttnn.mesh_partition(wide, 1, axis)]
    last = ttnn.MeshCoordinate(mesh.shape[0] - 1, mesh.shape[1] - 1)
    other = ttnn.MeshCoordinate(*(0 if a == axis else n - 1 for a, n in enumerate(mesh.shape)))
    made += [
        ttnn.broadcast(t, last, cluster_axis=axis),
        ttnn.point_to_point(t, last, other),
        ttnn.point_to_point(t, other, last),
    ]
    return [*made, ttnn.point_to_point(t, other, last, output_tensor=ttnn.clone(made[-1]))]


def collectives():
    """Each collective, axis and distribution; sums of numbers that round, at sizes where the
    order is kept: the same bits.
    """

    def program(axis, dims, seed):
        return lambda mesh: each_collective(mesh, put(mesh, [8, 16], dims, seed), axis, SHAPE[axis])

    for axis in (0, 1):
        for seed, dims in enumerate(EVERY if SHAPE[axis] > 1 else []):
            both(program(axis, dims, seed))

    def tiles(mesh, dtype):
        t = put(mesh, [32, 64], (0, 1), 3, dtype, ttnn.TILE_LAYOUT)
        return each_collective(mesh, t, 1, SHAPE[1])

    both(functools.partial(tiles, dtype=ttnn.bfloat16), 0.02)
    both(functools.partial(tiles, dtype=ttnn.int32))


def ring(mesh, axis, step):
    """A mesh and its socket from each chip to the next one along an axis."""
    joined = []
    for chip in np.ndindex(*mesh.shape):
        to = list(chip)
        to[axis] = (to[axis] + step) % mesh.shape[axis]
        ends = (ttnn.MeshCoreCoord(ttnn.MeshCoordinate(*c), CORE) for c in (chip, to))
        joined.append(ttnn.SocketConnection(*ends))
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.DRAM, 1 << 16)
    return mesh, *ttnn.create_socket_pair(mesh, mesh, ttnn.SocketConfig(joined, memory))


def exchanges():
    """All-to-all there and back along each axis and over all chips, of shards and of replicas;
    sockets that shift, between other sockets.
    """

    def exchange(mesh, axis, dims, dtype):
        n, swap = 8, ttnn.experimental.all_to_all_async_generic
        t = put(mesh, [2, n * 2, 3, n * n], dims, 5, dtype)
        made = [swap(t, into, cut, cluster_axis=axis) for into, cut in ((2, 3), (0, 1), (3, 1))]
        back = swap(made[0], 3, 2, cluster_axis=axis)
        assert all(np.array_equal(a, b) for a, b in zip(back.shards(), t.shards(), strict=True))
        return [*made, back]

    for axis in (0, 1):
        for dims in EVERY if SHAPE[axis] > 1 else []:
            both(functools.partial(exchange, axis=axis, dims=dims, dtype=ttnn.float32))
    both(functools.partial(exchange, axis=1, dims=(0, 1), dtype=ttnn.int32))

    def shifted(mesh, dims, axis):
        """Two sockets at once, of all ranks and of those of a row, received the other way round."""
        n, made = mesh.shape[axis], []
        rows = [ring(sub, 1, 1) for sub in mesh.create_submeshes(ttnn.MeshShape(1, mesh.shape[1]))]
        for step in (1, -1):
            pair = ring(mesh, axis, step)
            t, inner = put(mesh, [8, 16], dims, 3), put(rows[0][0], [8, 16], dims, 4)
            ttnn.experimental.send_async(t, pair[1])
            ttnn.experimental.send_async(inner, rows[0][1])
            for like, (_, _, receiver) in ((inner, rows[0]), (t, pair)):
                into = ttnn.zeros_like(like)
                made.append(ttnn.experimental.recv_async(into, receiver)[0])
            plan = ttkit.last_plan()
            assert (plan.collective, plan.axis) == ("shift", 1) and n > 1
        return made

    for axis in (1, 0):  # along rows first: both sockets are then the first one of their ranks
        for dims in EVERY if SHAPE[axis] > 1 else []:
            both(functools.partial(shifted, dims=dims, axis=axis))

    def line(mesh):  # blocks that are no rectangles, and nothing named
        mesh.reshape(ttnn.MeshShape(1, mesh.get_num_devices()))
        t = put(mesh, [1, 1, 3, 16], (0, 3), 6)
        swap = ttnn.experimental.all_to_all_async_generic
        return [swap(t, 2, 3, cluster_axis=1), swap(t, 2, 3)]

    if SHAPE == (2, 4):
        both(line)


def no_axis():
    """Collectives over the whole mesh."""
    count = SHAPE[0] * SHAPE[1]

    def program(mesh):
        t = put(mesh, [count, 2 * count], (0, 1), 5)
        return [
            ttnn.all_reduce(t),
            ttnn.reduce_scatter(t, 1),
            ttnn.reduce_scatter(t, 0),
            ttnn.mesh_partition(t, 1),
            ttnn.all_reduce(put(mesh, [4, 4], (None, 0))),
        ]

    both(program, 1e-6)


def large():
    """Sums beyond the size where the order is kept: equal within rounding, and whole numbers
    exactly.
    """
    size = mpi.EXACT_UP_TO // 64

    def program(mesh, dtype=ttnn.float32):
        made = []
        for axis, along in enumerate(SHAPE):
            if along > 1:
                t = put(mesh, [64, size], (0, 1), 1, dtype, ttnn.TILE_LAYOUT)
                made += [ttnn.reduce_scatter(t, dim, cluster_axis=axis) for dim in (1, 0)]
                made += [ttnn.all_reduce(t, cluster_axis=axis), ttnn.all_reduce(t)]
                made += [ttnn.all_gather(t, 1, cluster_axis=axis), ttnn.reduce_scatter(t, 1)]
                made.append(ttnn.broadcast(t, ttnn.MeshCoordinate(1, 1), cluster_axis=axis))
        return made

    both(program, 1e-5)
    both(lambda mesh: program(mesh, ttnn.int32))


def without_shared_memory():
    """Where the system gives none, MPI adds up; asked for by name, before other sums."""
    del os.memfd_create
    share, found = blocks.shared_sum, []
    blocks.shared_sum = lambda comm: found.append(share(comm))
    large()
    assert found and not any(found)


def mapping():
    """Mappers, composers and shards: fewer pieces than chips, overrides, offsets, lines,
    replicas.
    """
    rows, columns = SHAPE

    def program(mesh):
        made = []
        line, corner = (
            ttnn.ShardTensorToMesh(mesh, 0),
            (ttnn.MeshShape(1, 2), ttnn.MeshCoordinate(1, 1)),
        )
        to_rows = ttnn.ConcatMeshToTensor(mesh, 0)
        for seed, (size, mapper) in enumerate([
            ([2 * (rows * columns - 1), 4], line), ([8 * rows * columns, 4], line),
            ([4, 6], ttnn.ReplicateTensorToMesh(mesh)),
            ([8 * rows, 4 * columns], ttnn.ShardTensor2dMesh(mesh, SHAPE, (0, 1))),
            ([8 * rows, 4 * columns], ttnn.ShardTensor2dMesh(mesh, SHAPE, (None, 1))),
            ([4, 4], mapper_over(mesh, (0, 1), *corner)),
        ]):  # fmt: skip
            array = values(size, seed)
            host = ttkit.from_numpy(array, mesh_mapper=mapper)
            there = ttnn.to_device(host, mesh)
            made += [there, ttkit.from_numpy(array, device=mesh, mesh_mapper=mapper)]
            made += [ttnn.add(there, there), ttnn.exp(there)]
            made += [ttkit.to_numpy(t, mesh_composer=to_rows) for t in (there, host)]
        blocks = ttnn.create_mesh_composer(mesh, ttnn.MeshComposerConfig([0, 1]))
        made.append(ttkit.to_numpy(made[-6 * 3], mesh_composer=blocks))
        made.append(ttkit.to_numpy(made[0], mesh_composer=ttnn.ConcatMeshToTensor(mesh, 1)))
        without_mesh = mapper_over(ttnn.MeshShape(SHAPE), (0, 1))
        made.append(
            ttnn.to_device(ttkit.from_numpy(values([8, 8], 7), mesh_mapper=without_mesh), mesh)
        )
        hosts = [ttkit.from_numpy(values([4, 4], i)) for i in range(rows * columns)]
        made.append(ttnn.to_device(ttnn.from_host_shards(hosts, mesh.shape), mesh))
        made.append(ttnn.combine_device_tensors(tensors=ttnn.get_device_tensors(made[-1])))
        ones = ttnn.ones([32, 32], device=mesh, layout=ttnn.TILE_LAYOUT)
        how = {"probability": 0.5, "scale": 2.0, "seed": 3, "use_per_device_seed": True}
        made.append(ttnn.experimental.dropout(ones, **how))
        return made

    both(program)


def meshes_within():
    """Submeshes of some ranks or of one, and the mesh as a line, where blocks are no rectangles."""
    rows, columns = SHAPE

    def program(mesh):
        made = []
        halves = mesh.create_submeshes(ttnn.MeshShape(rows, columns // 2))
        for sub in halves + mesh.create_submeshes(ttnn.MeshShape(1, columns)):
            t = put(sub, [8, 8], (0, 1), 4)
            made += [ttnn.all_gather(t, 1, cluster_axis=1), ttnn.all_reduce(t, cluster_axis=1)]
            made += [ttnn.exp(t), ttkit.to_numpy(t, mesh_composer=ttnn.ConcatMeshToTensor(sub, 0))]
        # blocks of unequal size
        corner = mesh.create_submesh(ttnn.MeshShape(2, columns - 1), ttnn.MeshCoordinate(0, 1))
        made += each_collective(corner, put(corner, [6, 6], (0, 1), 8), 0, 2)
        made += each_collective(corner, put(corner, [6, 6], (0, 1), 8), 1, columns - 1)
        mesh.reshape(ttnn.MeshShape(1, rows * columns))
        t = put(mesh, [8, 8], (None, 1), 9)
        made += each_collective(mesh, t, 1, rows * columns)
        return made + [ttnn.all_gather(t, 0)]

    both(program)


def seen():
    """Which chips are whose, in views, tables and pictures."""
    from ttkit.visualize.tables import as_text, mesh_table, system_table, tensor_table

    shared, whole = meshes()
    local, away = shared.grid.size, SHAPE[0] * SHAPE[1] - shared.grid.size
    assert shared.get_num_devices() == local + away
    assert sorted(shared.get_device_ids()) == ttnn.get_device_ids() == list(range(local))
    view, places = shared.get_view(), list(ttnn.MeshCoordinateRange(shared.shape))
    assert [tuple(c) for c in places if view.is_local(c)] == list(shared.grid.coords)
    for c in places:
        try:
            assert shared.get_device_id(c) in shared.get_device_ids() and view.is_local(c)
        except ttkit.TTKitError as error:
            assert "Cannot get device for remote device at coordinate" in str(error)
            assert not view.is_local(c)
    t = put(shared, [4, 4], (0, 1))
    host = t.cpu()
    tables = mesh_table(shared), tensor_table(t), system_table()
    for table, unknown in zip(tables, ("Unknown ID", "Unknown ID", "Unknown")):
        text = as_text(table)
        assert text.count("Local\u0020") == local + text.count("Local Shape"), text
        assert text.count("Remote") == text.count(unknown) == away, text
    text = as_text(tensor_table(host))
    counts = [text.count(word) for word in ("Local", "Remote", "Dtype")]
    assert counts == [local, away, local + away]
    assert "Dashed chips" in shared._repr_html_()
    assert "other rank" in t._repr_html_()
    assert host._repr_html_()
    shards = ttnn.get_device_tensors(t)
    assert len(shards) == local + away
    assert all(tuple(s.shape) == (4, 4) and s.is_allocated() for s in shards)
    assert ttnn.gelu(shards[0]).shape == shards[0].shape and repr(t).count("device_id") == local
    assert set(ttkit.memory(shared).used) == set(shared.get_device_ids())
    ttnn.all_gather(t, 0, cluster_axis=int(SHAPE[1] > 1))
    assert ttkit.last_plan().total_bytes > 0
    path = f"{os.environ['TT_MESH_GRAPH_DESC_PATH']}.tensorbin"  # one for all ranks
    ttnn.dump_tensor(path, t)
    with alone():
        kept = put(whole, [4, 4], (0, 1))
    same(ttnn.load_tensor(path, device=shared), kept)
    whole.close()
    shared.close()


CHECKS = [seen, collectives, exchanges, no_axis, large, mapping, meshes_within]

if __name__ == "__main__":
    ttkit.strict()
    ttkit.use_system("galaxy" if SHAPE not in ((2, 4), (1, 8)) else None)
    for check in [*CHECKS, without_shared_memory]:
        if check.__name__ in sys.argv[2:] or (len(sys.argv) == 2 and check in CHECKS):
            check()
            print(f"passed {check.__name__}", flush=True)

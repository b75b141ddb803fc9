"""Whatever ttnn's collective gives on the simulator, its plan gives too, chunk by chunk; and NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError
from ttkit.hardware import SYSTEMS
from ttkit.plans import RING, recorded, topology

SEVERAL = sorted(name for name, system in SYSTEMS.items() if system.num_devices > 1)
DTYPES = {"float32": np.float32, "bfloat16": np.float32, "int32": np.int32, "uint32": np.uint32}


@pytest.fixture(autouse=True)
def fabric():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    yield
    ttkit.use_system(None)


def shards_of(tensor):
    return [ttkit.to_numpy(shard) for shard in ttnn.get_device_tensors(tensor)]


def placed(mesh, whole, dtype, layout):
    config = ttnn.MeshMapperConfig([ttnn.PlacementShard(0), ttnn.PlacementShard(1)])
    return ttkit.from_numpy(whole, dtype=getattr(ttnn, dtype), layout=layout, device=mesh, mesh_mapper=ttnn.create_mesh_mapper(mesh, config))


@st.composite
def collectives(draw):
    system = draw(st.sampled_from(SEVERAL))
    rows, columns = SYSTEMS[system].shape
    axis = draw(st.sampled_from([a for a in (0, 1) if (rows, columns)[a] > 1]))
    return (
        system,
        axis,
        draw(st.sampled_from(["all_gather", "reduce_scatter", "all_reduce", "broadcast", "point_to_point", "all_broadcast"])),
        draw(st.sampled_from(sorted(DTYPES))),
        draw(st.sampled_from([ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT])),
        draw(st.integers(0, 1)),
        draw(st.sampled_from([None, 1])),
        draw(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 7))),
        draw(st.sampled_from(["FABRIC_1D", "FABRIC_1D_RING"])),
    )


@settings(max_examples=120, deadline=None)
@given(collectives())
def test_a_plan_gives_what_ttnn_gives(case):
    system, axis, name, dtype, layout, dim, links, numbers, fabric = case
    ttkit.use_system(system)
    ttnn.set_fabric_config(getattr(ttnn.FabricConfig, fabric))
    with ttnn.open_mesh_device(ttnn.MeshShape(*SYSTEMS[system].shape)) as mesh:
        rows, columns = tuple(mesh.shape)
        n = (rows, columns)[axis]
        whole = np.random.default_rng(n).integers(0, 9, (rows * n * 2, columns * n * 3)).astype(DTYPES[dtype])
        x = placed(mesh, whole, dtype, layout)
        before = shards_of(x)
        here, there = [numbers[0] % rows, numbers[1] % columns], [numbers[0] % rows, numbers[1] % columns]
        there[axis] = numbers[2] % n
        if name == "broadcast":
            after = ttnn.broadcast(x, ttnn.MeshCoordinate(*here), cluster_axis=axis, num_links=links)
        elif name == "point_to_point":
            after = ttnn.point_to_point(x, ttnn.MeshCoordinate(*here), ttnn.MeshCoordinate(*there))
        elif name in ("all_reduce", "all_broadcast"):
            after = getattr(ttnn, name)(x, cluster_axis=axis, num_links=links)
        else:
            after = getattr(ttnn, name)(x, dim, cluster_axis=axis, num_links=links)
        plan = ttkit.last_plan()
        moved = plan.run(before, dim)
        if name == "all_broadcast":
            pieces = [shards_of(piece) for piece in after]
            expected = [np.concatenate([piece[place] for piece in pieces], dim) for place in range(rows * columns)]
        else:
            expected = shards_of(after)
        for one, other in zip(moved, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=2**-7 if dtype == "bfloat16" else 0)
        # the same from NumPy alone
        grid = np.array(before).reshape(rows, columns, *before[0].shape)
        group = lambda r, c: grid[:, c] if axis == 0 else grid[r]  # noqa: E731
        for place, result in enumerate(moved):
            r, c = divmod(place, columns)
            line = group(r, c)
            oracle = {
                "all_gather": lambda line=line: np.concatenate(list(line), dim),
                "all_broadcast": lambda line=line: np.concatenate(list(line), dim),
                "reduce_scatter": lambda line=line, at=(r, c)[axis]: np.split(line.sum(0), n, dim)[at],
                "all_reduce": lambda line=line: line.sum(0),
                "broadcast": lambda line=line: line[here[axis]],
                "point_to_point": lambda place=(r, c): grid[tuple(here)] if list(place) == there else grid[place],
            }[name]()
            np.testing.assert_array_equal(result, oracle)
        if name not in ("broadcast", "point_to_point"):
            ring = fabric == "FABRIC_1D_RING" and topology(system).kind(axis) == RING and name != "all_broadcast"  # whose default topology is Linear
            assert plan.algorithm == ("ring" if ring else "line")


def test_bytes_are_those_of_whole_tiles():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        x = ttnn.ones([5, 40], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        ttnn.all_gather(x, 1, cluster_axis=1)
        assert ttkit.last_plan().shard_bytes == 32 * 64 * 2
        ttnn.all_reduce(ttnn.ones([5, 40], dtype=ttnn.float32, device=mesh), cluster_axis=0)
        assert ttkit.last_plan().shard_bytes == 5 * 40 * 4


@pytest.mark.parametrize(("fabric", "shape", "asked", "usable", "steps"), [
    ("FABRIC_1D", (2, 4), "Ring", "Linear", 3), ("FABRIC_1D_RING", (2, 4), None, "Linear", 3), ("FABRIC_1D", (1, 8), None, "Linear", 7),
    ("FABRIC_1D", (1, 8), "Ring", "Ring", 4), ("FABRIC_1D_RING", (1, 8), None, "Ring", 4), ("FABRIC_1D_RING", (1, 8), "Linear", "Linear", 7),
])  # fmt: skip
def test_a_ring_is_one_where_it_is_asked_for_and_cables_close_it(fabric, shape, asked, usable, steps):
    """As ttnn's get_usable_topology says on its mock cluster."""
    ttnn.set_fabric_config(getattr(ttnn.FabricConfig, fabric))
    topology = asked and getattr(ttnn.Topology, asked)
    with ttnn.open_mesh_device(ttnn.MeshShape(*shape)) as mesh:
        x = ttnn.ones([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        assert ttnn.get_usable_topology(x, topology, 1) == getattr(ttnn.Topology, usable)
        ttnn.all_gather(x, 1, cluster_axis=1, topology=topology)
        plan = ttkit.last_plan()
        assert (plan.algorithm, len(plan.steps)) == ({"Linear": "line", "Ring": "ring"}[usable], steps)


def test_a_usable_topology_needs_a_fabric_or_a_wish():
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        x = ttnn.ones([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        assert ttnn.get_usable_topology(x, ttnn.Topology.Torus) == ttnn.Topology.Torus
        ttkit.strict()
        try:
            with pytest.raises(TTKitError, match="un-initialized fabric context"):
                ttnn.get_usable_topology(x)
        finally:
            ttkit.strict(False)


def test_a_refused_collective_leaves_the_last_plan():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        x = ttnn.ones([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        ttnn.all_gather(x, 1, cluster_axis=1)
        with pytest.raises(RuntimeError):
            ttnn.reduce_scatter(x, 7, cluster_axis=1)
        assert ttkit.last_plan().collective == "all_gather"


def test_without_a_collective_there_is_no_plan(monkeypatch):
    monkeypatch.setattr(recorded, "latest", [])
    with pytest.raises(TTKitError, match="no collective has run yet"):
        ttkit.last_plan()

"""Whatever ttnn's collective gives on the simulator, its plan gives too, chunk by chunk."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import mapper_over

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError
from ttkit.hardware import SYSTEMS
from ttkit.plans import RING, topology

SEVERAL = sorted(name for name, system in SYSTEMS.items() if system.num_devices > 1)
NAMES = "all_gather reduce_scatter all_reduce broadcast point_to_point all_broadcast".split()
DTYPES = {"float32": np.float32, "bfloat16": np.float32, "int32": np.int32, "uint32": np.uint32}


@pytest.fixture(autouse=True)
def fabric():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    yield
    ttkit.use_system(None)


def shards_of(tensor):
    return [ttkit.to_numpy(shard) for shard in ttnn.get_device_tensors(tensor)]


def placed(mesh, whole, dtype, layout):
    how = {"device": mesh, "mesh_mapper": mapper_over(mesh, (0, 1))}
    return ttkit.from_numpy(whole, dtype=getattr(ttnn, dtype), layout=layout, **how)


@st.composite
def collectives(draw):
    """A collective that ttnn takes: on a whole system, on it turned, or on all its chips as a
    line; along an axis, or over all chips.
    """
    system = draw(st.sampled_from(SEVERAL))
    rows, columns = SYSTEMS[system].shape
    shape = draw(st.sampled_from([(rows, columns), (columns, rows), (1, rows * columns)]))
    name = draw(st.sampled_from(NAMES))
    axes = [a for a in (0, 1) if shape[a] > 1]
    if name != "point_to_point" and (min(shape) == 1 or name == "all_reduce"):
        axes.append(None)
    axis, dtype = draw(st.sampled_from(axes)), draw(st.sampled_from(sorted(DTYPES)))
    layout = draw(st.sampled_from([ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT]))
    dim, links = draw(st.integers(0, 1)), draw(st.sampled_from([None, 1]))
    places = [draw(st.integers(0, last)) for last in (shape[0] - 1, shape[1] - 1, 31)]
    fabric = draw(st.sampled_from(["FABRIC_1D", "FABRIC_1D_RING"]))
    return system, shape, axis, name, dtype, layout, dim, links, places, fabric


def collective(name, x, dim, axis, links, here, there):
    """The call, and its result as one array a chip."""
    here, there = ttnn.MeshCoordinate(*here), ttnn.MeshCoordinate(*there)
    if name == "point_to_point":
        return shards_of(ttnn.point_to_point(x, here, there))
    how = {"cluster_axis": axis, "num_links": links}
    if name == "all_broadcast":
        pieces = map(shards_of, ttnn.all_broadcast(x, **how))
        return [np.concatenate(of_chip, dim) for of_chip in zip(*pieces, strict=True)]
    where = {"all_reduce": [], "broadcast": [here]}.get(name, [dim])
    return shards_of(getattr(ttnn, name)(x, *where, **how))


@settings(max_examples=30, deadline=None)
@given(collectives())
def test_a_plan_gives_what_ttnn_gives(case):
    system, shape, axis, name, dtype, layout, dim, links, places, fabric = case
    ttkit.use_system(system)
    ttnn.set_fabric_config(getattr(ttnn.FabricConfig, fabric))
    with ttnn.open_mesh_device(ttnn.MeshShape(*shape)) as mesh:
        rows, columns = shape
        n = rows * columns if axis is None else shape[axis]
        whole = np.random.default_rng(n).integers(0, 9, (rows * n * 2, columns * n))
        x = placed(mesh, whole.astype(DTYPES[dtype]), dtype, layout)
        before = shards_of(x)
        here, there = list(places[:2]), list(places[:2])
        if axis is not None:
            there[axis] = places[2] % n
        after = collective(name, x, dim, axis, links, here, there)
        plan = ttkit.last_plan()
        moved = plan.run(before, dim)
        for one, other in zip(moved, after, strict=True):
            np.testing.assert_allclose(one, other, rtol=2**-7 if dtype == "bfloat16" else 0)
        if axis is not None and name not in ("broadcast", "point_to_point"):
            asked = (
                fabric == "FABRIC_1D_RING" and name != "all_broadcast"
            )  # whose default is Linear
            ring = asked and topology(mesh).kind(axis) == RING
            assert plan.algorithm == ("ring" if ring else "line")


@pytest.mark.parametrize(("fabric", "shape", "asked", "usable", "steps"), [
    ("FABRIC_1D", (2, 4), "Ring", "Linear", 3), ("FABRIC_1D_RING", (2, 4), None, "Linear", 3), ("FABRIC_1D", (1, 8), None, "Linear", 7),
    ("FABRIC_1D", (1, 8), "Ring", "Ring", 4), ("FABRIC_1D_RING", (1, 8), None, "Ring", 4), ("FABRIC_1D_RING", (1, 8), "Linear", "Linear", 7),
])  # fmt: skip
def test_a_ring_is_one_where_it_is_asked_for_and_cables_close_it(
    fabric, shape, asked, usable, steps
):
    """`usable` is what ttnn's get_usable_topology says on its mock cluster."""
    ttnn.set_fabric_config(getattr(ttnn.FabricConfig, fabric))
    topology = asked and getattr(ttnn.Topology, asked)
    with ttnn.open_mesh_device(ttnn.MeshShape(*shape)) as mesh:
        x = ttnn.ones([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        ttnn.all_gather(x, 1, cluster_axis=1, topology=topology)
        plan = ttkit.last_plan()
        algorithm = {"Linear": "line", "Ring": "ring"}[usable]
        assert (plan.algorithm, len(plan.steps)) == (algorithm, steps)


def test_a_refused_collective_leaves_the_last_plan():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        x = ttnn.ones([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        ttnn.all_gather(x, 1, cluster_axis=1)
        with pytest.raises(RuntimeError):
            ttnn.reduce_scatter(x, 7, cluster_axis=1)
        assert ttkit.last_plan().collective == "all_gather"


def test_without_a_collective_there_is_no_plan(monkeypatch):
    monkeypatch.setattr("ttkit.sim.collectives.ccl._last", [])
    with pytest.raises(TTKitError, match="no collective has run yet"):
        ttkit.last_plan()

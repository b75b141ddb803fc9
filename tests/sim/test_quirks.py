"""What ttnn 0.81.1 does oddly, as it was seen on the real library."""

import json
import pathlib
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from machine import mapper_over
from places import ROWS, WORLDS, many, numbers, opened, parts

import ttkit
from ttkit import ttnn
from ttkit.sim.tensor import grid

RECORDED = pathlib.Path(__file__).resolve().parent.parent / "conformance"


def test_the_cases_that_are_named_are_there():
    known = "".join(path.read_text() for path in RECORDED.glob("*.json"))
    named = re.findall(r"#[0-9a-f]{5}\b", pathlib.Path(grid.__file__).read_text())
    assert len(named) >= 2 and all(f'{name}"' in known for name in named)
    assert json.loads((RECORDED / "op.json").read_text())["meta"]["source"].startswith(
        "ttnn 0.81.1"
    )


@pytest.mark.parametrize(
    ("values", "dtype", "wanted"),
    [
        ([300.0] * 9, ttnn.uint8, [255] * 9),
        ([70000.0] * 5, ttnn.uint16, [65535] * 5),
        ([3e9, -1.0], ttnn.int32, [2**31 - 1, -1]),
    ],
)
def test_numbers_out_of_range(values, dtype, wanted):
    assert ttkit.to_numpy(ttkit.from_numpy(np.float32(values), dtype=dtype)).tolist() == wanted


# ---------------------------------------------------------------- topologies after collectives
# Read as a description of one array, a topology describes the right one.
dims = st.one_of(st.none(), st.integers(0, 2))


def described(tensor):
    """The array that the placements describe: pieces joined along sharded axes, copies (which
    must be equal) counted once.
    """
    topology, shards = tensor.tensor_topology(), list(parts(tensor).values())
    values = np.reshape(shards, [*topology.distribution_shape(), *tensor.shape])
    for axis, placement in reversed(list(enumerate(topology.placements()))):
        pieces = list(np.moveaxis(values, axis, 0))
        if isinstance(placement, ttnn.PlacementShard):
            values = np.concatenate(pieces, axis + placement.dim)
        else:
            values = pieces[0]
            assert all(np.array_equal(values, piece) for piece in pieces)
    return values


@many(150)
@given(
    st.sampled_from(WORLDS),
    dims,
    dims,
    st.sampled_from(["gather", "partition", "reduce", "scatter", "broadcast", "all_broadcast"]),
    st.integers(0, 1),
    st.integers(0, 2),
)
def test_topologies_after_collectives(world, first, second, name, axis, dim):
    assume(first is None or first != second)
    with opened(world) as mesh:
        along, here = mesh.shape[axis], (first, second)[axis]
        assume(along > 1)
        values = numbers((8, 8, 8), seed=3)
        mapper = mapper_over(mesh, (first, second))
        t = ttkit.from_numpy(values, device=mesh, layout=ROWS, mesh_mapper=mapper)
        np.testing.assert_array_equal(described(t), values)
        if name == "gather":
            assume(here is not None)
            made, wanted = ttnn.all_gather(t, here, cluster_axis=axis), values
        else:  # the others start from copies along the axis
            assume(here is None)
            if name in ("partition", "scatter"):
                assume(dim not in (first, second))
            corner = ttnn.MeshCoordinate(0, 0)
            made, wanted = {
                "partition": lambda: (ttnn.mesh_partition(t, dim, axis), values),
                "scatter": lambda: (ttnn.reduce_scatter(t, dim, cluster_axis=axis), values * along),
                "reduce": lambda: (ttnn.all_reduce(t, cluster_axis=axis), values * along),
                "broadcast": lambda: (ttnn.broadcast(t, corner, cluster_axis=axis), values),
                "all_broadcast": lambda: (ttnn.all_broadcast(t, cluster_axis=axis)[-1], values),
            }[name]()
        np.testing.assert_array_equal(described(made), wanted)
        if name == "partition":
            whole = ttnn.all_gather(made, dim, cluster_axis=axis)
            np.testing.assert_array_equal(described(whole), values)

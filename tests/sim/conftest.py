"""Tests of the simulator run strict, with a fabric, and leave no mesh open.

Here are meshes to compute on, and the comparison of each chip with a formula in float64.
"""

import functools

import numpy as np
import pytest
from formulas import tolerance
from machine import mapper_over, strict_with_fabric
from started import start

import ttkit
from ttkit import ttnn

MAPPINGS = {"RR": (None, None), "S0R": (0, None), "RS0": (None, 0), "S0S1": (0, 1)}


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


@pytest.fixture(params=[("t3000", (2, 4)), ("t3000", (1, 8)), ("galaxy", (8, 4))], ids=str)
def chips(request):
    """Meshes of two rows, of one row, and of a Galaxy."""
    system, shape = request.param
    ttkit.use_system(system)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(shape)) as mesh:
        yield mesh


@pytest.fixture
def put():
    """put(mesh, shape, "S0R", ...) gives a tensor of random values, every shard of which has
    `shape`.
    """
    random = np.random.default_rng(7)

    def make(mesh, shape, kind="RR", dtype=ttnn.float32, low=None, layout=ttnn.TILE_LAYOUT):
        dims = MAPPINGS[kind]
        whole = list(shape)
        for length, dim in zip(mesh.shape, dims):
            if dim is not None:
                whole[dim] *= length
        if dtype is ttnn.uint32:
            values = random.integers(0, low, whole)
        else:
            values = random.standard_normal(whole, np.float32)
            values = values if low is None else np.abs(values) + np.float32(low)
        how = {"device": mesh, "mesh_mapper": mapper_over(mesh, dims)}
        return ttkit.from_numpy(values, dtype=dtype, layout=layout, **how)

    return make


@pytest.fixture
def parts():
    """parts(tensor): the array of each chip, in mesh order."""
    return lambda tensor: [ttkit.to_numpy(t) for t in ttnn.get_device_tensors(tensor)]


@pytest.fixture
def check(parts):
    """check(result, reference, *inputs) compares each chip with `reference` of its inputs in
    float64.

    Lists of results are compared element by element; other options are `formulas.tolerance`'s.
    """

    def compare(result, reference, *inputs, **limits):
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        have, given = (
            [None if t is None else parts(t) for t in tensors] for tensors in (results, inputs)
        )
        count = max(len(shards) for shards in (*have, *given) if shards is not None)
        for chip in range(count):
            wanted = reference(*(g if g is None else exact(g[chip]) for g in given))
            wanted = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
            for tensor, got, want in zip(results, have, wanted, strict=True):
                assert (got is None) == (want is None)
                if got is None:
                    continue
                assert got[chip].shape == want.shape
                np.testing.assert_allclose(
                    got[chip], want, **tolerance(tensor.dtype, **limits), err_msg=f"chip {chip}"
                )

    def exact(values):
        return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)

    return compare


@pytest.fixture
def distinct(parts):
    """distinct(tensor): the number of different shards, to show that a test is about chips that
    differ.
    """
    return lambda tensor: len({values.tobytes() for values in parts(tensor)})


@pytest.fixture(params=[(2, 4), (8, 4)], ids=["2x4", "8x4"])
def box(request):
    """A T3000's mesh, and a Galaxy's."""
    if request.param == (8, 4):
        ttkit.use_system("galaxy")
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*request.param))
    yield mesh
    ttnn.close_mesh_device(mesh)


@pytest.fixture
def cut():
    """cut(mesh, array, dims): the array on the mesh, these dims sharded over its two axes.

    Floats are bfloat16 in tiles, whole numbers row-major.
    """

    def make(mesh, array, dims=(None, None), dtype=ttnn.bfloat16, layout=None):
        if array.dtype.kind in "iu":
            dtype = getattr(ttnn, array.dtype.name)
            layout = layout or ttnn.ROW_MAJOR_LAYOUT
        how = {"device": mesh, "mesh_mapper": mapper_over(mesh, dims)}
        return ttkit.from_numpy(array, dtype=dtype, layout=layout or ttnn.TILE_LAYOUT, **how)

    return make


@pytest.fixture
def on_cores():
    """on_cores(tensor): one user on a core, as decode operations want their inputs."""
    config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1)

    def place(tensor):
        tensor.plain_memory_config = config
        return tensor

    return place

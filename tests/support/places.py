"""Tensors laid over chips in every way, for hypothesis, and the comparison of each chip with
NumPy on its own shard.

Meshes of both orders, submeshes that start inside, distributions that cover all chips or some;
values that differ between chips."""

import itertools
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest
from formulas import tolerance
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from machine import mapper_over

import ttkit
from ttkit import TTKitError, ttnn

T3000 = ("t3000", (2, 4), None)  # system, the mesh opened, and the shape and corner of a submesh
WORLDS = [T3000, *(("t3000", shape, None) for shape in [(1, 1), (1, 8), (4, 2)])]
WORLDS += [
    ("galaxy", (8, 4), None),
    ("t3000", (2, 4), ((2, 2), (0, 1))),
    ("galaxy", (8, 4), ((4, 2), (2, 1))),
]
KINDS = ["same", "each", "rows", "columns", "both", "some", "corner"]
FLOATS = [ttnn.float32, ttnn.bfloat16, ttnn.bfloat8_b]
INTEGERS = [ttnn.int32, ttnn.uint32, ttnn.uint16, ttnn.uint8, ttnn.int8]
TILE, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT


class Place(NamedTuple):
    """One tensor: where, how it is distributed, and the shape of a shard."""

    world: tuple
    kind: str
    shape: list
    dtype: object
    layout: object
    seed: int


def places(least=0, most=8, dtypes=None, layouts=(TILE, ROWS), kinds=KINDS, sizes=(1, 1, 2, 3)):
    """Places with shards of `least` to `most` dimensions."""
    shapes = st.lists(st.sampled_from(sizes), min_size=least, max_size=most)
    worlds, kinds = st.sampled_from(WORLDS), st.sampled_from(kinds)
    dtypes, layouts = st.sampled_from(dtypes or FLOATS + INTEGERS), st.sampled_from(layouts)
    return st.builds(Place, worlds, kinds, shapes, dtypes, layouts, st.integers(0, 99))


def many(examples):
    """Settings of hypothesis: so many examples in the long profile and a third of them otherwise,
    the machine cleaned once a test.
    """
    if settings.get_current_profile_name() != "long":
        examples //= 3
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


def numbers(shape, dtype=ttnn.float32, seed=0):
    """Values that bfloat16 and bfloat8_b hold exactly; whole and small ones for integer types."""
    drawn = np.random.default_rng(seed).integers(-32, 32, shape)
    if dtype in FLOATS:
        return np.asarray(drawn / 8, np.float32)
    return np.asarray(drawn if dtype in (ttnn.int32, ttnn.int8) else drawn + 32, np.int32)


@contextmanager
def opened(world):
    """The mesh of a world, with a fabric; closed after."""
    system, shape, part = world
    ttkit.use_system(system)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(shape)) as mesh:
        if part is not None:
            mesh = mesh.create_submesh(ttnn.MeshShape(part[0]), ttnn.MeshCoordinate(part[1]))
        yield mesh


def mapper(mesh, kind, rank):
    """A mapper and how many pieces it makes of each dimension."""
    rows, columns = mesh.shape
    if kind == "some" and rank:  # fewer pieces than chips: the last chips hold nothing
        pieces = max(1, rows * columns - 1)
        return mapper_over(mesh, [0], ttnn.MeshShape([pieces])), {0: pieces}
    over, corner = (rows, columns), (0, 0)
    if kind == "corner":
        over = (max(1, rows - 1), max(1, columns - 1))
        corner = (rows - over[0], columns - over[1])
    cuts = {"rows": (0, None), "columns": (None, rank - 1), "both": (rank - 1, 0)}
    dims = (cuts | {"corner": (0, None)}).get(kind, (None, None))
    dims = [None if d is None or not 0 <= d < rank else d for d in dims]
    dims[1] = None if dims[0] == dims[1] else dims[1]
    where = ttnn.MeshShape(over), ttnn.MeshCoordinate(corner)
    pieces = {d: n for d, n in zip(dims, over) if d is not None}
    return mapper_over(mesh, dims, *where), pieces


def put(mesh, place, **changes):
    """The tensor of a place on a mesh; `changes` for another one beside it."""
    _, kind, shape, dtype, layout, seed = place._replace(**changes)
    layout = TILE if dtype in (ttnn.bfloat8_b, ttnn.bfloat4_b) else layout
    if kind == "each":
        hosts = [
            ttkit.from_numpy(numbers(shape, dtype, seed + i), dtype=dtype, layout=layout)
            for i in range(mesh.get_num_devices())
        ]
        return ttnn.to_device(ttnn.from_host_shards(hosts, mesh.shape), mesh)
    cut, pieces = mapper(mesh, kind, len(shape))
    values = numbers([n * pieces.get(dim, 1) for dim, n in enumerate(shape)], dtype, seed)
    return ttkit.from_numpy(values, dtype=dtype, layout=layout, device=mesh, mesh_mapper=cut)


@contextmanager
def laid(place):
    """The mesh of a place and its tensor."""
    with opened(place.world) as mesh:
        yield mesh, put(mesh, place)


def parts(tensor):
    """{coordinate: values} of a tensor."""
    return dict(zip(tensor.grid.coords, map(ttkit.to_numpy, ttnn.get_device_tensors(tensor))))


def compare(result, reference, *inputs, additions=None):
    """Each chip's result is the reference of its inputs: exactly, or within `tolerance`."""
    near = {"rtol": 0, "atol": 0} if additions is None else tolerance(result.dtype, additions)
    have, given = parts(result), [parts(t) for t in inputs]
    assert list(have) == sorted(set.intersection(*map(set, given)))
    for at, values in have.items():
        wanted = np.asarray(reference(*(g[at] for g in given)))
        assert values.shape == tuple(result.shape) == wanted.shape
        np.testing.assert_allclose(values, wanted.astype(values.dtype), **near, err_msg=f"at {at}")


def refused(call, phrase, kind=TTKitError):
    """The call fails with an error of the kit's form that has the phrase."""
    with pytest.raises(kind) as error:
        call()
    assert (
        hasattr(error.value, "asked") and ": " in str(error.value) and phrase in str(error.value)
    ), str(error.value)


def coordinates(shape):
    return list(itertools.product(*map(range, shape)))

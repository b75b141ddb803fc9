"""How tensors print: every chip under its own heading, the two first and last of each dimension."""

import re

import numpy as np
import pytest
from hypothesis import given
from places import ROWS, laid, many, parts, places, refused

import ttkit
from ttkit import ttnn


@pytest.fixture(autouse=True)
def plain():
    yield
    ttnn.set_printoptions()


def shown(text):
    """The numbers between the outer brackets."""
    return [
        float(n)
        for n in re.findall(
            r"-?\d+\.?\d*(?:e[-+]\d+)?", text[text.index("(") : text.rindex(", shape=")]
        )
    ]


@many(60)
@given(places(most=4, sizes=(1, 2, 5)))
def test_every_chip_shows_its_own_shard(place):
    with laid(place) as (mesh, t):
        for profile in ("full", "short"):
            ttnn.set_printoptions(profile=profile)
            texts = re.split(r"\n(?=device_id)", str(t))
            for text, (at, values) in zip(texts, parts(t).items(), strict=True):
                heading, _, rest = text.partition("\n")
                assert (
                    heading == f"device_id: {mesh.get_device_id(ttnn.MeshCoordinate(at))}, "
                    f"MeshCoordinate({list(at)})"
                )
                assert (
                    f"shape=Shape({place.shape}), dtype=DataType::{place.dtype.name}, "
                    f"layout=Layout::{t.layout.name})" in rest
                )
                edges = (
                    values
                    if profile == "full"
                    else values[
                        np.ix_(*([0, 1, n - 2, n - 1] if n > 4 else range(n) for n in values.shape))
                    ]
                )
                np.testing.assert_allclose(shown(rest), edges.ravel(), atol=6e-5, rtol=6e-5)


ROW = [
    ([1.0, 2e9], {}, "[ 1.0000e+00,  2.0000e+09]"),
    ([1.0, 2.0], {"sci_mode": True, "precision": 1}, "[ 1.0e+00,  2.0e+00]"),
    ([0.0, np.inf, np.nan], {}, "[ 0.0000,     inf,     nan]"),
    ([1, -2], {}, "[    1,    -2]"),
    ([], {}, "([], shape"),
]


@pytest.mark.parametrize(("values", "options", "text"), ROW)
def test_forms(values, options, text):
    ttnn.set_printoptions(**options)
    array = np.array(values)
    assert text in str(
        ttkit.from_numpy(array.astype(np.int32 if array.dtype.kind == "i" else np.float32))
    )


def test_freed_and_refused():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        t = ttnn.ones([2], ttnn.float32, ROWS, mesh)
        ttnn.deallocate(t)
        assert (
            str(t) == "ttnn.Tensor(<buffer is not allocated>, shape=Shape([2]), "
            "dtype=DataType::FLOAT32, layout=Layout::ROW_MAJOR)"
        )
    refused(lambda: ttnn.set_printoptions(profile="long"), "there is no such profile", RuntimeError)
    refused(
        lambda: ttnn.set_printoptions(precision=-1), "incompatible function arguments", TypeError
    )

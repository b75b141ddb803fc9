"""Whatever is given to whatever operation, it works or says what is wrong in the kit's form."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import many

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError
from ttkit.sim.ops import OPERATIONS, checked


@pytest.fixture
def pool():
    """Tensors and other values, useful and useless, for any parameter."""
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        rng = np.random.default_rng(0)
        row, gone = (
            mesh.create_submesh(ttnn.MeshShape(1, 2)),
            mesh.create_submesh(ttnn.MeshShape(2, 2)),
        )

        def put(shape, dtype=ttnn.float32, device=mesh, layout=ttnn.TILE_LAYOUT, mapper=None):
            return ttkit.from_numpy(
                rng.standard_normal(shape).astype(np.float32),
                dtype=dtype,
                device=device,
                layout=layout,
                mesh_mapper=mapper,
            )

        tensors = [
            put(shape)
            for shape in ((32, 32), (2, 3, 32, 64), (1, 1, 64, 32), (5,), (), (3, 7), (0, 4))
        ]
        tensors += [
            put((64, 64), dtype)
            for dtype in (ttnn.bfloat16, ttnn.bfloat8_b, ttnn.uint32, ttnn.int32, ttnn.uint8)
        ]
        tensors += [
            put((32, 32), device=None),
            put((32, 32), layout=ttnn.ROW_MAJOR_LAYOUT),
            put((32, 32), device=row),
            put((32, 32), device=gone),
        ]
        tensors += [put((n, 32), mapper=ttnn.ShardTensorToMesh(mesh, dim=0)) for n in (16, 6)]
        freed = put((32, 32))
        ttnn.deallocate(freed)
        gone.close()
        numbers = [0, 1, -1, 31, 2**40, 10**12, 1.5, -0.5, float("nan"), np.float64(2.0), True]
        lists = [[], [1, 2], [-1], [0, -2, 5, 1], (0, 2, 1, 3), [1.5], {}]
        kinds = [
            None,
            "x",
            object(),
            mesh,
            gone,
            ttnn.bfloat16,
            ttnn.TILE_LAYOUT,
            ttnn.DRAM_MEMORY_CONFIG,
            ttnn.MeshShape(2, 4),
            ttnn.MeshCoordinate(0, 1),
        ]
        yield (
            [*tensors, freed],
            [*numbers, *lists, *kinds, np.zeros((3, 3)), ttnn.ReplicateTensorToMesh(mesh)],
        )


@many(1000)
@given(data=st.data())
def test_no_error_but_ours(pool, data):
    tensors, values = pool
    name = data.draw(st.sampled_from(sorted(set(OPERATIONS) - {"deallocate"})))
    arguments = {}
    for i, (parameter, described) in enumerate(
        inspect.signature(OPERATIONS[name].call).parameters.items()
    ):
        needed = described.default is described.empty
        if (
            described.kind is described.POSITIONAL_OR_KEYWORD
            or described.kind is described.KEYWORD_ONLY
        ):
            if needed or data.draw(st.integers(0, 2)) == 0:
                likely_tensor = needed and i < 2 and data.draw(st.integers(0, 5)) > 0
                arguments[parameter] = data.draw(
                    st.sampled_from(tensors if likely_tensor else values + tensors)
                )
    try:
        OPERATIONS[name].call(**arguments)
    except TTKitError as error:
        assert str(error)
    except (TypeError, IndexError) as error:
        assert hasattr(error, "asked") or "missing" in str(error), repr(error)


@checked("pick")
def pick(where: int, among: list[str], scale: float = 1.0, note: str | None = None) -> str:
    """An operation as the checks see it."""
    return among[where] * int(scale)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: pick("x", ["a"]),
            "pick('x', ['a']): incompatible function arguments: where='x' is a str, not int",
        ),
        (lambda: pick(0, ["a"], scale="2"), "scale='2' is a str, not float"),
        (lambda: pick(0, ["a"], note=3), "note=3 is a int, not str | None"),
        (lambda: pick(0, 5), "incompatible function arguments: 'int' object is not subscriptable"),
        (lambda: pick(7, ["a"]), "list index out of range"),
        (
            lambda: pick(0, ["a"], scale=float("nan")),
            "Invalid arguments to pick: cannot convert float NaN to integer",
        ),
    ],
)
def test_what_is_wrong_is_named(call, says):
    with pytest.raises((TTKitError, TypeError)) as error:
        call()
    assert says in str(error.value)
    assert error.value.__suppress_context__  # no traceback of Python's or NumPy's own error


def test_numpy_numbers_and_none_are_taken():
    assert pick(np.int64(0), ["a"], np.float32(2.0), None) == "aa"
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        pick(0, ["a"], other=1)


def test_a_record_says_what_an_operation_is():
    record = OPERATIONS["add"]
    assert record.kind == "compute"
    kinds = {
        name: OPERATIONS[name].kind
        for name in ("matmul", "all_reduce", "from_torch", "to_numpy", "typecast", "reshape")
    }
    assert list(kinds.values()) == ["product", "collective", "write", "read", "store", "arrange"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.kind = "store"


def test_hints_change_no_value_and_a_memory_config_is_kept():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        x = ttkit.from_numpy(np.eye(32, dtype=np.float32), device=mesh, layout=ttnn.TILE_LAYOUT)
        kernel = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi4)
        made = ttnn.matmul(
            x, x, compute_kernel_config=kernel, queue_id=0, memory_config=ttnn.L1_MEMORY_CONFIG
        )
        np.testing.assert_array_equal(ttkit.to_numpy(ttnn.get_device_tensors(made)[1]), np.eye(32))
        assert made.memory_config() == ttnn.L1_MEMORY_CONFIG
        assert ttnn.matmul(x, x).memory_config() == ttnn.DRAM_MEMORY_CONFIG
        assert inspect.signature(ttnn.matmul).parameters["core_grid"].default is None
        with pytest.raises(TypeError, match="core_grit"):
            ttnn.matmul(x, x, core_grit=(8, 8))

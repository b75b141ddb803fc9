"""Whatever is given to whatever operation, it works or says what is wrong in the kit's form."""

from __future__ import annotations

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
        row, gone = (mesh.create_submesh(ttnn.MeshShape(n, 2)) for n in (1, 2))

        def put(shape, **how):
            values = rng.standard_normal(shape).astype(np.float32)
            usual = {"dtype": ttnn.float32, "device": mesh, "layout": ttnn.TILE_LAYOUT}
            return ttkit.from_numpy(values, **usual | how)

        shapes = [(32, 32), (2, 3, 32, 64), (1, 1, 64, 32), (5,), (), (3, 7), (0, 4)]
        dtypes = [ttnn.bfloat16, ttnn.bfloat8_b, ttnn.uint32, ttnn.int32, ttnn.uint8]
        tensors = [put(shape) for shape in shapes] + [put((64, 64), dtype=each) for each in dtypes]
        tensors += [put((32, 32), device=device) for device in (None, row, gone)]
        tensors.append(put((32, 32), layout=ttnn.ROW_MAJOR_LAYOUT))
        tensors += [put((n, 32), mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0)) for n in (16, 6)]
        freed = put((32, 32))
        ttnn.deallocate(freed)
        gone.close()
        numbers = [0, 1, -1, 31, 2**40, 10**12, 1.5, -0.5, float("nan"), np.float64(2.0), True]
        lists = [[], [1, 2], [-1], [0, -2, 5, 1], (0, 2, 1, 3), [1.5], {}]
        kinds = [None, "x", object(), mesh, gone, ttnn.bfloat16, ttnn.TILE_LAYOUT]
        kinds += [ttnn.DRAM_MEMORY_CONFIG, ttnn.MeshShape(2, 4), ttnn.MeshCoordinate(0, 1)]
        kinds += [np.zeros((3, 3)), ttnn.ReplicateTensorToMesh(mesh)]
        yield [*tensors, freed], [*numbers, *lists, *kinds]


@many(1000)
@given(data=st.data())
def test_no_error_but_ours(pool, data):
    tensors, values = pool
    name = data.draw(st.sampled_from(sorted(set(OPERATIONS) - {"deallocate"})))
    arguments = {}
    takes = inspect.signature(OPERATIONS[name].call).parameters
    for i, (parameter, described) in enumerate(takes.items()):
        needed = described.default is described.empty
        named = described.kind in (described.POSITIONAL_OR_KEYWORD, described.KEYWORD_ONLY)
        if named and (needed or data.draw(st.integers(0, 2)) == 0):
            likely_tensor = needed and i < 2 and data.draw(st.integers(0, 5)) > 0
            drawn = st.sampled_from(tensors if likely_tensor else values + tensors)
            arguments[parameter] = data.draw(drawn)
    try:
        OPERATIONS[name].call(**arguments)
    except TTKitError as error:
        assert str(error)
    except (TypeError, IndexError) as error:
        assert hasattr(error, "asked") or "missing" in str(error), repr(error)


@checked
def pick(where: int, among: list[str], scale: float = 1.0, note: str | None = None) -> str:
    """An operation as the checks see it."""
    return among[where] * int(scale)


NOT_FIT = "incompatible function arguments"


@pytest.mark.parametrize(
    ("given", "named", "says"),
    [
        (("x", ["a"]), {}, f"pick('x', ['a']): {NOT_FIT}: where='x' is a str, not int"),
        ((0, ["a"]), {"scale": "2"}, "scale='2' is a str, not float"),
        ((0, ["a"]), {"note": 3}, "note=3 is a int, not str | None"),
        ((0, 5), {}, f"{NOT_FIT}: 'int' object is not subscriptable"),
        ((7, ["a"]), {}, "list index out of range"),
        ((0, ["a"]), {"scale": float("nan")}, "Invalid arguments to pick: cannot convert float NaN"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(given, named, says):
    with pytest.raises((TTKitError, TypeError)) as error:
        pick(*given, **named)
    assert says in str(error.value)
    assert error.value.__suppress_context__  # no traceback of Python's or NumPy's own error


def test_numpy_numbers_and_none_are_taken():
    assert pick(np.int64(0), ["a"], np.float32(2.0), None) == "aa"
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        pick(0, ["a"], other=1)


def test_a_record_says_what_an_operation_is():
    record = OPERATIONS["add"]
    assert record.kind == "compute"
    names = "matmul", "all_reduce", "from_torch", "to_numpy", "typecast", "reshape"
    kinds = ["product", "collective", "write", "read", "store", "arrange"]
    assert [OPERATIONS[name].kind for name in names] == kinds
    with pytest.raises(AttributeError):
        record.kind = "store"


def test_hints_change_no_value_and_a_memory_config_is_kept():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        x = ttkit.from_numpy(np.eye(32, dtype=np.float32), device=mesh, layout=ttnn.TILE_LAYOUT)
        kernel = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi4)
        how = {"compute_kernel_config": kernel, "queue_id": 0}
        made = ttnn.matmul(x, x, memory_config=ttnn.L1_MEMORY_CONFIG, **how)
        np.testing.assert_array_equal(ttkit.to_numpy(ttnn.get_device_tensors(made)[1]), np.eye(32))
        assert made.memory_config() == ttnn.L1_MEMORY_CONFIG
        assert ttnn.matmul(x, x).memory_config() == ttnn.DRAM_MEMORY_CONFIG
        assert inspect.signature(ttnn.matmul).parameters["core_grid"].default is None
